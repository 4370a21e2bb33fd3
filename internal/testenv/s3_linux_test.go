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

// TestHoldS3 is the test binary that TestS3ServerDiesWithTheTestBinary starts and kills.
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
		t.Fatalf("the test binary printed %q; %v", fields, cmd.Wait())
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
	// The kernel closes the connections and the listener of the dead server in any order.
	deadline := time.Now().Add(10 * time.Second)
	for err == nil {
		conn.SetReadDeadline(deadline)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the server still runs after the test binary was killed")
		}
		conn.Close()
		conn, err = net.Dial("tcp", fields[1])
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the test binary was killed: %v, want ECONNREFUSED", err)
	}
}

func TestS3ServerStopsWithItsLastTest(t *testing.T) {
	var s *S3Server
	t.Run("users", func(t *testing.T) {
		t.Run("first", func(t *testing.T) { s = NewS3Server(t) })
		t.Run("two users", func(t *testing.T) {
			s = NewS3Server(t)
			t.Run("second", func(t *testing.T) {
				if other := NewS3Server(t); other != s {
					t.Error("a second server was started")
				}
			})
			c, err := net.Dial("tcp", strings.TrimPrefix(s.Endpoint, "http://"))
			if err != nil {
				t.Fatalf("the server stopped although a test uses it: %v", err)
			}
			c.Close()
			if a, b := s.NewBucketURL(t), s.NewBucketURL(t); a == b {
				t.Errorf("bucket %s was returned twice", a)
			}
		})
	})
	if s == nil {
		return
	}
	select {
	case <-s.exited:
	default:
		t.Error("the server still runs")
	}
	if _, err := os.Stat(s.temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder of the server: %v, want it removed", err)
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
