package segment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/zstdtext"
)

const (
	// linesPerFrame is how many domains a frame of domains.txt.zst holds, the last one excepted:
	// about 16 KB of text, and ordinal → frame is a division.
	linesPerFrame = 1024

	// MaxDomain bounds a domain's length in bytes. A DNS name has at most 253, an IPv6 address
	// in brackets less.
	MaxDomain = 255
)

// DomainsWriter writes domains.txt.zst. Domains have to ascend.
type DomainsWriter struct {
	fw    *codec.FrameWriter
	frame []byte
	lines int
	count int64
	last  []byte
}

// NewDomainsWriter writes to w.
func NewDomainsWriter(w io.Writer) *DomainsWriter {
	d := &DomainsWriter{fw: codec.NewFrameWriter(w, 0)}
	d.fw.Ahead(framesAhead())
	d.fw.Compress(compressText)
	return d
}

// textEncoders keeps encoders' memory.
var textEncoders = sync.Pool{New: func() any { return new(zstdtext.Encoder) }}

// compressText compresses sorted lines: in a third of the time of a general encoder, to nine tenths of the size.
func compressText(dst, text []byte) []byte {
	enc := textEncoders.Get().(*zstdtext.Encoder)
	defer textEncoders.Put(enc)
	return enc.AppendLines(dst, text)
}

// Add writes the next domain; its ordinal is the number of those added before.
func (w *DomainsWriter) Add(domain []byte) error {
	if len(domain) == 0 || len(domain) > MaxDomain || bytes.IndexByte(domain, '\n') >= 0 {
		return fmt.Errorf("domain %q: want 1 to %d bytes without newline", domain, MaxDomain)
	}
	if bytes.Compare(domain, w.last) <= 0 {
		return fmt.Errorf("domain %q after %q", domain, w.last)
	}
	w.frame = append(append(w.frame, domain...), '\n')
	w.last = append(w.last[:0], domain...)
	w.count++
	if w.lines++; w.lines < linesPerFrame {
		return nil
	}
	return w.flush()
}

// AddLines writes the next domains, which have to ascend among themselves: whole lines, whose ends are the ends of text's lines.
func (w *DomainsWriter) AddLines(text []byte, ends []uint32) error {
	if len(ends) == 0 {
		return nil
	}
	// A domain's length and place were checked where its order was; a newline inside would move all ordinals.
	if n := bytes.Count(text, []byte{'\n'}); n != len(ends) || int(ends[len(ends)-1]) != len(text) {
		return fmt.Errorf("%d bytes of %d lines, announced are %d", len(text), n, len(ends))
	}
	if first := text[:ends[0]-1]; bytes.Compare(first, w.last) <= 0 {
		return fmt.Errorf("domain %q after %q", first, w.last)
	}
	w.last = append(w.last[:0], text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:len(text)-1]...)
	start := uint32(0)
	for len(ends) > 0 {
		n := min(len(ends), linesPerFrame-w.lines)
		w.frame = append(w.frame, text[start:ends[n-1]]...)
		start = ends[n-1]
		ends = ends[n:]
		w.count += int64(n)
		if w.lines += n; w.lines == linesPerFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *DomainsWriter) flush() error {
	if w.lines == 0 {
		return nil
	}
	_, _, err := w.fw.Frame(nil, w.frame)
	w.frame, w.lines = w.frame[:0], 0
	return err
}

// Count is the number of domains added.
func (w *DomainsWriter) Count() int64 { return w.count }

// Finish writes the tail.
func (w *DomainsWriter) Finish() (codec.FrameFile, error) {
	if err := w.flush(); err != nil {
		return codec.FrameFile{}, err
	}
	return w.fw.Finish()
}

// Domain returns the domain with that ordinal.
func (s *Segment) Domain(ctx context.Context, ordinal uint32) (string, error) {
	if int64(ordinal) >= s.info.Domains {
		return "", fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	frame, line := int(ordinal/linesPerFrame), int(ordinal%linesPerFrame)
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

// Domains yields the domains from ordinal from on, in order, and checks count and order of what
// it passes. An error is the last thing yielded. Frames are not kept in the cache.
func (s *Segment) Domains(ctx context.Context, from uint32) iter.Seq2[string, error] {
	return s.DomainsBetween(ctx, from, s.info.Domains)
}

// DomainsBetween is Domains for the ordinals from from to below to.
func (s *Segment) DomainsBetween(ctx context.Context, from uint32, to int64) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		last := ""
		to := min(to, s.info.Domains)
		first := int(from / linesPerFrame)
		ordinal := int64(first) * linesPerFrame
		end := int((to + linesPerFrame - 1) / linesPerFrame)
		for frame, err := range s.domains.scan(ctx, first, end) {
			if err != nil {
				yield("", err)
				return
			}
			n := bytes.Count(frame.data, []byte{'\n'})
			want := min(linesPerFrame, s.info.Domains-ordinal)
			if int64(n) != want || frame.data[len(frame.data)-1] != '\n' {
				yield("", codec.Corrupt(s.domains.key, frame.section(), -1, fmt.Sprintf("%d whole lines", want), n))
				return
			}
			text := string(frame.data)
			for line := range strings.Lines(text) {
				domain := line[:len(line)-1]
				if domain <= last || len(domain) > MaxDomain {
					yield("", codec.Corrupt(s.domains.key, frame.section(), -1, fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", domain)))
					return
				}
				last = domain
				if ordinal >= int64(from) && (ordinal >= to || !yield(domain, nil)) {
					return
				}
				ordinal++
			}
		}
	}
}

// checkDomainFrames holds the number of frames against the number of domains.
func checkDomainFrames(frames, domains int64, name string) error {
	if want := (domains + linesPerFrame - 1) / linesPerFrame; frames != want || domains > math.MaxUint32-1 {
		return codec.Corrupt(name, "seek table", -1, fmt.Sprintf("%d frames", want), frames)
	}
	return nil
}
