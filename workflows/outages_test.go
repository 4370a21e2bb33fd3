package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
)

// away makes every NormalizeSplit fail, as long as the store is away.
func (s *fakes) away(down func(sinceStart time.Duration) bool) {
	start := s.env.Now()
	s.normalize = func() (ingest.SplitResult, error) {
		if down(s.env.Now().Sub(start)) {
			return ingest.SplitResult{}, errors.New("get s3://b/lake/staging/x: connection refused")
		}
		return ingest.SplitResult{Records: 10, Kept: 8, Bytes: 5, Rejected: map[string]int64{"host": 2}}, nil
	}
}

// failure returns the application error with which the workflow failed.
func (s *fakes) failure(t *testing.T) *temporal.ApplicationError {
	t.Helper()
	var app *temporal.ApplicationError
	if err := s.env.GetWorkflowError(); !errors.As(err, &app) {
		t.Fatalf("error %v, want an application error", err)
	}
	return app
}

func TestIngestOutlivesAStoreThatIsAwayForDays(t *testing.T) {
	s := newFakes(t)
	s.splits, s.tasks, s.bytes = 2, 1, 100<<20
	s.away(func(since time.Duration) bool { return since < 50*time.Hour })
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Records != 20 || res.Version != "v1" || len(s.cleaned) != 1 {
		t.Errorf("%+v, cleaned %v", res, s.cleaned)
	}
}

// TestDeadlineKeepsStaging checks when an ingest gives up, what it says, and that what it has done
// stays for the next attempt.
func TestDeadlineKeepsStaging(t *testing.T) {
	s := newFakes(t)
	s.splits, s.tasks, s.bytes = 2, 1, 100<<20
	s.away(func(time.Duration) bool { return true })
	in := input()
	in.Deadline = "36h"
	start := s.env.Now()
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	app := s.failure(t)
	if app.Type() != activities.ErrDeadline || !strings.Contains(app.Message(), "36h") ||
		!strings.Contains(app.Message(), "connection refused") || !strings.Contains(app.Message(), "start the same ingest again") {
		t.Errorf("%s: %s; want a DeadlineError with the deadline and the reason", app.Type(), app.Message())
	}
	if took := s.env.Now().Sub(start); took < 35*time.Hour || took > 37*time.Hour {
		t.Errorf("it gave up after %s", took)
	}
	if len(s.cleaned) != 0 {
		t.Errorf("cleaned %v; want the staging to stay", s.cleaned)
	}
}

// TestMendableDamageKeepsStaging fails ingests by damage of the registry, which a rebuild mends,
// and of their staging.
func TestMendableDamageKeepsStaging(t *testing.T) {
	for name, c := range map[string]struct {
		details []any
		kept    bool
	}{
		"registry": {[]any{activities.Damage{Mendable: true}}, true},
		"staging":  {[]any{activities.Damage{}}, false},
	} {
		s := newFakes(t)
		s.normalize = func() (ingest.SplitResult, error) {
			return ingest.SplitResult{}, temporal.NewNonRetryableApplicationError("x: corrupt seal", activities.ErrCorrupt, nil, c.details...)
		}
		s.env.ExecuteWorkflow(IngestWorkflow, input())
		app := s.failure(t)
		if app.Type() != activities.ErrCorrupt || strings.Contains(app.Message(), "start the same ingest again") != c.kept || (len(s.cleaned) == 0) != c.kept {
			t.Errorf("%s: %v, cleaned %q", name, app, s.cleaned)
		}
	}
}

// TestDeadlineWithoutAWorker checks what Temporal reports of a step that no worker takes.
func TestDeadlineWithoutAWorker(t *testing.T) {
	s := newFakes(t)
	s.normalize = func() (ingest.SplitResult, error) {
		return ingest.SplitResult{}, temporal.NewNonRetryableApplicationError("", "", temporal.NewTimeoutError(enums.TIMEOUT_TYPE_SCHEDULE_TO_START, nil))
	}
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	if app := s.failure(t); app.Type() != activities.ErrDeadline || len(s.cleaned) != 0 {
		t.Errorf("%s: %s, cleaned %v", app.Type(), app.Message(), s.cleaned)
	}
}

func TestBadDeadlineIsRejected(t *testing.T) {
	s := newFakes(t)
	in := input()
	in.Deadline = "tomorrow"
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "36h") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
}

func TestIngestContinuesTheRunThatItClaims(t *testing.T) {
	s := newFakes(t)
	s.claims = "earlier"
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	if err := s.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if s.planned != "earlier" || !slices.Equal(s.cleaned, []string{"earlier"}) {
		t.Errorf("planned %q, cleaned %q", s.planned, s.cleaned)
	}
}

func TestTypedResumeIsRejected(t *testing.T) {
	s := newFakes(t)
	in := input()
	in.Resume = &IngestState{Run: "another-run", Plan: ingest.PlanSummary{Splits: 1}, Progress: IngestProgress{Stage: StageNormalize, Splits: 1}}
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "resume") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
	if len(s.cleaned) != 0 {
		t.Errorf("the staging of %v was removed", s.cleaned)
	}
}

// TestRejectsAfterARunWithout continues as new before any record was rejected: an empty map does
// not come through JSON.
func TestRejectsAfterARunWithout(t *testing.T) {
	s := newFakes(t)
	s.env.SetContinuedExecutionRunID("first-run")
	in := input()
	in.Resume = &IngestState{
		Run: "first-run", Plan: ingest.PlanSummary{DatasetID: 7, Batch: "b", Splits: 200},
		Progress: IngestProgress{Stage: StageNormalize, Splits: 200, SplitsDone: 199, Records: 1990, Kept: 1990},
	}
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Rejected["host"] != 2 {
		t.Errorf("rejected %v", res.Rejected)
	}
}

// TestCancelledIngest cancels an ingest while it reads, as its batch is finished, and while it
// waits for the publisher.
func TestCancelledIngest(t *testing.T) {
	for _, c := range []struct {
		name, after    string
		finished, late bool // whether the step that finishes it was done, and whether the workflow can tell
	}{
		{"while it reads", "NormalizeSplit", false, false},
		{"as its batch is finished unseen", "NormalizeSplit", true, true},
		{"as its batch is finished", "FinishIngest", true, true},
		{"while it waits", "RequestPublish", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFakes(t)
			s.splits, s.tasks, s.bytes = 2, 1, 100<<20
			s.publishVersion, s.hasFinished = "", c.finished
			cancelled := false
			s.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
				if info.ActivityType.Name == c.after && !cancelled {
					cancelled = true
					s.env.CancelWorkflow()
				}
			})
			s.env.ExecuteWorkflow(IngestWorkflow, input())
			if len(s.cleaned) == 0 {
				t.Error("the staging stayed")
			}
			err := s.env.GetWorkflowError()
			var cancel *temporal.CanceledError
			var detail string
			if !errors.As(err, &cancel) || cancel.Details(&detail) != nil || strings.Contains(detail, "too late") != c.late {
				t.Errorf("error %v, %q", err, detail)
			}
		})
	}
}

// TestWaitingIngestLooksForItself checks that an ingest whose publisher tells it nothing finds its
// version, with few looks and few requests.
func TestWaitingIngestLooksForItself(t *testing.T) {
	s := newFakes(t)
	s.publishVersion = ""
	start := s.env.Now()
	s.look = func(req activities.PublishRequest, _ string) activities.Look {
		if req.Digest != "d" {
			t.Errorf("looked for digest %q", req.Digest)
		}
		switch since := s.env.Now().Sub(start); {
		case since > 24*time.Hour:
			return activities.Look{Version: "v7"}
		case since > 12*time.Hour:
			return activities.Look{Ask: true} // the publisher was terminated
		}
		return activities.Look{}
	}
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Version != "v7" {
		t.Errorf("version %q", res.Version)
	}
	if n := len(s.looks); n < 100 || n > 24*6+10 {
		t.Errorf("%d looks in a day, want one in ten minutes", n)
	}
	if n := len(s.requested); n < 2 || n > 12*6+5 {
		t.Errorf("%d requests; want the first, and one for each look after the publisher is gone", n)
	}
}

// TestWaitingShowsWhyAndEndsAtTheDeadline is about a publish that fails until the ingest gives up.
func TestWaitingShowsWhyAndEndsAtTheDeadline(t *testing.T) {
	s := newFakes(t)
	s.publishVersion = ""
	s.look = func(activities.PublishRequest, string) activities.Look {
		return activities.Look{Ask: true, Reason: "manifest.json: corrupt seal"}
	}
	in := input()
	in.Deadline = "5h"
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	app := s.failure(t)
	for _, want := range []string{"batch b is finished", "the next publish", "5h", "corrupt seal"} {
		if !strings.Contains(app.Message(), want) {
			t.Errorf("%q lacks %q", app.Message(), want)
		}
	}
	var p IngestProgress
	if v, err := s.env.QueryWorkflow(ProgressQuery); err != nil || v.Get(&p) != nil || !strings.Contains(p.Waiting, "corrupt seal") {
		t.Errorf("progress %+v, %v; want the reason of the last publish", p, err)
	}
}

// TestStrayAnswerIsIgnored sends an ingest the answer to an earlier one of its id.
func TestStrayAnswerIsIgnored(t *testing.T) {
	s := newFakes(t)
	s.publishVersion = ""
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: "old", Digest: "another"})
	}, 10*time.Second)
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: "v2", Digest: "d"})
	}, 20*time.Second)
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil || res.Version != "v2" {
		t.Errorf("version %q, %v", res.Version, err)
	}
}

// TestCancelledIngestDoesNotContinueAsNew is about a cancellation that arrives with the result of
// the last step of a long history, which the environment cannot play.
func TestCancelledIngestDoesNotContinueAsNew(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		s := newFakes(t)
		flow := func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(ctx)
			if cancelled {
				cancel()
			}
			return (&ingestFlow{IngestInput: input(), IngestState: &IngestState{Run: "r"}}).continueAsNew(ctx)
		}
		s.env.RegisterWorkflow(IngestWorkflow)
		s.env.RegisterWorkflow(flow)
		s.env.ExecuteWorkflow(flow)
		if err := s.env.GetWorkflowError(); temporal.IsCanceledError(err) != cancelled || workflow.IsContinueAsNewError(err) == cancelled {
			t.Errorf("cancelled %v: error %v", cancelled, err)
		}
	}
}

func TestWaitingIngestContinuesAsNew(t *testing.T) {
	s := newFakes(t)
	s.publishVersion = ""
	s.look = func(activities.PublishRequest, string) activities.Look {
		s.env.SetContinueAsNewSuggested(true)
		return activities.Look{}
	}
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	next := continued[IngestInput](t, s.env.GetWorkflowError())
	if next.Resume == nil || next.Resume.Result == nil || next.Resume.Result.Digest != "d" || next.Resume.Progress.Stage != StagePublish {
		t.Fatalf("continued with %+v", next.Resume)
	}

	s = newFakes(t)
	s.env.SetContinuedExecutionRunID("first")
	s.env.ExecuteWorkflow(IngestWorkflow, next)
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil || res.Version != "v1" || res.Records != 2000 {
		t.Errorf("%+v, %v", res, err)
	}
	if s.planned != "" || len(s.cleaned) != 0 {
		t.Error("a step was repeated")
	}
}

// continued returns the input with which a workflow continued as new.
func continued[T any](t *testing.T, err error) (in T) {
	t.Helper()
	var next *workflow.ContinueAsNewError
	if !errors.As(err, &next) {
		t.Fatalf("error %v, want that it continues as new", err)
	}
	if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestManyWaitingIngestsAreToldInChunks(t *testing.T) {
	p := newPublisher(t)
	var waiting []activities.PublishRequest
	for i := range 2100 {
		waiting = append(waiting, activities.PublishRequest{WorkflowID: fmt.Sprint("w", i), DatasetID: 1, Batch: fmt.Sprint("b", i), Digest: "d"})
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: waiting})
	if err := p.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, a := range p.answers {
		told[a.WorkflowID] = a.Version == "v1"
	}
	if diff := cmp.Diff([]int{500, 500, 500, 500, 100}, p.chunks); diff != "" || len(told) != 2100 {
		t.Errorf("%d told, in chunks of %v", len(told), p.chunks)
	}
}

// TestWaitingRequestsFitIntoAPayload continues a publisher as new while ten thousand ingests wait.
func TestWaitingRequestsFitIntoAPayload(t *testing.T) {
	p := newPublisher(t)
	p.env.SetContinueAsNewSuggested(true)
	p.stale = func() bool { return true }
	var waiting []activities.PublishRequest
	for i := range 10_000 {
		waiting = append(waiting, activities.PublishRequest{
			WorkflowID: fmt.Sprintf("ingest:a-dataset-with-a-name:batch-%d@s3://bucket/a/lake", i), RunID: strings.Repeat("r", 36),
			DatasetID: 7, Batch: fmt.Sprint("batch-", i), Digest: strings.Repeat("d", 32),
		})
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: waiting, Result: &PublishResult{Rounds: 1}})
	var next *workflow.ContinueAsNewError
	if !errors.As(p.env.GetWorkflowError(), &next) {
		t.Fatalf("error %v, want that it continues as new", p.env.GetWorkflowError())
	}
	in := continued[PublishInput](t, next)
	if n := len(in.Waiting); n < 1000 || len(next.Input.Payloads[0].Data) > 2<<20 {
		t.Errorf("%d requests in %d bytes", n, len(next.Input.Payloads[0].Data))
	}
	if in.Result == nil || in.Result.Rounds != 1 {
		t.Errorf("the next run does not know what this one did: %+v", in.Result)
	}
}

// TestStalePlansArePaused checks that a publisher that always comes second pauses between its plans
// and ends with its history.
func TestStalePlansArePaused(t *testing.T) {
	p := newPublisher(t)
	start := p.env.Now()
	p.stale = func() bool {
		if p.plans == 100 {
			p.env.SetContinueAsNewSuggested(true)
		}
		return true
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	in := continued[PublishInput](t, p.env.GetWorkflowError())
	if len(in.Waiting) != 1 || p.plans != 100 {
		t.Errorf("%d waiting after %d plans", len(in.Waiting), p.plans)
	}
	if took := p.env.Now().Sub(start); took < 80*time.Minute {
		t.Errorf("100 plans in %s", took)
	}
}

// TestPublishOutlivesAnOutage checks that a publish is retried for as long as somebody asked for.
func TestPublishOutlivesAnOutage(t *testing.T) {
	for _, c := range []struct {
		deadline string
		ok       bool
	}{{"", true}, {"30m", false}} {
		p := newPublisher(t)
		start := p.env.Now()
		p.build = func() error {
			if p.env.Now().Sub(start) < 26*time.Hour {
				return errors.New("connection refused")
			}
			return nil
		}
		p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{Deadline: c.deadline}}})
		if err := p.env.GetWorkflowError(); (err == nil) != c.ok {
			t.Errorf("deadline %q: %v", c.deadline, err)
		}
		if p.swept != 1 {
			t.Errorf("deadline %q: swept %d times", c.deadline, p.swept)
		}
	}
}

// TestLongRoundKeepsItsStaging continues a publisher as new while a round moves batches and finds
// damage, which only its staging knows, and while a very long request waits.
func TestLongRoundKeepsItsStaging(t *testing.T) {
	p := newPublisher(t)
	p.damaged = 1
	p.env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
		if info.ActivityType.Name == "BuildSegment" {
			p.env.SetContinueAsNewSuggested(true)
			p.env.SignalWorkflow(activities.PublishSignal, activities.PublishRequest{WorkflowID: strings.Repeat("w", maxWaiting)})
		}
		if info.ActivityType.Name == "CleanUp" {
			p.env.SignalWorkflow(activities.PublishSignal, activities.PublishRequest{WorkflowID: "w"})
		}
	})
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Staging: "earlier"})
	next := continued[PublishInput](t, p.env.GetWorkflowError())
	if p.planned != "earlier" || next.Staging != "earlier" || slices.Contains(p.cleaned, "earlier") {
		t.Errorf("planned with %q, continues with %q, cleaned %q; want the staging of the round to stay", p.planned, next.Staging, p.cleaned)
	}
	if len(next.Waiting) != 0 {
		t.Errorf("%d requests wait in the next run, want none behind the long one", len(next.Waiting))
	}

	p = newPublisher(t)
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Staging: "earlier"})
	if err := p.env.GetWorkflowError(); err != nil || p.planned != "earlier" || !slices.Contains(p.cleaned, "earlier") || len(p.cleaned) != 2 {
		t.Errorf("%v; planned with %q, cleaned %q", err, p.planned, p.cleaned)
	}
}

// TestCancelledLongRoundEnds cancels a publisher as it is about to continue as new.
func TestCancelledLongRoundEnds(t *testing.T) {
	p := newPublisher(t)
	p.env.SetContinueAsNewSuggested(true)
	p.stale = func() bool { p.env.CancelWorkflow(); return true }
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	if err := p.env.GetWorkflowError(); !temporal.IsCanceledError(err) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
}
