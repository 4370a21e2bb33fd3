package activities

import (
	"context"
	"fmt"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/ingest"
)

// Control is the pool that plans, records and cleans up.
type Control struct {
	Lake
	// Temporal is the client with which RequestPublish starts the publisher.
	Temporal client.Client
}

// PlanIngest lists the inputs of a batch, registers the dataset and the ingest, and writes the plan
// with its splits.
func (c *Control) PlanIngest(ctx context.Context, spec ingest.Spec, run string, deaths int) (ingest.PlanSummary, error) {
	if err := c.check(spec.Lake); err != nil {
		return ingest.PlanSummary{}, err
	}
	return withHeartbeat(ctx, c.Memory, planMemory, func(ctx context.Context, _ func(any)) (ingest.PlanSummary, error) {
		return ingest.MakePlan(ctx, c.Store, run, spec)
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

// CleanUp removes a run's staging.
func (c *Control) CleanUp(ctx context.Context, lakeURL, run string) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, ingest.Cleanup(ctx, c.Store, run)
	})
	return err
}

// PublishRequest asks the publisher of a lake for a version. The publisher signals the workflow
// that the request names, if any, which version holds its batch.
type PublishRequest struct {
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	DatasetID  uint32 `json:"dataset_id,omitempty"`
	Batch      string `json:"batch,omitempty"`
	// Rebuild is publish.RebuildAll or the id of a segment. The publisher checks and repairs these
	// segments before it publishes.
	Rebuild string `json:"rebuild,omitempty"`
}

// PublishSignal carries a PublishRequest to a publisher.
const PublishSignal = "publish"

// PublishWorkflowID returns the workflow id of the one publisher of a lake.
func PublishWorkflowID(lakeURL string) string { return "publish@" + lakeURL }

// RequestPublish sends a request to the lake's publisher and starts the publisher if it does not
// run. It is an activity because workflow code cannot signal with start.
func (c *Control) RequestPublish(ctx context.Context, lakeURL string, req PublishRequest) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := SignalPublisher(ctx, c.Temporal, lakeURL, req)
	return err
}

// SignalPublisher sends a request to the publisher of a lake and starts the publisher if it does
// not run.
func SignalPublisher(ctx context.Context, c client.Client, lakeURL string, req PublishRequest) (client.WorkflowRun, error) {
	run, err := c.SignalWithStartWorkflow(ctx, PublishWorkflowID(lakeURL), PublishSignal, req, client.StartWorkflowOptions{
		ID:                       PublishWorkflowID(lakeURL),
		TaskQueue:                TaskQueue(lakeURL, PoolControl),
		WorkflowIDReusePolicy:    enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		Memo:                     map[string]any{"lake": lakeURL},
	}, "PublishWorkflow", map[string]string{"lake": lakeURL})
	if err != nil {
		return nil, fmt.Errorf("signal the publisher of %s: %w", lakeURL, err)
	}
	return run, nil
}
