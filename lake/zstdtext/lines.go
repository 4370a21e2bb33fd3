package zstdtext

import (
	"bytes"
	"math/bits"
)

// Sorted lines of names repeat in two places: where a line begins as the one before, and where it ends as one of a few endings. Both are one
// match if the line ends as an earlier one after which the next line begins in the same way. So it is enough to look at the end of each line,
// in a table of endings that takes a kilobyte, where the finder of other text has one of a quarter of a megabyte.

const (
	// lineEnd is how many last bytes of a line, its end included, are looked up.
	lineEnd = 5

	// lineEndBits is for 256 endings. The last line with each is remembered.
	lineEndBits = 8

	// lineGain is how many bytes more the line before has to give for a match of its own.
	lineGain = 3
)

// lineHash spreads endings over the table.
const lineHash = 0x9E3779B185EBCA87

// AppendLines is Append without lengths for text of sorted lines: in two thirds of the time, and smaller. Other text is compressed worse.
func (e *Encoder) AppendLines(dst, text []byte) []byte {
	e.line.on = true
	dst = e.Append(dst, nil, text)
	e.line.on = false
	return dst
}

// parse finds the matches of text[from:] as the finder that is on does.
func (e *Encoder) parse(text []byte, from int) []match {
	if e.line.on && len(text)-from >= minParse {
		return e.line.parse(text, from)
	}
	return e.find.parse(text, from)
}

// lineFinder finds matches in sorted lines.
type lineFinder struct {
	on      bool
	matches []match
}

// parse finds the matches of text[from:], which go back to from at most. The result is valid until the next call.
func (f *lineFinder) parse(text []byte, from int) []match {
	if n := (len(text)-from)/minMatch + 1; n > len(f.matches) {
		f.matches = make([]match, n)
	}
	all := f.matches
	last := 0
	var ends [1 << lineEndBits]int32 // where the lines after those with these endings start; 0 is none
	done := from                     // what is matched
	for start := from; start < len(text); {
		n := bytes.IndexByte(text[start:], '\n')
		if n < 0 {
			break
		}
		next := start + n + 1
		if next-from < 8 {
			start = next
			continue
		}
		w := load64(text, next-8)
		at := &ends[w>>(64-8*lineEnd)*lineHash>>(64-lineEndBits)]
		other := int(*at)
		*at = int32(next)
		if next < done {
			start = next // within a match, which may have many lines
			continue
		}
		// What the next line has of the one at hand.
		shared := forward(text, start, next)
		x := ^uint64(0) // nothing
		if other > 0 {
			x = w ^ load64(text, other-8)
		}
		if same := bits.LeadingZeros64(x) >> 3; same >= lineEnd {
			most := min(other-from, next-done)
			for same >= 8 && same < most && text[other-same-1] == text[next-same-1] {
				same++
			}
			if begin := max(next-same, done); next-begin >= minMatch {
				m := match{int32(begin), int32(next), int32(next - other)}
				if further := forward(text, other, next); further+lineGain > shared {
					m.end += int32(further)
					shared = 0
				}
				all[last] = m
				last++
				done = int(m.end)
			}
		}
		if shared >= lineEnd && done <= next {
			all[last] = match{int32(next), int32(next + shared), int32(next - start)}
			last++
			done = next + shared
		}
		start = next
	}
	return all[:last]
}
