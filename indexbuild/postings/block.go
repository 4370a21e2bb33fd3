package postings

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A block is a piece of a sorted list of domains, on the way from a source to the merge. For each
// domain it has
//
//	u64 code (OffsetCode), relative to the previous domain of the list
//	u32 bytes of records | u8 bytes of the domain | domain | records
//
// After the last domain come BlockSlack bytes without meaning.
const (
	// blockBytes is about the size of a block. Two of them, and what a source reads for them, fit
	// into a core's cache.
	blockBytes = 8 << 10

	blockHeader = 13

	// BlockSlack is the number of bytes that may be read after the end of any domain of a block, so
	// that a merge can copy and compare fixed numbers of bytes.
	BlockSlack = 32
)

// BlockDomain is a domain in a block: the block from the offset of the domain to its end.
type BlockDomain []byte

// Code returns the domain's code relative to the previous domain of the list.
func (d BlockDomain) Code() uint64 { return binary.LittleEndian.Uint64(d) }

// Text returns the domain as the first n bytes of text. At least BlockSlack bytes follow them.
func (d BlockDomain) Text() (text []byte, n int) { return d[blockHeader:], int(d[blockHeader-1]) }

// Records returns the domain's encoded records.
func (d BlockDomain) Records() []byte {
	start := blockHeader + int(d[blockHeader-1])
	return d[start : start+int(binary.LittleEndian.Uint32(d[8:]))]
}

// Len returns the number of bytes up to the next domain, or to the slack.
func (d BlockDomain) Len() int {
	return blockHeader + int(d[blockHeader-1]) + int(binary.LittleEndian.Uint32(d[8:]))
}

// BlockWriter encodes the blocks of one list.
type BlockWriter struct {
	last []byte // domain
}

// Append appends a domain of at most segment.MaxDomain bytes to a block that has not ended. It
// returns an error if the domain does not follow the previous one.
func (w *BlockWriter) Append(block, domain, records []byte) ([]byte, error) {
	shared := 0
	for shared < len(w.last) && shared < len(domain) && w.last[shared] == domain[shared] {
		shared++
	}
	if shared == len(domain) || shared < len(w.last) && domain[shared] < w.last[shared] {
		return nil, fmt.Errorf("domain %q after %q", domain, w.last)
	}
	w.last = append(w.last[:0], domain...)
	le := binary.LittleEndian
	block = le.AppendUint64(block, offsetCode(domain, shared))
	block = le.AppendUint32(block, uint32(len(records)))
	block = append(append(block, byte(len(domain))), domain...)
	return append(block, records...), nil
}

// End ends a block.
func (w *BlockWriter) End(block []byte) []byte { return append(block, make([]byte, BlockSlack)...) }

const (
	// columnBytes is the number of bytes of a domain that a code has.
	columnBytes = 6

	// columnBits are the bits of a code from its column on.
	columnBits = 58

	// firstColumn is what the code of a domain has that shares no column; 63 is left for the end of
	// a list.
	firstColumn = 62

	// CodeFreeBits is the number of low bits of a code that are always 0.
	CodeFreeBits = columnBits - 8*columnBytes
)

// OffsetCode returns the offset-value code of a domain relative to a smaller one, with which it
// shares the first bytes. The domain is the first n bytes of p; up to eight more are read.
//
// Codes order domains. Of two domains with codes relative to the same third one, the domain with
// the smaller code is smaller, and the other domain's code is the same relative to it. The domains
// have to be compared only if their codes are equal. A domain relative to itself has code 0; any
// other code is at least 1<<CodeFreeBits and less than 63<<58.
//
// A domain is taken as columns of six bytes, with zeros past its end. The upper six bits of a code
// are firstColumn less the number of shared columns; the next column follows.
//
// Sources: Conner, "Offset value coding", IBM Technical Disclosure Bulletin 20(7), 1977; Do and
// Graefe, "Robust and efficient sorting with offset-value coding", TODS 48(1), 2023.
func OffsetCode(p []byte, n, shared int) uint64 {
	columns := uint(shared) / columnBytes
	at := columns * columnBytes
	v := binary.BigEndian.Uint64(p[at:]) & (math.MaxUint64 << (64 - 8*min(uint(n)-at, columnBytes)))
	return uint64(firstColumn-columns)<<columnBits | v>>(64-columnBits)
}

// offsetCode is OffsetCode for a domain without bytes after it.
func offsetCode(domain []byte, shared int) uint64 {
	var padded [8]byte
	rest := domain[shared/columnBytes*columnBytes:]
	copy(padded[:columnBytes], rest)
	return uint64(firstColumn-shared/columnBytes)<<columnBits | binary.BigEndian.Uint64(padded[:])>>(64-columnBits)
}

// SharedBytes returns how many bytes a domain with this code shares, at least, with the domain that
// the code is relative to.
func SharedBytes(code uint64) int { return columnBytes * (firstColumn - int(code>>columnBits)) }
