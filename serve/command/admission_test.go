package command

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// TestServerDrains stops a server whose readiness is watched, and one whose is not.
func TestServerDrains(t *testing.T) {
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "alpha", "b", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, store)
	base, out, stop := program(t, "--lake", dir, "--cache", t.TempDir(), "--drain", "5s")
	var ready map[string]any
	testenv.Until(t, "ready", func() bool { return get(t, base+"/readyz", &ready) == 200 })
	code := make(chan int, 1)
	go func() { code <- stop() }()
	testenv.Until(t, "it says that it stops", func() bool {
		clear(ready)
		return get(t, base+"/readyz", &ready) == 503 && ready["type"] == "/problems/stopping"
	})
	var answer map[string]any
	if status := get(t, base+"/v1/domain/example.com", &answer); status != 200 {
		t.Errorf("a request meanwhile: %d", status)
	}
	if c := <-code; c != cli.ExitDone || !strings.Contains(out.String(), "draining") {
		t.Errorf("exit code %d: %s", c, out)
	}
	if resp, err := http.Get(base + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("it still answers")
	}
	// An hour that nobody waits for.
	_, out, stop = program(t, "--lake", dir, "--cache", t.TempDir(), "--drain", "1h")
	if c := stop(); c != cli.ExitDone || strings.Contains(out.String(), "draining") {
		t.Errorf("exit code %d: %s", c, out)
	}
}

// TestFlagsOfAdmission sees that each flag does what it says.
func TestFlagsOfAdmission(t *testing.T) {
	base, _, stop := program(t, "--lake", t.TempDir(), "--cache", t.TempDir(), "--max-connections", "2",
		"--cors-origin", "https://a.test", "--trusted-proxy", "127.0.0.1,::1")
	defer stop()
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://a.test")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Access-Control-Allow-Origin") != "https://a.test" {
		t.Errorf("%v", resp.Header)
	}
	// With two more connections the first of them is closed, because none has sent anything.
	var open []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	if _, err := io.ReadAll(open[0]); err != nil {
		t.Errorf("the connection that was idle for longest: %v", err)
	}
}
