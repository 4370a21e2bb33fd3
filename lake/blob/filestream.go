package blob

import (
	"context"
	"io"
	"os"
)

// fileStream is a stream of a file from off to end.
type fileStream struct {
	ctx      context.Context
	l        *Local
	key      string
	f        *os.File
	off, end int64
	// direct: reads of the file bypass the page cache now. refused: the file system does not
	// support that.
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
		err = io.ErrUnexpectedEOF // another program has truncated the file
	}
	return 0, s.l.fail("read", s.key, err)
}

// read reads at off. It bypasses the page cache for a large read of all that is left into an
// AlignedSlice. Such data is read once: a copy in the cache would cost more than the read and evict
// what a server on the same machine reads. Reads in several steps use the cache, because the system
// reads ahead.
func (s *fileStream) read(p []byte) (int, error) {
	if !s.refused && len(p) >= directRead && s.off+int64(len(p)) == s.end && (address(p)-s.off)&(directAlign-1) == 0 {
		s.direct = s.direct || setDirect(s.f, true)
		if s.direct {
			n, err := readDirect(s.f, p, s.off)
			if err == nil {
				return n, nil
			}
			// File systems reject direct reads with various errors. A read through the cache
			// succeeds, or fails again at the end of the file or a damaged disk.
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
