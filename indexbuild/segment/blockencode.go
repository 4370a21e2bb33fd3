package segment

import (
	"bytes"
	"math"
	"math/bits"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// encode appends the block of the pending entries [lo, hi) to out.
func (w *PostingsWriter) encode(out []byte, lo, hi int) []byte {
	c := &w.pending
	entries := hi - lo
	ids, checks, flags, files := c.ids[lo:hi], c.checks[lo:hi], c.flags[lo:hi], c.files[lo:hi]
	sizes, times, inline := 0, 0, bytes.Count(flags, []byte{entryInline})
	if inline < entries { // some have other flags
		inline = 0
		for _, f := range flags {
			sizes += int(f & entrySize)
			times += int(f & entryTS / entryTS)
			inline += int(f & entryInline / entryInline)
		}
	}
	w.findFirsts(ids, checks)
	w.table, w.owners = w.table[:0], w.owners[:0]
	w.seenFiles.reset()
	w.ints = slices.Grow(w.ints[:0], entries)[:entries]
	for i, file := range files {
		// Files are numbered as they appear. The number becomes the index in the sorted table
		// below.
		number, added := w.seenFiles.number(file, uint32(len(w.table)))
		if added {
			w.table = append(w.table, file)
			w.owners = append(w.owners, c.datasets[lo+i])
		}
		w.ints[i] = int64(number)
	}
	domains := len(w.firsts)
	w.sortTable()
	hasSize, hasTS := presenceOf(sizes, entries), presenceOf(times, entries)
	hasPayload := presenceOf(entries-inline, entries)
	rare := &c.rare
	if sizes+times > 0 || inline < entries {
		rare.fill(max(hi, len(rare.sizes)))
	}

	out = codec.AppendMagic(out, postingsMagic, postingsVersion)
	out = codec.AppendUvarint(out, uint64(w.shard))
	out = codec.AppendUvarint(out, uint64(domains))
	out = codec.AppendUvarint(out, uint64(entries))
	out = codec.AppendUvarint(out, uint64(len(w.table)))
	out = append(out, byte(hasSize|hasTS<<2|hasPayload<<4))

	out = w.encodeDomains(out, ids, checks)

	for i, number := range w.ints {
		w.ints[i] = int64(w.ranks[number])
	}
	out = w.appendUint32s(out, w.table)
	out = w.appendUint32s(out, w.owners)
	out, w.scratch = appendInts(out, w.ints, w.scratch)
	out, w.scratch = appendInts(out, c.rows[lo:hi], w.scratch)
	if hasSize != none {
		out = appendFlags(out, hasSize, flags, entrySize, 0)
		w.ints = pick(w.ints, rare.sizes[lo:hi], flags, entrySize, 0)
		out, w.scratch = appendInts(out, w.ints, w.scratch)
	}
	if hasTS != none {
		out = appendFlags(out, hasTS, flags, entryTS, 0)
		out = w.encodeTimes(out, flags, rare.firstTS[lo:hi], rare.lastTS[lo:hi])
	}
	out = appendFlags(out, hasPayload, flags, entryInline, entryInline)
	switch hasPayload {
	case none:
		out = w.appendUint32s(out, c.rowGroups[lo:hi])
		out, w.scratch = appendInts(out, c.firstRows[lo:hi], w.scratch)
	case some:
		w.ints = w.ints[:0]
		for i, g := range c.rowGroups[lo:hi] {
			if flags[i]&entryInline != 0 {
				w.ints = append(w.ints, int64(g))
			}
		}
		out, w.scratch = appendInts(out, w.ints, w.scratch)
		w.ints = pick(w.ints, c.firstRows[lo:hi], flags, entryInline, 0)
		out, w.scratch = appendInts(out, w.ints, w.scratch)
	}
	if hasPayload != none {
		w.ints = pick(w.ints, rare.offsets[lo:hi], flags, entryInline, entryInline)
		out, w.scratch = appendInts(out, w.ints, w.scratch)
		w.ints = pick(w.ints, rare.lengths[lo:hi], flags, entryInline, entryInline)
		out, w.scratch = appendInts(out, w.ints, w.scratch)
	}
	return codec.AppendCRC32C(out)
}

// findFirsts sets w.firsts to the entries that are a domain's first. It is branch-free: a branch on
// whether the domain changes would mispredict.
func (w *PostingsWriter) findFirsts(ids []uint64, checks []uint32) {
	w.firsts = slices.Grow(w.firsts[:0], len(ids)+1)[:len(ids)+1]
	firsts, n := w.firsts, 1
	firsts[0] = 0
	id, check := ids[0], checks[0]
	for i, k := range checks[1:len(ids)] {
		next := ids[i+1]
		differ := next ^ id | uint64(k^check)
		firsts[n] = uint32(i + 1) // overwritten by the next entry if this is not a first one
		n += int((differ | -differ) >> 63)
		id, check = next, k
	}
	w.firsts = firsts[:n]
}

// sortTable sorts the files of the table with their datasets, and sets ranks to the new index of
// each.
func (w *PostingsWriter) sortTable() {
	w.order = w.order[:0]
	for i, f := range w.table {
		w.order = append(w.order, uint64(f)<<32|uint64(i))
	}
	slices.Sort(w.order)
	w.ranks = slices.Grow(w.ranks[:0], len(w.order))[:len(w.order)]
	w.unsorted = append(w.unsorted[:0], w.owners...)
	for rank, o := range w.order {
		w.table[rank], w.owners[rank] = uint32(o>>32), w.unsorted[uint32(o)]
		w.ranks[uint32(o)] = uint32(rank)
	}
}

// appendUint32s is appendInts for uint32 values.
func (w *PostingsWriter) appendUint32s(out []byte, values []uint32) []byte {
	low, high := uint32(math.MaxUint32), uint32(0)
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	if low == high {
		return appendEqual(out, int64(low))
	}
	w.scratch = slices.Grow(w.scratch[:0], len(values))[:len(values)]
	for i, v := range values {
		w.scratch[i] = uint64(v - low)
	}
	return appendColumn(out, int64(low), w.scratch)
}

// pick returns the values of the entries whose flag, XORed with invert, is set. It uses the memory
// of into.
func pick(into, values []int64, flags []uint8, flag, invert uint8) []int64 {
	into = into[:0]
	for i, v := range values {
		if (flags[i]^invert)&flag != 0 {
			into = append(into, v)
		}
	}
	return into
}

// appendFlags appends a bit for each entry that tells whether its flag, XORed with invert, is set.
// It appends nothing unless p is some.
func appendFlags(out []byte, p presence, flags []uint8, flag, invert uint8) []byte {
	if p != some {
		return out
	}
	b := writer{Out: out}
	for _, f := range flags {
		v := uint64(0)
		if (f^invert)&flag != 0 {
			v = 1
		}
		b.Put(v, 1)
	}
	return b.Align()
}

// encodeDomains appends ids, check bits, and which entries are a domain's first. Ids are spread
// evenly, so an Elias-Fano list, which is searched without decoding, takes little more than the
// minimum: log2(range/D)+2 bits per id.
func (w *PostingsWriter) encodeDomains(out []byte, ids []uint64, checks []uint32) []byte {
	first, domains := ids[0], len(w.firsts)
	out = codec.AppendU64(out, first)
	lows := lowBits(ids[len(ids)-1]-first, domains)
	high := (ids[len(ids)-1] - first) >> lows
	out = append(out, byte(lows))
	out = codec.AppendUvarint(out, high)

	w.scratch = w.scratch[:0]
	for _, i := range w.firsts {
		w.scratch = append(w.scratch, ids[i]-first)
	}
	out = appendBits(out, w.scratch, lows)
	var upper []byte
	out, upper = appendZeros(out, int(high)+domains)
	for i, v := range w.scratch {
		setBit(upper, int(v>>lows)+i)
	}
	out = slices.Grow(out, 4*domains)
	for _, i := range w.firsts {
		out = codec.AppendU32(out, checks[i])
	}
	if domains == len(ids) {
		return out
	}
	out, starts := appendZeros(out, len(ids))
	for _, i := range w.firsts {
		setBit(starts, int(i))
	}
	return out
}

// appendZeros appends n zero bits and returns them too.
func appendZeros(out []byte, n int) (_, bits []byte) {
	start := len(out)
	out = slices.Grow(out, bitBytes(n, 1))[:start+bitBytes(n, 1)]
	clear(out[start:])
	return out, out[start:]
}

func setBit(bits []byte, i int) { bits[i>>3] |= 1 << (i & 7) }

// lowBits returns the number of low bits for n ids over a range: with it an id has at most two bits
// of the upper list on average.
func lowBits(span uint64, n int) uint {
	return uint(max(bits.Len64(span/uint64(n)), 1) - 1)
}

// encodeTimes appends first and last ts in multiples of their greatest common divisor: most
// datasets have seconds or days.
func (w *PostingsWriter) encodeTimes(out []byte, flags []uint8, firsts, lasts []int64) []byte {
	var base int64
	found := false
	for i, first := range firsts {
		if flags[i]&entryTS != 0 && (!found || first < base) {
			base, found = first, true
		}
	}
	unit := uint64(0)
	for i, first := range firsts {
		if flags[i]&entryTS != 0 {
			unit = gcd(unit, uint64(first)-uint64(base))
			unit = gcd(unit, uint64(lasts[i])-uint64(first))
		}
	}
	unit = max(unit, 1)
	out = codec.AppendVarint(out, base)
	out = codec.AppendUvarint(out, unit)
	w.scratch = w.scratch[:0]
	for i, first := range firsts {
		if flags[i]&entryTS != 0 {
			w.scratch = append(w.scratch, (uint64(first)-uint64(base))/unit)
		}
	}
	out = appendColumn(out, 0, w.scratch)
	w.scratch = w.scratch[:0]
	for i, first := range firsts {
		if flags[i]&entryTS != 0 {
			w.scratch = append(w.scratch, (uint64(lasts[i])-uint64(first))/unit)
		}
	}
	return appendColumn(out, 0, w.scratch)
}

// gcd returns the greatest common divisor. It is fast if b is a multiple of a, the most frequent
// case.
func gcd(a, b uint64) uint64 {
	if a == 1 || a != 0 && b%a == 0 {
		return a
	}
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
