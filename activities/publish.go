package activities

import (
	"context"
	"path"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// publishStep names a step of a publish or a move. Its documents are in the staging of the
// workflow's run. The name tells what the step reads, since a run has many rounds.
func publishStep(ctx context.Context, name string, deaths int) step {
	run := activity.GetInfo(ctx).WorkflowExecution.RunID
	return step{run: run, name: name, deaths: deaths, ofLake: true}
}

// documentName returns the name of a document in staging, without its folder and ending.
func documentName(key string) string { return strings.TrimSuffix(path.Base(key), ".json") }

// Publish is the pool that plans, verifies and commits versions.
type Publish struct {
	Lake
	// Search tells plans whether workflows may set search attributes.
	Search *Search
	// Temporal is the client with which CommitVersion answers requests.
	Temporal client.Client
}

// PlanPublish compares the finished batches with the current version and writes the plan of the
// next.
func (p *Publish) PlanPublish(ctx context.Context, lakeURL, run string, round int) (publish.Summary, error) {
	if err := p.check(lakeURL); err != nil {
		return publish.Summary{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, _ func(any)) (publish.Summary, error) {
		plan, err := publish.Plan(ctx, p.Store, run, round)
		plan.Searchable, plan.Window, plan.Tell = p.Search.Allowed(ctx), window, toldInOneStep
		return plan, err
	})
}

// VerifySegment reads every byte of what a BuildSegment has built and checks it.
func (p *Publish) VerifySegment(ctx context.Context, lakeURL string, built publish.Built, deaths int) error {
	if err := p.check(lakeURL); err != nil {
		return err
	}
	id := ""
	if len(built.Segments) > 0 {
		id = built.Segments[0].ID
	}
	s := publishStep(ctx, "verify-"+id, deaths)
	_, err := contained(ctx, &p.Lake, s, segmentMemory, func(ctx context.Context, store blob.Store, _ func(any)) (struct{}, error) {
		return struct{}{}, publish.Verify(ctx, store, built, p.TempDir, func(err error) {
			activity.GetLogger(ctx).Warn("An index of path trees is not built", "Error", lake.Explain(lakeURL, err))
		})
	})
	return err
}

// Committed is the result of CommitVersion.
type Committed struct {
	publish.Committed
	// Told tells that the requests are answered.
	Told bool `json:"told,omitempty"`
}

// CommitVersion makes a version with the built segment the current one in the manifest, and answers
// requests.
func (p *Publish) CommitVersion(ctx context.Context, lakeURL, planKey string, built publish.Built, a Answers) (Committed, error) {
	if err := p.check(lakeURL); err != nil {
		return Committed{}, err
	}
	return withHeartbeat(ctx, p.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Committed, error) {
		out, err := publish.Commit(ctx, p.Store, planKey, built, p.TempDir)
		if err != nil || out.Stale || len(a.Requests) == 0 {
			return Committed{Committed: out}, err
		}
		// If that fails, the workflow answers.
		return Committed{out, tell(ctx, p.Store, p.Temporal, a) == nil}, nil
	})
}
