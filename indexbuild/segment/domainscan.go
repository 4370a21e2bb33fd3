package segment

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// SearchDomain returns the ordinal of the first domain that is not before text, the number of
// domains if there is none. It reads through the cache some log₂ of the number of frames.
func (s *Segment) SearchDomain(ctx context.Context, text []byte) (uint32, error) {
	lo, hi := 0, s.domains.Len() // the first frame that starts after text is in [lo, hi]
	for lo < hi {
		mid := (lo + hi) / 2
		data, err := s.domains.frame(ctx, s.cache, mid)
		if err != nil {
			return 0, err
		}
		first, _, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			return 0, codec.Corrupt(s.domains.key, frameSection(mid), -1, "a line", "none")
		}
		if bytes.Compare(first, text) > 0 {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == 0 {
		return 0, nil
	}
	data, err := s.domains.frame(ctx, s.cache, lo-1)
	if err != nil {
		return 0, err
	}
	ordinal := int64(lo-1) * DomainsPerFrame
	for len(data) > 0 {
		domain, rest, _ := bytes.Cut(data, []byte{'\n'})
		if bytes.Compare(domain, text) >= 0 {
			break
		}
		data = rest
		ordinal++
	}
	if ordinal > s.info.Domains {
		return 0, codec.Corrupt(s.domains.key, frameSection(lo-1), -1, fmt.Sprintf("%d domains in all", s.info.Domains), "more")
	}
	return uint32(ordinal), nil
}

// scanAhead is the largest number of frames that a DomainScan through the cache reads at once.
const scanAhead = 16

// DomainScan reads the domains of a segment in order. It is for one goroutine.
type DomainScan struct {
	s       *Segment
	whole   bool     // bypass the cache and read much at once
	frame   int      // the next to be read
	ahead   int      // how many frames are read next
	read    [][]byte // frames that come before it
	text    []byte   // what is left of the current frame
	ordinal int64    // of the next domain
	skip    int      // domains at the beginning of the first frame
	last    []byte
}

// ScanDomains returns a scan from an ordinal on. Whole is for scans that will read most of the
// segment: they bypass the cache. Nothing is read before the first Next.
func (s *Segment) ScanDomains(from uint32, whole bool) *DomainScan {
	frame := int(from / DomainsPerFrame)
	return &DomainScan{
		s: s, whole: whole, frame: frame, ahead: 1, skip: int(from % DomainsPerFrame), ordinal: int64(frame) * DomainsPerFrame,
	}
}

// Next returns the next domain and its ordinal, or nil at the end. The domain must not be changed.
func (d *DomainScan) Next(ctx context.Context) (domain []byte, ordinal uint32, err error) {
	for {
		if len(d.text) == 0 {
			if d.ordinal >= d.s.info.Domains {
				return nil, 0, nil
			}
			if err := d.next(ctx); err != nil {
				return nil, 0, err
			}
		}
		line, rest, ok := bytes.Cut(d.text, []byte{'\n'})
		if !ok || len(line) == 0 || bytes.Compare(line, d.last) <= 0 || d.ordinal >= d.s.info.Domains {
			return nil, 0, codec.Corrupt(d.s.domains.key, frameSection(int(d.ordinal/DomainsPerFrame)), -1,
				fmt.Sprintf("a domain after %q", d.last), fmt.Sprintf("%q", line))
		}
		at := d.ordinal
		d.text, d.last = rest, line
		d.ordinal++
		if len(rest) == 0 && d.ordinal%DomainsPerFrame != 0 && d.ordinal != d.s.info.Domains {
			return nil, 0, codec.Corrupt(d.s.domains.key, frameSection(int(at/DomainsPerFrame)), -1,
				fmt.Sprintf("%d domains in all", d.s.info.Domains), fmt.Sprintf("an end after %d", d.ordinal))
		}
		if d.skip > 0 {
			d.skip--
			continue
		}
		return line, uint32(at), nil
	}
}

// next takes the next frame.
func (d *DomainScan) next(ctx context.Context) error {
	f := d.s.domains
	if len(d.read) == 0 {
		hi := min(d.frame+d.ahead, f.Len())
		if d.whole {
			hi = f.reach(d.frame, f.Len(), scanBytes)
		}
		if d.frame >= hi {
			return codec.Corrupt(f.key, "seek table", -1, fmt.Sprintf("frames of %d domains", d.s.info.Domains), f.Len())
		}
		var err error
		if d.whole {
			d.read, err = f.Read(ctx, f.read, d.frame, hi)
		} else {
			d.read, err = loadRange(ctx, f, d.s.cache, d.frame, hi, func(_ int, data []byte) ([]byte, int64, error) {
				return data, int64(cap(data)), nil
			})
		}
		if err != nil {
			return err
		}
		d.frame, d.ahead = hi, min(2*d.ahead, scanAhead)
	}
	d.text, d.read = d.read[0], d.read[1:]
	d.last = slices.Clone(d.last)
	return nil
}
