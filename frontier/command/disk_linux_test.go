package command

import (
	"math/rand/v2"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Without a handler a process dies of a write beyond its limit; so the write fails.
func init() { signal.Ignore(syscall.SIGXFSZ) }

// fillDisk lets files of a process not grow beyond some kilobytes for a while, so its writes fail
// in the middle, as those to a full disk do.
func (c *crawl) fillDisk(i int) fault {
	return func() {
		limit := func(bytes uint64) {
			l := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
			if err := unix.Prlimit(c.daemons[i].cmd.Process.Pid, unix.RLIMIT_FSIZE, &l, nil); err != nil {
				c.t.Error(err)
			}
		}
		limit(100 + rand.Uint64N(20_000))
		time.Sleep(rand.N(time.Second))
		limit(unix.RLIM_INFINITY)
	}
}
