package lookup

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sort"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// searchDomain returns the ordinal of the first domain of a segment that is not before text, the
// number of domains if there is none. It reads through the cache some log₂ of the number of frames.
func searchDomain(ctx context.Context, seg *segment.Segment, text []byte) (ordinal uint32, err error) {
	at := sort.Search(int(seg.Info().Domains), func(i int) bool {
		if err != nil {
			return true
		}
		var name string
		name, err = seg.Domain(ctx, uint32(i))
		return name >= string(text)
	})
	return uint32(at), err
}

// domainScan reads the domains of a segment in order. It is for one goroutine, and has to be
// closed.
type domainScan struct {
	seg  *segment.Segment
	next int64 // the ordinal of the next domain
	// frame is what was read last, and at the next line in it.
	frame segment.DomainFrame
	at    int
	// pull returns the next frame if the whole segment is read. Otherwise frames are read one by
	// one through the cache.
	pull func() (segment.DomainFrame, error, bool)
	stop func()
}

// scanDomains returns a scan from an ordinal on. Whole is for scans that will read most of the
// segment: they bypass the cache. Nothing is read before the first call of domain.
func scanDomains(ctx context.Context, seg *segment.Segment, from uint32, whole bool) *domainScan {
	s := &domainScan{seg: seg, next: int64(from)}
	if whole {
		s.pull, s.stop = iter.Pull2(seg.DomainFrames(ctx, from, seg.Info().Domains))
	}
	return s
}

func (s *domainScan) close() {
	if s != nil && s.stop != nil {
		s.stop()
	}
}

// domain returns the next domain, or nil at the end. It is valid until the next call.
func (s *domainScan) domain(ctx context.Context) (name []byte, err error) {
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
func (s *domainScan) read(ctx context.Context) (err error) {
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
	s.frame.First, s.frame.Text, s.frame.Ends, s.at = s.next, s.frame.Text[:0], s.frame.Ends[:0], 0
	end := min(s.next-s.next%segment.DomainsPerFrame+segment.DomainsPerFrame, s.seg.Info().Domains)
	ordinals := make([]uint32, 0, end-s.next)
	for i := s.next; i < end; i++ {
		ordinals = append(ordinals, uint32(i))
	}
	var text bytes.Buffer
	err = s.seg.DomainsAt(ctx, ordinals, func(_ int, domain []byte) {
		text.Write(domain)
		text.WriteByte('\n')
		s.frame.Ends = append(s.frame.Ends, uint32(text.Len()))
	})
	s.frame.Text = text.Bytes()
	return err
}
