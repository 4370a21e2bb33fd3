package segment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/urlake/urlake/indexbuild/segment/domainlist"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// DomainsPerFrame is how many domains each frame of domains.txt.zst holds except the last. The
	// frame of an ordinal is found by a division.
	DomainsPerFrame = domainlist.PerFrame
	// MaxDomain bounds a domain's length in bytes.
	MaxDomain = domainlist.MaxDomain
)

// NewDomainsWriter returns a writer of domains.txt.zst to w.
func NewDomainsWriter(w io.Writer) *domainlist.Writer { return domainlist.NewWriter(w, framesAhead()) }

// Domain returns the domain with that ordinal.
func (s *Segment) Domain(ctx context.Context, ordinal uint32) (string, error) {
	if int64(ordinal) >= s.info.Domains {
		return "", fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	frame, line := int(ordinal/DomainsPerFrame), int(ordinal%DomainsPerFrame)
	data, err := s.domains.frame(ctx, s.cache, frame)
	if err != nil {
		return "", err
	}
	for range line {
		_, data, _ = bytes.Cut(data, []byte{'\n'})
	}
	domain, _, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return "", codec.Corrupt(s.domains.key, fmt.Sprintf("frame %d", frame), -1, fmt.Sprintf("line %d", line), "end")
	}
	return string(domain), nil
}

// DomainsAt calls found with the domain of each ordinal; these must ascend. Each frame is read
// once, through the cache. The domain is valid during the call.
func (s *Segment) DomainsAt(ctx context.Context, ordinals []uint32, found func(i int, domain []byte)) error {
	frame, line := -1, 0
	var data []byte
	for i, ordinal := range ordinals {
		if int64(ordinal) >= s.info.Domains {
			return fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
		}
		if at := int(ordinal / DomainsPerFrame); at != frame {
			var err error
			if data, err = s.domains.frame(ctx, s.cache, at); err != nil {
				return err
			}
			frame, line = at, 0
		}
		for ; line < int(ordinal%DomainsPerFrame); line++ {
			_, data, _ = bytes.Cut(data, []byte{'\n'})
		}
		domain, _, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			return codec.Corrupt(s.domains.key, frameSection(frame), -1, fmt.Sprintf("line %d", line), "end")
		}
		found(i, domain)
	}
	return nil
}

// DomainTexts returns the lines of the frames [lo, hi) through the cache, in one read. The caller
// must not change them.
func (s *Segment) DomainTexts(ctx context.Context, lo, hi int) ([][]byte, error) {
	return loadRange(ctx, s.domains, s.cache, lo, hi, func(frame int, data []byte) ([]byte, int64, error) {
		want := min(DomainsPerFrame, s.info.Domains-int64(frame)*DomainsPerFrame)
		if n := bytes.Count(data, []byte{'\n'}); int64(n) != want || data[len(data)-1] != '\n' {
			return nil, 0, codec.Corrupt(s.domains.key, frameSection(frame), -1, fmt.Sprintf("%d whole lines", want), n)
		}
		return data, int64(cap(data)), nil
	})
}

// DomainStarts returns where the frames of domains.txt begin, nil if the segment has no such file.
func (s *Segment) DomainStarts() *domainlist.Starts { return s.starts }

// Domains yields the domains from an ordinal on, in order, and checks their number and order. An
// error is the last thing yielded. It bypasses the cache.
func (s *Segment) Domains(ctx context.Context, from uint32) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for f, err := range s.DomainFrames(ctx, from, s.info.Domains) {
			if err != nil {
				yield("", err)
				return
			}
			for i := max(int(int64(from)-f.First), 0); i < len(f.Ends); i++ {
				if !yield(string(f.Domain(i)), nil) {
					return
				}
			}
		}
	}
}

// DomainFrame is a frame of domains.txt: one domain per line.
type DomainFrame struct {
	First int64    // ordinal of the first domain
	Text  []byte   // the lines
	Ends  []uint32 // at which they end in Text
}

// Domain returns domain i of the frame.
func (f *DomainFrame) Domain(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = f.Ends[i-1]
	}
	return f.Text[start : f.Ends[i]-1]
}

// DomainFrames yields the frames that hold the ordinals [from, to), in order, and checks the number
// and order of their lines. An error is the last thing yielded. A frame is valid until the next one
// is yielded. DomainFrames bypasses the cache.
func (s *Segment) DomainFrames(ctx context.Context, from uint32, to int64) iter.Seq2[DomainFrame, error] {
	return func(yield func(DomainFrame, error) bool) {
		first := int(from / DomainsPerFrame)
		end := int((min(to, s.info.Domains) + DomainsPerFrame - 1) / DomainsPerFrame)
		f := DomainFrame{First: int64(first) * DomainsPerFrame}
		var last []byte
		for frame, err := range s.domains.scan(ctx, first, end) {
			if err != nil {
				yield(DomainFrame{}, err)
				return
			}
			bad := func(want, got any) {
				yield(DomainFrame{}, codec.Corrupt(s.domains.key, frame.section(), -1, want, got))
			}
			f.Text, f.Ends = frame.data, f.Ends[:0]
			for at := 0; at < len(f.Text); {
				n := bytes.IndexByte(f.Text[at:], '\n')
				if n < 0 {
					break
				}
				at += n + 1
				f.Ends = append(f.Ends, uint32(at))
			}
			n := len(f.Ends)
			want := min(DomainsPerFrame, s.info.Domains-f.First)
			if int64(n) != want || int(f.Ends[n-1]) != len(f.Text) {
				bad(fmt.Sprintf("%d whole lines", want), n)
				return
			}
			for i := range f.Ends {
				domain := f.Domain(i)
				if bytes.Compare(domain, last) <= 0 || len(domain) > MaxDomain {
					bad(fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", domain))
					return
				}
				last = domain
			}
			last = bytes.Clone(last)
			if !yield(f, nil) {
				return
			}
			f.First += int64(n)
		}
	}
}

// checkDomainFrames compares the number of frames with the number of domains.
func checkDomainFrames(frames, domains int64, name string) error {
	if want := (domains + DomainsPerFrame - 1) / DomainsPerFrame; frames != want || domains > math.MaxUint32-1 {
		return codec.Corrupt(name, "seek table", -1, fmt.Sprintf("%d frames", want), frames)
	}
	return nil
}
