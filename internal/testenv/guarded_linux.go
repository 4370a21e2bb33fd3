package testenv

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Guarded returns size zero bytes that are followed by an inaccessible page: a load or store past
// their end crashes the process. The memory is unmapped when the test ends.
func Guarded(tb testing.TB, size int) []byte {
	tb.Helper()
	page := os.Getpagesize()
	usable := (size + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, usable+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Mprotect(mem[usable:], unix.PROT_NONE); err != nil {
		tb.Fatal(err)
	}
	return mem[usable-size : usable : usable]
}
