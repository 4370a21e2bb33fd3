package api

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/urlake/urlake/internal/spans"
)

// traced is the trace of one request: its span, which continues the traceparent that a trusted
// proxy sent, and the step that is under way. Attributes have OpenTelemetry's names for HTTP where
// there are some. otelhttp is not used, because it records paths, addresses and names of clients.
type traced struct {
	*spans.Request
	step     spans.Step
	versions []string
	failed   bool
}

// methods are those that a span names. Others can be any text of a client.
var methods = map[string]bool{
	http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true, http.MethodDelete: true,
	http.MethodOptions: true, http.MethodPatch: true, http.MethodTrace: true, http.MethodConnect: true,
}

// trace starts the span of a request.
func (h *handler) trace(r *request, rt *route, id string) {
	ctx := r.ctx
	// A traceparent can make the sampler choose a request. So it counts from a proxy that is
	// trusted, and from nobody else: clients do not decide what is recorded.
	if peer, ok := r.peer(); ok && h.trusts(peer) {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() {
		// Its state can be any text of the client.
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.WithTraceState(trace.TraceState{}))
	}
	method, name := r.Method, r.Method
	if !methods[method] {
		method, name = "_OTHER", "HTTP"
	}
	_, path, _ := strings.Cut(r.Pattern, " ")
	if path != "" {
		path = strings.TrimSuffix(path, "{$}")
		name += " " + path
	}
	ctx, span := spans.Begin(ctx, h.tracer, name, trace.WithSpanKind(trace.SpanKindServer))
	if span == nil {
		return
	}
	r.ctx, r.traced = ctx, &traced{Request: span}
	span.Set(attribute.String("http.request.method", method), attribute.String("urlake.route", rt.name),
		attribute.String("urlake.request_id", id))
	if path != "" {
		span.Set(attribute.String("http.route", path))
	}
}

// step ends the step of the request that is under way, and starts the next one.
func (r *request) step(name string) {
	if r.traced != nil {
		r.traced.step.End(nil)
		_, r.traced.step = spans.Start(r.ctx, name)
	}
}

// serves records which version the answer is from.
func (r *request) serves(version string) {
	if r.traced != nil {
		r.traced.versions = append(r.traced.versions, version)
	}
}

// problem records which problem the answer is.
func (t *traced) problem(p *problem) {
	if t == nil {
		return
	}
	t.Set(attribute.String("urlake.problem", p.kind))
	switch p.kind {
	case "overloaded":
		t.Set(attribute.String("urlake.shed", shedFull.String()))
	case "too-many-requests":
		t.Set(attribute.String("urlake.shed", shedClient.String()))
	}
	t.failed = p.status >= http.StatusInternalServerError
}

// end ends the span of a request that is answered.
func (t *traced) end(r *request, sent int64, cut bool) {
	if t == nil {
		return
	}
	t.step.End(nil)
	t.Set(attribute.Int("http.response.status_code", r.status), attribute.Int64("http.response.body.size", sent))
	if len(t.versions) > 0 {
		t.Set(attribute.StringSlice("urlake.versions", t.versions))
	}
	if cut {
		t.Set(attribute.Bool("urlake.cut", true))
	}
	t.End(t.failed)
}
