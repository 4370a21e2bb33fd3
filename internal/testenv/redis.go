//go:build unix

package testenv

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// redisStartTimeout is far longer than a server needs, also after a crash.
const redisStartTimeout = 60 * time.Second

// Redis is a running Redis server of a test, with its data in a temporary folder. It listens on a
// Unix socket in that folder alone, and has written every command to its file before it answers.
type Redis struct {
	// URL is how clients connect.
	URL string

	program, dir string
	process      *os.Process
	exited       chan struct{}
	output       bytes.Buffer // complete when exited is closed
}

// NewRedis starts a server, which runs until the test ends. A test without the program is skipped,
// or fails if URLAKE_REQUIRE_SERVICES is 1.
func NewRedis(tb testing.TB) *Redis {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		Missing(tb, "redis-server (Debian: redis-server)")
	}
	dir, err := redisDir()
	if err != nil {
		tb.Fatal(err)
	}
	r := &Redis{URL: "unix://" + filepath.Join(dir, "s"), program: program, dir: dir}
	tb.Cleanup(func() {
		r.Kill(tb)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	r.Start(tb)
	return r
}

// redisDir makes a folder whose path is short enough for a socket in it, which one of tb.TempDir is
// not.
func redisDir() (string, error) { return os.MkdirTemp("", "urlake-redis-") }

// Start starts the server again after Kill.
func (r *Redis) Start(tb testing.TB) {
	tb.Helper()
	r.exited, r.output = make(chan struct{}), bytes.Buffer{}
	cmd := exec.Command(r.program, "--port", "0", "--unixsocket", filepath.Join(r.dir, "s"), "--dir", r.dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
	cmd.Stdout, cmd.Stderr = &r.output, &r.output
	dieWithParent(cmd)
	started := make(chan error)
	exited := r.exited
	go func() {
		// See tryS3.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		tb.Fatal(err)
	}
	r.process = cmd.Process
	for end := time.Now().Add(redisStartTimeout); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-exited:
			tb.Fatalf("redis-server exited: %s", &r.output)
		default:
		}
		if c, err := net.Dial("unix", filepath.Join(r.dir, "s")); err == nil {
			ready := ping(c)
			if err := c.Close(); err != nil {
				tb.Fatal(err)
			}
			if ready {
				return
			}
		}
		if time.Now().After(end) {
			tb.Fatal("redis-server does not answer")
		}
	}
}

// ping says whether the server has read its file.
func ping(c net.Conn) bool {
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 5)
	n, err := c.Read(answer)
	return err == nil && string(answer[:n]) == "+PONG"
}

// Kill kills the server at once.
func (r *Redis) Kill(tb testing.TB) {
	tb.Helper()
	select {
	case <-r.exited:
		return
	default:
	}
	if err := r.process.Kill(); err != nil {
		tb.Error(err)
	}
	<-r.exited
}
