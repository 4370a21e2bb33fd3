package indexbuild

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/zeebo/xxh3"
)

// slab holds domains in their order, each once, with what is known of them: what comes out when sources are merged.
type slab struct {
	text    []byte   // a domain a line
	ends    []uint32 // of the lines
	vals    []byte   // of each domain records as record.append makes them, by dataset
	valEnds []uint32
}

func (s *slab) len() int { return len(s.ends) }

func (s *slab) domain(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = s.ends[i-1]
	}
	return s.text[start : s.ends[i]-1]
}

func (s *slab) val(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = s.valEnds[i-1]
	}
	return s.vals[start:s.valEnds[i]]
}

// spooled yields what was written of a merged list.
type spooled struct {
	spool *keysort.Spool
	at    []spooledBlock
	buf   []byte
}

// spooledBlock is a block in a spool.
type spooledBlock struct {
	keysort.Extent
	sum uint64 // xxh3
}

// write appends a slab of the list.
func (s *spooled) write(w *postings.BlockWriter, sl *slab) error {
	s.buf = s.buf[:0]
	for i := range sl.ends {
		var ok bool
		if s.buf, ok = w.Add(s.buf, sl.domain(i), sl.val(i)); !ok {
			return fmt.Errorf("merge: %q after %q", sl.domain(i), w.Last)
		}
	}
	s.buf = w.End(s.buf)
	at, err := s.spool.Write(s.buf)
	s.at = append(s.at, spooledBlock{at, xxh3.Hash(s.buf)})
	return err
}

// load reads what write wrote. Its bytes are this process's own, and a hash tells if the disk has changed them.
func (s *spooled) Load(_ context.Context, buf []byte) ([]byte, error) {
	if len(s.at) == 0 {
		return nil, nil
	}
	b := s.at[0]
	s.at, s.buf = s.at[1:], nil
	buf, err := s.spool.Read(b.Extent, buf)
	if err != nil {
		return nil, err
	}
	if xxh3.Hash(buf) != b.sum {
		return nil, fmt.Errorf("read %s: bytes at %d are not what was written", s.spool.File.Name(), b.Off)
	}
	return buf, nil
}
