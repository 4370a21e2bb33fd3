//go:build unix

package testenv

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redisStartTimeout is far longer than a server needs, also after a crash.
const redisStartTimeout = 60 * time.Second

// Redis is a running Redis server of a test, with its data in a temporary folder. It has written
// every command to its file before it answers.
type Redis struct {
	// URL is how clients connect.
	URL string

	program, dir string
	// network and address are where it listens, and args how it is started besides its folder.
	network, address string
	args             []string
	process          *os.Process
	exited           chan struct{}
	output           bytes.Buffer // complete when exited is closed
}

// NewRedis starts a server that listens on a Unix socket in its folder alone, with more arguments,
// and runs until the test ends. A test without the program is skipped, or fails if
// URLAKE_REQUIRE_SERVICES is 1.
func NewRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		Missing(tb, "redis-server (Debian: redis-server)")
	}
	dir, err := redisDir()
	if err != nil {
		tb.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	r := &Redis{URL: "unix://" + socket, program: program, dir: dir, network: "unix", address: socket, args: append([]string{"--port", "0", "--unixsocket", socket}, args...)}
	r.begin(tb)
	return r
}

// begin starts the server for as long as the test lasts.
func (r *Redis) begin(tb testing.TB) {
	tb.Helper()
	tb.Cleanup(func() {
		r.Kill(tb)
		if err := os.RemoveAll(r.dir); err != nil {
			tb.Error(err)
		}
	})
	r.Start(tb)
}

// NewRedisTCP starts a server that listens on a port of the loopback address, with more arguments;
// %PORT and %DIR in them are its port and its folder. Addr is where it listens.
func NewRedisTCP(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		Missing(tb, "redis-server (Debian: redis-server)")
	}
	dir, err := redisDir()
	if err != nil {
		tb.Fatal(err)
	}
	address := FreeAddress(tb)
	_, port, _ := net.SplitHostPort(address)
	r := &Redis{URL: "redis://" + address, program: program, dir: dir, network: "tcp", address: address}
	if !slices.Contains(args, "--port") {
		args = append([]string{"--port", port}, args...)
	}
	for _, a := range append([]string{"--bind", "127.0.0.1"}, args...) {
		r.args = append(r.args, strings.NewReplacer("%PORT", port, "%DIR", dir).Replace(a))
	}
	r.begin(tb)
	return r
}

// PID is the process id of the running server.
func (r *Redis) PID() int { return r.process.Pid }

// Addr is where the server listens: a socket's path, or host:port.
func (r *Redis) Addr() string { return r.address }

// NewRedisCluster starts servers that are a cluster, each with about as many slots.
func NewRedisCluster(tb testing.TB, size int) (nodes []*Redis) {
	tb.Helper()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		Missing(tb, "redis-cli (Debian: redis-tools)")
	}
	run := func(r *Redis, args ...string) string {
		_, port, _ := net.SplitHostPort(r.address)
		out, err := exec.Command(cli, append([]string{"-h", "127.0.0.1", "-p", port}, args...)...).CombinedOutput()
		if err != nil {
			tb.Fatalf("redis-cli %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	const slots = 16384
	for i := range size {
		_, bus, _ := net.SplitHostPort(FreeAddress(tb))
		r := NewRedisTCP(tb, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "500",
			"--cluster-require-full-coverage", "no")
		nodes = append(nodes, r)
		run(r, "cluster", "addslotsrange", strconv.Itoa(i*slots/size), strconv.Itoa((i+1)*slots/size-1))
	}
	for _, r := range nodes[1:] {
		host, port, _ := net.SplitHostPort(r.address)
		run(nodes[0], "cluster", "meet", host, port, r.args[slices.Index(r.args, "--cluster-port")+1])
	}
	whole := func() bool {
		for _, r := range nodes {
			info := run(r, "cluster", "info")
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_slots_assigned:"+strconv.Itoa(slots)) {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(redisStartTimeout); !whole(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("the servers do not become a cluster: %s", run(nodes[0], "cluster", "info"))
		}
	}
	return nodes
}

// Pause stops the server's process until Resume, as if its machine had no time for it.
func (r *Redis) Pause(tb testing.TB) { r.signal(tb, syscall.SIGSTOP) }

// Resume lets the server go on.
func (r *Redis) Resume(tb testing.TB) { r.signal(tb, syscall.SIGCONT) }

func (r *Redis) signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := r.process.Signal(s); err != nil {
		tb.Error(err)
	}
}

// redisDir makes a folder whose path is short enough for a socket in it, which one of tb.TempDir is
// not.
func redisDir() (string, error) { return os.MkdirTemp("", "urlake-redis-") }

// Start starts the server again after Kill.
func (r *Redis) Start(tb testing.TB) {
	tb.Helper()
	r.exited, r.output = make(chan struct{}), bytes.Buffer{}
	cmd := exec.Command(r.program, append(slices.Clone(r.args), "--dir", r.dir, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "")...)
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
		if c, err := net.Dial(r.network, r.address); err == nil {
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

// ping says whether the server has read its file, also if it wants a password first.
func ping(c net.Conn) bool {
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	answer := make([]byte, 5)
	n, err := c.Read(answer)
	return err == nil && (string(answer[:n]) == "+PONG" || string(answer[:n]) == "-NOAU")
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
