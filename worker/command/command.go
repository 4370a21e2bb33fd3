// Package command is the program worker as a command, which urlake has too.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/internal/processors"
	"github.com/urlake/urlake/internal/tracing"
	"github.com/urlake/urlake/internal/tracing/otlp"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/allow"
	"github.com/urlake/urlake/workflows"
)

// maxMemory in MiB, and the workflow cache on top of it, do not overflow an int64 of bytes.
const maxMemory = math.MaxInt64 >> 21

// stopTimeout is how long a stopping worker waits for its activities to end.
const stopTimeout = 15 * time.Second

type options struct {
	lake, temp string
	pools      []string
	perPool    int
	memory     int64 // MiB
	metrics    string
	inputs     []string
	targets    []string
}

// New returns the program as a command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "worker --lake URL [flags]",
		Short: "Run worker pools of one lake",
		Long: `Worker runs the steps of one lake that Temporal orders: any subset of its pools in one process.

  control     plans batches, writes their records, runs the workflows
  normalize   reads raw objects, makes URLs canonical, groups rows by partition
  write       merges partitions into Parquet
  index       builds segments, extracts lost postings
  publish     verifies segments, commits versions
  background  compacts, rebuilds, checks, exports: what no ingest waits for

A lake needs at least one worker in each pool; start more in any pool to go faster. Workers share
only the lake's store and Temporal. A worker waits until Temporal answers at TEMPORAL_ADDRESS
(default: 127.0.0.1:7233); TEMPORAL_NAMESPACE and Temporal's other standard variables apply too.
S3 settings come from the environment of the AWS SDK (AWS_ENDPOINT_URL_S3, keys, region).

With --metrics the worker serves metrics for Prometheus and probes for health and readiness. With
OTEL_EXPORTER_OTLP_ENDPOINT, or OpenTelemetry's other standard variables, it sends traces.

A worker reads the inputs of ingests with its own rights. --allow-input bounds what it
reads: only what is in one of the folders, or below one of the prefixes, once symbolic links
are resolved. Without it a worker of a lake in a folder reads whatever it can, and a worker of
a lake in S3 reads any bucket that its role may read, and no local file.

Exports and crawls send rows of the lake to the database or the frontier that a workflow names.
--allow-target bounds where to: HOST or HOST:PORT, the folder of a Unix socket, or * for every
host. Without it that is this machine alone. A database is also reached by what a variable of the
worker says (--dsn env:URLAKE_DSN…), which alone may hold a password.

A normalize, index or publish step takes up to 512 MiB of memory, a write step 320 MiB. In all
pools of the process together, as many steps run at once as --memory-limit allows.`,
		Example: `  worker --lake file:///data/lake
  worker --lake s3://bucket/lake --pools normalize,write`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.lake, "lake", "", "the lake's `URL`: file:///dir, a path, or s3://bucket/prefix")
	f.StringSliceVar(&o.pools, "pools", activities.Pools, "`POOLS` to run")
	f.IntVar(&o.perPool, "concurrency", runtime.GOMAXPROCS(0),
		"`STEPS` at once in each pool, as far as --memory-limit allows (default: the number of processors)")
	f.Lookup("concurrency").DefValue = "0" // keeps this machine's number out of the help text
	f.StringVar(&o.temp, "temp-dir", "",
		"`FOLDER` for spill files and two Parquet files a write step, about 340 MiB (default: the system's)")
	f.Int64Var(&o.memory, "memory-limit", 1024,
		"`MIB` of memory for all steps together; further steps wait; 0 is no limit (GOMEMLIMIT takes precedence)")
	f.StringVar(&o.metrics, "metrics", "",
		"`ADDRESS` (host:port) for /metrics, /healthz and /readyz; port 0 picks a free port (default: none)")
	f.StringSliceVar(&o.inputs, "allow-input", nil,
		"`PREFIXES` of what ingests may read: file:///folder/, s3://bucket/prefix/, file:/// or s3:// for all of a kind")
	f.StringSliceVar(&o.targets, "allow-target", nil,
		"`HOSTS` to which exports and crawls may send rows of the lake: HOST, HOST:PORT or * (default: this machine)")
	cli.BindEnv(cmd)
	return cmd
}

// allowedInputs returns what the ingests of a lake may read, nil for everything.
func allowedInputs(prefixes []string, lakeURL string) (*allow.Inputs, error) {
	if len(prefixes) > 0 {
		a, err := allow.Parse(prefixes)
		if err != nil {
			return nil, cli.Usagef("--allow-input %w", err)
		}
		// The visits of frontiers, which workers write to the lake themselves.
		return a, a.Also(strings.TrimRight(lakeURL, "/") + "/" + feed.Root)
	}
	if strings.HasPrefix(lakeURL, "file:") {
		return nil, nil
	}
	return allow.Buckets(), nil
}

// allowedTargets returns the hosts to which rows of a lake may be sent.
func allowedTargets(names []string) (*allow.Targets, error) {
	if len(names) == 0 {
		return allow.Loopback(), nil
	}
	t, err := allow.ParseTargets(names)
	if err != nil {
		return nil, cli.Usagef("--allow-target %w", err)
	}
	return t, nil
}

// stepContext returns the context of all steps: they reach what these prefixes and hosts allow.
func stepContext(inputs, targets []string, lakeURL string) (context.Context, error) {
	in, err := allowedInputs(inputs, lakeURL)
	if err != nil {
		return nil, err
	}
	to, err := allowedTargets(targets)
	if err != nil {
		return nil, err
	}
	return allow.WithTargets(allow.With(context.Background(), in), to), nil
}

// ahead returns how many steps a pool with so many slots takes before they can run. Those of a
// worker with many slots are few beside the running ones, so that other workers find work, too.
func ahead(slots int) int { return min(slots, 2) }

func run(ctx context.Context, o options, stderr io.Writer) error {
	lakeURL, err := cli.LakeURL(o.lake)
	if err != nil {
		return err
	}
	if len(o.pools) == 0 {
		return cli.Usagef("--pools is empty; use some of %s", strings.Join(activities.Pools, ","))
	}
	for _, p := range o.pools {
		if !slices.Contains(activities.Pools, p) {
			return cli.Usagef("--pools: unknown pool %q; use some of %s", p, strings.Join(activities.Pools, ","))
		}
	}
	if o.perPool < 1 {
		return cli.Usagef("--concurrency is %d; use 1 or more", o.perPool)
	}
	if o.memory < 0 || o.memory > maxMemory {
		return cli.Usagef("--memory-limit is %d; use a number of MiB, or 0 for no limit", o.memory)
	}
	steps, err := stepContext(o.inputs, o.targets, lakeURL)
	if err != nil {
		return err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		processors.Use(runtime.GOMAXPROCS(0))
	}
	memory := limitMemory(o.memory, slices.Contains(o.pools, activities.PoolControl))
	if err := cli.CheckLake(lakeURL); err != nil {
		return err
	}
	opened, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	store := blob.NewCounting(opened)
	// The first ingest makes the lake, so a missing lake is not an error. But it may be a typing
	// mistake, so the worker says so.
	_, err = store.Stat(ctx, lake.RegistryKey)
	missing := errors.Is(err, blob.ErrNotExist)
	if err != nil && !missing {
		return fmt.Errorf("lake %s: %w", lakeURL, err)
	}
	temp := filepath.Join(cmp.Or(o.temp, os.TempDir()), fmt.Sprintf("urlake-%d", os.Getuid()))
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return err
	}

	measured := newMetrics(lakeURL, store, memory)
	state := &probes{lakeURL: lakeURL, store: store}
	if o.metrics != "" {
		stop, err := listen(o.metrics, measured, state, stderr)
		if err != nil {
			return err
		}
		defer stop()
	}
	traces, err := tracing.Start(ctx, "urlake-worker", cli.Version(), otlp.Reporter(cli.Printable(stderr), "worker"))
	if err != nil {
		return err
	}
	defer traces.Stop()
	interceptors, err := traces.Interceptors()
	if err != nil {
		return err
	}

	handler := slog.NewTextHandler(cli.Printable(stderr), &slog.HandlerOptions{Level: slog.LevelWarn})
	logger := log.NewStructuredLogger(slog.New(handler))
	namespace := ""
	c, address, err := dial.Temporal(ctx, logger, dial.Forever, func(address string) {
		cli.Fprintf(stderr, "worker: waiting for Temporal at %s\n", address)
	}, func(opts *client.Options) {
		namespace = opts.Namespace
		opts.Interceptors = interceptors
		if o.metrics != "" {
			opts.MetricsHandler = measured.sdk.Handler()
		}
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped while waiting
	}
	if err != nil {
		return err
	}
	defer c.Close()
	state.connected(c, namespace)

	base := activities.Lake{Store: store, URL: lakeURL, TempDir: temp, Memory: memory}
	search := activities.NewSearch(c, namespace)
	stopped := make(chan error, len(o.pools))
	host, _ := os.Hostname() // only helps people
	polling := map[string]string{}
	open := func(pool string, slots int) poller {
		if slots < o.perPool {
			cli.Fprintf(stderr, "worker: pool %s runs %d steps at once instead of %d, as the memory limit allows\n",
				pool, slots, o.perPool)
		}
		taken := slots
		if pool == activities.PoolNormalize || pool == activities.PoolWrite {
			// The next step is there when one ends: Temporal takes milliseconds to hand one out
			// and, of a long queue, up to a second.
			taken = slots + ahead(slots)
		}
		queue := activities.TaskQueue(lakeURL, pool)
		identity := fmt.Sprintf("%d@%s@%s", os.Getpid(), host, queue) // as the SDK's default
		w := worker.New(c, queue, worker.Options{
			Identity:                           identity,
			Interceptors:                       []interceptor.WorkerInterceptor{measured.pool(pool, slots)},
			MaxConcurrentActivityExecutionSize: taken,
			// Progress of an ingest comes from the heartbeats of its steps, so they are not
			// delayed. The steps choose the interval.
			MaxHeartbeatThrottleInterval: time.Second,
			WorkerStopTimeout:            stopTimeout,
			DisableWorkflowWorker:        pool != activities.PoolControl,
			// Every step of every pool, so that no step can forget it.
			BackgroundActivityContext: steps,
			OnFatalError:              func(err error) { stopped <- fmt.Errorf("pool %s: %w", pool, err) },
		})
		polling[pool] = identity
		switch pool {
		case activities.PoolControl:
			w.RegisterWorkflow(workflows.IngestWorkflow)
			w.RegisterWorkflow(workflows.IngestManyWorkflow)
			w.RegisterWorkflow(workflows.PublishWorkflow)
			w.RegisterWorkflow(workflows.GCWorkflow)
			w.RegisterWorkflow(workflows.CompactWorkflow)
			w.RegisterWorkflow(workflows.RebuildWorkflow)
			w.RegisterWorkflow(workflows.VerifyWorkflow)
			w.RegisterWorkflow(workflows.PostgresExportWorkflow)
			w.RegisterWorkflow(workflows.CrawlSeedWorkflow)
			w.RegisterWorkflow(workflows.VisitedIngestWorkflow)
			w.RegisterWorkflow(workflows.FrontierMigrateWorkflow)
			if err := search.Register(ctx); err != nil {
				cli.Fprintf(stderr, "worker: %v\n", err)
			}
			w.RegisterActivity(&activities.Control{Lake: base, Temporal: c, Search: search})
		case activities.PoolNormalize:
			w.RegisterActivity(&activities.Normalize{Lake: base, Temporal: c})
		case activities.PoolWrite:
			w.RegisterActivity(&activities.Write{Lake: base})
		case activities.PoolIndex:
			w.RegisterActivity(&activities.Index{Lake: base})
		case activities.PoolPublish:
			w.RegisterActivity(&activities.Publish{Lake: base, Search: search, Temporal: c})
		case activities.PoolBackground:
			w.RegisterActivity(&activities.Write{Lake: base})
			w.RegisterActivity(&activities.Index{Lake: base})
			w.RegisterActivity(&activities.Publish{Lake: base, Search: search, Temporal: c})
		}
		return w
	}
	queues, err := startPools(memory, o.pools, o.perPool, open)
	if err != nil {
		return err
	}
	state.started(polling)
	if missing {
		cli.Fprintf(stderr, "worker: no lake at %s yet; the first ingest makes it\n", lakeURL)
	}
	cli.Fprintf(stderr, "worker: lake %s, pools %s, inputs from %s, exports to %s, Temporal at %s\n",
		lakeURL, strings.Join(o.pools, " "), allow.Of(steps), allow.TargetsOf(steps), address)

	select {
	case <-ctx.Done():
		cli.Fprintf(stderr, "worker: stopping; steps that do not end soon are returned to Temporal\n")
	case err = <-stopped:
	}
	state.draining.Store(true)
	stop(queues)
	return err
}
