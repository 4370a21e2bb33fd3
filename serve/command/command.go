// Package command is the program serve as a command, which urlake has too.
package command

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

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/storetrace"
	"github.com/urlake/urlake/internal/tracing/otlp"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/serve/api"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/shortlived"
)

const (
	// headerTimeout and idleTimeout bound how long a slow or idle client holds a connection.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// sendTimeout is how long a client may take to receive a short answer once it is ready. Package
	// api bounds how slowly long ones are received.
	sendTimeout = 30 * time.Second
	// maxHeader leaves enough space for the longest URL that {d} accepts, percent-escaped.
	maxHeader = 256 << 10
	// shutdownTimeout is how long requests in flight may continue after a signal.
	shutdownTimeout = 30 * time.Second
	// watchedTimeout is after which time without a look at /readyz nobody has to be told that the
	// server stops. Balancers look every ten seconds or more often.
	watchedTimeout = 20 * time.Second
	// connectionBytes is the share of --memory-limit for each connection without --max-connections.
	// One that is idle takes a third of that.
	connectionBytes = 64 << 10
	// gcPercent lets the heap grow to five times what is in use before it is collected. Answers are
	// short-lived, and with Go's default of 100 a server with small caches collects several times
	// a second. --memory-limit makes collections more frequent as the heap fills up.
	gcPercent = 400
	// metricsConnections is how many connections --metrics-listen serves, and metricsHeaders the
	// memory for their headers.
	metricsConnections = 64
	metricsHeaders     = 1 << 20
)

// Where the server listens unless told otherwise: without authentication only where programs of the
// same machine reach it.
const (
	openListen = "127.0.0.1:8080"
	authListen = ":8080"
)

const (
	mib = 1 << 20
	// minMemory fits the program itself and small caches. maxMemory does not overflow an int64 of
	// bytes.
	minMemory = 64
	maxMemory = math.MaxInt64 / mib
	// maxWarm bounds the memory of the counts of what is asked for.
	maxWarm = 100_000
)

type options struct {
	lake, listen, metrics, cache  string
	poll, deadline, leaseTTL      time.Duration
	memory, frameCache, pageCache int64 // MiB
	keepOpen, warm                int
	admission                     admission
	logFormat                     string
	accessLog, pprof              bool
	auth, issuer, audience        string
	tlsCert, tlsKey               string
}

// New returns the program as a command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "serve --lake URL [flags]",
		Short: "Answer a lake's queries over HTTP",
		Long: `Serve answers two queries over HTTP. Answers are exact, and any offset costs the same:

  GET /v1/domain/{domain}                       datasets that contain the domain, with URL counts
  GET /v1/domain/{domain}/datasets/{id}/urls    its URLs in one dataset (?offset= &limit= &cursor=)

The second selects rows by ?host= &prefix= &from= &to= &filter=, or distinct URLs by &unique=1, and
streams any number of them by &format=ndjson, csv, text or parquet. GET /v1/url?url= says which
datasets hold one URL. POST /v1/domains:lookup answers the first one for a list of up to 100,000
domains.

GET /v1/domain/{domain}/tree sums up its hosts and directories. The server also has /v1/domains,
/v1/datasets, /v1/datasets/{id}, /v1/versions, /v1/diff between two versions, /openapi.json, /api
with the description of all this, /healthz, /readyz, /metrics for Prometheus, and web pages at / and
/domains. {domain} may be any spelling of a host or URL. version= selects an older version, and
explain=1 lists the reads of the store.

A server keeps no state of its own. It needs the lake's store and a cache folder, and it serves
each new version soon after it is published. S3 settings come from the environment of the AWS SDK
(AWS_ENDPOINT_URL_S3, keys, region). A lake that does not exist yet is waited for.

Without --auth everybody who reaches the server may read everything, so it listens on
127.0.0.1 unless --listen names another address. There it answers only requests for localhost, for
the host of --listen or for a name of --allow-host, so that no page of a stranger reads it. --auth tokens takes the tokens of
"starter token", --auth jwks=URL the JSON Web Tokens of an identity provider, signed by RS256,
ES256 or EdDSA, from --auth-issuer and for --auth-audience. "starter acl" says who may read
which dataset; who sends no token reads what is public. With --auth, /metrics is on
--metrics-listen only. docs/security.md has the rest.

While it runs, a server keeps a small object below index/leases/ of the lake, so that no garbage
collector deletes the versions that it reads. It works without permission to write as well.

--memory-limit is divided: a quarter for mapped files, a quarter for decoded index frames, three
sixteenths for decoded rows, and the rest for requests. docs/operation.md says how to choose it.
Requests that find no room in time are shed with 503, or 429 if it is the client's own requests
that took it, and with Retry-After. Small requests do not wait for large ones. Behind a proxy,
--trusted-proxy tells clients apart. With OTEL_EXPORTER_OTLP_ENDPOINT, or OpenTelemetry's other
standard variables, requests are traced down to the reads of the store, without any URL, domain or
query; OTEL_TRACES_SAMPLER=traceidratio with OTEL_TRACES_SAMPLER_ARG=0.01 traces one in a hundred.
SIGTERM makes /readyz 503 for --drain, then requests in flight
are finished.`,
		Example: `  serve --lake file:///data/lake
  serve --lake s3://bucket/lake --listen :9000 --cache /var/cache/urlake
  serve --lake s3://bucket/lake --auth tokens --tls-cert web.pem --tls-key web.key --metrics-listen 127.0.0.1:9464`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.lake, "lake", "", "the lake's `URL`: file:///dir, a path, or s3://bucket/prefix")
	f.StringVar(&o.listen, "listen", "",
		"`ADDRESS` to listen on; port 0 picks a free port (default "+openListen+", or "+authListen+" with --auth)")
	f.StringVar(&o.metrics, "metrics-listen", "",
		"separate `ADDRESS` for /metrics (default: /metrics is on --listen, and with --auth nowhere)")
	f.BoolVar(&o.pprof, "pprof", false, "profiles of the process at /debug/pprof/ on --metrics-listen")
	f.StringVar(&o.auth, "auth", authOff, "who may ask: `HOW` is off, tokens, or jwks=URL of an identity provider's keys")
	f.StringVar(&o.issuer, "auth-issuer", "", "`ISSUER` (iss) of the JSON Web Tokens, with --auth jwks=URL")
	f.StringVar(&o.audience, "auth-audience", "", "`AUDIENCE` (aud) of the JSON Web Tokens, with --auth jwks=URL")
	f.StringVar(&o.tlsCert, "tls-cert", "", "`FILE` of the certificate chain for --listen, PEM; it is read again when it changes")
	f.StringVar(&o.tlsKey, "tls-key", "", "`FILE` of the certificate's private key, PEM")
	f.StringVar(&o.cache, "cache", shortlived.DefaultCache(),
		"`FOLDER` for copies of the mapped index files; a file:// lake is mapped in place")
	f.DurationVar(&o.poll, "poll", lookup.DefaultPoll, "`TIME` between two checks for a new version")
	f.DurationVar(&o.deadline, "deadline", lookup.DefaultDeadline, "`TIME` that a query may take; pages of URLs end with the rows found by then")
	f.Int64Var(&o.memory, "memory-limit", lookup.DefaultMemoryBytes/mib, "`MIB` of resident memory to stay within")
	f.Int64Var(&o.frameCache, "frame-cache", 0,
		"`MIB` of decoded index frames to cache (default: a quarter of --memory-limit)")
	f.Int64Var(&o.pageCache, "page-cache", 0,
		"`MIB` of decoded rows to cache (default: three sixteenths of --memory-limit)")
	f.DurationVar(&o.leaseTTL, "lease-ttl", lookup.DefaultLeaseTTL,
		"`TIME` after which a server that was killed stops holding its versions; 0 holds none")
	f.IntVar(&o.keepOpen, "keep-open", lookup.DefaultKeepOpen, "how many `VERSIONS` stay open besides the current one")
	f.IntVar(&o.warm, "warm", lookup.DefaultWarm,
		"`N` domains and lists that are asked for most are read before a new version is served, within 2 s; 0 reads none")
	o.admission.flags(f)
	f.StringVar(&o.logFormat, "log-format", "text", "`FORMAT`: text or json")
	f.BoolVar(&o.accessLog, "access-log", true, "log every request: ids and counts, never a URL")
	cli.BindEnv(cmd)
	return cmd
}

func run(ctx context.Context, o options, stderr io.Writer) error {
	lakeURL, err := cli.LakeURL(o.lake)
	if err != nil {
		return err
	}
	switch {
	case o.poll <= 0 || o.deadline <= 0:
		return cli.Usagef("--poll and --deadline must be positive, e.g. 2s")
	case o.memory < minMemory || o.memory > maxMemory:
		return cli.Usagef("--memory-limit is %d; use %d to %d MiB", o.memory, minMemory, maxMemory)
	case o.frameCache < 0 || o.pageCache < 0 || o.frameCache > o.memory || o.pageCache > o.memory:
		return cli.Usagef("--frame-cache and --page-cache must be between 0 and --memory-limit (%d MiB)", o.memory)
	case o.keepOpen < 1:
		return cli.Usagef("--keep-open is %d; use 1 or more", o.keepOpen)
	case o.warm < 0 || o.warm > maxWarm:
		return cli.Usagef("--warm is %d; use 0 to %d", o.warm, maxWarm)
	case o.leaseTTL != 0 && (o.leaseTTL < lease.MinTTL || o.leaseTTL > lease.MaxTTL):
		return cli.Usagef("--lease-ttl is %s; use %s to %s, or 0 for no lease", o.leaseTTL, lease.MinTTL, lease.MaxTTL)
	case o.cache == "":
		return cli.Usagef("--cache is empty; name a folder")
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return cli.Usagef("--tls-cert and --tls-key belong together; give both")
	case o.pprof && o.metrics == "":
		return cli.Usagef("--pprof needs --metrics-listen: profiles are not for the address that clients use")
	}
	if err := o.admission.check(); err != nil {
		return err
	}
	log, err := newLogger(o.logFormat, stderr)
	if err != nil {
		return err
	}
	opt := lookup.Options{
		MemoryBytes: o.memory * mib, FrameBytes: o.frameCache * mib, PageBytes: o.pageCache * mib,
		Poll: o.poll, Deadline: o.deadline, KeepOpen: o.keepOpen, Warm: o.warm, Log: log,
		Pace: lookup.DefaultPace, LeaseTTL: o.leaseTTL, Program: "serve " + cli.Version(),
	}
	if opt.CacheBytes() >= opt.HeapBytes() {
		return cli.Usagef("--frame-cache and --page-cache use up the %d MiB that --memory-limit leaves for the heap; "+
			"make them smaller or raise --memory-limit", opt.HeapBytes()/mib)
	}
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		// A folder that does not exist yet is waited for, like an S3 prefix without objects. A file
		// never becomes a lake.
		if st, err := os.Stat(filepath.FromSlash(u.Path)); err == nil && !st.IsDir() {
			return cli.Usagef("--lake %s is not a folder", o.lake)
		}
	}
	store, err := blob.Open(ctx, lakeURL)
	if err != nil {
		return err
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 { // GOMEMLIMIT takes precedence
		debug.SetMemoryLimit(opt.HeapBytes())
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	opt.CacheDir = shortlived.CacheOf(o.cache, lakeURL)
	if _, files := blob.AsLocalFiler(store); !files { // files are mapped where they are
		if err := os.MkdirAll(opt.CacheDir, 0o777); err != nil {
			return fmt.Errorf("cache folder: %w", err)
		}
	}
	counted := blob.NewCounting(store)
	who, err := authenticate(o, counted, log)
	if err != nil {
		return err
	}
	opt.Access = who.follower
	var certificate *certificate
	if o.tlsCert != "" {
		if certificate, err = newCertificate(o.tlsCert, o.tlsKey, log); err != nil {
			return err
		}
	}
	traces, err := otlp.Start(ctx, "urlake-serve", cli.Version(), otlp.Reporter(cli.Printable(stderr), "serve"))
	if err != nil {
		return err
	}
	defer traces.Stop()
	var read blob.Store = counted
	if traces != nil {
		read = storetrace.Store(counted)
	}
	server := lookup.NewServer(read, opt)
	defer server.Close()

	access := log
	if !o.accessLog {
		access = slog.New(slog.DiscardHandler)
	}
	metrics := api.NewMetrics(server, counted)
	ready := &api.Readiness{}
	room := opt.HeapBytes() - opt.CacheBytes()
	connections := api.NewConnections(o.admission.connections(o.memory*mib), room/8)
	metrics.Connections(connections)
	handler := api.New(server, access, metrics, append(who.options, api.AnswerBytes(room/8*5), api.AnswerCache(room/16), api.TreeBytes(room/16), api.Ready(ready),
		api.Origins(o.admission.origins), api.Proxies(o.admission.trusted), api.Tracer(traces.Tracer()))...)
	endpoints := []*endpoint{{
		event: "listening", address: o.address(), handler: handler, certificate: certificate, connections: connections,
	}}
	switch {
	case o.metrics == "" && who.follower == nil:
		handler.Handle("GET /metrics", metrics.Handler())
	case o.metrics != "":
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics.Handler())
		if o.pprof {
			handleProfiles(mux)
		}
		endpoints = append(endpoints, &endpoint{
			event: "metrics", address: o.metrics, handler: mux,
			connections: api.NewConnections(metricsConnections, metricsHeaders),
		})
	}
	defer func() {
		for _, e := range endpoints {
			if e.listener != nil {
				e.listener.Close()
			}
		}
	}()
	for _, e := range endpoints {
		if e.listener, err = net.Listen("tcp", e.address); err != nil {
			return err
		}
		e.handler = o.admission.hosts.Guard(api.Misdirected, log, e.handler, e.address)
	}
	following, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { server.Run(following) })
	if who.run != nil {
		background.Go(func() { who.run(following) })
	}
	for _, e := range endpoints {
		log.Info(e.event, "address", e.listener.Addr().String(), "lake", store.URL(), "version", cli.Version())
	}
	err = serve(ctx, endpoints, 2*o.deadline+sendTimeout, log, func() { o.admission.wait(ready, log) })
	stop()
	background.Wait()
	return err
}

// endpoint is one address and its handler. event is the log message that reports the address.
type endpoint struct {
	event, address string
	handler        http.Handler
	listener       net.Listener
	connections    *api.Connections
	certificate    *certificate // nil without TLS
}

// serve answers requests until ctx ends or a listener fails. When ctx has ended it calls drain
// before it stops listening. Then it waits up to shutdownTimeout for the requests in flight.
func serve(ctx context.Context, endpoints []*endpoint, writeTimeout time.Duration, log *slog.Logger, drain func()) error {
	failed := make(chan error, len(endpoints))
	var servers []*http.Server
	for _, e := range endpoints {
		server := &http.Server{
			Handler:           e.handler,
			ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
			MaxHeaderBytes: maxHeader,
			ConnState:      e.connections.State,
			ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		}
		servers = append(servers, server)
		if e.certificate != nil {
			server.TLSConfig = e.certificate.config()
			// Over HTTP/2 one connection has many requests, whose headers nobody counts.
			server.Protocols = &http.Protocols{}
			server.Protocols.SetHTTP1(true)
			go func() { failed <- server.ServeTLS(e.connections.Listener(e.listener, true), "", "") }()
		} else {
			go func() { failed <- server.Serve(e.connections.Listener(e.listener, false)) }()
		}
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		drain()
		log.Info("stopping; requests in flight are finished first")
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
		return slog.New(slog.NewTextHandler(cli.Printable(w), nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cli.Printable(w), nil)), nil
	}
	return nil, cli.Usagef("--log-format %q is unknown; use text or json", format)
}
