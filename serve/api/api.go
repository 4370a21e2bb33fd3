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
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/lru"
	"github.com/urlake/urlake/serve/tree"
	"github.com/urlake/urlake/serve/turns"
)

type handler struct {
	server *lookup.Server
	log    *slog.Logger
	gates  gates
	// answerBytes is the memory for answers.
	answerBytes int64
	// flow is how fast clients have to be.
	flow Flow
	// origins are those whose scripts may read answers, proxies those who say for whom they ask.
	origins []string
	proxies []netip.Prefix
	// ready is what /readyz tells.
	ready *Readiness
	// turns are those of heavy requests at the processors.
	turns *turns.Turns
	// answers are those that are asked for again and again, nil if none are kept.
	answers *answerCache
	mux     *http.ServeMux
	auth    auth.Authenticator // nil if nobody is asked who they are
	trees   *tree.Engine
	tracer  trace.Tracer // nil if requests are not traced
}

// Option is a setting of the handler.
type Option func(*handler)

// AnswerBytes sets the memory that answers may take, from before they are made until their clients
// have received them. Requests beyond that wait, and then are shed with 503 or 429.
func AnswerBytes(n int64) Option { return func(h *handler) { h.answerBytes = n } }

// TreeBytes sets the memory for open indexes of path trees, by default tree.DefaultOpenBytes.
func TreeBytes(n int64) Option { return func(h *handler) { h.trees = tree.NewEngine(0, 0, n) } }

// Origins lets scripts of these web origins read answers; "*" stands for all.
func Origins(list []string) Option { return func(h *handler) { h.origins = list } }

// Proxies names the networks of proxies whose X-Forwarded-For says who the client is, and whose
// traceparent says of which trace a request is.
func Proxies(list []netip.Prefix) Option { return func(h *handler) { h.proxies = list } }

// Ready connects /readyz with r.
func Ready(r *Readiness) Option { return func(h *handler) { h.ready = r } }

// WithAuth makes the handler find out who sends each request, and answer as that principal may read
// the lake. The server needs Options.Access.
func WithAuth(a auth.Authenticator) Option { return func(h *handler) { h.auth = a } }

// Tracer traces requests, see the file trace.go. It does nothing if t is nil.
func Tracer(t trace.Tracer) Option { return func(h *handler) { h.tracer = t } }

// route is one kind of request: a set of paths with the same handler.
type route struct {
	// name is the route's name in logs and metrics.
	name string
	// parameters are the query parameters that a request may have, sorted. Nil allows any.
	parameters []string
	// repeated is the one that may be given more than once, "" for none.
	repeated string
	// page is set if the answer is a page for people. Other sites add parameters such as utm_source
	// to links: a page ignores unknown parameters.
	page bool
	// unnamed routes answer the same to everybody, so nobody is asked who they are.
	unnamed bool
	answer  func(*request) error
	// weight is how many rows the answer can have, which chooses the gate and what the request
	// reserves there. A route without it passes no gate before it is called: its answers are small
	// and need no lake, or have a list to be read first.
	weight func(*request) int64
	// states are what the answer will be made from, if that is known without looking.
	states func(*request) ([]lookup.State, bool)
	// kept tells that answers may be kept: they are JSON, and nothing but their states, their
	// request and the program determines them.
	kept bool
	// streams reports whether the answer will be a stream, which may take longer than the deadline.
	// Nil stands for never.
	streams  func(*request) bool
	measured *measured
	// streamed are the metrics of answers that are streams; nil if there are none.
	streamed *measured
}

// Handler answers all requests. The caller may add paths of its own to the mux.
type Handler struct {
	*http.ServeMux
	// pathless answers requests whose target is no path.
	pathless http.HandlerFunc
}

// ServeHTTP implements http.Handler. A mux answers "GET *" and "CONNECT host:port" without saying
// what is wrong, and redirects paths with empty parts to where escapes are escaped again.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.RequestURI == "*" || r.Method == http.MethodConnect && !strings.HasPrefix(r.URL.Path, "/") || !isClean(r) {
		h.pathless(w, r)
		return
	}
	h.ServeMux.ServeHTTP(w, r)
}

// isClean reports whether the path has no part that is empty, "." or "..". It may end in a slash.
func isClean(r *http.Request) bool {
	p := r.URL.EscapedPath()
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return true
	}
	clean := path.Clean(p)
	return p == clean || p == clean+"/"
}

// New returns the handler of all paths. It writes requests to log and counts them in metrics, which
// are of this handler alone. explain=1 reports the reads that a *blob.Counting traces, so the
// server's store should be one.
func New(server *lookup.Server, log *slog.Logger, metrics *Metrics, options ...Option) *Handler {
	handler, _ := routes(server, log, metrics, options...)
	return handler
}

// routes is New, and returns the route of each pattern too: what openapi.yaml has to describe.
func routes(
	server *lookup.Server, log *slog.Logger, metrics *Metrics, options ...Option,
) (*Handler, map[string]*route) {
	mux := http.NewServeMux()
	h := &handler{
		server: server, log: log, mux: mux, answerBytes: DefaultAnswerBytes, flow: defaultFlow,
		ready: &Readiness{}, turns: metrics.state.turns, answers: newAnswers(DefaultAnswerCache),
		trees: tree.NewEngine(0, 0, 0),
	}
	for _, set := range options {
		set(h)
	}
	metrics.state.answers = h.answers
	metrics.state.tokens, _ = h.auth.(interface{ Stats() lru.Stats })
	h.gates = newGates(h.answerBytes, server.Deadline(), metrics)
	served := map[string]*route{}
	handle := func(rt route, patterns ...string) {
		rt.measured = metrics.route(rt.name)
		for _, pattern := range patterns {
			served[pattern] = &rt
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, &rt) })
		}
	}
	handle(route{
		name: "domain", kept: true, parameters: []string{"cursor", "explain", "version"}, answer: h.domain,
		weight: always(16), states: h.oneVersion,
	}, "GET /v1/domain/{d}", "GET /domain/{d}")
	handle(route{
		name: "url", kept: true, parameters: []string{"cursor", "explain", "url", "version"}, answer: h.url,
		weight: always(100), states: h.oneVersion,
	}, "GET /v1/url")
	handle(route{
		name: "urls", kept: true, parameters: urlsParameters, repeated: "filter", answer: h.urls, weight: urlsRows, states: h.oneVersion,
		streams: streamsURLs, streamed: metrics.route("urls_stream"),
	}, "GET /v1/domain/{d}/datasets/{id}/urls", "GET /domain/{d}/dataset/{id}/urls")
	handle(route{
		name: "tree", parameters: treeParameters, answer: h.tree, weight: treeRows, states: h.oneVersion,
	}, "GET /v1/domain/{d}/tree")
	handle(route{
		name: "datasets", kept: true, parameters: []string{"cursor", "version"}, answer: h.datasets,
		weight: always(100), states: h.oneVersion,
	}, "GET /v1/datasets")
	handle(route{
		name: "bulk", parameters: []string{"dataset", "format", "matrix", "totals", "version"}, answer: h.bulk,
		streams: func(*request) bool { return true }, streamed: metrics.route("bulk_stream"),
	}, "POST /v1/domains:lookup")
	handle(route{
		name: "dataset", kept: true, parameters: []string{"version"}, answer: h.dataset, weight: always(100), states: h.oneVersion,
	}, "GET /v1/datasets/{id}")
	handle(route{
		name: "domains", kept: true, parameters: []string{"cursor", "dataset", "explain", "limit", "prefix", "suffix", "version"},
		answer: h.domains, weight: heavyIfFiltered(rows(lookup.DefaultLimit, lookup.MaxLimit)), states: h.oneVersion,
	}, "GET /v1/domains")
	handle(route{
		name: "diff", parameters: []string{"cursor", "dataset", "explain", "from", "limit", "to"}, answer: h.diff,
		weight: always(lookup.MaxLimit), states: h.twoVersions,
	}, "GET /v1/diff")
	handle(route{
		name: "versions", parameters: []string{"cursor", "limit"}, answer: h.versions,
		weight: rows(lookup.DefaultVersions, lookup.MaxVersions),
	}, "GET /v1/versions")
	handle(route{name: "healthz", parameters: []string{}, unnamed: true, answer: h.healthz}, "GET /healthz")
	handle(route{name: "readyz", parameters: []string{}, answer: h.readyz}, "GET /readyz")
	handle(route{
		name: "pages", page: true, parameters: pageParameters, repeated: "filter", answer: h.pages,
		weight: heavyWith(always(lookup.DefaultLimit), searching...), states: h.oneVersion,
	}, "GET /{$}")
	handle(route{
		name: "domain_pages", page: true, parameters: []string{"cursor", "dataset", "prefix", "suffix", "version"}, answer: h.domainPages,
		weight: heavyIfFiltered(always(lookup.DefaultLimit)), states: h.oneVersion,
	}, "GET /domains")
	handle(route{
		name: "tree_pages", page: true, parameters: treePageParameters, answer: h.treePages, weight: treeRows, states: h.oneVersion,
	}, "GET /tree")
	handle(route{name: "openapi", parameters: []string{}, unnamed: true, answer: h.openapi}, "GET /openapi.json")
	handle(route{name: "reference", page: true, parameters: []string{}, unnamed: true, answer: h.reference}, "GET /api")
	handle(route{name: "problem", page: true, parameters: []string{}, unnamed: true, answer: h.problem}, "GET /problems/{kind}")
	handle(route{name: "other", answer: h.other}, "/")
	return &Handler{mux, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, served["/"]) }}, served
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
		if len(query[name]) > 1 && name != rt.repeated {
			return badParameter(name, "is given more than once")
		}
	}
	if !slices.Contains([]string{"", "0", "false", "1", "true"}, query.Get("explain")) {
		return badParameter("explain", "is 1 or 0")
	}
	return nil
}

// known returns the part of a query whose parameters the route has.
func (rt *route) known(query string) string {
	parts := slices.DeleteFunc(strings.Split(query, "&"), func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		return err != nil || !slices.Contains(rt.parameters, name)
	})
	return strings.Join(parts, "&")
}

// number returns the named parameter, an integer of at least lowest, or def if it is absent.
func (r *request) number(name string, def, lowest int64) (int64, error) {
	if !r.query.Has(name) {
		return def, nil
	}
	v, err := strconv.ParseInt(r.query.Get(name), 10, 64)
	if errors.Is(err, strconv.ErrRange) && v > 0 {
		if name == "limit" { // which is capped anyway
			return v, nil
		}
		return 0, badParameter(name, fmt.Sprintf("must be %d at most", v))
	}
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
	return h.acquire(ctx, r, version)
}

// acquire pins a version. Requests that need one that is not open take turns, so that no client
// makes the server open one after the other for it alone.
func (h *handler) acquire(ctx context.Context, r *request, version string) (snap *lookup.Snapshot, err error) {
	if !h.server.IsOpen(version) {
		var step spans.Step
		ctx, step = spans.Start(ctx, "open version")
		defer func() { step.End(err) }()
		t, err := h.gates.opening.acquire(ctx, h.client(r), 0)
		if err != nil {
			return nil, err
		}
		defer t.release()
	}
	if snap, err = h.server.Acquire(ctx, version); err == nil {
		r.serves(snap.Version().ID)
	}
	return snap, err
}

// describe writes the members that name the domain and the version of an answer.
func (r *request) describe(snap *lookup.Snapshot, a *lookup.Answer) {
	d := &r.doc
	r.ofHost(a.TakedownEpoch, snap)
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
			v[name] = r.query[name]
		}
	}
	r.nextLink(r.URL.EscapedPath() + "?" + v.Encode())
}

// nextLink writes the path of the next page as a member, and as the header Link too.
func (r *request) nextLink(path string) {
	r.doc.text("next", path)
	if !r.brief {
		r.header["Link"] = append(r.header["Link"], "<"+path+">; rel=\"next\"")
	}
}

// trace writes the reads of the store. It writes nothing if t is nil.
func (r *request) trace(t *blob.Trace) {
	if t == nil {
		return
	}
	r.once()
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
	if r.Method == http.MethodOptions && len(h.origins) > 0 {
		h.preflight(r)
		return nil
	}
	var allowed []string
	clean := isClean(r.Request)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		ask := r.Request.Clone(r.Context())
		ask.Method = method
		if _, pattern := h.mux.Handler(ask); clean && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		list := strings.Join(allowed, ", ")
		r.header.Set("Allow", list)
		return newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "The path takes other methods", "use "+list)
	}
	p := newProblem(http.StatusNotFound, "no-such-path", "No such path", "/api lists the paths of this server")
	if strings.HasPrefix(r.URL.Path, "/v1/domain/") || strings.HasPrefix(r.URL.Path, "/domain/") {
		p.detail = "a URL in place of the domain must be percent-escaped, including its slashes"
	} else if !clean {
		p.detail = "the path has an empty part, . or ..; leave that out"
	}
	return p
}
