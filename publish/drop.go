package publish

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish/rewrite"
	"github.com/urlake/urlake/publish/suppress"
)

// A compaction drops the rows that takedowns hide: it writes unions without them, also of a single
// batch, and builds the segments anew from these. The plan names the takedowns that it applies, and
// the commit makes sure that all of them are still in force, so that a lift before it brings the
// rows back. A takedown that is added meanwhile hides its rows in the new segment, as in any other
// one, and the next compaction drops them.

// dropHidden makes a job drop what is hidden of its sources.
func dropHidden(j *rewrite.Job, d *suppress.Dropping) {
	for i := range j.Sources {
		s := &j.Sources[i]
		if h := d.In(j.DatasetID, s.Batch); h != nil {
			s.Hidden = h.Rows
			j.Rules = append(j.Rules, h.Rules...)
		}
	}
	slices.Sort(j.Rules)
	j.Rules = slices.Compact(j.Rules)
}

// nameTakedowns names the takedowns of the unions that jobs are to write.
func nameTakedowns(ctx context.Context, store blob.Store, jobs []*rewrite.Job) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, j := range jobs {
		g.Go(func() error { return j.NameTakedowns(ctx, store) })
	}
	return g.Wait()
}

// lifted reports whether a takedown that the plan applies is not in force any more.
func (p *plan) lifted(ctx context.Context, store blob.Store) (bool, error) {
	if len(p.Rules) == 0 {
		return false, nil
	}
	_, all, err := suppress.InForce(ctx, store, p.Rules)
	return !all, err
}
