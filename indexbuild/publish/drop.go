package publish

import (
	"context"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/repack"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
)

// A compaction drops the rows that takedowns hide: it writes unions without them, also of a single
// batch, and builds the segments anew from these. The plan names the takedowns that it applies, and
// the commit makes sure that all of them are still in force, so that a lift before it brings the
// rows back. A takedown that is added meanwhile hides its rows in the new segment, as in any other
// one, and the next compaction drops them.

// drop makes a job drop what is hidden of its sources.
func (t *uniteTask) drop(d *suppress.Dropping) {
	for i := range t.Sources {
		s := &t.Sources[i]
		if h := d.In(suppress.Stored{DatasetID: t.DatasetID, Name: s.Batch}); h != nil {
			s.Hidden = h.Rows
			t.Rules = append(t.Rules, h.Rules...)
			t.Document = d.Ref
		}
	}
	slices.Sort(t.Rules)
	t.Rules = slices.Compact(t.Rules)
}

// nameTakedowns names the takedowns of the unions that jobs are to write.
func nameTakedowns(ctx context.Context, store blob.Store, jobs []*uniteTask) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, j := range jobs {
		g.Go(func() error { return j.NameTakedowns(ctx, store) })
	}
	return g.Wait()
}

// lifted reports whether a takedown that the plan applies is not in force any more.
func (p *plan) lifted(ctx context.Context, store blob.Store) (bool, error) {
	if len(p.Drops) == 0 {
		return false, nil
	}
	_, all, err := suppress.InForce(ctx, store, p.Drops)
	return !all, err
}

// repacked is a batch of a segment that stays, of which the version names another pack.
type repacked struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"`
	Pack      string `json:"pack"`
}

// leavePacks gives batches packs without the postings of batches of which the plan drops rows
// (package repack). If all is set, it looks into all packs.
func (p *plan) leavePacks(ctx context.Context, store blob.Store, base *manifest.Version, all bool) error {
	opt := repack.Options{All: all, Drop: map[manifest.BatchName]string{}}
	in := map[manifest.BatchName]bool{}
	for i := range p.Batches {
		name := p.Batches[i].name()
		if in[name] = true; p.rid[name] {
			opt.Drop[name] = p.Batches[i].Pack
		}
	}
	packs, err := repack.Write(ctx, store, base, opt)
	if err != nil || len(packs) == 0 {
		return err
	}
	for i := range p.Batches {
		if to, ok := packs.Of(p.Batches[i].name(), p.Batches[i].Pack); ok {
			p.Batches[i].Pack = to
		}
	}
	names := packs.Batches()
	live, err := base.FindBatches(ctx, names)
	for _, name := range names {
		if to, ok := packs.Of(name, live[name].Pack); ok && !in[name] {
			p.Repacked = append(p.Repacked, repacked{name.DatasetID, name.Batch, live[name].Digest, to})
		}
	}
	return err
}

// repackedIn returns, by segment, the batches of a version of which the plan names other packs.
func (p *plan) repackedIn(
	ctx context.Context, parent *manifest.Version,
) (map[string]iter.Seq2[manifest.Batch, error], error) {
	all := map[string]iter.Seq2[manifest.Batch, error]{}
	if len(p.Repacked) == 0 {
		return all, nil
	}
	to := map[manifest.BatchName]repacked{}
	names := make([]manifest.BatchName, len(p.Repacked))
	for i, r := range p.Repacked {
		names[i] = manifest.BatchName{DatasetID: r.DatasetID, Batch: r.Batch}
		to[names[i]] = r
	}
	live, err := parent.FindBatches(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, b := range live {
		segment := b.Segment
		all[segment] = func(yield func(manifest.Batch, error) bool) {
			for b, err := range parent.BatchesIn(ctx, segment) {
				if r, ok := to[b.BatchName]; ok && r.Digest == b.Digest {
					b.Pack = r.Pack
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
	return all, nil
}
