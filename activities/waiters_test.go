package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/mock"
	"go.temporal.io/api/common/v1"
	enums "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

// service answers the one request that the activities send without the client's methods.
type service struct {
	workflowservice.WorkflowServiceClient
}

func (service) DescribeNamespace(
	context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption,
) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{Id: "here"}}, nil
}

// newControl returns the activities of the control pool over a lake in memory, and a Temporal that
// knows the newest executions of some workflows.
func newControl(executions map[string]*workflow.WorkflowExecutionInfo) (*Control, *mocks.Client) {
	c := &mocks.Client{}
	c.On("WorkflowService").Return(service{})
	c.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(
		func(_ context.Context, id, _ string) *workflowservice.DescribeWorkflowExecutionResponse {
			return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: executions[id]}
		}, func(_ context.Context, id, _ string) error {
			if executions[id] == nil {
				return serviceerror.NewNotFound("no such workflow")
			}
			return nil
		})
	store := blob.NewMemory()
	return &Control{Lake: Lake{Store: store, URL: store.URL()}, Temporal: c}, c
}

// ended is a workflow that ended an hour and a half ago.
func ended(status enums.WorkflowExecutionStatus) *workflow.WorkflowExecutionInfo {
	return &workflow.WorkflowExecutionInfo{Status: status, CloseTime: timestamppb.New(time.Now().Add(-90 * time.Minute))}
}

// do runs an activity of c.
func do[T any](t *testing.T, activity any, args ...any) (out T, err error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(activity)
	v, err := env.ExecuteActivity(activity, args...)
	if err == nil && v.HasValue() {
		err = v.Get(&out)
	}
	return out, err
}

// digest returns the digest of the batch of dataset 1 that was ingested last.
func digest(t *testing.T, store blob.Store, batch string) string {
	t.Helper()
	return testlake.Finished(t, store, 1, batch).Digest
}

// TestOnlyWhatIsTrueIsTold publishes one of five batches. The list of skipped batches is cut
// off: it lacks one. Of another batch it has the next ingest.
func TestOnlyWhatIsTrueIsTold(t *testing.T) {
	control, client := newControl(nil)
	testlake.Ingest(t, control.Store, "d", "good", []testlake.Record{{URL: "http://a.example/"}})
	testlake.Publish(t, control.Store)
	for _, b := range []string{"listed", "cut", "next"} {
		testlake.Ingest(t, control.Store, "d", b, []testlake.Record{{URL: "http://b.example/" + b}})
	}
	var mu sync.Mutex
	told := map[string]Published{}
	client.On("SignalWorkflow", mock.Anything, mock.Anything, "", PublishedSignal, mock.Anything).Return(
		func(_ context.Context, id, _, _ string, arg any) error {
			mu.Lock()
			defer mu.Unlock()
			told[id] = arg.(Published)
			if id == "gone" {
				return serviceerror.NewNotFound("workflow execution already completed")
			}
			return nil
		})
	request := func(id, batch string) PublishRequest {
		return PublishRequest{WorkflowID: id, RunID: "r", DatasetID: 1, Batch: batch, Digest: digest(t, control.Store, batch),
			Start: testlake.Finished(t, control.Store, 1, batch).Start}
	}
	if _, err := do[any](t, control.TellIngests, control.URL,
		[]PublishRequest{request("gone", "good"), request("w1", "good"), request("w2", "listed"), request("w3", "cut"),
			request("w4", "next")},
		[]publish.Skipped{
			{DatasetID: 1, Batch: "listed", Reason: "damaged", Digest: digest(t, control.Store, "listed")},
			{DatasetID: 1, Batch: "next", Reason: "damaged", Digest: "another"},
			{DatasetID: 1, Batch: "cut", Reason: "another batch of its segment is damaged"},
			{DatasetID: 1, Reason: "what waits is damaged"},
		}); err != nil {
		t.Fatal(err)
	}
	delete(told, "gone")
	version := told["w1"].Version
	want := map[string]Published{
		"w1": {Version: version, Digest: digest(t, control.Store, "good")},
		"w2": {Error: "damaged", Digest: digest(t, control.Store, "listed")},
	}
	if diff := cmp.Diff(want, told); diff != "" || version == "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestWaitingIngestSeesThePublisher checks when a look asks for another publish, and what it says
// about the last one.
func TestWaitingIngestSeesThePublisher(t *testing.T) {
	failed := func(took, ago time.Duration) *workflow.WorkflowExecutionInfo {
		e := ended(enums.WORKFLOW_EXECUTION_STATUS_FAILED)
		end := time.Now().Add(-ago)
		e.StartTime, e.CloseTime = timestamppb.New(end.Add(-took)), timestamppb.New(end)
		return e
	}
	for name, c := range map[string]struct {
		publisher *workflow.WorkflowExecutionInfo
		want      Look
	}{
		"there is none": {nil, Look{Ask: true}},
		"it runs":       {&workflow.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}, Look{}},
		"it has ended":  {ended(enums.WORKFLOW_EXECUTION_STATUS_COMPLETED), Look{Ask: true}},
		"terminated":    {ended(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED), Look{Ask: true}},
		// No longer ago than it took, but for a publish that took very little or very much.
		"failed":                           {failed(5*time.Minute, 6*time.Minute), Look{Ask: true, Reason: "corrupt seal"}},
		"failed not long ago":              {failed(5*time.Minute, 4*time.Minute), Look{Reason: "corrupt seal"}},
		"failed at once":                   {failed(0, time.Minute), Look{Ask: true, Reason: "corrupt seal"}},
		"failed at once, just now":         {failed(0, 20*time.Second), Look{Reason: "corrupt seal"}},
		"failed after a day":               {failed(24*time.Hour, 11*time.Minute), Look{Ask: true, Reason: "corrupt seal"}},
		"failed after a day, not long ago": {failed(24*time.Hour, 9*time.Minute), Look{Reason: "corrupt seal"}},
	} {
		control, client := newControl(nil)
		id := PublishWorkflowID(control.URL)
		if c.publisher != nil {
			client.ExpectedCalls = nil
			client.On("DescribeWorkflowExecution", mock.Anything, id, "").Return(
				&workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: c.publisher}, nil)
		}
		run := &mocks.WorkflowRun{}
		run.On("Get", mock.Anything, nil).Return(temporal.NewNonRetryableApplicationError("corrupt seal", ErrCorrupt, nil))
		client.On("GetWorkflow", mock.Anything, mock.Anything, mock.Anything).Return(run)
		testlake.Ingest(t, control.Store, "d", "b", []testlake.Record{{URL: "http://a.example/"}})
		req := PublishRequest{DatasetID: 1, Batch: "b", Digest: digest(t, control.Store, "b")}
		got, err := do[Look](t, control.FindVersion, control.URL, req, "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDamagedManifestIsNoFaultOfTheBatch checks that a look does not fail an ingest whose batch is
// sound.
func TestDamagedManifestIsNoFaultOfTheBatch(t *testing.T) {
	control, _ := newControl(nil)
	testlake.Ingest(t, control.Store, "d", "b", []testlake.Record{{URL: "http://a.example/"}})
	if _, err := control.Store.Put(t.Context(), "index/manifest.json", []byte("damaged"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	req := PublishRequest{DatasetID: 1, Batch: "b", Digest: digest(t, control.Store, "b")}
	got, err := do[Look](t, control.FindVersion, control.URL, req, "")
	if err != nil || got.Error != "" || !strings.Contains(got.Reason, "manifest.json") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLostVersionIsNoFaultOfTheBatch checks that an ingest waits for the publish that mends a lost
// current version.
func TestLostVersionIsNoFaultOfTheBatch(t *testing.T) {
	control, _ := newControl(nil)
	testlake.Ingest(t, control.Store, "d", "a", []testlake.Record{{URL: "http://a.example/"}})
	key := catalog.VersionKey(testlake.Publish(t, control.Store).Version)
	testlake.Ingest(t, control.Store, "d", "b", []testlake.Record{{URL: "http://b.example/"}})
	if err := control.Store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	req := PublishRequest{DatasetID: 1, Batch: "b", Digest: digest(t, control.Store, "b")}
	req.Start = testlake.Finished(t, control.Store, 1, "b").Start
	got, err := do[Look](t, control.FindVersion, control.URL, req, "")
	if err != nil || got.Error != "" || !got.Ask || !strings.Contains(got.Reason, key) {
		t.Errorf("%+v, %v", got, err)
	}
	version := testlake.Publish(t, control.Store).Version
	if got, err = do[Look](t, control.FindVersion, control.URL, req, got.Seen); err != nil || got.Version != version {
		t.Errorf("after the next publish: %+v, %v", got, err)
	}
}

// TestFullPublisherGetsNoRequest checks that a publisher with a long history gets no more signals,
// which Temporal limits.
func TestFullPublisherGetsNoRequest(t *testing.T) {
	for length, want := range map[int64]int{100: 1, maxPublisherEvents + 1: 0} {
		control, client := newControl(nil)
		client.ExpectedCalls = nil
		client.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(&workflowservice.DescribeWorkflowExecutionResponse{
			WorkflowExecutionInfo: &workflow.WorkflowExecutionInfo{Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING, HistoryLength: length},
		}, nil)
		client.On("SignalWithStartWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).
			Return(&mocks.WorkflowRun{}, nil)
		if _, err := do[any](t, control.RequestPublish, control.URL, PublishRequest{Batch: "b"}); err != nil {
			t.Fatal(err)
		}
		client.AssertNumberOfCalls(t, "SignalWithStartWorkflow", want)
	}
}

// staged is a lake in memory with an object in the staging of a run, which workflow owns.
func (c *Control) staged(t *testing.T, run, workflow string, in ingest.Owner) {
	t.Helper()
	in.WorkflowID = workflow
	if err := ingest.Own(t.Context(), c.Store, run, in); err != nil {
		t.Fatal(err)
	}
}

func (c *Control) hasStaging(t *testing.T, run string) bool {
	t.Helper()
	for _, err := range c.Store.List(t.Context(), lake.StagingPrefix(run)) {
		if err != nil {
			t.Fatal(err)
		}
		return true
	}
	return false
}

func TestCleanUpRefusesTheStagingOfAnotherWorkflow(t *testing.T) {
	control, _ := newControl(nil)
	control.staged(t, "theirs", "ingest:other", ingest.Owner{Namespace: "here"})
	control.staged(t, "mine", "default-test-workflow-id", ingest.Owner{Namespace: "here"})
	for _, run := range []string{"theirs", "mine"} {
		_, err := do[any](t, control.CleanUp, control.URL, run)
		var app *temporal.ApplicationError
		if refused := errors.As(err, &app) && app.NonRetryable(); refused != (run == "theirs") || control.hasStaging(t, run) != refused {
			t.Errorf("%s: %v", run, err)
		}
	}
}

// TestSweepAsksTemporal has staging of a workflow in each state.
func TestSweepAsksTemporal(t *testing.T) {
	now := map[string]*workflow.WorkflowExecutionInfo{
		"running":    {Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING},
		"failed":     ended(enums.WORKFLOW_EXECUTION_STATUS_FAILED),
		"timedout":   ended(enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT),
		"terminated": ended(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED),
		"cancelled":  ended(enums.WORKFLOW_EXECUTION_STATUS_CANCELED),
		"longago":    ended(enums.WORKFLOW_EXECUTION_STATUS_FAILED),
	}
	now["longago"].CloseTime = timestamppb.New(time.Now().Add(-8 * 24 * time.Hour))
	control, client := newControl(now)
	client.On("ListWorkflow", mock.Anything, mock.Anything).Return(&workflowservice.ListWorkflowExecutionsResponse{}, nil)
	kept := map[string]bool{
		"running": true, "failed": true, "timedout": true, "elsewhere": true, "unowned": true,
		"forgotten": true, // it may have failed a day ago
	}
	for _, id := range []string{"running", "failed", "timedout", "terminated", "cancelled", "longago", "forgotten"} {
		control.staged(t, "run-"+id, id, ingest.Owner{Namespace: "here"})
	}
	control.staged(t, "run-elsewhere", "running", ingest.Owner{Namespace: "there"})
	if _, err := control.Store.Put(t.Context(), "staging/run-unowned/x", nil, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	swept, err := do[ingest.Swept](t, control.SweepStaging, control.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"running", "failed", "timedout", "terminated", "cancelled", "longago", "forgotten", "elsewhere", "unowned"} {
		if got := control.hasStaging(t, "run-"+id); got != kept[id] {
			t.Errorf("%s: staging there %v, want %v", id, got, kept[id])
		}
	}
	if fmt.Sprint(swept.Runs) != "[run-cancelled run-longago run-terminated]" || swept.Kept != len(kept) {
		t.Errorf("%+v", swept)
	}
}

// TestSweepTellsPublishersApart has the staging of publishers without an owner: of one that was
// terminated before the running one was started, and of one that a reset continued.
func TestSweepTellsPublishersApart(t *testing.T) {
	const id = "publish@mem"
	terminated := ended(enums.WORKFLOW_EXECUTION_STATUS_TERMINATED)
	for name, c := range map[string]struct {
		first string // of the newest run
		kept  bool
	}{"another was started": {"newest", false}, "a reset continues it": {"old", true}, "an older server": {"", true}} {
		control, client := newControl(nil)
		client.ExpectedCalls = nil
		client.On("WorkflowService").Return(service{})
		client.On("ListWorkflow", mock.Anything, mock.Anything).Return(&workflowservice.ListWorkflowExecutionsResponse{
			Executions: []*workflow.WorkflowExecutionInfo{{Execution: &common.WorkflowExecution{WorkflowId: id, RunId: "old"}}},
		}, nil)
		terminated.FirstRunId = ""
		if c.first != "" {
			terminated.FirstRunId = "old"
		}
		for run, e := range map[string]*workflow.WorkflowExecutionInfo{
			"old": terminated, "": {Status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING, FirstRunId: c.first},
		} {
			client.On("DescribeWorkflowExecution", mock.Anything, id, run).Return(
				&workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: e}, nil)
		}
		if _, err := control.Store.Put(t.Context(), "staging/old/x", nil, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := do[ingest.Swept](t, control.SweepStaging, control.URL); err != nil {
			t.Fatal(err)
		}
		if got := control.hasStaging(t, "old"); got != c.kept {
			t.Errorf("%s: staging there %v, want %v", name, got, c.kept)
		}
	}
}

// TestFailedSweepIsNotRepeated has a Temporal whose visibility is away, and a worker that stops.
func TestFailedSweepIsNotRepeated(t *testing.T) {
	control, client := newControl(nil)
	client.On("ListWorkflow", mock.Anything, mock.Anything).Return(nil, serviceerror.NewUnavailable("visibility is away"))
	if _, err := control.Store.Put(t.Context(), "staging/run/x", nil, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, err := do[ingest.Swept](t, control.SweepStaging, control.URL)
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || !app.NonRetryable() || !strings.Contains(err.Error(), "visibility is away") {
		t.Errorf("error %v, want one that is not retried", err)
	}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	stop := make(chan struct{})
	close(stop)
	env.SetWorkerStopChannel(stop)
	client.ExpectedCalls = nil
	client.On("WorkflowService").Return(service{})
	client.On("ListWorkflow", mock.Anything, mock.Anything).Return(func(ctx context.Context, _ *workflowservice.ListWorkflowExecutionsRequest) *workflowservice.ListWorkflowExecutionsResponse {
		<-ctx.Done()
		return nil
	}, context.Canceled)
	env.RegisterActivity(control.SweepStaging)
	if _, err = env.ExecuteActivity(control.SweepStaging, control.URL); !errors.As(err, &app) || app.NonRetryable() {
		t.Errorf("error %v of a worker that stops, want one that is retried", err)
	}
}
