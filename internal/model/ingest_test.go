package model

import (
	"context"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// ingesting is a run of IngestWorkflow, which repeats only the step that has failed.
type ingesting struct {
	run    string
	spec   ingest.Spec
	temp   string
	ended  int // how many steps have
	plan   ingest.PlanSummary
	merge  ingest.MergeSummary
	result ingest.FinishResult
}

// steps runs the steps that have not ended yet.
func (r *ingesting) steps(ctx context.Context, store blob.Store) error {
	for i, step := range []func() error{
		func() (err error) {
			r.plan, err = ingest.MakePlan(ctx, store, r.run, r.spec)
			return err
		},
		func() error {
			for split := range r.plan.Splits {
				if _, err := ingest.Normalize(ctx, store, r.run, split, nil); err != nil {
					return err
				}
			}
			return nil
		},
		func() (err error) {
			r.merge, err = ingest.PlanMerge(ctx, store, r.run)
			return err
		},
		func() error {
			for task := range r.merge.Tasks {
				if _, err := ingest.Merge(ctx, store, r.run, task, r.temp, postings.Collect(r.temp), nil); err != nil {
					return err
				}
			}
			return nil
		},
		func() (err error) {
			r.result, err = ingest.Finish(ctx, store, r.run)
			return err
		},
		func() error { return ingest.Cleanup(ctx, store, r.run) },
	} {
		if i < r.ended {
			continue
		}
		if err := step(); err != nil {
			return err
		}
		r.ended++
	}
	return nil
}
