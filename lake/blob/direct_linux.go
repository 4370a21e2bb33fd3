package blob

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// setDirect switches direct reads and writes of a file (O_DIRECT), which bypass the page cache, on
// or off. It reports whether they are on now.
func setDirect(f *os.File, on bool) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	_ = conn.Control(func(fd uintptr) {
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

// edges holds memory for the first and the last page of direct reads, if only a part of them is
// read.
var edges = sync.Pool{New: func() any {
	b := make([]byte, 2*directAlign+AlignSlack)
	return (*[2 * directAlign]byte)(AlignedSlice(b, 0, 2*directAlign))
}}

// readDirect reads at off from a file with direct reads into p, an AlignedSlice of at least one
// page. It may return fewer bytes than p has. Direct reads are of whole pages. The first and the
// last page, if p has only a part of them, are read into memory beside it.
func readDirect(f *os.File, p []byte, off int64) (n int, err error) {
	edge := edges.Get().(*[2 * directAlign]byte)
	defer edges.Put(edge)
	first, last := edge[:directAlign], edge[directAlign:]
	skip := int(off & (directAlign - 1))
	rest := p
	var pieces [][]byte
	if skip > 0 {
		pieces = append(pieces, first)
		rest = p[directAlign-skip:]
	}
	whole := len(rest) &^ (directAlign - 1)
	if whole > 0 {
		pieces = append(pieces, rest[:whole])
	}
	if whole < len(rest) {
		pieces = append(pieces, last)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := conn.Control(func(fd uintptr) {
		for n, err = unix.Preadv(int(fd), pieces, off-int64(skip)); errors.Is(err, unix.EINTR); {
			n, err = unix.Preadv(int(fd), pieces, off-int64(skip))
		}
	}); cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	if n <= skip {
		return 0, io.EOF
	}
	if skip > 0 {
		copy(p, first[skip:])
	}
	copy(rest[whole:], last)
	return min(n-skip, len(p)), nil
}
