package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Ranges says how the segments of a plan are built by several workers, in place of Build: first all
// tasks of MergeRange, then all tasks of WriteRange, then FinishBuild.
type Ranges struct {
	// Splits has the builds in ranges, Merges and Writes the numbers of their tasks. If there are
	// no tasks, use Build.
	Splits []indexbuild.Split `json:"splits,omitempty"`
	Merges int                `json:"merges"`
	Writes int                `json:"writes"`
	Ranged
}

// Ranged is the result of a task of a build in ranges.
type Ranged struct {
	// Damaged is as in Built: if it is not 0, plan again.
	Damaged int `json:"damaged,omitempty"`
	// Other tells that another build of urlake began the build. Use Build.
	Other bool `json:"other,omitempty"`
}

// Large reports whether a plan whose segments cover so many rows may have a segment that is worth
// to be built in ranges of about pairs pairs of domain and dataset; 0 is indexbuild's number. There
// are at most as many pairs as rows.
func Large(rows, pairs int64) bool { return rows >= indexbuild.SplitPairs(pairs) }

// Split divides the build of the plan's segments into tasks, as far as the segments are so large
// that this is faster. The staging of the plan's run gets the results of the tasks.
func Split(ctx context.Context, store blob.Store, planKey string, opt indexbuild.Options) (Ranges, error) {
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		return Ranges{}, fmt.Errorf("split segment: %w", err)
	}
	var r Ranges
	add := func(batches []planned) error {
		if len(batches) == 0 {
			return nil
		}
		s, err := splitOne(ctx, store, path.Dir(planKey)+"/", batches, opt)
		if err == nil && s.Merges > 0 {
			r.Splits = append(r.Splits, s)
			r.Merges, r.Writes = r.Merges+s.Merges, r.Writes+s.Writes
		}
		return err
	}
	err = add(p.Batches)
	for i := range p.Again {
		if err == nil {
			err = add(p.Again[i].Batches)
		}
	}
	if r.Ranged, err = noted(ctx, store, planKey, p, err); err != nil {
		return Ranges{}, err
	}
	return r, nil
}

// splitOne splits the build of one segment. The Split has no tasks if the segment is small, or if
// an earlier build has left it intact.
func splitOne(
	ctx context.Context, store blob.Store, staging string, batches []planned, opt indexbuild.Options,
) (indexbuild.Split, error) {
	rows := int64(0)
	for i := range batches {
		rows += batches[i].Rows
	}
	if !Large(rows, opt.RangePairs) {
		return indexbuild.Split{}, nil
	}
	refs := refs(batches)
	ref, ok, err := indexbuild.FindSegment(ctx, store, refs, opt)
	if ok && err == nil {
		_, err = verify.Segment(ctx, store, ref, false, opt.TempDir)
	}
	if err == nil && ok || err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return indexbuild.Split{}, err
	}
	if err := segment.SortBatches(refs); err != nil {
		return indexbuild.Split{}, err
	}
	return indexbuild.SplitSegment(ctx, store, refs, staging+"build-"+segment.ID(refs, opt.Builder)+"/", opt)
}

// MergeRange runs task i of the Merges tasks of all splits.
func MergeRange(
	ctx context.Context, store blob.Store, planKey string, r Ranges, i int, opt indexbuild.Options,
) (Ranged, error) {
	return runRange(ctx, store, planKey, r, i, opt, indexbuild.MergeRange, func(s indexbuild.Split) int { return s.Merges })
}

// WriteRange runs task i of the Writes tasks of all splits, after all tasks of MergeRange.
func WriteRange(
	ctx context.Context, store blob.Store, planKey string, r Ranges, i int, opt indexbuild.Options,
) (Ranged, error) {
	return runRange(ctx, store, planKey, r, i, opt, indexbuild.WriteRange, func(s indexbuild.Split) int { return s.Writes })
}

// runRange runs task i of the tasks of all splits, of which each has n.
func runRange(
	ctx context.Context, store blob.Store, planKey string, r Ranges, i int, opt indexbuild.Options,
	run func(context.Context, blob.Store, indexbuild.Split, int, indexbuild.Options) error, n func(indexbuild.Split) int,
) (Ranged, error) {
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		return Ranged{}, fmt.Errorf("build segment: %w", err)
	}
	for _, s := range r.Splits {
		if i >= n(s) {
			i -= n(s)
			continue
		}
		return noted(ctx, store, planKey, p, run(ctx, store, s, i, opt))
	}
	return Ranged{}, fmt.Errorf("build segment: %d tasks too many", i+1)
}

// noted returns the result of a task that ended with err: it adds damaged batches to the list of
// the plan's run, as Build does.
func noted(ctx context.Context, store blob.Store, planKey string, p *plan, err error) (Ranged, error) {
	if errors.Is(err, indexbuild.ErrOtherBuild) {
		return Ranged{Other: true}, nil
	}
	n, err := note(ctx, store, planKey, p, err)
	return Ranged{Damaged: n}, err
}

// note adds the batches because of which a build ended with err to the list of the plan's run. It
// returns how many there are: 0 with err if no batch is to blame.
func note(ctx context.Context, store blob.Store, planKey string, p *plan, err error) (int, error) {
	var d *postings.DamageError
	var c *indexbuild.CollisionError
	var blamed []segment.BatchRef
	n, nerr := 0, error(nil)
	switch {
	case errors.As(err, &d):
		blamed = []segment.BatchRef{d.Batch}
		n, nerr = noteDamage(ctx, store, planKey, p)
	case errors.As(err, &c):
		blamed = slices.Concat(c.Batches[0], c.Batches[1])
		n, nerr = noteCollision(ctx, store, planKey, p, c)
	}
	if nerr == nil && n == 0 && len(blamed) > 0 {
		// Another task of the build, or an attempt whose result was lost, may have noted them.
		var list *damage
		if list, nerr = readDamageAt(ctx, store, damageKey(path.Dir(planKey)+"/")); nerr == nil {
			var known []planned // with the unions that stand for them
			for _, b := range p.all() {
				if slices.ContainsFunc(list.Batches, func(d damagedBatch) bool { return d.BatchRef == b.ref() }) {
					known = append(known, b)
				}
			}
			for _, b := range known {
				if slices.Contains(blamed, b.stored()) {
					n++
				}
			}
		}
	}
	switch {
	case nerr != nil:
		return 0, fmt.Errorf("build segment: find the damaged batches after %w: %w", err, nerr)
	case n > 0:
		return n, nil
	}
	return 0, err
}

// FinishBuild completes the segments of a plan after all tasks of WriteRange. It builds those that
// are not split in one piece, as Build does.
func FinishBuild(ctx context.Context, store blob.Store, planKey string, r Ranges, opt indexbuild.Options) (Built, error) {
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		return Built{}, fmt.Errorf("build segment: %w", err)
	}
	built, err := p.build(func(refs []segment.BatchRef) (segment.Ref, error) {
		return finishOne(ctx, store, r.Splits, refs, opt)
	})
	if n, err := note(ctx, store, planKey, p, err); n > 0 || err != nil {
		return Built{Damaged: n}, err
	}
	for _, s := range r.Splits {
		if err := s.Remove(ctx, store); err != nil {
			return Built{}, err
		}
	}
	return p.finish(ctx, store, planKey, built)
}

// finishOne completes a segment by its split, or builds it if there is none.
func finishOne(
	ctx context.Context, store blob.Store, splits []indexbuild.Split, refs []segment.BatchRef, opt indexbuild.Options,
) (segment.Ref, error) {
	if err := segment.SortBatches(refs); err != nil {
		return segment.Ref{}, err
	}
	id := segment.ID(refs, opt.Builder)
	i := slices.IndexFunc(splits, func(s indexbuild.Split) bool { return s.Segment == id })
	if i < 0 {
		return buildOne(ctx, store, refs, opt)
	}
	ref, err := indexbuild.FinishSegment(ctx, store, splits[i], opt)
	if errors.Is(err, blob.ErrNotExist) {
		// An earlier attempt, whose result was lost, has removed what was staged.
		return buildOne(ctx, store, refs, opt)
	}
	return ref, err
}
