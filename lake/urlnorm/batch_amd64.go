package urlnorm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// hasVectors gates the functions named Vector or Vectors. They look at inputs 64 bytes at a time,
// with AVX-512, its byte permutations and its AES rounds, which processors have together since Ice
// Lake and Zen 4. VAES here is the EVEX form.
var hasVectors = cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VBMI &&
	cpu.X86.HasAVX512VAES && cpu.X86.HasBMI1 && cpu.X86.HasBMI2

// pathStops has the top bit set for each byte below 0x80 at which scanPath stops wherever it is.
//
//lint:ignore U1000 batch_amd64.s uses it
var pathStops = func() (stops [128]byte) {
	for c := range stops {
		if classes[c]&escaped != 0 || c == '%' || c == '#' || c == '?' {
			stops[c] = 0x80
		}
	}
	return stops
}()

// locateVectors is batch.locate for the n inputs at urls, at most batchSize. It leaves out, and
// sets nothing of, inputs below nine or above maxPlain bytes, those that end in white space, and
// those with a text above vectorText bytes. It returns these as bits.
//
// Loads are masked, so it reads nothing outside of the inputs. It prefetches the slot of each text.
// It keeps *Origins' slots, keys and addresses in registers only: o must not change meanwhile.
//
// It needs the features of hasVectors. FuzzParseBatch compares it with a loop over bytes, and its
// hashes with hashVector's.
//
//go:noescape
func locateVectors(b *batch, o *Origins, urls *[]byte, n int) (skipped uint64)

// probeVectors sets b.at, for each of n hashes, to the header of the text in the hash's line of
// slots that has the same tag, or to the header at offset 0, which is of no text. It prefetches the
// header and the text. It is the first half of lookUpWords, but does not go on to other lines.
//
// It reads whole lines of o.slots, whose length is a multiple of slotLine, and o.texts at chunks
// that slots refer to. The addresses stay valid: chunks never move, and o keeps them alive.
//
// It needs the features of hasVectors. FuzzParseBatch compares parsing with and without it.
//
//go:noescape
func probeVectors(b *batch, o *Origins, n int)

// matchVectors returns, as bits, which of n inputs have the text whose header is at b.at, and sets
// b.header to that header. It leaves out texts above vectorText bytes. It is the second half of
// lookUpWords.
//
// Loads are masked to the length of the input's text, at most vectorText. A text in o.texts may be
// shorter: insert keeps that many bytes of its chunk after every header.
//
// It needs the features of hasVectors. FuzzParseBatch compares parsing with and without it.
//
//go:noescape
func matchVectors(b *batch, urls *[]byte, n int) (same uint64)

// hashVector is the hash of a text of n bytes, at most vectorText, with the key of a scheme.
//
// The load is masked: it reads nothing outside of text. No Go function computes the same hash, and
// none has to: hashes have random keys and never leave an Origins. Where there are no vectors,
// hashWords replaces it.
//
// It needs the features of hasVectors. FuzzParseBatch compares it with the hashes of locateVectors.
//
//go:noescape
func hashVector(text *byte, n int, keys *vectorKeys, scheme int) uint32

// locateAll locates the texts of all inputs of a batch.
func (b *batch) locateAll(o *Origins, urls [][]byte) {
	if !o.vectors {
		for i, raw := range urls {
			b.locate(o, i&(batchSize-1), raw)
		}
		return
	}
	skipped := locateVectors(b, o, unsafe.SliceData(urls), len(urls))
	for ; skipped != 0; skipped &= skipped - 1 {
		i := firstBit(skipped)
		b.locate(o, i, urls[i])
	}
}

// lookUp returns, as bits, which inputs of a batch start with a known text, and sets the headers of
// these texts. It may miss some.
func (b *batch) lookUp(o *Origins, urls [][]byte) (known uint64) {
	if !o.vectors {
		return b.lookUpWords(o, urls)
	}
	probeVectors(b, o, len(urls))
	return matchVectors(b, unsafe.SliceData(urls), len(urls))
}

// hashShort is the hash of a text of up to vectorText bytes where vectors are used.
func (o *Origins) hashShort(text []byte, scheme int) uint32 {
	return hashVector(unsafe.SliceData(text), len(text), &o.keys, scheme)
}
