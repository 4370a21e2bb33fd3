package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// setDirect has writes of a file go past the page cache, or through it again, and reports whether they go past it.
func setDirect(f *os.File, on bool) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	conn.Control(func(fd uintptr) {
		flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
		if err != nil {
			return
		}
		flags &^= unix.O_DIRECT
		if on {
			flags |= unix.O_DIRECT
		}
		_, err = unix.FcntlInt(fd, unix.F_SETFL, flags)
		ok = on && err == nil
	})
	return ok
}
