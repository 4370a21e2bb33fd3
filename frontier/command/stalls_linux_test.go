package command

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// processors returns the numbers of those on which this process may run.
func processors() (all []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for n := 0; len(all) < set.Count(); n++ {
		if set.IsSet(n) {
			all = append(all, n)
		}
	}
	return all
}

// runFirst has the goroutine that calls it run on one processor, before all others.
func runFirst(processor int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(processor)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processor %d: %w", processor, err)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("real time: %w", err)
	}
	return nil
}

// nap sleeps for a time on the thread that calls it: another thread of the process would not run
// first.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&t, nil) // one that is interrupted is shorter
}
