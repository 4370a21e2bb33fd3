package tracing

import (
	"context"
	"crypto/sha256"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
)

// newSpans returns Temporal's tracing interceptor. Queries are not traced: a watcher asks every two
// seconds.
func newSpans(tracer trace.Tracer) (interceptor.Interceptor, error) {
	return opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{
		Tracer: tracer, DisableQueryTracing: true, DisableBaggage: true, AllowInvalidParentSpans: true,
		SpanStarter: startSpan,
	})
}

const (
	// runPrefix begins the names of the spans of workflows.
	runPrefix = "RunWorkflow:"
	// runIDKey is the attribute with the id of the workflow's run, which Temporal's interceptor
	// sets as soon as it has started a span.
	runIDKey = "temporalRunID"
)

// startSpan starts a span for Temporal's interceptor. The interceptor starts the span of a workflow
// again in every replay and ends it in every eviction from the worker's cache, so these spans are
// workflowSpans.
func startSpan(ctx context.Context, t trace.Tracer, name string, opts ...trace.SpanStartOption) trace.Span {
	start := func(ctx context.Context) trace.Span {
		_, span := t.Start(ctx, name, opts...)
		return span
	}
	if !strings.HasPrefix(name, runPrefix) {
		return start(ctx)
	}
	return &workflowSpan{start: func(runID string) trace.Span {
		sum := sha256.Sum256([]byte(runID))
		ids := fixedIDs{trace: trace.TraceID(sum[:16]), span: trace.SpanID(sum[16:24])}
		return start(context.WithValue(ctx, fixedIDsKey{}, ids))
	}}
}

// workflowSpan is the span of a workflow's run. Its ids follow from the run's id, so that steps
// that different workers start have the same parent. It is sent once, by the worker on which the
// run ends.
type workflowSpan struct {
	trace.Span // nil until the run's id is known
	start      func(runID string) trace.Span
	ended      bool
	continued  bool // as a new run, which Temporal treats as an error
}

// SetAttributes starts the span when it learns the run's id.
func (s *workflowSpan) SetAttributes(all ...attribute.KeyValue) {
	for _, a := range all {
		if s.Span == nil && a.Key == runIDKey {
			s.Span = s.start(a.Value.AsString())
		}
	}
	if s.Span != nil {
		s.Span.SetAttributes(all...)
	}
}

// RecordError implements trace.Span.
func (s *workflowSpan) RecordError(err error, opts ...trace.EventOption) {
	if s.ended && !s.continued {
		s.Span.RecordError(err, opts...)
	}
}

// SetStatus implements trace.Span.
func (s *workflowSpan) SetStatus(code codes.Code, description string) {
	if s.ended && !s.continued {
		s.Span.SetStatus(code, description)
	}
}

// End implements trace.Span.
func (s *workflowSpan) End(opts ...trace.SpanEndOption) {
	if s.ended {
		s.Span.End(opts...)
	}
}
