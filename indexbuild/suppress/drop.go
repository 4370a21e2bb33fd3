package suppress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
)

// Stored names what holds rows in a segment: a batch, or a union of batches.
type Stored struct {
	DatasetID uint32
	Name      string
}

// Hidden is what takedowns hide of the rows of a batch or a union.
type Hidden struct {
	Rows int64
	// Rules are the ids of the takedowns about the domains of these rows in the dataset, ascending.
	// Those that hide the rows are among them.
	Rules []string
}

// hiddenIn adds what takedowns hide in a segment of a version, by what holds the rows. It looks
// into overlays, the postings and the list of parts, and reads no rows. Covered is the segment in
// the document.
func (d *Dropping) hiddenIn(
	ctx context.Context, a *applier, s *manifest.Segment, covered takedown.Segment,
) error {
	all, rules := d.hidden, d.rules
	seg, err := segment.Open(ctx, a.store, SegmentRef(s), segment.Options{
		Cache: segment.NewFrameCache(cacheBytes), PostingsOnly: true, WholeFiles: true,
	})
	if err != nil {
		return err
	}
	defer seg.Close()
	below, err := a.namesBelow(ctx, seg, s.ID, rules.Domains())
	if err != nil {
		return err
	}
	names := map[segment.Key]string{}
	for _, name := range append(rules.Names(), below...) {
		names[segment.KeyOf(name)] = name
	}
	r, err := newRowReader(ctx, a.store, seg, s.Dead)
	if err != nil {
		return err
	}
	for k, name := range names {
		dead, err := r.dead.Entries(ctx, k, 0, math.MaxUint32)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(dead, func(e overlay.Entry) bool { return len(rules.IDs(name, e.Dataset)) > 0 }) {
			d.dead[s.View()] = true
		}
	}
	if covered.Overlay == nil {
		return nil
	}
	o, err := overlay.Open(ctx, a.store, OverlayRef(covered.Overlay), nil)
	if err != nil {
		return err
	}
	total := int64(0)
	for e, err := range o.All(ctx) {
		if err != nil {
			return err
		}
		name, ok := names[e.Key]
		ids := rules.IDs(name, e.Dataset)
		if !ok || len(ids) == 0 {
			return codec.Corrupt(covered.Overlay.Object, "entries", -1, "entries of domains that takedowns name",
				fmt.Sprintf("domain %016x in dataset %d", e.ID, e.Dataset))
		}
		byFile, err := r.hiddenRows(ctx, &e)
		if err != nil {
			return err
		}
		for id, rows := range byFile {
			f := seg.Files().Info(id)
			h := all[Stored{f.DatasetID, f.Batch}]
			if h == nil {
				h = &Hidden{}
				all[Stored{f.DatasetID, f.Batch}] = h
			}
			h.Rows += rows
			h.Rules = append(h.Rules, ids...)
			total += rows
		}
	}
	for _, h := range all {
		slices.Sort(h.Rules)
		h.Rules = slices.Compact(h.Rules)
	}
	if total != covered.Hidden {
		return codec.Corrupt(covered.Overlay.Object, "entries", -1, fmt.Sprintf("%d dead rows", covered.Hidden), total)
	}
	return nil
}

// hiddenRows returns how many rows of each part an entry of an overlay of takedowns takes away, by
// file id.
func (r *rowReader) hiddenRows(ctx context.Context, e *overlay.Entry) (map[uint32]int64, error) {
	seg := r.seg
	bad := func(want, got any) error {
		return codec.Corrupt(segment.Prefix(seg.Info().Segment)+segment.PostingsName(0),
			"domain "+strconv.FormatUint(e.ID, 16), -1, want, got)
	}
	all, err := r.entries(ctx, e.Key)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(own segment.Entry) bool { return own.Dataset == e.Dataset })
	if at < 0 || all[at].Rows != e.Rows+e.Dead {
		return nil, bad(fmt.Sprintf("%d rows in dataset %d, as the overlay says", e.Rows+e.Dead, e.Dataset), all)
	}
	tuples, err := r.tuples(ctx, all[at])
	if err != nil {
		return nil, err
	}
	left, err := e.Tuples()
	if err != nil {
		return nil, err
	}
	dead := map[uint32]int64{}
	for _, t := range tuples {
		if int(t.FileID) >= seg.Files().Len() {
			return nil, bad("a file_id of a part", t.FileID)
		}
		dead[t.FileID] += t.Rows
	}
	for _, t := range left {
		dead[t.FileID] -= t.Rows
	}
	for id, rows := range dead {
		switch {
		case rows < 0 || int(id) >= seg.Files().Len():
			return nil, bad("rows that the segment has", fmt.Sprintf("%d fewer in part %d", rows, id))
		case rows == 0:
			delete(dead, id)
		}
	}
	return dead, nil
}

// Dropping is what takedowns hide in a version, for a compaction that drops it. Nil hides nothing.
type Dropping struct {
	// Ref names the document that has the rules.
	Ref *takedown.Ref

	doc   *takedown.Document
	rules *takedown.Rules
	// follows is the public suffix list of the version.
	follows string
	hidden  map[Stored]*Hidden
	// dead are the views of segments of which the version lacks rows that the takedowns may match:
	// those of batches that were retired or replaced.
	dead map[string]bool
}

// ReadDropping returns what hides rows of a version of a manifest, nil if nothing does.
func ReadDropping(
	ctx context.Context, store blob.Store, m *manifest.Manifest, v *manifest.Version,
) (*Dropping, error) {
	if m.Takedowns == nil {
		return nil, nil
	}
	doc, err := takedown.Read(ctx, store, m.Takedowns)
	if err != nil {
		return nil, err
	}
	d := &Dropping{Ref: m.Takedowns, doc: doc, follows: v.PublicSuffix, hidden: map[Stored]*Hidden{}, dead: map[string]bool{}}
	d.rules, err = doc.Rules(ctx, store)
	return d, err
}

// Hides reports whether a segment of the version has rows that are hidden; after Add, also whether
// it has dead rows that may be.
func (d *Dropping) Hides(s *manifest.Segment) bool {
	if d == nil {
		return false
	}
	covered, ok := d.doc.Find(s.View())
	return ok && covered.Hidden > 0 || d.dead[s.View()]
}

// Add looks what is hidden in a segment of the version.
func (d *Dropping) Add(ctx context.Context, store blob.Store, s *manifest.Segment) error {
	if d == nil {
		return nil
	}
	covered, _ := d.doc.Find(s.View())
	if covered.Overlay == nil && (s.Dead == nil || d.rules.Len() == 0) {
		return nil
	}
	a := newApplier(store, "")
	a.follows[s.ID] = d.follows
	if err := d.hiddenIn(ctx, a, s, covered); err != nil {
		return fmt.Errorf("segment %s: %w", s.ID, err)
	}
	return nil
}

// In returns what is hidden of the rows of a batch or a union in the segments that were added, nil
// for nothing.
func (d *Dropping) In(s Stored) *Hidden {
	if d == nil {
		return nil
	}
	return d.hidden[s]
}

// Rules returns the rules of a lake that are in force.
func Rules(ctx context.Context, store blob.Store) (*takedown.Rules, error) {
	for {
		m, _, err := manifest.Read(ctx, store)
		if err != nil {
			return nil, err
		}
		doc, err := takedown.Read(ctx, store, m.Takedowns)
		var rules *takedown.Rules
		if err == nil {
			rules, err = doc.Rules(ctx, store)
		}
		if errors.Is(err, codec.ErrCorrupt) {
			// What a later manifest refers to no longer may be collected while it is read.
			if now, _, readErr := manifest.ReadUnchecked(ctx, store); readErr == nil && now.Generation != m.Generation {
				continue
			}
		}
		return rules, err
	}
}

// InForce returns the rules of a lake with these ids, and whether all of them are in force.
func InForce(ctx context.Context, store blob.Store, ids []string) (picked *takedown.Rules, all bool, err error) {
	rules, err := Rules(ctx, store)
	if err != nil {
		return nil, false, err
	}
	picked, all = rules.Pick(ids)
	return picked, all, nil
}
