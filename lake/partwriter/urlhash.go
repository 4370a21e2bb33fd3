package partwriter

import (
	"encoding/binary"
	"math/bits"

	"github.com/urlake/urlake/lake/urlnorm"
)

// urlIDRoom is how many bytes urlID may look at before and behind a URL.
const urlIDRoom = 64

// urlID is urlnorm.URLID of buf[from:], before which there are urlIDRoom bytes, and as many of capacity behind it. Nearly all URLs have 17 to 128 bytes, of which XXH3-64 (the "XXH3 algorithm
// overview" of xxHash's specification) mixes 16 from either end for each 32 that there are: here always 64, of which those that are not to count are masked, since the core
// cannot foresee how many do.
func urlID(buf []byte, from int) uint64 {
	n := len(buf) - from
	if n < 17 || n > 128 {
		return urlnorm.URLID(buf[from:])
	}
	head := (*[8 * 8]byte)(buf[from : from+64 : cap(buf)])
	tail := (*[8 * 8]byte)(buf[len(buf)-64:])
	at := func(b *[64]byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i : 8*i+8]) }
	fold := func(x, y uint64) uint64 {
		hi, lo := bits.Mul64(x, y)
		return hi ^ lo
	}
	above := func(m int) uint64 { return uint64(int64(m-n) >> 63) } // all bits where n > m

	acc := uint64(n) * 0x9e3779b185ebca87
	acc += fold(at(head, 0)^0xbe4ba423396cfeb8, at(head, 1)^0x1cad21f72c81017c)
	acc += fold(at(tail, 6)^0xdb979083e96dd4de, at(tail, 7)^0x1f67b3b7a4a44072)
	mid := fold(at(head, 2)^0x78e5c0cc4ee679cb, at(head, 3)^0x2172ffcc7dd05a82)
	mid += fold(at(tail, 4)^0x8e2443f7744608b8, at(tail, 5)^0x4c263a81e69035e0)
	acc += mid & above(32)
	mid = fold(at(head, 4)^0xcb00c391bb52283c, at(head, 5)^0xa32e531b8b65d088)
	mid += fold(at(tail, 2)^0x4ef90da297486471, at(tail, 3)^0xd8acdea946ef1938)
	acc += mid & above(64)
	mid = fold(at(head, 6)^0x3f349ce33f76faa8, at(head, 7)^0x1d4f0bc7c7bbdcf9)
	mid += fold(at(tail, 0)^0x3159b4cd4be0518a, at(tail, 1)^0x647378d9c97e9fc8)
	acc += mid & above(96)

	acc ^= acc >> 37
	acc *= 0x165667919e3779f9
	return acc ^ acc>>32
}
