//go:build unix

package indexbuild

import (
	"math"
	"syscall"
)

// maxOpenFiles returns how many files this process may have open.
func maxOpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(limit.Cur), math.MaxInt32)) //nolint:unconvert // an int64 on some systems
}
