package membership

import (
	"io"
	"os"
)

// spillChunk is the unit in which a spill grows in memory and is written to its file.
const spillChunk = 256 << 10

// spill is a buffer that is written once and then read once: in memory, or in a temporary file when
// it outgrows that.
type spill struct {
	dir    string
	memory int // capacity in bytes before the file is used
	chunks [][]byte
	file   *os.File // holds what was written before chunks; nil if there is nothing
}

func (s *spill) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := len(s.chunks) - 1
		if n < 0 || len(s.chunks[n]) == cap(s.chunks[n]) {
			if err := s.grow(); err != nil {
				return 0, err
			}
			n = len(s.chunks) - 1
		}
		c := s.chunks[n]
		k := min(len(rest), cap(c)-len(c))
		s.chunks[n] = append(c, rest[:k]...)
		rest = rest[k:]
	}
	return len(p), nil
}

// grow adds an empty chunk, for which it first writes the chunks to the file if there are too many.
func (s *spill) grow() (err error) {
	if len(s.chunks) == 0 || s.file == nil && len(s.chunks)*spillChunk < s.memory {
		s.chunks = append(s.chunks, make([]byte, 0, spillChunk))
		return nil
	}
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "membership-*.tmp"); err != nil {
			return err
		}
		// Where the system can remove an open file, it goes when the process dies; elsewhere close
		// removes it.
		_ = os.Remove(s.file.Name())
	}
	for _, c := range s.chunks {
		if _, err := s.file.Write(c); err != nil {
			return err
		}
	}
	s.chunks = append(s.chunks[:0], s.chunks[0][:0])
	return nil
}

// copyTo writes the content to out.
func (s *spill) copyTo(out io.Writer) error {
	if s.file != nil {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, s.file); err != nil {
			return err
		}
	}
	for _, c := range s.chunks {
		if _, err := out.Write(c); err != nil {
			return err
		}
	}
	return nil
}

func (s *spill) close() {
	if s.file != nil {
		s.file.Close()
		_ = os.Remove(s.file.Name())
	}
	s.file, s.chunks = nil, nil
}
