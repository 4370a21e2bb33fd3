//go:build unix

package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// postgresStartTimeout is far longer than a server needs, also after a crash.
	postgresStartTimeout = 60 * time.Second
	// postgresPort names the socket. The server listens on no TCP port, so it is free.
	postgresPort = 5432
)

// Postgres is a running PostgreSQL server of the tests, with its data in a temporary folder. It
// listens on a Unix socket in that folder alone.
type Postgres struct {
	bin, temp string
	user      *syscall.Credential // nil: that of the test
	process   *os.Process
	exited    chan struct{}
	output    bytes.Buffer // complete when exited is closed
}

var postgresShared struct {
	sync.Mutex
	server    *Postgres
	users     int
	kept      bool
	databases atomic.Int64
}

// PostgresBin is the folder of PostgreSQL's server programs, "" if none is installed. Debian keeps
// them out of PATH.
func PostgresBin() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	slices.SortFunc(found, func(a, b string) int { return postgresMajor(a) - postgresMajor(b) })
	if len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(p)
	}
	return ""
}

func postgresMajor(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// KeepPostgres runs the tests of a binary, for its TestMain, and stops the PostgreSQL server after
// all of them instead of after each. Making a cluster takes longer than most tests.
func KeepPostgres(m *testing.M) (code int) {
	postgresShared.kept = true
	defer func() {
		if s := postgresShared.server; s != nil {
			s.stop()
			os.RemoveAll(s.temp)
		}
	}()
	return m.Run()
}

// NewPostgres returns the PostgreSQL server of the test binary and starts it if no test uses it
// yet. The server stops with the last test that uses it and, on Linux, when the test binary dies.
func NewPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	bin := PostgresBin()
	if bin == "" {
		Missing(tb, "PostgreSQL's server (Debian: postgresql)")
	}
	postgresShared.Lock()
	defer postgresShared.Unlock()
	if postgresShared.server == nil {
		s, err := createPostgres(bin)
		if err != nil {
			tb.Fatalf("start PostgreSQL: %v", err)
		}
		postgresShared.server = s
	}
	postgresShared.users++
	tb.Cleanup(func() {
		postgresShared.Lock()
		defer postgresShared.Unlock()
		if postgresShared.users--; postgresShared.users == 0 && !postgresShared.kept {
			postgresShared.server.stop()
			os.RemoveAll(postgresShared.server.temp)
			postgresShared.server = nil
		}
	})
	return postgresShared.server
}

// NewDatabase creates a database and returns how to connect to it.
func (p *Postgres) NewDatabase(tb testing.TB) (dsn string) {
	tb.Helper()
	name := "test" + strconv.FormatInt(postgresShared.databases.Add(1), 10)
	if out, err := p.command("createdb", "-h", p.temp, "-p", strconv.Itoa(postgresPort), "-U", "postgres", name).CombinedOutput(); err != nil {
		tb.Fatalf("createdb: %v: %s", err, out)
	}
	return p.DSN(name)
}

// DSN is how the superuser connects to a database.
func (p *Postgres) DSN(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", p.temp, postgresPort, database)
}

// Own gives a folder to the server's user, for a tablespace.
func (p *Postgres) Own(dir string) error {
	if p.user == nil {
		return nil
	}
	return os.Chown(dir, int(p.user.Uid), int(p.user.Gid))
}

// Crash ends the server as a power failure would, and starts it again: it recovers from its log.
func (p *Postgres) Crash(tb testing.TB) {
	tb.Helper()
	p.process.Kill()
	<-p.exited
	// The server's children end when they notice; a new server refuses to start before that.
	deadline := time.Now().Add(postgresStartTimeout)
	for {
		err := p.start()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("start PostgreSQL after a crash: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// createPostgres makes a cluster and starts its server. PostgreSQL refuses to run as root, so root
// runs it as the user postgres, or as nobody.
func createPostgres(bin string) (*Postgres, error) {
	temp, err := os.MkdirTemp("", "urlake-pg-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, temp: temp}
	if os.Geteuid() == 0 {
		if p.user, err = unprivileged(); err != nil {
			os.RemoveAll(temp)
			return nil, err
		}
		if err := os.Chown(temp, int(p.user.Uid), int(p.user.Gid)); err != nil {
			return nil, err
		}
	}
	out, err := p.command("initdb", "-D", p.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale", "C", "--no-sync").CombinedOutput()
	if err != nil {
		os.RemoveAll(temp)
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := p.start(); err != nil {
		os.RemoveAll(temp)
		return nil, err
	}
	return p, nil
}

func (p *Postgres) data() string { return filepath.Join(p.temp, "data") }

// command returns a command that runs a program of PostgreSQL as the server's user.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.temp
	dieWithParent(cmd)
	if p.user != nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = p.user
	}
	return cmd
}

// start starts the server and returns when it accepts connections. Nothing is flushed to the disk:
// what a killed server wrote is in the kernel.
func (p *Postgres) start() error {
	p.exited, p.output = make(chan struct{}), bytes.Buffer{}
	cmd := p.command("postgres", "-D", p.data(), "-k", p.temp, "-p", strconv.Itoa(postgresPort),
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "log_min_messages=fatal", "-c", "max_connections=40",
		"-c", "autovacuum=off") // so that nothing but a test writes
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	started := make(chan error)
	exited := p.exited
	go func() {
		// See tryS3.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.process = cmd.Process
	timeout := time.NewTimer(postgresStartTimeout)
	defer timeout.Stop()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for {
		select {
		case <-p.exited:
			return fmt.Errorf("postgres exited: %s", &p.output)
		case <-timeout.C:
			p.stop()
			return errors.New("postgres does not accept connections")
		case <-retry.C:
			c, err := net.Dial("unix", filepath.Join(p.temp, ".s.PGSQL."+strconv.Itoa(postgresPort)))
			if err != nil {
				continue
			}
			c.Close()
			if p.command("pg_isready", "-q", "-h", p.temp, "-p", strconv.Itoa(postgresPort)).Run() == nil {
				return nil
			}
		}
	}
}

// stop ends the server without waiting for its clients.
func (p *Postgres) stop() {
	p.process.Signal(syscall.SIGQUIT)
	<-p.exited
}

// unprivileged is the user that runs the server for root.
func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}
