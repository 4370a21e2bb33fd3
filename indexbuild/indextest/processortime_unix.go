//go:build unix

package indextest

import (
	"syscall"
	"testing"
	"time"
)

// ProcessorTime returns the processor time that all threads of this process have used.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
