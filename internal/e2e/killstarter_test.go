package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/compat"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/lease"
)

// everyRequest is set by the build tag soak. Otherwise starter is killed at one of twenty requests.
var everyRequest = false

// requestKiller is a proxy before an S3 server that kills a process at its nth request.
type requestKiller struct {
	faults *testenv.S3Faults

	mu       sync.Mutex
	process  *os.Process
	left     int  // requests until the process dies
	after    bool // the store has done that request
	happened bool
}

func (k *requestKiller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left--
	dies := k.left == 0
	if k.happened || dies && !k.after {
		k.die()
	}
	reply := httptest.NewRecorder()
	k.faults.ServeHTTP(reply, r)
	if dies {
		k.die()
	}
	maps.Copy(w.Header(), reply.Header())
	w.WriteHeader(reply.Code)
	w.Write(reply.Body.Bytes())
}

func (k *requestKiller) die() {
	if !k.happened {
		k.happened = true
		k.process.Signal(syscall.SIGKILL)
	}
	panic(http.ErrAbortHandler)
}

// TestStarterKilledAtItsRequests kills starter with -9 at each of its requests to the store, while
// it takes down and lifts, retires and restores, and tags: before the store has done the request,
// and before starter has the reply. What the lake shows then is the old or the new state, the same
// command again completes, and at the end the lake is one in which nothing was killed.
func TestStarterKilledAtItsRequests(t *testing.T) {
	t.Parallel()
	s3 := testenv.NewS3Server(t)
	in := t.TempDir()
	make := func() (*killLake, string) {
		bucket := s3.NewBucketURL(t)
		u := start(t, bucket, nil)
		u.env = append(u.env, s3.Env()...)
		u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", bucket, "--temp-dir", t.TempDir())
		l := &killLake{t: t, urlake: u, in: in}
		l.few()
		l.run("compact", "--full")
		l.ingest("b4", 30)
		return l, "file://" + filepath.ToSlash(s3.Folder(bucket))
	}
	undisturbed, wantURL := make()
	l, gotURL := make()

	k := &requestKiller{faults: testenv.NewS3Faults(t, s3, 1)}
	proxy := httptest.NewServer(k)
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	// killed runs starter and kills it at its nth request. It returns false if there is none.
	killed := func(n int, after bool, args ...string) bool {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.Command(filepath.Join(l.bin, "starter"), args...)
		cmd.Env = append(slices.Clone(l.env), "AWS_ENDPOINT_URL_S3="+proxy.URL)
		cmd.Stdout, cmd.Stderr = &out, io.Discard
		k.mu.Lock()
		k.left, k.after, k.happened = n, after, false
		err := cmd.Start()
		k.process = cmd.Process
		k.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.happened && err != nil {
			t.Fatalf("starter %s: %v\n%s", strings.Join(args, " "), err, out.String())
		}
		return k.happened
	}
	asker := compat.Ask(t, gotURL)
	answers := func() compat.Rows {
		t.Helper()
		asker.Refresh()
		return asker.Rows(killHosts)
	}
	id := func(l *killLake) string {
		t.Helper()
		var all []struct {
			ID string `json:"id"`
		}
		l.starterJSON(t, &all, "takedown", "list", "--lake", l.lake, "--json")
		if len(all) != 1 {
			t.Fatalf("%d takedowns are in force, want 1", len(all))
		}
		return all[0].ID
	}
	points := 0
	// pair kills do at each request, and runs it again; then undo.
	pair := func(name string, do, undo func() []string, shows bool) {
		t.Helper()
		before := answers()
		var done compat.Rows
		step := 20
		if everyRequest {
			step = 1
		}
		for n := 1; ; n += step {
			happened := false
			for _, after := range []bool{false, true} {
				happened = killed(n, after, do()...)
				if happened {
					points++
				}
				state := answers()
				if out, errs, code := l.starter(t, do()...); code != 0 {
					t.Fatalf("%s again, after it was killed at request %d: exit %d: %s%s", name, n, code, out, errs)
				}
				all := answers()
				if done == nil {
					done = all
					if shows == gocmp.Equal(before, done) {
						t.Fatalf("%s shows: %t", name, shows)
					}
				}
				if !gocmp.Equal(all, done) {
					t.Fatalf("%s after a kill at request %d:\n%s", name, n, gocmp.Diff(done, all))
				}
				if !gocmp.Equal(state, before) && !gocmp.Equal(state, done) {
					t.Fatalf("killed at request %d, %s has left neither the old nor the new state:\n%s", n, name, gocmp.Diff(before, state))
				}
				if out, errs, code := l.starter(t, undo()...); code != 0 {
					t.Fatalf("undo %s: exit %d: %s%s", name, code, out, errs)
				}
				if again := answers(); !gocmp.Equal(before, again) {
					t.Fatalf("%s was not undone:\n%s", name, gocmp.Diff(before, again))
				}
			}
			if !happened {
				t.Logf("%s has %d requests or fewer", name, n-1)
				return
			}
		}
	}
	add := func() []string {
		return []string{"takedown", "add", "--lake", l.lake, "--domain", "gone.example", "--reason", "test"}
	}
	lift := func() []string { return []string{"takedown", "lift", id(l), "--lake", l.lake, "--reason", "test"} }
	pair("takedown add", add, lift, true)
	retire := func() []string {
		return []string{"retire", "--lake", l.lake, "--dataset", "d", "--batch", "b2", "--no-publish"}
	}
	restore := func() []string {
		return []string{"restore", "--lake", l.lake, "--dataset", "d", "--batch", "b2", "--no-publish"}
	}
	pair("retire", retire, restore, false)
	tag := func() []string { return []string{"tag", "current", "name", "--lake", l.lake} }
	untag := func() []string { return []string{"tag", "--remove", "name", "--lake", l.lake} }
	pair("tag", tag, untag, false)
	t.Logf("killed %d times", points)

	for _, l := range []*killLake{undisturbed, l} {
		l.run("takedown", "add", "--domain", "gone.example", "--reason", "test")
		l.run("retire", "--dataset", "d", "--batch", "b2", "--wait")
		l.run("gc", "--keep", "1", "--grace", "0s")
	}
	asker.Close()
	var want, got remains
	want.look(t, wantURL)
	got.look(t, gotURL)
	for _, r := range []*remains{&want, &got} { // audit records of the takedowns stay
		r.counts["index/takedowns/"], r.counts["registry/"] = 0, 0
	}
	if diff := gocmp.Diff(want.rows, got.rows); diff != "" {
		t.Errorf("answers (-undisturbed +killed):\n%s", diff)
	}
	if diff := gocmp.Diff(want.objects, got.objects); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
	if diff := gocmp.Diff(want.counts, got.counts); diff != "" {
		t.Errorf("numbers of objects (-undisturbed +killed):\n%s", diff)
	}
}

// TestKilledInASweep kills the worker while a collection deletes, in a folder, where its lock ends
// with it.
func TestKilledInASweep(t *testing.T) {
	t.Parallel()
	in := t.TempDir()
	live := func(kill bool) (r remains) {
		dir := filepath.Join(t.TempDir(), "lake")
		u := start(t, "file://"+filepath.ToSlash(dir), nil)
		worker := func() *exec.Cmd {
			return u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
		}
		running := worker()
		l := &killLake{t: t, urlake: u, in: in}
		l.few()
		l.run("compact", "--full")
		kills := 0
		for round := 0; round < 8 && kills == 0; round++ {
			if round > 0 { // something to delete
				l.ingest(fmt.Sprintf("more%d", round), 10)
				l.run("retire", "--dataset", "d", "--batch", fmt.Sprintf("more%d", round), "--wait")
				l.run("compact", "--full")
			}
			ended := make(chan struct{})
			watched := make(chan int)
			go func() {
				n := 0
				defer func() { watched <- n }()
				for {
					select {
					case <-ended:
						return
					default:
					}
					var sweep struct{ Open bool }
					data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(lease.SweepKey)))
					if !kill || err != nil || json.Unmarshal(data, &sweep) != nil || !sweep.Open {
						continue
					}
					running.Process.Signal(syscall.SIGKILL)
					running.Wait()
					if data, err = os.ReadFile(filepath.Join(dir, filepath.FromSlash(lease.SweepKey))); err == nil && json.Unmarshal(data, &sweep) == nil && sweep.Open {
						n++
					}
					running = worker()
					return
				}
			}()
			l.run("gc", "--keep", "1", "--grace", "0s")
			close(ended)
			kills = <-watched
			if !kill {
				break
			}
		}
		if kill && kills == 0 {
			t.Error("the worker was never killed while a sweep was open")
		}
		l.ingest("last", 20)
		l.run("compact", "--full")
		l.run("gc", "--keep", "1", "--grace", "0s")
		r.look(t, u.lake)
		if out, errs, code := u.starter(t, "verify", "--lake", u.lake, "--deep"); code != 0 {
			t.Errorf("verify: exit %d: %s%s", code, out, errs)
		}
		return r
	}
	want, got := live(false), live(true)
	if diff := gocmp.Diff(want.rows, got.rows); diff != "" {
		t.Errorf("answers (-undisturbed +killed):\n%s", diff)
	}
	if diff := gocmp.Diff(want.objects, got.objects); diff != "" {
		t.Errorf("objects (-undisturbed +killed):\n%s", diff)
	}
}
