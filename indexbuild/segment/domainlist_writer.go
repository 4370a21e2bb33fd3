package segment

// The domains of a segment are in domains.txt.zst, and where its frames begin is in
// domains.starts.zst, by which readers find the frames that may have a domain. The same domains
// with their bytes reversed are in files of the same form. docs/formats/domains.md describes all.

import (
	"bytes"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/seekable"
)

const (
	// perFrame is how many domains each frame of domains.txt.zst holds except the last: about 16 KB
	// of text.
	perFrame = 1024

	// maxDomain bounds a domain's length in bytes. A DNS name has at most 253, an IPv6 address in
	// brackets fewer.
	maxDomain = 255
)

// namesWriter writes domains.txt.zst. Domains must ascend.
type namesWriter struct {
	fw    *seekable.Writer
	frame []byte
	lines int
	count int64
	last  []byte

	starts Starts
	before []byte // the last domain of the frame before
}

// newNamesWriter returns a Writer that writes to w. It compresses so many frames at a time.
func newNamesWriter(w io.Writer, concurrency int) *namesWriter {
	d := &namesWriter{fw: seekable.NewWriter(w, 0)}
	d.fw.SetConcurrency(concurrency)
	return d
}

// Add writes the next domain. Its ordinal is the number of domains added before.
func (w *namesWriter) Add(domain []byte) error {
	if len(domain) == 0 || len(domain) > maxDomain || bytes.IndexByte(domain, '\n') >= 0 {
		return fmt.Errorf("domain %q: want 1 to %d bytes without newline", domain, maxDomain)
	}
	if bytes.Compare(domain, w.last) <= 0 {
		return fmt.Errorf("domain %q after %q", domain, w.last)
	}
	w.frame = append(append(w.frame, domain...), '\n')
	w.last = append(w.last[:0], domain...)
	w.count++
	if w.lines++; w.lines < perFrame {
		return nil
	}
	return w.flush()
}

// AddLines writes the next domains: text is whole lines, which end at ends. The caller guarantees
// that the lines ascend and that each is a valid domain.
func (w *namesWriter) AddLines(text []byte, ends []uint32) error {
	if len(ends) == 0 {
		return nil
	}
	// A newline inside a domain would shift all ordinals after it.
	if n := bytes.Count(text, []byte{'\n'}); n != len(ends) || int(ends[len(ends)-1]) != len(text) {
		return fmt.Errorf("%d bytes of %d lines, want %d lines", len(text), n, len(ends))
	}
	if first := text[:ends[0]-1]; bytes.Compare(first, w.last) <= 0 {
		return fmt.Errorf("domain %q after %q", first, w.last)
	}
	w.last = append(w.last[:0], text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:len(text)-1]...)
	start := uint32(0)
	for len(ends) > 0 {
		n := min(len(ends), perFrame-w.lines)
		w.frame = append(w.frame, text[start:ends[n-1]]...)
		start = ends[n-1]
		ends = ends[n:]
		w.count += int64(n)
		if w.lines += n; w.lines == perFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *namesWriter) flush() error {
	if w.lines == 0 {
		return nil
	}
	first := w.frame[:bytes.IndexByte(w.frame, '\n')]
	w.starts.add(w.before, first)
	whole := w.frame[:len(w.frame)-1]
	w.before = append(w.before[:0], whole[bytes.LastIndexByte(whole, '\n')+1:]...)
	_, _, err := w.fw.Frame(nil, w.frame)
	w.frame, w.lines = w.frame[:0], 0
	return err
}

// Count returns the number of domains added.
func (w *namesWriter) Count() int64 { return w.count }

// Starts returns where the frames begin, after Finish.
func (w *namesWriter) Starts() *Starts { return &w.starts }

// Finish writes the footer.
func (w *namesWriter) Finish() (seekable.File, error) {
	if err := w.flush(); err != nil {
		return seekable.File{}, err
	}
	return w.fw.Finish()
}
