package zstdtext

import "golang.org/x/sys/cpu"

// hasBMI2 says whether the machine has what encodeBMI2 needs.
var hasBMI2 = cpu.X86.HasBMI2

// encodeBMI2 is encodeSlowly of the sequences up to last.
//
//go:noescape
func encodeBMI2(q *sequences, last *sequence, buf *byte, b *sequenceBits)

// encodeAll writes the bits of all sequences, the last one first.
func (q *sequences) encodeAll(buf []byte, b *sequenceBits) {
	if hasBMI2 {
		encodeBMI2(q, &q.list[len(q.list)-1], &buf[0], b)
	} else {
		q.encodeSlowly(buf, b)
	}
}
