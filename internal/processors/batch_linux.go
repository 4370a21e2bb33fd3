package processors

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch sets the scheduling policy of all threads that there are, and so of those that they start. Linux has slices of other lengths since 6.12 and takes no notice of them before.
func batch() {
	batchThreads()
	batchThreads() // those that were started meanwhile
}

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
			continue // ended meanwhile, or somebody chose a policy
		}
		attr.Policy, attr.Runtime = unix.SCHED_BATCH, uint64(slice)
		// It is a hint, which a container may forbid.
		_ = unix.SchedSetAttr(id, attr, 0)
	}
}
