package processors

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Use sets the policy of all threads, including threads started afterwards.
func TestUse(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := uint32(unix.SCHED_BATCH)
	batch := *before
	batch.Policy = want
	if before.Policy != unix.SCHED_NORMAL {
		want = before.Policy // chosen for this process, so Use keeps it
	} else if err := unix.SchedSetAttr(0, &batch, 0); err != nil {
		t.Logf("SCHED_BATCH is not allowed here: %v", err)
		want = before.Policy
	} else if err := unix.SchedSetAttr(0, before, 0); err != nil {
		t.Fatal(err)
	}
	Use(3)
	if n := runtime.GOMAXPROCS(0); n != 3+extra {
		t.Errorf("GOMAXPROCS is %d, want %d", n, 3+extra)
	}
	stop := make(chan struct{})
	defer close(stop)
	var started sync.WaitGroup
	for range 20 {
		started.Add(1)
		go func() {
			runtime.LockOSThread() // keeps the goroutine on its own thread
			started.Done()
			<-stop
		}()
	}
	started.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) < 20 {
		t.Errorf("there are %d threads, want at least 20", len(threads))
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			t.Fatal(err)
		}
		if attr.Policy != want {
			t.Errorf("thread %d has policy %d, want %d", id, attr.Policy, want)
		}
	}
}
