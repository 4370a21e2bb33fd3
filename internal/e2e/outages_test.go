package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
)

// relay passes TCP connections on to a server, except while it is down.
type relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

// newRelay starts a relay to target that stops with the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { l.Close(); r.set(true) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c)
		}
	}()
	return r
}

// add registers a connection, or closes it while the relay is down.
func (r *relay) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		c.Close()
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) serve(client net.Conn) {
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		client.Close()
		return
	}
	if !r.add(client) || !r.add(server) {
		client.Close()
		server.Close()
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			io.Copy(way[1], way[0])
			way[1].Close()
			way[0].Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
}

// set takes the relay down, which breaks its connections, or up again.
func (r *relay) set(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
	if down {
		for c := range r.conns {
			c.Close()
		}
		clear(r.conns)
	}
}

// runningWorkflows is what "starter status --running --json" prints of running workflows.
type runningWorkflows struct {
	Running []struct {
		WorkflowID string `json:"workflow_id"`
		Waits      []struct {
			Step, Reason string
			Attempt      int
		}
	}
}

// TestIngestOutlivesTheStoreAndTemporal takes the store away in the middle of an ingest, restarts
// Temporal meanwhile, and checks that the ingest ends by itself when the store is back, and that it
// leaves the bytes of an undisturbed one.
func TestIngestOutlivesTheStoreAndTemporal(t *testing.T) {
	t.Parallel()
	path, want := undisturbed(t)
	server := testenv.NewS3Server(t)
	root := server.NewBucketURL(t)
	r := newRelay(t, strings.TrimPrefix(server.Endpoint, "http://"))
	direct, err := blob.Open(t.Context(), root+"/lake")
	if err != nil {
		t.Fatal(err)
	}
	u := startAlone(t, root+"/lake", nil)
	u.env = append(u.env, "AWS_ENDPOINT_URL_S3=http://"+r.listener.Addr().String(),
		"AWS_MAX_ATTEMPTS=1") // Temporal's retries are to be seen
	u.run(t, "worker", filepath.Join(u.bin, "worker"), "--lake", u.lake, "--temp-dir", t.TempDir())
	u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", "--no-publish", path)
	until(t, "rows are staged", hasObject(direct, "staging/", "/shuffle/"))
	r.set(true)
	u.restartTemporal(t)
	// The lake cannot be read, so Temporal is asked directly.
	until(t, "the ingest waits", func(context.Context) error {
		out, err := exec.CommandContext(t.Context(), testenv.Program(t, "temporal"), "workflow", "describe", "--address", u.temporal,
			"--workflow-id", "ingest:d:b@"+u.lake, "-o", "json").CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"lastFailure"`) {
			return fmt.Errorf("%w: %s", errors.Join(err, errors.New("no failure")), out)
		}
		return nil
	})
	r.set(false)
	var res ingestAnswer
	u.starterJSON(t, &res, "watch", "--json", "ingest:d:b@"+u.lake)
	if res.Rows == 0 {
		t.Errorf("ingest ended with %+v", res)
	}
	var published struct{ Version string }
	u.starterJSON(t, &published, "publish", "--lake", u.lake, "--json")
	if diff := gocmp.Diff(want, objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-undisturbed +with outages):\n%s", diff)
	}
}

// hasObject succeeds when the store has an object whose key begins with prefix and contains part.
func hasObject(store blob.Store, prefix, part string) func(context.Context) error {
	return func(ctx context.Context) error {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			if strings.Contains(info.Key, part) {
				return nil
			}
		}
		return fmt.Errorf("no %s…%s", prefix, part)
	}
}

// TestIngestSurvivesADeploy starts an ingest with a worker of another build, kills it, and ends it
// with one of this build. An ingest without a deploy writes the same bytes.
func TestIngestSurvivesADeploy(t *testing.T) {
	t.Parallel()
	path, want := undisturbed(t)
	dir := t.TempDir()
	u := start(t, "file://"+filepath.ToSlash(dir), nil)
	worker := func(program string) *exec.Cmd {
		return u.run(t, "worker", program, "--lake", u.lake, "--temp-dir", t.TempDir())
	}
	// A build is known by the checksum of its file, and bytes behind the end change nothing else.
	build, err := os.ReadFile(filepath.Join(u.bin, "urlake"))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(other, append(build, "other"...), 0o700); err != nil {
		t.Fatal(err)
	}
	old := worker(other)
	u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", path)
	store, err := blob.Open(t.Context(), u.lake)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "rows are staged", hasObject(store, "staging/", "/shuffle/"))
	old.Process.Signal(syscall.SIGKILL)
	old.Wait()
	worker(filepath.Join(u.bin, "worker"))
	var res ingestAnswer
	u.starterJSON(t, &res, "watch", "--json", "ingest:d:b@"+u.lake)
	if res.Rows == 0 {
		t.Errorf("ingest ended with %+v", res)
	}
	u.awaitTidied(t)
	if diff := gocmp.Diff(want, objects(t, u.lake)); diff != "" {
		t.Errorf("objects (-one build +two builds):\n%s", diff)
	}
}

// TestStatusShowsWhatRunningWorkflowsWaitFor starts an ingest for which there is only a control
// worker.
func TestStatusShowsWhatRunningWorkflowsWaitFor(t *testing.T) {
	t.Parallel()
	u := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{{"control"}})
	u.starter(t, "ingest", "--lake", u.lake, "--dataset", "d", "--batch", "b", sites(t, 10))
	until(t, "status shows the wait", func(context.Context) error {
		var status runningWorkflows
		if out, errs, code := u.starter(t, "status", "--lake", u.lake, "--running"); code != 0 || !strings.Contains(out, "for a worker to take IngestSmall") {
			return fmt.Errorf("exit %d: %s%s", code, out, errs)
		}
		u.starterJSON(t, &status, "status", "--lake", u.lake, "--running", "--json")
		if len(status.Running) != 1 || len(status.Running[0].Waits) != 1 || status.Running[0].Waits[0].Step != "IngestSmall" {
			t.Errorf("%+v", status)
		}
		return nil
	})
}
