// Package tracing sends OpenTelemetry traces of ingests and publishes: the start of a workflow, the
// workflow and each attempt of its steps are spans of one trace. OpenTelemetry's standard variables
// configure it (package otlp).
package tracing

import (
	"context"
	"math/rand/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/interceptor"

	"github.com/urlake/urlake/internal/tracing/otlp"
)

// Tracing sends the spans of a process. A nil *Tracing sends nothing.
type Tracing struct{ sender *otlp.Sender }

// Start starts tracing as the environment says. It returns nil if tracing is off. The parameters
// are those of otlp.Start.
func Start(ctx context.Context, service, version string, report func(error)) (*Tracing, error) {
	sender, err := otlp.Start(ctx, service, version, report, sdktrace.WithIDGenerator(idGenerator{}))
	if sender == nil || err != nil {
		return nil, err
	}
	return &Tracing{sender}, nil
}

// Interceptors returns the interceptors for the options of a Temporal client. Its workers use them
// too.
func (t *Tracing) Interceptors() ([]interceptor.ClientInterceptor, error) {
	if t == nil {
		return nil, nil
	}
	spans, err := newSpans(t.sender.Tracer())
	if err != nil {
		return nil, err
	}
	return []interceptor.ClientInterceptor{spans, &annotator{}}, nil
}

// Stop sends the spans that have ended and stops tracing.
func (t *Tracing) Stop() {
	if t != nil {
		t.sender.Stop()
	}
}

// fixedIDs in a context are the ids of the next span.
type fixedIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

type fixedIDsKey struct{}

// idGenerator makes random ids, unless the context fixes them.
type idGenerator struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g idGenerator) NewIDs(ctx context.Context) (id trace.TraceID, span trace.SpanID) {
	if fixed, ok := ctx.Value(fixedIDsKey{}).(fixedIDs); ok {
		return fixed.trace, fixed.span
	}
	for !id.IsValid() {
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
	}
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (idGenerator) NewSpanID(ctx context.Context, _ trace.TraceID) (id trace.SpanID) {
	if fixed, ok := ctx.Value(fixedIDsKey{}).(fixedIDs); ok {
		return fixed.span
	}
	for !id.IsValid() {
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
	}
	return id
}
