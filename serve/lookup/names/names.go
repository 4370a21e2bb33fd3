// Package names searches and lists the domains of a segment by name. They are in frames of
// segment.DomainsPerFrame each, and nothing in memory says which names a frame has.
package names

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// searchRounds is how many rounds of reads a search takes at most, in a segment of any size.
	searchRounds = 3
	// leastProbes is how many frames a round reads at once, if there are as many. It reads more
	// only where searchRounds would not suffice: 46 of 100,000 frames, 162 in the largest segment.
	leastProbes = 8
	// readAhead is how many frames a Scan reads at once at most.
	readAhead = 16
)

// Search returns the ordinal of the first domain of a segment that is not before text, the number
// of domains if there is none. It reads through the cache.
func Search(ctx context.Context, seg *segment.Segment, text string) (uint32, error) {
	domains := seg.Info().Domains
	first := func(ctx context.Context, frame int) (string, error) {
		return seg.Domain(ctx, uint32(frame*segment.DomainsPerFrame))
	}
	frame, err := search(ctx, int((domains+segment.DomainsPerFrame-1)/segment.DomainsPerFrame), text, first)
	if err != nil || frame < 0 {
		return 0, err
	}
	at := int64(frame) * segment.DomainsPerFrame
	found := min(at+segment.DomainsPerFrame, domains)
	err = seg.DomainsAt(ctx, ordinals(at, found), func(i int, domain []byte) {
		if at+int64(i) < found && string(domain) >= text {
			found = at + int64(i)
		}
	})
	return uint32(found), err
}

// search returns the last frame whose first name is before text, -1 if there is none. Each round
// reads the first names of some frames at once.
func search(ctx context.Context, frames int, text string, first func(ctx context.Context, frame int) (string, error)) (int, error) {
	lo, hi := -1, frames // the frame is at least lo, and before hi
	for left := searchRounds; hi-lo > 1; left-- {
		between := hi - lo - 1
		probes := min(between, max(leastProbes, int(math.Ceil(math.Pow(float64(between+1), 1/float64(max(left, 1)))))))
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
			return 0, err
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
	return lo, nil
}

// ordinals are those from one on and before another.
func ordinals(from, end int64) []uint32 {
	all := make([]uint32, 0, end-from)
	for i := from; i < end; i++ {
		all = append(all, uint32(i))
	}
	return all
}

// Scan reads the domains of a segment in order. It is for one goroutine, and has to be closed.
type Scan struct {
	seg  *segment.Segment
	next int64 // the ordinal of the next domain
	// frame is what was read last, and at the next line in it.
	frame segment.DomainFrame
	at    int
	// ahead is how many frames are read at once.
	ahead int64
	// pull returns the next frame if the whole segment is read. Otherwise frames are read through
	// the cache.
	pull func() (segment.DomainFrame, error, bool)
	stop func()
}

// NewScan returns a scan from an ordinal on. Whole is for scans that will read most of the segment:
// they bypass the cache. Nothing is read before the first call of Next.
func NewScan(ctx context.Context, seg *segment.Segment, from uint32, whole bool) *Scan {
	s := &Scan{seg: seg, next: int64(from), ahead: 1}
	if whole {
		s.pull, s.stop = iter.Pull2(seg.DomainFrames(ctx, from, seg.Info().Domains))
	}
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
	if s.next >= s.seg.Info().Domains {
		return nil, nil
	}
	if s.at == len(s.frame.Ends) {
		if err := s.read(ctx); err != nil {
			return nil, err
		}
	}
	name = s.frame.Domain(s.at)
	s.at++
	s.next++
	return name, nil
}

// read reads the frame that has the next domain.
func (s *Scan) read(ctx context.Context) (err error) {
	if s.pull != nil {
		frame, err, ok := s.pull()
		if err == nil && !ok {
			err = codec.Corrupt(segment.Prefix(s.seg.Info().Segment)+segment.DomainsName, "frames", -1,
				fmt.Sprintf("%d domains", s.seg.Info().Domains), s.next)
		}
		if err != nil {
			return err
		}
		s.frame, s.at = frame, int(s.next-frame.First)
		return nil
	}
	end := min((s.next/segment.DomainsPerFrame+s.ahead)*segment.DomainsPerFrame, s.seg.Info().Domains)
	if s.ahead > 1 {
		group, groupCtx := errgroup.WithContext(ctx)
		for i := s.next; i < end; i += segment.DomainsPerFrame {
			group.Go(func() error {
				_, err := s.seg.Domain(groupCtx, uint32(i))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	s.ahead = min(2*s.ahead, readAhead)
	s.frame.First, s.frame.Text, s.frame.Ends, s.at = s.next, s.frame.Text[:0], s.frame.Ends[:0], 0
	var text bytes.Buffer
	err = s.seg.DomainsAt(ctx, ordinals(s.next, end), func(_ int, domain []byte) {
		text.Write(domain)
		text.WriteByte('\n')
		s.frame.Ends = append(s.frame.Ends, uint32(text.Len()))
	})
	s.frame.Text = text.Bytes()
	return err
}
