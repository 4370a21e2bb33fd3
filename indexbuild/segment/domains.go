package segment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/urlake/urlake/lake/codec"
)

const (
	// DomainsPerFrame is how many domains each frame of domains.txt.zst holds except the last. The
	// frame of an ordinal is found by a division.
	DomainsPerFrame = perFrame
	// MaxDomain bounds a domain's length in bytes.
	MaxDomain = maxDomain
)

// NewDomainsWriter returns a writer of domains.txt.zst to w.
func NewDomainsWriter(w io.Writer) *namesWriter { return newNamesWriter(w, framesAhead()) }

// Domain returns the domain with that ordinal.
func (s *Segment) Domain(ctx context.Context, ordinal uint32) (name string, err error) {
	err = s.DomainsAt(ctx, []uint32{ordinal}, func(_ int, domain []byte) { name = string(domain) })
	return name, err
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
			if data, err = s.domains.frames.frame(ctx, s.cache, at); err != nil {
				return err
			}
			frame, line = at, 0
		}
		for ; line < int(ordinal%DomainsPerFrame); line++ {
			_, data, _ = bytes.Cut(data, []byte{'\n'})
		}
		domain, _, ok := bytes.Cut(data, []byte{'\n'})
		if !ok {
			return codec.Corrupt(s.domains.frames.key, frameSection(frame), -1, fmt.Sprintf("line %d", line), "end")
		}
		found(i, domain)
	}
	return nil
}

// Domains yields the domains from an ordinal on, in order, and checks their number and order. An
// error is the last thing yielded. It bypasses the cache.
func (s *Segment) Domains(ctx context.Context, from uint32) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for f, err := range s.domains.Frames(ctx, from, s.info.Domains) {
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
