package tracing

import (
	"context"
	"reflect"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/urlake/urlake/activities"
)

// TestWorkflowSpanOfEveryReplayIsTheSame starts the span of a run three times: on a worker that
// evicts the workflow, on the one where it ends, and for a query after its end.
func TestWorkflowSpanOfEveryReplayIsTheSame(t *testing.T) {
	sent := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(sent), sdktrace.WithIDGenerator(idGenerator{}))
	tracer := provider.Tracer("test")
	ctx, root := tracer.Start(context.Background(), "start")
	var ids []string
	for _, ends := range []bool{false, true, false} {
		s := startSpan(ctx, tracer, "RunWorkflow:IngestWorkflow").(*workflowSpan)
		s.SetAttributes(attribute.String("other", ""), attribute.String(runIDKey, "run"))
		ids = append(ids, s.SpanContext().SpanID().String())
		if s.SpanContext().TraceID() != root.SpanContext().TraceID() {
			t.Error("the workflow is in another trace than its start")
		}
		s.ended = ends
		s.End()
	}
	if ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("the spans have the ids %v", ids)
	}
	if n := len(sent.GetSpans()); n != 1 {
		t.Errorf("%d spans were sent, want 1", n)
	}
	other := startSpan(ctx, tracer, "RunWorkflow:IngestWorkflow")
	other.SetAttributes(attribute.String(runIDKey, "other run"))
	if other.SpanContext().SpanID().String() == ids[0] {
		t.Error("two runs have the same span")
	}
	// A workflow that nobody traced, such as a schedule's, is its own trace.
	alone := startSpan(context.Background(), tracer, "RunWorkflow:IngestWorkflow")
	alone.SetAttributes(attribute.String(runIDKey, "run"))
	if !alone.SpanContext().IsValid() || alone.SpanContext().TraceID() == root.SpanContext().TraceID() {
		t.Errorf("a workflow without a start has the context %v", alone.SpanContext())
	}
}

// TestRunsMatchTheActivities checks that the table names activities, and that their arguments have
// the types that the annotator expects.
func TestRunsMatchTheActivities(t *testing.T) {
	methods := map[string]reflect.Type{}
	for _, pool := range []any{
		&activities.Control{}, &activities.Normalize{}, &activities.Write{}, &activities.Index{}, &activities.Publish{},
	} {
		for m := range reflect.TypeOf(pool).Methods() {
			methods[m.Name] = m.Type
		}
	}
	for name, number := range runs {
		m, ok := methods[name]
		if !ok {
			t.Errorf("there is no activity %s", name)
			continue
		}
		// The receiver and the context come first.
		if m.NumIn() < 4 || m.In(3).Kind() != reflect.String {
			t.Errorf("%s: the second argument is not a run: %v", name, m)
		}
		if number != "" && (m.NumIn() < 5 || m.In(4).Kind() != reflect.Int) {
			t.Errorf("%s: the third argument is not a number: %v", name, m)
		}
	}
}
