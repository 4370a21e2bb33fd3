//go:build !race

package command

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	hugePageSetting = "/sys/kernel/mm/transparent_hugepage/enabled"
	// overcommit is 2 if what is reserved counts although nobody uses it.
	overcommitSetting = "/proc/sys/vm/overcommit_memory"
	// container is how much memory the control group of a container has (cgroup v2), or max.
	cgroupMemory = "/sys/fs/cgroup/memory.max"
)

// hugePagesForHeap asks for huge pages, which Go itself does not ask for, for what the heap will
// grow to, up to a quarter of the memory of the machine or the container, or of Go's memory limit.
// A heap that grows and shrinks by gigabytes has a page fault for each 4 KiB that it gets, and a
// miss of the TLB for most loads of what it has. Linux gives huge pages to those who ask if
// transparent_hugepage is madvise. It takes some tens of milliseconds, and a thousandth of that in
// memory. It does nothing if the kernel gives huge pages to all or to none, or if the address space
// has no room.
//
// The heap gets the addresses as a slice, which is never written to and collected at once. Go never
// unmaps them, and allocates at the lowest addresses first.
func hugePagesForHeap() {
	size := hugePagesWanted()
	if size == 0 || !fitsAddressSpace(size) {
		return
	}
	reserved := make([]byte, size)
	_ = unix.Madvise(reserved, unix.MADV_HUGEPAGE) // without, pages are small
	runtime.KeepAlive(reserved)
	debug.FreeOSMemory() // what is free of it does not count as used
}

// hugePagesWanted is how many bytes of the heap are to be in huge pages, 0 for none.
func hugePagesWanted() int {
	for _, setting := range []struct {
		name string
		ok   func(value []byte) bool
	}{
		{hugePageSetting, func(value []byte) bool { return bytes.Contains(value, []byte("[madvise]")) }},
		{overcommitSetting, func(value []byte) bool { return !bytes.HasPrefix(value, []byte("2")) }},
	} {
		if value, err := os.ReadFile(setting.name); err != nil || !setting.ok(value) {
			return 0
		}
	}
	var machine unix.Sysinfo_t
	if unix.Sysinfo(&machine) != nil {
		return 0
	}
	return int(min(machine.Totalram*uint64(machine.Unit), limit(cgroupMemory), uint64(debug.SetMemoryLimit(-1))) / 4)
}

// limit is the number that a file has, or the highest if it has none.
func limit(file string) uint64 {
	text, _ := os.ReadFile(file) // there is none outside of containers
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// fitsAddressSpace says whether there are so many addresses: a program whose heap gets none ends.
func fitsAddressSpace(size int) bool {
	room, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	return err == nil && unix.Munmap(room) == nil
}
