package blob

import "unsafe"

const (
	// directAlign is the alignment of memory, offsets and sizes of direct reads and writes. No disk
	// requires more than a page.
	directAlign = 4 << 10

	// directRead is the minimum size of direct reads: large enough to be efficient on a spinning or
	// remote disk.
	directRead = 256 << 10

	// AlignSlack is how many bytes more than n the buffer of an AlignedSlice of n bytes must have.
	AlignSlack = directAlign
)

// AlignedSlice returns n bytes of buf, which has at least n+AlignSlack bytes, for the bytes of an
// object from off. Their addresses are congruent to off modulo the page size. That is what direct
// reads (O_DIRECT) require: a read of a large range from a local store in one call then bypasses
// the page cache.
func AlignedSlice(buf []byte, off, n int64) []byte {
	skip := (off - address(buf)) & (directAlign - 1)
	return buf[skip:][:n:n]
}

// NewAlignedSlice allocates an AlignedSlice. If n is too small for direct reads, it allocates n
// bytes without alignment.
func NewAlignedSlice(off, n int64) []byte {
	if n < directRead {
		return make([]byte, n)
	}
	return AlignedSlice(make([]byte, n+AlignSlack), off, n)
}

// address is the address of b as a number, which is never converted back.
func address(b []byte) int64 { return int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
