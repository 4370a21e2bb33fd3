package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestWorkerKilledInARangeTheBytesAreTheSame lets two workers build a segment in ranges and kills
// one of them while it writes, after the first range was merged. The other one does the rest; all
// objects are those of a lake whose segment one worker built in one piece.
func TestWorkerKilledInARangeTheBytesAreTheSame(t *testing.T) {
	t.Parallel() // most of the time passes until Temporal notices the dead worker
	path, want := undisturbed(t, 50_000)
	killed := false
	// The ranges can be over before a worker is seen in one.
	for round := 0; round < 8 && !killed && !t.Failed(); round++ {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) { killed = killedInARange(t, path, want) })
	}
	if !killed {
		t.Error("no worker was seen in a range before the segment was published")
	}
}

// killedInARange lets two workers build a segment in ranges and reports whether one was killed.
func killedInARange(t *testing.T, path string, want map[string]string) bool {
	dir := t.TempDir()
	two := start(t, "file://"+filepath.ToSlash(dir), nil)
	// Some 2,500 pairs of domain and dataset in 16 ranges.
	var workers []*exec.Cmd
	for range 2 {
		workers = append(workers, two.run(t, "worker", filepath.Join(two.bin, "worker"),
			"--lake", two.lake, "--temp-dir", t.TempDir(), "--range-pairs", "200"))
	}
	killed := make(chan bool, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			merged, _ := filepath.Glob(filepath.Join(dir, "staging", "*", "build-*", "merge-*.json"))
			for _, w := range workers {
				if len(merged) > 0 && killIfWriting(w.Process, dir) {
					killed <- true
					return
				}
			}
			<-tick.C
		}
		killed <- false
	}()
	two.ingestAndPublish(t, path)
	stop()
	if diff := gocmp.Diff(want, objects(t, two.lake)); diff != "" {
		t.Errorf("objects (-one worker, in one piece +two, in ranges, one killed):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "staging", "*", "build-*")); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
	return <-killed
}

// killIfWriting stops a process, and kills it if it has a file below dir open. Otherwise the
// process goes on.
func killIfWriting(p *os.Process, dir string) bool {
	if p.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Pid))
	for _, fd := range open {
		name, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(name, dir+"/") {
			continue
		}
		if info, err := os.Stat(fd); err == nil && info.Mode().IsRegular() {
			return p.Kill() == nil
		}
	}
	p.Signal(syscall.SIGCONT)
	return false
}
