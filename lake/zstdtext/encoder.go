// Package zstdtext compresses the text columns of Parquet pages. It writes zstd frames (RFC 8878)
// that any decoder reads.
//
// The encoder is made for one kind of data: the suffixes that sorted URLs add to their
// predecessors, some 30 to 130 KiB at a time. In such text words return after a few thousand bytes
// and little else repeats, so a general encoder spends its time on searches that fail. This encoder
// looks each position up once, in one table, takes the nearest candidate, estimates the cost of a
// match in bits, and fits Huffman codes and sequence tables to each block. Sorted paths come out
// smaller than at klauspost/compress's fastest level, in less time (BenchmarkAppend).
//
// Output depends on the input alone: not on the machine, nor on what the encoder encoded before.
// The writer of Parquet parts is the caller.
package zstdtext

import (
	"encoding/binary"

	"github.com/urlake/urlake/lake/seekable"
)

// Encoder encodes frames. It is scratch memory, about a megabyte for pages of the usual size, and
// is not safe for concurrent use. The zero value is ready.
type Encoder struct {
	find   finder
	lits   huffman
	seqs   sequences
	last   uint32 // distance of the last sequence of the frame
	joined []byte // content that is in several slices, or in runs
}

// minSectionText is the shortest text that gets blocks of its own.
const minSectionText = 128

// Append is AppendSections with one kind of lengths.
func (e *Encoder) Append(dst, lengths, text []byte) []byte {
	return e.AppendSections(dst, text, lengths)
}

// AppendSections appends one zstd frame to dst. Its content is the lengths, in the order given, and
// then text; together at most 2 GiB. The frame is a single segment with its content size and
// without a checksum.
//
// Lengths are numbers about the text, as whole bytes or packed bits, each kind in a slice of its
// own. Their statistics differ from the text's and from each other's, so each slice has its own
// blocks, and no match refers from one into another. Lengths are entropy coded byte by byte, which
// does nothing for packed bits. They are searched for matches only if they have long runs.
func (e *Encoder) AppendSections(dst, text []byte, lengths ...[]byte) []byte {
	left := len(text)
	for _, b := range lengths {
		left += len(b)
	}
	dst = seekable.AppendZstdHeader(dst, left)
	e.last = firstDistance
	if len(text) < minSectionText && left > len(text) {
		e.joined = e.joined[:0]
		runs := false
		for _, b := range lengths {
			e.joined = append(e.joined, b...)
			runs = runs || hasRuns(b)
		}
		e.joined = append(e.joined, text...)
		return e.appendBlocks(dst, e.joined, runs, true)
	}
	for _, b := range lengths {
		if len(b) == 0 {
			continue
		}
		if left -= len(b); left == 0 {
			return e.appendBlocks(dst, b, hasRuns(b), true)
		}
		dst = e.appendBlocks(dst, b, hasRuns(b), false)
	}
	return e.appendBlocks(dst, text, true, true)
}

// AppendRuns appends one zstd frame to dst whose content is values of width bytes, each repeated as
// often in a row as its count says. It uses no other repetition. Width is at least three and
// divides codec.MaxRawBlock; counts are at least one.
//
// Where every value has a single run, the result is that of AppendSections for the same content,
// without a search.
func (e *Encoder) AppendRuns(dst, values []byte, width int, counts []int32) []byte {
	left := 0
	for _, n := range counts {
		left += int(n) * width
	}
	dst = seekable.AppendZstdHeader(dst, left)
	e.last = firstDistance
	if left == 0 {
		return seekable.AppendRawBlock(dst, nil, true)
	}
	for done := int32(0); left > 0; { // done is the part of counts[0] in earlier blocks
		size := min(left, seekable.MaxRawBlock)
		left -= size
		e.seqs.reset(0, min(size/width, len(counts)))
		distance, doneBefore := e.last, done
		literals, runs := 0, 0 // literals since the last sequence; runs that end in this block
		for free := int32(size / width); free > 0; {
			count := counts[runs]
			n := min(count-done, free)
			free -= n
			literals += width
			if n > 1 {
				offset := uint32(width) + 3
				if distance == uint32(width) {
					offset = 1
				}
				e.seqs.add(uint32(literals), uint32(n-1)*uint32(width), offset)
				distance, literals = uint32(width), 0
			}
			if done += n; done == count {
				runs, done = runs+1, 0
			}
		}
		// The literals have each run's value once.
		once := values[:(runs+int(min(done, 1)))*width]
		var ok bool
		if dst, ok = e.appendEncoded(dst, size, once, len(e.seqs.codes) > 0, distance, left == 0); !ok {
			e.joined = e.joined[:0]
			for i := 0; len(e.joined) < size; i++ {
				for range min(int(counts[i]-doneBefore), (size-len(e.joined))/width) {
					e.joined = append(e.joined, values[i*width:(i+1)*width]...)
				}
				doneBefore = 0
			}
			dst = seekable.AppendRawBlock(dst, e.joined, left == 0)
		}
		values, counts = values[runs*width:], counts[runs:]
	}
	return dst
}

// hasRuns reports whether more than a quarter of b is runs of one byte. It looks at samples.
func hasRuns(b []byte) bool {
	const step = 16
	runs, samples := 0, 0
	for ; len(b) >= step; b = b[step:] {
		samples++
		if binary.LittleEndian.Uint64(b) == binary.LittleEndian.Uint64(b[1:]) {
			runs++
		}
	}
	return runs > samples/4
}

// appendBlocks appends the blocks of a text. It looks for matches if search is set.
func (e *Encoder) appendBlocks(dst, text []byte, search, last bool) []byte {
	e.find.reset()
	for from := 0; ; {
		to := min(len(text), from+seekable.MaxRawBlock)
		dst = e.appendBlock(dst, text[:to], from, search, last && to == len(text))
		if from = to; from == len(text) {
			return dst
		}
	}
}

// Block types (RFC 8878, 3.1.1.2.2).
const (
	blockRLE        = 1
	blockCompressed = 2
)

const blockHeader = 3

// appendBlock appends the block of text[from:].
func (e *Encoder) appendBlock(dst, text []byte, from int, search, last bool) []byte {
	content := text[from:]
	if len(content) > 1 && allSame(content) {
		dst = append(dst, 0, 0, 0, content[0])
		putBlockHeader(dst[len(dst)-blockHeader-1:], blockRLE, len(content), last)
		return dst
	}
	var matches []match
	if search {
		matches = e.find.parse(text, from)
	}
	literals, distance := content, e.last
	if len(matches) > 0 {
		distance = e.seqs.set(text, from, matches, e.last)
		literals = e.seqs.literals
	}
	dst, ok := e.appendEncoded(dst, len(content), literals, len(matches) > 0, distance, last)
	if !ok {
		return seekable.AppendRawBlock(dst, content, last)
	}
	return dst
}

// appendEncoded appends a block of size bytes made of literals and, if sequences is set, of the
// sequences in e.seqs, whose last distance is given. Where a raw block would be no longer, it
// appends nothing, leaves e.last as it was and returns false.
func (e *Encoder) appendEncoded(
	dst []byte, size int, literals []byte, sequences bool, distance uint32, last bool,
) ([]byte, bool) {
	at := len(dst)
	dst = e.lits.append(append(dst, 0, 0, 0), literals)
	if sequences {
		dst = e.seqs.append(dst)
	} else {
		dst = append(dst, 0)
	}
	n := len(dst) - at - blockHeader
	if n >= size {
		return dst[:at], false
	}
	e.last = distance
	putBlockHeader(dst[at:], blockCompressed, n, last)
	return dst, true
}

// putBlockHeader writes a block header (RFC 8878, 3.1.1.2).
func putBlockHeader(b []byte, kind, size int, last bool) {
	header := size<<3 | kind<<1
	if last {
		header |= 1
	}
	b[0], b[1], b[2] = byte(header), byte(header>>8), byte(header>>16)
}

// allSame reports whether all bytes of b are equal.
func allSame(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return true
}
