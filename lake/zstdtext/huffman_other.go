//go:build !amd64

package zstdtext

// prepareSplit does nothing: there is no assembly that reads splitCodes.
func (h *huffman) prepareSplit(int) {}

// encodeFast leaves all literals of a stream to encode.
func (h *huffman) encodeFast(dst, lits []byte) (left []byte, at int, acc uint64, have uint) {
	return lits, 0, 0, 0
}

// sort sets h.order.
func (h *huffman) sort() { h.sortGeneric() }
