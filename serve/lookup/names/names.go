// Package names lists the domains of segments by name or by reversed name, from any name on. They
// are in frames of segment.DomainsPerFrame each. What a segment has in memory says where each frame
// begins. Segments of earlier versions of urlake do not have that, and are searched. Those that
// lack the reversed names are read as a whole for them.
package names

import (
	"bytes"
	"context"
	"iter"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
)

const (
	// searchRounds is how many rounds of reads a search takes at most, in a segment of any size.
	searchRounds = 3
	// leastProbes is how many frames a round reads at once, if there are as many. It reads more
	// only where searchRounds would not suffice: 19 of 100,000 frames, 64 in the largest segment.
	leastProbes = 8
	// oneRead is how many frames are read rather than searched: some 80 KB.
	oneRead = 16
	// readAhead is how many frames a Scan reads at once at most, after the first read.
	readAhead = 16
)

// search returns frames [lo, hi), at most oneRead, among which is the last one whose first name is
// before text, if there is one. Each round reads the first names of some frames at once.
func search(
	ctx context.Context, frames int, text string, first func(ctx context.Context, frame int) (string, error),
) (lo, hi int, err error) {
	lo, hi = 0, frames
	for left := searchRounds; hi-lo > oneRead; left-- {
		between := hi - lo - 1
		reads := float64(between+1) / oneRead
		probes := min(between, max(leastProbes, int(math.Ceil(math.Pow(reads, 1/float64(max(left, 1)))))))
		at := func(i int) int { return lo + 1 + i*between/probes }
		before := make([]bool, probes)
		group, groupCtx := errgroup.WithContext(ctx)
		for i := range probes {
			group.Go(func() error {
				name, err := first(groupCtx, at(i))
				before[i] = err == nil && name < text
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return 0, 0, err
		}
		n := 0
		for n < probes && before[n] {
			n++
		}
		from, end := lo, hi
		if n > 0 {
			from = at(n - 1)
		}
		if n < probes {
			end = at(n)
		}
		lo, hi = from, end
	}
	return lo, hi, nil
}

// Query says which domains a Scan is for: those of the range that begin with its prefix. Scan may
// return others.
type Query struct {
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

// Scan reads the domains of a segment in order. It is for one goroutine, and has to be closed.
type Scan struct {
	list   *segment.Names
	q      Query
	sift   *sift // of a segment without the list that is wanted
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

// NewScan returns a scan. Nothing is read before the first call of Next. A scan of the whole
// segment reads until ctx ends.
func NewScan(ctx context.Context, seg *segment.Segment, q Query) *Scan {
	s := &Scan{list: seg.Names(), q: q, whole: ctx}
	if q.Reversed {
		if s.list = seg.Reversed(); s.list == nil {
			return &Scan{sift: newSift(seg, q)}
		}
	}
	s.frames = s.list.Len()
	return s
}

// Close ends the scan.
func (s *Scan) Close() {
	if s != nil && s.stop != nil {
		s.stop()
	}
}

// Next returns the next domain, or nil at the end. It is valid until the next call.
func (s *Scan) Next(ctx context.Context) (name []byte, err error) {
	if s.sift != nil {
		return s.sift.next(ctx)
	}
	if !s.opened {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
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
func (s *Scan) open(ctx context.Context) (err error) {
	lo, hi := 0, min(1, s.frames)
	has := segment.DomainsPerFrame // domains that the first frame has at least
	if s.q.Start != "" {
		has = 1
		if starts := s.list.Starts(); starts != nil {
			lo, s.frames = starts.Find(s.q.Start, s.q.Prefix)
			hi = min(lo+1, s.frames)
		} else if lo, hi, err = s.search(ctx); err != nil {
			return err
		}
	}
	if s.q.Whole && s.frames-lo <= readAhead {
		hi = s.frames
	} else if s.q.Whole {
		end := int64(s.frames) * segment.DomainsPerFrame
		s.pull, s.stop = iter.Pull2(s.list.Frames(s.whole, uint32(lo*segment.DomainsPerFrame), end))
		return nil
	}
	after := (max(s.q.Most-has, 0) + segment.DomainsPerFrame - 1) / segment.DomainsPerFrame
	s.next, s.ahead = lo, hi-lo+after
	return nil
}

// search finds the frames that may have the first domain, where nothing in memory says which.
func (s *Scan) search(ctx context.Context) (lo, hi int, err error) {
	return search(ctx, s.frames, s.q.Start, func(ctx context.Context, frame int) (string, error) {
		texts, err := s.list.Texts(ctx, frame, frame+1)
		if err != nil {
			return "", err
		}
		name, _, _ := bytes.Cut(texts[0], []byte{'\n'})
		return string(name), nil
	})
}

// read goes on to the next frame, and reports whether there is one.
func (s *Scan) read(ctx context.Context) (more bool, err error) {
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
		s.next, s.ahead = end, min(2*s.ahead, readAhead)
	}
	s.text, s.texts = s.texts[0], s.texts[1:]
	return true, nil
}
