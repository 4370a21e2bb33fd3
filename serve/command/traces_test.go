package command

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// TestServeSendsTraces starts the program with an OTLP receiver, as the environment of
// OpenTelemetry names it, and holds that the spans of a request arrive there.
func TestServeSendsTraces(t *testing.T) {
	var mu sync.Mutex
	received := map[string][]*trace.Span{} // by service and trace
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, resource := range in.GetResourceSpans() {
			service := ""
			for _, a := range resource.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					service = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					key := service + " " + string(s.GetTraceId())
					received[key] = append(received[key], s)
				}
			}
		}
	}))
	defer receiver.Close()
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.URL, "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG": "0", "OTEL_SDK_DISABLED": "", "OTEL_TRACES_EXPORTER": "", "OTEL_SERVICE_NAME": "", "OTEL_EXPORTER_OTLP_PROTOCOL": "",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "", "OTEL_RESOURCE_ATTRIBUTES": "",
	} {
		t.Setenv(name, value)
	}
	url := "file://" + filepath.ToSlash(t.TempDir())
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://example.com/1"}})
	testlake.Publish(t, store)
	base, _, stop := program(t, "--lake", url, "--cache", t.TempDir(), "--trusted-proxy", "127.0.0.1")
	ask := func(parent string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/v1/domain/example.com/datasets/alpha/urls", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", parent)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	id := strings.Repeat("\x0a", 16)
	testenv.Until(t, "the lake", func() bool { return ask("00-"+strings.Repeat("0b", 16)+"-0102030405060708-00") == http.StatusOK })
	if status := ask("00-" + strings.Repeat("0a", 16) + "-0102030405060708-01"); status != http.StatusOK {
		t.Fatalf("%d", status)
	}
	testenv.Until(t, "the spans of the request", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range received["urlake-serve "+id] {
			if s.GetName() == "GET /v1/domain/{d}/datasets/{id}/urls" && string(s.GetParentSpanId()) == "\x01\x02\x03\x04\x05\x06\x07\x08" {
				return true
			}
		}
		return false
	})
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	mu.Lock()
	defer mu.Unlock()
	names := map[string]int{}
	for _, s := range received["urlake-serve "+id] {
		names[s.GetName()]++
	}
	if names["wait"] != 1 || names["select"] != 1 || names["read rows"] != 1 || names["send"] != 1 {
		t.Errorf("the spans are %v", names)
	}
	if len(received) != 1 {
		t.Errorf("%d traces; requests that the sampler has not chosen are sent", len(received))
	}
}
