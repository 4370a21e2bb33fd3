package text

import (
	"bytes"
	"encoding/binary"

	"github.com/urlake/urlake/lake/raw"
)

// ListParser reads one URL a line. White space around a URL is not part of it. A line that begins
// with # is a comment. Next returns other lines whole, even lines that [CutURL] cuts.
type ListParser struct {
	in     *Input
	counts *raw.Counts
	surt   bool           // the lines are SURT keys
	each   bool           // the lines are no URLs, but made into some one by one
	urlBuf []byte         // the URL of a SURT key
	ends   lineEndOffsets // of the lines Batch looks at
}

// LinesAtOnce is how many line ends [ListParser.Batch] looks for at a time.
const LinesAtOnce = 64

// lineEndOffsets holds up to LinesAtOnce offsets of line ends. The assembly writes up to 64 beyond.
type lineEndOffsets = [LinesAtOnce + 64]int32

// Next implements [Parser].
func (p *ListParser) Next(rec *raw.Record, rej *raw.Reject) (err error) {
	rec.URL, err = p.in.nextLine(rej, p.url)
	if p.surt && rec.URL != nil {
		p.urlBuf = AppendSURTURL(p.urlBuf[:0], rec.URL)
		rec.URL = p.urlBuf
	}
	return err
}

// Batch consumes buffered lines until it has len(urls) URLs. It sets urls[:n] to the URLs and
// positions[:n] to their positions, and returns n; positions must be at least as long as urls. The
// URLs are valid until the next call of Next or of a method of the Input that reads. Batch itself
// never reads: it returns fewer URLs, or none, if the next line is incomplete or too long, or may
// have more than a URL, and Next has to go on.
func (p *ListParser) Batch(urls [][]byte, positions []Position) (n int) {
	in := p.in
	window := in.buf[:in.w]
	last := len(window) // the greatest offset at which a line may begin
	if in.stop != 0 {
		last = int(min(int64(last), in.stop-in.base))
	}
	at, line := in.r, in.line
	positions = positions[:len(urls)]
	for n < len(urls) && at <= last && !p.each {
		start := at
		most := min(LinesAtOnce, len(urls)-n)
		ends := p.ends[:lineEnds(window[start:], in.lineEnd, most, &p.ends)]
		if len(ends) == 0 {
			break
		}
		whole := int(ends[len(ends)-1])
		plain, oneEach := arePlain(window[start:start+whole], len(ends))
		if oneEach && in.lineEnd == '\n' && whole <= in.max && start+whole <= last &&
			webURLs(window[start:], ends, urls[n:]) {
			for i, end := range ends {
				positions[n+i] = Position{line + int64(i), in.base + int64(at)}
				at = start + int(end) + 1
			}
			n += len(ends)
			line += int64(len(ends))
			continue
		}
		for _, end := range ends {
			end := start + int(end)
			if at > last || end-at > in.max {
				last = -1
				break
			}
			text := window[at:end:end]
			if !plain && !IsPlain(trimCR(text)) && p.cut(text) {
				last = -1
				break
			}
			offset := in.base + int64(at)
			at = end + 1
			line++
			if len(text) == 0 || text[0] <= ' ' || text[0] == '#' || text[0] == bom[0] || text[len(text)-1] <= ' ' {
				if text = p.url(text); text == nil {
					continue
				}
			}
			urls[n], positions[n] = text, Position{line - 1, offset}
			n++
		}
	}
	in.r, in.line = at, line
	return n
}

// arePlain looks at n lines. It reports whether they have no spaces, tabs and colons, and whether
// they have no spaces and tabs and as many colons as there are lines. Looking for these in many
// lines at once is cheap.
func arePlain(lines []byte, n int) (plain, oneEach bool) {
	if bytes.IndexByte(lines, ' ') >= 0 || bytes.IndexByte(lines, '\t') >= 0 {
		return false, false
	}
	colons := bytes.Count(lines, []byte{':'})
	return colons == 0, colons == n
}

// webURLs sets urls to the lines, whose ends are given. It returns false if one does not begin with
// http:// or https://, or ends in a control character.
func webURLs(lines []byte, ends []int32, urls [][]byte) bool {
	const (
		http  = uint64('h') | 't'<<8 | 't'<<16 | 'p'<<24 | ':'<<32 | '/'<<40 | '/'<<48
		https = http&(1<<32-1) | 's'<<32 | ':'<<40 | '/'<<48 | '/'<<56
	)
	at := 0
	for i, end := range ends {
		line := lines[at:end:end]
		if len(line) < 8 || line[len(line)-1] <= ' ' {
			return false
		}
		if v := binary.LittleEndian.Uint64(line); v != https && v<<8 != http<<8 {
			return false
		}
		urls[i] = line
		at = int(end) + 1
	}
	return true
}

// cut reports whether a line has more than a URL. Comments and blank lines have none.
func (p *ListParser) cut(line []byte) bool {
	line = TrimSpace(TrimBOM(line))
	return len(line) > 0 && line[0] != '#' && !IsPlain(line)
}

// lineEndsGo sets ends to the offsets of the first up to most lineEnd bytes in s, and returns how
// many there are. most is at most LinesAtOnce.
func lineEndsGo(s []byte, lineEnd byte, most int, ends *lineEndOffsets) (n int) {
	for at := 0; n < most; n++ {
		i := bytes.IndexByte(s[at:], lineEnd)
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
	// Where files were joined, byte order marks are in the middle.
	line = TrimSpace(TrimBOM(line))
	switch {
	case len(line) == 0:
		p.counts.Blank++
		return nil
	case line[0] == '#':
		p.counts.Comments++
		return nil
	}
	return line
}
