// Package otlp sends the OpenTelemetry traces of a process to a collector. OpenTelemetry's standard
// variables configure it. Without OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// or OTEL_TRACES_EXPORTER=otlp it does nothing.
package otlp

import (
	"cmp"
	"context"
	"fmt"
	"io"
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
)

// stopTimeout is how long Stop waits for a collector that does not answer.
const stopTimeout = 3 * time.Second

// Sender sends the spans of a process. A nil *Sender sends nothing.
type Sender struct{ provider *sdktrace.TracerProvider }

// Start starts tracing as the environment says. It returns nil if tracing is off. The service is
// the default of OTEL_SERVICE_NAME. The collector need not answer: spans that cannot be sent are
// dropped, and report gets the reason. The options are added to those of the environment.
func Start(
	ctx context.Context, service, version string, report func(error), options ...sdktrace.TracerProviderOption,
) (*Sender, error) {
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
	options = append(options, sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Sender{sdktrace.NewTracerProvider(options...)}, nil
}

// Tracer returns what makes spans, nil if none are sent.
func (s *Sender) Tracer() trace.Tracer {
	if s == nil {
		return nil
	}
	return s.provider.Tracer("github.com/urlake/urlake")
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

// Stop sends the spans that have ended and stops tracing.
func (s *Sender) Stop() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}
