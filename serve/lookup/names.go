package lookup

// The domains of segments are listed by name or by reversed name, from any name on. They are in
// frames of segment.DomainsPerFrame each. What a segment has in memory says where each frame
// begins.

import (
	"bytes"
	"context"
	"iter"

	"github.com/urlake/urlake/indexbuild/segment"
)

// walkReadAhead is how many frames a Scan reads at once at most, after the first read.
const walkReadAhead = 16

// nameQuery says which domains a Scan is for: those of the range that begin with its prefix. Scan
// may return others.
type nameQuery struct {
	Range
	// Start is the name before which none is wanted.
	Start string
	// Most is how many domains are wanted, as far as that is known. The first read has them.
	Most int
	// Whole is for scans that will read most of what may have the prefix. Unless that is little,
	// they bypass the cache.
	Whole bool
	// Yield is called between two pieces of longer work. An error ends it.
	Yield func(ctx context.Context) error
}

// nameScan reads the domains of a segment in order. It is for one goroutine, and has to be closed.
type nameScan struct {
	list   *segment.Names
	q      nameQuery
	opened bool
	next   int // the next frame that is read
	frames int // where the frames end that may have domains
	ahead  int // how many are read at once

	text  []byte   // the lines that are left of a frame
	texts [][]byte // the frames after it that were read

	// pull returns the next frame if the whole segment is read. Otherwise frames are read through
	// the cache.
	whole context.Context
	pull  func() (segment.DomainFrame, error, bool)
	stop  func()
}

// newNameScan returns a scan. Nothing is read before the first call of Next. A scan of the whole
// segment reads until ctx ends.
func newNameScan(ctx context.Context, seg *segment.Segment, q nameQuery) *nameScan {
	s := &nameScan{list: seg.Names(), q: q, whole: ctx}
	if q.Reversed {
		s.list = seg.Reversed()
	}
	s.frames = s.list.Len()
	return s
}

// Close ends the scan.
func (s *nameScan) Close() {
	if s != nil && s.stop != nil {
		s.stop()
	}
}

// Next returns the next domain, or nil at the end. It is valid until the next call.
func (s *nameScan) Next(ctx context.Context) (name []byte, err error) {
	if !s.opened {
		s.open()
		s.opened = true
	}
	for {
		for len(s.text) == 0 {
			if more, err := s.read(ctx); err != nil || !more {
				return nil, err
			}
		}
		name, s.text, _ = bytes.Cut(s.text, []byte{'\n'})
		if string(name) >= s.q.Start {
			return name, nil
		}
	}
}

// open finds the frames that are read first.
func (s *nameScan) open() {
	lo, hi := 0, min(1, s.frames)
	has := segment.DomainsPerFrame // domains that the first frame has at least
	if s.q.Start != "" {
		has = 1
		lo, s.frames = s.list.Starts().Find(s.q.Start, s.q.Prefix)
		hi = min(lo+1, s.frames)
	}
	if s.q.Whole && s.frames-lo <= walkReadAhead {
		hi = s.frames
	} else if s.q.Whole {
		end := int64(s.frames) * segment.DomainsPerFrame
		s.pull, s.stop = iter.Pull2(s.list.Frames(s.whole, uint32(lo*segment.DomainsPerFrame), end))
		return
	}
	after := (max(s.q.Most-has, 0) + segment.DomainsPerFrame - 1) / segment.DomainsPerFrame
	s.next, s.ahead = lo, hi-lo+after
}

// read goes on to the next frame, and reports whether there is one.
func (s *nameScan) read(ctx context.Context) (more bool, err error) {
	if s.pull != nil {
		frame, err, ok := s.pull()
		s.text = frame.Text
		return ok, err
	}
	if len(s.texts) == 0 {
		end := min(s.next+s.ahead, s.frames)
		if s.next == end {
			return false, nil
		}
		if s.texts, err = s.list.Texts(ctx, s.next, end); err != nil {
			return false, err
		}
		s.next, s.ahead = end, min(2*s.ahead, walkReadAhead)
	}
	s.text, s.texts = s.texts[0], s.texts[1:]
	return true, nil
}
