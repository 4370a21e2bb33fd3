package mapped

import (
	"bytes"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// statm stays open, since it is read in the middle of lookups.
var statm = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/self/statm") })

// residentFileBytes returns how much of all mapped files is resident in the process, or 0 if that
// is unknown.
func residentFileBytes() int64 {
	f, err := statm()
	if err != nil {
		return 0
	}
	var buf [128]byte
	n, _ := f.ReadAt(buf[:], 0) // ends in io.EOF
	fields := bytes.Fields(buf[:n])
	if len(fields) < 3 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[2]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// dropResident returns the pages of part, which starts on a page of a read-only file mapping, to
// the kernel. The bytes stay the same: the next touch maps them again. An error would only mean
// that they stay resident.
func dropResident(part []byte) {
	if len(part) > 0 {
		_ = unix.Madvise(part, unix.MADV_DONTNEED)
	}
}
