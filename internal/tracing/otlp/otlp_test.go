package otlp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
			sender, err := Start(t.Context(), "urlake-test", "v1", func(error) {})
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if (sender != nil) != c.on {
				t.Errorf("tracing: %v, want %v", sender != nil, c.on)
			}
			if (sender.Tracer() != nil) != c.on {
				t.Errorf("a tracer: %v, want %v", sender.Tracer() != nil, c.on)
			}
			sender.Stop()
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
			sender, err := Start(t.Context(), "urlake-test", "v1", func(err error) { t.Error(err) })
			if err != nil {
				t.Fatal(err)
			}
			_, span := sender.Tracer().Start(t.Context(), "span")
			span.End()
			sender.Stop()
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
