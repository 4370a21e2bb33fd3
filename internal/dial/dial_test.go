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

// temporal is a server that answers only the requests of connecting. Its only namespace is
// "default".
type temporal struct {
	workflowservice.UnimplementedWorkflowServiceServer
}

func (temporal) GetSystemInfo(
	context.Context, *workflowservice.GetSystemInfoRequest,
) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (temporal) DescribeNamespace(
	_ context.Context, r *workflowservice.DescribeNamespaceRequest,
) (*workflowservice.DescribeNamespaceResponse, error) {
	if r.Namespace != "default" {
		return nil, serviceerror.ToStatus(serviceerror.NewNamespaceNotFound(r.Namespace)).Err()
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// setAddress sets TEMPORAL_ADDRESS to an address without a listener, and returns it.
func setAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("TEMPORAL_ADDRESS", l.Addr().String())
	return l.Addr().String()
}

// serve starts a temporal at address.
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

func TestTemporalWaits(t *testing.T) {
	address := setAddress(t)
	waits := 0
	c, got, err := Temporal(t.Context(), quiet, Forever, func(a string) {
		waits++
		if a != address {
			t.Errorf("waiting for %s, want %s", a, address)
		}
		serve(t, address)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if waits != 1 || got != address {
		t.Errorf("onWait called %d times, connected to %s; want 1 time, %s", waits, got, address)
	}
}

func TestWaitingEndsWithContext(t *testing.T) {
	setAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := Temporal(ctx, quiet, Forever, func(string) { cancel() }, nil); err == nil {
		t.Error("connected without a server")
	}
}

func TestTimeout(t *testing.T) {
	address := setAddress(t)
	_, _, err := Temporal(t.Context(), quiet, time.Second, nil, nil)
	if err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("error %v, want one that names %s", err, address)
	}
}

func TestUnknownNamespaceIsNotRetried(t *testing.T) {
	serve(t, setAddress(t))
	t.Setenv("TEMPORAL_NAMESPACE", "nowhere")
	_, _, err := Temporal(t.Context(), quiet, Forever, func(string) { t.Error("retried") }, nil)
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error %v, want one that names the namespace", err)
	}
}
