package dial

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
)

// temporal answers what is asked on the way to a connection. It knows the namespace "default".
type temporal struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (temporal) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (temporal) DescribeNamespace(_ context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	if r.Namespace != "default" {
		return nil, serviceerror.ToStatus(serviceerror.NewNamespaceNotFound(r.Namespace)).Err()
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// address is one on which nobody listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("TEMPORAL_ADDRESS", l.Addr().String())
	return l.Addr().String()
}

func serve(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(s, temporal{})
	go s.Serve(l)
	t.Cleanup(s.Stop)
}

func TestATemporalThatStartsLaterIsWaitedFor(t *testing.T) {
	at := address(t)
	told := 0
	c, got, err := Temporal(t.Context(), quiet, Forever, func(a string) {
		told++
		if a != at {
			t.Errorf("waits for %s, want %s", a, at)
		}
		serve(t, at)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if told != 1 || got != at {
		t.Errorf("told %d times, connected to %s; want once, %s", told, got, at)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	address(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := Temporal(ctx, quiet, Forever, func(string) { cancel() }); err == nil {
		t.Error("connected to nothing")
	}
}

func TestPatienceEnds(t *testing.T) {
	at := address(t)
	if _, _, err := Temporal(t.Context(), quiet, time.Second, nil); err == nil || !strings.Contains(err.Error(), at) {
		t.Errorf("error %v, want one that names %s", err, at)
	}
}

func TestAMissingNamespaceIsNotWaitedFor(t *testing.T) {
	serve(t, address(t))
	t.Setenv("TEMPORAL_NAMESPACE", "nowhere")
	_, _, err := Temporal(t.Context(), quiet, Forever, func(string) { t.Error("it was tried again") })
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error %v, want one that names the namespace", err)
	}
}
