package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/internal/addresses"
	"github.com/urlake/urlake/internal/supervise"
	"github.com/urlake/urlake/internal/testenv"
)

// common is the folder of what all tests share. It is removed after the last of them.
var common = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "urlake-e2e-") })

// programs builds all programs once for all tests and returns their folder, which has links to what
// make build has built, or copies. Temporal's server must not be there, where urlake would find it.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := common()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "bin")
	out, err := exec.Command("go", "build", "-ldflags=-s", "-o", "../../bin/", "../..", "../../serve", "../../frontier/frontierd",
		"../../frontier/example/crawler").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return "", err
	}
	for _, name := range []string{"worker", "starter"} {
		if err := os.Symlink("urlake", filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	for _, name := range builtPrograms {
		if err := linkOrCopy("../../bin/"+name, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
})

var builtPrograms = []string{"urlake", "serve", "frontierd", "crawler"}

// linkOrCopy makes a file to with the content of from.
func linkOrCopy(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o777)
}

// atOnce is how many parallel tests run at once, unless -parallel says another number. Most of
// their time they wait: for a dead worker's heartbeat timeout, or for one of their processes.
const atOnce = 6

func TestMain(m *testing.M) {
	if os.Getenv(poisonLake) != "" {
		if err := poisonousWorker(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if n := max(atOnce, runtime.GOMAXPROCS(0)); !set {
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := testenv.RunWithS3(m)
	if p := temporalOfAll.value; p != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
	if dir, err := common(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// urlake is one lake, and Temporal, workers and a read server for it as separate processes.
type urlake struct {
	lake     string   // URL
	env      []string // of all processes
	bin      string   // folder of the programs
	temporal string   // address of Temporal
	base     string   // URL of the read server

	temporalServer *exec.Cmd // of startAlone
	temporalArgs   []string
}

// start starts a worker process for each group of pools, and Temporal if no test has started it
// yet.
func start(t *testing.T, lake string, pools [][]string) *urlake {
	t.Helper()
	u := newUrlake(t, lake, sharedTemporal(t))
	u.startWorkers(t, pools)
	return u
}

// startAlone is start with a Temporal server of its own, for a test that stops the server or looks
// at all workflows.
func startAlone(t *testing.T, lake string, pools [][]string) *urlake {
	t.Helper()
	u := newUrlake(t, lake, testenv.FreeAddress(t))
	u.temporalArgs = temporalArgs(u.temporal, t.TempDir())
	u.startTemporal(t)
	u.startWorkers(t, pools)
	return u
}

func newUrlake(t *testing.T, lake, temporal string) *urlake {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	u := &urlake{lake: lake, bin: bin, temporal: temporal, env: append(os.Environ(), "TEMPORAL_ADDRESS="+temporal)}
	if strings.HasPrefix(lake, "s3://") {
		// Most tests put their inputs into files; workers of such a lake read none by default.
		u.env = append(u.env, "URLAKE_ALLOW_INPUT=file:///,s3://")
	}
	return u
}

// temporalArgs are the arguments of Temporal's dev server with its state in a folder. Nothing is
// flushed to the disk: what a killed server wrote is in the kernel. By default each transaction
// makes and deletes a journal.
func temporalArgs(address, dir string) []string {
	_, port, _ := net.SplitHostPort(address)
	return append([]string{"server", "start-dev", "--ip", "127.0.0.1", "--port", port, "--headless", "--log-level", "error",
		"--db-filename", filepath.Join(dir, "temporal.db"), "--sqlite-pragma", "synchronous=off",
		"--sqlite-pragma", "journal_mode=wal"}, supervise.OnePartition...)
}

// temporalProcess is a Temporal server and its address.
type temporalProcess struct {
	address string
	cmd     *exec.Cmd
}

// temporalOfAll is the Temporal server of all tests that have none of their own. It is killed after
// the last test.
var temporalOfAll shared[*temporalProcess]

// sharedTemporal returns the address of temporalOfAll.
func sharedTemporal(t *testing.T) string {
	t.Helper()
	return temporalOfAll.get(func() *temporalProcess {
		dir, err := common()
		if err != nil {
			t.Fatal(err)
		}
		var held addresses.Set // until the end of the process
		address, err := held.Free()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(testenv.Program(t, "temporal"), temporalArgs(address, dir)...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		(&urlake{temporal: address}).awaitTemporal(t)
		return &temporalProcess{address, cmd}
	}).address
}

// startWorkers starts a worker process for each group of pools.
func (u *urlake) startWorkers(t *testing.T, pools [][]string) {
	t.Helper()
	for _, group := range pools {
		u.run(t, "worker "+strings.Join(group, "+"), filepath.Join(u.bin, "worker"),
			"--lake", u.lake, "--pools", strings.Join(group, ","), "--temp-dir", t.TempDir())
	}
	if *histories != "" {
		t.Cleanup(func() { u.record(t) })
	}
}

// histories is where tests leave the histories of their workflows. Package workflows replays some.
var histories = flag.String("histories", "", "write the histories of all workflows to this `FOLDER`")

// record writes the history of each workflow as TEST-TYPE-RUN.json.
func (u *urlake) record(t *testing.T) {
	var listed []struct {
		Execution struct{ WorkflowID, RunID string }
		Type      struct{ Name string }
	}
	if err := json.Unmarshal([]byte(u.temporalCLI(t, "workflow", "list", "--output", "json")), &listed); err != nil {
		t.Fatal(err)
	}
	for _, r := range listed {
		text := u.temporalCLI(t, "workflow", "show", "--workflow-id", r.Execution.WorkflowID, "--run-id", r.Execution.RunID, "--output", "json")
		name := fmt.Sprintf("%s-%s-%s.json", strings.ReplaceAll(t.Name(), "/", "-"), r.Type.Name, r.Execution.RunID)
		write(t, *histories, name, text)
	}
}

// startTemporal starts Temporal's dev server on its database and waits until it answers.
func (u *urlake) startTemporal(t *testing.T) {
	t.Helper()
	u.temporalServer = u.run(t, "temporal", testenv.Program(t, "temporal"), u.temporalArgs...)
	u.awaitTemporal(t)
}

// awaitTemporal waits until Temporal answers.
func (u *urlake) awaitTemporal(t *testing.T) {
	t.Helper()
	until(t, "Temporal answers", func(ctx context.Context) error {
		c, err := u.dial(ctx)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// dial connects to Temporal.
func (u *urlake) dial(ctx context.Context) (client.Client, error) {
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return client.DialContext(ctx, client.Options{HostPort: u.temporal, Logger: quiet})
}

// awaitTidied waits until the publisher has ended. It tells ingests of their version before it
// removes its staging.
func (u *urlake) awaitTidied(t *testing.T) {
	t.Helper()
	until(t, "the publisher has ended", func(ctx context.Context) error {
		c, err := u.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		d, err := c.DescribeWorkflowExecution(ctx, activities.PublishWorkflowID(u.lake), "")
		if err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
			err = errors.New("it goes on")
		}
		return err
	})
}

// restartTemporal kills Temporal's dev server and starts it again on the same database.
func (u *urlake) restartTemporal(t *testing.T) {
	t.Helper()
	u.temporalServer.Process.Signal(syscall.SIGKILL)
	u.temporalServer.Wait()
	u.startTemporal(t)
}

// serve starts a read server with an empty cache and waits until it is ready.
func (u *urlake) serve(t *testing.T) *exec.Cmd {
	t.Helper()
	address := testenv.FreeAddress(t)
	u.base = "http://" + address
	server := u.run(t, "serve", filepath.Join(u.bin, "serve"), "--lake", u.lake, "--listen", address, "--cache", t.TempDir())
	until(t, "serve is ready", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.base+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	return server
}

// run starts a program and stops it when the test ends. If the test fails, it logs the program's
// output.
func (u *urlake) run(t *testing.T, name, program string, args ...string) *exec.Cmd {
	t.Helper()
	var out syncBuffer
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = t.TempDir(), u.env
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-done
			t.Errorf("%s did not stop on SIGTERM", name)
		}
		if t.Failed() {
			t.Logf("%s printed:\n%s", name, out.String())
		}
	})
	return cmd
}

// starter runs starter and returns its output and exit code.
func (u *urlake) starter(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(u.bin, "starter"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = u.env, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// starterJSON runs starter with a verb that must succeed and decodes its output.
func (u *urlake) starterJSON(t *testing.T, into any, args ...string) {
	t.Helper()
	out, errs, code := u.starter(t, args...)
	if code != 0 {
		t.Fatalf("starter %s: exit %d\n%s", strings.Join(args, " "), code, errs)
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("starter %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// until waits until ready succeeds, or fails the test after a minute.
func until(t *testing.T, what string, ready func(context.Context) error) {
	t.Helper()
	untilWithin(t, time.Minute, what, ready)
}

// untilWithin is until with another limit. The longer it has waited, the more rarely it asks, since
// many questions take a process.
func untilWithin(t *testing.T, limit time.Duration, what string, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for began := time.Now(); ; {
		err := ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, err)
		case <-time.After(max(50*time.Millisecond, time.Since(began)/8)):
		}
	}
}

// shared is a value that several tests need, made by the first of them. If that one fails, the next
// one makes it.
type shared[T any] struct {
	mu    sync.Mutex
	made  bool
	value T
}

func (s *shared[T]) get(value func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		s.value = value()
		s.made = true
	}
	return s.value
}

// syncBuffer is a bytes.Buffer that may be used concurrently.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
