package segment

import (
	"bytes"
	"fmt"
	"io"
	"sort"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// version is the version of domains.starts.
const version = 1

// startsFrame is how many bytes of text a frame of domains.starts holds, and at most a line more.
const startsFrame = 64 << 10

// Starts collects where the frames of domains.txt begin: for each the shortest beginning of
// its first domain that is after all domains of the frames before. That of the first frame is
// empty. The zero value has none.
type Starts struct {
	text []byte   // of all starts
	ends []uint32 // at which they end in text
}

// add adds the start of a frame whose first domain is first. Before is the last domain of the frame
// before, empty if there is none.
func (s *Starts) add(before, first []byte) {
	n := 0
	if len(before) > 0 {
		for n < len(before) && before[n] == first[n] {
			n++
		}
		n++
	}
	s.text = append(s.text, first[:n]...)
	s.ends = append(s.ends, uint32(len(s.text)))
}

// Len is the number of frames.
func (s *Starts) Len() int { return len(s.ends) }

// At is the start of frame i.
func (s *Starts) At(i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = s.ends[i-1]
	}
	return s.text[from:s.ends[i]]
}

// Write writes domains.starts.zst.
func (s *Starts) Write(w io.Writer) (seekable.File, error) {
	fw := seekable.NewWriter(w, 0)
	var text []byte
	for i := range s.Len() {
		if text = append(append(text, s.At(i)...), '\n'); len(text) >= startsFrame || i == s.Len()-1 {
			if _, _, err := fw.Frame(nil, text); err != nil {
				return seekable.File{}, err
			}
			text = text[:0]
		}
	}
	return fw.Finish()
}

// Find returns the frames [lo, hi) that may have domains from start on that begin with prefix.
func (s *Starts) Find(start, prefix string) (lo, hi int) {
	lo = max(0, sort.Search(s.Len(), func(i int) bool { return string(s.At(i)) > start })-1)
	// A frame behind the prefix starts neither with a name before it nor with one that has it.
	hi = sort.Search(s.Len(), func(i int) bool {
		at := s.At(i)
		return string(at) > prefix && !bytes.HasPrefix(at, []byte(prefix))
	})
	return lo, max(lo, hi)
}

// MemoryBytes is the memory that s takes.
func (s *Starts) MemoryBytes() int64 { return int64(cap(s.text) + 4*cap(s.ends)) }

// parseStarts reads the frames of domains.starts, which must have a line for each of so many frames
// of domains.txt.
func parseStarts(texts [][]byte, file string, frames int) (*Starts, error) {
	s := &Starts{ends: make([]uint32, 0, frames)}
	for i, text := range texts {
		for line := range bytes.Lines(text) {
			start, whole := bytes.CutSuffix(line, []byte{'\n'})
			first := s.Len() == 0
			if !whole || len(start) > maxDomain || first != (len(start) == 0) || !first && bytes.Compare(start, s.At(s.Len()-1)) <= 0 {
				const want = "starts of frames in order, an empty one first"
				return nil, codec.Corrupt(file, fmt.Sprintf("frame %d", i), -1, want, strconv.Quote(string(line)))
			}
			s.text = append(s.text, start...)
			s.ends = append(s.ends, uint32(len(s.text)))
		}
	}
	if s.Len() != frames {
		return nil, codec.Corrupt(file, "lines", -1, fmt.Sprintf("%d", frames), s.Len())
	}
	return s, nil
}
