package row

// The functions in this file read a byte of each cache line that the Buffer is about to use. The
// processor waits for many of these independent reads at once, where a loop that works on what it
// reads waits for one after the other.

// lineSize is the size of a cache line.
const lineSize = 64

// touchNames reads the first and the last byte of the names of hosts, and the beginning of the rows
// that Load filled: the processor itself prefetches what follows.
func (b *Buffer) touchNames(order []hostRef) {
	const most = 8 * lineSize
	sum := byte(0)
	for _, o := range order {
		h := &b.hosts[o.host]
		name := b.names[h.name>>chunkBits][h.name&(1<<chunkBits-1):]
		sum += name[0] + name[max(h.length, 1)-1]
		if h.bytes == 0 {
			continue
		}
		rows := b.chunks[h.data>>chunkBits][h.data&(1<<chunkBits-1):][:min(h.bytes, most)]
		for i := 0; i < len(rows); i += lineSize {
			sum += rows[i]
		}
		sum += rows[len(rows)-1]
	}
	b.touched = sum
}

// touchRows reads a byte of the first two lines of each of the rows at offsets.
func (b *Buffer) touchRows(offsets []uint32) {
	sum := byte(0)
	for _, offset := range offsets {
		chunk := b.chunks[offset>>chunkBits]
		at := int(offset & (1<<chunkBits - 1))
		sum += chunk[at] + chunk[min(at+lineSize, len(chunk)-1)]
	}
	b.touched = sum
}

// touchRefs reads a byte of the first two lines of each of the rows of refs.
func (b *Buffer) touchRefs(refs []rowRef) {
	sum := byte(0)
	for i := range refs {
		chunk := b.chunks[refs[i].chunk]
		at := int(refs[i].path) - 4
		sum += chunk[at] + chunk[min(at+lineSize, len(chunk)-1)]
	}
	b.touched = sum
}
