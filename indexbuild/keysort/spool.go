package keysort

import (
	"fmt"
	"os"
	"slices"
)

// spool keeps slabs and partitions in one temporary file. It is for one goroutine, but for reading.
type Spool struct {
	File *os.File
	size int64
}

// extent is a place in a spool.
type Extent struct{ Off, n int64 }

func NewSpool(dir string) (*Spool, error) {
	f, err := os.CreateTemp(dir, "sort-*.tmp")
	if err != nil {
		return nil, err
	}
	// Without its name the file is gone when the process dies. Where that is not allowed,
	// close removes it.
	_ = os.Remove(f.Name())
	return &Spool{File: f}, nil
}

func (s *Spool) Close() {
	if s == nil {
		return
	}
	s.File.Close()
	_ = os.Remove(s.File.Name())
}

// write appends b.
func (s *Spool) Write(b []byte) (Extent, error) {
	at := Extent{s.size, int64(len(b))}
	_, err := s.File.WriteAt(b, s.size)
	s.size += int64(len(b))
	return at, err
}

// read reads e into b, whose memory it uses.
func (s *Spool) Read(e Extent, b []byte) ([]byte, error) {
	b = slices.Grow(b[:0], int(e.n))[:e.n]
	if _, err := s.File.ReadAt(b, e.Off); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.File.Name(), err)
	}
	return b, nil
}
