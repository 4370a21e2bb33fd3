//go:build !amd64

package zstdtext

// splitUp fills splitCodes for assembly, which there is not.
func (h *huffman) splitUp(int) {}

// encodeMost leaves all literals of a stream.
func (h *huffman) encodeMost(dst, lits []byte) (left []byte, at int, acc uint64, have uint) {
	return lits, 0, 0, 0
}

// sort sets h.order.
func (h *huffman) sort() { h.sortSlowly() }
