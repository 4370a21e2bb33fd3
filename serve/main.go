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
	"net"
	"net/http"
	"os"
	"path/filepath"
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

type options struct {
	lake, listen, cache   string
	poll, deadline        time.Duration
	frameCache, pageCache int64 // MiB
	keepOpen              int
	logFormat             string
	accessLog             bool
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve --lake URL [flags]",
		Short: "Answer a lake's queries over HTTP",
		Long: `Serve answers two queries over HTTP, exactly and from any offset alike:

  GET /v1/domain/{domain}                       which datasets contain this domain, and how many URLs of it each
  GET /v1/domain/{domain}/datasets/{id}/urls    which URLs of it (?offset= &limit= &cursor=)

Further: /v1/datasets, /healthz, /readyz, and a start page at /. {domain} may be any spelling of a host or URL; version= asks
an older version, explain=1 shows what was read.

A server keeps no state: it needs the lake's store and a cache directory, and follows the lake's manifest. S3 settings
come from the AWS SDK's own environment (AWS_ENDPOINT_URL_S3, keys, region).`,
		Example: `  serve --lake file:///data/lake
  serve --lake s3://bucket/lake --listen 127.0.0.1:9000 --cache /var/cache/urlake`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.lake, "lake", "", "the lake: file:///dir, a path, or s3://bucket/prefix")
	f.StringVar(&o.listen, "listen", ":8080", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.cache, "cache", defaultCache(), "folder for copies of the mapped index files; a file:// lake is mapped where it lies")
	f.DurationVar(&o.poll, "poll", lookup.DefaultPoll, "how often to look for a new version")
	f.DurationVar(&o.deadline, "deadline", lookup.DefaultDeadline, "how long a page may take")
	f.Int64Var(&o.frameCache, "frame-cache", lookup.DefaultFrameBytes>>20, "MiB of decoded index frames to keep")
	f.Int64Var(&o.pageCache, "page-cache", lookup.DefaultPageBytes>>20, "MiB of decoded rows to keep")
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
	case o.frameCache < 1 || o.pageCache < 1 || o.keepOpen < 1:
		return cli.Usagef("--frame-cache, --page-cache and --keep-open have to be at least 1")
	case o.cache == "":
		return cli.Usagef("--cache is empty")
	}
	log, err := newLogger(o.logFormat, stderr)
	if err != nil {
		return err
	}
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	// Lakes do not share a folder: a server removes from its own what its versions do not need.
	cache := filepath.Join(o.cache, fmt.Sprintf("%016x", xxh3.HashString(lakeURL)))
	if err := os.MkdirAll(cache, 0o777); err != nil {
		return fmt.Errorf("cache folder: %w", err)
	}
	server := lookup.NewServer(blob.NewCounting(store), lookup.Options{
		CacheDir: cache, FrameBytes: o.frameCache << 20, PageBytes: o.pageCache << 20,
		Poll: o.poll, Deadline: o.deadline, KeepOpen: o.keepOpen, Log: log,
	})
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	access := log
	if !o.accessLog {
		access = slog.New(slog.DiscardHandler)
	}
	web := &http.Server{
		Handler:           api.New(server, access),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: o.deadline + sendTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}

	following, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { server.Run(following) })
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	log.Info("listening", "address", listener.Addr().String(), "lake", store.URL(), "version", cli.Version())

	select {
	case err = <-served:
	case <-ctx.Done():
		log.Info("stopping: requests under way are finished")
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		err = web.Shutdown(grace)
		cancel()
	}
	stop()
	background.Wait()
	server.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
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
