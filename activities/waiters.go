package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

// PublishRequest asks the publisher of a lake for a version. The publisher tells the workflow that
// the request names, if any, which version holds its batch.
type PublishRequest struct {
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	DatasetID  uint32 `json:"dataset_id,omitempty"`
	Batch      string `json:"batch,omitempty"`
	// Digest names the content of the batch, Start is when its ingest began. Content of an ingest
	// that began later will do, too.
	Digest string `json:"digest,omitempty"`
	Start  int64  `json:"start,omitempty"`
	// Report is the prefix of the reports of an ingest of many datasets, which waits for the
	// version that holds all batches in them. Digest is the same then, and DatasetID and Batch are
	// empty.
	Report string `json:"report,omitempty"`
	// Deadline is how long the publish may take, as in ingest.Spec.
	Deadline string `json:"deadline,omitempty"`
}

// ingest returns the ingest of a request.
func (r *PublishRequest) ingest() publish.Ingest {
	return publish.Ingest{BatchRef: segment.BatchRef{DatasetID: r.DatasetID, Batch: r.Batch, Digest: r.Digest}, Start: r.Start}
}

// Published is the answer to an ingest: the version that holds its batch, or why none ever will.
type Published struct {
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
	// Digest is that of the batch, if the request had it.
	Digest string `json:"digest,omitempty"`
}

const (
	// PublishSignal carries a PublishRequest to a publisher.
	PublishSignal = "publish"
	// PublishedSignal carries a Published to a waiting ingest.
	PublishedSignal = "published"
)

const (
	// maxPublisherEvents is how long a publisher's history may be for more requests to be sent to
	// it. Temporal ends a workflow with 51,200 events or 10,000 signals, and a signal takes up to
	// four events. Ingests whose request is not sent look for the version themselves.
	maxPublisherEvents = 10_000

	// leastPause and mostPause bound how long after a failed publish its waiting ingests do not ask
	// for another. leastPause is less than what an ingest waits before it looks for the first time.
	leastPause, mostPause = 30 * time.Second, 10 * time.Minute

	// toldAtOnce is how many signals TellIngests has in flight.
	toldAtOnce = 16
)

// PublishWorkflowID returns the workflow id of the one publisher of a lake.
func PublishWorkflowID(lakeURL string) string { return "publish@" + lakeURL }

// RequestPublish sends a request to the lake's publisher and starts the publisher if it does not
// run. It sends nothing to a publisher that has very many requests already: the ingest asks again
// later. It is an activity because workflow code cannot signal with start.
func (c *Control) RequestPublish(ctx context.Context, lakeURL string, req PublishRequest) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, requestPublish(ctx, c.Temporal, lakeURL, req)
	})
	return err
}

func requestPublish(ctx context.Context, c client.Client, lakeURL string, req PublishRequest) error {
	e, err := execution(ctx, c, PublishWorkflowID(lakeURL), "")
	if err != nil || open(e) && e.GetHistoryLength() > maxPublisherEvents {
		return err
	}
	_, err = SignalPublisher(ctx, c, lakeURL, req)
	return err
}

// askFor sends the request for a publish of a batch that has been finished, and reports whether
// that succeeded. If it failed, the workflow repeats the request and not the whole step.
func askFor(ctx context.Context, c client.Client, lakeURL string, req PublishRequest, finished ingest.FinishResult) bool {
	req.Digest = finished.Digest
	return requestPublish(ctx, c, lakeURL, req) == nil
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

// Look is the result of FindVersion.
type Look struct {
	// Version is the version that holds the batch, "" if none does yet.
	Version string `json:"version,omitempty"`
	// Error says why no version can hold the batch.
	Error string `json:"error,omitempty"`
	// Seen is the current version.
	Seen string `json:"seen,omitempty"`
	// Ask tells that no publisher runs, so that the request has to be sent again.
	Ask bool `json:"ask,omitempty"`
	// Reason is what went wrong with the last publish, "" if it did not fail.
	Reason string `json:"reason,omitempty"`
	// Damaged are the first of DamagedBatches of those in reports that are damaged, with the
	// reason. No version can hold them.
	Damaged        []string `json:"damaged,omitempty"`
	DamagedBatches int      `json:"damaged_batches,omitempty"`
}

// FindVersion tells a waiting ingest whether a version holds its batch, or all batches in its
// reports but those that no version can hold, and what the publisher does. Seen is the version that
// the last call saw. It costs one small read until there is another version; then, and while the
// lake has none, it reads what waits of the dataset and looks at each part of the batch. A lake
// that cannot be read is a reason, not an error: the batch is sound.
func (c *Control) FindVersion(ctx context.Context, lakeURL string, req PublishRequest, seen string) (Look, error) {
	if err := c.check(lakeURL); err != nil {
		return Look{}, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (Look, error) {
		out, err := find(ctx, c.Store, req, seen)
		switch {
		case lake.IsDamage(err):
			out.Reason = err.Error()
		case err != nil:
			return Look{}, err
		case out.Version != "":
			return out, nil
		}
		return c.lookAtPublisher(ctx, lakeURL, out)
	})
}

// find looks for the version that a request waits for.
func find(ctx context.Context, store blob.Store, req PublishRequest, seen string) (Look, error) {
	if req.Report != "" {
		return findReported(ctx, store, req, seen)
	}
	found, err := publish.Find(ctx, store, req.ingest(), seen)
	out := Look{Seen: found.Current, Error: found.Damage}
	if found.Published {
		out.Version = found.Current
	}
	return out, err
}

// lookAtPublisher adds to a look what the publisher does.
func (c *Control) lookAtPublisher(ctx context.Context, lakeURL string, out Look) (Look, error) {
	e, err := c.newest(ctx, PublishWorkflowID(lakeURL))
	if err != nil || open(e) {
		return out, err
	}
	failed := e.GetStatus() == enums.WORKFLOW_EXECUTION_STATUS_FAILED
	out.Ask = !failed || time.Since(e.GetCloseTime().AsTime()) >= pauseAfter(e)
	if failed {
		var app *temporal.ApplicationError
		err := c.Temporal.GetWorkflow(ctx, e.GetExecution().GetWorkflowId(), e.GetExecution().GetRunId()).Get(ctx, nil)
		if errors.As(err, &app) {
			out.Reason = app.Message()
		}
	}
	return out, nil
}

// pauseAfter is how long after a failed publish waiting ingests do not ask for another: as long as
// it took, so that one which cannot succeed costs half of the time, and one that a passing fault of
// the network has ended soon has a successor.
func pauseAfter(e *workflow.WorkflowExecutionInfo) time.Duration {
	took := e.GetCloseTime().AsTime().Sub(e.GetStartTime().AsTime())
	return min(max(took, leastPause), mostPause)
}

// TellIngests tells workflows which version holds their batches, or why none will. Skipped are
// batches that the last publish left out; those that are not damaged themselves still wait. Batches
// that are neither in the version nor damaged are not mentioned to their workflows, which look for
// themselves; so do those that cannot be told.
func (c *Control) TellIngests(ctx context.Context, lakeURL string, requests []PublishRequest, skipped []publish.Skipped) error {
	if err := c.check(lakeURL); err != nil {
		return err
	}
	_, err := withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (struct{}, error) {
		return struct{}{}, tell(ctx, c.Store, c.Temporal, Answers{requests, skipped})
	})
	return err
}

// Answers are the requests that a round answers.
type Answers struct {
	Requests []PublishRequest `json:"requests,omitempty"`
	// Skipped are batches that the round left out.
	Skipped []publish.Skipped `json:"skipped,omitempty"`
}

// tell is TellIngests.
func tell(ctx context.Context, store blob.Store, c client.Client, a Answers) error {
	ingests := make([]publish.Ingest, len(a.Requests))
	for i := range a.Requests {
		ingests[i] = a.Requests[i].ingest()
	}
	found, err := publish.FindAll(ctx, store, ingests)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(toldAtOnce)
	for i, req := range a.Requests {
		answer := Published{Version: found[i], Digest: req.Digest}
		if req.Report != "" {
			look, err := findReported(ctx, store, req, "")
			if err != nil && !lake.IsDamage(err) {
				return err
			}
			if look.DamagedBatches == 0 { // otherwise it looks for itself
				answer.Version = look.Version
			}
		}
		if at := slices.IndexFunc(a.Skipped, func(s publish.Skipped) bool {
			return s.Damages(ingests[i].BatchRef)
		}); at >= 0 && answer.Version == "" {
			answer.Error = a.Skipped[at].Reason
		}
		if req.WorkflowID == "" || answer.Version == "" && answer.Error == "" {
			continue
		}
		g.Go(func() error {
			run := req.RunID
			if req.Digest != "" {
				run = "" // it may have continued as new; the digest tells it whether it is meant
			}
			err := c.SignalWorkflow(ctx, req.WorkflowID, run, PublishedSignal, answer)
			var gone *serviceerror.NotFound
			if errors.As(err, &gone) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// HasFinished reports whether an ingest has left its batch to a publish, or a version has it. Of a
// run without staging it is not changed any more.
func (c *Control) HasFinished(ctx context.Context, lakeURL string, req PublishRequest) (bool, error) {
	if err := c.check(lakeURL); err != nil {
		return false, err
	}
	return withHeartbeat(ctx, c.Memory, smallMemory, func(ctx context.Context, _ func(any)) (bool, error) {
		s, err := catalog.LookBatches(ctx, c.Store, req.DatasetID)
		if err != nil {
			return false, err
		}
		return s.Has(ctx, catalog.BatchName{DatasetID: req.DatasetID, Batch: req.Batch}, req.Start)
	})
}
