package deletion

import (
	"encoding/binary"

	"github.com/urlake/urlake/indexbuild/segment"
)

// A filter says for most domains that the file does not have them, with one look at memory: a
// blocked Bloom filter (Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters",
// 2007). A domain sets one bit in each of the eight 32-bit words of its block of 32 bytes. With 16
// bits a domain fewer than one in a thousand others is let through.
type filter []byte

const (
	filterBlock = 32
	// bitsPerDomain is the size of the filter.
	bitsPerDomain = 16
)

// salts make eight bits of one hash, as in the split block Bloom filter of Parquet.
var salts = [8]uint32{
	0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
}

// filterBytes returns the size of the filter for a number of domains.
func filterBytes(domains int64) int64 {
	return (domains*bitsPerDomain/8 + filterBlock) / filterBlock * filterBlock
}

// newFilter returns an empty filter for a number of domains.
func newFilter(domains int64) filter { return make(filter, filterBytes(domains)) }

// block returns the block of a domain and what its bits are made of. Ids are spread evenly, unless
// somebody chose them, which only costs reads.
func (f filter) block(k segment.Key) (block []byte, bits uint32) {
	n := uint64(len(f) / filterBlock)
	i := (k.ID >> 32) * n >> 32
	return f[i*filterBlock : (i+1)*filterBlock], uint32(k.ID) ^ k.Check
}

func (f filter) add(k segment.Key) {
	block, bits := f.block(k)
	for i, salt := range salts {
		word := binary.LittleEndian.Uint32(block[4*i:])
		binary.LittleEndian.PutUint32(block[4*i:], word|1<<(bits*salt>>27))
	}
}

// has reports whether the domain may have been added.
func (f filter) has(k segment.Key) bool {
	block, bits := f.block(k)
	for i, salt := range salts {
		if binary.LittleEndian.Uint32(block[4*i:])&(1<<(bits*salt>>27)) == 0 {
			return false
		}
	}
	return true
}
