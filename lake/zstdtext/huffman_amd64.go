package zstdtext

// encodeAVX512 writes the codes of n literals, the last one first, and returns how many bytes these are and the bits left over.
// It writes up to eight bytes behind them.
//
//go:noescape
func encodeAVX512(codes *splitCodes, dst, lits *byte, n int) (at int, acc uint64, have uint)

// splitAVX512 sets split to codes.
//
//go:noescape
func splitAVX512(codes *[256]uint32, split *splitCodes)

// splitUp fills splitCodes, if that is of use for some literals.
func (h *huffman) splitUp(literals int) {
	const worthIt = 1024
	if h.split = hasAVX512 && literals >= worthIt; h.split {
		splitAVX512(&h.codes, &h.splitCodes)
	}
}

// encodeMost encodes most of the literals of a stream, from the end, if there is a fast way. It returns those left, the bytes written and the bits left over.
func (h *huffman) encodeMost(dst, lits []byte) (left []byte, at int, acc uint64, have uint) {
	if !h.split || len(lits) == 0 {
		return lits, 0, 0, 0
	}
	at, acc, have = encodeAVX512(&h.splitCodes, &dst[0], &lits[0], len(lits))
	return nil, at, acc, have
}

// orderAVX512 sets order to the symbols by how many there are, as sortSlowly has them, and returns how many symbols these are. Keys is scratch space.
//
//go:noescape
func orderAVX512(total *[256]uint32, keys, order *orders) int

// sort sets h.order.
func (h *huffman) sort() {
	if hasAVX512 {
		h.order = h.orders[0][:orderAVX512(&h.total, &h.orders[1], &h.orders[0])]
	} else {
		h.sortSlowly()
	}
}
