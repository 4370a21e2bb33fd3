package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/urlake/urlake/internal/testenv"
)

// probe answers an HTTP GET: its status and body, or an error.
func probe(ctx context.Context, url string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// answers waits until a URL answers with a status and a body that contains a text.
func answers(t *testing.T, url string, status int, text string) {
	t.Helper()
	until(t, fmt.Sprintf("%s answers %d with %q", url, status, text), func(ctx context.Context) error {
		got, body, err := probe(ctx, url)
		if err == nil && (got != status || !strings.Contains(body, text)) {
			err = fmt.Errorf("%d: %s", got, body)
		}
		return err
	})
}

// scrape returns the metrics of a URL in Prometheus's text format.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	status, body, err := probe(t.Context(), url)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: %d %v", url, status, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return families
}

// value returns the sum over the series of a metric that have the labels: values of counters and
// gauges, counts of histograms. Labels are name, value, name, value, ….
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (sum float64, series int) {
	for _, m := range families[name].GetMetric() {
		matches := true
		for pair := range slices.Chunk(labels, 2) {
			matches = matches && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == pair[0] && l.GetValue() == pair[1]
			})
		}
		if matches {
			series++
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum, series
}

// TestWorkerIsObservable checks the metrics and the probes of a worker: before Temporal answers, at
// work, and while Temporal does not answer.
func TestWorkerIsObservable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := startAlone(t, "file://"+filepath.ToSlash(dir)+"/lake", nil)
	u.temporalServer.Process.Signal(syscall.SIGKILL)
	u.temporalServer.Wait()
	address := testenv.FreeAddress(t)
	u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir(), "--metrics", address)
	base := "http://" + address

	answers(t, base+"/healthz", http.StatusOK, "ok")
	answers(t, base+"/readyz", http.StatusServiceUnavailable, "waiting for Temporal")
	if v, n := value(scrape(t, base+"/metrics"), "urlake_worker_ready"); v != 0 || n != 1 {
		t.Errorf("urlake_worker_ready is %v in %d series before Temporal answers", v, n)
	}
	u.startTemporal(t)
	answers(t, base+"/readyz", http.StatusOK, "ready")

	var res ingestAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--wait", "--json",
		write(t, t.TempDir(), "list.txt", "http://a.example/1\nhttp://a.example/2\nhttp://a.example/2\nhttp:///\n"))
	_, _, code := u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--wait", dir+"/no-such-file")
	if code == 0 {
		t.Fatal("an ingest of a file that does not exist succeeded")
	}
	// The worker counts a workflow once Temporal has answered it, which may be after the starter
	// heard of the end.
	var m map[string]*dto.MetricFamily
	testenv.Until(t, "the failed ingest is counted", func() bool {
		m = scrape(t, base+"/metrics")
		_, n := value(m, "temporal_workflow_failed_total", "workflow_type", "IngestWorkflow")
		return n > 0
	})
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"urlake_worker_info", []string{"lake", u.lake}, 1},
		{"urlake_worker_ready", nil, 1},
		{"urlake_worker_records_total", []string{"outcome", "kept"}, 3},
		{"urlake_worker_records_total", []string{"outcome", "rejected"}, 1},
		{"urlake_worker_rows_written_total", nil, 2},
		{"urlake_worker_input_read_bytes_total", nil, 66},
		{"urlake_worker_step_duration_seconds", []string{"activity", "IngestSmall", "outcome", "completed"}, 1},
		{"urlake_worker_step_duration_seconds", []string{"activity", "PlanIngest", "outcome", "completed"}, 1},
		{"urlake_worker_step_duration_seconds", []string{"activity", "PlanIngest", "outcome", "failed"}, 1},
		{"urlake_worker_step_errors_total", []string{"activity", "PlanIngest", "type", "InputError"}, 1},
		{"urlake_worker_pool_running", nil, 0},
		{"urlake_worker_pool_waiting", nil, 0},
		{"urlake_worker_pool_saturation", nil, 0},
		{"urlake_worker_pool_backlog", []string{"pool", "normalize"}, 0},
		{"urlake_worker_memory_limit_bytes", nil, 1 << 30},
		{"urlake_worker_memory_reserved_bytes", nil, 0},
		{"temporal_workflow_failed_total", []string{"workflow_type", "IngestWorkflow"}, 1},
		{"temporal_activity_execution_latency_seconds", []string{"activity_type", "CommitVersion"}, 1},
	} {
		if v, n := value(m, c.name, c.labels...); v != c.want || n == 0 {
			t.Errorf("%s%v is %v in %d series, want %v", c.name, c.labels, v, n, c.want)
		}
	}

	// Lists that share a step are counted like others.
	lists := t.TempDir()
	write(t, lists, "one.txt", "http://a.example/1\nhttp://a.example/1\n")
	write(t, lists, "two.txt", "http://a.example/1\nhttp:///\n")
	if out, errs, code := u.starter(t, "ingest", "--lake", u.lake, "--datasets-from", "files", "--wait", lists); code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
	many := scrape(t, base+"/metrics")
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"urlake_worker_records_total", []string{"outcome", "kept"}, 3 + 3},
		{"urlake_worker_records_total", []string{"outcome", "rejected"}, 1 + 1},
		{"urlake_worker_rows_written_total", nil, 2 + 2},
		{"urlake_worker_input_read_bytes_total", nil, 66 + 66},
	} {
		if v, _ := value(many, c.name, c.labels...); v != c.want {
			t.Errorf("after many lists %s%v is %v, want %v", c.name, c.labels, v, c.want)
		}
	}
	const parquet = "urlake_worker_parquet_written_bytes_total"
	before, _ := value(m, parquet)
	if after, _ := value(many, parquet); after <= before {
		t.Errorf("%s was %v before and %v after", parquet, before, after)
	}
	if _, n := value(m, "urlake_worker_pool_slots"); n != len(allPools) {
		t.Errorf("slots of %d pools, want %d", n, len(allPools))
	}
	if v, _ := value(m, "urlake_store_written_bytes_total"); v == 0 {
		t.Error("nothing was written to the store")
	}
	if v, _ := value(m, "temporal_num_pollers"); v == 0 {
		t.Error("the SDK counts no pollers")
	}

	u.temporalServer.Process.Signal(syscall.SIGSTOP)
	answers(t, base+"/readyz", http.StatusServiceUnavailable, "Temporal: describe task queue")
	answers(t, base+"/healthz", http.StatusOK, "ok")
	u.temporalServer.Process.Signal(syscall.SIGCONT)
	answers(t, base+"/readyz", http.StatusOK, "ready")

	list := sites(t, 66_000)
	ingested := make(chan struct{})
	t.Cleanup(func() { <-ingested })
	// A step can be over before it is seen, so one batch follows the other until the test ends.
	go func() {
		defer close(ingested)
		for i := 0; t.Context().Err() == nil; i++ {
			cmd := exec.CommandContext(t.Context(), filepath.Join(u.bin, "starter"), "ingest", "--lake", u.lake,
				"--dataset", "d", "--batch", fmt.Sprint("c", i), "--no-publish", "--wait", list)
			cmd.Env = u.env
			if out, err := cmd.CombinedOutput(); err != nil && t.Context().Err() == nil {
				t.Errorf("%v: %s", err, out)
				return
			}
		}
	}()
	until(t, "a step runs", func(context.Context) error {
		m := scrape(t, base+"/metrics")
		running, _ := value(m, "urlake_worker_pool_running", "pool", "normalize")
		saturation, _ := value(m, "urlake_worker_pool_saturation", "pool", "normalize")
		if running == 0 || saturation == 0 {
			return fmt.Errorf("%v running, saturation %v", running, saturation)
		}
		return nil
	})
}

// TestWorkerWithoutStoreIsNotReady uses an S3 server that has no object, and then does not serve.
func TestWorkerWithoutStoreIsNotReady(t *testing.T) {
	t.Parallel()
	status := atomic.Int32{}
	status.Store(http.StatusNotFound)
	s3 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(s3.Close)
	u := start(t, "s3://bucket/lake", nil)
	u.env = append(u.env, "AWS_ENDPOINT_URL_S3="+s3.URL, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_REGION=us-east-1")
	address := testenv.FreeAddress(t)
	u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir(), "--metrics", address)
	answers(t, "http://"+address+"/readyz", http.StatusOK, "ready")
	status.Store(http.StatusServiceUnavailable)
	answers(t, "http://"+address+"/readyz", http.StatusServiceUnavailable, "the store: ")
	status.Store(http.StatusNotFound)
	answers(t, "http://"+address+"/readyz", http.StatusOK, "ready")
}

// collector is an OTLP/HTTP receiver of traces.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []span
}

// span is a span and the name of the service that sent it.
type span struct {
	*trace.Span
	service string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in coltrace.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &in)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range in.GetResourceSpans() {
			service := ""
			for _, a := range resource.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					service = a.GetValue().GetStringValue()
				}
			}
			for _, scope := range resource.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					c.spans = append(c.spans, span{s, service})
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// attribute returns an attribute of a span as text.
func (s span) attribute(key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if v := a.GetValue().GetStringValue(); v != "" {
				return v
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

// TestOneIngestIsOneTrace checks that the spans of starter, workflow and steps are one tree with
// urlake's attributes, although the worker dies in between and another replays the workflow.
func TestOneIngestIsOneTrace(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	u := start(t, "file://"+filepath.ToSlash(t.TempDir())+"/lake", nil)
	u.env = append(u.env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_BSP_SCHEDULE_DELAY=100")
	run := func(pools string) {
		u.run(t, "worker "+pools, filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir(), "--pools", pools)
	}
	control := u.run(t, "control", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--pools", "control")
	list := sites(t, severalSplits)
	var started struct {
		WorkflowID string `json:"workflow_id"`
	}
	u.starterJSON(t, &started, "ingest", "--lake", u.lake, "--dataset", "d", "--json", list)
	find := func(name string) (found []span) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans {
			if s.GetName() == name {
				found = append(found, s)
			}
		}
		return found
	}
	until(t, "the control worker has started a split", func(context.Context) error {
		if len(find("StartActivity:NormalizeSplit")) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	control.Process.Signal(syscall.SIGKILL)
	control.Wait()
	run("control")
	run("normalize,write,index,publish,background")
	var res ingestAnswer
	u.starterJSON(t, &res, "watch", "--json", started.WorkflowID)
	until(t, "the spans of the workflow arrive", func(context.Context) error {
		if len(find("RunWorkflow:IngestWorkflow")) == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})

	root, workflow := find("StartWorkflow:IngestWorkflow"), find("RunWorkflow:IngestWorkflow")
	if len(root) != 1 || len(workflow) != 1 {
		t.Fatalf("%d spans of the start and %d of the workflow, want one each", len(root), len(workflow))
	}
	if root[0].service != "urlake-starter" || len(root[0].GetParentSpanId()) != 0 || root[0].attribute("urlake.dataset") != "d" {
		t.Errorf("the start is %v", root[0])
	}
	if !bytes.Equal(workflow[0].GetParentSpanId(), root[0].GetSpanId()) || workflow[0].service != "urlake-worker" {
		t.Errorf("the workflow is %v", workflow[0])
	}
	parents := map[string]span{}
	c.mu.Lock()
	for _, s := range c.spans {
		parents[string(s.GetSpanId())] = s
	}
	c.mu.Unlock()
	for name, n := range map[string]int{
		"PlanIngest": 1, "NormalizeSplit": 2, "PlanMerge": 1, "MergePartitions": 0, "FinishIngest": 1, "CleanUp": 1,
	} {
		steps := slices.DeleteFunc(find("RunActivity:"+name), func(s span) bool { // those of the publisher
			return s.attribute("temporalWorkflowID") != started.WorkflowID
		})
		if len(steps) == 0 || n > 0 && len(steps) != n {
			t.Errorf("%d spans of %s, want %d", len(steps), name, n)
		}
		for _, s := range steps {
			// The step, the workflow's command that scheduled it, the workflow.
			command := parents[string(s.GetParentSpanId())]
			if !bytes.Equal(s.GetTraceId(), root[0].GetTraceId()) || !bytes.Equal(command.GetParentSpanId(), workflow[0].GetSpanId()) {
				t.Errorf("%s is not below the workflow: %v", name, s)
			}
			if s.attribute("urlake.lake") != u.lake || s.attribute("urlake.dataset") != "d" ||
				name != "PlanIngest" && s.attribute("urlake.batch") != res.Batch || s.attribute("urlake.run") == "" {
				t.Errorf("%s has the attributes %v", name, s.GetAttributes())
			}
		}
	}
	for name, want := range map[string][]string{"NormalizeSplit urlake.split": {"0", "1"}, "MergePartitions urlake.task": {"0", "1", "2"}} {
		step, attribute, _ := strings.Cut(name, " ")
		var numbers []string
		for _, s := range find("RunActivity:" + step) {
			numbers = append(numbers, s.attribute(attribute))
		}
		slices.Sort(numbers)
		if !slices.Equal(numbers, want) {
			t.Errorf("%s: %v, want %v", name, numbers, want)
		}
	}
}

// TestWorkflowsAreFoundByTheirAttributes checks that a worker registers the search attributes in a
// namespace that lacks them, and that workflows are listed by them.
func TestWorkflowsAreFoundByTheirAttributes(t *testing.T) {
	t.Parallel()
	u := startAlone(t, "file://"+filepath.ToSlash(t.TempDir())+"/lake", [][]string{allPools})
	list := write(t, t.TempDir(), "list.txt", "http://a.example/1\n")
	var res, other ingestAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "wanted", "--wait", "--json", list)
	u.starterJSON(t, &other, "ingest", "--lake", u.lake, "--dataset", "other", "--batch", "b", "--wait", "--json", list)
	c, err := client.DialContext(t.Context(), client.Options{HostPort: u.temporal})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for query, want := range map[string]string{
		"UrlakeDataset = 'wanted'":                                                   "ingest:wanted:",
		"UrlakeBatch = '" + res.Batch + "'":                                          "ingest:wanted:",
		"UrlakeBatch = 'b' AND UrlakeLake = '" + u.lake + "'":                        "ingest:other:b@",
		"WorkflowType = 'IngestWorkflow' AND UrlakeVersion='" + res.Version + "'":    "ingest:wanted:",
		"WorkflowType = 'PublishWorkflow' AND UrlakeVersion='" + other.Version + "'": "publish@" + u.lake,
	} {
		until(t, query+" finds one workflow", func(ctx context.Context) error { // visibility is not immediate
			list, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
			if err != nil {
				return err
			}
			if n := len(list.GetExecutions()); n != 1 {
				return fmt.Errorf("%d workflows", n)
			}
			if id := list.GetExecutions()[0].GetExecution().GetWorkflowId(); !strings.HasPrefix(id, want) {
				t.Errorf("%s finds %s", query, id)
			}
			return nil
		})
	}
}

// TestIngestEndsWithoutSearchAttributes uses a Temporal whose operator service refuses everything,
// through a proxy that speaks for it.
func TestIngestEndsWithoutSearchAttributes(t *testing.T) {
	t.Parallel()
	u := startAlone(t, "file://"+filepath.ToSlash(t.TempDir())+"/lake", nil)
	behind, err := grpc.NewClient(u.temporal, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxied, err := client.NewWorkflowServiceProxyServer(client.WorkflowServiceProxyOptions{Client: workflowservice.NewWorkflowServiceClient(behind)})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, proxied)
	operatorservice.RegisterOperatorServiceServer(server, refuses{})
	go server.Serve(l)
	defer server.Stop()
	env := u.env
	u.env = append(slices.Clone(env), "TEMPORAL_ADDRESS="+l.Addr().String())
	var out syncBuffer
	worker := exec.Command(filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	worker.Env, worker.Stderr = u.env, &out
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { worker.Process.Kill(); worker.Wait() }()
	u.env = env
	var res ingestAnswer
	u.starterJSON(t, &res, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--wait", "--json",
		write(t, t.TempDir(), "list.txt", "http://a.example/1\n"))
	if res.Version == "" {
		t.Errorf("ingest ended with %+v", res)
	}
	if n := strings.Count(out.String(), "temporal operator search-attribute create"); n != 1 {
		t.Errorf("the worker said %d times what to do:\n%s", n, out.String())
	}
}

// refuses is an operator service without permission for anything.
type refuses struct {
	operatorservice.UnimplementedOperatorServiceServer
}

func (refuses) ListSearchAttributes(
	context.Context, *operatorservice.ListSearchAttributesRequest,
) (*operatorservice.ListSearchAttributesResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "no permission")
}
