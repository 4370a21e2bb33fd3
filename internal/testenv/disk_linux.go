package testenv

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of that many bytes until the end of the test, and returns its
// folder. A test whose user may not mount is skipped, everywhere: few users may.
func SmallDisk(tb testing.TB, bytes int) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(bytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		tb.Skip("needs the right to mount a file system")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// FillDisk writes to a file system until only that many bytes are free, and returns what frees them
// again.
func FillDisk(tb testing.TB, dir string, free int) (undo func()) {
	tb.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		tb.Fatal(err)
	}
	n := int(st.Bavail)*int(st.Bsize) - free
	name := filepath.Join(dir, "filler")
	if n > 0 {
		if err := os.WriteFile(name, make([]byte, n), 0o666); err != nil {
			tb.Fatal(err)
		}
	}
	return func() {
		if err := os.RemoveAll(name); err != nil {
			tb.Fatal(err)
		}
	}
}

// MakeReadOnly lets nothing be written any more to the file system of SmallDisk, or lets it again.
func MakeReadOnly(tb testing.TB, dir string, readOnly bool) {
	tb.Helper()
	flags := uintptr(syscall.MS_REMOUNT)
	if readOnly {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, ""); err != nil {
		tb.Fatal(err)
	}
}
