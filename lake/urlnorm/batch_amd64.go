package urlnorm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVectors is set where inputs are looked at 64 bytes at a time: AVX-512 with its byte permutations and AES rounds, which are
// there together since Ice Lake and Zen 4.
var hasVectors = cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512VAES && cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// pathStops, queryStops and nameStops have a top bit for each byte below 0x80 that scanPath stops at (but for what follows a slash), that scanQuery calls
// odd, or that scanName stops at.
//
//lint:ignore U1000 batch_amd64.s uses them
var pathStops, queryStops, nameStops = func() (path, query, name [128]byte) {
	for c := range path {
		if classes[c]&escaped != 0 || c == '%' || c == '#' {
			path[c], query[c] = 0x80, 0x80
		}
		if c == '?' {
			path[c] = 0x80
		}
		if classes[c]&hostPlain == 0 || c == '_' {
			name[c] = 0x80
		}
	}
	return path, query, name
}()

// spotVectors is spot of n inputs at urls, of which all but odd have a text of up to 64 bytes and nothing white at their
// end. Of odd ones nothing is set.
//
//go:noescape
func spotVectors(b *batch, o *Origins, urls *[]byte, n int) (odd uint64)

// probeVectors sets, for each of n hashes, the place of a text in the line of slots where it should be that may be the one.
//
//go:noescape
func probeVectors(b *batch, o *Origins, n int)

// matchVectors says which of n texts stand at their places, and sets what headers these have. It leaves out texts of over 64 bytes.
//
//go:noescape
func matchVectors(b *batch, urls *[]byte, n int) (same uint64)

// askLines asks for the lines of the n bytes at p, which will be written.
//
//go:noescape
func askLines(p unsafe.Pointer, n int)

//go:noescape
func hashVector(text *byte, n int, keys *vectorKeys, scheme int) uint32

//go:noescape
func nameVector(s *byte, n int) (end int, dots, hyphens uint64)

//go:noescape
func queryVector(s *byte, n int) (ends, equals, odd uint64)

// spotAll spots all inputs of a batch.
func (b *batch) spotAll(o *Origins, urls [][]byte) {
	if !o.vectors {
		for i, raw := range urls {
			b.spot(o, i&(batchSize-1), raw)
		}
		return
	}
	for odd := spotVectors(b, o, unsafe.SliceData(urls), len(urls)); odd != 0; odd &= odd - 1 {
		i := firstBit(odd)
		b.spot(o, i, urls[i])
	}
}

// lookUp says which of the inputs of a batch start with texts that are there, and sets the headers of these. It may leave out some.
func (b *batch) lookUp(o *Origins, urls [][]byte) (known uint64) {
	if !o.vectors {
		return b.lookUpWords(o, urls)
	}
	o.askAhead()
	probeVectors(b, o, len(urls))
	return matchVectors(b, unsafe.SliceData(urls), len(urls))
}

// ahead is how far behind what is written memory is asked for: what a batch or two may add. Not every processor does so by itself soon enough.
const ahead = 2 << 10

// askAhead asks for the memory of texts and records that are to come.
func (o *Origins) askAhead() {
	if chunk := o.end / chunkWords; chunk < len(o.texts) {
		o.askedTexts = askBehind(unsafe.Pointer(o.texts[chunk]), o.end*wordSize, textChunk, o.askedTexts)
	}
	const size = int(unsafe.Sizeof(originRecord{}))
	if chunk := o.len / originChunk; chunk < len(o.origins) {
		o.askedRecords = askBehind(unsafe.Pointer(o.origins[chunk]), o.len*size, originChunk*size, o.askedRecords)
	}
}

// askBehind asks for what is behind at, in a chunk of the size given, from asked on, and returns up to where it has been asked for now.
func askBehind(chunk unsafe.Pointer, at, size, asked int) int {
	from, to := max(at, asked), min(at+ahead, (at/size+1)*size)
	if from >= to {
		return asked
	}
	askLines(unsafe.Add(chunk, from%size), to-from)
	return to
}

// hashShort is the hash of a text of up to 64 bytes where vectors are used.
func (o *Origins) hashShort(text []byte, scheme int) uint32 {
	return hashVector(unsafe.SliceData(text), len(text), &o.keys, scheme)
}

// scanQuery is scanQueryWords.
func scanQuery(s []byte, from int) (ends, equals, odd uint64) {
	if !hasVectors {
		return scanQueryWords(s, from)
	}
	return queryVector(unsafe.SliceData(s[from:]), len(s)-from)
}

// scanName is scanNameWords.
func scanName(s []byte, start int) (end int, dots, hyphens uint64) {
	if !hasVectors {
		return scanNameWords(s, start)
	}
	end, dots, hyphens = nameVector(unsafe.SliceData(s[start:]), len(s)-start)
	return start + end, dots, hyphens
}
