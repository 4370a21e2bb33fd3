// Package zstdtext compresses the text columns of Parquet pages: it writes zstd frames (RFC 8878) that any decoder reads, and is made for one kind of
// data, what each of many sorted URLs adds to the one before, some 30 to 130 KiB at a time.
//
// Such text has words that were seen a few thousand bytes earlier and little else that repeats, so that a general encoder spends its time
// on looking. This one looks up each position once, in one table, takes the nearest candidate, counts what a
// match costs in bits, and fits Huffman codes and the tables of sequences to each block. Of sorted paths it leaves less than klauspost/compress does at its
// fastest level, in less time (BenchmarkAppend).
//
// Output depends on the input alone.
package zstdtext

import (
	"encoding/binary"

	"github.com/urlake/urlake/lake/codec"
)

// Encoder encodes frames. It is scratch memory, about a megabyte with pages of the usual size, and must not be used by two goroutines at once. The
// zero value is ready.
type Encoder struct {
	find finder
	lits huffman
	seqs sequences
	last uint32 // distance in the frame so far
	both []byte
}

// minApart is the shortest text that is worth blocks of its own.
const minApart = 128

// Append is AppendSections with lengths of one kind.
func (e *Encoder) Append(dst, lengths, text []byte) []byte {
	return e.AppendSections(dst, text, lengths)
}

// AppendSections appends one zstd frame to dst, whose content is lengths, in their order, and then text: single segment, content size, no checksum. All together have
// at most 2 GiB.
//
// Lengths are numbers about the text, in whole bytes or packed bits, those of each kind apart. They would spoil the statistics of the text and of each other, so each is coded by itself,
// and no match goes back from one into another. They are coded byte by byte, by how often each is, which does nothing for packed bits; matches among them are looked for
// only where they have long runs.
func (e *Encoder) AppendSections(dst, text []byte, lengths ...[]byte) []byte {
	left := len(text)
	for _, b := range lengths {
		left += len(b)
	}
	dst = codec.AppendZstdHeader(dst, left)
	e.last = firstDistance
	if len(text) < minApart && left > len(text) {
		e.both = e.both[:0]
		runs := false
		for _, b := range lengths {
			e.both = append(e.both, b...)
			runs = runs || hasRuns(b)
		}
		e.both = append(e.both, text...)
		return e.appendBlocks(dst, e.both, runs, true)
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

// AppendRuns appends one zstd frame to dst, whose content is values of width bytes, each of them some times over: a value and how often it stands there in a row.
// It takes no other repetition than that. Width is at least three and divides codec.MaxRawBlock, and counts are at least one.
//
// It is what AppendSections would do with such content where values come back in one run only, without a look at each byte of it.
func (e *Encoder) AppendRuns(dst, values []byte, width int, counts []int32) []byte {
	left := 0
	for _, n := range counts {
		left += int(n) * width
	}
	dst = codec.AppendZstdHeader(dst, left)
	e.last = firstDistance
	if left == 0 {
		return codec.AppendRawBlock(dst, nil, true)
	}
	for done := int32(0); left > 0; { // of counts[0]
		size := min(left, codec.MaxRawBlock)
		left -= size
		e.seqs.reset(0, min(size/width, len(counts)))
		distance, doneBefore := e.last, done
		literals, runs := 0, 0 // since the last sequence, and that end in the block
		for room := int32(size / width); room > 0; {
			count := counts[runs]
			n := min(count-done, room)
			room -= n
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
		// Of each run the value stands there once.
		once := values[:(runs+int(min(done, 1)))*width]
		var ok bool
		if dst, ok = e.appendEncoded(dst, size, once, len(e.seqs.codes) > 0, distance, left == 0); !ok {
			e.both = e.both[:0]
			for i := 0; len(e.both) < size; i++ {
				for range min(int(counts[i]-doneBefore), (size-len(e.both))/width) {
					e.both = append(e.both, values[i*width:(i+1)*width]...)
				}
				doneBefore = 0
			}
			dst = codec.AppendRawBlock(dst, e.both, left == 0)
		}
		values, counts = values[runs*width:], counts[runs:]
	}
	return dst
}

// hasRuns reports whether a good part of b is runs of one byte. It looks at samples.
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

// appendBlocks appends the blocks of a text; search says whether to look for matches.
func (e *Encoder) appendBlocks(dst, text []byte, search, last bool) []byte {
	e.find.reset()
	for from := 0; ; {
		to := min(len(text), from+codec.MaxRawBlock)
		dst = e.appendBlock(dst, text[:to], from, search, last && to == len(text))
		if from = to; from == len(text) {
			return dst
		}
	}
}

// The types of blocks (RFC 8878, 3.1.1.2.2).
const (
	blockRLE        = 1
	blockCompressed = 2
)

const blockHeader = 3

// appendBlock appends the block of text[from:].
func (e *Encoder) appendBlock(dst, text []byte, from int, search, last bool) []byte {
	content := text[from:]
	if len(content) > 1 && same(content) {
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
		return codec.AppendRawBlock(dst, content, last)
	}
	return dst
}

// appendEncoded appends a block of size bytes: some literals and, if there are any, the sequences that have been set, the last of which has a
// distance. It appends nothing and returns false if a raw block is no longer, which leaves the decoder's distances as they were.
func (e *Encoder) appendEncoded(dst []byte, size int, literals []byte, sequences bool, distance uint32, last bool) ([]byte, bool) {
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

// putBlockHeader writes the header of a block (RFC 8878, 3.1.1.2).
func putBlockHeader(b []byte, kind, size int, last bool) {
	head := size<<3 | kind<<1
	if last {
		head |= 1
	}
	b[0], b[1], b[2] = byte(head), byte(head>>8), byte(head>>16)
}

// same reports whether all bytes are the same.
func same(b []byte) bool {
	for _, c := range b {
		if c != b[0] {
			return false
		}
	}
	return true
}
