package workflows

import (
	"fmt"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/frontier/feed"
)

// Stages of the workflows that join a frontier with a lake.
const (
	StageSeed    = "seed"
	StageCollect = "collect"
)

// CrawlSeedInput says which URLs of a lake go to which frontier.
type CrawlSeedInput struct {
	feed.SeedSpec
	// Deadline is how long the seed may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	// Resume is the state with which an earlier run continued as new. People leave it out.
	Resume *CrawlSeedState `json:"resume,omitempty"`

	problem string // see UnmarshalJSON
}

// CrawlSeedState is what a run of CrawlSeedWorkflow passes to the next when its history grows long.
type CrawlSeedState struct {
	Plan activities.SeedPlan `json:"plan"`
	At   feed.SeedProgress   `json:"at"`
}

// CrawlSeedProgress answers the "progress" query. While an activity runs, its heartbeat says more.
type CrawlSeedProgress struct {
	// Stage is plan, seed or done.
	Stage   string `json:"stage"`
	Version string `json:"version,omitempty"`
	// Rows and Parts are what has to be read; Progress is how far that is.
	Rows     int64             `json:"rows"`
	Parts    int               `json:"parts"`
	Progress feed.SeedProgress `json:"progress"`
}

// CrawlSeedResult is the result of a seed.
type CrawlSeedResult struct {
	Version string `json:"version"`
	feed.SeedProgress
}

// CrawlSeedWorkflow adds the published URLs of a lake, or of some datasets or domains of it, to a
// frontier. It reads one version, once and in order, without what takedowns hide. URLs that the
// frontier knows, since they wait or were visited, stay as they are, unless the input says update.
// A worker that dies is followed by one that goes on at the last heartbeat: what is sent twice is
// known the second time.
func CrawlSeedWorkflow(ctx workflow.Context, in CrawlSeedInput) (*CrawlSeedResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("seed: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("seed: lake: it is missing", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	p := CrawlSeedProgress{Stage: StagePlan}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (CrawlSeedProgress, error) { return p, nil }); err != nil {
		return nil, err
	}
	state := in.Resume
	switch {
	case state != nil:
		if err := checkResume(ctx); err != nil {
			return nil, err
		}
	default:
		state = &CrawlSeedState{}
		if err := s.run(ctx, activities.PoolControl, &state.Plan, (*activities.Control)(nil).PlanSeed, in.SeedSpec); err != nil {
			return nil, err
		}
		if err := setAttributes(ctx, state.Plan.Searchable, activities.AttributeLake, in.Lake,
			activities.AttributeVersion, state.Plan.Version); err != nil {
			return nil, err
		}
	}
	p = CrawlSeedProgress{Stage: StageSeed, Version: state.Plan.Version, Rows: state.Plan.Rows, Parts: state.Plan.Parts, Progress: state.At}
	for !state.At.Done {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && ctx.Err() == nil {
			next := in
			next.Resume = state
			return nil, workflow.NewContinueAsNewError(ctx, CrawlSeedWorkflow, next)
		}
		var at activities.Seeded
		if err := s.run(ctx, activities.PoolIndex, &at, (*activities.Index)(nil).SeedFrontier, in.SeedSpec, state.Plan.Version, state.At); err != nil {
			return nil, err
		}
		state.At, p.Progress = at.SeedProgress, at.SeedProgress
	}
	p.Stage = StageDone
	return &CrawlSeedResult{state.Plan.Version, state.At}, nil
}

// VisitedIngestInput says which frontier's visits go to which dataset.
type VisitedIngestInput struct {
	feed.VisitsSpec
	// NoPublish leaves the batches to the next publish.
	NoPublish bool `json:"no_publish,omitempty"`
	// Deadline is how long all of it may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`

	problem string // see UnmarshalJSON
}

// VisitedIngestProgress answers the "progress" query.
type VisitedIngestProgress struct {
	// Stage is collect, ingest or done.
	Stage string `json:"stage"`
	// Batch is the batch that is ingested, by the workflow Ingest.
	Batch  string `json:"batch,omitempty"`
	Ingest string `json:"ingest,omitempty"`
	// Visits counts those of the batches so far.
	Visits  int64 `json:"visits"`
	Batches int   `json:"batches"`
}

// VisitedIngestResult is the result of an ingest of visits.
type VisitedIngestResult struct {
	Dataset string `json:"dataset"`
	// Batches are those that were ingested, none if there was nothing new; Visits counts their
	// visits, Rows their rows, which are fewer if visits are equal in everything, or were rejected.
	Batches  []string `json:"batches"`
	Visits   int64    `json:"visits"`
	Rows     int64    `json:"rows"`
	Rejected int64    `json:"rejected,omitempty"`
	// Total counts the visits of all batches that the dataset ever got.
	Total int64 `json:"total"`
	// Version is the version with the last batch, "" with NoPublish.
	Version string `json:"version,omitempty"`
}

// VisitedIngestWorkflow makes batches of a dataset of the visits that a frontier has had since the
// last run. Each visit is in one batch: which visits a batch has is decided, and written to the
// lake, before the batch is ingested, and a run that dies in between is followed by one that
// ingests the same batch.
func VisitedIngestWorkflow(ctx workflow.Context, in VisitedIngestInput) (*VisitedIngestResult, error) {
	if in.problem != "" {
		return nil, temporal.NewNonRetryableApplicationError("ingest of visits: "+in.problem, activities.ErrInput, nil)
	}
	if in.Lake == "" {
		return nil, temporal.NewNonRetryableApplicationError("ingest of visits: lake: it is missing", activities.ErrInput, nil)
	}
	if err := checkQueue(ctx, in.Lake); err != nil {
		return nil, err
	}
	s, err := newSteps(ctx, in.Lake, in.Deadline)
	if err != nil {
		return nil, err
	}
	s = s.inBackground()
	p := VisitedIngestProgress{Stage: StageCollect}
	if err := workflow.SetQueryHandler(ctx, ProgressQuery, func() (VisitedIngestProgress, error) { return p, nil }); err != nil {
		return nil, err
	}
	out := &VisitedIngestResult{Dataset: in.Dataset, Batches: []string{}}
	for more := true; more; {
		p.Stage = StageCollect
		var c feed.Collected
		if err := s.run(ctx, activities.PoolIndex, &c, (*activities.Index)(nil).CollectVisits, in.VisitsSpec); err != nil {
			return nil, err
		}
		out.Total = c.Total + c.Visits
		if c.Batch == "" {
			break
		}
		p.Stage, p.Batch, p.Ingest = StageIngest, c.Batch, fmt.Sprintf("ingest:%s:%s@%s", in.Dataset, c.Batch, in.Lake)
		if err := workflow.UpsertMemo(ctx, map[string]any{"dataset": in.Dataset, "batch": c.Batch, "lake": in.Lake}); err != nil {
			return nil, err
		}
		one := IngestInput{Spec: c.Ingest, NoPublish: in.NoPublish}
		one.Title, one.Source = "Visits of a crawl", in.Frontier
		one.Deadline = in.Deadline
		var r IngestResult
		if err := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID:            p.Ingest,
			WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
			ParentClosePolicy:     enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
			WaitForCancellation:   true,
			Memo:                  map[string]any{"lake": in.Lake},
		}), IngestWorkflow, one).Get(ctx, &r); temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return nil, temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("another run ingests batch %s of %s now, as workflow %s; the next run goes on after it", c.Batch, in.Dataset, p.Ingest),
				activities.ErrInput, nil)
		} else if err != nil {
			return nil, err
		}
		if err := s.run(ctx, activities.PoolControl, nil, (*activities.Control)(nil).SettleVisits, in.VisitsSpec, c.Batch); err != nil {
			return nil, err
		}
		out.Batches = append(out.Batches, c.Batch)
		out.Visits += c.Visits
		out.Rows += r.Rows
		out.Rejected += sum(r.Rejected)
		out.Version = r.Version
		p.Visits, p.Batches = out.Visits, len(out.Batches)
		// A batch of an earlier run says nothing of what the frontier has had since.
		more = (c.More || c.Again) && len(out.Batches) < c.Most
	}
	p.Stage = StageDone
	return out, nil
}
