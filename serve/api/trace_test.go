package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/internal/storetrace"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/auth"
	"github.com/urlake/urlake/serve/lookup"
)

// record returns a tracer that traces every request, and what it has recorded.
func record(tb testing.TB) (trace.Tracer, *tracetest.InMemoryExporter) {
	tb.Helper()
	sent := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	tb.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return provider.Tracer("test"), sent
}

// attributeOf returns an attribute of a span as text, "" if there is none.
func attributeOf(s *tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// spansOf returns the root of the spans and the others by name. All have to be of one trace, and
// below the root.
func spansOf(t *testing.T, all tracetest.SpanStubs) (root *tracetest.SpanStub, others map[string][]*tracetest.SpanStub) {
	t.Helper()
	others = map[string][]*tracetest.SpanStub{}
	ids := map[trace.SpanID]*tracetest.SpanStub{}
	for i := range all {
		ids[all[i].SpanContext.SpanID()] = &all[i]
	}
	for i := range all {
		s := &all[i]
		if ids[s.Parent.SpanID()] == nil {
			if root != nil {
				t.Fatalf("%s and %s have no parent", root.Name, s.Name)
			}
			root = s
			continue
		}
		others[s.Name] = append(others[s.Name], s)
	}
	if root == nil {
		t.Fatal("no span")
	}
	for i := range all {
		if all[i].SpanContext.TraceID() != root.SpanContext.TraceID() {
			t.Errorf("%s is of another trace", all[i].Name)
		}
	}
	return root, others
}

// TestClientsDoNotChooseWhatIsTraced sends a traceparent that says that its trace is recorded, or
// that it is not, as a client and as a trusted proxy. The sampler records nothing by itself.
func TestClientsDoNotChooseWhatIsTraced(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	for _, own := range []sdktrace.Sampler{sdktrace.NeverSample(), sdktrace.AlwaysSample()} {
		sent := tracetest.NewInMemoryExporter()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent), sdktrace.WithSampler(sdktrace.ParentBased(own)))
		t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
		s := start(t, small(t), lookup.Options{})
		for _, trusted := range []string{"192.0.2.0/24", "198.51.100.0/24"} {
			s.with(Tracer(provider.Tracer("test")), Proxies([]netip.Prefix{netip.MustParsePrefix(trusted)}))
			for _, flag := range []string{"0", "1"} {
				sent.Reset()
				s.ask("GET", "/v1/datasets", "Traceparent", parent+flag, "X-Forwarded-For", "198.51.100.7")
				all := sent.GetSpans()
				want := own.Description() == sdktrace.AlwaysSample().Description()
				if trusted == "192.0.2.0/24" {
					want = flag == "1"
				}
				if (len(all) > 0) != want {
					t.Errorf("%s, %s is trusted, flag %s: %d spans", own.Description(), trusted, flag, len(all))
				}
				for i := range all {
					if same := all[i].SpanContext.TraceID().String() == parent[3:35]; same != (trusted == "192.0.2.0/24") {
						t.Errorf("%s, %s is trusted: trace %s", own.Description(), trusted, all[i].SpanContext.TraceID())
					}
				}
			}
		}
	}
}

func TestRequestIsOneTrace(t *testing.T) {
	tracer, sent := record(t)
	store := small(t)
	s := start(t, storetrace.Store(store), lookup.Options{})
	// httptest's clients are at 192.0.2.1.
	s.with(Tracer(tracer), Proxies([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}))
	if n := len(sent.GetSpans()); n != 0 {
		t.Fatalf("%d spans before the first request: opening a version is not for a client", n)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	path := "/v1/domain/example.com/datasets/alpha/urls?limit=1"
	w := s.ask("GET", path, "Traceparent", parent, "Tracestate", "s3cret=1")
	root, others := spansOf(t, sent.GetSpans())
	if got := root.SpanContext.TraceID().String() + root.Parent.SpanID().String(); got != "0af7651916cd43dd8448eb211c80319cb7ad6b7169203331" {
		t.Errorf("the trace goes on from %s", got)
	}
	version := s.server.Status().Version
	for key, want := range map[attribute.Key]string{
		"http.request.method": "GET", "http.route": "/v1/domain/{d}/datasets/{id}/urls", "http.response.status_code": "200",
		"http.response.body.size": fmt.Sprint(w.Body.Len()), "urlake.route": "urls", "urlake.versions": `["` + version + `"]`,
		"urlake.request_id": w.Header().Get("X-Request-Id"), "urlake.shed": "", "urlake.problem": "", "urlake.cache.pages.misses": "1",
	} {
		if got := attributeOf(root, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if root.Name != "GET /v1/domain/{d}/datasets/{id}/urls" || root.SpanKind != trace.SpanKindServer {
		t.Errorf("%s, %v", root.Name, root.SpanKind)
	}
	for _, name := range []string{"wait", "select", "resolve", "read rows", "encode", "send"} {
		if len(others[name]) != 1 {
			t.Errorf("%d spans %s, want 1", len(others[name]), name)
		}
	}
	// Reads of the store are those that explain=1 would have listed.
	kinds := map[string]bool{}
	for _, read := range others["store read"] {
		kinds[attributeOf(read, "urlake.object")] = true
		if attributeOf(read, "urlake.bytes") == "0" || attributeOf(read, "urlake.offset") == "" || read.SpanKind != trace.SpanKindClient {
			t.Errorf("a read of %v", read.Attributes)
		}
	}
	if !kinds["part"] || !kinds["segment.parts"] {
		t.Errorf("reads of %v", kinds)
	}
	if line := s.log.String(); !strings.Contains(line, `"trace_id":"0af7651916cd43dd8448eb211c80319c"`) {
		t.Errorf("the log does not name the trace: %s", line)
	}
	// What is cached needs no read.
	sent.Reset()
	s.ask("GET", path)
	root, others = spansOf(t, sent.GetSpans())
	if root.Parent.IsValid() || len(others["store read"]) != 0 || attributeOf(root, "urlake.cache.pages.hits") != "1" {
		t.Errorf("%v, %d reads", root.Attributes, len(others["store read"]))
	}
	// A stream, a list, and what a client has.
	tag := w.Header().Get("Etag")
	for path, want := range map[string]string{
		"/v1/domain/example.com/datasets/alpha/urls?format=ndjson": "200 stream", path: "304 send", "/v1/domain/word": "400 send",
	} {
		sent.Reset()
		s.ask("GET", path, "If-None-Match", tag)
		root, others = spansOf(t, sent.GetSpans())
		status, name, _ := strings.Cut(want, " ")
		if attributeOf(root, "http.response.status_code") != status || len(others[name]) != 1 || root.Status.Code == codes.Error {
			t.Errorf("%s: %v, %v", path, root.Attributes, others)
		}
	}
}

// TestTraceSaysWhy holds that errors of the store and requests that were shed are told apart.
func TestTraceSaysWhy(t *testing.T) {
	tracer, sent := record(t)
	broken := &troubled{Store: small(t)}
	s := start(t, storetrace.Store(broken), lookup.Options{})
	s.with(Tracer(tracer))
	broken.trouble = func(context.Context, []byte) ([]byte, error) { return nil, errors.New("s3cret is away") }
	s.ask("GET", "/v1/domain/example.com/datasets/1/urls")
	root, others := spansOf(t, sent.GetSpans())
	if root.Status.Code != codes.Error || attributeOf(root, "urlake.problem") != "lake" || attributeOf(root, "http.response.status_code") != "502" {
		t.Errorf("%v %v", root.Status, root.Attributes)
	}
	reads := others["store read"]
	if len(reads) == 0 || reads[0].Status.Code != codes.Error || attributeOf(reads[0], "error.type") != "other" {
		t.Errorf("%+v", reads)
	}
	broken.trouble = nil
	h := &handler{}
	for name, shed := range map[string]*problem{"full": shedProblem(shedFull), "client": shedProblem(shedClient)} {
		sent.Reset()
		h.tracer = tracer
		r := &request{Request: httptest.NewRequest("GET", "/", nil), ctx: t.Context(), header: http.Header{}}
		h.trace(r, &route{name: "urls"}, "id")
		r.fail(shed)
		r.traced.end(r, 0, false)
		if root, _ = spansOf(t, sent.GetSpans()); attributeOf(root, "urlake.shed") != name || attributeOf(root, "urlake.problem") != shed.kind {
			t.Errorf("%v", root.Attributes)
		}
	}
}

// TestTracesHoldNothingOfClientsOrLakes asks every route by good and by bad values, as every
// principal, and holds that no span has what a client sent or the lake has.
func TestTracesHoldNothingOfClientsOrLakes(t *testing.T) {
	const secret = "s3cret"
	tracer, sent := record(t)
	store, _, _ := closedLake(t, func(string) bool { return true })
	setReaders(t, store)
	broken := &troubled{Store: store}
	c := startClosed(t, storetrace.Store(broken))
	c.web = New(c.server, slog.New(slog.NewJSONHandler(&c.log, nil)), NewMetrics(c.server, blob.NewCounting(store)),
		WithAuth(auth.Tokens(c.follower, nil)), Tracer(tracer))
	requests := 0
	ask := func(method, target, body string) {
		for _, principal := range append(slices.Clone(principals), "forged") {
			r := httptest.NewRequest(method, target, strings.NewReader(body))
			r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			for _, name := range []string{"Tracestate", "Baggage", "User-Agent", "Referer", "X-Forwarded-For", "Cookie", "Accept", "If-None-Match"} {
				r.Header.Set(name, secret+"=1")
			}
			if principal == "forged" {
				r.Header.Set("Authorization", "Bearer urlake_"+secret)
			} else if principal != "" {
				r.Header.Set("Authorization", "Bearer "+c.tokens[principal])
			}
			c.web.ServeHTTP(httptest.NewRecorder(), r)
			requests++
		}
	}
	every := func() {
		for _, pattern := range fuzzedRoutes {
			method := "GET"
			if strings.HasSuffix(pattern, ":lookup") {
				method = "POST"
			}
			for _, domain := range []string{"common.com", "alpha-only.com", "secret-only.com", secret, "https://u:" + secret + "@common.com/" + secret, "github.io"} {
				for _, dataset := range []string{"open", "secret"} {
					target := strings.NewReplacer("{d}", url.PathEscape(domain), "{id}", dataset).Replace(pattern)
					for _, query := range []string{"", "?" + secret + "=" + secret, "?url=http%3A%2F%2Fcommon.com%2F" + secret, "?prefix=%2F" + secret + "&format=csv"} {
						ask(method, target+query, "common.com\n"+secret)
					}
					if !strings.Contains(pattern, "{id}") {
						break
					}
				}
				if !strings.Contains(pattern, "{d}") {
					break
				}
			}
		}
		ask(strings.ToUpper(secret), "/"+secret, "")
	}
	every()
	broken.trouble = func(context.Context, []byte) ([]byte, error) { return nil, errors.New(secret) }
	every()
	banned := []string{
		secret, strings.ToUpper(secret), "common.com", "alpha", "beta", "secret", "open-only", "github", "://", "urlake_", "Bearer", "dataset_id=", "cursor=", "%",
	}
	all := sent.GetSpans()
	routes, failed := map[string]bool{}, 0
	for i := range all {
		s := &all[i]
		text := fmt.Sprint(s.Name, s.Attributes, s.Events, s.Links, s.Status.Description, s.SpanContext.TraceState().String(), s.Parent.TraceState().String())
		if s.SpanKind == trace.SpanKindServer {
			routes[attributeOf(s, "urlake.route")] = true
		}
		if s.Status.Code == codes.Error {
			failed++
		}
		for _, word := range banned {
			if strings.Contains(text, word) {
				t.Fatalf("a span has %q: %s", word, text)
			}
		}
	}
	for pattern, rt := range c.routes {
		if !routes[rt.name] {
			t.Errorf("no span is of %s", pattern)
		}
	}
	if failed == 0 || len(all) < 2*requests {
		t.Errorf("%d spans of %d requests, %d of them errors", len(all), requests, failed)
	}
	if text := c.log.String(); strings.Contains(text, "common.com") || strings.Contains(text, "urlake_") {
		t.Error("the log has a domain or a token")
	}
}

// BenchmarkTracedLookup is a lookup that every cache has, without tracing, with a sampler that
// chooses one request in a hundred, and with all requests traced. Spans are made and thrown away.
func BenchmarkTracedLookup(b *testing.B) {
	store := small(b)
	for _, c := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{{"off", nil}, {"1in100", sdktrace.TraceIDRatioBased(0.01)}, {"all", sdktrace.AlwaysSample()}} {
		b.Run(c.name, func(b *testing.B) {
			read, options := store, []Option(nil)
			if c.sampler != nil {
				provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discardSpans{}), sdktrace.WithSampler(c.sampler))
				defer func() { _ = provider.Shutdown(context.Background()) }()
				read, options = storetrace.Store(store), append(options, Tracer(provider.Tracer("test")))
			}
			s := start(b, read, lookup.Options{})
			s.web = New(s.server, slog.New(slog.DiscardHandler), NewMetrics(s.server, blob.NewCounting(store)), options...)
			r := httptest.NewRequest("GET", "/v1/domain/example.com", nil)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			started := indextest.ProcessorTime(b)
			for b.Loop() {
				w.Body.Reset()
				clear(w.Header())
				s.web.ServeHTTP(w, r)
			}
			indextest.ReportPerEntry(b, started, 1)
		})
	}
}

// discardSpans is an exporter that throws spans away.
type discardSpans struct{}

func (discardSpans) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discardSpans) Shutdown(context.Context) error                             { return nil }
