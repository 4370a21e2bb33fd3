package postings

import (
	"encoding/binary"
	"math"
)

// blockBytes is about what a block of a source has. Two of them and what is read of the source meanwhile stay in a core's cache.
const blockBytes = 8 << 10

// A block has domains of a list in their order, each as
//
//	u64 code, relative to the domain before in the list | u32 bytes of records | u8 bytes of the domain | domain | records
//
// and then blockSlack bytes that mean nothing, so that a fixed number may be read where a domain starts.
const (
	BlockHeader = 13
	BlockSlack  = 32
)

// blockWriter makes blocks of a list.
type BlockWriter struct {
	Last []byte // domain
}

// add appends a domain, of at most segment.MaxDomain bytes, to a block without slack. It fails if that does not come after the one before.
func (w *BlockWriter) Add(block, domain, records []byte) ([]byte, bool) {
	shared := 0
	for shared < len(w.Last) && shared < len(domain) && w.Last[shared] == domain[shared] {
		shared++
	}
	if shared == len(domain) || shared < len(w.Last) && domain[shared] < w.Last[shared] {
		return block, false
	}
	w.Last = append(w.Last[:0], domain...)
	le := binary.LittleEndian
	block = le.AppendUint64(block, OffsetCode(domain, shared))
	block = le.AppendUint32(block, uint32(len(records)))
	block = append(append(block, byte(len(domain))), domain...)
	return append(block, records...), true
}

// end ends a block.
func (w *BlockWriter) End(block []byte) []byte { return append(block, make([]byte, BlockSlack)...) }

// offsetCode is the code of a domain that comes after another, of which it shares the first bytes: of two domains, coded relative to the
// same one, that with the smaller code is the smaller one, and the other's code is the same relative to it. Only where codes are equal do the domains have to be
// looked at. (Offset-value coding: Conner, "Offset value coding", IBM Technical Disclosure Bulletin 20(7), 1977; Do and Graefe, "Robust and efficient sorting with offset-value
// coding", TODS 48(1), 2023.) Bytes are taken in columns of six, with zeros past the end. The code is firstColumn less the number of
// columns that are shared, in the upper six bits, and the next column; the lowest bits are left free. The code of a domain relative to
// itself is 0.
func OffsetCode(domain []byte, shared int) uint64 {
	var column [8]byte
	copy(column[:ColumnBytes], domain[shared/ColumnBytes*ColumnBytes:])
	return uint64(FirstColumn-shared/ColumnBytes)<<58 | binary.BigEndian.Uint64(column[:])>>6
}

const (
	ColumnBytes = 6
	FirstColumn = 62 // 63 is endCode's
)

// offsetCodeFast is offsetCode of the n bytes that p starts with. Up to eight that follow are read.
func OffsetCodeFast(p []byte, n, shared int) uint64 {
	columns := uint(shared) / ColumnBytes
	at := columns * ColumnBytes
	v := binary.BigEndian.Uint64(p[at:]) & (math.MaxUint64 << (64 - 8*min(uint(n)-at, ColumnBytes)))
	return uint64(FirstColumn-columns)<<58 | v>>6
}
