package activities

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/mock"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"

	"github.com/urlake/urlake/internal/testlake"
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
		n := &Normalize{Lake: control.Lake}
		n.TempDir = t.TempDir()
		for group := range plan.Groups {
			if p, err := do[many.Progress](t, n.IngestGroup, control.URL, run, group, 0); err != nil || p.Done != 1 {
				t.Fatalf("%+v, %v", p, err)
			}
		}
		out, err := do[many.Finished](t, control.FinishMany, control.URL, run, true, "", req)
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
