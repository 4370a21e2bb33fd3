package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestWorkerKilledInARangeTheBytesAreTheSame lets two workers build a segment in ranges and kills
// one of them when the first range is merged. The other one does the rest; all objects are those of
// a lake whose segment one worker built in one piece.
func TestWorkerKilledInARangeTheBytesAreTheSame(t *testing.T) {
	t.Parallel() // most of the time passes until Temporal notices the dead worker
	path := sites(t, 50_000)
	one := start(t, "file://"+filepath.ToSlash(t.TempDir()), [][]string{allPools})
	one.ingestAndPublish(t, path)

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
		for {
			select {
			case <-ctx.Done():
				killed <- false
				return
			case <-tick.C:
			}
			merged, err := filepath.Glob(filepath.Join(dir, "staging", "*", "build-*", "merge-*.json"))
			if err == nil && len(merged) > 0 {
				killed <- workers[0].Process.Signal(syscall.SIGKILL) == nil
				return
			}
		}
	}()
	two.ingestAndPublish(t, path)
	stop()
	if !<-killed {
		t.Error("no range was merged before the segment was published")
	}
	if diff := gocmp.Diff(objects(t, one.lake), objects(t, two.lake)); diff != "" {
		t.Errorf("objects (-one worker, in one piece +two, in ranges, one killed):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "staging", "*", "build-*")); len(left) > 0 {
		t.Errorf("left in staging: %v", left)
	}
}
