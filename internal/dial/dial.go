// Package dial connects worker and starter to Temporal. The connection is configured by Temporal's
// standard variables: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the others of the SDK's envconfig. A
// Temporal that does not answer yet is waited for.
package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc/codes"
)

// DefaultAddress is the address without TEMPORAL_ADDRESS: that of Temporal's dev server.
const DefaultAddress = "127.0.0.1:7233"

// Forever is the timeout of a caller that waits for Temporal without limit.
const Forever time.Duration = math.MaxInt64

// pause is the time between two attempts to connect.
const pause = 500 * time.Millisecond

// Temporal connects to Temporal and returns the client and the address. If Temporal does not answer
// or does not serve yet, Temporal calls onWait once, unless it is nil, and retries until timeout
// has passed or ctx ends. Unless it is nil, configure may change the options that the environment
// gave. Errors that a retry cannot fix are returned at once: an invalid
// environment, an unknown namespace, a denied permission.
func Temporal(
	ctx context.Context, logger log.Logger, timeout time.Duration, onWait func(address string),
	configure func(*client.Options),
) (client.Client, string, error) {
	opts, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, "", fmt.Errorf("read Temporal's environment variables: %w", err)
	}
	opts.Logger = logger
	opts.HostPort = cmp.Or(opts.HostPort, DefaultAddress)
	opts.Namespace = cmp.Or(opts.Namespace, client.DefaultNamespace)
	if configure != nil {
		configure(&opts)
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for started := time.Now(); ; {
		c, err := connect(ctx, opts)
		if err == nil {
			return c, opts.HostPort, nil
		}
		if ctx.Err() != nil || !retryable(err) || time.Since(started) >= timeout {
			return nil, "", fmt.Errorf("no Temporal at %s (TEMPORAL_ADDRESS): %w", opts.HostPort, err)
		}
		if onWait != nil {
			onWait(opts.HostPort)
			onWait = nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// connect connects once and checks that the namespace is served.
func connect(ctx context.Context, opts client.Options) (client.Client, error) {
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	r := &workflowservice.DescribeNamespaceRequest{Namespace: opts.Namespace}
	if _, err := c.WorkflowService().DescribeNamespace(ctx, r); err != nil {
		c.Close()
		return nil, fmt.Errorf("namespace %s (TEMPORAL_NAMESPACE): %w", opts.Namespace, err)
	}
	return c, nil
}

// retryable reports whether a later attempt may succeed.
func retryable(err error) bool {
	var e serviceerror.ServiceError
	if !errors.As(err, &e) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	switch e.Status().Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted,
		codes.Internal, codes.Unknown:
		return true
	}
	return false
}
