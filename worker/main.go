// Worker runs worker pools of one lake: any subset of them in one process. It takes steps from
// Temporal until it is stopped. All state is in the lake's store and in Temporal, so a worker may
// be started or stopped at any time.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/dial"
	"github.com/urlake/urlake/internal/processors"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/workflows"
)

func main() { cli.Main(command()) }

// stopTimeout is how long a stopping worker waits for its activities to end.
const stopTimeout = 15 * time.Second

type options struct {
	lake, temp string
	pools      []string
	perPool    int
	memory     int64 // MiB
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "worker --lake URL [flags]",
		Short: "Run worker pools of one lake",
		Long: `Worker runs the steps of one lake that Temporal orders: any subset of its pools in one process.

  control    plans batches, writes their records, runs the workflows
  normalize  reads raw objects, makes URLs canonical, groups rows by partition
  write      merges partitions into Parquet
  index      builds segments, extracts lost postings
  publish    verifies segments, commits versions

A lake needs at least one worker in each pool; start more in any pool to go faster. Workers share
only the lake's store and Temporal. A worker waits until Temporal answers at TEMPORAL_ADDRESS
(default: 127.0.0.1:7233); TEMPORAL_NAMESPACE and Temporal's other standard variables apply too.
S3 settings come from the environment of the AWS SDK (AWS_ENDPOINT_URL_S3, keys, region).

A normalize, index or publish step takes up to 512 MiB of memory, a write step 320 MiB. In all
pools of the process together, as many steps run at once as --memory-limit allows.`,
		Example: `  worker --lake file:///data/lake
  worker --lake s3://bucket/lake --pools normalize,write`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
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
	cli.BindEnv(cmd)
	return cmd
}

// checkParent rejects a local lake whose parent folder does not exist, because the path is mistyped
// or a file system is not mounted.
func checkParent(lakeURL string) error {
	u, err := url.Parse(lakeURL)
	if err != nil || u.Scheme != "file" {
		return nil //nolint:nilerr // blob.Open reports a bad URL
	}
	parent := filepath.Dir(filepath.FromSlash(u.Path))
	if _, err := os.Stat(parent); err != nil {
		return cli.Usagef("no lake at %s, and its parent folder is missing; check --lake and mounts: %w", lakeURL, err)
	}
	return nil
}

func run(ctx context.Context, o options) error {
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
	if o.memory < 0 {
		return cli.Usagef("--memory-limit is %d; use a number of MiB, or 0 for no limit", o.memory)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		processors.Use(runtime.GOMAXPROCS(0))
	}
	if os.Getenv("GOMEMLIMIT") == "" && o.memory > 0 {
		debug.SetMemoryLimit(o.memory << 20)
	}
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		limit = 0 // none
	}
	memory := activities.NewMemory(limit)
	if err := checkParent(lakeURL); err != nil {
		return err
	}
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
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

	handler := slog.NewTextHandler(cli.Printable(os.Stderr), &slog.HandlerOptions{Level: slog.LevelWarn})
	logger := log.NewStructuredLogger(slog.New(handler))
	c, address, err := dial.Temporal(ctx, logger, dial.Forever, func(address string) {
		cli.Fprintf(os.Stderr, "worker: waiting for Temporal at %s\n", address)
	})
	if err != nil && ctx.Err() != nil {
		return nil // stopped while waiting
	}
	if err != nil {
		return err
	}
	defer c.Close()

	base := activities.Lake{Store: store, URL: lakeURL, TempDir: temp, Memory: memory}
	stopped := make(chan error, len(o.pools))
	var running []worker.Worker
	for _, pool := range o.pools {
		slots := memory.Slots(pool, o.perPool)
		if slots < o.perPool {
			cli.Fprintf(os.Stderr, "worker: pool %s runs %d steps at once instead of %d, as the memory limit allows\n",
				pool, slots, o.perPool)
		}
		w := worker.New(c, activities.TaskQueue(lakeURL, pool), worker.Options{
			MaxConcurrentActivityExecutionSize: slots,
			// Progress of an ingest comes from the heartbeats of its steps, so they are not
			// delayed.
			MaxHeartbeatThrottleInterval: time.Second,
			WorkerStopTimeout:            stopTimeout,
			DisableWorkflowWorker:        pool != activities.PoolControl,
			OnFatalError:                 func(err error) { stopped <- fmt.Errorf("pool %s: %w", pool, err) },
		})
		switch pool {
		case activities.PoolControl:
			w.RegisterWorkflow(workflows.IngestWorkflow)
			w.RegisterWorkflow(workflows.PublishWorkflow)
			w.RegisterActivity(&activities.Control{Lake: base, Temporal: c})
		case activities.PoolNormalize:
			w.RegisterActivity(&activities.Normalize{Lake: base})
		case activities.PoolWrite:
			w.RegisterActivity(&activities.Write{Lake: base})
		case activities.PoolIndex:
			w.RegisterActivity(&activities.Index{Lake: base})
		case activities.PoolPublish:
			w.RegisterActivity(&activities.Publish{Lake: base})
		}
		if err := w.Start(); err != nil {
			return fmt.Errorf("pool %s: %w", pool, err)
		}
		running = append(running, w)
	}
	if missing {
		cli.Fprintf(os.Stderr, "worker: no lake at %s yet; the first ingest makes it\n", lakeURL)
	}
	cli.Fprintf(os.Stderr, "worker: lake %s, pools %s, Temporal at %s\n", lakeURL, strings.Join(o.pools, " "), address)

	select {
	case <-ctx.Done():
		cli.Fprintf(os.Stderr, "worker: stopping; steps that do not end soon are returned to Temporal\n")
	case err = <-stopped:
	}
	for _, w := range running {
		w.Stop()
	}
	return err
}
