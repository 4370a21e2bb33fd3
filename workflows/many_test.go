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

// manyFakes is an environment for IngestManyWorkflow in which groups are numbers. A crew takes one
// after the other, as the real ones do.
type manyFakes struct {
	*fakes
	plan many.Summary

	mu        sync.Mutex
	next      int                   // the first group that nobody has
	begun     map[int]bool          // crews
	group     func(group int) error // ingests one
	ended     []int                 // groups, in the order in which they ended
	rounds    []many.Round
	reported  []int // groups that rounds took
	withdrawn []activities.LargeRun
	found     activities.Look
	large     func(n int) error // plans a large list
}

func newManyFakes(t *testing.T) *manyFakes {
	s := &manyFakes{fakes: newFakes(t), begun: map[int]bool{}}
	s.splits, s.tasks = 3, 2
	s.plan = many.Summary{Datasets: 1010, Unchanged: 7, Objects: 1003, Bytes: 5000, Groups: 100, Large: 3, Crews: 8, LargeAtOnce: 4, Round: 100}
	a := mock.Anything
	s.env.OnActivity("PlanMany", a, a, a, a).Return(func(context.Context, many.Spec, string, int) (many.Summary, error) {
		return s.plan, nil
	}).Maybe()
	s.env.OnActivity("IngestGroups", a, a, a, a, a).Return(func(_ context.Context, _, _ string, crew, _ int) (c activities.Crew, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.begun[crew] = true
		for s.next < s.plan.Groups {
			group := s.next
			s.next++
			if s.group != nil {
				if err := s.group(group); err != nil {
					return c, err
				}
			}
			s.ended = append(s.ended, group)
			c.Progress.Done += 10
			c.Progress.Records += 100
		}
		for crew := range s.begun {
			c.Begun = append(c.Begun, crew)
		}
		return c, nil
	}).Maybe()
	s.env.OnActivity("PlanLarge", a, a, a, a, a).Return(func(_ context.Context, _, run string, n, _ int) (activities.LargePlan, error) {
		if s.large != nil {
			if err := s.large(n); err != nil {
				return activities.LargePlan{}, err
			}
		}
		return activities.LargePlan{
			Run: fmt.Sprint("large-", n), Plan: ingest.PlanSummary{DatasetID: uint32(n + 1), Batch: "current", Splits: s.splits, Bytes: 100, Window: s.window},
			Outcome: many.Outcome{Dataset: fmt.Sprint("large", n), DatasetID: uint32(n + 1), Batch: "current", Run: fmt.Sprint("large-", n), Bytes: 100},
		}, nil
	}).Maybe()
	s.env.OnActivity("FinishMany", a, a, a, a, a).Return(func(_ context.Context, _, _ string, r many.Round, req *activities.PublishRequest) (many.Finished, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rounds = append(s.rounds, r)
		var out many.Finished
		for _, group := range s.ended {
			if !slices.Contains(r.Before, group) {
				out.Groups = append(out.Groups, group)
				out.Ingested += 10
			}
		}
		if r.Last {
			out.Failed = (s.plan.Groups - len(s.ended)) * 10
		}
		for _, o := range r.Large {
			if o.Error == "" {
				out.Ingested++
			} else {
				out.Failed++
			}
		}
		s.reported = append(s.reported, out.Groups...)
		if out.Ingested+out.Failed == 0 {
			return out, nil
		}
		out.Report = fmt.Sprint("report-", r.Number)
		if req != nil {
			req.Digest = out.Report
			s.requested = append(s.requested, *req)
			if req.WorkflowID != "" && s.publishVersion != "" {
				s.env.SignalWorkflow(activities.PublishedSignal, activities.Published{Version: s.publishVersion, Digest: req.Digest})
			}
		}
		return out, nil
	}).Maybe()
	s.env.OnActivity("FindMany", a, a, a, a).Return(func(_ context.Context, _ string, req activities.PublishRequest, _ string) (activities.Look, error) {
		return s.found, nil
	}).Maybe()
	s.env.OnActivity("WithdrawMany", a, a, a, a).Return(func(_ context.Context, _, _ string, large []activities.LargeRun) (activities.Withdrawn, error) {
		s.withdrawn = append(s.withdrawn, large...)
		out := activities.Withdrawn{Version: s.withdrawnIn}
		if s.withdrawnIn != "" {
			out.Published = 5
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
	want.Ingested, want.Report = 1003, "report-0"
	if diff := gocmp.Diff(want, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if len(s.rounds) != 1 || !s.rounds[0].Last || len(s.rounds[0].Large) != 3 || s.rounds[0].Reason != "" {
		t.Errorf("rounds %+v", s.rounds)
	}
	slices.SortFunc(s.rounds[0].Large, func(a, b many.LargeOutcome) int { return strings.Compare(a.Dataset, b.Dataset) })
	if o := s.rounds[0].Large[1]; o.Digest != "d" || o.Records != 30 || o.Rows != 40 || o.Domains != 6 || o.Run != "large-1" {
		t.Errorf("a large list: %+v", o)
	}
	slices.Sort(s.cleaned)
	if !slices.Equal(s.cleaned, []string{"", "large-0", "large-1", "large-2"}) { // the test environment has no run id
		t.Errorf("cleaned %q", s.cleaned)
	}
	if len(s.requested) != 1 || s.requested[0].WorkflowID == "" {
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
	if res.Unchanged != 10 || res.Version != "" || res.Report != "" || len(s.requested) != 0 {
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

// TestAFailureHarmsNoOther fails a large list by its input, and a crew whose group kills workers
// without a trace.
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
	last := s.rounds[len(s.rounds)-1]
	if last.Reason != "it killed its worker 3 times" {
		t.Errorf("reason %q", last.Reason)
	}
	for _, o := range last.Large {
		if (o.Number == 1) != (o.Error == "large1.txt: it is binary data") {
			t.Errorf("%+v", o)
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
	if app := s.failure(t); app.Type() != activities.ErrLake || len(s.rounds) != 1 || !s.rounds[0].Last {
		t.Errorf("%v, rounds %+v", app, s.rounds)
	}
}

// TestLongIngestFinishesInRounds has a large list whose raw data is away for an hour, so that
// rounds come between.
func TestLongIngestFinishesInRounds(t *testing.T) {
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
	if len(s.rounds) < 2 || !s.rounds[len(s.rounds)-1].Last || s.rounds[0].Last {
		t.Errorf("rounds %+v", s.rounds)
	}
	if res.Ingested != 11 || !slices.Equal(s.reported, []int{0}) {
		t.Errorf("%+v, groups %v", res, s.reported)
	}
	for i, r := range s.requested {
		if (r.WorkflowID != "") != (i == len(s.requested)-1) {
			t.Errorf("request %d: %+v; only the last is to be answered", i, r)
		}
	}
}

func TestIngestManyContinuesAsNew(t *testing.T) {
	s := newManyFakes(t)
	s.plan.Large = 10
	s.env.SetOnActivityCompletedListener(func(info *activity.Info, _ converter.EncodedValue, _ error) {
		if info.ActivityType.Name == "MergePartitions" {
			s.env.SetContinueAsNewSuggested(true)
		}
	})
	s.env.ExecuteWorkflow(IngestManyWorkflow, manyInput())
	next := continued[IngestManyInput](t, s.env.GetWorkflowError())
	r := next.Resume
	if r == nil || r.Next+len(r.Large) < 1 || r.Next < len(r.Large) || r.Progress.Stage != StageIngest {
		t.Fatalf("continued with %+v", r)
	}
	if data, err := json.Marshal(next); err != nil || len(data) > 100_000 {
		t.Errorf("the state has %d bytes, %v", len(data), err)
	}

	second := newManyFakes(t)
	second.plan, second.next, second.ended = s.plan, s.next, s.ended
	second.env.SetContinuedExecutionRunID("first")
	res := second.run(t, next)
	if res.Ingested != 1010 || res.Failed != 0 || res.Version != "v1" {
		t.Errorf("%+v", res)
	}
}

func TestTypedResumeOfManyIsRejected(t *testing.T) {
	s := newManyFakes(t)
	in := manyInput()
	in.Resume = &IngestManyState{Run: "another"}
	s.env.ExecuteWorkflow(IngestManyWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrInput || !strings.Contains(app.Message(), "resume") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
}

func TestCancelledIngestOfManyIsWithdrawn(t *testing.T) {
	for _, c := range []struct{ name, after, version string }{
		{"while it reads", "NormalizeSplit", ""},
		{"as a large list is finished", "FinishIngest", ""},
		{"while it waits", "FinishMany", ""},
		{"too late", "FinishMany", "v5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newManyFakes(t)
			s.publishVersion, s.withdrawnIn = "", c.version
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
			if errors.As(err, &cancel) && cancel.Details(&detail) != nil || strings.Contains(detail, "too late") != (c.version != "") {
				t.Errorf("detail %q", detail)
			}
			if (c.after == "FinishMany") != (len(s.withdrawn) == 0) {
				t.Errorf("withdrawn %+v", s.withdrawn)
			}
			if c.after == "FinishIngest" && !slices.ContainsFunc(s.withdrawn, func(l activities.LargeRun) bool {
				return l.Digest == "d" && l.Run != "" && l.DatasetID != 0
			}) {
				t.Errorf("withdrawn %+v; want the finished list", s.withdrawn)
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
	s.found = activities.Look{Version: "v9", Damaged: []string{"x: postings are missing"}, DamagedBatches: 1}
	if res := s.run(t, manyInput()); res.Version != "v9" || res.DamagedBatches != 1 || len(res.Damaged) != 1 {
		t.Errorf("%+v", res)
	}
	s = newManyFakes(t)
	s.publishVersion = ""
	s.found = activities.Look{Reason: "the disk is full"}
	in := manyInput()
	in.Deadline = "3h"
	s.env.ExecuteWorkflow(IngestManyWorkflow, in)
	if app := s.failure(t); app.Type() != activities.ErrDeadline || !strings.Contains(app.Message(), "the disk is full") ||
		!strings.Contains(app.Message(), "1003 datasets are finished") {
		t.Errorf("%s: %s", app.Type(), app.Message())
	}
}

// The outcomes of thousands of large lists, which all end before the first round is due, would be a
// payload that Temporal refuses.
func TestManyLargeListsFitIntoPayloads(t *testing.T) {
	s := newManyFakes(t)
	s.plan = many.Summary{Datasets: 600, Large: 600, LargeAtOnce: 4, Round: 100}
	reason := strings.Repeat("é", 20_000)
	s.large = func(int) error {
		return temporal.NewNonRetryableApplicationError(reason, activities.ErrInput, nil)
	}
	s.env.SetTestTimeout(time.Minute)
	if res := s.run(t, manyInput()); res.Failed != 600 {
		t.Errorf("%+v", res)
	}
	for _, r := range s.rounds {
		data, err := json.Marshal(r)
		if err != nil || len(data) > 1<<20 || len(r.Large) > 104 {
			t.Fatalf("a round of %d lists in %d bytes, %v", len(r.Large), len(data), err)
		}
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
