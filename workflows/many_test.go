package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// manyFakes is an environment for IngestManyWorkflow in which groups are numbers. Each has ten
// lists.
type manyFakes struct {
	*fakes
	plan many.Summary

	mu       sync.Mutex
	group    func(group int) error // ingests one
	large    func(n int) error     // plans a large list
	ended    []int                 // groups, in the order in which they ended
	noted    map[int]many.Outcome  // large lists
	peak     int                   // large lists that were ingested at once
	running  int
	reported int // lists that were reported
	finishes []finishCall
}

// finishCall is a call of FinishMany.
type finishCall struct {
	last   bool
	reason string
	ask    *activities.PublishRequest
}

func newManyFakes(t *testing.T) *manyFakes {
	s := &manyFakes{fakes: newFakes(t), noted: map[int]many.Outcome{}}
	s.splits, s.tasks = 3, 2
	s.plan = many.Summary{Datasets: 1010, Unchanged: 7, Objects: 1003, Bytes: 5000, Groups: 100, Large: 3, Window: 8, LargeAtOnce: 4}
	s.env.RegisterWorkflow(IngestWorkflow)
	a := mock.Anything
	s.env.OnActivity("PlanMany", a, a, a, a, a).Return(func(context.Context, many.Spec, string, int64, int) (many.Summary, error) {
		return s.plan, nil
	}).Maybe()
	s.env.OnActivity("IngestGroup", a, a, a, a, a).Return(func(_ context.Context, _, _ string, group, _ int) (p many.Progress, err error) {
		if s.group != nil {
			err = s.group(group)
		}
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, group)
			p.Done, p.Records = 10, 100
		}
		return p, err
	}).Maybe()
	s.env.OnActivity("PlanLarge", a, a, a, a, a).Return(func(_ context.Context, _ string, list many.Ref, _ string, _ int) (activities.ClaimedPlan, error) {
		n := list.Number - s.plan.Groups
		if s.large != nil {
			if err := s.large(n); err != nil {
				return activities.ClaimedPlan{}, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running++
		s.peak = max(s.peak, s.running)
		return activities.ClaimedPlan{Run: fmt.Sprint("large-", n), Dataset: fmt.Sprint("large", n), Plan: ingest.PlanSummary{
			DatasetID: uint32(n + 1), Batch: "current", Splits: s.splits, Bytes: 100, Window: s.window}}, nil
	}).Maybe()
	s.env.OnActivity("NoteLarge", a, a, a, a).Return(func(_ context.Context, _ string, list many.Ref, o many.Outcome) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if o.Error == "" {
			s.running--
		}
		s.noted[list.Number-s.plan.Groups] = o
		return nil
	}).Maybe()
	s.env.OnActivity("FinishMany", a, a, a, a, a, a).Return(func(_ context.Context, _, _ string, last bool, reason string, ask *activities.PublishRequest) (out many.Finished, _ error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finishes = append(s.finishes, finishCall{last, reason, ask})
		out.Ingested = 10 * len(s.ended)
		if last {
			out.Failed = 10 * (s.plan.Groups - len(s.ended))
		}
		for _, o := range s.noted {
			if o.Error == "" {
				out.Ingested++
			} else {
				out.Failed++
			}
		}
		more := out.Ingested+out.Failed > s.reported
		s.reported = out.Ingested + out.Failed
		if ask != nil && more {
			s.requested = append(s.requested, *ask)
			if ask.WorkflowID != "" && s.publishVersion != "" {
				s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: s.publishVersion, Digest: ask.Digest})
			}
		}
		return out, nil
	}).Maybe()
	return s
}

func manyInput() IngestManyInput {
	return IngestManyInput{Spec: many.Spec{Spec: ingest.Spec{Lake: testLake, Inputs: []string{"/raw"}}, DatasetsFrom: many.FromFiles}}
}

func (s *manyFakes) run(t *testing.T, in IngestManyInput) IngestManyResult {
	t.Helper()
	s.env.ExecuteWorkflow(IngestManyWorkflow, in)
	var res IngestManyResult
	if err := s.env.GetWorkflowResult(&res); err != nil {
		t.Fatal(err)
	}
	return res
}

func TestIngestManyTakesEveryList(t *testing.T) {
	s := newManyFakes(t)
	res := s.run(t, manyInput())
	want := IngestManyResult{Datasets: 1010, Unchanged: 7, LakeURL: testLake, Version: "v1"}
	want.Ingested = 1003
	if diff := gocmp.Diff(want, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if len(s.finishes) != 1 || !s.finishes[0].last || s.finishes[0].reason != "" {
		t.Errorf("finished %+v", s.finishes)
	}
	if o := s.noted[1]; len(s.noted) != 3 || o.Digest != "d" || o.Records != 30 || o.Rows != 40 || o.Domains != 6 || o.Run != "large-1" {
		t.Errorf("large lists: %+v", s.noted)
	}
	slices.Sort(s.cleaned)
	if !slices.Equal(s.cleaned, []string{"", "large-0", "large-1", "large-2"}) { // the test environment has no run id
		t.Errorf("cleaned %q", s.cleaned)
	}
	if len(s.requested) != 1 || s.requested[0].WorkflowID == "" || s.requested[0].Report != many.ReportPrefix("") {
		t.Errorf("requested %+v", s.requested)
	}
	var p IngestManyProgress
	v, err := s.env.QueryWorkflow(ProgressQuery)
	if err != nil || v.Get(&p) != nil {
		t.Fatalf("progress: %v", err)
	}
	if p.Stage != StageDone || p.Datasets != 1003 || p.Done != 1003 || p.Failed != 0 || p.Records != 100*100+3*30 {
		t.Errorf("progress at the end: %+v", p)
	}
}

func TestIngestManyWithNothingNew(t *testing.T) {
	s := newManyFakes(t)
	s.plan = many.Summary{Datasets: 10, Unchanged: 10}
	res := s.run(t, manyInput())
	if res.Unchanged != 10 || res.Version != "" || len(s.requested) != 0 {
		t.Errorf("%+v, requested %+v", res, s.requested)
	}
}

func TestIngestManyWithNoPublishRequestsNone(t *testing.T) {
	s := newManyFakes(t)
	in := manyInput()
	in.NoPublish = true
	if res := s.run(t, in); res.Ingested != 1003 || res.Version != "" || len(s.requested) != 0 {
		t.Errorf("%+v, requested %+v", res, s.requested)
	}
}

// TestAFailureHarmsNoOther fails a large list by its input, and a group that kills workers without
// a trace.
func TestAFailureHarmsNoOther(t *testing.T) {
	s := newManyFakes(t)
	s.large = func(n int) error {
		if n == 1 {
			return temporal.NewNonRetryableApplicationError("large1.txt: it is binary data", activities.ErrInput, nil)
		}
		return nil
	}
	s.group = func(group int) error {
		if group == 50 {
			return temporal.NewNonRetryableApplicationError("it killed its worker 3 times", activities.ErrCrash, nil)
		}
		return nil
	}
	res := s.run(t, manyInput())
	if res.Ingested != 99*10+2 || res.Failed != 11 || res.Version != "v1" {
		t.Errorf("%+v", res)
	}
	if last := s.finishes[len(s.finishes)-1]; last.reason != "it killed its worker 3 times" {
		t.Errorf("reason %q", last.reason)
	}
	for n, o := range s.noted {
		if (n == 1) != (o.Error == "large1.txt: it is binary data") {
			t.Errorf("%d: %+v", n, o)
		}
	}
}

// TestWrongRulesEndTheIngest checks that what was done before counts.
func TestWrongRulesEndTheIngest(t *testing.T) {
	s := newManyFakes(t)
	s.group = func(group int) error {
		if group == 3 {
			return temporal.NewNonRetryableApplicationError("the lake has another canonical form", activities.ErrLake, nil)
		}
		return nil
	}
	s.env.ExecuteWorkflow(IngestManyWorkflow, manyInput())
	if app := s.failure(t); app.Type() != activities.ErrLake || len(s.finishes) != 1 || !s.finishes[0].last {
		t.Errorf("%v, finished %+v", app, s.finishes)
	}
}

// TestLongIngestFinishesNowAndThen has a large list whose raw data is away for an hour.
func TestLongIngestFinishesNowAndThen(t *testing.T) {
	s := newManyFakes(t)
	s.plan.Large, s.plan.Groups = 1, 1
	start := s.env.Now()
	s.normalize = func() (ingest.SplitResult, error) {
		if s.env.Now().Sub(start) < time.Hour {
			return ingest.SplitResult{}, errors.New("connection refused")
		}
		return ingest.SplitResult{Records: 10, Kept: 10, Bytes: 5}, nil
	}
	res := s.run(t, manyInput())
	// After 10 minutes, 20, 40, and at the end.
	if len(s.finishes) != 4 || !s.finishes[3].last || s.finishes[0].last || res.Ingested != 11 {
		t.Errorf("finished %+v, %+v", s.finishes, res)
	}
	if len(s.requested) != 2 || s.requested[0].WorkflowID != "" || s.requested[1].WorkflowID == "" {
		t.Errorf("requested %+v; only the last is to be answered", s.requested)
	}
}

// TestLargeListsAreBounded has as many large lists at once as the plan says.
func TestLargeListsAreBounded(t *testing.T) {
	s := newManyFakes(t)
	s.plan = many.Summary{Datasets: 20, Large: 20, Window: 8, LargeAtOnce: 3}
	if res := s.run(t, manyInput()); res.Ingested != 20 || s.peak != 3 {
		t.Errorf("%d at once: %+v", s.peak, res)
	}
}

// TestIngestManyContinuesAsNew checks that what is done is finished before, and that the next run
// does the rest. Its input does not grow with what was done.
func TestIngestManyContinuesAsNew(t *testing.T) {
	s := newManyFakes(t)
	s.plan.Large, s.plan.Groups = 10, 5000
	reason := strings.Repeat("\u00e9", 20_000)
	s.group = func(group int) error {
		if group%2 == 0 {
			return temporal.NewNonRetryableApplicationError(reason, activities.ErrInput, nil)
		}
		return nil
	}
	s.env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) {
		if len(s.ended) > 2000 {
			s.env.SetContinueAsNewSuggested(true)
		}
	})
	s.env.SetTestTimeout(time.Minute)
	s.env.ExecuteWorkflow(IngestManyWorkflow, manyInput())
	next := continued[IngestManyInput](t, s.env.GetWorkflowError())
	r := next.Resume
	if r == nil || r.Next < 4000 || r.Next >= 5000 || r.Progress.Stage != StageIngest || len(s.finishes) != 1 || s.finishes[0].last {
		t.Fatalf("continued with %+v, finished %+v", r, s.finishes)
	}
	if data, err := json.Marshal(next); err != nil || len(data) > 10_000 {
		t.Errorf("the state has %d bytes, %v", len(data), err)
	}

	second := newManyFakes(t)
	second.plan, second.ended, second.reported = s.plan, s.ended, s.reported
	second.env.SetContinuedExecutionRunID("first")
	second.env.SetTestTimeout(time.Minute)
	res := second.run(t, next)
	if res.Ingested+res.Failed != 50_010 || res.Failed != 10*((r.Next+1)/2) || res.Version != "v1" {
		t.Errorf("%+v after %d", res, r.Next)
	}
}

func TestTypedStateIsRejected(t *testing.T) {
	s := newManyFakes(t)
	in := manyInput()
	in.Resume = &IngestManyState{Run: "another"}
	s.env.ExecuteWorkflow(IngestManyWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "resume") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
	one := newFakes(t)
	one.env.ExecuteWorkflow(IngestWorkflow, IngestInput{Spec: ingest.Spec{Lake: testLake}, List: &many.Ref{Run: "another"}})
	if app := one.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "list") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
}

func TestCancelledIngestOfManyLeavesNothingUnfinished(t *testing.T) {
	for _, c := range []struct {
		name, after string
		late        bool // some of it was finished before
	}{
		{"while it reads", "NormalizeSplit", false},
		{"as a large list is cleaned up", "FinishIngest", true},
		{"while it waits", "FinishMany", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newManyFakes(t)
			s.publishVersion = ""
			cancelled := false
			s.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
				if info.ActivityType.Name == c.after && !cancelled {
					cancelled = true
					s.env.CancelWorkflow()
				}
			})
			s.env.ExecuteWorkflow(IngestManyWorkflow, manyInput())
			err := s.env.GetWorkflowError()
			if !temporal.IsCanceledError(err) {
				t.Fatalf("error %v, want that it was cancelled", err)
			}
			var cancel *temporal.CanceledError
			var detail string
			if errors.As(err, &cancel) && cancel.Details(&detail) != nil || strings.Contains(detail, "too late") != c.late {
				t.Errorf("detail %q", detail)
			}
			if c.late != (len(s.noted) > 0) {
				t.Errorf("noted %+v", s.noted)
			}
			if !slices.Contains(s.cleaned, "") {
				t.Errorf("cleaned %q", s.cleaned)
			}
		})
	}
}

// TestIngestManyLooksForItself has a publisher that tells nothing, and batches that were damaged.
func TestIngestManyLooksForItself(t *testing.T) {
	s := newManyFakes(t)
	s.publishVersion = ""
	s.look = func(req activities.PublishRequest, _ string) activities.Look {
		if req.Report == "" {
			t.Errorf("looked for %+v", req)
		}
		return activities.Look{Version: "v9", Damaged: []string{"x: postings are missing"}, DamagedBatches: 1}
	}
	if res := s.run(t, manyInput()); res.Version != "v9" || res.DamagedBatches != 1 || len(res.Damaged) != 1 {
		t.Errorf("%+v", res)
	}
	s = newManyFakes(t)
	s.publishVersion = ""
	s.look = func(activities.PublishRequest, string) activities.Look {
		return activities.Look{Reason: "the disk is full"}
	}
	in := manyInput()
	in.Deadline = "3h"
	s.env.ExecuteWorkflow(IngestManyWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrDeadline || !strings.Contains(app.Message(), "the disk is full") ||
		!strings.Contains(app.Message(), "1003 datasets are finished") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
}

func TestMisspeltMembersOfManyAreRejected(t *testing.T) {
	for input, want := range map[string]string{
		`{"lake":"file:///lake","inputs":["/x"],"dataset_from":"files"}`:                  "dataset_from",
		`{"lake":"file:///lake","inputs":["/x"],"datasets_from":"files","strip":"utm_*"}`: "strip",
		`{"lake":"file:///lake","inputs":"/x","datasets_from":"files"}`:                   "inputs is a JSON string",
		`{"lake":"file:///lake","inputs":["/x"],"datasets_from":"files","again":"yes"}`:   "again is a JSON string",
		`["/x"]`: "use an object",
	} {
		s := newManyFakes(t)
		s.env.RegisterWorkflow(IngestManyWorkflow)
		s.env.ExecuteWorkflow("IngestManyWorkflow", json.RawMessage(input))
		if app := s.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), want) {
			t.Errorf("%s: %s; want %q", input, app.Message(), want)
		}
	}
}
