package publish

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
)

// A compaction drops the rows that takedowns hide: it writes unions without them, also of a single
// batch, and builds the segments anew from these. The plan names the takedowns that it applies, and
// the commit makes sure that all of them are still in force, so that a lift before it brings the
// rows back. A takedown that is added meanwhile hides its rows in the new segment, as in any other
// one, and the next compaction drops them.

// dropping is what takedowns hide in the version that a compaction is planned on. Nil hides
// nothing.
type dropping struct {
	ref   *takedown.Ref
	doc   *takedown.Document
	rules *takedown.Rules
	// hidden is what they hide in the segments that the plan replaces.
	hidden map[suppress.Stored]*suppress.Hidden
}

// readDropping returns what hides rows of a version, nil if nothing does.
func readDropping(ctx context.Context, store blob.Store, m *manifest.Manifest) (*dropping, error) {
	if m.Takedowns == nil {
		return nil, nil
	}
	doc, err := takedown.Read(ctx, store, m.Takedowns)
	if err != nil {
		return nil, err
	}
	d := &dropping{ref: m.Takedowns, doc: doc, hidden: map[suppress.Stored]*suppress.Hidden{}}
	d.rules, err = doc.Rules(ctx, store)
	return d, err
}

// hides reports whether a segment has rows that are hidden.
func (d *dropping) hides(segment string) bool {
	if d == nil {
		return false
	}
	s, ok := d.doc.Find(segment)
	return ok && s.Hidden > 0
}

// add looks what is hidden in a segment that the plan is to replace.
func (d *dropping) add(ctx context.Context, store blob.Store, s *manifest.Segment) error {
	if !d.hides(s.ID) {
		return nil
	}
	covered, _ := d.doc.Find(s.ID)
	found, err := suppress.HiddenIn(ctx, store, d.rules, s, covered)
	for stored, h := range found {
		d.hidden[stored] = h
	}
	return err
}

// in returns what is hidden of the rows of a batch or a union, nil for nothing.
func (d *dropping) in(ref segment.BatchRef) *suppress.Hidden {
	if d == nil {
		return nil
	}
	return d.hidden[suppress.Stored{DatasetID: ref.DatasetID, Name: ref.Batch}]
}

// drop makes a job drop what is hidden of its sources.
func (d *dropping) drop(job *uniteTask) {
	for i := range job.Sources {
		s := &job.Sources[i]
		h := d.in(segment.BatchRef{DatasetID: job.DatasetID, Batch: s.Batch, Digest: s.Digest})
		if h != nil {
			s.Hidden = h.Rows
			job.Rules = append(job.Rules, h.Rules...)
		}
	}
	slices.Sort(job.Rules)
	job.Rules = slices.Compact(job.Rules)
	if len(job.Rules) > 0 {
		job.Document = d.ref
	}
}

// nameTakedowns sets the takedowns of the unions that jobs are to write: those of the unions among
// their sources, and the ones that the jobs apply. They are a part of the unions' names. A source
// whose record is damaged has none; whoever writes the union finds the damage.
func nameTakedowns(ctx context.Context, store blob.Store, jobs []*uniteTask) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, j := range jobs {
		g.Go(func() error {
			all := slices.Clone(j.Rules)
			for _, s := range j.Sources {
				if !lake.IsUnionName(s.Batch) {
					continue
				}
				key := lake.BatchKey(j.DatasetID, s.Batch, s.Digest)
				data, _, err := store.Get(ctx, key)
				var record *lake.Batch
				if err == nil {
					record, err = lake.DecodeBatch(data, key)
				}
				switch {
				case errors.Is(err, blob.ErrNotExist), errors.Is(err, codec.ErrCorrupt):
				case err != nil:
					return err
				default:
					all = append(all, record.Takedowns...)
				}
			}
			slices.Sort(all)
			j.Takedowns = slices.Compact(all)
			return nil
		})
	}
	return g.Wait()
}

// inForce returns the rules of a lake with these ids, and whether all of them are in force.
func inForce(ctx context.Context, store blob.Store, ids []string) (*takedown.Rules, bool, error) {
	for {
		m, _, err := manifest.Read(ctx, store)
		if err != nil {
			return nil, false, err
		}
		doc, err := takedown.Read(ctx, store, m.Takedowns)
		var rules *takedown.Rules
		if err == nil {
			rules, err = doc.Rules(ctx, store)
		}
		if errors.Is(err, codec.ErrCorrupt) {
			// What a later manifest refers to no longer may be collected while it is read.
			if now, _, readErr := manifest.Read(ctx, store); readErr == nil && now.Generation != m.Generation {
				continue
			}
		}
		if err != nil {
			return nil, false, err
		}
		picked, all := rules.Pick(ids)
		return picked, all, nil
	}
}

// lifted reports whether a takedown that the plan applies is not in force any more.
func (p *plan) lifted(ctx context.Context, store blob.Store) (bool, error) {
	if len(p.Drops) == 0 {
		return false, nil
	}
	m, _, err := manifest.Read(ctx, store)
	if err != nil {
		return false, err
	}
	if m.Takedowns != nil && p.Takedowns != nil && *m.Takedowns == *p.Takedowns {
		return false, nil
	}
	_, all, err := inForce(ctx, store, p.Drops)
	return !all, err
}
