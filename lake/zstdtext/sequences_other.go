//go:build !amd64

package zstdtext

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) { q.encodeSlowly(buf, b) }

// setMost sets the sequences of most matches if there is a fast way, which there is not.
func (q *sequences) setMost(_ []byte, from int, _ []match, _ uint32) (i, at, end int) {
	return 0, 0, from
}
