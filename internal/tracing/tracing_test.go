package tracing

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/urlake/urlake/activities"
)

// unset empties OpenTelemetry's variables, which the person who runs the tests may have set.
func unset(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
	} {
		t.Setenv(name, "")
	}
}

func TestEnvironmentSaysWhetherToTrace(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		on   bool
		want string // in the error
	}{
		"nothing":          {"", false, ""},
		"endpoint":         {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", true, ""},
		"traces endpoint":  {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:9", true, ""},
		"exporter":         {"OTEL_TRACES_EXPORTER=otlp", true, ""},
		"grpc":             {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", true, ""},
		"disabled":         {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 OTEL_SDK_DISABLED=true", false, ""},
		"none":             {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 OTEL_TRACES_EXPORTER=none", false, ""},
		"unknown exporter": {"OTEL_TRACES_EXPORTER=zipkin", false, "zipkin"},
		"unknown protocol": {"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/json", false, "http/json"},
	} {
		t.Run(name, func(t *testing.T) {
			unset(t)
			for kv := range strings.FieldsSeq(c.env) {
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			traces, err := Start(t.Context(), "urlake-test", "v1", func(error) {})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if (traces != nil) != c.on {
				t.Errorf("tracing: %v, want %v", traces != nil, c.on)
			}
			interceptors, err := traces.Interceptors()
			if err != nil || (len(interceptors) > 0) != c.on {
				t.Errorf("%d interceptors, error %v", len(interceptors), err)
			}
			traces.Stop()
		})
	}
}

func TestServiceNameComesFromTheEnvironment(t *testing.T) {
	for _, name := range []string{"", "mine"} {
		t.Run("service "+name, func(t *testing.T) {
			unset(t)
			got := make(chan string, 10)
			s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				var body strings.Builder
				_ = r.Write(&body)
				got <- body.String()
			}))
			defer s.Close()
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
			t.Setenv("OTEL_SERVICE_NAME", name)
			traces, err := Start(t.Context(), "urlake-test", "v1", func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			_, span := traces.provider.Tracer("test").Start(t.Context(), "span")
			span.End()
			traces.Stop()
			want := name
			if name == "" {
				want = "urlake-test"
			}
			if sent := <-got; !strings.Contains(sent, want) {
				t.Errorf("%q does not contain %q", sent, want)
			}
		})
	}
}

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
