//go:build !amd64

package zstdtext

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) { q.encodeGeneric(buf, b) }

// setFast sets no sequences: there is no assembly for it.
func (q *sequences) setFast(_ []byte, from int, _ []match, _ uint32) (i, at, end int) {
	return 0, 0, from
}
