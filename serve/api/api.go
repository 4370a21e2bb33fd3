// Package api is the HTTP interface of the read server: the queries, the lists of datasets, of
// domains and of versions, the changes between two versions, health and readiness, web pages, and
// metrics. docs/api.md describes it for clients. The serve program calls it; lookup finds the
// answers.
//
// An answer is complete in memory before its first byte is sent. So a failure at any point is an
// error with a status of its own and never a shorter answer with status 200. Lists of URLs can also
// be streams of any length, and lists of domains are answered by one; a failure in the middle of
// one cuts the connection, so that no client takes what it got for the whole. Errors are problem
// documents (RFC 9457). Logs contain domain_id, dataset_id and counts, never a URL.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/remedy"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

type handler struct {
	server *lookup.Server
	log    *slog.Logger
	mux    *http.ServeMux
	// bulks has room for the lists that may be in memory at once. The others wait for bulkWait.
	bulks    chan struct{}
	bulkWait time.Duration
	auth     auth.Authenticator // nil if nobody is asked who they are
}

// Option changes what New returns.
type Option func(*handler)

// WithAuth makes the handler find out who sends each request, and answer as that principal may read
// the lake. The server needs Options.Access.
func WithAuth(a auth.Authenticator) Option { return func(h *handler) { h.auth = a } }

// route is one kind of request: a set of paths with the same handler.
type route struct {
	// name is the route's name in logs and metrics.
	name string
	// parameters are the query parameters that a request may have, sorted. Nil allows any.
	parameters []string
	// unnamed routes answer the same to everybody, so nobody is asked who they are.
	unnamed bool
	answer  func(*request) error
	latency *latency
	stream  *latency // of answers that are streams; nil if there are none
}

// New returns the handler of all paths. The caller may add paths of its own. The handler writes
// requests to log and counts them in metrics. explain=1 reports the reads that a *blob.Counting
// traces, so the server's store should be one.
func New(server *lookup.Server, log *slog.Logger, metrics *Metrics, options ...Option) *http.ServeMux {
	mux, _ := routes(server, log, metrics, options...)
	return mux
}

// routes is New, and returns the route of each pattern too: what openapi.yaml has to describe.
func routes(
	server *lookup.Server, log *slog.Logger, metrics *Metrics, options ...Option,
) (*http.ServeMux, map[string]*route) {
	mux := http.NewServeMux()
	h := &handler{server: server, log: log, mux: mux, bulks: make(chan struct{}, bulksAtOnce), bulkWait: bulkWait}
	for _, set := range options {
		set(h)
	}
	served := map[string]*route{}
	handle := func(rt route, patterns ...string) {
		rt.latency = metrics.route(rt.name)
		for _, pattern := range patterns {
			served[pattern] = &rt
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, &rt) })
		}
	}
	handle(route{name: "domain", parameters: []string{"cursor", "explain", "version"}, answer: h.domain},
		"GET /v1/domain/{d}", "GET /domain/{d}")
	handle(route{name: "url", parameters: []string{"cursor", "explain", "url", "version"}, answer: h.url}, "GET /v1/url")
	handle(route{name: "urls", parameters: urlsParameters, answer: h.urls, stream: metrics.route("urls_stream")},
		"GET /v1/domain/{d}/datasets/{id}/urls", "GET /domain/{d}/dataset/{id}/urls")
	handle(route{name: "datasets", parameters: []string{"cursor", "version"}, answer: h.datasets},
		"GET /v1/datasets")
	handle(route{name: "bulk", parameters: []string{"dataset", "format", "matrix", "totals", "version"}, answer: h.bulk, stream: metrics.route("bulk_stream")},
		"POST /v1/domains:lookup")
	handle(route{name: "dataset", parameters: []string{"version"}, answer: h.dataset}, "GET /v1/datasets/{id}")
	handle(route{name: "domains", parameters: []string{"cursor", "dataset", "explain", "limit", "prefix", "suffix", "version"}, answer: h.domains},
		"GET /v1/domains")
	handle(route{name: "diff", parameters: []string{"cursor", "dataset", "explain", "from", "limit", "to"}, answer: h.diff},
		"GET /v1/diff")
	handle(route{name: "versions", parameters: []string{"cursor", "limit"}, answer: h.versions}, "GET /v1/versions")
	handle(route{name: "healthz", parameters: []string{}, unnamed: true, answer: h.healthz}, "GET /healthz")
	handle(route{name: "readyz", parameters: []string{}, answer: h.readyz}, "GET /readyz")
	handle(route{name: "pages", parameters: []string{"cursor", "dataset", "domain", "version"}, answer: h.pages},
		"GET /{$}")
	handle(route{name: "openapi", parameters: []string{}, unnamed: true, answer: h.openapi}, "GET /openapi.json")
	handle(route{name: "reference", parameters: []string{}, unnamed: true, answer: h.reference}, "GET /api")
	handle(route{name: "problem", parameters: []string{}, unnamed: true, answer: h.problem}, "GET /problems/{kind}")
	handle(route{name: "other", answer: h.other}, "/")
	return mux, served
}

// request is one request and its answer.
type request struct {
	*http.Request
	header http.Header
	query  url.Values
	doc    document
	status int
	// partial tells that whoever asks may not read all datasets, or that this is not known yet.
	// Then the answer says nothing that depends on datasets that may not be read.
	partial bool
	// stream is set once the header of a stream is sent. From then on an error cuts the connection.
	stream *stream
	w      http.ResponseWriter
	// logged are the attributes that the handler adds to the line of the access log.
	logged []slog.Attr
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 32<<10); return &b }}

// maxPooled is the largest buffer, in bytes, that is returned to the pool.
const maxPooled = 1 << 20

// retryAfter is the Retry-After of 503 answers, in seconds.
const retryAfter = "2"

// statusClientGone is the status in logs and metrics when the client closed the connection before
// the answer was ready. It is never sent.
const statusClientGone = 499

// serve runs one handler, turns its error or panic into a problem, sends the answer, and logs it.
func (h *handler) serve(w http.ResponseWriter, hr *http.Request, rt *route) {
	started := time.Now()
	buf := buffers.Get().(*[]byte)
	r := &request{Request: hr, w: w, header: w.Header(), status: http.StatusOK, doc: document{buf: (*buf)[:0]}}
	r.header.Set("Content-Type", "application/json")
	r.header.Set("X-Content-Type-Options", "nosniff")
	err := h.run(rt, r)
	if r.stream != nil {
		h.finish(r, rt, err, started)
		return
	}
	if err != nil {
		p := r.fail(err)
		r.header.Set("Content-Type", "application/problem+json")
		r.doc = document{buf: r.doc.buf[:0]}
		p.write(&r.doc)
	}
	if r.status != statusClientGone {
		r.header.Set("Content-Length", strconv.Itoa(len(r.doc.buf)))
		w.WriteHeader(r.status)
		// An error means that the client closed the connection.
		_, _ = w.Write(r.doc.buf)
	}
	h.record(r, rt.name, rt.latency, int64(len(r.doc.buf)), started)
	if cap(r.doc.buf) <= maxPooled {
		*buf = r.doc.buf
		buffers.Put(buf)
	}
}

// record counts a request whose answer has ended, and writes it to the access log.
func (h *handler) record(r *request, name string, latency *latency, bytes int64, started time.Time) {
	took := time.Since(started)
	latency.observe(r.status, took)
	level := slog.LevelInfo
	// lookup logs why no version is open, so 503 is no error of the request.
	if r.status >= 500 && r.status != http.StatusServiceUnavailable {
		level = slog.LevelError
	}
	if h.log.Enabled(r.Context(), level) {
		attrs := append([]slog.Attr{slog.String("route", name), slog.Int("status", r.status)}, r.logged...)
		attrs = append(attrs, slog.Int64("bytes", bytes), slog.Int64("us", took.Microseconds()))
		h.log.LogAttrs(r.Context(), level, "request", attrs...)
	}
}

// run finds out who asks, checks the parameters and calls the handler. A panic becomes a
// *lookup.PanicError.
func (h *handler) run(rt *route, r *request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &lookup.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	if h.auth != nil && !rt.unnamed {
		if err := h.admit(r); err != nil {
			return err
		}
	}
	if r.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return badParameter("query", "string is malformed; check its percent-escapes and separators")
	}
	if rt.parameters != nil {
		if err := rt.check(r.query); err != nil {
			return err
		}
	}
	if r.partial && r.explains() {
		return newProblem(http.StatusForbidden, "forbidden", "explain=1 is for those who may read all datasets",
			"the reads of the store are of all datasets; leave explain out")
	}
	return rt.answer(r)
}

// check rejects parameters that are unknown or given twice, because a misspelt limit must not be
// ignored silently.
func (rt *route) check(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(rt.parameters, name) {
			known := "this path takes no parameters"
			if len(rt.parameters) > 0 {
				known = "this path takes " + strings.Join(rt.parameters, ", ")
			}
			return badParameter(name, "is unknown; "+known)
		}
		if len(query[name]) > 1 {
			return badParameter(name, "is given more than once")
		}
	}
	return nil
}

// fail records err as the outcome of the request and returns the problem to send.
func (r *request) fail(err error) *problem {
	p := asProblem(err)
	r.status = p.status
	if p.status >= 500 {
		r.logged = append(r.logged, slog.String("error", remedy.Explain("", err)))
	}
	if p := (*lookup.PanicError)(nil); errors.As(err, &p) {
		r.logged = append(r.logged, slog.String("stack", string(p.Stack)))
	}
	if p.status == http.StatusServiceUnavailable {
		r.header.Set("Retry-After", retryAfter)
	}
	if p.status == http.StatusUnauthorized {
		r.header.Set("WWW-Authenticate", `Bearer realm="urlake", error="invalid_token", error_description=`+strconv.Quote(p.detail))
	}
	if r.partial && p.status >= 500 {
		p = &problem{status: p.status, kind: p.kind, title: p.title} // the rest can name objects
	}
	return p
}

// number returns the named parameter, an integer of at least lowest, or def if it is absent.
func (r *request) number(name string, def, lowest int64) (int64, error) {
	if !r.query.Has(name) {
		return def, nil
	}
	v, err := strconv.ParseInt(r.query.Get(name), 10, 64)
	if err != nil || v < lowest {
		return 0, badParameter(name, fmt.Sprintf("must be an integer of at least %d", lowest))
	}
	return v, nil
}

// explains reports whether explain=1 asks for a trace.
func (r *request) explains() bool {
	v := r.query.Get("explain")
	return v != "" && v != "0" && v != "false"
}

// explain returns the context of the request, and its trace if explain=1 asks for one.
func (r *request) explain() (context.Context, *blob.Trace) {
	if !r.explains() {
		return r.Context(), nil
	}
	trace := new(blob.Trace)
	return blob.WithTrace(r.Context(), trace), trace
}

// version returns a parameter that names a version, "" if it is not there. One that is empty is an
// error: a script whose variable is not set must not get the default version.
func (r *request) version(name string) (string, error) {
	v := r.query.Get(name)
	if v == "" && r.query.Has(name) {
		return "", badParameter(name, "is empty; name a version, or leave it out")
	}
	return v, nil
}

// pin acquires the version that version= or the cursor names, or else the current one.
func (h *handler) pin(ctx context.Context, r *request) (*lookup.Snapshot, error) {
	version, err := r.version("version")
	if err != nil {
		return nil, err
	}
	if c := r.query.Get("cursor"); c != "" && version == "" {
		if version, err = lookup.CursorVersion(c); err != nil {
			return nil, err
		}
	}
	return h.server.Acquire(ctx, version)
}

// describe writes the members that name the domain and the version of an answer.
func (r *request) describe(snap *lookup.Snapshot, a *lookup.Answer) {
	d := &r.doc
	d.text("domain", a.Domain)
	d.id("domain_id", a.DomainID)
	d.text("version", a.Version)
	d.number("takedown_epoch", int64(a.TakedownEpoch))
	if snap.LacksSuffixes() {
		d.text("public_suffix_list", snap.Version().PublicSuffix)
		d.array("other_domains")
		for _, name := range a.OtherDomains {
			d.next()
			d.buf = codec.AppendJSONString(d.buf, name)
		}
		d.close(']')
	}
}

// end writes the last members of a page of datasets. The cursor of the last page is empty.
func (r *request) end(returned int, cursor, version string) {
	d := &r.doc
	d.number("returned", int64(returned))
	d.boolean("complete", cursor == "")
	d.null("stopped_by")
	d.textOrNull("next_cursor", cursor)
	r.next(cursor, version, "")
}

// next writes the link to the next page, which is of the same version and has the same values of
// the parameters keep. An empty cursor means that there is none; an empty limit is left out.
func (r *request) next(cursor, version, limit string, keep ...string) {
	if cursor == "" {
		r.doc.null("next")
		return
	}
	v := url.Values{"cursor": {cursor}, "version": {version}}
	if limit != "" {
		v.Set("limit", limit)
	}
	for _, name := range keep {
		if r.query.Has(name) {
			v.Set(name, r.query.Get(name))
		}
	}
	r.doc.text("next", r.URL.EscapedPath()+"?"+v.Encode())
}

// trace writes the reads of the store. It writes nothing if t is nil.
func (r *request) trace(t *blob.Trace) {
	if t == nil {
		return
	}
	d := &r.doc
	list := t.Accesses()
	bytes := int64(0)
	for _, a := range list {
		bytes += a.N
	}
	d.object("explain")
	d.number("requests", int64(len(list)))
	d.number("bytes", bytes)
	d.array("reads")
	for _, a := range list {
		d.element()
		d.text("op", a.Op.String())
		d.text("object", a.Key)
		d.number("offset", a.Off)
		d.number("bytes", a.N)
		if a.Failed {
			d.boolean("failed", true)
		}
		d.close('}')
	}
	d.close(']')
	d.close('}')
}

// other answers paths and methods that no other route serves.
func (h *handler) other(r *request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		ask := r.Request.Clone(r.Context())
		ask.Method = method
		if _, pattern := h.mux.Handler(ask); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		list := strings.Join(allowed, ", ")
		r.header.Set("Allow", list)
		return newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "The path takes other methods", "use "+list)
	}
	p := newProblem(http.StatusNotFound, "no-such-path", "No such path", "")
	if strings.HasPrefix(r.URL.Path, "/v1/domain/") || strings.HasPrefix(r.URL.Path, "/domain/") {
		p.detail = "a URL in place of the domain must be percent-escaped, including its slashes"
	}
	return p
}
