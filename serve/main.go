// Serve answers a lake's two queries over HTTP: which datasets contain this domain, and which of
// its URLs a dataset contains. It needs a lake URL and a cache directory, nothing else, and
// follows what is published.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// defaultMemory is what a server is to fit into, with a margin, on a lake of tens of millions of rows: 300 MiB.
	defaultMemory = 256
	// leastMemory has room for the program itself and caches that are worth the name.
	leastMemory = 64
	mib         = 1 << 20
)

type options struct {
	lake, listen, metrics, cache string
	poll, deadline               time.Duration
	memory                       int64 // MiB
	frameCache, pageCache        int64 // MiB, 0 for a share of memory
	keepOpen                     int
	logFormat                    string
	accessLog                    bool
}

// share are the bytes that parts of the server may have.
type share struct{ resident, heap, frames, pages int64 }

// divide divides the memory limit: a quarter for the resident pages of mapped files and of the program, the rest for Go's heap. Caches take
// seven twelfths of the heap, since the garbage of requests and the collector need room too.
func (o *options) divide() share {
	all := o.memory * mib
	s := share{resident: all / 4, heap: all - all/4, frames: all / 4, pages: all / 16 * 3}
	if o.frameCache > 0 {
		s.frames = o.frameCache * mib
	}
	if o.pageCache > 0 {
		s.pages = o.pageCache * mib
	}
	return s
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
	f.StringVar(&o.lake, "lake", "", "the lake: file:///dir, a path, or s3://bucket/prefix")
	f.StringVar(&o.listen, "listen", ":8080", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.metrics, "metrics-listen", "", "address for /metrics alone; without it /metrics is on --listen")
	f.StringVar(&o.cache, "cache", defaultCache(), "folder for copies of the mapped index files; a file:// lake is mapped where it lies")
	f.DurationVar(&o.poll, "poll", lookup.DefaultPoll, "how often to look for a new version")
	f.DurationVar(&o.deadline, "deadline", lookup.DefaultDeadline, "how long a page may take")
	f.Int64Var(&o.memory, "memory-limit", defaultMemory, "MiB of resident memory to stay within")
	f.Int64Var(&o.frameCache, "frame-cache", 0, "MiB of decoded index frames to keep (default: a quarter of --memory-limit)")
	f.Int64Var(&o.pageCache, "page-cache", 0, "MiB of decoded rows to keep (default: three sixteenths of --memory-limit)")
	f.IntVar(&o.keepOpen, "keep-open", lookup.DefaultKeepOpen, "how many versions besides the current one stay open")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
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
	case o.memory < leastMemory || o.memory > math.MaxInt64/mib:
		return cli.Usagef("--memory-limit has to be at least %d", leastMemory)
	case o.frameCache < 0 || o.pageCache < 0 || o.keepOpen < 1:
		return cli.Usagef("--frame-cache and --page-cache cannot be negative, and --keep-open has to be at least 1")
	case (o.frameCache+o.pageCache)*mib > o.divide().heap:
		return cli.Usagef("--frame-cache and --page-cache are more than three quarters of --memory-limit")
	case o.cache == "":
		return cli.Usagef("--cache is empty")
	}
	log, err := newLogger(o.logFormat, stderr)
	if err != nil {
		return err
	}
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		// Nobody means to serve a folder that is not there: a lake without a version is waited for, a misspelt one is not.
		if st, err := os.Stat(filepath.FromSlash(u.Path)); errors.Is(err, fs.ErrNotExist) {
			return cli.Usagef("--lake %s: there is no such folder", o.lake)
		} else if err == nil && !st.IsDir() {
			return cli.Usagef("--lake %s: not a folder", o.lake)
		}
	}
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	memory := o.divide()
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT goes before
		debug.SetMemoryLimit(memory.heap)
	}
	// Lakes do not share a folder: a server removes from its own what its versions do not need.
	cache := filepath.Join(o.cache, fmt.Sprintf("%016x", xxh3.HashString(lakeURL)))
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return fmt.Errorf("cache folder: %w", err)
	}
	counted := blob.NewCounting(store)
	server := lookup.NewServer(counted, lookup.Options{
		CacheDir: cache, FrameBytes: memory.frames, PageBytes: memory.pages, ResidentBytes: memory.resident,
		Poll: o.poll, Deadline: o.deadline, KeepOpen: o.keepOpen, Log: log,
	})
	access := log
	if !o.accessLog {
		access = slog.New(slog.DiscardHandler)
	}
	metrics := api.NewMetrics(server, counted)
	handler := api.New(server, access, metrics)
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	programs := []*http.Server{{Handler: handler}}
	listeners := []net.Listener{api.Listener(listener)}
	if o.metrics == "" {
		handler.Handle("GET /metrics", metrics.Handler())
	} else {
		l, err := net.Listen("tcp", o.metrics)
		if err != nil {
			return err
		}
		defer l.Close()
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics.Handler())
		programs, listeners = append(programs, &http.Server{Handler: mux}), append(listeners, l)
		log.Info("metrics", "address", l.Addr().String())
	}

	following, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { server.Run(following) })
	served := make(chan error, len(programs))
	for i, p := range programs {
		p.ReadHeaderTimeout, p.IdleTimeout, p.WriteTimeout, p.MaxHeaderBytes = headerTimeout, idleTimeout, o.deadline+sendTimeout, maxHeader
		p.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
		go func() { served <- p.Serve(listeners[i]) }()
	}
	log.Info("listening", "address", listener.Addr().String(), "lake", store.URL(), "version", cli.Version())

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping: requests under way are finished")
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	for _, p := range programs {
		err = errors.Join(err, p.Shutdown(grace))
	}
	cancel()
	stop()
	background.Wait()
	server.Close()
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
