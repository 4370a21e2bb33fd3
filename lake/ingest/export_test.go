package ingest

import (
	"context"
	"testing"

	"github.com/urlake/urlake/lake/blob"
)

// Limits divide the work of small inputs in tests as if they were large. Zeros mean the usual
// limits.
type Limits struct {
	Arena, MergeArena   int64
	Split               int64
	Splits              int
	Object              int64
	AnyPrefix, OneDigit int64
	Task                int64
	Objects             int
	// RejectLines and RejectBytes bound lists of rejects; from Hopeless on, too many end a split.
	RejectLines, RejectBytes, Hopeless int64

	Postings NewPostings // not a limit: the postings argument of the steps
}

// IsSmall is isSmall.
func IsSmall(splits int, bytes int64) bool { return isSmall(splits, bytes, defaultLimits) }

func (l Limits) limits() limits {
	out := defaultLimits
	for _, f := range []struct {
		to   *int64
		from int64
	}{{&out.arena, l.Arena}, {&out.mergeArena, l.MergeArena}, {&out.split, l.Split}, {&out.object,
		l.Object}, {&out.merge.AnyPrefix, l.AnyPrefix}, {&out.merge.OneDigit, l.OneDigit}, {&out.merge.Task, l.Task}, {&out.rejects.lines, l.RejectLines},
		{&out.rejects.bytes, l.RejectBytes}, {&out.hopeless, l.Hopeless}} {
		if f.from != 0 {
			*f.to = f.from
		}
	}
	if l.Splits != 0 {
		out.splits = l.Splits
	}
	if l.Objects != 0 {
		out.objects = l.Objects
	}
	return out
}

func MakePlanWithin(ctx context.Context, store blob.Store, run string, spec Spec, l Limits) (PlanSummary, error) {
	return makePlan(ctx, store, run, spec, l.limits())
}

func NormalizeWithin(ctx context.Context, store blob.Store, run string, split int, l Limits) (SplitResult, error) {
	return normalize(ctx, store, run, split, nil, l.limits())
}

func PlanMergeWithin(ctx context.Context, store blob.Store, run string, l Limits) (MergeSummary, error) {
	return planMerge(ctx, store, run, l.limits())
}

func MergeWithin(
	ctx context.Context, store blob.Store, run string, task int, tempDir string, l Limits,
) (MergeResult, error) {
	return merge(ctx, store, run, task, tempDir, l.Postings, nil, l.limits())
}

func FinishWithin(ctx context.Context, store blob.Store, run string, l Limits) (FinishResult, error) {
	return finish(ctx, store, run, l.limits().rejects)
}

func IngestSmallWithin(ctx context.Context, store blob.Store, run, tempDir string, l Limits) (SmallResult, error) {
	return ingestSmall(ctx, store, run, tempDir, l.Postings, l.Postings, nil, l.limits())
}

// BehindS3 makes store the bucket of every s3:// input for the rest of the test.
func BehindS3(t *testing.T, store blob.Store) {
	real := openStore
	openStore = func(context.Context, string) (blob.Store, error) { return store, nil }
	t.Cleanup(func() { openStore = real })
}

// Expand lists the objects that the inputs of a spec stand for, and returns the notes about the
// others.
func Expand(ctx context.Context, spec Spec) (names, notes []string, err error) {
	sel, err := newSelection(spec.Include, spec.Exclude)
	if err != nil {
		return nil, nil, err
	}
	var in inputs
	found, err := in.expand(ctx, spec.Inputs, sel, maxObjects)
	for _, o := range found {
		names = append(names, o.Name)
	}
	return names, sel.notes(), err
}

// EffectOf is effectOf.
var EffectOf = effectOf
