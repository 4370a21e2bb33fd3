package activities

import (
	"context"

	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// Control is the pool that plans, records and cleans up.
type Control struct {
	Lake
	// Temporal is the client with which activities start and signal workflows, and ask for their
	// state.
	Temporal client.Client
	// Search tells plans whether workflows may set search attributes.
	Search *Search
}

// PlanIngest lists the inputs of a batch, registers the dataset and the ingest, and writes the plan
// with its splits.
func (c *Control) PlanIngest(ctx context.Context, spec ingest.Spec, run string, deaths int) (ingest.PlanSummary, error) {
	if err := c.check(spec.Lake); err != nil {
		return ingest.PlanSummary{}, err
	}
	return withHeartbeat(ctx, c.Memory, planMemory, func(ctx context.Context, _ func(any)) (ingest.PlanSummary, error) {
		plan, err := ingest.MakePlan(ctx, c.Store, run, spec)
		plan.Searchable = c.Search.Allowed(ctx)
		return plan, err
	})
}

// PlanMerge adds up the results of all splits, rejects a batch with too many rejected records, and
// groups the partitions into tasks.
func (c *Control) PlanMerge(ctx context.Context, lakeURL, run string) (ingest.MergeSummary, error) {
	if err := c.check(lakeURL); err != nil {
		return ingest.MergeSummary{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (ingest.MergeSummary, error) {
		return ingest.PlanMerge(ctx, c.Store, run)
	})
}

// FinishIngest writes the list of rejects and the batch record.
func (c *Control) FinishIngest(ctx context.Context, lakeURL, run string, postings []lake.FrameObject, domains int64) (ingest.FinishResult, error) {
	if err := c.check(lakeURL); err != nil {
		return ingest.FinishResult{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (ingest.FinishResult, error) {
		return ingest.Finish(ctx, c.Store, run, postings, domains)
	})
}
