//go:build unix

package command

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// controlCommand starts serveControl instead of frontierd.
	controlCommand = "control"
	// controlPhase is the phase of the benchmark that measures it.
	controlPhase = "answers-ready"
)

// serveControl is a server with the answer to every claim ready, and so many bytes of memory as its
// argument says, which it does not use. What its clients wait for is the machine.
func serveControl(size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "http=http://%s\n", listener.Addr())
	memory := make([]byte, n)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	answer := controlAnswer(benchClaims)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(answer)
	})}
	err = server.Serve(listener)
	runtime.KeepAlive(memory)
	return err
}

// controlAnswer is an answer with n claims, of about the size that those of frontierd have.
func controlAnswer(n int) []byte {
	answer := []byte(`{"claims":[`)
	var url []byte
	for i := range n {
		if i > 0 {
			answer = append(answer, ',')
		}
		url = appendURL(url[:0], int64(i))
		answer = fmt.Appendf(answer, `{"lease":"0123456789abcdefghijklmnopqrstuv%08d","url":"%s","domain":"%s","depth":0,"expires":"2026-01-01T00:00:00Z"}`,
			i, url, strings.Split(string(url), "/")[2])
	}
	return append(answer, "]}\n"...)
}

// control claims at the fixed rate from serveControl, with so much memory.
func (b *bench) control(name, dir string, memory int64) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	d := startDaemon(b, filepath.Join(dir, name), controlCommand, strconv.FormatInt(memory, 10))
	defer d.kill(b)
	q := &daemonUnderTest{address: strings.TrimPrefix(d.base, "http://")}
	defer q.close()
	if _, err := q.claim(b.Context(), benchClaims); err != nil { // once it has its memory
		b.Fatal(err)
	}
	b.q, b.processes = q, []process{{"it", d.cmd.Process.Pid}, {"the clients", os.Getpid()}}
	b.claimAtRate(name, after(time.Duration(benchSeconds)*time.Second), false)
}

// TestControlAnswers says that the clients find as many leases in the control's answer as they
// asked for.
func TestControlAnswers(t *testing.T) {
	if leases, err := leasesOf(controlAnswer(3), 3); err != nil || len(leases) != 3 || leases[0] == leases[2] {
		t.Errorf("leases %q, %v", leases, err)
	}
}
