//go:build unix

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
)

// frontierd runs a verb of the program in this process.
func frontierd(t testing.TB, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	if cli.Run(t.Context(), cmd) != cli.ExitDone {
		err = errors.New(stderr.String())
	}
	return stdout.String() + stderr.String(), err
}

// killedAfter runs a verb as a process, and kills it after a time.
func killedAfter(t testing.TB, after time.Duration, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FRONTIERD_TEST=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	timer.Stop()
}

// newCrawl starts two processes of a frontier under load.
func newCrawl(t *testing.T, redis, dir string) (c *crawl, start func(i int) *daemon) {
	c = &crawl{
		t: t, delay: 20 * time.Millisecond, lease: 2 * time.Second, asked: map[string]bool{}, added: map[string]bool{}, settled: map[string]bool{},
		live: map[string]claimed{}, last: map[string]time.Time{},
	}
	start = func(i int) *daemon {
		return startDaemon(t, filepath.Join(dir, fmt.Sprintf("log%d", i)), "--redis", redis, "--data", filepath.Join(dir, "data"),
			"--crawl-delay", c.delay.String(), "--lease", c.lease.String(), "--own", "1s", "--shards", "4", "--memory", "1", "--tries", "1000")
	}
	for i := range 2 {
		c.daemons = append(c.daemons, start(i))
	}
	t.Cleanup(func() {
		for _, d := range c.daemons {
			d.kill(t)
		}
	})
	return c, start
}

// TestSnapshotHasWhatWasAnswered takes snapshots of a frontier of two processes under load, of which
// one, the command and the store die meanwhile. What is restored from the last one has every URL
// and result that was acknowledged before that was begun, and nothing that was not asked for before
// it ended; its leases are live or have ended.
func TestSnapshotHasWhatWasAnswered(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	c, start := newCrawl(t, redis.URL, dir)
	adding, stopAdding := context.WithCancel(t.Context())
	defer stopAdding()
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() { c.add(adding, adding, w, 200) })
	}
	for w := range 4 {
		load.Go(func() { c.work(adding, w) })
	}
	store := filepath.Join(dir, "store")
	take := []string{"snapshot", "--to", store, "--keep", "2", "--frontier"}
	time.Sleep(300 * time.Millisecond)
	for i := range 3 {
		killedAfter(t, rand.N(150*time.Millisecond), append(take, c.base())...)
		if err := os.Remove(filepath.Join(store, "lock.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if i == 1 {
			go func(d *daemon) { _ = d.cmd.Process.Kill() }(c.daemons[0])
			out, err := frontierd(t, append(take, c.daemons[1].base)...)
			t.Logf("while a process dies: %s%v", out, err)
			c.daemons[0].kill(t)
			d := start(0)
			c.mu.Lock()
			c.daemons[0] = d
			c.mu.Unlock()
		}
	}
	var before struct{ added, settled map[string]bool }
	var out string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		before.added, before.settled = maps.Clone(c.added), maps.Clone(c.settled)
		c.mu.Unlock()
		var err error
		if out, err = frontierd(t, append(take, c.base())...); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Log(out)
	c.mu.Lock()
	asked, held := maps.Clone(c.asked), maps.Clone(c.live)
	c.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	stopAdding()
	load.Wait()
	if len(before.added) == 0 || len(before.settled) == 0 || len(held) == 0 {
		t.Fatalf("%d added, %d settled, %d held", len(before.added), len(before.settled), len(held))
	}

	other := testenv.NewRedis(t)
	to := []string{"restore", "--from", store, "--data", filepath.Join(dir, "restored", "data"), "--redis", other.URL}
	killedAfter(t, rand.N(100*time.Millisecond), to...)
	if out, err := frontierd(t, to...); err != nil {
		if _, started := os.Stat(filepath.Join(dir, "restored", "data")); started != nil || !strings.Contains(err.Error(), "is in use") {
			t.Fatal(err) // unless the killed one had ended
		}
	} else {
		t.Log(out)
	}
	r, _ := newCrawl(t, other.URL, filepath.Join(dir, "restored"))
	r.settled = before.settled // none of them may be claimed again
	for end := time.Now().Add(time.Minute); r.waiting() < 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	// Workers report what they had when the snapshot was taken.
	var body strings.Builder
	for _, cl := range held {
		fmt.Fprintf(&body, "{\"lease\":%q,\"status\":200}\n", cl.lease)
	}
	lines, err := r.post(t.Context(), "/v1/results", body.String())
	if err != nil || len(lines) != len(held) {
		t.Fatalf("%d lines for %d leases: %v", len(lines), len(held), err)
	}
	for _, l := range lines {
		if l != `{"result":"settled"}` && l != `{"result":"ended"}` {
			t.Error(l)
		}
	}
	working, stopWorking := context.WithCancel(t.Context())
	defer stopWorking()
	for w := range 4 {
		load.Go(func() { r.work(working, w) })
	}
	for end := time.Now().Add(time.Minute); r.waiting() != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d URLs still wait", r.waiting())
		}
	}
	stopWorking()
	load.Wait()
	visits := r.visits()
	for u := range before.added {
		if visits[u] != 1 {
			r.errorf("%s was added before the snapshot, and settled %d times after it", u, visits[u])
		}
	}
	for u := range visits {
		if !asked[u] {
			r.errorf("%s was added after the snapshot", u)
		}
	}
	for i, w := range append(c.wrong, r.wrong...) {
		if i == 20 {
			break
		}
		t.Error(w)
	}
	t.Logf("%d added and %d settled before, %d after", len(before.added), len(before.settled), len(visits))
}

func getJSON(t *testing.T, method, url, body string, v any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s: %v", url, res.Status, data, err)
	}
}
