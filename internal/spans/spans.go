// Package spans divides the work of one request into the spans of its OpenTelemetry trace. A
// context carries the request's trace, so whoever works for a request can add to it: steps, and
// what caches had. Package storetrace adds the reads of a store. Without a trace in the context all
// of it does nothing and allocates nothing.
//
// Spans have names, kinds and numbers that this program's code names, and nothing that a client
// sends or a lake holds: no URL, domain, query or token, no object's key and no error's text.
package spans

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxSteps is how many spans one request has at most, so that a stream of a whole domain does not
// keep thousands in memory. Those beyond it are counted.
const maxSteps = 256

// Cache names a cache whose hits and misses a request counts.
type Cache int

// The caches of a server.
const (
	Frames Cache = iota // decoded frames of the index
	Pages               // decoded rows of parts
	caches
)

var cacheNames = [caches]string{"frames", "pages"}

// Request is the trace of one request. Its methods do nothing if it is nil, and may be called from
// several goroutines at once.
type Request struct {
	tracer       trace.Tracer
	span         trace.Span
	steps        atomic.Int64
	hits, misses [caches]atomic.Int64
}

type requestKey struct{}

// Begin starts the span of a request, which is a child of the span in ctx if there is one. The
// request is nil if the sampler does not choose it.
func Begin(ctx context.Context, tracer trace.Tracer, name string, options ...trace.SpanStartOption) (context.Context, *Request) {
	ctx, span := tracer.Start(ctx, name, options...)
	if !span.IsRecording() {
		return ctx, nil
	}
	r := &Request{tracer: tracer, span: span}
	return context.WithValue(ctx, requestKey{}, r), r
}

// Set adds attributes to the request's span.
func (r *Request) Set(attributes ...attribute.KeyValue) {
	if r != nil {
		r.span.SetAttributes(attributes...)
	}
}

// TraceID is the id of the trace, "" without one.
func (r *Request) TraceID() string {
	if r == nil {
		return ""
	}
	return r.span.SpanContext().TraceID().String()
}

// End ends the span, with what the caches had. Failed marks it as an error.
func (r *Request) End(failed bool) {
	if r == nil {
		return
	}
	for c, name := range cacheNames {
		hits, misses := r.hits[c].Load(), r.misses[c].Load()
		if hits+misses > 0 {
			r.span.SetAttributes(attribute.Int64("urlake.cache."+name+".hits", hits), attribute.Int64("urlake.cache."+name+".misses", misses))
		}
	}
	if n := r.steps.Load() - maxSteps; n > 0 {
		r.span.SetAttributes(attribute.Int64("urlake.spans_dropped", n))
	}
	if failed {
		r.span.SetStatus(codes.Error, "")
	}
	r.span.End()
}

// Step is a part of a request. The zero value is none, and does nothing.
type Step struct{ span trace.Span }

// Start starts a step of the request of ctx, if that is traced. What is done with the returned
// context belongs to the step. The caller calls End.
func Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, Step) {
	r, _ := ctx.Value(requestKey{}).(*Request)
	if r == nil || r.steps.Add(1) > maxSteps {
		return ctx, Step{}
	}
	ctx, span := r.tracer.Start(ctx, name, options...)
	return ctx, Step{span}
}

// Recording reports whether the step is traced. Ask it before making attributes for Set.
func (s Step) Recording() bool { return s.span != nil }

// Set adds attributes to the step.
func (s Step) Set(attributes ...attribute.KeyValue) {
	if s.span != nil {
		s.span.SetAttributes(attributes...)
	}
}

// End ends the step, as failed if err is not nil. The text of err is not recorded, as it can name
// what may not be in traces.
func (s Step) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Cached counts that a cache had, or had not, what the request of ctx looked for.
func Cached(ctx context.Context, c Cache, hit bool) {
	r, _ := ctx.Value(requestKey{}).(*Request)
	switch {
	case r == nil:
	case hit:
		r.hits[c].Add(1)
	default:
		r.misses[c].Add(1)
	}
}
