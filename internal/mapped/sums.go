package mapped

import "github.com/cespare/xxhash/v2"

// Sums are the size and the hashes that a file must have.
type Sums struct {
	Bytes  int64
	XXH64  uint64   // of the whole file
	Blocks []uint64 // xxh64 of each BlockSize bytes; the last block holds the rest
}

// Hash computes the Sums of what is written to it.
type Hash struct {
	whole, block xxhash.Digest
	n            int64
	blocks       []uint64
}

// NewHash returns a Hash of no bytes.
func NewHash() *Hash {
	h := &Hash{}
	h.whole.Reset()
	h.block.Reset()
	return h
}

// Write never fails.
func (h *Hash) Write(p []byte) (int, error) {
	n := len(p)
	h.whole.Write(p)
	for len(p) > 0 {
		k := min(int64(len(p)), BlockSize-h.n%BlockSize)
		h.block.Write(p[:k])
		p = p[k:]
		if h.n += k; h.n%BlockSize == 0 {
			h.blocks = append(h.blocks, h.block.Sum64())
			h.block.Reset()
		}
	}
	return n, nil
}

// Sums returns the sums of what was written so far.
func (h *Hash) Sums() Sums {
	s := Sums{Bytes: h.n, XXH64: h.whole.Sum64(), Blocks: h.blocks}
	if h.n%BlockSize != 0 {
		s.Blocks = append(s.Blocks[:len(s.Blocks):len(s.Blocks)], h.block.Sum64())
	}
	return s
}
