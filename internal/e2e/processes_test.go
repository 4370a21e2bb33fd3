package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"log/slog"

	"github.com/urlake/urlake/internal/testenv"
)

// programs builds worker, starter and serve once for all tests.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "urlake-e2e-bin-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir+"/", "../../worker", "../../starter", "../../serve").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := programs(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// urlake is one lake with Temporal, workers and, later, a server, all processes of their own.
type urlake struct {
	lake     string
	env      []string
	bin      string
	temporal string // its address
	base     string

	server       *exec.Cmd
	temporalArgs []string
}

// start runs Temporal and one worker process for each group of pools.
func start(t *testing.T, lake string, pools [][]string) *urlake {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	u := &urlake{lake: lake, bin: bin, temporal: freeAddress(t)}
	_, port, _ := net.SplitHostPort(u.temporal)
	u.env = append(os.Environ(), "TEMPORAL_ADDRESS="+u.temporal)
	u.temporalArgs = []string{"server", "start-dev", "--ip", "127.0.0.1", "--port", port, "--headless", "--log-level", "error",
		"--db-filename", filepath.Join(t.TempDir(), "temporal.db")}
	u.startTemporal(t)
	for _, group := range pools {
		u.run(t, "worker "+strings.Join(group, "+"), filepath.Join(bin, "worker"), "--lake", lake, "--pools", strings.Join(group, ","), "--temp-dir", t.TempDir())
	}
	return u
}

// startTemporal runs the dev server on its database and waits until it answers.
func (u *urlake) startTemporal(t *testing.T) {
	t.Helper()
	u.server = u.run(t, "temporal", testenv.Program(t, "temporal"), u.temporalArgs...)
	quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	until(t, "Temporal answers", func(ctx context.Context) error {
		c, err := client.DialContext(ctx, client.Options{HostPort: u.temporal, Logger: quiet})
		if err == nil {
			c.Close()
		}
		return err
	})
}

// restartTemporal kills the dev server and starts it again where it left off.
func (u *urlake) restartTemporal(t *testing.T) {
	t.Helper()
	u.server.Process.Signal(syscall.SIGKILL)
	u.server.Wait()
	u.startTemporal(t)
}

// serve runs the read server with an empty cache and waits until it is ready.
func (u *urlake) serve(t *testing.T) *exec.Cmd {
	t.Helper()
	address := freeAddress(t)
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

// run starts a program that lives as long as the test; its output is shown when the test fails.
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

// starter runs the command line and returns what it printed.
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

// starterJSON runs a verb that must succeed and decodes its answer.
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

func until(t *testing.T, what string, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

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
