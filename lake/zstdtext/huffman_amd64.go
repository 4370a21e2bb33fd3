package zstdtext

// encodeAVX512 writes the codes of n literals, the last literal first, as huffman.encode does. It
// returns how many bytes it wrote, and the bits that do not fill a byte with their number.
//
// It loads literals under masks, so it reads nothing outside of lits. It writes up to eight bytes
// past the encoded ones, which encode's contract leaves in dst.
//
// It needs the features of hasAVX512. FuzzLiterals compares it with the loop of encode.
//
//go:noescape
func encodeAVX512(codes *splitCodes, dst, lits *byte, n int) (at int, acc uint64, have uint)

// splitAVX512 sets split to the three bytes of each code. It reads and writes its arguments only.
//
// It needs the features of hasAVX512. It has no other use than to prepare encodeAVX512, and is
// tested with it (FuzzLiterals).
//
//go:noescape
func splitAVX512(codes *[256]uint32, split *splitCodes)

// orderAVX512 sets order to the symbols by ascending count, as sortGeneric does, and returns how
// many there are. keys is scratch space. It reads and writes its arguments only: up to 16 elements
// past the last symbol, for which symbolOrder has room.
//
// It needs the features of hasAVX512. FuzzLiterals and TestAssemblySortsSymbols compare it with
// sortGeneric.
//
//go:noescape
func orderAVX512(total *[256]uint32, keys, order *symbolOrder) int

// prepareSplit fills splitCodes if that pays for so many literals.
func (h *huffman) prepareSplit(literals int) {
	const worthwhile = 1024
	if h.split = hasAVX512 && literals >= worthwhile; h.split {
		splitAVX512(&h.codes, &h.splitCodes)
	}
}

// encodeFast encodes literals of a stream, from the end, if there is assembly for them. It returns
// the literals that are left, the bytes written and the bits left over.
func (h *huffman) encodeFast(dst, lits []byte) (left []byte, at int, acc uint64, have uint) {
	if !h.split || len(lits) == 0 {
		return lits, 0, 0, 0
	}
	at, acc, have = encodeAVX512(&h.splitCodes, &dst[0], &lits[0], len(lits))
	return nil, at, acc, have
}

// sort sets h.order.
func (h *huffman) sort() {
	if hasAVX512 {
		h.order = h.orders[0][:orderAVX512(&h.total, &h.orders[1], &h.orders[0])]
	} else {
		h.sortGeneric()
	}
}
