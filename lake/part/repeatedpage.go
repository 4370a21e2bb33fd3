package part

import (
	"bytes"
	"math/bits"

	"github.com/urlake/urlake/lake/seekable"
)

// shortRepeat is the size of content up to which a raw block is used. Above it, a block with one
// sequence is shorter: it has at most 17 bytes.
const shortRepeat = 24

// appendRepeated appends a zstd frame of n times value, which has 4 or 8 bytes. Long content is the
// value as literals and one sequence that repeats it. There are at most seekable.MaxRawBlock bytes
// of content.
func appendRepeated(dst, value []byte, n int) []byte {
	dst = seekable.AppendZstdHeader(dst, n*len(value))
	// A block must not be longer than its content (3.1.1.2.4), and decoders check that.
	if n*len(value) <= shortRepeat {
		return seekable.AppendRawBlock(dst, bytes.Repeat(value, n), true)
	}
	// RFC 8878, 3.1.1.3: raw literals and one sequence, whose three codes are in RLE mode.
	const singleCodes = 1<<6 | 1<<4 | 1<<2
	offset := len(value) + 3
	offsetCode := bits.Len(uint(offset)) - 1
	length := (n - 1) * len(value)
	code, base, extra := matchLengthCode(length)
	stream := uint64(length-base) | uint64(offset-1<<offsetCode)<<extra | 1<<(extra+offsetCode)
	size := 1 + len(value) + 5 + (bits.Len64(stream)+7)/8
	const compressedBlock, lastBlock = 2, 1
	dst = append(dst, byte(size<<3|compressedBlock<<1|lastBlock), byte(size>>5), 0, byte(len(value)<<3))
	dst = append(append(dst, value...), 1, singleCodes, byte(len(value)), byte(offsetCode), byte(code))
	for ; stream > 0; stream >>= 8 {
		dst = append(dst, byte(stream))
	}
	return dst
}

// matchLengthCode returns the code of a match of n bytes, at least 4 (RFC 8878, 3.1.1.3.2.1.1): the
// least length with this code, and the number of bits that are added to it.
func matchLengthCode(n int) (code, base, extra int) {
	// The least lengths of codes 32 to 42. Higher codes double: there is one for each power of two.
	bases := [...]int{35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131}
	bitsOf := [...]int{1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5}
	switch {
	case n < bases[0]:
		return n - 3, n, 0
	case n >= bases[len(bases)-1]:
		extra = bits.Len(uint(n-3)) - 1
		return 36 + extra, 1<<extra + 3, extra
	}
	i := 0
	for bases[i+1] <= n {
		i++
	}
	return 32 + i, bases[i], bitsOf[i]
}
