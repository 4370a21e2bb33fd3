//go:build !amd64

package zstdtext

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) { q.encodeSlowly(buf, b) }
