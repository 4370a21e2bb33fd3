package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/lake/blob"
)

// Index is the pool that builds segments.
type Index struct{ Lake }

// BuildSegment builds the segment of a publish plan. If builds of the plan crash again and again
// while they read a batch, it notes that batch as damaged, and the next plan leaves it out.
func (x *Index) BuildSegment(ctx context.Context, lakeURL, planKey string, deaths int) (publish.Built, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Built{}, err
	}
	s := publishStep(ctx, "build-"+documentName(planKey), deaths)
	return building(ctx, x, s, planKey, func(ctx context.Context, store blob.Store) (publish.Built, error) {
		return publish.Build(ctx, store, planKey, x.TempDir)
	}, func(n int) publish.Built { return publish.Built{Damaged: n} })
}

// building runs a step of a build of a plan. If it crashes again and again while it reads a batch,
// that batch is noted as damaged, and the result is that of damaged.
func building[T any](
	ctx context.Context, x *Index, s step, planKey string,
	do func(ctx context.Context, store blob.Store) (T, error), damaged func(n int) T,
) (T, error) {
	built, err := contained(ctx, &x.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (T, error) {
		return do(ctx, store)
	})
	object, reason, ok := crashOf(err)
	if !ok {
		return built, err
	}
	return withHeartbeat(ctx, x.Memory, smallMemory, func(ctx context.Context, _ func(any)) (T, error) {
		n, noteErr := publish.NoteCrash(ctx, x.Store, planKey, object, reason)
		if noteErr == nil && n == 0 {
			return damaged(0), err
		}
		return damaged(n), noteErr
	})
}

// Split is the result of SplitBuild.
type Split struct {
	publish.Ranges
	// Built is nil if there are tasks.
	Built *publish.Built `json:"built,omitempty"`
}

// SplitBuild divides the build of a publish plan into tasks for several workers, if that is faster
// than BuildSegment. Otherwise it does what BuildSegment does.
func (x *Index) SplitBuild(ctx context.Context, lakeURL, planKey string, deaths int) (Split, error) {
	if err := x.check(lakeURL); err != nil {
		return Split{}, err
	}
	s := publishStep(ctx, "split-"+documentName(planKey), deaths)
	return building(ctx, x, s, planKey, func(ctx context.Context, store blob.Store) (Split, error) {
		ranges, err := publish.Split(ctx, store, planKey, x.rangeOptions())
		if err != nil || ranges.Damaged > 0 || ranges.Merges > 0 {
			return Split{Ranges: ranges}, err
		}
		built, err := publish.Build(ctx, store, planKey, x.TempDir)
		return Split{ranges, &built}, err
	}, func(n int) Split { return Split{Ranges: publish.Ranges{Ranged: publish.Ranged{Damaged: n}}} })
}

func (x *Index) rangeOptions() indexbuild.Options {
	return indexbuild.Options{TempDir: x.TempDir, RangePairs: x.RangePairs}
}

// MergeRange merges a range of the domains of a build that is split.
func (x *Index) MergeRange(
	ctx context.Context, lakeURL, planKey string, ranges publish.Ranges, task, deaths int,
) (publish.Ranged, error) {
	return x.rangeTask(ctx, lakeURL, planKey, "merge", ranges, task, deaths, publish.MergeRange)
}

// WriteRange writes some files of the segments of a build that is split, when all ranges are
// merged.
func (x *Index) WriteRange(
	ctx context.Context, lakeURL, planKey string, ranges publish.Ranges, task, deaths int,
) (publish.Ranged, error) {
	return x.rangeTask(ctx, lakeURL, planKey, "write", ranges, task, deaths, publish.WriteRange)
}

func (x *Index) rangeTask(
	ctx context.Context, lakeURL, planKey, name string, ranges publish.Ranges, task, deaths int,
	run func(context.Context, blob.Store, string, publish.Ranges, int, indexbuild.Options) (publish.Ranged, error),
) (publish.Ranged, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Ranged{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("%s-%s-%04d", name, documentName(planKey), task), deaths)
	return building(ctx, x, s, planKey, func(ctx context.Context, store blob.Store) (publish.Ranged, error) {
		return run(ctx, store, planKey, ranges, task, x.rangeOptions())
	}, func(n int) publish.Ranged { return publish.Ranged{Damaged: n} })
}

// FinishBuild completes the segments of a build that is split, when all their files are written.
func (x *Index) FinishBuild(
	ctx context.Context, lakeURL, planKey string, ranges publish.Ranges, deaths int,
) (publish.Built, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Built{}, err
	}
	s := publishStep(ctx, "finish-"+documentName(planKey), deaths)
	return building(ctx, x, s, planKey, func(ctx context.Context, store blob.Store) (publish.Built, error) {
		return publish.FinishBuild(ctx, store, planKey, ranges, x.rangeOptions())
	}, func(n int) publish.Built { return publish.Built{Damaged: n} })
}

// crashOf returns the object and the text of an error of type ErrCrash. ok is false if err is none.
func crashOf(err error) (object, reason string, ok bool) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != ErrCrash || app.Details(&object) != nil {
		return "", "", false
	}
	return object, app.Message(), true
}

// MoveBatches moves the batches of a task of a move plan to the lake's public suffix list. If it
// crashes again and again at one batch, it notes that batch as damaged and goes on when it is
// retried.
func (x *Index) MoveBatches(ctx context.Context, lakeURL, moveKey string, task, deaths int) (publish.Moved, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Moved{}, err
	}
	s := publishStep(ctx, fmt.Sprintf("%s-%06d", documentName(moveKey), task), deaths)
	moved, err := contained(ctx, &x.Lake, s, moveMemory, func(ctx context.Context, store blob.Store, report func(any)) (publish.Moved, error) {
		return publish.Move(ctx, store, moveKey, task, x.TempDir, func(p publish.MoveProgress) { report(p) })
	})
	_, reason, ok := crashOf(err)
	if !ok {
		return moved, err
	}
	return withHeartbeat(ctx, x.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.Moved, error) {
		if noted, noteErr := publish.NoteMoveCrash(ctx, x.Store, moveKey, task, reason); noteErr != nil {
			return publish.Moved{}, noteErr
		} else if !noted {
			return publish.Moved{}, err
		}
		return publish.Moved{}, retrySoon("a batch that crashes is not moved", "Noted")
	})
}

// RebuildSegments repairs damaged segments of the current version: the one with the id which, or
// all if which is publish.RebuildAll.
func (x *Index) RebuildSegments(ctx context.Context, lakeURL, which string, deaths int) (publish.Rebuilt, error) {
	if err := x.check(lakeURL); err != nil {
		return publish.Rebuilt{}, err
	}
	s := publishStep(ctx, "rebuild", deaths)
	return contained(ctx, &x.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (publish.Rebuilt, error) {
		return publish.Rebuild(ctx, store, which, x.TempDir)
	})
}
