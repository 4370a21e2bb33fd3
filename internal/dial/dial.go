// Package dial connects worker and starter to Temporal, where its standard environment says:
// TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE and the others of the SDK's envconfig.
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

// DefaultAddress is Temporal's where TEMPORAL_ADDRESS is not set: that of its dev server.
const DefaultAddress = "127.0.0.1:7233"

// Forever is the patience of who has nothing else to do than to wait for Temporal.
const Forever time.Duration = math.MaxInt64

// pause is how long a Temporal that did not answer is left alone.
const pause = 500 * time.Millisecond

// Temporal connects, and returns the address it is connected to. A Temporal that does not answer, or does not serve yet, is
// tried again for as long as patience lasts; waits, unless nil, is called the first time. What no retry mends is returned at once:
// the environment is wrong, the namespace is not there, permission is denied.
func Temporal(ctx context.Context, logger log.Logger, patience time.Duration, waits func(address string)) (client.Client, string, error) {
	opts, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return nil, "", fmt.Errorf("Temporal's environment: %w", err)
	}
	opts.Logger = logger
	opts.HostPort = cmp.Or(opts.HostPort, DefaultAddress)
	opts.Namespace = cmp.Or(opts.Namespace, client.DefaultNamespace)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for began := time.Now(); ; {
		c, err := try(ctx, opts)
		if err == nil {
			return c, opts.HostPort, nil
		}
		if ctx.Err() != nil || !passes(err) || time.Since(began) >= patience {
			return nil, "", fmt.Errorf("no Temporal at %s (TEMPORAL_ADDRESS): %w", opts.HostPort, err)
		}
		if waits != nil {
			waits(opts.HostPort)
			waits = nil
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// try connects and looks whether the namespace is served.
func try(ctx context.Context, opts client.Options) (client.Client, error) {
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, err
	}
	if _, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: opts.Namespace}); err != nil {
		c.Close()
		return nil, fmt.Errorf("namespace %s (TEMPORAL_NAMESPACE): %w", opts.Namespace, err)
	}
	return c, nil
}

// passes tells whether an error may go away by itself.
func passes(err error) bool {
	var e serviceerror.ServiceError
	if !errors.As(err, &e) {
		return errors.Is(err, context.DeadlineExceeded)
	}
	switch e.Status().Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	}
	return false
}
