// Serve answers a lake's two queries over HTTP: which datasets contain this domain, and which of
// its URLs a dataset contains. It needs a lake URL and a cache directory, nothing else, and
// follows what is published.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
)

func main() { cli.Main(command()) }

const (
	// headerTimeout and idleTimeout bound what an idle or dripping client costs.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// sendTimeout is how long a client may take to receive an answer, beyond the time of making it.
	sendTimeout = time.Minute
	// maxHeader holds the longest URL that is parsed as {d}, escaped.
	maxHeader = 256 << 10
	// shutdownTimeout is how long requests that are under way may go on after a signal.
	shutdownTimeout = 30 * time.Second
)

const (
	mib = 1 << 20
	// leastMemory has room for the program itself and caches that are worth the name; mostMemory can be counted in bytes.
	leastMemory = 64
	mostMemory  = math.MaxInt64 / mib
)

type options struct {
	lake, listen, metrics, cache  string
	poll, deadline                time.Duration
	memory, frameCache, pageCache int64 // MiB
	keepOpen                      int
	logFormat                     string
	accessLog                     bool
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve --lake URL [flags]",
		Short: "Answer a lake's queries over HTTP",
		Long: `Serve answers two queries over HTTP, exactly and from any offset alike:

  GET /v1/domain/{domain}                       which datasets contain this domain, and how many URLs of it each
  GET /v1/domain/{domain}/datasets/{id}/urls    which URLs of it (?offset= &limit= &cursor=)

Further: /v1/datasets, /healthz, /readyz, /metrics for Prometheus, and pages for people at /. {domain} may be any spelling of a
host or URL; version= asks an older version, explain=1 shows what was read.

A server keeps no state: it needs the lake's store and a cache directory, and follows the lake's manifest. S3 settings
come from the AWS SDK's own environment (AWS_ENDPOINT_URL_S3, keys, region).

Of --memory-limit a quarter is for mapped files, a quarter for decoded index frames, three sixteenths for decoded rows, and
the rest for requests. docs/operation.md says how to choose it.`,
		Example: `  serve --lake file:///data/lake
  serve --lake s3://bucket/lake --listen 127.0.0.1:9000 --cache /var/cache/urlake`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.lake, "lake", "", "the lake's `URL`: file:///dir, a path, or s3://bucket/prefix")
	f.StringVar(&o.listen, "listen", ":8080", "`ADDRESS` to listen on; port 0 takes a free one")
	f.StringVar(&o.metrics, "metrics-listen", "", "`ADDRESS` for /metrics alone (default: /metrics is on --listen)")
	f.StringVar(&o.cache, "cache", defaultCache(), "`FOLDER` for copies of the mapped index files; a file:// lake is mapped where it lies")
	f.DurationVar(&o.poll, "poll", lookup.DefaultPoll, "`TIME` between two looks for a new version")
	f.DurationVar(&o.deadline, "deadline", lookup.DefaultDeadline, "`TIME` that a page may take")
	f.Int64Var(&o.memory, "memory-limit", lookup.DefaultMemoryBytes/mib, "`MIB` of resident memory to stay within")
	f.Int64Var(&o.frameCache, "frame-cache", 0, "`MIB` of decoded index frames to keep (default: a quarter of --memory-limit)")
	f.Int64Var(&o.pageCache, "page-cache", 0, "`MIB` of decoded rows to keep (default: three sixteenths of --memory-limit)")
	f.IntVar(&o.keepOpen, "keep-open", lookup.DefaultKeepOpen, "`VERSIONS` besides the current one that stay open")
	f.StringVar(&o.logFormat, "log-format", "text", "`FORMAT`: text or json")
	f.BoolVar(&o.accessLog, "access-log", true, "log every request (ids and counts, never a URL)")
	cli.BindEnv(cmd)
	return cmd
}

// defaultCache is the user's cache folder, or one that goes with the machine where there is no user to speak of.
func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "urlake")
}

func run(ctx context.Context, o options, stderr io.Writer) error {
	lakeURL, err := cli.LakeURL(o.lake)
	if err != nil {
		return err
	}
	switch {
	case o.poll <= 0 || o.deadline <= 0:
		return cli.Usagef("--poll and --deadline have to be positive")
	case o.memory < leastMemory || o.memory > mostMemory:
		return cli.Usagef("--memory-limit has to be at least %d", leastMemory)
	case o.frameCache < 0 || o.pageCache < 0 || o.frameCache > o.memory || o.pageCache > o.memory:
		return cli.Usagef("--frame-cache and --page-cache have to be parts of --memory-limit")
	case o.keepOpen < 1:
		return cli.Usagef("--keep-open has to be at least 1")
	case o.cache == "":
		return cli.Usagef("--cache is empty")
	}
	log, err := newLogger(o.logFormat, stderr)
	if err != nil {
		return err
	}
	opt := lookup.Options{
		MemoryBytes: o.memory * mib, FrameBytes: o.frameCache * mib, PageBytes: o.pageCache * mib,
		Poll: o.poll, Deadline: o.deadline, KeepOpen: o.keepOpen, Log: log,
	}
	if opt.CacheBytes() >= opt.HeapBytes() {
		return cli.Usagef("--frame-cache and --page-cache leave nothing of the %d MiB of --memory-limit that are not for mapped files", opt.HeapBytes()/mib)
	}
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		// A folder that does not exist yet is waited for, like an S3 prefix without objects. A file never becomes a lake.
		if st, err := os.Stat(filepath.FromSlash(u.Path)); err == nil && !st.IsDir() {
			return cli.Usagef("--lake %s: not a folder", o.lake)
		}
	}
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT goes before
		debug.SetMemoryLimit(opt.HeapBytes())
	}
	// Lakes do not share a folder: a server removes from its own what its versions do not need.
	opt.CacheDir = filepath.Join(o.cache, fmt.Sprintf("%016x", xxh3.HashString(lakeURL)))
	if err := os.MkdirAll(opt.CacheDir, 0o777); err != nil {
		return fmt.Errorf("cache folder: %w", err)
	}
	counted := blob.NewCounting(store)
	server := lookup.NewServer(counted, opt)
	defer server.Close()

	access := log
	if !o.accessLog {
		access = slog.New(slog.DiscardHandler)
	}
	metrics := api.NewMetrics(server, counted)
	handler := api.New(server, access, metrics)
	sites := []*site{{name: "listening", address: o.listen, mux: handler}}
	if o.metrics == "" {
		handler.Handle("GET /metrics", metrics.Handler())
	} else {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics.Handler())
		sites = append(sites, &site{name: "metrics", address: o.metrics, mux: mux})
	}
	for _, s := range sites {
		if s.listener, err = net.Listen("tcp", s.address); err != nil {
			return err
		}
		defer s.listener.Close()
	}
	following, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { server.Run(following) })
	for _, s := range sites {
		log.Info(s.name, "address", s.listener.Addr().String(), "lake", store.URL(), "version", cli.Version())
	}
	err = serve(ctx, sites, o.deadline+sendTimeout, log)
	stop()
	background.Wait()
	return err
}

// site is what is served on one address.
type site struct {
	name, address string
	mux           *http.ServeMux
	listener      net.Listener
}

// serve answers requests until ctx ends and those under way are finished, or a listener fails.
func serve(ctx context.Context, sites []*site, writeTimeout time.Duration, log *slog.Logger) error {
	failed := make(chan error, len(sites))
	var servers []*http.Server
	for _, s := range sites {
		server := &http.Server{
			Handler:           s.mux,
			ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
			MaxHeaderBytes: maxHeader,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
		servers = append(servers, server)
		go func() { failed <- server.Serve(api.Listener(s.listener)) }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		log.Info("stopping: requests under way are finished")
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	for _, s := range servers {
		err = errors.Join(err, s.Shutdown(grace))
	}
	return err
}

func newLogger(format string, w io.Writer) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, nil)), nil
	}
	return nil, cli.Usagef("--log-format %q is neither text nor json", format)
}
