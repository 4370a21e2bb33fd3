package postgres

import (
	"bytes"
	"io"
	"os"
)

// spoolMemory is how much of a spool is kept in memory.
const spoolMemory = 4 << 20

// spool keeps rows of a binary COPY that is made after another one: in memory while they are few,
// then in a temporary file.
type spool struct {
	dir    string // of the file, "" is the system's
	buf    []byte
	file   *os.File
	filled bool
}

// flush moves the rows to the file if they are many.
func (s *spool) flush() error {
	if len(s.buf) < spoolMemory {
		return nil
	}
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "export-rows-")
		if err != nil {
			return err
		}
		s.file = f
		os.Remove(f.Name()) // it lives until it is closed; where that fails, close removes it
	}
	_, err := s.file.Write(s.buf)
	s.buf, s.filled = s.buf[:0], true
	return err
}

// empty reports whether there are no rows.
func (s *spool) empty() bool { return len(s.buf) == 0 && !s.filled }

// reader returns the complete COPY.
func (s *spool) reader() (io.Reader, error) {
	parts := []io.Reader{bytes.NewReader(copyHeader)}
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		parts = append(parts, s.file)
	}
	return io.MultiReader(append(parts, bytes.NewReader(s.buf), bytes.NewReader(copyTrailer))...), nil
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
		os.Remove(s.file.Name())
	}
}
