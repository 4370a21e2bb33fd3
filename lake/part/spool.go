package part

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/codec"
)

// spool holds the open part until its digest, and so its key, is known. The first row group stays
// in memory, where it was encoded. When the second begins, the part moves to a temporary file.
type spool struct {
	blocks [][]byte // the content while file is nil
	file   *os.File
	size   int64
	xxh64  *xxhash.Digest
	xxh3   *xxh3.Hasher
}

func newSpool() *spool { return &spool{xxh64: xxhash.New(), xxh3: xxh3.New()} }

// write appends blocks and takes ownership of them. It returns those that it does not need any
// more.
func (s *spool) write(blocks ...[]byte) (free [][]byte, err error) {
	for _, b := range blocks {
		s.xxh64.Write(b)
		s.xxh3.Write(b)
		s.size += int64(len(b))
	}
	if s.file == nil {
		s.blocks = append(s.blocks, blocks...)
		return nil, nil
	}
	return blocks, writeBlocks(s.file, blocks)
}

// writeBlocks writes all blocks to w.
func writeBlocks(w io.Writer, blocks [][]byte) error {
	for _, b := range blocks {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// toFile moves the content to a temporary file in dir and returns the blocks that are free then.
// The file is removed from dir before anything is written, so no data is left there however the
// process ends.
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

// check reads the temporary file back and compares its page index with the one that was written, so
// that a faulty disk is noticed before a reader depends on the part.
func (s *spool) check(want []PageIndexBlock) error {
	if s.file == nil {
		return nil
	}
	got, err := BuildPageIndex(s.file, s.size, "temporary file")
	if err != nil {
		return err
	}
	same := func(a, b PageIndexBlock) bool { return bytes.Equal(a.Append(nil), b.Append(nil)) }
	if !slices.EqualFunc(got, want, same) {
		return codec.Corrupt("temporary file", "pages", -1, "the pages that were written", "others")
	}
	return nil
}

// copyTo writes the content to out. If it comes from the file, copyTo verifies its hash.
func (s *spool) copyTo(out io.Writer) error {
	if s.file == nil {
		return writeBlocks(out, s.blocks)
	}
	sum := xxhash.New()
	to, from := onlyWriter{io.MultiWriter(out, sum)}, io.NewSectionReader(s.file, 0, s.size)
	if _, err := io.CopyBuffer(to, from, make([]byte, 1<<20)); err != nil {
		return err
	}
	if want, got := s.xxh64.Sum64(), sum.Sum64(); got != want {
		return codec.Corrupt("temporary file", "upload", -1,
			fmt.Sprintf("xxh64 %016x", want), fmt.Sprintf("%016x", got))
	}
	return nil
}

// onlyWriter hides ReadFrom, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }

// close drops the content and returns the blocks that were in memory.
func (s *spool) close() (free [][]byte) {
	if s.file != nil {
		s.file.Close() // an error does not matter: the content is dropped or stored
	}
	free, s.blocks = s.blocks, nil
	return free
}
