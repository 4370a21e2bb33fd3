package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/indexbuild/rebuild"
)

// RebuildInput names the lake whose index is made again.
type RebuildInput struct {
	Lake string `json:"lake"`
	// Deadline is how long the rebuild may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// RebuildResult is the result of a rebuild.
type RebuildResult struct {
	rebuild.Summary
	rebuild.Rebuilt
}

// RebuildProgress answers the "progress" query.
type RebuildProgress struct {
	// Stage is plan, postings, segments or done. Tasks and Segments are how many there are of each,
	// TasksDone and SegmentsDone how many are done.
	Stage        string `json:"stage"`
	Tasks        int    `json:"tasks"`
	TasksDone    int    `json:"tasks_done"`
	Segments     int    `json:"segments"`
	SegmentsDone int    `json:"segments_done"`
}

// RebuildWorkflow makes the index of the current version again from the Parquet alone, compares it
// with what is published, and mends what is damaged. If this build of urlake makes other bytes, a
// new version has them, which gives the same answers. It fails if something cannot be made again;
// what can be is made nevertheless.
//
// Its staging is removed when it ends. After a failure of the deadline it begins anew.
func RebuildWorkflow(ctx workflow.Context, in RebuildInput) (*RebuildResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("the input of the rebuild: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("a rebuild needs a lake", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	p := RebuildProgress{Stage: "plan"}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (RebuildProgress, error) { return p, nil }); err != nil {
		return nil, err
	}
	run := workflow.GetInfo(ctx).OriginalRunID
	out, err := s.rebuild(ctx, run, &p)
	s.cleanUp(ctx, run)
	if err != nil {
		return nil, err
	}
	p.Stage = StageDone
	if n := len(out.Unmended); n > 0 {
		return nil, damaged(out.Unmended, n, out)
	}
	return out, nil
}

func (s steps) rebuild(ctx workflow.Context, run string, p *RebuildProgress) (*RebuildResult, error) {
	var plan activities.RebuildPlan
	err := s.run(ctx, activities.PoolPublish, &plan, (*activities.Publish)(nil).PlanRebuild, s.lake, run)
	out := &RebuildResult{Summary: plan.Summary}
	if err != nil || out.Version == "" {
		return out, err
	}
	if err := setAttributes(ctx, plan.Searchable, activities.AttributeLake, s.lake, activities.AttributeVersion, out.Version); err != nil {
		return nil, err
	}
	p.Stage, p.Tasks, p.Segments = "postings", out.Tasks, out.Segments
	if err := all(ctx, plan.Window, p.Tasks, func(ctx workflow.Context, i int) error {
		err := s.move(ctx, activities.PoolIndex, nil, (*activities.Index)(nil).RebuildPostings, s.lake, run, i)
		p.TasksDone++
		return err
	}); err != nil {
		return nil, err
	}
	p.Stage = "segments"
	results := make([]rebuild.Rebuilt, p.Segments)
	if err := all(ctx, plan.Window, p.Segments, func(ctx workflow.Context, i int) error {
		err := s.move(ctx, activities.PoolIndex, &results[i], (*activities.Index)(nil).RebuildSegment, s.lake, run, i)
		p.SegmentsDone++
		return err
	}); err != nil {
		return nil, err
	}
	for _, r := range results {
		out.Add(r)
	}
	return out, nil
}

// all runs step for every index below n. Plans bound n, so that no history is too long.
func all(ctx workflow.Context, window, n int, step func(ctx workflow.Context, i int) error) error {
	for next := 0; next < n; {
		done, err := fanOut(ctx, window, next, n, step)
		if err != nil {
			return err
		}
		if done == next { // the history is long; the steps that are left are few
			if err := step(at(ctx, next, n), next); err != nil {
				return err
			}
			done++
		}
		next = done
	}
	return nil
}

// maxTold is how many problems the error of a workflow names.
const maxTold = 5

// damaged returns the error of a workflow that found damage. Each line says how to mend something.
func damaged(lines []string, found int, details any) error {
	told := lines[:min(maxTold, len(lines))]
	text := fmt.Sprintf("%d objects are damaged: %s", found, strings.Join(told, "; "))
	if found == 1 {
		text = "damaged: " + told[0]
	}
	if more := found - len(told); more > 0 {
		text += fmt.Sprintf("; and %d more, which \"starter verify\" lists", more)
	}
	return temporal.NewNonRetryableApplicationError(text, activities.ErrCorrupt, nil, details)
}
