// Package tracing sends OpenTelemetry traces of ingests and publishes: the start of a workflow, the
// workflow and each attempt of its steps are spans of one trace. OpenTelemetry's standard variables
// configure it. Without OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
// OTEL_TRACES_EXPORTER=otlp it does nothing.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/interceptor"
)

// stopTimeout is how long Stop waits for a collector that does not answer.
const stopTimeout = 3 * time.Second

// Tracing sends the spans of a process. A nil *Tracing sends nothing.
type Tracing struct{ provider *sdktrace.TracerProvider }

// Start starts tracing as the environment says. It returns nil if tracing is off. The service is
// the default of OTEL_SERVICE_NAME. The collector need not answer: spans that cannot be sent are
// dropped, and report gets the reason.
func Start(ctx context.Context, service, version string, report func(error)) (*Tracing, error) {
	exporter, err := newExporter(ctx)
	if exporter == nil || err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithFromEnv()) // the last one wins
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(report))
	return &Tracing{sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(idGenerator{}),
	)}, nil
}

// Reporter returns a function for Start that prints an error, with the name of the program, and
// then none for a minute.
func Reporter(w io.Writer, program string) func(error) {
	var mu sync.Mutex
	var last time.Time
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= time.Minute {
			last = time.Now()
			fmt.Fprintf(w, "%s: traces are not sent: %v\n", program, err)
		}
	}
}

// newExporter returns the exporter that the environment asks for, or nil if it asks for none.
func newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if disabled, err := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); err == nil && disabled {
		return nil, nil //nolint:nilnil // no exporter is no error
	}
	switch kind := os.Getenv("OTEL_TRACES_EXPORTER"); kind {
	case "none":
		return nil, nil //nolint:nilnil // no exporter is no error
	case "otlp":
	case "":
		if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return nil, nil //nolint:nilnil // no exporter is no error
		}
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s is not supported; use otlp or none", kind)
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	var client otlptrace.Client
	switch protocol {
	case "http/protobuf":
		client = otlptracehttp.NewClient()
	case "grpc":
		client = otlptracegrpc.NewClient()
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s is not supported; use http/protobuf or grpc", protocol)
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	return exporter, nil
}

// Interceptors returns the interceptors for the options of a Temporal client. Its workers use them
// too.
func (t *Tracing) Interceptors() ([]interceptor.ClientInterceptor, error) {
	if t == nil {
		return nil, nil
	}
	spans, err := newSpans(t.provider.Tracer("github.com/urlake/urlake"))
	if err != nil {
		return nil, err
	}
	return []interceptor.ClientInterceptor{spans, &annotator{}}, nil
}

// Stop sends the spans that have ended and stops tracing.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
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
