package activities

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/mocks"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
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
