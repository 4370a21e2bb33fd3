package testenv

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const holdS3 = "TESTENV_HOLD_S3"

// TestHoldS3 is the part of TestS3ServerDiesWithTheTestBinary that dies.
func TestHoldS3(t *testing.T) {
	if os.Getenv(holdS3) == "" {
		return
	}
	s := NewS3Server(t)
	os.Stdout.WriteString("serving " + strings.TrimPrefix(s.Endpoint, "http://") + " " + s.temp + "\n")
	select {}
}

func TestS3ServerDiesWithTheTestBinary(t *testing.T) {
	Program(t, "versitygw")
	cmd := exec.Command(os.Args[0], "-test.run=^TestHoldS3$", "-test.v")
	cmd.Env = append(os.Environ(), holdS3+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var fields []string
	for lines := bufio.NewScanner(out); len(fields) == 0 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "serving ") {
			fields = strings.Fields(lines.Text())
		}
	}
	if len(fields) != 3 {
		cmd.Process.Kill()
		t.Fatalf("the test binary said %q; %v", fields, cmd.Wait())
	}
	defer os.RemoveAll(fields[2])
	conn, err := net.Dial("tcp", fields[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	// The kernel closes what the dead server had open, in its own order.
	deadline := time.Now().Add(10 * time.Second)
	for err == nil {
		conn.SetReadDeadline(deadline)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the server outlived the test binary")
		}
		conn.Close()
		conn, err = net.Dial("tcp", fields[1])
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after its test binary died: %v", err)
	}
}

func TestS3ServerStopsWithItsLastTest(t *testing.T) {
	var s *S3Server
	t.Run("users", func(t *testing.T) {
		t.Run("first", func(t *testing.T) { s = NewS3Server(t) })
		t.Run("two at once", func(t *testing.T) {
			s = NewS3Server(t)
			t.Run("second", func(t *testing.T) {
				if other := NewS3Server(t); other != s {
					t.Error("two servers at once")
				}
			})
			c, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint, "http://"))
			if err != nil {
				t.Fatalf("the server stopped while a test used it: %v", err)
			}
			c.Close()
			if a, b := s.NewBucketURL(t), s.NewBucketURL(t); a == b {
				t.Errorf("one bucket %s twice", a)
			}
		})
	})
	if s == nil {
		return
	}
	select {
	case <-s.exited:
	default:
		t.Error("the server runs on")
	}
	if _, err := os.Stat(s.temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its data: %v", err)
	}
}

func TestS3SetsTheEnvironmentOfAClient(t *testing.T) {
	rawURL := S3(t)
	if !strings.HasPrefix(rawURL, "s3://") {
		t.Errorf("S3 = %q", rawURL)
	}
	for _, kv := range NewS3Server(t).Env() {
		name, value, _ := strings.Cut(kv, "=")
		if got := os.Getenv(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}
