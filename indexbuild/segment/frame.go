package segment

import (
	"bytes"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
)

// frame is a frame of a list: one domain per line.
type frame struct {
	First int64    // number of the first domain
	Text  []byte   // the lines
	Ends  []uint32 // at which they end in Text
}

// Domain returns domain i of the frame.
func (f *frame) Domain(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = f.Ends[i-1]
	}
	return f.Text[start : f.Ends[i]-1]
}

// Set gives f the lines of a text, in the memory of those before. It checks their number, and that
// they ascend from last on. Errors name file and section.
func (f *frame) Set(text []byte, lines int, last []byte, file, section string) error {
	f.Text, f.Ends = text, f.Ends[:0]
	for at := 0; at < len(text); {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
		f.Ends = append(f.Ends, uint32(at))
	}
	if n := len(f.Ends); n != lines || int(f.Ends[n-1]) != len(text) {
		return codec.Corrupt(file, section, -1, fmt.Sprintf("%d whole lines", lines), n)
	}
	for i := range f.Ends {
		domain := f.Domain(i)
		if bytes.Compare(domain, last) <= 0 || len(domain) > maxDomain {
			return codec.Corrupt(file, section, -1, fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", domain))
		}
		last = domain
	}
	return nil
}
