package command

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestKilledIsSucceededAtOnce kills a process whose shards are its own for a minute. One that is
// started after it on the same machine serves them at once, and what they have, unless the locks
// were signed under another kernel: then nothing is known of who holds them.
func TestKilledIsSucceededAtOnce(t *testing.T) {
	redis, dir := testenv.NewRedis(t), t.TempDir()
	data := filepath.Join(dir, "data")
	start := func(name string) (*daemon, string) {
		log := filepath.Join(dir, name)
		d := startDaemon(t, log, "--redis", redis.URL, "--data", data, "--own", "1m", "--shards", "4", "--crawl-delay", "0s")
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return d, string(text)
	}
	post := func(d *daemon, path, body string) string {
		t.Helper()
		res, err := http.Post(d.base+path, "application/x-ndjson", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var text strings.Builder
		if err := res.Write(&text); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	first, _ := start("first")
	if got := post(first, "/v1/urls", `{"url":"https://a.example/1"}`); !strings.Contains(got, `"added"`) {
		t.Fatal(got)
	}
	first.kill(t)
	second, log := start("second")
	if !strings.Contains(log, "shards=4 of=4") {
		t.Errorf("the second process does not serve the shards:\n%s", log)
	}
	if got := post(second, "/v1/claims", `{"max":1,"wait_ms":1000}`); !strings.Contains(got, "https://a.example/1") {
		t.Error(got)
	}
	second.kill(t)
	locks, err := filepath.Glob(filepath.Join(data, "*.lock"))
	if err != nil || len(locks) < 4 {
		t.Fatal(locks, err)
	}
	for _, name := range locks {
		signed, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		owner, _, _ := strings.Cut(string(signed), "\n")
		if err := os.WriteFile(name, []byte(owner+"\nanother\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	third, log := start("third")
	defer third.kill(t)
	if !strings.Contains(log, "shards=0 of=4") {
		t.Errorf("the third process serves shards although another machine may:\n%s", log)
	}
}
