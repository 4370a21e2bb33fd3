package suppress

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// Hidden is what takedowns hide of the rows of a batch or a union.
type Hidden struct {
	Rows int64
	// Rules are the ids of the takedowns about the domains of these rows in the dataset, ascending.
	// Those that hide the rows are among them.
	Rules []string
}

// Dropping is what takedowns hide in a version, for a compaction that drops it. Nil hides nothing.
type Dropping struct {
	a      *applier
	doc    *catalog.TakedownDocument
	rules  *catalog.Takedowns
	list   string                        // the public suffix list of the version
	hidden map[catalog.BatchName]*Hidden // by what holds the rows: a batch, or a union
	// dead are the segments' views that have dead batches, whose rows the takedowns may match, too.
	dead map[string]bool
}

// ReadDropping returns what hides rows of a version of a manifest, nil if nothing does.
func ReadDropping(
	ctx context.Context, store blob.Store, m *catalog.Manifest, v *catalog.Version,
) (*Dropping, error) {
	if m.Takedowns == nil {
		return nil, nil
	}
	doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
	if err != nil {
		return nil, err
	}
	d := &Dropping{
		a: newApplier(store, ""), doc: doc, list: v.PublicSuffix, hidden: map[catalog.BatchName]*Hidden{}, dead: map[string]bool{},
	}
	d.rules, err = doc.Rules(ctx, store)
	return d, err
}

// Hides reports whether a segment of the version has rows that are hidden; after Add, also whether
// it has dead rows that may be.
func (d *Dropping) Hides(s *catalog.Segment) bool {
	if d == nil {
		return false
	}
	covered, ok := d.doc.Find(s.View())
	return ok && covered.Hidden > 0 || d.dead[s.View()]
}

// In returns what is hidden of the rows of a batch or a union in the segments that were added, nil
// for nothing.
func (d *Dropping) In(dataset uint32, stored string) *Hidden {
	if d == nil {
		return nil
	}
	return d.hidden[catalog.BatchName{DatasetID: dataset, Batch: stored}]
}

// Add looks what is hidden in a segment of the version. It looks into deletion tables, the postings
// and the list of parts, and reads no rows.
func (d *Dropping) Add(ctx context.Context, s *catalog.Segment) error {
	if d == nil || d.rules.Len() == 0 {
		return nil
	}
	covered, _ := d.doc.Find(s.View())
	if covered.Table == nil && s.Dead == nil {
		return nil
	}
	if err := d.add(ctx, s, covered); err != nil {
		return fmt.Errorf("segment %s: %w", s.ID, err)
	}
	return nil
}

func (d *Dropping) add(ctx context.Context, s *catalog.Segment, covered catalog.TakedownSegment) error {
	seg, err := segment.Open(ctx, d.a.store, deletion.SegmentRef(s), segment.Options{
		Cache: segment.NewFrameCache(cacheBytes), PostingsOnly: true, WholeFiles: true,
	})
	if err != nil {
		return err
	}
	defer seg.Close()
	own, err := deletion.OpenOwn(ctx, d.a.store, s, segment.NewFrameCache(cacheBytes))
	if err != nil {
		return err
	}
	list, err := d.a.suffixList(ctx, d.list)
	if err != nil {
		return err
	}
	domains, err := deletion.Domains(ctx, seg, d.rules, list)
	if err != nil {
		return err
	}
	names := make(map[segment.Key]string, len(domains))
	for _, domain := range domains {
		names[domain.Key] = domain.Name
		dead, err := own.Entries(ctx, domain.Key, 0, math.MaxUint32)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(dead, func(e deletion.Entry) bool { return len(d.rules.IDs(domain.Name, e.Dataset)) > 0 }) {
			d.dead[s.View()] = true
		}
	}
	if covered.Table == nil {
		return nil
	}
	table, err := deletion.Open(ctx, d.a.store, *covered.Table, nil)
	if err != nil {
		return err
	}
	total := int64(0)
	for e, err := range table.All(ctx) {
		if err != nil {
			return err
		}
		before, _, err := own.Entry(ctx, e.Key, e.Dataset)
		if err != nil {
			return err
		}
		if e.Dead == before.Dead {
			continue
		}
		ids := d.rules.IDs(names[e.Key], e.Dataset)
		if len(ids) == 0 {
			return codec.Corrupt(covered.Table.Key, "entries", -1, "entries of domains that takedowns name",
				fmt.Sprintf("domain %016x in dataset %d", e.ID, e.Dataset))
		}
		byFile, err := hiddenRows(ctx, seg, &before, &e)
		if err != nil {
			return err
		}
		for id, rows := range byFile {
			f := seg.Files().Info(id)
			name := catalog.BatchName{DatasetID: f.DatasetID, Batch: f.Batch}
			h := d.hidden[name]
			if h == nil {
				h = &Hidden{}
				d.hidden[name] = h
			}
			h.Rows += rows
			for _, rule := range ids {
				if i, found := slices.BinarySearch(h.Rules, rule); !found {
					h.Rules = slices.Insert(h.Rules, i, rule)
				}
			}
			total += rows
		}
	}
	if total != covered.Hidden {
		return codec.Corrupt(covered.Table.Key, "entries", -1, fmt.Sprintf("%d hidden rows", covered.Hidden), total)
	}
	return nil
}

// hiddenRows returns how many rows of each part takedowns hide of an entry, by file id. Before is
// the entry of the version's own table; Dead is 0 if there is none.
func hiddenRows(ctx context.Context, seg *segment.Segment, before, after *deletion.Entry) (map[uint32]int64, error) {
	bad := func(want, got any) error {
		return codec.Corrupt(segment.Prefix(seg.Info().Segment)+segment.PostingsName(0),
			fmt.Sprintf("domain %016x in dataset %d", after.ID, after.Dataset), -1, want, got)
	}
	own, ok, err := seg.Entry(ctx, after.Key, after.Dataset)
	if err != nil {
		return nil, err
	}
	if want := after.Rows + after.Dead; !ok || own.Rows != want {
		return nil, bad(fmt.Sprintf("%d rows, as the deletion table says", want), own.Rows)
	}
	tuples, err := before.Tuples()
	if before.Dead == 0 {
		tuples, err = seg.Tuples(ctx, own)
	}
	if err != nil {
		return nil, err
	}
	left, err := after.Tuples()
	if err != nil {
		return nil, err
	}
	dead, kept := deletion.Difference(tuples, left)
	if kept != after.Rows {
		return nil, bad(fmt.Sprintf("%d rows that are left", after.Rows), kept)
	}
	hidden := map[uint32]int64{}
	for _, t := range dead {
		if int(t.FileID) >= seg.Files().Len() {
			return nil, bad("a file_id of a part", t.FileID)
		}
		hidden[t.FileID] += t.Rows
	}
	return hidden, nil
}

// Rules returns the rules of a lake that are in force.
func Rules(ctx context.Context, store blob.Store) (*catalog.Takedowns, error) {
	for {
		m, _, err := catalog.ReadManifest(ctx, store)
		if err != nil {
			return nil, err
		}
		doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
		var rules *catalog.Takedowns
		if err == nil {
			rules, err = doc.Rules(ctx, store)
		}
		if errors.Is(err, codec.ErrCorrupt) {
			// What a later manifest refers to no longer may be collected while it is read.
			if now, _, readErr := catalog.ReadManifestUnchecked(ctx, store); readErr == nil && now.Generation != m.Generation {
				continue
			}
		}
		return rules, err
	}
}

// InForce returns the rules of a lake with these ids, and whether all of them are in force.
func InForce(ctx context.Context, store blob.Store, ids []string) (picked *catalog.Takedowns, all bool, err error) {
	rules, err := Rules(ctx, store)
	if err != nil {
		return nil, false, err
	}
	picked, all = rules.Pick(ids)
	return picked, all, nil
}
