package processors

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch sets the scheduling policy of all threads of the process. Threads started later inherit it.
// The length of slices takes effect since Linux 6.12; older kernels ignore it.
func batch() {
	batchThreads()
	batchThreads() // threads started during the first call
}

// batchThreads sets the policy of the threads that exist now.
func batchThreads() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil || attr.Policy != unix.SCHED_NORMAL {
			continue // the thread has ended, or has a policy that someone chose for it
		}
		attr.Policy, attr.Runtime = unix.SCHED_BATCH, uint64(slice)
		// An error is ignored: the policy is an optimization, and a container may forbid it.
		_ = unix.SchedSetAttr(id, attr, 0)
	}
}
