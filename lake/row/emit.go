package row

import (
	"context"
	"encoding/binary"
	"slices"
)

// Rows passes the rows of partitions first to last, both included, to sink in the order of their
// keys (see row.Row.AppendKey). Rows that differ only in their raw URLs all reach the sink, the
// smallest raw URL first; the sink keeps that one. The rows stay in the buffer.
//
// Partitions are sorted in groups of last-first+1. So first must be a multiple of that number, and
// a call with another number than the call before sorts all rows again.
func (b *Buffer) Rows(ctx context.Context, first, last byte, sink Sink) error {
	width := int(last) - int(first) + 1
	if b.groupWidth != width {
		b.arrange(width)
	}
	group, from := int(first)/width, 0
	if group > 0 {
		from = b.ends[group-1]
	}
	order := b.order[from:b.ends[group]]
	rows := rowLoader{b: b, next: b.starts[group], touched: b.starts[group]}
	b.resetPass()
	touched := 0 // hosts
	for i := 0; i < len(order); {
		if i >= touched {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			touched = min(i+touchBatch, len(order))
			b.touchNames(order[i:touched])
		}
		// A host may have several numbers (elements of b.hosts). Load the rows of all of them, then
		// sort them together.
		h := &b.hosts[order[i].host]
		b.refs = b.refs[:0]
		for same := true; same; {
			rows.load(&b.hosts[order[i].host])
			i++
			same = i < len(order) && order[i].cache == order[i-1].cache && b.sameHost(h, &b.hosts[order[i].host])
		}
		if err := b.pass(h, sink); err != nil {
			return err
		}
	}
	return b.flushPass(sink)
}

// rowLoader loads the rows of hosts in their order into refs.
type rowLoader struct {
	b       *Buffer
	next    int // in offsets: the next row in blocks
	touched int // in offsets: rows before it have been touched
}

// load adds the rows of a host to refs.
func (l *rowLoader) load(h *bufferHost) {
	b := l.b
	if h.bytes > 0 {
		b.loadTogether(h)
		return
	}
	for left := int(h.rows); left > 0; {
		if l.next == l.touched {
			l.touched = min(l.next+touchBatch, len(b.offsets))
			b.touchRows(b.offsets[l.next:l.touched])
		}
		n := min(left, l.touched-l.next)
		b.loadOffsets(b.offsets[l.next : l.next+n])
		l.next += n
		left -= n
	}
}

// loadOffsets adds the rows at offsets to refs. It reads up to pathSlack bytes after a row's end.
func (b *Buffer) loadOffsets(offsets []uint32) {
	n := len(b.refs)
	b.refs = slices.Grow(b.refs, len(offsets))[:n+len(offsets)]
	refs, chunks, depth := b.refs[n:], b.chunks, uint(b.depth)
	for i, offset := range offsets {
		chunk := offset >> chunkBits
		path := offset&(1<<chunkBits-1) + 4
		data := chunks[chunk][path-4:]
		cache := binary.BigEndian.Uint64(data[4+depth:])
		if more := uint(binary.LittleEndian.Uint32(data)>>suffixBits) - depth; more < 8 {
			cache &^= ^uint64(0) >> (8 * more)
		}
		refs[i] = rowRef{cache, chunk, path}
	}
}

// loadTogether adds the rows of a host to refs. Buffer.load has stored them next to each other.
func (b *Buffer) loadTogether(h *bufferHost) {
	b.refs = slices.Grow(b.refs, int(h.rows))
	chunk := h.data >> chunkBits
	data := b.chunks[chunk]
	at := h.data & (1<<chunkBits - 1)
	for end := at + h.bytes; at < end; {
		r := data[at:end]
		path := r[4 : 4+binary.LittleEndian.Uint32(r)>>suffixBits]
		b.refs = append(b.refs, rowRef{loadPath(path, b.depth), chunk, at + 4})
		at += uint32(rowSize(r))
	}
}

// header returns a row's chunk and its header.
func (b *Buffer) header(r rowRef) (chunk []byte, header uint32) {
	chunk = b.chunks[r.chunk]
	return chunk, binary.LittleEndian.Uint32(chunk[r.path-4:])
}

// path returns a row's path.
func (b *Buffer) path(r rowRef) []byte {
	chunk, header := b.header(r)
	return chunk[r.path : r.path+header>>suffixBits]
}

// suffixKey returns a row's suffix as in a key.
func (b *Buffer) suffixKey(r rowRef) []byte {
	chunk, header := b.header(r)
	if kind := header & (1<<suffixBits - 1); kind != OwnSuffix {
		return usualSuffixKeys[kind]
	}
	at := r.path + header>>suffixBits
	n := binary.LittleEndian.Uint32(chunk[at:])
	return chunk[at+4 : at+4+n]
}

// pass sorts the rows of host h, which are in refs, and adds them to the next calls of Sink.Rows.
// It calls the sink whenever a call has passRows rows or passHosts hosts.
func (b *Buffer) pass(h *bufferHost, sink Sink) error {
	refs := b.refs
	if len(refs) == 2 {
		if refs[0].cache > refs[1].cache || refs[0].cache == refs[1].cache && b.compare(refs[0], refs[1], b.depth) > 0 {
			refs[0], refs[1] = refs[1], refs[0]
		}
	} else if len(refs) > 2 {
		b.sort(refs, b.depth)
	}
	for from := 0; from < len(refs); {
		if len(b.passHosts) == passHosts || len(b.passRows) == passRows {
			if err := b.flushPass(sink); err != nil {
				return err
			}
		}
		n := min(len(refs)-from, passRows-len(b.passRows))
		// The elements are set where they are: reading a copy that was just written would stall.
		k := len(b.passHosts)
		b.passHosts = b.passHosts[:k+1]
		p := &b.passHosts[k]
		p.Domain, p.Host, p.DomainID, p.Rows = b.domainName(h), b.hostName(h), h.id, n
		k = len(b.passRows)
		b.passRows = b.passRows[:k+n]
		rows := b.passRows[k:]
		for i, r := range refs[from : from+n] {
			if len(refs) > touchSort && (from+i)%touchBatch == 0 {
				b.touchRefs(refs[from+i : min(from+i+touchBatch, len(refs))])
			}
			data := b.chunks[r.chunk][r.path-4:]
			header := binary.LittleEndian.Uint32(data)
			var suffix *Suffix
			if kind := header & (1<<suffixBits - 1); kind != OwnSuffix {
				suffix = &UsualSuffixes[kind]
			} else {
				b.passSuffixes = append(b.passSuffixes, Suffix{})
				suffix = &b.passSuffixes[len(b.passSuffixes)-1]
				if err := suffix.parse(b.suffixKey(r), 0); err != nil {
					return err
				}
			}
			rows[i].Path, rows[i].Suffix = data[4:4+header>>suffixBits], suffix
		}
		from += n
	}
	return nil
}

// flushPass calls the sink with the hosts and rows that were added for it.
func (b *Buffer) flushPass(sink Sink) error {
	_, err := sink.Rows(b.passHosts, b.passRows)
	b.resetPass()
	return err
}

// resetPass removes the hosts and rows that were added for the sink.
func (b *Buffer) resetPass() {
	b.passHosts, b.passRows, b.passSuffixes = b.passHosts[:0], b.passRows[:0], b.passSuffixes[:0]
}
