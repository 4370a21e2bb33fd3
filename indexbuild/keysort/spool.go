package keysort

import (
	"fmt"
	"os"
	"slices"
)

// Spool is a temporary file to which blocks of bytes are appended, and from which they are read
// back. Write is for one goroutine; Read may be called from several at once.
type Spool struct {
	file *os.File
	size int64
}

// Extent is a range of bytes of a Spool.
type Extent struct{ Offset, Bytes int64 }

// NewSpool creates a Spool in dir; "" is the system's temporary folder.
func NewSpool(dir string) (*Spool, error) {
	f, err := os.CreateTemp(dir, "sort-*.tmp")
	if err != nil {
		return nil, err
	}
	// Without a name the file disappears with the process. Where an open file cannot be removed,
	// Close removes it.
	_ = os.Remove(f.Name())
	return &Spool{file: f}, nil
}

// Close removes the file. It does nothing on a nil Spool.
func (s *Spool) Close() {
	if s == nil {
		return
	}
	s.file.Close()
	_ = os.Remove(s.file.Name())
}

// Name returns the file's name, for errors.
func (s *Spool) Name() string { return s.file.Name() }

// Write appends b.
func (s *Spool) Write(b []byte) (Extent, error) {
	e := Extent{s.size, int64(len(b))}
	_, err := s.file.WriteAt(b, s.size)
	s.size += int64(len(b))
	return e, err
}

// Read reads e into buf, or into new memory if buf is too small.
func (s *Spool) Read(e Extent, buf []byte) ([]byte, error) {
	buf = slices.Grow(buf[:0], int(e.Bytes))[:e.Bytes]
	if _, err := s.file.ReadAt(buf, e.Offset); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name(), err)
	}
	return buf, nil
}
