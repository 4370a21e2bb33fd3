package text

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw"
)

// parser fills rec, or sets rej.Reason and leaves the input behind the bad record. Line and
// Offset are taken from input.at. Errors are final; io.EOF is the end.
type Parser interface {
	Next(rec *raw.Record, rej *raw.Reject) error
}

// Line is where a URL of a list stands, as in Record.
type Line struct{ Line, Offset int64 }

// listParser reads one URL a line. White space around it is no part of it. A line that begins with # is a
// comment; any other # belongs to the URL, so that a line means here what it means to urlnorm.
type ListParser struct {
	In     *Input
	Counts *raw.Counts
	ends   [LinesAtOnce + 64]int32 // of lines of a window
}

// linesAtOnce is how many lines are looked for at a time.
const LinesAtOnce = 64

func (p *ListParser) Next(rec *raw.Record, rej *raw.Reject) (err error) {
	rec.URL, err = p.In.nextLine(rej, p.url)
	return err
}

// batch sets urls to those of lines that stand in the window whole, and lines to their places, and returns how many. Lines of the greatest
// length are left to next.
func (p *ListParser) Batch(urls [][]byte, lines []Line) (n int) {
	in := p.In
	window := in.Buf[:in.W]
	last := len(window) // place of the last line, at most
	if in.Stop != 0 {
		last = int(min(int64(last), in.Stop-in.Base))
	}
	at, line := in.R, in.Line
	lines = lines[:len(urls)]
	for n < len(urls) && at <= last {
		start := at
		ends := p.ends[:lineEnds(window[start:], in.Eol, min(LinesAtOnce, len(urls)-n), &p.ends)]
		for _, end := range ends {
			end := start + int(end)
			if at > last || end-at > in.Max {
				last = -1
				break
			}
			text := window[at:end:end]
			offset := in.Base + int64(at)
			at = end + 1
			line++
			if len(text) == 0 || text[0] <= ' ' || text[0] == '#' || text[0] == BOM[0] || text[len(text)-1] <= ' ' {
				if text = p.url(text); text == nil {
					continue
				}
			}
			urls[n], lines[n] = text, Line{line - 1, offset}
			n++
		}
		if len(ends) == 0 {
			break
		}
	}
	in.R, in.Line = at, line
	return n
}

// lineEndsBytes sets ends to the places of eol in s, most of them at most, and returns how many.
func lineEndsBytes(s []byte, eol byte, most int, ends *[LinesAtOnce + 64]int32) (n int) {
	for at := 0; n < most; n++ {
		i := bytes.IndexByte(s[at:], eol)
		if i < 0 {
			break
		}
		ends[n] = int32(at + i)
		at += i + 1
	}
	return n
}

// url returns the URL of a line, nil if it has none.
func (p *ListParser) url(line []byte) []byte {
	// Files joined by cat have their marks in the middle.
	line = TrimSpace(bytes.TrimPrefix(line, BOM))
	switch {
	case len(line) == 0:
		p.Counts.Blank++
		return nil
	case line[0] == '#':
		p.Counts.Comments++
		return nil
	}
	return line
}
