package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	_ "github.com/urlake/urlake/lake/blob/s3blob"
	"github.com/urlake/urlake/lake/lease"
)

// output collects what the program writes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program starts serve with args. It returns the base URL, the output, and a function that stops
// the program and returns its exit code.
func program(t *testing.T, args ...string) (base string, out *output, stop func() int) {
	t.Helper()
	out = &output{}
	cmd := New()
	// No load balancer has to hear that a test's server stops, unless the test has one.
	cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--poll", "10ms", "--drain", "0s"}, args...))
	cmd.SetOut(out)
	cmd.SetErr(out)
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- cli.Run(ctx, cmd) }()
	return addressOf(t, out, "listening"), out, func() int {
		cancel()
		return <-code
	}
}

// addressOf waits until the program's log names the address of an event, and returns its URL.
func addressOf(t *testing.T, log *output, event string) string {
	t.Helper()
	address := regexp.MustCompile(`msg=` + event + ` address=(\S+)`)
	var m []string
	testenv.Until(t, event, func() bool {
		m = address.FindStringSubmatch(log.String())
		return m != nil
	})
	return "http://" + m[1]
}

func get(t *testing.T, url string, v any) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatalf("GET %s: %d: %v", url, resp.StatusCode, err)
	}
	return resp.StatusCode
}

func TestServeFollowsLakeFromFirstVersion(t *testing.T) {
	for kind, lakeURL := range map[string]func(t *testing.T) string{
		"file": func(t *testing.T) string { return "file://" + filepath.ToSlash(t.TempDir()) },
		"folder that does not exist yet": func(t *testing.T) string {
			return "file://" + filepath.ToSlash(filepath.Join(t.TempDir(), "not", "yet"))
		},
		"s3": func(t *testing.T) string { return testenv.S3(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			url := lakeURL(t)
			store, err := blob.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			cache := filepath.Join(t.TempDir(), "cache")
			base, out, stop := program(t, "--lake", url, "--cache", cache)
			var answer map[string]any
			testenv.Until(t, "the first look at the lake", func() bool {
				status := get(t, base+"/readyz", &answer)
				if status != 503 {
					t.Fatalf("/readyz without a version: %d %v", status, answer)
				}
				return strings.Contains(fmt.Sprint(answer["detail"]), "no version published yet")
			})
			if status := get(t, base+"/healthz", &answer); status != 200 {
				t.Fatalf("/healthz: %d", status)
			}
			for n := 1; n <= 3; n++ {
				testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", n),
					[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", n)}})
				testlake.Publish(t, store)
				testenv.Until(t, "the next version", func() bool {
					clear(answer)
					status := get(t, base+"/v1/domain/example.com/datasets/1/urls", &answer)
					return status == 200 && answer["total_est"] == float64(n)
				})
			}
			if status := get(t, base+"/readyz", &answer); status != 200 {
				t.Fatalf("%d %v", status, answer)
			}
			copies, err := filepath.Glob(filepath.Join(cache, "*", "*.mphf"))
			if err != nil {
				t.Fatal(err)
			}
			if (kind == "s3") != (len(copies) > 0) {
				t.Fatalf("copies of mapped files in the cache: %v", copies)
			}
			leases, err := lease.All(t.Context(), store)
			if err != nil || len(leases) != 1 || !slices.Contains(leases[0].Versions, fmt.Sprint(answer["version"])) ||
				!strings.HasPrefix(leases[0].Program, "serve ") {
				t.Fatalf("leases of a running server: %+v, %v", leases, err)
			}
			if code := stop(); code != cli.ExitDone {
				t.Fatalf("exit code %d: %s", code, out)
			}
			if leases, err = lease.All(t.Context(), store); err != nil || len(leases) > 0 {
				t.Fatalf("leases of a server that has ended: %+v, %v", leases, err)
			}
			if strings.Contains(out.String(), "example.com") {
				t.Fatalf("a URL was logged: %s", out)
			}
		})
	}
}

func TestWrongUsage(t *testing.T) {
	taken, _, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir())
	defer stop()
	run := func(args ...string) (int, string) {
		out := &output{}
		cmd := New()
		cmd.SetArgs(args)
		cmd.SetOut(out)
		cmd.SetErr(out)
		return cli.Run(t.Context(), cmd), out.String()
	}
	cache := t.TempDir()
	file := filepath.Join(cache, "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitUsage, nil},
		{cli.ExitUsage, []string{"--lake", cache, "stray"}},
		{cli.ExitUsage, []string{"--lake", cache, "--poll", "0s"}},
		{cli.ExitUsage, []string{"--lake", cache, "--lease-ttl", "1s"}},
		{cli.ExitUsage, []string{"--lake", cache, "--lease-ttl", "-1m"}},
		{cli.ExitUsage, []string{"--lake", cache, "--lease-ttl", "2h"}},
		{cli.ExitUsage, []string{"--lake", cache, "--log-format", "xml"}},
		{cli.ExitUsage, []string{"--lake", cache, "--memory-limit", "8"}},
		{cli.ExitUsage, []string{"--lake", cache, "--memory-limit", "100", "--frame-cache", "50", "--page-cache", "50"}},
		{cli.ExitUsage, []string{"--lake", cache, "--frame-cache", "150"}},
		{cli.ExitUsage, []string{"--lake", cache, "--page-cache", "-1"}},
		{cli.ExitUsage, []string{"--lake", cache, "--max-connections", "-1"}},
		{cli.ExitUsage, []string{"--lake", cache, "--drain", "-1s"}},
		{cli.ExitUsage, []string{"--lake", cache, "--cors-origin", "example.com"}},
		{cli.ExitUsage, []string{"--lake", cache, "--cors-origin", "https://a.test,https://b.test/"}},
		{cli.ExitUsage, []string{"--lake", cache, "--trusted-proxy", "proxy.test"}},
		{cli.ExitUsage, []string{"--lake", cache, "--trusted-proxy", "10.0.0.0/33"}},
		{cli.ExitUsage, []string{"--lake", file, "--cache", cache}},
		{cli.ExitUsage, []string{"--no-such-flag"}},
		{cli.ExitUsage, []string{"--lake", "gopher://lake", "--cache", cache}},
		{cli.ExitFailed, []string{"--lake", cache, "--cache", cache, "--listen", strings.TrimPrefix(taken, "http://")}},
		{cli.ExitDone, []string{"--version"}},
		{cli.ExitDone, []string{"--help"}},
	} {
		if code, out := run(c.args...); code != c.code || out == "" {
			t.Errorf("%v: exit code %d, want %d: %s", c.args, code, c.code, out)
		}
	}
}

func TestMetricsListen(t *testing.T) {
	metrics := func(url string) bool {
		t.Helper()
		resp, err := http.Get(url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode == 200 && strings.Contains(string(text), "\nurlake_manifest_followed 0\n")
	}
	base, _, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir())
	if !metrics(base) {
		t.Error("/metrics is missing on --listen")
	}
	stop()
	base, out, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	defer stop()
	if metrics(base) {
		t.Error("/metrics is still on --listen")
	}
	if own := addressOf(t, out, "metrics"); !metrics(own) {
		t.Errorf("no /metrics at %s", own)
	}
}

// TestReboundNames asks both listeners like a page whose domain resolves to 127.0.0.1.
func TestReboundNames(t *testing.T) {
	base, out, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir(), "--metrics-listen", "127.0.0.1:0", "--allow-host", "urls.example.com")
	defer stop()
	for _, address := range []string{base + "/healthz", addressOf(t, out, "metrics") + "/metrics"} {
		for host, want := range map[string]int{"": 200, "localhost:1": 200, "urls.example.com": 200, "evil.example:8080": 421} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != want || want == 421 && !strings.Contains(string(text), `"type":"/problems/misdirected"`) {
				t.Errorf("%s as %q: %d %s", address, host, resp.StatusCode, text)
			}
		}
	}
}

// The heap may grow to several times what is in use, unless the operator says how far.
func TestCollectorRunsSeldom(t *testing.T) {
	percent := func() string {
		t.Helper()
		base, _, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir())
		defer stop()
		resp, err := http.Get(base + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(regexp.MustCompile(`(?m)^go_gc_gogc_percent .*$`).Find(text))
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	t.Setenv("GOGC", "100")
	if got, want := percent(), "go_gc_gogc_percent 100"; got != want {
		t.Errorf("with GOGC=100: %q, want %q", got, want)
	}
	t.Setenv("GOGC", "")
	if got, want := percent(), fmt.Sprintf("go_gc_gogc_percent %d", gcPercent); got != want {
		t.Errorf("without GOGC: %q, want %q", got, want)
	}
}

func TestFlagsFromEnvironment(t *testing.T) {
	t.Setenv("URLAKE_LAKE", "file://"+filepath.ToSlash(t.TempDir()))
	_, out, stop := program(t)
	if code := stop(); code != cli.ExitDone {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if !strings.Contains(out.String(), "lake="+os.Getenv("URLAKE_LAKE")) {
		t.Fatalf("the lake of the environment is not served:\n%s", out)
	}
}
