package segment

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/urlake/urlake/lake/codec"
)

// Names lists the domains of a segment in frames of DomainsPerFrame lines: in the order of their
// bytes, or with these reversed.
type Names struct {
	frames  *frames
	starts  *Starts // nil if the segment was opened for its postings only
	cache   Cache
	domains int64
}

// Names returns the domains in the order of their bytes.
func (s *Segment) Names() *Names { return &s.domains }

// Reversed returns the domains with their bytes reversed, in the order that they have then.
func (s *Segment) Reversed() *Names { return &s.reversed }

// Starts returns where the frames begin.
func (n *Names) Starts() *Starts { return n.starts }

// Len is the number of frames.
func (n *Names) Len() int { return n.frames.Len() }

// memoryBytes is what n holds in memory.
func (n *Names) memoryBytes() int64 {
	if n.frames == nil {
		return 0
	}
	size := n.frames.MemoryBytes()
	if n.starts != nil {
		size += n.starts.MemoryBytes()
	}
	return size
}

// Texts returns the lines of the frames [lo, hi) through the cache, in one read. The caller must
// not change them.
func (n *Names) Texts(ctx context.Context, lo, hi int) ([][]byte, error) {
	return loadRange(ctx, n.frames, n.cache, lo, hi, func(frame int, data []byte) ([]byte, int64, error) {
		want := min(DomainsPerFrame, n.domains-int64(frame)*DomainsPerFrame)
		if got := bytes.Count(data, []byte{'\n'}); int64(got) != want || data[len(data)-1] != '\n' {
			return nil, 0, codec.Corrupt(n.frames.key, frameSection(frame), -1, fmt.Sprintf("%d whole lines", want), got)
		}
		return data, int64(cap(data)), nil
	})
}

// DomainFrame is a frame of Names.
type DomainFrame = frame

// Frames yields the frames that hold the lines [from, to), in order, and checks their number and
// order. An error is the last thing yielded. A frame is valid until the next one is yielded. Frames
// bypasses the cache.
func (n *Names) Frames(ctx context.Context, from uint32, to int64) iter.Seq2[DomainFrame, error] {
	return func(yield func(DomainFrame, error) bool) {
		first := int(from / DomainsPerFrame)
		end := int((min(to, n.domains) + DomainsPerFrame - 1) / DomainsPerFrame)
		f := DomainFrame{First: int64(first) * DomainsPerFrame}
		var last []byte
		for frame, err := range n.frames.scan(ctx, first, end) {
			lines := min(DomainsPerFrame, n.domains-f.First)
			if err == nil {
				err = f.Set(frame.data, int(lines), last, n.frames.key, frame.section())
			}
			if err != nil {
				yield(DomainFrame{}, err)
				return
			}
			last = append(last[:0], f.Domain(len(f.Ends)-1)...)
			if !yield(f, nil) {
				return
			}
			f.First += lines
		}
	}
}

// check compares the number of frames with the number of domains.
func (n *Names) check() error {
	want := (n.domains + DomainsPerFrame - 1) / DomainsPerFrame
	if int64(n.frames.Len()) != want || n.domains > math.MaxUint32-1 {
		return codec.Corrupt(n.frames.key, "seek table", -1, fmt.Sprintf("%d frames", want), n.frames.Len())
	}
	return nil
}
