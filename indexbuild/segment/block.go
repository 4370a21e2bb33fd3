package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/urlake/urlake/lake/codec"
)

// presence says which entries of a block have something.
type presence uint8

const (
	none presence = iota
	all
	some // a bit for each entry says which
)

func presenceOf(n, total int) presence {
	switch n {
	case 0:
		return none
	case total:
		return all
	}
	return some
}

// A block holds consecutive entries, column by column:
//
//	"PDX1" | u32 ver=1 | uvarint shard | uvarint domains D | uvarint entries N | uvarint files F
//	u8 presence: of size | of ts << 2 | of payloads << 4, each 0 none, 1 all, 2 some
//	u64 first domain_id
//	u8 L | D × L bits: low bits of domain_id - first
//	(H + D) bits: the high bits of domain_id - first, by Elias and Fano: the one with number i stands at high+i. uvarint H before
//	D × u32 check bits
//	[N bits, if N ≠ D: 1 where a domain's first entry is]
//	file table: column of F file ids, ascending; column of their datasets
//	column of N places in the file table: the file of the entry's first tuple, which tells its dataset
//	column of N rows
//	[N bits, if some have a size] [column of sizes, if any]
//	[N bits, if some have ts] [varint base, uvarint unit, column of (first-base)/unit, column of (last-first)/unit, if any]
//	[N bits, if some have a payload]
//	[column of row_group, column of first_row, for entries without a payload, if any]
//	[column of offset, column of length, for those with one, if any]
//	u32 CRC-32C
//
// Bit strings start on a byte. Columns are packed columns, see column.go.

// encode appends the block of the pending entries from lo to hi to out.
func (w *PostingsWriter) encode(out []byte, lo, hi int) []byte {
	c := &w.pending
	entries := hi - lo
	ids, checks, flags, files := c.ids[lo:hi], c.checks[lo:hi], c.flags[lo:hi], c.files[lo:hi]
	sizes, times, inline := 0, 0, bytes.Count(flags, []byte{entryInline})
	if inline < entries { // some are not plain
		inline = 0
		for _, f := range flags {
			sizes += int(f & entrySize)
			times += int(f & entryTS / entryTS)
			inline += int(f & entryInline / entryInline)
		}
	}
	w.findFirsts(ids, checks)
	w.table, w.owners = w.table[:0], w.owners[:0]
	w.places.next()
	w.ints = slices.Grow(w.ints[:0], entries)[:entries]
	for i, file := range files {
		// The place of the file in the order in which files come; it becomes the one in the sorted table below.
		place, fresh := w.places.place(file, uint32(len(w.table)))
		if fresh {
			w.table = append(w.table, file)
			w.owners = append(w.owners, c.datasets[lo+i])
		}
		w.ints[i] = int64(place)
	}
	domains := len(w.firsts)
	w.sortTable()
	hasSize, hasTS, hasPayload := presenceOf(sizes, entries), presenceOf(times, entries), presenceOf(entries-inline, entries)
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

	for i, p := range w.ints {
		w.ints[i] = int64(w.ranks[p])
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

// findFirsts notes which entries are a domain's first, without a branch on what nobody knows before.
func (w *PostingsWriter) findFirsts(ids []uint64, checks []uint32) {
	w.firsts = slices.Grow(w.firsts[:0], len(ids)+1)[:len(ids)+1]
	firsts, n := w.firsts, 1
	firsts[0] = 0
	id, check := ids[0], checks[0]
	for i, k := range checks[1:len(ids)] {
		next := ids[i+1]
		differ := next ^ id | uint64(k^check)
		firsts[n] = uint32(i + 1) // written again by the next one where this is none
		n += int((differ | -differ) >> 63)
		id, check = next, k
	}
	w.firsts = firsts[:n]
}

// sortTable sorts the files of the table with their owners, and notes in ranks where each has gone.
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

// appendUint32s is appendInts for other numbers.
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

// pick returns the values of those entries whose flag, XORed with invert, is set, in the memory of into.
func pick(into, values []int64, flags []uint8, flag, invert uint8) []int64 {
	into = into[:0]
	for i, v := range values {
		if (flags[i]^invert)&flag != 0 {
			into = append(into, v)
		}
	}
	return into
}

// appendFlags appends a bit for each entry, if some have what p is about: whether its flag, XORed with invert, is set.
func appendFlags(out []byte, p presence, flags []uint8, flag, invert uint8) []byte {
	if p != some {
		return out
	}
	b := bitWriter{out: out}
	for _, f := range flags {
		v := uint64(0)
		if (f^invert)&flag != 0 {
			v = 1
		}
		b.put(v, 1)
	}
	return b.align()
}

// densePlaces is how many file ids are found without a map.
const densePlaces = 1 << 20

// placeTable has a number for each of the files of one block. Most segments have so few files that a slice holds the numbers of
// all; it is emptied by counting up.
type placeTable struct {
	round uint32
	stamp []uint32 // of each file id: the round in which its value was set
	value []uint32
	rest  map[uint32]uint32
}

// next empties the table.
func (t *placeTable) next() {
	if t.round++; t.round == 0 {
		clear(t.stamp)
		t.round = 1
	}
	clear(t.rest)
}

// place is the value of a file. One that has none gets this, and is fresh.
func (t *placeTable) place(file, value uint32) (_ uint32, fresh bool) {
	if file < uint32(len(t.stamp)) {
		if t.stamp[file] == t.round {
			return t.value[file], false
		}
		t.stamp[file], t.value[file] = t.round, value
		return value, true
	}
	return t.placeFar(file, value)
}

func (t *placeTable) placeFar(file, value uint32) (_ uint32, fresh bool) {
	if file < densePlaces {
		n := 1 << bits.Len32(max(file, 1023))
		t.stamp = append(t.stamp, make([]uint32, n-len(t.stamp))...)
		t.value = append(t.value, make([]uint32, n-len(t.value))...)
		return t.place(file, value)
	}
	if v, ok := t.rest[file]; ok {
		return v, false
	}
	if t.rest == nil {
		t.rest = map[uint32]uint32{}
	}
	t.rest[file] = value
	return value, true
}

// encodeDomains appends ids, check bits, and which entries are a domain's first. Ids are
// spread evenly, so that a list of their upper bits by Elias and Fano, searched without
// decoding it, takes little more than the least there is: log2(range/D)+2 bits an id.
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

// appendZeros appends n bits.
func appendZeros(out []byte, n int) (_, bits []byte) {
	start := len(out)
	out = slices.Grow(out, bitBytes(n, 1))[:start+bitBytes(n, 1)]
	clear(out[start:])
	return out, out[start:]
}

func setBit(bits []byte, i int) { bits[i>>3] |= 1 << (i & 7) }

// lowBits is the number of low bits for n ids over a range: then there are at most two upper
// steps to an id on average.
func lowBits(span uint64, n int) uint {
	return uint(max(bits.Len64(span/uint64(n)), 1) - 1)
}

// encodeTimes appends first and last ts in multiples of what all have in common: most
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

// gcd is the greatest common divisor. Most often b is a multiple of a.
func gcd(a, b uint64) uint64 {
	if a == 1 || a != 0 && b%a == 0 {
		return a
	}
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// block is one decoded frame of postings.idx. Lookups work on the packed bytes: what stays in
// memory is what stands in the file.
type block struct {
	file    string
	section string
	bytes   int64

	domains, entries, files int

	first  uint64
	lows   uint
	high   uint64
	low    bitString
	upper  bitString
	checks []byte
	starts bitString // nil where each domain has one entry

	fileIDs, datasets, places, rows column

	hasSize, hasTS, hasPayload presence
	sizeBits, tsBits, payBits  bitString
	sizes                      column
	tsBase                     int64
	tsUnit                     uint64
	firstTS, spanTS            column
	rowGroups, firstRows       column
	offsets, lengths           column
}

// expectation is what a block has to agree with.
type expectation struct {
	shard, shardBits int
	files            *Files // nil where unknown
	datBytes         int64  // decompressed size of postings.dat; -1 where unknown
}

// blockValues are values of a block that checking it has unpacked, for who reads all of it.
type blockValues struct {
	fileIDs  []uint32 // of the file table, by place
	datasets []uint32
	keys     []Key   // of the domains
	places   []int64 // by entry
	rows     []int64
	groups   []int64 // of entries without a payload
	firsts   []int64
	lows     []int64 // low bits of the keys
}

// valuesMemory keeps the memory of blocks that were checked.
var valuesMemory = sync.Pool{New: func() any { return new(blockValues) }}

// parseBlock checks every value of a block, so that lookups need not.
func parseBlock(raw []byte, file, section string, want expectation) (*block, error) {
	v := valuesMemory.Get().(*blockValues)
	defer valuesMemory.Put(v)
	return parseBlockValues(raw, file, section, want, v)
}

// parseBlockValues is parseBlock, and fills v.
func parseBlockValues(raw []byte, file, section string, want expectation, v *blockValues) (*block, error) {
	body, err := codec.CheckCRC32C(raw, file, section)
	if err != nil {
		return nil, err
	}
	b := &block{file: file, section: section, bytes: int64(cap(raw))}
	d := codec.NewDecoder(body, file, section)
	d.Magic(postingsMagic, postingsVersion)
	if shard := d.Uvarint(); d.Err() == nil && shard != uint64(want.shard) {
		d.Fail(fmt.Sprintf("shard %d", want.shard), shard)
	}
	b.domains = int(d.Uint(maxBlockEntries))
	b.entries = int(d.Uint(maxBlockEntries))
	b.files = int(d.Uint(uint64(b.entries)))
	if d.Err() == nil && (b.domains < 1 || b.domains > b.entries || b.files < 1) {
		d.Fail("entries of at least one domain and file each", fmt.Sprintf("%d domains, %d entries, %d files", b.domains, b.entries, b.files))
	}
	flags := d.U8()
	b.hasSize, b.hasTS, b.hasPayload = presence(flags&3), presence(flags>>2&3), presence(flags>>4)
	if d.Err() == nil && max(b.hasSize, b.hasTS, b.hasPayload) > some {
		d.Fail("presence 0 to 2 of size, ts and payload", flags)
	}
	b.readDomains(d, want)
	b.fileIDs = readColumn(d, b.files)
	b.datasets = readColumn(d, b.files)
	b.places = readColumn(d, b.entries)
	b.rows = readColumn(d, b.entries)
	present := func(p presence) (bitString, int) {
		switch p {
		case none:
			return nil, 0
		case all:
			return nil, b.entries
		}
		bs := bitString(d.Bytes(bitBytes(b.entries, 1)))
		if d.Err() != nil {
			return nil, 0
		}
		n := bs.rank(b.entries)
		if n == 0 || n == b.entries {
			d.Fail("some entries, not none or all", n)
		}
		return bs, n
	}
	var n int
	if b.hasSize != none {
		b.sizeBits, n = present(b.hasSize)
		b.sizes = readColumn(d, n)
	}
	if b.hasTS != none {
		b.tsBits, n = present(b.hasTS)
		b.tsBase = d.Varint()
		b.tsUnit = d.Uvarint()
		b.firstTS = readColumn(d, n)
		b.spanTS = readColumn(d, n)
	}
	b.payBits, n = present(b.hasPayload)
	if n < b.entries {
		b.rowGroups = readColumn(d, b.entries-n)
		b.firstRows = readColumn(d, b.entries-n)
	}
	if n > 0 {
		b.offsets = readColumn(d, n)
		b.lengths = readColumn(d, n)
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	if err := b.check(want, v); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *block) corrupt(want, got any) error { return codec.Corrupt(b.file, b.section, -1, want, got) }

func (b *block) readDomains(d *codec.Decoder, want expectation) {
	b.first = d.U64()
	b.lows = uint(d.U8())
	if d.Err() == nil && b.lows > 63 {
		d.Fail("at most 63 low bits", b.lows)
	}
	b.high = d.Uvarint()
	if d.Err() == nil && (b.high > uint64(8*d.Len()) || b.high > math.MaxUint64>>b.lows) {
		d.Fail("a list of upper bits that fits", b.high)
	}
	if d.Err() != nil {
		return
	}
	b.low = d.Bytes(bitBytes(b.domains, b.lows))
	b.upper = d.Bytes(bitBytes(int(b.high)+b.domains, 1))
	b.checks = d.Bytes(4 * b.domains)
	if b.domains < b.entries {
		b.starts = d.Bytes(bitBytes(b.entries, 1))
	}
	if d.Err() != nil {
		return
	}
	if got := b.upper.rank(int(b.high) + b.domains); got != b.domains {
		d.Fail(fmt.Sprintf("%d upper bits set", b.domains), got)
		return
	}
	if b.starts == nil {
		return
	}
	if got := b.starts.rank(b.entries); got != b.domains || !b.starts.has(0) {
		d.Fail(fmt.Sprintf("%d first entries, from the first on", b.domains), got)
	}
}

// check goes over all values once and leaves them in v.
func (b *block) check(want expectation, v *blockValues) error {
	fileIDs, datasets := b.fileIDs.cursor(), b.datasets.cursor()
	v.fileIDs, v.datasets = v.fileIDs[:0], v.datasets[:0]
	prevFile, prevSet := int64(-1), int64(-1)
	for range b.files {
		f, s := fileIDs.read(), datasets.read()
		if f <= prevFile || f > math.MaxUint32 || s < prevSet || s > math.MaxUint32 {
			return b.corrupt("files and datasets in order", fmt.Sprintf("%d of %d after %d of %d", f, s, prevFile, prevSet))
		}
		if want.files != nil {
			if f >= int64(want.files.Len()) {
				return b.corrupt(fmt.Sprintf("a file below %d", want.files.Len()), f)
			}
			if got := want.files.info[f].DatasetID; int64(got) != s {
				return b.corrupt(fmt.Sprintf("dataset %d of file %d", got, f), s)
			}
		}
		prevFile, prevSet = f, s
		v.fileIDs, v.datasets = append(v.fileIDs, uint32(f)), append(v.datasets, uint32(s))
	}

	b.readKeys(v)
	v.places, v.rows = b.places.unpack(v.places, b.entries), b.rows.unpack(v.rows, b.entries)
	if !b.sound(want, v) {
		if err := b.checkEntries(want, v); err != nil {
			return err
		}
	}
	if err := b.checkTotals(); err != nil {
		return err
	}
	return b.checkPlaces(want, v)
}

// readKeys reads the keys of all domains.
func (b *block) readKeys(v *blockValues) {
	low := column{width: b.lows, low: b.low}
	v.lows = low.unpack(v.lows, b.domains)
	v.keys = slices.Grow(v.keys[:0], b.domains)[:b.domains]
	domain := 0
	for w := 0; domain < len(v.keys); w++ {
		for ones := b.upper.word(w); ones != 0 && domain < len(v.keys); ones &= ones - 1 {
			at := w<<6 + bits.TrailingZeros64(ones)
			v.keys[domain] = Key{ID: b.first + (uint64(at-domain)<<b.lows | uint64(v.lows[domain])), Check: b.checkBits(domain)}
			domain++
		}
	}
}

// sound tells whether keys and entries are what checkEntries lets pass, without branches on what nobody knows before.
func (b *block) sound(want expectation, v *blockValues) bool {
	keys := v.keys
	last := keys[len(keys)-1]
	if keys[0].ID != b.first || shardOf(keys[0].ID, want.shardBits) != want.shard || shardOf(last.ID, want.shardBits) != want.shard {
		return false
	}
	ascend := uint64(1)
	for i, k := range keys[1:] {
		_, less := bits.Sub64(uint64(keys[i].Check), uint64(k.Check), 0)
		_, less = bits.Sub64(keys[i].ID, k.ID, less)
		ascend &= less
	}
	if ascend == 0 {
		return false
	}
	bad := int64(0) // negative once one is
	rows, datasets, most := v.rows[:len(v.places)], v.datasets, int64(len(v.datasets)-1)
	for i, p := range v.places {
		bad |= p | (most - p) | rows[i] | (rows[i] - 1)
	}
	if bad < 0 {
		return false
	}
	if b.starts == nil {
		return true
	}
	before := int64(-1)
	for i, p := range v.places {
		dataset := int64(datasets[p])
		start := int64(b.starts[i>>3] >> (i & 7) & 1)
		bad |= (dataset - before - 1) &^ -start
		before = dataset
	}
	return bad >= 0
}

// checkEntries tells what is wrong with keys or entries.
func (b *block) checkEntries(want expectation, v *blockValues) error {
	var k Key
	domain, prevSet := -1, int64(-1)
	rows := v.rows[:len(v.places)]
	for i, p := range v.places {
		if b.starts == nil || b.starts.has(i) {
			domain++
			next := v.keys[domain]
			if i == 0 && next.ID != b.first {
				return b.corrupt(fmt.Sprintf("first domain_id %016x", b.first), fmt.Sprintf("%016x", next.ID))
			}
			if i > 0 && (next.ID < k.ID || next.ID == k.ID && next.Check <= k.Check) {
				return b.corrupt(fmt.Sprintf("a domain after %016x/%08x", k.ID, k.Check), fmt.Sprintf("%016x/%08x", next.ID, next.Check))
			}
			if got := shardOf(next.ID, want.shardBits); got != want.shard {
				return b.corrupt(fmt.Sprintf("domains of shard %d", want.shard), fmt.Sprintf("%016x of shard %d", next.ID, got))
			}
			k = next
			prevSet = -1
		}
		if p < 0 || p >= int64(len(v.datasets)) {
			return b.corrupt(fmt.Sprintf("a place below %d", b.files), p)
		}
		s := int64(v.datasets[p])
		if s <= prevSet {
			return b.corrupt(fmt.Sprintf("a dataset after %d", prevSet), s)
		}
		prevSet = s
		if n := rows[i]; n < 1 {
			return b.corrupt("at least one row", n)
		}
	}
	return nil
}

func (b *block) checkTotals() error {
	if b.hasSize != none {
		c := b.sizes.cursor()
		for range b.present(b.hasSize, b.sizeBits) {
			if n := c.read(); n < 0 {
				return b.corrupt("a size", n)
			}
		}
	}
	if b.hasTS == none {
		return nil
	}
	if b.tsUnit < 1 {
		return b.corrupt("a unit of ts", b.tsUnit)
	}
	first, span := b.firstTS.cursor(), b.spanTS.cursor()
	room := uint64(math.MaxInt64) - uint64(b.tsBase)
	for range b.present(b.hasTS, b.tsBits) {
		hi1, f := bits.Mul64(uint64(first.read()), b.tsUnit)
		hi2, s := bits.Mul64(uint64(span.read()), b.tsUnit)
		if hi1|hi2 != 0 || f > room || s > room-f {
			return b.corrupt("a ts of 64 bits", "more")
		}
	}
	return nil
}

// isPlace tells whether n rows can be in a row group from a row on.
func isPlace(group, first, n int64) bool {
	return group >= 0 && group <= math.MaxUint32 && first >= 0 && first <= math.MaxInt64-n
}

// arePlaces is isPlace of all entries of a block, which have a row each at least, without branches.
func arePlaces(groups, firsts, rows []int64) bool {
	bad := int64(0) // negative once one is
	rows = rows[:len(groups)]
	for i, r := range firsts[:len(groups)] {
		bad |= groups[i] | (math.MaxUint32 - groups[i]) | r | (r + rows[i])
	}
	return bad >= 0
}

func (b *block) checkPlaces(want expectation, v *blockValues) error {
	n := b.present(b.hasPayload, b.payBits)
	if n < b.entries {
		groups, firsts := b.rowGroups.unpack(v.groups, b.entries-n), b.firstRows.unpack(v.firsts, b.entries-n)
		v.groups, v.firsts = groups, firsts
		if n == 0 && arePlaces(groups, firsts, v.rows) {
			return nil
		}
		at := 0
		for i, n := range v.rows {
			if b.hasPayload == some && b.payBits.has(i) {
				continue
			}
			g, r := groups[at], firsts[at]
			at++
			if !isPlace(g, r, n) {
				return b.corrupt("a row group and row", fmt.Sprintf("%d, %d", g, r))
			}
		}
	}
	if n == 0 {
		return nil
	}
	offsets, lengths := b.offsets.cursor(), b.lengths.cursor()
	end := int64(0)
	for range n {
		o, l := offsets.read(), lengths.read()
		if o < end || l < 1 || l > codec.MaxFrame || o > math.MaxInt64-l || want.datBytes >= 0 && o+l > want.datBytes {
			return b.corrupt(fmt.Sprintf("payloads in order within %d bytes", want.datBytes), fmt.Sprintf("%d bytes at %d after %d", l, o, end))
		}
		end = o + l
	}
	return nil
}

// present is the number of entries that have something.
func (b *block) present(p presence, bs bitString) int {
	switch p {
	case none:
		return 0
	case all:
		return b.entries
	}
	return bs.rank(b.entries)
}

// place is the place of entry i in the columns of something, and whether it has it.
func (b *block) place(p presence, bs bitString, i int) (int, bool) {
	switch p {
	case none:
		return 0, false
	case all:
		return i, true
	}
	return bs.rank(i), bs.has(i)
}

func (b *block) checkBits(domain int) uint32 {
	return binary.LittleEndian.Uint32(b.checks[4*domain:])
}

// lowAt is the lower bits of a domain's place.
func (b *block) lowAt(domain int) uint64 {
	if b.lows == 0 {
		return 0
	}
	return b.low.at(uint(domain)*b.lows, b.lows)
}

// domain finds a key and returns its entries [from, to); an empty range if there are none.
func (b *block) domain(k Key) (from, to int) {
	if k.ID < b.first {
		return 0, 0
	}
	v := k.ID - b.first
	high := v >> b.lows
	if high > b.high {
		return 0, 0
	}
	// The ids with these upper bits are the ones after as many zeros.
	at := 0
	if high > 0 {
		at = b.upper.selectZero(int(high)-1, int(b.high)+b.domains) + 1
	}
	low := v & lowMask(b.lows)
	for i := at - int(high); i < b.domains && b.upper.has(at); i, at = i+1, at+1 {
		got := b.lowAt(i)
		if got < low || got == low && b.checkBits(i) < k.Check {
			continue
		}
		if got != low || b.checkBits(i) != k.Check {
			break
		}
		return b.span(i)
	}
	return 0, 0
}

// span is the range of a domain's entries.
func (b *block) span(domain int) (from, to int) {
	if b.starts == nil {
		return domain, domain + 1
	}
	from = b.starts.selectOne(domain)
	if domain == b.domains-1 {
		return from, b.entries
	}
	for to = from + 1; !b.starts.has(to); to++ {
	}
	return from, to
}

// dataset is the dataset of entry i.
func (b *block) dataset(i int) uint32 { return uint32(b.datasets.at(int(b.places.at(i)))) }

// find returns the first of the entries [from, to) whose dataset is not below dataset.
func (b *block) find(from, to int, dataset uint32) int {
	for from < to {
		mid := (from + to) / 2
		if b.dataset(mid) < dataset {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from
}

// entry decodes entry i, which is of the domain k.
func (b *block) entry(i int, k Key) Entry {
	p := int(b.places.at(i))
	e := Entry{Key: k, Dataset: uint32(b.datasets.at(p))}
	e.First.FileID = uint32(b.fileIDs.at(p))
	e.Rows = b.rows.at(i)
	if at, ok := b.place(b.hasSize, b.sizeBits, i); ok {
		e.HasSize, e.Size = true, b.sizes.at(at)
	}
	if at, ok := b.place(b.hasTS, b.tsBits, i); ok {
		e.HasTS = true
		e.FirstTS = b.tsBase + int64(uint64(b.firstTS.at(at))*b.tsUnit)
		e.LastTS = e.FirstTS + int64(uint64(b.spanTS.at(at))*b.tsUnit)
	}
	if at, ok := b.place(b.hasPayload, b.payBits, i); ok {
		e.offset, e.length = b.offsets.at(at), b.lengths.at(at)
		return e
	} else if b.hasPayload == some {
		i -= at
	}
	e.Inline = true
	e.First.RowGroup = uint32(b.rowGroups.at(i))
	e.First.FirstRow = b.firstRows.at(i)
	e.First.Rows = e.Rows
	return e
}

// memoryBytes is what the block takes in memory: its packed bytes and their description.
func (b *block) memoryBytes() int64 { return b.bytes + 1<<11 }

// checkFence checks that a block starts as its fence says.
func (b *block) checkFence(fence []byte) error {
	var got [postingsFence]byte
	putFence(&got, Key{ID: b.first, Check: b.checkBits(0)}, b.dataset(0))
	if !bytes.Equal(got[:], fence) {
		return b.corrupt(fmt.Sprintf("first entry %x", fence), fmt.Sprintf("%x", got))
	}
	return nil
}
