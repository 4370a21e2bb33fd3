package partwriter

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/internal/prefetch"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// spool holds a part until its digest, and with it its key, is known: in memory while there is one
// row group, which is in memory anyway, in a temporary file from the second on.
type spool struct {
	blocks [][]byte // while there is no file
	file   *os.File
	size   int64
	xxh64  *xxhash.Digest
	xxh3   *xxh3.Hasher
}

func newSpool() *spool { return &spool{xxh64: xxhash.New(), xxh3: xxh3.New()} }

// write takes blocks over; free returns those of which it has copies.
func (s *spool) write(blocks ...[]byte) (free [][]byte, err error) {
	for _, b := range blocks {
		for piece := range prefetch.Chunks(b) { // pages that were made a row group ago
			s.xxh64.Write(piece)
			s.xxh3.Write(piece)
		}
		s.size += int64(len(b))
	}
	if s.file == nil {
		s.blocks = append(s.blocks, blocks...)
		return nil, nil
	}
	return blocks, writeBlocks(s.file, blocks)
}

func writeBlocks(w io.Writer, blocks [][]byte) error {
	for _, b := range blocks {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// toFile moves what is there to a file in dir. Its name is gone before there is a byte in it, so that no data is left
// however the process ends.
func (s *spool) toFile(dir string) (free [][]byte, err error) {
	file, err := os.CreateTemp(dir, "urlake-part-*")
	if err != nil {
		return nil, err
	}
	s.file = file
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	free, s.blocks = s.blocks, nil
	return free, writeBlocks(file, free)
}

// check reads the file back and compares what it says with what was written: a disk that lies is found here and not by a reader.
func (s *spool) check(want []part.PageIndexBlock) error {
	if s.file == nil {
		return nil
	}
	got, err := part.BuildPageIndex(s.file, s.size, "temporary file")
	if err != nil {
		return err
	}
	same := func(a, b part.PageIndexBlock) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }
	if !slices.EqualFunc(got, want, same) {
		return codec.Corrupt("temporary file", "pages", -1, "the pages that were written", "others")
	}
	return nil
}

// copyTo writes everything to out and compares its hash on the way.
func (s *spool) copyTo(out io.Writer) error {
	if s.file == nil {
		return writeBlocks(out, s.blocks)
	}
	sum := xxhash.New()
	if _, err := io.CopyBuffer(onlyWriter{io.MultiWriter(out, sum)}, io.NewSectionReader(s.file, 0, s.size), make([]byte, 1<<20)); err != nil {
		return err
	}
	if want, got := s.xxh64.Sum64(), sum.Sum64(); got != want {
		return codec.Corrupt("temporary file", "upload", -1, fmt.Sprintf("xxh64 %016x", want), fmt.Sprintf("%016x", got))
	}
	return nil
}

// onlyWriter hides ReadFrom, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// close gives up what is there, if any is left. It returns the blocks that were in memory.
func (s *spool) close() (free [][]byte) {
	if s.file != nil {
		s.file.Close() // nobody has use for what could not be written
	}
	free, s.blocks = s.blocks, nil
	return free
}
