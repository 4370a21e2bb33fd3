package workflows

import (
	"errors"

	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/publish"
)

// build builds the segments of a plan: large ones by tasks that several workers share, others in
// one activity. It reports whether to plan again.
func (f *publishFlow) build(ctx workflow.Context, plan *publish.Summary) (built publish.Built, again bool, err error) {
	if plan.Large {
		done, err := f.buildInRanges(ctx, plan, &built)
		switch {
		case errors.Is(err, errDamaged):
			return built, true, nil
		case err != nil && !errors.Is(err, errOtherBuild):
			return built, false, err
		case done && err == nil:
			return built, built.Damaged > 0, nil
		}
	}
	err = f.steps.move(ctx, activities.PoolIndex, &built, (*activities.Index)(nil).BuildSegment, f.Lake, plan.PlanKey)
	return built, err == nil && built.Damaged > 0, err
}

var (
	// errDamaged says that a task has found damaged batches, which the next plan leaves out.
	errDamaged = errors.New("damaged batches")
	// errOtherBuild says that another build of urlake began the build of the segments.
	errOtherBuild = errors.New("begun by another build of urlake")
)

// buildInRanges builds the segments of a plan by tasks. done is false if the segments are too small
// for that, and the step that would divide the build has not built them. Tasks that are done when
// the workflow continues as new are not repeated: they find what they have staged.
func (f *publishFlow) buildInRanges(ctx workflow.Context, plan *publish.Summary, built *publish.Built) (done bool, err error) {
	defer func() { f.progress.Tasks, f.progress.Done = 0, 0 }()
	var split activities.Split
	if err := f.steps.move(
		ctx, activities.PoolIndex, &split, (*activities.Index)(nil).SplitBuild, f.Lake, plan.PlanKey,
	); err != nil {
		return false, err
	}
	ranges := split.Ranges
	switch {
	case ranges.Damaged > 0:
		return false, errDamaged
	case split.Built != nil:
		*built = *split.Built
		return true, nil
	case ranges.Merges == 0:
		return false, nil
	}
	f.progress.Tasks = ranges.Merges + ranges.Writes
	for _, step := range []struct {
		tasks    int
		activity any
	}{
		{ranges.Merges, (*activities.Index)(nil).MergeRange},
		{ranges.Writes, (*activities.Index)(nil).WriteRange},
	} {
		next, err := fanOut(ctx, plan.Window, 0, step.tasks, func(ctx workflow.Context, i int) error {
			var r publish.Ranged
			err := f.steps.move(ctx, activities.PoolIndex, &r, step.activity, f.Lake, plan.PlanKey, ranges, i)
			switch {
			case err != nil:
				return err
			case r.Damaged > 0:
				return errDamaged
			case r.Other:
				return errOtherBuild
			}
			f.progress.Done++
			return nil
		})
		if err != nil {
			return false, err
		}
		if next < step.tasks {
			return false, errLongHistory
		}
	}
	return true, f.steps.move(ctx, activities.PoolIndex, built, (*activities.Index)(nil).FinishBuild, f.Lake, plan.PlanKey, ranges)
}
