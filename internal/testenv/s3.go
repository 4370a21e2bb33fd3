package testenv

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// s3Attempts is how often a gateway is started before the test fails. Another process can take
	// the free port first, and file systems without extended attributes need other arguments.
	s3Attempts = 5

	// s3StartTimeout is far longer than the gateway needs.
	s3StartTimeout = 30 * time.Second
)

// S3Server is a running versitygw, which serves S3 from a temporary folder on the loopback address.
type S3Server struct {
	// Endpoint is the URL of the server, "http://127.0.0.1:port".
	Endpoint string
	// AccessKey, SecretKey and Region are the settings of clients.
	AccessKey, SecretKey, Region string

	data    string // holds a folder for each bucket
	meta    string // the sidecar folder, "" if metadata are in extended attributes
	temp    string
	process *os.Process
	exited  chan struct{}
	output  bytes.Buffer // complete when exited is closed
}

var s3Shared struct {
	sync.Mutex
	server  *S3Server
	users   int
	buckets atomic.Int64
}

// NewS3Server returns the S3 server of the test binary and starts it if no test uses it yet. The
// server stops with the last test that uses it and, on Linux, when the test binary dies.
func NewS3Server(tb testing.TB) *S3Server {
	tb.Helper()
	s, err := useS3(Program(tb, "versitygw"))
	if err != nil {
		tb.Fatalf("start versitygw: %v", err)
	}
	tb.Cleanup(leaveS3)
	return s
}

// useS3 returns the server of the test binary, which runs until leaveS3 was called as often.
func useS3(program string) (*S3Server, error) {
	s3Shared.Lock()
	defer s3Shared.Unlock()
	if s3Shared.server == nil {
		s, err := startS3(program)
		if err != nil {
			return nil, err
		}
		s3Shared.server = s
	}
	s3Shared.users++
	return s3Shared.server, nil
}

func leaveS3() {
	s3Shared.Lock()
	defer s3Shared.Unlock()
	if s3Shared.users--; s3Shared.users == 0 {
		s3Shared.server.stop()
		s3Shared.server = nil
	}
}

// RunWithS3 runs the tests of a package whose parallel tests open stores in S3, with the AWS
// variables of the process set to the S3 server of the test binary. Without the program of the
// server it only runs them, and those that call NewS3Server say what is missing.
func RunWithS3(m *testing.M) (code int) {
	root, err := root()
	program := filepath.Join(root, "bin", "versitygw")
	if err == nil {
		_, err = os.Stat(program)
	}
	if err != nil {
		return m.Run()
	}
	s, err := useS3(program)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start versitygw:", err)
		return 1
	}
	defer leaveS3()
	for _, kv := range s.vars() {
		if err := os.Setenv(kv[0], kv[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// S3 sets the AWS variables of the test's environment to the S3 server of the test binary and
// returns the URL of an empty store there. Parallel tests cannot set their environment: see
// RunWithS3, or pass Env of NewS3Server to the processes that they start.
func S3(tb testing.TB) (rawURL string) {
	tb.Helper()
	s := NewS3Server(tb)
	for _, kv := range s.vars() {
		tb.Setenv(kv[0], kv[1])
	}
	return s.NewBucketURL(tb)
}

// NewBucketURL creates a bucket and returns the URL of a store in it, "s3://bucket/prefix".
func (s *S3Server) NewBucketURL(tb testing.TB) string {
	tb.Helper()
	bucket := "test-" + strconv.FormatInt(s3Shared.buckets.Add(1), 10)
	// The buckets of the gateway are the folders in its data folder.
	if err := os.Mkdir(filepath.Join(s.data, bucket), 0o777); err != nil {
		tb.Fatal(err)
	}
	return "s3://" + bucket + "/lake"
}

// Folder is the folder that has the objects of a store, as files.
func (s *S3Server) Folder(rawURL string) string {
	return filepath.Join(s.data, filepath.FromSlash(strings.TrimPrefix(rawURL, "s3://")))
}

// NewBucket creates a bucket with that name.
func (s *S3Server) NewBucket(tb testing.TB, name string) {
	tb.Helper()
	if err := os.Mkdir(filepath.Join(s.data, name), 0o777); err != nil {
		tb.Fatal(err)
	}
}

// Env returns the AWS variables of clients as "name=value", for child processes. The empty ones
// override the settings of the person who runs the tests.
func (s *S3Server) Env() []string {
	var env []string
	for _, kv := range s.vars() {
		env = append(env, kv[0]+"="+kv[1])
	}
	return env
}

func (s *S3Server) vars() [][2]string {
	none := filepath.Join(s.temp, "none")
	return [][2]string{
		{"AWS_ENDPOINT_URL_S3", s.Endpoint},
		{"AWS_ACCESS_KEY_ID", s.AccessKey},
		{"AWS_SECRET_ACCESS_KEY", s.SecretKey},
		{"AWS_REGION", s.Region},
		{"AWS_SESSION_TOKEN", ""},
		{"AWS_PROFILE", ""},
		{"AWS_CONFIG_FILE", none},
		{"AWS_SHARED_CREDENTIALS_FILE", none},
		{"AWS_EC2_METADATA_DISABLED", "true"},
	}
}

// startS3 starts a gateway and returns when it accepts connections.
func startS3(program string) (*S3Server, error) {
	temp, err := os.MkdirTemp("", "urlake-s3-")
	if err != nil {
		return nil, err
	}
	sidecar := false
	for attempt := 1; ; attempt++ {
		s, err := tryS3(program, temp, sidecar)
		if err == nil {
			return s, nil
		}
		if attempt == s3Attempts {
			os.RemoveAll(temp)
			return nil, err
		}
		// Without extended attributes the gateway needs a sidecar folder for metadata.
		sidecar = !sidecar
	}
}

// tryS3 starts a gateway once and waits until it accepts connections.
func tryS3(program, temp string, sidecar bool) (*S3Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()

	s := &S3Server{
		Endpoint: "http://" + addr, AccessKey: "urlake-test", SecretKey: "urlake-test-secret", Region: "us-east-1",
		data: filepath.Join(temp, "data"), temp: temp, exited: make(chan struct{}),
	}
	versions := filepath.Join(temp, "versions")
	if err := os.MkdirAll(versions, 0o777); err != nil {
		return nil, err
	}
	args := []string{"--port", addr, "--keep-alive", "--quiet", "posix", "--versioning-dir", versions}
	if sidecar {
		meta := filepath.Join(temp, "meta")
		if err := os.MkdirAll(meta, 0o777); err != nil {
			return nil, err
		}
		s.meta = meta
		args = append(args, "--sidecar", meta)
	}
	if err := os.MkdirAll(s.data, 0o777); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append(args, s.data)...)
	cmd.Dir = temp
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey, "VGW_REGION="+s.Region)
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	dieWithParent(cmd)

	started := make(chan error)
	go func() {
		// To the kernel the parent is the thread that started the child, so that thread must not
		// exit before the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
			close(s.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	s.process = cmd.Process

	timeout := time.NewTimer(s3StartTimeout)
	defer timeout.Stop()
	retry := time.NewTicker(5 * time.Millisecond)
	defer retry.Stop()
	// Connect twice. If another process took the port, it answers, but the gateway has exited by
	// the second time.
	for answers := 0; ; {
		select {
		case <-s.exited:
			return nil, fmt.Errorf("%s %v exited: %s", filepath.Base(program), args, &s.output)
		case <-timeout.C:
			s.process.Kill()
			<-s.exited
			return nil, fmt.Errorf("%s does not accept connections at %s: %s", filepath.Base(program), addr, &s.output)
		case <-retry.C:
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				if answers++; answers == 2 {
					return s, nil
				}
			}
		}
	}
}

// stop kills the gateway and removes its data. With a signal to terminate the gateway would wait
// for the idle connections of its clients.
func (s *S3Server) stop() {
	s.process.Kill()
	<-s.exited
	os.RemoveAll(s.temp)
}
