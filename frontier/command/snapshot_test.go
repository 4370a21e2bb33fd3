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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/frontier/snapshot"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
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

// killedAfter runs a verb as a process, and kills it after a time. It says whether it had ended.
func killedAfter(t testing.TB, after time.Duration, args ...string) (ended bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "FRONTIERD_TEST=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	return err == nil
}

// TestSnapshotHasWhatWasAnswered takes snapshots of a frontier of two processes under load, of
// which one dies meanwhile, as does the command. What is restored from the last snapshot has every
// URL and result that was acknowledged before that was begun, and nothing that was not asked for
// before it ended; its leases are live or have ended.
func TestSnapshotHasWhatWasAnswered(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	c := newCrawl(t, redis.URL, dir)
	c.addMany(4000, 300) // so that there are runs
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
	c.await("results", func() bool { return len(c.settled) > 0 })
	for i := range 3 {
		killedAfter(t, rand.N(150*time.Millisecond), append(take, c.base())...)
		if err := os.Remove(filepath.Join(store, "lock.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if i == 1 {
			go func(d *daemon) { _ = d.cmd.Process.Kill() }(c.daemons[0])
			out, err := frontierd(t, append(take, c.daemons[1].base)...)
			t.Logf("while a process dies: %s%v", out, err)
			c.killDaemon(0)()
		}
	}
	var before struct {
		added   map[string]bool
		settled map[string]time.Time
	}
	var out string
	var held []claimLine
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if got := c.claim(adding); len(got) > 0 {
			held = got // and not reported
		}
		c.mu.Lock()
		before.added, before.settled = maps.Clone(c.added), maps.Clone(c.settled)
		c.mu.Unlock()
		err := errors.New("nothing could be claimed")
		if len(held) > 0 {
			out, err = frontierd(t, append(take, c.base())...)
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Log(out)
	c.mu.Lock()
	asked := maps.Clone(c.asked)
	c.mu.Unlock()
	c.await("URLs after the snapshot", func() bool { return len(c.asked) > len(asked) })
	stopAdding()
	load.Wait()
	if len(before.added) == 0 || len(before.settled) == 0 || len(held) == 0 {
		t.Fatalf("%d added, %d settled, %d held", len(before.added), len(before.settled), len(held))
	}

	other := testenv.NewRedis(t)
	to := []string{"restore", "--from", store, "--data", filepath.Join(dir, "restored", "data"), "--redis", other.URL}
	if !killedAfter(t, rand.N(100*time.Millisecond), to...) {
		if out, err := frontierd(t, to...); err != nil {
			t.Fatal(out)
		}
	}
	r := newCrawl(t, other.URL, filepath.Join(dir, "restored"))
	r.dies = 0
	r.settled = before.settled // none of them may be claimed again
	for end := time.Now().Add(time.Minute); r.waiting() < 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	// Workers report what they had when the snapshot was taken.
	var body strings.Builder
	for _, cl := range held {
		fmt.Fprintf(&body, "{\"lease\":%q,\"status\":200}\n", cl.Lease)
	}
	var lines []string
	testenv.Until(t, "all leases are known", func() (known bool) { // a shard may have no owner for a moment
		var err error
		lines, err = r.post(t.Context(), "/v1/results", body.String())
		return err == nil && len(lines) == len(held) && !slices.ContainsFunc(lines, isElsewhere)
	})
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

// addMany adds URLs with so much metadata that they do not fit into the memory of the shards.
func (c *crawl) addMany(n, domains int) {
	for from := 0; from < n; from += 1000 {
		var body strings.Builder
		var urls []string
		for i := from; i < from+1000; i++ {
			u := fmt.Sprintf("https://site%d.example/many%s/%d", i%domains, c.prefix, i)
			urls = append(urls, u)
			c.asked[u] = true
			fmt.Fprintf(&body, "{\"url\":%q,\"metadata\":%q}\n", u, strings.Repeat("m", 200))
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			lines, err := c.post(c.t.Context(), "/v1/urls", body.String())
			if err == nil && len(lines) == len(urls) && c.acknowledged(urls, lines) {
				break
			}
			if time.Now().After(end) {
				c.t.Fatal(err)
			}
		}
	}
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

// TestRestoreIsWhatWasSaid restores a frontier with delays, pauses, blocks and leases, with another
// name in the same Redis, and from a cluster to a single server. It compares what the frontier says
// of its domains; a lease of before settles its URL.
func TestRestoreIsWhatWasSaid(t *testing.T) {
	t.Run("Same", func(t *testing.T) {
		redis := testenv.NewRedis(t).URL
		restoreWhatWasSaid(t, redis, redis)
	})
	t.Run("FromCluster", func(t *testing.T) {
		restoreWhatWasSaid(t, testenv.NewRedisCluster(t, 3)[0].Addr(), testenv.NewRedis(t).URL)
	})
}

func restoreWhatWasSaid(t *testing.T, from, to string) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	args := func(redis, name string) []string {
		return []string{"--redis", redis, "--name", name, "--data", filepath.Join(dir, name), "--shards", "4", "--crawl-delay", "0s", "--lease", "1h"}
	}
	d := startDaemon(t, filepath.Join(dir, "log"), args(from, "first")...)
	t.Cleanup(func() { d.kill(t) })
	c := &crawl{t: t, daemons: []*daemon{d}, asked: map[string]bool{}, added: map[string]bool{}}
	c.addMany(1000, 50)
	for i, change := range []string{`{"delay":7200.5}`, `{"pause":true}`, `{"block":3600}`, `{"delay":0.25,"pause":true}`} {
		for crawl := range 2 {
			var ignored any
			getJSON(t, http.MethodPatch, fmt.Sprintf("%s/v1/domains/site%d.example?crawl=%s", d.base, i, [...]string{"DEFAULT", "other"}[crawl]), change, &ignored)
		}
	}
	lines, err := c.post(t.Context(), "/v1/claims", `{"max":30}`)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Claims []claimLine }
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(got.Claims) != 30 {
		t.Fatalf("%d claims: %v", len(got.Claims), err)
	}
	said := func() (all []map[string]any) {
		for i := range 50 {
			for _, crawl := range []string{"DEFAULT", "other"} {
				var one map[string]any
				getJSON(t, http.MethodGet, fmt.Sprintf("%s/v1/domains/site%d.example?crawl=%s", c.base(), i, crawl), "", &one)
				all = append(all, one)
			}
		}
		var stats map[string]any
		getJSON(t, http.MethodGet, c.base()+"/v1/stats", "", &stats)
		return append(all, stats)
	}
	want := said()
	if out, err := frontierd(t, "snapshot", "--frontier", d.base, "--to", store); err != nil {
		t.Fatal(out)
	}
	restore := func(redis string, more ...string) (string, error) {
		return frontierd(t, append([]string{"restore", "--from", store, "--redis", redis}, more...)...)
	}
	second := filepath.Join(dir, "second")
	for what, more := range map[string][]string{
		"a name in use":      {"--data", filepath.Join(dir, "other"), "--name", "first"},
		"a folder in use":    {"--data", filepath.Join(dir, "first"), "--name", "second"},
		"no such snapshot":   {"--data", second, "--name", "second", "--snapshot", "none"},
		"a folder and no id": {"--data", dir, "--name", "second"},
	} {
		if out, err := restore(from, more...); err == nil {
			t.Errorf("%s: restored: %s", what, out)
		}
	}
	if out, err := restore(to, "--data", second, "--name", "second"); err != nil {
		t.Fatal(out)
	}
	d.kill(t)
	c.daemons[0] = startDaemon(t, filepath.Join(dir, "log"), args(to, "second")...)
	t.Cleanup(func() { c.daemons[0].kill(t) })
	if diff := gocmp.Diff(want, said()); diff != "" {
		t.Error(diff)
	}
	var body strings.Builder
	for _, cl := range got.Claims {
		fmt.Fprintf(&body, "{\"lease\":%q,\"status\":200}\n", cl.Lease)
	}
	lines, err = c.post(t.Context(), "/v1/results", body.String())
	if want := slices.Repeat([]string{`{"result":"settled"}`}, 30); err != nil || !slices.Equal(lines, want) {
		t.Errorf("%q, %v", lines, err)
	}
}

// TestDamageOfSnapshotsIsNamed changes a bit of each object of a snapshot, cuts it and deletes it.
// Each is found and named, and nothing is restored.
func TestDamageOfSnapshotsIsNamed(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	d := startDaemon(t, filepath.Join(dir, "log"), "--redis", redis.URL, "--data", filepath.Join(dir, "data"), "--shards", "2", "--memory", "1")
	t.Cleanup(func() { d.kill(t) })
	c := &crawl{t: t, daemons: []*daemon{d}, asked: map[string]bool{}, added: map[string]bool{}}
	c.addMany(6000, 50)
	if out, err := frontierd(t, "snapshot", "--frontier", d.base, "--to", store); err != nil {
		t.Fatal(out)
	}
	if out, err := frontierd(t, "restore", "--from", store, "--check"); err != nil {
		t.Fatal(out)
	}
	objects := 0
	err := filepath.WalkDir(store, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && strings.HasPrefix(e.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() {
			return err
		}
		objects++
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		flipped := bytes.Clone(whole)
		flipped[rand.IntN(len(flipped))] ^= 1 << rand.IntN(8)
		name, err := filepath.Rel(store, path)
		if err != nil {
			return err
		}
		for what, data := range map[string][]byte{"a bit": flipped, "its end": whole[:len(whole)-1], "all": nil} {
			if data == nil {
				err = os.Remove(path)
			} else {
				err = os.WriteFile(path, data, 0o666)
			}
			if err != nil {
				return err
			}
			for _, args := range [][]string{{"--check"}, {"--data", filepath.Join(dir, "restored"), "--redis", redis.URL, "--name", "restored"}} {
				out, err := frontierd(t, append([]string{"restore", "--from", store}, args...)...)
				manifest := strings.HasPrefix(name, "snapshots/") && data == nil // then there is no snapshot
				if err == nil || !manifest && !strings.Contains(out, name) {
					t.Errorf("%s of %s: %s", what, name, out)
				}
			}
			if err := os.WriteFile(path, whole, 0o666); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || objects < 10 {
		t.Fatalf("%d objects: %v", objects, err)
	}
	if out, err := frontierd(t, "restore", "--from", store, "--data", filepath.Join(dir, "restored"), "--redis", redis.URL, "--name", "restored"); err != nil {
		t.Error(out)
	}
}

// TestRatesOfSnapshots holds that a rate is refused that is no number of bytes.
func TestRatesOfSnapshots(t *testing.T) {
	for rate, want := range map[string]string{
		"-1": "not negative", "8796093022208": "the most is 8796093022207", "17592186044416": "the most is 8796093022207",
		"8796093022207": "--frontier: a URL",
	} {
		_, err := frontierd(t, "snapshot", "--frontier", "no-url", "--to", t.TempDir(), "--rate", rate)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--rate %s: %v, want %q", rate, err, want)
		}
	}
}

// TestSnapshotsCopyWhatIsNew takes a snapshot after each of some changes. What is copied is about
// what was added, each snapshot can be restored alone, and those that are too many are deleted with
// what only they name.
func TestSnapshotsCopyWhatIsNew(t *testing.T) {
	redis := testenv.NewRedis(t)
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	d := startDaemon(t, filepath.Join(dir, "log"), "--redis", redis.URL, "--data", filepath.Join(dir, "data"), "--shards", "2", "--memory", "1", "--crawl-delay", "0s")
	t.Cleanup(func() { d.kill(t) })
	c := &crawl{t: t, daemons: []*daemon{d}, asked: map[string]bool{}, added: map[string]bool{}}
	take := func(keep int) *snapshot.Taken {
		t.Helper()
		taken, err := snapshot.Take(t.Context(), store, snapshot.TakeOptions{Frontier: d.base, Keep: keep, Note: func(s string) { t.Log(s) }})
		if err != nil {
			t.Fatal(err)
		}
		return taken
	}
	c.addMany(10_000, 100)
	first := take(0)
	again := take(0)
	// Files are merged for a while.
	for end := time.Now().Add(time.Minute); again.Copied > first.Copied/4 && time.Now().Before(end); {
		again = take(0)
	}
	if first.Copied < first.Manifest.Bytes()-2 || again.Copied > first.Copied/4 {
		t.Errorf("%d bytes were copied of %d, then %d of the same", first.Copied, first.Manifest.Bytes(), again.Copied)
	}
	var more *snapshot.Taken
	var grown int64
	for n := range 5 { // what is added can lead to another merge, which writes all anew
		before := again
		if more != nil {
			before = more
		}
		c.prefix = fmt.Sprint("more", n)
		c.addMany(1000, 100)
		more = take(0)
		grown = more.Manifest.Bytes() - before.Manifest.Bytes()
		if more.Copied < grown {
			t.Errorf("%d bytes were copied, after %d were new", more.Copied, grown)
		}
		if more.Copied <= first.Copied/2 {
			break
		}
	}
	if more.Copied > first.Copied/2 {
		t.Errorf("%d bytes were copied, after %d were new", more.Copied, grown)
	}
	for i, m := range []*snapshot.Manifest{first.Manifest, again.Manifest, more.Manifest} {
		if wrong, err := snapshot.Damaged(t.Context(), store, m); err != nil || len(wrong) > 0 {
			t.Errorf("snapshot %d: %v, %v", i, wrong, err)
		}
	}
	had, err := snapshot.IDs(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	last := take(1)
	ids, err := snapshot.IDs(t.Context(), store)
	if err != nil || !slices.Equal(ids, []string{last.Manifest.ID}) || last.Deleted != len(had) {
		t.Errorf("%v, %v, %d deleted", ids, err, last.Deleted)
	}
	named := map[string]bool{}
	for _, f := range last.Manifest.Files {
		for _, p := range f.Pieces {
			named[p.Object] = true
		}
	}
	for info, err := range store.List(t.Context(), "files/") {
		if err != nil {
			t.Fatal(err)
		}
		if !named[info.Key] {
			t.Errorf("%s is named by nothing", info.Key)
		}
	}
	if wrong, err := snapshot.Damaged(t.Context(), store, last.Manifest); err != nil || len(wrong) > 0 {
		t.Errorf("%v, %v", wrong, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "data", "snapshots"))
	if err != nil || len(left) > 0 {
		t.Errorf("%d snapshots are left in the folder of the frontier: %v", len(left), err)
	}
}
