package activities

import (
	"context"

	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/lake/blob"
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

// ClaimedPlan is the result of PlanIngest.
type ClaimedPlan struct {
	// Run is the run whose staging has the plan.
	Run string `json:"run"`
	// Dataset is the name of the dataset.
	Dataset string             `json:"dataset"`
	Plan    ingest.PlanSummary `json:"plan"`
}

// PlanIngest makes the calling workflow the owner of the staging of run, or of an earlier workflow
// that failed before it finished the same ingest. There it lists the inputs of the batch, registers
// the dataset, and writes the plan with its splits. Start is when the workflow began.
func (c *Control) PlanIngest(ctx context.Context, spec ingest.Spec, run string, start int64, deaths int) (ClaimedPlan, error) {
	if err := c.check(spec.Lake); err != nil {
		return ClaimedPlan{}, err
	}
	spec.Start = start
	return c.plan(ctx, run, deaths, func(blob.Store) (ingest.Spec, error) { return spec, nil })
}

// plan makes the plan of a spec.
func (c *Control) plan(
	ctx context.Context, run string, deaths int, specOf func(store blob.Store) (ingest.Spec, error),
) (ClaimedPlan, error) {
	s := step{run: run, name: "plan", deaths: deaths}
	return contained(ctx, &c.Lake, s, planMemory, func(ctx context.Context, store blob.Store, _ func(any)) (ClaimedPlan, error) {
		spec, err := specOf(store)
		if err != nil {
			return ClaimedPlan{}, err
		}
		run, err := c.claim(ctx, spec, run)
		if err != nil {
			return ClaimedPlan{}, err
		}
		plan, err := ingest.MakePlan(ctx, store, run, spec)
		plan.Searchable, plan.Window = c.Search.Allowed(ctx), window
		return ClaimedPlan{run, spec.Dataset, plan}, err
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

// Finished is the result of FinishIngest.
type Finished struct {
	ingest.FinishResult
	// Asked tells that the publisher has the request.
	Asked bool `json:"asked,omitempty"`
}

// FinishIngest writes the list of rejects and the batch record. Then it asks for a publish, unless
// ask is nil.
func (c *Control) FinishIngest(ctx context.Context, lakeURL, run string, ask *PublishRequest) (Finished, error) {
	if err := c.check(lakeURL); err != nil {
		return Finished{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Finished, error) {
		r, err := ingest.Finish(ctx, c.Store, run)
		if err != nil {
			return Finished{}, err
		}
		asked := ask != nil && askFor(ctx, c.Temporal, lakeURL, *ask, r)
		return Finished{r, asked}, ctx.Err()
	})
}
