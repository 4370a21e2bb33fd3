package rowsort

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/urlake/urlake/lake/row"
)

// Rows passes the rows of partitions first to last, both included, to sink, in the order of their keys (see Row.AppendKey), one of each record: the one with the smallest raw
// URL. They stay in the buffer. All calls are to be for equal numbers of partitions, of which first is a multiple.
func (b *Buffer) Rows(ctx context.Context, first, last byte, sink row.Sink) error {
	n := int(last) - int(first) + 1
	if b.partsOf != n {
		b.arrange(n)
	}
	group, from := int(first)/n, 0
	if group > 0 {
		from = b.ends[group-1]
	}
	order := b.order[from:b.ends[group]]
	b.passNone()
	at := b.starts[group]
	hosts, rows := 0, at // which were asked for
	for i := 0; i < len(order); {
		if i >= hosts {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			b.askInOrder(order, hosts)
			hosts += askAhead
		}
		h := &b.hosts[order[i].host]
		b.refs = b.refs[:0]
		for k := h; ; {
			if k.bytes == 0 {
				for todo := int(k.rows); todo > 0; {
					n := min(todo, askAhead)
					if at+n+rowsAhead-8 > rows {
						to := min(at+n+rowsAhead, len(b.places))
						askRows(b.places[rows:to], b.chunks)
						rows = to
					}
					b.load(b.places[at : at+n])
					at += n
					todo -= n
				}
			} else {
				b.loadData(k)
			}
			if i++; i == len(order) || order[i].cache != order[i-1].cache {
				break
			}
			if k = &b.hosts[order[i].host]; !b.sameHost(h, k) {
				break
			}
		}
		if err := b.pass(h, sink); err != nil {
			return err
		}
	}
	return b.passOn(sink)
}

// passOn passes on what is there to be.
func (b *Buffer) passOn(sink row.Sink) error {
	_, err := sink.Rows(b.passHosts, b.passRows)
	b.passNone()
	return err
}

// passNone forgets what is to be passed on.
func (b *Buffer) passNone() {
	b.passHosts, b.passRows, b.passTails = b.passHosts[:0], b.passRows[:0], b.passTails[:0]
}

// askInOrder asks for hosts that come in order after those from at to at + askAhead, which are used now, and for the names of those next. At 0 it asks for
// those at 0 first. At is a multiple of askAhead.
func (b *Buffer) askInOrder(order []hostRef, at int) {
	if at == 0 {
		askHosts(order[:min(2*askAhead, len(order))], b.hosts)
		askNames(order[:min(askAhead, len(order))], b.hosts, b.names, b.chunks)
	}
	if next := order[min(at+askAhead, len(order)):]; len(next) > 0 {
		askNames(next[:min(askAhead, len(next))], b.hosts, b.names, b.chunks)
		next = next[min(askAhead, len(next)):]
		askHosts(next[:min(askAhead, len(next))], b.hosts)
	}
}

// askRefs asks for the rows that come askAhead after one, and before the first one for those before them.
func (b *Buffer) askRefs(refs []rowRef, from int) {
	to := min(from+2*askAhead, len(refs))
	if from > 0 {
		from += askAhead
	}
	if from < to {
		askRefs(refs[from:to], b.chunks)
	}
}

// load adds rows at places to refs.
func (b *Buffer) load(places []uint32) {
	n := len(b.refs)
	b.refs = slices.Grow(b.refs, len(places))[:n+len(places)]
	refs, chunks, depth := b.refs[n:], b.chunks, uint(b.depth)
	for i, place := range places {
		chunk := place >> chunkBits
		off := place&(1<<chunkBits-1) + 4
		data := chunks[chunk][off-4:]
		cache := binary.BigEndian.Uint64(data[4+depth:])
		if more := uint(binary.LittleEndian.Uint32(data)>>row.SuffixBits) - depth; more < 8 {
			cache &^= ^uint64(0) >> (8 * more)
		}
		refs[i] = rowRef{cache, chunk, off}
	}
}

// loadData adds the rows of a host that lie one behind the other to refs.
func (b *Buffer) loadData(h *bufferHost) {
	b.refs = slices.Grow(b.refs, int(h.rows))
	chunk := h.data >> chunkBits
	data := b.chunks[chunk]
	at := h.data & (1<<chunkBits - 1)
	for end := at + h.bytes; at < end; {
		thisRow := data[at:end]
		b.refs = append(b.refs, rowRef{loadPath(thisRow[4:4+binary.LittleEndian.Uint32(thisRow)>>row.SuffixBits], b.depth), chunk, at + 4})
		at += uint32(rowSize(thisRow))
	}
}

// head is the head of a row.
func (b *Buffer) head(r rowRef) (data []byte, head uint32) {
	data = b.chunks[r.data]
	return data, binary.LittleEndian.Uint32(data[r.off-4:])
}

// path is a row's path.
func (b *Buffer) path(r rowRef) []byte {
	data, head := b.head(r)
	return data[r.off : r.off+head>>row.SuffixBits]
}

// tailKey is a row's tail as in a key.
func (b *Buffer) tailKey(r rowRef) []byte {
	data, head := b.head(r)
	if kind := head & (1<<row.SuffixBits - 1); kind != row.OwnSuffix {
		return row.UsualSuffixKeys[kind]
	}
	at := r.off + head>>row.SuffixBits
	n := binary.LittleEndian.Uint32(data[at:])
	return data[at+4 : at+4+n]
}

// pass sorts the rows of a host, which are in refs, and passes them on.
func (b *Buffer) pass(h *bufferHost, sink row.Sink) error {
	refs := b.refs
	if len(refs) == 2 {
		if refs[0].cache > refs[1].cache || refs[0].cache == refs[1].cache && b.compare(refs[0], refs[1], b.depth) > 0 {
			refs[0], refs[1] = refs[1], refs[0]
		}
	} else if len(refs) > 2 {
		b.sort(refs, b.depth)
	}
	for from := 0; from < len(refs); {
		if len(b.passHosts) == PassHosts || len(b.passRows) == PassRows {
			if err := b.passOn(sink); err != nil {
				return err
			}
		}
		n := min(len(refs)-from, PassRows-len(b.passRows))
		// What is put together elsewhere is read before it has been written there.
		k := len(b.passHosts)
		b.passHosts = b.passHosts[:k+1]
		p := &b.passHosts[k]
		p.Domain, p.Host, p.DomainID, p.Rows = b.domainName(h), b.hostName(h), h.id, n
		k = len(b.passRows)
		b.passRows = b.passRows[:k+n]
		rows := b.passRows[k:]
		for i, r := range refs[from : from+n] {
			if len(refs) > askSort && (from+i)%askAhead == 0 {
				b.askRefs(refs, from+i)
			}
			data := b.chunks[r.data][r.off-4:]
			head := binary.LittleEndian.Uint32(data)
			var tail *row.Suffix
			if kind := head & (1<<row.SuffixBits - 1); kind != row.OwnSuffix {
				tail = &row.UsualSuffixes[kind]
			} else {
				b.passTails = append(b.passTails, row.Suffix{})
				tail = &b.passTails[len(b.passTails)-1]
				if _, err := tail.Parse(b.tailKey(r)); err != nil {
					return err
				}
			}
			rows[i].Path, rows[i].Tail = data[4:4+head>>row.SuffixBits], tail
		}
		from += n
	}
	return nil
}
