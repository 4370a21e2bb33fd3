package model

import (
	"context"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// ingesting is a run of IngestWorkflow, which repeats only the step that has failed.
type ingesting struct {
	run     string
	spec    ingest.Spec
	temp    string
	ended   int // how many steps have
	plan    ingest.PlanSummary
	merge   ingest.MergeSummary
	tasks   []lake.FrameObject
	domains int64
	result  ingest.FinishResult
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
				if _, err := ingest.Normalize(ctx, store, r.run, split, postings.CollectInMemory, nil); err != nil {
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
			r.tasks, r.domains = nil, 0
			for task := range r.merge.Tasks {
				m, err := ingest.Merge(ctx, store, r.run, task, r.temp, postings.Collect(r.temp), nil)
				if err != nil {
					return err
				}
				r.tasks = append(r.tasks, m.Postings)
				r.domains += m.Domains
			}
			return nil
		},
		func() (err error) {
			r.result, err = ingest.Finish(ctx, store, r.run, r.tasks, r.domains)
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
