package workflows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

const testLake = "file:///lake"

// fakes is a workflow environment in which every activity is a fake. A test replaces the fakes that
// it is about.
type fakes struct {
	env            *testsuite.TestWorkflowEnvironment
	mu             sync.Mutex // guards the fields that fakes append to or set: those of several ingests run at once
	running, peak  atomic.Int32
	splits, tasks  int
	bytes          int64
	window         int // of plans
	cleaned        []string
	requested      []activities.PublishRequest
	failSplit      int
	publishVersion string
	publishError   string
	swept          int
	normalize      func() (ingest.SplitResult, error)
	sweep          func() error
	unasked        bool // activities that finish batches fail to ask for a publish
	small          func(deaths int) (ingest.SmallResult, error)
	claims         string // the run that is claimed, if it is another
	planned        string // the run of the plan
	finished       int    // calls of FinishIngest
	hasFinished    bool   // what HasFinished returns
	looks          []time.Time
	look           func(req activities.PublishRequest, seen string) activities.Look
}

func newFakes(t *testing.T) *fakes {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	s := &fakes{env: suite.NewTestWorkflowEnvironment(), splits: 200, tasks: 70, bytes: 1000, failSplit: -1, publishVersion: "v1", window: 64}
	s.env.SetTestTimeout(20 * time.Second)
	s.env.SetStartWorkflowOptions(client.StartWorkflowOptions{TaskQueue: activities.TaskQueue(testLake, activities.PoolControl)})
	s.env.RegisterActivity(&activities.Control{})
	s.env.RegisterActivity(&activities.Normalize{})
	s.env.RegisterActivity(&activities.Write{})
	s.env.RegisterActivity(&activities.Index{})
	s.env.RegisterActivity(&activities.Publish{})
	a := mock.Anything
	s.env.OnActivity("PlanIngest", a, a, a, a, a).Return(func(_ context.Context, spec ingest.Spec, run string, _ int64, _ int) (activities.ClaimedPlan, error) {
		s.planned = cmp.Or(s.claims, run)
		return activities.ClaimedPlan{Run: s.planned, Plan: ingest.PlanSummary{DatasetID: 7, Batch: "b", Splits: s.splits, Bytes: s.bytes, Objects: s.splits, Small: s.isSmall(), Window: s.window}}, nil
	}).Maybe()
	s.env.OnActivity("IngestSmall", a, a, a, a, a).Return(func(_ context.Context, _, _ string, ask *activities.PublishRequest, deaths int) (activities.FinishedSmall, error) {
		r, err := s.ingestSmall(deaths)
		if err != nil || s.unasked || ask == nil {
			return activities.FinishedSmall{SmallResult: r}, err
		}
		ask.Digest = r.Finish.Digest
		s.request(*ask)
		return activities.FinishedSmall{SmallResult: r, Asked: true}, nil
	}).Maybe()
	s.env.OnActivity("NormalizeSplit", a, a, a, a, a).Return(func(_ context.Context, _, _ string, split, _ int) (ingest.SplitResult, error) {
		n := s.running.Add(1)
		defer s.running.Add(-1)
		for p := s.peak.Load(); n > p && !s.peak.CompareAndSwap(p, n); p = s.peak.Load() {
		}
		if s.normalize != nil {
			return s.normalize()
		}
		if split == s.failSplit {
			return ingest.SplitResult{}, temporal.NewNonRetryableApplicationError("list.txt line 3: host", activities.ErrInput, nil)
		}
		return ingest.SplitResult{Records: 10, Kept: 8, Bytes: 5, Rejected: map[string]int64{"host": 2}}, nil
	}).Maybe()
	s.env.OnActivity("PlanMerge", a, a, a).Return(func(context.Context, string, string) (ingest.MergeSummary, error) {
		return ingest.MergeSummary{Tasks: s.tasks}, nil
	}).Maybe()
	s.env.OnActivity("MergePartitions", a, a, a, a, a).Return(func(context.Context, string, string, int, int) (ingest.MergeResult, error) {
		return ingest.MergeResult{Rows: 20, Merged: 1, Bytes: 100}, nil
	}).Maybe()
	s.env.OnActivity("FinishIngest", a, a, a, a).Return(func(_ context.Context, _, _ string, ask *activities.PublishRequest) (activities.Finished, error) {
		s.mu.Lock()
		s.finished++
		s.mu.Unlock()
		out := activities.Finished{FinishResult: ingest.FinishResult{Digest: "d", Current: true, Domains: int64(3 * s.tasks)}}
		if ask != nil && !s.unasked {
			ask.Digest = "d"
			s.request(*ask)
			out.Asked = true
		}
		return out, nil
	}).Maybe()
	s.env.OnActivity("CleanUp", a, a, a).Return(func(_ context.Context, _, run string) error {
		s.mu.Lock()
		s.cleaned = append(s.cleaned, run)
		s.mu.Unlock()
		return nil
	}).Maybe()
	s.env.OnActivity("SweepStaging", a, a).Return(func(context.Context, string) (ingest.Swept, error) {
		s.swept++
		if s.sweep != nil {
			return ingest.Swept{}, s.sweep()
		}
		return ingest.Swept{}, nil
	}).Maybe()
	s.env.OnActivity("HasFinished", a, a, a).Return(func(context.Context, string, activities.PublishRequest) (bool, error) {
		return s.hasFinished, nil
	}).Maybe()
	s.env.OnActivity("FindVersion", a, a, a, a).Return(func(_ context.Context, _ string, req activities.PublishRequest, seen string) (activities.Look, error) {
		s.looks = append(s.looks, s.env.Now())
		if s.look == nil {
			return activities.Look{Ask: true}, nil
		}
		return s.look(req, seen), nil
	}).Maybe()
	s.env.OnActivity("RequestPublish", a, a, a).Return(func(_ context.Context, _ string, req activities.PublishRequest) error {
		s.request(req)
		return nil
	}).Maybe()
	return s
}

// request is a publisher that answers at once.
func (s *fakes) request(req activities.PublishRequest) {
	s.mu.Lock()
	s.requested = append(s.requested, req)
	s.mu.Unlock()
	if s.publishVersion != "" || s.publishError != "" {
		s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: s.publishVersion, Error: s.publishError, Digest: req.Digest})
	}
}

func (s *fakes) ingestSmall(deaths int) (ingest.SmallResult, error) {
	if s.small != nil {
		return s.small(deaths)
	}
	return ingest.SmallResult{Finish: ingest.FinishResult{Current: true}}, nil
}

// isSmall is what plans say of the batch.
func (s *fakes) isSmall() bool { return s.splits == 1 && s.bytes <= 128<<20 }

func input() IngestInput {
	return IngestInput{Spec: ingest.Spec{Lake: testLake, Dataset: "d", Inputs: []string{"/raw/list.txt"}}}
}

// TestIngestRunsEveryStep checks the result of an ingest.
func TestIngestRunsEveryStep(t *testing.T) {
	s := newFakes(t)
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	want := IngestResult{
		Dataset: "d", DatasetID: 7, Batch: "b", Digest: "d", Objects: 200, Bytes: 1000,
		Records: 2000, Rows: 1400, Merged: 2000 - 1400 - 400, Rejected: map[string]int64{"host": 400},
		Domains: 210, PartBytes: 7000, Version: "v1",
	}
	if diff := gocmp.Diff(want, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if len(s.cleaned) != 1 {
		t.Errorf("staging was cleaned %d times, want once", len(s.cleaned))
	}
	if len(s.requested) != 1 || s.requested[0].DatasetID != 7 || s.requested[0].WorkflowID == "" {
		t.Errorf("publish requests %+v", s.requested)
	}
	var p IngestProgress
	v, err := s.env.QueryWorkflow(ProgressQuery)
	if err != nil || v.Get(&p) != nil {
		t.Fatalf("progress: %v", err)
	}
	if p.Stage != StageDone || p.SplitsDone != 200 || p.TasksDone != 70 || p.Rows != 1400 {
		t.Errorf("progress at the end: %+v", p)
	}
}

// TestSmallBatchIsOneActivity checks that only a small batch is ingested by IngestSmall.
func TestSmallBatchIsOneActivity(t *testing.T) {
	for bytes, small := range map[int64]bool{1000: true, 200 << 20: false} {
		s := newFakes(t)
		s.splits, s.tasks, s.bytes = 1, 1, bytes
		done := 0
		s.small = func(int) (ingest.SmallResult, error) {
			done++
			return ingest.SmallResult{
				Split: ingest.SplitResult{Records: 10, Kept: 8, Bytes: bytes, Rejected: map[string]int64{"host": 2}},
				Merge: ingest.MergeResult{Rows: 7, Merged: 1, Parts: 1, Bytes: 100}, Finish: ingest.FinishResult{Digest: "d", Current: true, Domains: 3},
			}, nil
		}
		s.env.ExecuteWorkflow(IngestWorkflow, input())
		var res IngestResult
		if err := s.env.GetWorkflowResult(&res); err != nil {
			t.Fatal(err)
		}
		if (done == 1) != small {
			t.Errorf("%d bytes: %d activities for the whole batch", bytes, done)
		}
		if len(s.cleaned) != 1 || res.Version != "v1" {
			t.Errorf("%d bytes: cleaned %d times, version %q", bytes, len(s.cleaned), res.Version)
		}
		if !small {
			continue
		}
		want := IngestResult{
			Dataset: "d", DatasetID: 7, Batch: "b", Digest: "d", Objects: 1, Bytes: bytes,
			Records: 10, Rows: 7, Merged: 1, Rejected: map[string]int64{"host": 2}, Domains: 3, PartBytes: 100, Version: "v1",
		}
		if diff := gocmp.Diff(want, res); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
	}
}

func TestEstimate(t *testing.T) {
	start := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	at := func(p IngestProgress, after time.Duration) (perSecond, left int64) {
		p.StageStarted = start
		p.Estimate(start.Add(after))
		return p.PerSecond, p.SecondsLeft
	}
	half := IngestProgress{Stage: StageNormalize, BytesTotal: 1000, BytesDone: 500, Records: 4000}
	if rate, left := at(half, 20*time.Second); rate != 200 || left != 20+44 {
		t.Errorf("half read in 20 s: %d records a second, %d s left; want 200 and 64", rate, left)
	}
	writing := IngestProgress{Stage: StageWrite, Kept: 1000, Rows: 150, Merged: 50, ReadSeconds: 20}
	if rate, left := at(writing, 2*time.Second); rate != 75 || left != 8+7 {
		t.Errorf("a fifth written in 2 s: %d rows a second, %d s left; want 75 and 15", rate, left)
	}
	for name, p := range map[string]IngestProgress{
		"planning": {Stage: StagePlan}, "nothing read": {Stage: StageNormalize, BytesTotal: 10}, "nothing to read": {Stage: StageNormalize},
		"nothing kept": {Stage: StageWrite}, "publishing": {Stage: StagePublish, BytesTotal: 10, BytesDone: 10},
	} {
		if rate, left := at(p, time.Minute); rate != 0 || left != 0 {
			t.Errorf("%s: %d a second, %d s left; want 0 and 0", name, rate, left)
		}
	}
}

// A plan says how many steps are in flight, so that another build with another number has the same
// commands.
func TestFanOutIsBounded(t *testing.T) {
	for _, window := range []int{1, 7, 64} {
		s := newFakes(t)
		s.window = window
		s.env.ExecuteWorkflow(IngestWorkflow, input())
		if err := s.env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		if peak := s.peak.Load(); peak > int32(window) {
			t.Errorf("%d splits were in flight, want at most %d", peak, window)
		}
	}
}

func TestIngestWithNoPublishRequestsNone(t *testing.T) {
	s := newFakes(t)
	in := input()
	in.NoPublish = true
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	if err := s.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if len(s.requested) != 0 {
		t.Errorf("a publish was requested: %+v", s.requested)
	}
}

// TestMisspeltMembersAreRejected starts ingests with JSON as a person types it.
func TestMisspeltMembersAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		`{"lake":"LAKE","dataset":"d","inputz":["/a"]}`:                    `"inputz"`,
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"Exclud":["*.bak"]}`: `"Exclud"`,
		`{"lake":"LAKE","dataset":"d","inputs":"/a"}`:                      "inputs",
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"max_line":"1k"}`:    "max_line",
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"no_publish":1}`:     "no_publish",
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"problem":"x"}`:      `"problem"`,
		`["/a"]`: "array",
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"include":["*.csv"],"no_publish":true,"resume":null}`: "",
		// A state that another build wrote.
		`{"lake":"LAKE","dataset":"d","inputs":["/a"],"resume":{"run":"r","progress":{"stage":"plan","more":1},"more":2}}`: "",
	} {
		s := newFakes(t)
		s.env.RegisterWorkflow(IngestWorkflow)
		if strings.Contains(text, `"run":"r"`) {
			s.env.SetContinuedExecutionRunID("r")
		}
		s.env.ExecuteWorkflow("IngestWorkflow", json.RawMessage(strings.ReplaceAll(text, "LAKE", testLake)))
		err := s.env.GetWorkflowError()
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		var app *temporal.ApplicationError
		if !errors.As(err, &app) || !app.NonRetryable() || app.Type() != activities.ErrInput || !strings.Contains(app.Message(), want) {
			t.Errorf("%s: error %v, want an InputError with %q", text, err, want)
		}
	}
}

func TestFailedIngestCleansUpAndPublishesNothing(t *testing.T) {
	s := newFakes(t)
	s.failSplit = 3
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	err := s.env.GetWorkflowError()
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "list.txt line 3") {
		t.Fatalf("error %v, want the InputError of the split", err)
	}
	if len(s.cleaned) != 1 || len(s.requested) != 0 || s.finished != 0 {
		t.Errorf("cleaned %v, requested %v, finished %d", s.cleaned, s.requested, s.finished)
	}
}

func TestIncompleteInputIsRejected(t *testing.T) {
	s := newFakes(t)
	s.env.ExecuteWorkflow(IngestWorkflow, IngestInput{Spec: ingest.Spec{Lake: testLake}})
	var app *temporal.ApplicationError
	if err := s.env.GetWorkflowError(); !errors.As(err, &app) || app.Type() != activities.ErrInput {
		t.Fatalf("error %v, want an InputError", err)
	}
}

func TestLakeOnTheQueueOfAnotherIsRejected(t *testing.T) {
	for _, lake := range []string{"/lake", "file:///lake/", "file:///other"} {
		s := newFakes(t)
		in := input()
		in.Lake = lake
		s.env.ExecuteWorkflow(IngestWorkflow, in)
		var app *temporal.ApplicationError
		if err := s.env.GetWorkflowError(); !errors.As(err, &app) || app.Type() != activities.ErrLake || !strings.Contains(app.Message(), lake) {
			t.Errorf("%s: error %v, want a LakeError that names the lake", lake, err)
		}
	}
}

func TestIngestRepeatsItsRequest(t *testing.T) {
	s := newFakes(t)
	s.publishVersion = ""
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: "v9"})
	}, 3*lastLook)
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Version != "v9" || len(s.requested) < 3 {
		t.Errorf("version %q after %d requests, want v9 after 3 or more", res.Version, len(s.requested))
	}
}

// TestPublishIsAskedForOnce checks who asks for a publish: the step that finishes a batch, or the
// workflow if that failed.
func TestPublishIsAskedForOnce(t *testing.T) {
	for _, c := range []struct {
		unasked, small bool
		steps          int
	}{{false, false, 0}, {false, true, 0}, {true, false, 1}, {true, true, 1}} {
		s := newFakes(t)
		s.unasked, s.splits, s.tasks, s.bytes = c.unasked, 1, 1, 100<<20
		if c.small {
			s.bytes = 1000
		}
		steps := 0
		s.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
			if info.ActivityType.Name == "RequestPublish" {
				steps++
			}
		})
		s.env.ExecuteWorkflow(IngestWorkflow, input())
		var res IngestResult
		if err := s.env.GetWorkflowResult(&res); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if res.Version != "v1" || len(s.requested) != 1 || steps != c.steps || len(s.cleaned) != 1 {
			t.Errorf("%+v: version %q, requests %+v, %d of them a step, cleaned %q", c, res.Version, s.requested, steps, s.cleaned)
		}
	}
}

func TestIngestReportsThePublishersError(t *testing.T) {
	s := newFakes(t)
	s.publishVersion, s.publishError = "", "segment x: corrupt"
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	var app *temporal.ApplicationError
	if err := s.env.GetWorkflowError(); !errors.As(err, &app) || app.Type() != activities.ErrPublish || !strings.Contains(app.Message(), "segment x") {
		t.Fatalf("error %v, want a PublishError with the publisher's message", err)
	}
}

func TestIngestResumes(t *testing.T) {
	s := newFakes(t)
	s.env.SetContinuedExecutionRunID("first-run")
	in := input()
	in.Resume = &IngestState{
		Run: "first-run", Plan: ingest.PlanSummary{DatasetID: 7, Batch: "b", Splits: 200},
		Progress: IngestProgress{
			Stage: StageNormalize, Splits: 200, SplitsDone: 150,
			Records: 1500, Kept: 1200, Rejected: map[string]int64{"host": 300},
		},
	}
	s.env.ExecuteWorkflow(IngestWorkflow, in)
	var res IngestResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Records != 2000 || res.Rejected["host"] != 400 {
		t.Errorf("%d records, %v rejected; the counts of the first run are missing", res.Records, res.Rejected)
	}
	if diff := gocmp.Diff([]string{"first-run"}, s.cleaned); diff != "" {
		t.Errorf("cleaned staging (-want +got):\n%s", diff)
	}
}

// publisher is an environment for PublishWorkflow in which every activity is a fake.
type publisher struct {
	untold bool // commits answer no requests
	*fakes
	plans, builds int
	pending       int  // finished batches that no version holds
	again         bool // another batch is finished during the round
	answers       []signalled
	chunks        []int // how many requests were answered at once
	tells         int   // how many of the chunks were a step of their own
	buildError    error
	damaged       int // how many builds find damaged batches before one succeeds
	skipped       []publish.Skipped
	moves         []int // numbers of move tasks that the next plans need
	build         func() error
	segments      int // of a plan
	buildTask     func(task int) publish.Built
	committed     publish.Built
	stale         func() bool
}

// signalled is an answer and the workflow that got it.
type signalled struct {
	WorkflowID string
	activities.Published
}

// sortedAnswers returns the answers in the order of workflow ids.
func (p *publisher) sortedAnswers() []signalled {
	slices.SortFunc(p.answers, func(a, b signalled) int { return strings.Compare(a.WorkflowID, b.WorkflowID) })
	return p.answers
}

func newPublisher(t *testing.T) *publisher {
	p := &publisher{fakes: newFakes(t), pending: 1}
	a := mock.Anything
	p.env.OnActivity("PlanPublish", a, a, a, a).Return(func(_ context.Context, _, run string, round int) (publish.Summary, error) {
		p.plans++
		p.planned = run
		if len(p.moves) > 0 {
			n := p.moves[0]
			p.moves = p.moves[1:]
			return publish.Summary{Current: "v0", RewriteTasks: n, RewriteKey: fmt.Sprint("moves-", n), Window: p.window}, nil
		}
		return publish.Summary{
			Current: fmt.Sprint("v", p.builds), Nothing: p.pending == 0, PlanKey: fmt.Sprint("plan-", round), Batches: p.pending,
			Skipped: p.skipped, SkippedBatches: len(p.skipped), Builds: p.segments, Window: p.window, Tell: 500,
		}, nil
	})
	p.env.OnActivity("BuildSegment", a, a, a, a, a).Return(func(_ context.Context, _, _ string, task, _ int) (publish.Built, error) {
		p.builds++
		if p.buildTask != nil {
			return p.buildTask(task), nil
		}
		if p.build != nil {
			return publish.Built{}, p.build()
		}
		if p.damaged > 0 {
			p.damaged--
			return publish.Built{Damaged: 1}, nil
		}
		return publish.Built{}, p.buildError
	}).Maybe()
	p.env.OnActivity("VerifySegment", a, a, a, a).Return(func(context.Context, string, publish.Built, int) error { return nil }).Maybe()
	p.env.OnActivity("CommitVersion", a, a, a, a, a).Return(func(_ context.Context, _, _ string, built publish.Built, tell activities.Answers) (activities.Committed, error) {
		p.committed = built
		if p.stale != nil && p.stale() {
			return activities.Committed{Committed: publish.Committed{Stale: true}}, nil
		}
		if p.pending = 0; p.again {
			p.pending, p.again = 1, false
		}
		out := activities.Committed{Committed: publish.Committed{Version: fmt.Sprint("v", p.builds)}}
		if len(tell.Requests) > 0 && !p.untold {
			p.tell(tell.Requests, tell.Skipped)
			out.Told = true
		}
		return out, nil
	}).Maybe()
	p.env.OnActivity("TellIngests", a, a, a, a).Return(func(_ context.Context, _ string, requests []activities.PublishRequest, skipped []publish.Skipped) error {
		p.tell(requests, skipped)
		p.tells++
		return nil
	}).Maybe()
	return p
}

// tell records answers.
func (p *publisher) tell(requests []activities.PublishRequest, skipped []publish.Skipped) {
	p.chunks = append(p.chunks, len(requests))
	for _, req := range requests {
		answer := activities.Published{Version: fmt.Sprint("v", p.builds)}
		for _, s := range skipped {
			if s.DatasetID == req.DatasetID && s.Batch == req.Batch {
				answer = activities.Published{Error: s.Reason}
			}
		}
		p.answers = append(p.answers, signalled{req.WorkflowID, answer})
	}
}

func TestPublishAnswersAllRequests(t *testing.T) {
	p := newPublisher(t)
	for i := range 3 {
		p.env.RegisterDelayedCallback(func() {
			p.env.SignalWorkflow(activities.PublishSignal, activities.PublishRequest{WorkflowID: fmt.Sprint("ingest-", i), RunID: "r"})
		}, 0)
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Version != "v1" || res.Batches != 1 {
		t.Errorf("result %+v", res)
	}
	want := []signalled{
		{"ingest-0", activities.Published{Version: "v1"}}, {"ingest-1", activities.Published{Version: "v1"}}, {"ingest-2", activities.Published{Version: "v1"}},
	}
	if diff := gocmp.Diff(want, p.sortedAnswers()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestCommitAnswersItsRequests checks that no step of its own answers the requests of a round,
// unless the commit could not answer them.
func TestCommitAnswersItsRequests(t *testing.T) {
	for _, untold := range []bool{false, true} {
		p := newPublisher(t)
		p.untold = untold
		p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}, {}}})
		if err := p.env.GetWorkflowError(); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]signalled{{"w", activities.Published{Version: "v1"}}}, p.answers); diff != "" || (p.tells == 1) != untold {
			t.Errorf("untold %v: %d steps, answers (-want +got):\n%s", untold, p.tells, diff)
		}
	}
}

// TestRequestsDoNotWaitForTidying has a request arrive while a step that tidies waits to be
// repeated. It is passed on to a run that has other staging.
func TestRequestsDoNotWaitForTidying(t *testing.T) {
	p := newPublisher(t)
	late := activities.PublishRequest{WorkflowID: "late", RunID: "r"}
	p.sweep = func() error {
		if p.swept > 1 {
			return nil
		}
		p.env.SignalWorkflow(activities.PublishSignal, late)
		return errors.New("its worker stops")
	}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	next := continued[PublishInput](t, p.env.GetWorkflowError())
	if !slices.Equal(next.Waiting, []activities.PublishRequest{late}) || next.Staging != "" || next.Result == nil || next.Result.Version != "v1" || p.plans != 1 {
		t.Errorf("%d plans, continues with %+v", p.plans, next)
	}
}

func TestRequestDuringARoundGetsAnotherRound(t *testing.T) {
	p := newPublisher(t)
	p.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "VerifySegment" && p.builds == 1 && p.plans == 1 {
			p.again = true
			p.env.SignalWorkflow(activities.PublishSignal, activities.PublishRequest{WorkflowID: "late", RunID: "r"})
		}
	})
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if res.Rounds != 2 || res.Version != "v2" || len(p.answers) != 1 || p.answers[0].Version != "v2" {
		t.Errorf("result %+v, answers %+v; a second round has to answer the late request", res, p.answers)
	}
}

func TestRepeatedRequestGetsOneAnswer(t *testing.T) {
	p := newPublisher(t)
	request := activities.PublishRequest{WorkflowID: "w", RunID: "r"}
	p.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "BuildSegment" {
			p.env.SignalWorkflow(activities.PublishSignal, request)
		}
	})
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{request}})
	if err := p.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if p.plans != 1 || len(p.answers) != 1 {
		t.Errorf("%d rounds, answers %+v; want one of each", p.plans, p.answers)
	}
}

func TestPublishWithNothingNewBuildsNothing(t *testing.T) {
	p := newPublisher(t)
	p.pending = 0
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if p.builds != 0 || res.Batches != 0 || res.Version != "v0" || len(p.answers) != 1 || p.answers[0].Version != "v0" {
		t.Errorf("%d builds, result %+v, answers %+v", p.builds, res, p.answers)
	}
}

// TestFailedPublishFailsNoIngest checks that waiting ingests are not told of a publish that failed:
// their batches are sound.
func TestFailedPublishFailsNoIngest(t *testing.T) {
	p := newPublisher(t)
	p.buildError = temporal.NewNonRetryableApplicationError("batches/x: corrupt seal", activities.ErrCorrupt, nil)
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{{WorkflowID: "w"}}})
	var app *temporal.ApplicationError
	if err := p.env.GetWorkflowError(); !errors.As(err, &app) || !strings.Contains(app.Message(), "corrupt seal") {
		t.Fatalf("error %v, want that of the build", err)
	}
	if len(p.answers) != 0 {
		t.Errorf("answers %+v", p.answers)
	}
}

// TestReleasedHistoriesReplay replays the histories of real runs. A change that orders activities
// differently would break the workflows that run while workers are upgraded.
func TestReleasedHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 37 {
		t.Fatalf("%d histories in testdata, want those of every kind of run", len(files))
	}
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflow(IngestWorkflow)
	r.RegisterWorkflow(IngestManyWorkflow)
	r.RegisterWorkflow(PublishWorkflow)
	r.RegisterWorkflow(CompactWorkflow)
	r.RegisterWorkflow(GCWorkflow)
	r.RegisterWorkflow(RebuildWorkflow)
	r.RegisterWorkflow(VerifyWorkflow)
	r.RegisterWorkflow(PostgresExportWorkflow)
	r.RegisterWorkflow(CrawlSeedWorkflow)
	r.RegisterWorkflow(VisitedIngestWorkflow)
	r.RegisterWorkflow(FrontierMigrateWorkflow)
	for _, f := range files {
		text, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		h, err := client.HistoryFromJSON(text, client.HistoryJSONOptions{})
		if err = errors.Join(err, text.Close()); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		// The id of a child workflow begins with the id of its parent.
		begin := h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
		opt := worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: begin.GetWorkflowId(), RunID: begin.GetOriginalExecutionRunId()}}
		if err := r.ReplayWorkflowHistoryWithOptions(nil, h, opt); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestPublishLeavesOutDamagedBatches checks that a build that finds damaged batches is followed by
// another plan, and that the requests for batches that are left out get the reason.
func TestPublishLeavesOutDamagedBatches(t *testing.T) {
	p := newPublisher(t)
	p.damaged = 1
	p.skipped = []publish.Skipped{{DatasetID: 7, Dataset: "d", Batch: "damaged", Reason: "postings are missing"}}
	p.env.ExecuteWorkflow(PublishWorkflow, PublishInput{Lake: testLake, Waiting: []activities.PublishRequest{
		{WorkflowID: "w1", DatasetID: 7, Batch: "damaged"},
		{WorkflowID: "w2", DatasetID: 7, Batch: "intact"},
		{WorkflowID: "w3", DatasetID: 8, Batch: "damaged"},
	}})
	var res PublishResult
	if err := p.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	if p.plans != 2 || p.builds != 2 || res.Rounds != 1 || res.Version != "v2" {
		t.Errorf("%d plans, %d builds, %+v", p.plans, p.builds, res)
	}
	if diff := gocmp.Diff(p.skipped, res.Skipped); diff != "" || res.SkippedBatches != 1 {
		t.Errorf("skipped %d (-want +got):\n%s", res.SkippedBatches, diff)
	}
	want := []signalled{
		{"w1", activities.Published{Error: "postings are missing"}}, {"w2", activities.Published{Version: "v2"}}, {"w3", activities.Published{Version: "v2"}},
	}
	if diff := gocmp.Diff(want, p.sortedAnswers()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// TestDeathsOfWorkersAreCounted checks that a step is run again after each heartbeat timeout and
// gets their number.
func TestDeathsOfWorkersAreCounted(t *testing.T) {
	s := newFakes(t)
	s.splits, s.tasks = 1, 1
	var deaths []int
	// The test environment would retry a bare timeout itself.
	lost := temporal.NewNonRetryableApplicationError("lost", "", temporal.NewHeartbeatTimeoutError())
	s.small = func(n int) (ingest.SmallResult, error) {
		if deaths = append(deaths, n); n < 3 {
			return ingest.SmallResult{}, lost
		}
		return ingest.SmallResult{Finish: ingest.FinishResult{Current: true}}, nil
	}
	s.env.ExecuteWorkflow(IngestWorkflow, input())
	if err := s.env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]int{0, 1, 2, 3}, deaths); diff != "" {
		t.Errorf("deaths that the step was told of (-want +got):\n%s", diff)
	}
}
