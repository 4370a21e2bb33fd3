package activities

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/mock"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/lake/registry"
)

// An ingest that finds nothing new asks for a publish if finished batches wait for one: an earlier
// ingest asked for none, or its publish failed.
func TestNothingNewIsPublishedIfItWaits(t *testing.T) {
	control, client := newControl(nil)
	client.On("SignalWithStartWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
		Return(&mocks.WorkflowRun{}, nil)
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("https://a.test/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := many.Spec{Spec: ingest.Spec{Lake: control.URL, Inputs: []string{list}}, DatasetsFrom: many.FromFiles}
	// takeUp does all steps, and reports whether there was anything new.
	takeUp := func(req *PublishRequest) bool {
		t.Helper()
		run := testlake.Run()
		plan, err := many.Plan(t.Context(), control.Store, run, spec)
		if err != nil {
			t.Fatal(err)
		}
		r, err := many.Open(t.Context(), control.Store, run)
		if err != nil {
			t.Fatal(err)
		}
		for group := range plan.Groups {
			opt := many.GroupOptions{TempDir: t.TempDir(), InMemory: postings.CollectInMemory, Collect: postings.Collect(t.TempDir())}
			if _, err := r.Group(t.Context(), control.Store, group, opt, func(many.Progress) {}); err != nil {
				t.Fatal(err)
			}
		}
		out, err := do[many.Finished](t, control.FinishMany, control.URL, run, many.Round{Last: true}, req)
		if err != nil || out.Failed > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		return out.Ingested > 0
	}
	req := &PublishRequest{WorkflowID: "w", RunID: "r"}
	if !takeUp(nil) || takeUp(nil) {
		t.Fatal("not taken up once")
	}
	client.AssertNumberOfCalls(t, "SignalWithStartWorkflow", 0)
	if takeUp(req) {
		t.Fatal("taken up again")
	}
	client.AssertNumberOfCalls(t, "SignalWithStartWorkflow", 1)
	testlake.Publish(t, control.Store)
	takeUp(req)
	client.AssertNumberOfCalls(t, "SignalWithStartWorkflow", 1)
}

// An attempt of a crew that has lost its connection to Temporal claims a group after the next
// attempt has looked for what it left, and then notices. No group stays behind.
func TestCrewTakesWhatALateAttemptClaimed(t *testing.T) {
	control, _ := newControl(nil)
	dir := t.TempDir()
	const lists = 3
	for n := range lists {
		// Each list is a group by itself.
		text := strings.Repeat(fmt.Sprintf("https://a%d.test/%s\n", n, strings.Repeat("x", 100)), 300_000)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.txt", n)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := testlake.Run()
	spec := many.Spec{Spec: ingest.Spec{Lake: control.URL, Inputs: []string{dir}}, DatasetsFrom: many.FromFiles}
	plan, err := many.Plan(t.Context(), control.Store, run, spec)
	if err != nil || plan.Groups != lists {
		t.Fatalf("%+v, %v", plan, err)
	}
	store := blobtest.NewFaulty(control.Store)
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return strings.Contains(key, "/claims/") }, Nth: 1, Do: func() {
		late, err := many.Open(t.Context(), control.Store, run)
		if err == nil {
			_, _, err = late.Claim(t.Context(), control.Store, 0)
		}
		if err != nil {
			t.Error(err)
		}
	}})
	n := &Normalize{Lake: Lake{Store: store, URL: control.URL, TempDir: t.TempDir()}, Slots: 1}
	crew, err := do[Crew](t, n.IngestGroups, control.URL, run, 0, 0)
	if err != nil || crew.Progress.Done != lists {
		t.Errorf("%+v, %v", crew, err)
	}
	out, err := do[many.Finished](t, control.FinishMany, control.URL, run, many.Round{Last: true}, (*PublishRequest)(nil))
	if err != nil || out.Ingested != lists || out.Failed > 0 {
		t.Errorf("%d ingested, %d failed: %+v, %v", out.Ingested, out.Failed, out.Failures, err)
	}
}

// The ingests of a run of many datasets that was terminated, or failed, do not stay registered when
// its staging goes.
func TestIngestsGoWithTheStagingOfTheirRun(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(list, []byte("https://a.test/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(c *Control, run string) error{
		"sweep": func(c *Control, _ string) error {
			_, err := do[ingest.Swept](t, c.SweepStaging, c.URL)
			return err
		},
		"clean up": func(c *Control, run string) error {
			_, err := do[any](t, c.CleanUp, c.URL, run)
			return err
		},
	} {
		control, client := newControl(map[string]*workflow.WorkflowExecutionInfo{"w": ended(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED)})
		client.On("ListWorkflow", mock.Anything, mock.Anything).Return(&workflowservice.ListWorkflowExecutionsResponse{}, nil)
		run := testlake.Run()
		if name == "sweep" {
			if err := ingest.Own(t.Context(), control.Store, run, ingest.Owner{Namespace: "here", WorkflowID: "w"}); err != nil {
				t.Fatal(err)
			}
		}
		spec := many.Spec{Spec: ingest.Spec{Lake: control.URL, Inputs: []string{list}}, DatasetsFrom: many.FromFiles}
		if _, err := many.Plan(t.Context(), control.Store, run, spec); err != nil {
			t.Fatal(err)
		}
		if running, err := registry.Running(t.Context(), control.Store); err != nil || len(running) != 1 {
			t.Fatalf("%v run, %v", running, err)
		}
		if err := remove(control, run); err != nil || control.hasStaging(t, run) {
			t.Fatalf("%s: %v", name, err)
		}
		if running, err := registry.Running(t.Context(), control.Store); err != nil || len(running) > 0 {
			t.Errorf("%s: %v run, %v", name, running, err)
		}
	}
}
