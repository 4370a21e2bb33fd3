package blob

import (
	"context"
	"io"
	"os"
	"unsafe"
)

// directRead is the size from which on reads go past the page cache: as large as reads of a spinning or remote disk have to be to be worth their while.
const directRead = 256 << 10

// PlaceRoom is how much more memory than n bytes Place may take.
const PlaceRoom = directAlign

// Place returns n bytes of buf, which has PlaceRoom more, as the memory for an object's bytes from off on. It lies in its pages as they do in the object's:
// what is read into it at once from a local store need not be copied there (see Store.Open).
func Place(buf []byte, off, n int64) []byte {
	skip := (off - address(buf)) & (directAlign - 1)
	return buf[skip:][:n:n]
}

// NewPlace is Place in new memory, which has no room to spare where reads of n bytes go through the page cache anyhow.
func NewPlace(off, n int64) []byte {
	if n < directRead {
		return make([]byte, n)
	}
	return Place(make([]byte, n+PlaceRoom), off, n)
}

// address is only looked at.
func address(b []byte) int64 { return int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// fileStream reads a file from off to end.
type fileStream struct {
	ctx      context.Context
	l        *Local
	key      string
	f        *os.File
	off, end int64
	// direct says that the file is set to reads that go past the page cache, refused that it knows none.
	direct, refused bool
}

func (s *fileStream) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if s.off == s.end {
		return 0, io.EOF
	}
	n, err := s.read(p[:min(int64(len(p)), s.end-s.off)])
	s.off += int64(n)
	if n > 0 || err == nil {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // truncated in place by other means
	}
	return 0, s.l.fail("read", s.key, err)
}

// read reads at off. Large reads of all that is left, into memory that lies in its pages as the bytes do in the file's, go past the page cache: they are of what is read
// once, and a copy in memory would cost more than the read, and push out what a server on the same machine reads. Who reads piece by piece into a buffer, which may lie so by
// chance, has the system read ahead.
func (s *fileStream) read(p []byte) (int, error) {
	if !s.refused && len(p) >= directRead && s.off+int64(len(p)) == s.end && (address(p)-s.off)&(directAlign-1) == 0 {
		s.direct = s.direct || setDirect(s.f, true)
		if s.direct {
			n, err := readDirect(s.f, p, s.off)
			if err == nil {
				return n, nil
			}
			// Whatever it is, the end included, a read through the cache mends it or says it again: file systems refuse direct reads with errors of their own.
		}
		s.refused = true
	}
	if s.direct {
		s.direct = false
		setDirect(s.f, false)
	}
	return s.f.ReadAt(p, s.off)
}

func (s *fileStream) Close() error { return s.f.Close() }
