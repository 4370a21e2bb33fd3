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
	"github.com/urlake/urlake/lake/seekable"
)

// presence tells which entries of a block have an optional value.
type presence uint8

const (
	none presence = iota
	all
	some // a bit for each entry tells which
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
//	u8 L | uvarint H | D × L bits: low bits of domain_id - first
//	(H + D) bits: its other bits, an Elias-Fano list: for domain i with other bits h, bit h+i is 1
//	D × u32 check bits
//	[N bits, if N ≠ D: 1 for a domain's first entry]
//	file table: column of F file ids, ascending; column of their datasets
//	column of N indexes in the file table: file of the entry's first tuple; it tells the dataset
//	column of N rows
//	[N bits, if some have a size] [column of sizes, if any]
//	[N bits, if some have ts]
//	[varint base, uvarint unit, column of (first-base)/unit, column of (last-first)/unit, if any]
//	[N bits, if some have a payload]
//	[column of row_group, column of first_row, for entries without a payload, if any]
//	[column of offset, column of length, for those with one, if any]
//	u32 CRC-32C
//
// Bit vectors start on a byte. Columns are packed columns, see column.go.

// block is a frame of postings.idx that was checked. Lookups work on the packed bytes, so a block
// takes as much memory as it takes in the file.
type block struct {
	file    string
	section string
	bytes   int64

	domains, entries, files int

	first  uint64 // domain_id
	lows   uint   // number of low bits
	high   uint64 // upper bits of the last domain
	low    bitString
	upper  bitString
	checks []byte
	starts bitString // of domains; nil if each domain has one entry

	fileIDs, datasets, fileIndexes, rows column

	hasSize, hasTS, hasPayload presence
	sizeBits, tsBits, payBits  bitString
	sizes                      column
	tsBase                     int64
	tsUnit                     uint64
	firstTS, spanTS            column
	rowGroups, firstRows       column
	offsets, lengths           column
}

// expectation is what a block must agree with.
type expectation struct {
	shard, shardBits int
	owners           *owners // nil if unknown
	datBytes         int64   // decompressed size of postings.dat; -1 if unknown
}

// blockValues are the values that checking a block unpacks, for callers that read all of them.
type blockValues struct {
	fileIDs     []uint32 // of the file table
	datasets    []uint32 // of these files
	keys        []Key    // of the domains
	fileIndexes []int64  // by entry, as rows
	rows        []int64
	groups      []int64 // of entries without a payload, as firsts
	firsts      []int64
	lows        []int64 // low bits of the keys
}

// valuesPool reuses the memory of blockValues.
var valuesPool = sync.Pool{New: func() any { return new(blockValues) }}

// parseBlock decodes a block and checks every value of it, so that lookups need not.
func parseBlock(raw []byte, file, section string, want expectation) (*block, error) {
	v := valuesPool.Get().(*blockValues)
	defer valuesPool.Put(v)
	return parseBlockValues(raw, file, section, want, v)
}

// parseBlockValues is parseBlock that also fills v.
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
		got := fmt.Sprintf("%d domains, %d entries, %d files", b.domains, b.entries, b.files)
		d.Fail("entries of at least one domain and file each", got)
	}
	flags := d.U8()
	b.hasSize, b.hasTS, b.hasPayload = presence(flags&3), presence(flags>>2&3), presence(flags>>4)
	if d.Err() == nil && max(b.hasSize, b.hasTS, b.hasPayload) > some {
		d.Fail("presence 0 to 2 of size, ts and payload", flags)
	}
	b.readDomains(d)
	b.fileIDs = readColumn(d, b.files)
	b.datasets = readColumn(d, b.files)
	b.fileIndexes = readColumn(d, b.entries)
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
		n := bs.Rank(b.entries)
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

func (b *block) readDomains(d *codec.Decoder) {
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
	if got := b.upper.Rank(int(b.high) + b.domains); got != b.domains {
		d.Fail(fmt.Sprintf("%d upper bits set", b.domains), got)
		return
	}
	if b.starts == nil {
		return
	}
	if got := b.starts.Rank(b.entries); got != b.domains || !b.starts.Has(0) {
		d.Fail(fmt.Sprintf("%d first entries, from the first on", b.domains), got)
	}
}

// check checks all values and unpacks them into v.
func (b *block) check(want expectation, v *blockValues) error {
	fileIDs, datasets := b.fileIDs.cursor(), b.datasets.cursor()
	v.fileIDs, v.datasets = v.fileIDs[:0], v.datasets[:0]
	prevFile, prevSet := int64(-1), int64(-1)
	for range b.files {
		f, s := fileIDs.read(), datasets.read()
		if f <= prevFile || f > math.MaxUint32 || s < prevSet || s > math.MaxUint32 {
			got := fmt.Sprintf("%d of %d after %d of %d", f, s, prevFile, prevSet)
			return b.corrupt("files and datasets in order", got)
		}
		if o := want.owners; o != nil {
			if f >= o.count {
				return b.corrupt(fmt.Sprintf("a file below %d", o.count), f)
			}
			if first, last := o.may(uint32(f)); s < int64(first) || s > int64(last) {
				return b.corrupt(fmt.Sprintf("dataset %d to %d of file %d", first, last, f), s)
			}
		}
		prevFile, prevSet = f, s
		v.fileIDs, v.datasets = append(v.fileIDs, uint32(f)), append(v.datasets, uint32(s))
	}

	b.readKeys(v)
	v.fileIndexes, v.rows = b.fileIndexes.unpack(v.fileIndexes, b.entries), b.rows.unpack(v.rows, b.entries)
	if !b.valid(want, v) {
		if err := b.checkEntries(want, v); err != nil {
			return err
		}
	}
	if err := b.checkTotals(); err != nil {
		return err
	}
	return b.checkRows(want, v)
}

// readKeys unpacks the keys of all domains.
func (b *block) readKeys(v *blockValues) {
	low := column{width: b.lows, low: b.low}
	v.lows = low.unpack(v.lows, b.domains)
	v.keys = slices.Grow(v.keys[:0], b.domains)[:b.domains]
	domain := 0
	for w := 0; domain < len(v.keys); w++ {
		for ones := b.upper.Word(w); ones != 0 && domain < len(v.keys); ones &= ones - 1 {
			at := w<<6 + bits.TrailingZeros64(ones)
			id := b.first + (uint64(at-domain)<<b.lows | uint64(v.lows[domain]))
			v.keys[domain] = Key{ID: id, Check: b.checkBits(domain)}
			domain++
		}
	}
}

// valid tells whether checkEntries would find no error. It has no branch that depends on a value,
// since such branches mispredict.
func (b *block) valid(want expectation, v *blockValues) bool {
	keys := v.keys
	last := keys[len(keys)-1]
	if keys[0].ID != b.first {
		return false
	}
	if shardOf(keys[0].ID, want.shardBits) != want.shard || shardOf(last.ID, want.shardBits) != want.shard {
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
	bad := int64(0) // negative once a value is invalid
	rows, datasets, most := v.rows[:len(v.fileIndexes)], v.datasets, int64(len(v.datasets)-1)
	for i, p := range v.fileIndexes {
		bad |= p | (most - p) | rows[i] | (rows[i] - 1)
	}
	if bad < 0 {
		return false
	}
	if b.starts == nil {
		return true
	}
	before := int64(-1)
	for i, p := range v.fileIndexes {
		dataset := int64(datasets[p])
		start := int64(b.starts[i>>3] >> (i & 7) & 1)
		bad |= (dataset - before - 1) &^ -start
		before = dataset
	}
	return bad >= 0
}

// checkEntries returns the first error in keys or entries.
func (b *block) checkEntries(want expectation, v *blockValues) error {
	var k Key
	domain, prevSet := -1, int64(-1)
	rows := v.rows[:len(v.fileIndexes)]
	for i, p := range v.fileIndexes {
		if b.starts == nil || b.starts.Has(i) {
			domain++
			next := v.keys[domain]
			if i == 0 && next.ID != b.first {
				return b.corrupt(fmt.Sprintf("first domain_id %016x", b.first), fmt.Sprintf("%016x", next.ID))
			}
			if i > 0 && (next.ID < k.ID || next.ID == k.ID && next.Check <= k.Check) {
				want := fmt.Sprintf("a domain after %016x/%08x", k.ID, k.Check)
				return b.corrupt(want, fmt.Sprintf("%016x/%08x", next.ID, next.Check))
			}
			if got := shardOf(next.ID, want.shardBits); got != want.shard {
				want := fmt.Sprintf("domains of shard %d", want.shard)
				return b.corrupt(want, fmt.Sprintf("%016x of shard %d", next.ID, got))
			}
			k = next
			prevSet = -1
		}
		if p < 0 || p >= int64(len(v.datasets)) {
			return b.corrupt(fmt.Sprintf("a file index below %d", b.files), p)
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

// checkTotals checks sizes and ts.
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
	limit := uint64(math.MaxInt64) - uint64(b.tsBase)
	for range b.present(b.hasTS, b.tsBits) {
		hi1, f := bits.Mul64(uint64(first.read()), b.tsUnit)
		hi2, s := bits.Mul64(uint64(span.read()), b.tsUnit)
		if hi1|hi2 != 0 || f > limit || s > limit-f {
			return b.corrupt("a ts of 64 bits", "more")
		}
	}
	return nil
}

// validRows tells whether n rows from row first on can be in a row group.
func validRows(group, first, n int64) bool {
	return group >= 0 && group <= math.MaxUint32 && first >= 0 && first <= math.MaxInt64-n
}

// allValidRows is validRows for all entries of a block, which have at least one row each, without
// branches.
func allValidRows(groups, firsts, rows []int64) bool {
	bad := int64(0) // negative once a value is invalid
	rows = rows[:len(groups)]
	for i, r := range firsts[:len(groups)] {
		bad |= groups[i] | (math.MaxUint32 - groups[i]) | r | (r + rows[i])
	}
	return bad >= 0
}

// checkRows checks where the rows of all entries are: row groups and first rows, or payloads.
func (b *block) checkRows(want expectation, v *blockValues) error {
	n := b.present(b.hasPayload, b.payBits)
	if n < b.entries {
		groups, firsts := b.rowGroups.unpack(v.groups, b.entries-n), b.firstRows.unpack(v.firsts, b.entries-n)
		v.groups, v.firsts = groups, firsts
		if n == 0 && allValidRows(groups, firsts, v.rows) {
			return nil
		}
		at := 0
		for i, n := range v.rows {
			if b.hasPayload == some && b.payBits.Has(i) {
				continue
			}
			g, r := groups[at], firsts[at]
			at++
			if !validRows(g, r, n) {
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
		if o < end || l < 1 || l > seekable.MaxFrame || o > math.MaxInt64-l || want.datBytes >= 0 && o+l > want.datBytes {
			want := fmt.Sprintf("payloads in order within %d bytes", want.datBytes)
			return b.corrupt(want, fmt.Sprintf("%d bytes at %d after %d", l, o, end))
		}
		end = o + l
	}
	return nil
}

// present returns the number of entries that have an optional value.
func (b *block) present(p presence, bs bitString) int {
	switch p {
	case none:
		return 0
	case all:
		return b.entries
	}
	return bs.Rank(b.entries)
}

// index returns the index of entry i in the columns of an optional value, and whether it has the
// value.
func (b *block) index(p presence, bs bitString, i int) (int, bool) {
	switch p {
	case none:
		return 0, false
	case all:
		return i, true
	}
	return bs.Rank(i), bs.Has(i)
}

func (b *block) checkBits(domain int) uint32 {
	return binary.LittleEndian.Uint32(b.checks[4*domain:])
}

// lowAt returns the low bits of a domain.
func (b *block) lowAt(domain int) uint64 {
	if b.lows == 0 {
		return 0
	}
	return b.low.At(uint(domain)*b.lows, b.lows)
}

// domainSearch finds domains in a block. Their keys must not descend: a search goes on from where
// the last one ended.
type domainSearch struct {
	*block
	zeros selector // of the upper bits
	ones  selector // of starts
}

func (b *block) search() domainSearch {
	return domainSearch{block: b, zeros: b.upper.Zeros(), ones: b.starts.Ones()}
}

// domain returns the entries [from, to) of a key; the range is empty if there are none.
func (s *domainSearch) domain(k Key) (from, to int) {
	if k.ID < s.first {
		return 0, 0
	}
	v := k.ID - s.first
	high := v >> s.lows
	if high > s.high {
		return 0, 0
	}
	// The ids with the upper bits high follow zero number high-1. There are s.high zeros.
	at := 0
	if high > 0 {
		at = s.zeros.Select(int(high)-1) + 1
	}
	low := v & lowMask(s.lows)
	for i := at - int(high); i < s.domains && s.upper.Has(at); i, at = i+1, at+1 {
		got := s.lowAt(i)
		if got < low || got == low && s.checkBits(i) < k.Check {
			continue
		}
		if got != low || s.checkBits(i) != k.Check {
			break
		}
		return s.span(i)
	}
	return 0, 0
}

// span returns the range of a domain's entries.
func (s *domainSearch) span(domain int) (from, to int) {
	if s.starts == nil {
		return domain, domain + 1
	}
	from = s.ones.Select(domain)
	if domain == s.domains-1 {
		return from, s.entries
	}
	for to = from + 1; !s.starts.Has(to); to++ {
	}
	return from, to
}

// domain returns the entries [from, to) of a key; the range is empty if there are none.
func (b *block) domain(k Key) (from, to int) {
	s := b.search()
	return s.domain(k)
}

// dataset returns the dataset of entry i.
func (b *block) dataset(i int) uint32 { return uint32(b.datasets.at(int(b.fileIndexes.at(i)))) }

// find returns the first of the entries [from, to) whose dataset is not below dataset, or to.
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

// entry decodes entry i, which belongs to the domain k.
func (b *block) entry(i int, k Key) Entry {
	p := int(b.fileIndexes.at(i))
	e := Entry{Key: k, Dataset: uint32(b.datasets.at(p))}
	e.First.FileID = uint32(b.fileIDs.at(p))
	e.Rows = b.rows.at(i)
	if at, ok := b.index(b.hasSize, b.sizeBits, i); ok {
		e.HasSize, e.Size = true, b.sizes.at(at)
	}
	if at, ok := b.index(b.hasTS, b.tsBits, i); ok {
		e.HasTS = true
		e.FirstTS = b.tsBase + int64(uint64(b.firstTS.at(at))*b.tsUnit)
		e.LastTS = e.FirstTS + int64(uint64(b.spanTS.at(at))*b.tsUnit)
	}
	if at, ok := b.index(b.hasPayload, b.payBits, i); ok {
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

// memoryBytes estimates what the block takes in memory: its packed bytes and this struct.
func (b *block) memoryBytes() int64 { return b.bytes + 1<<11 }

// checkFence checks that a block starts with the entry that its fence names.
func (b *block) checkFence(fence []byte) error {
	var got [postingsFence]byte
	putFence(&got, Key{ID: b.first, Check: b.checkBits(0)}, b.dataset(0))
	if !bytes.Equal(got[:], fence) {
		return b.corrupt(fmt.Sprintf("first entry %x", fence), fmt.Sprintf("%x", got))
	}
	return nil
}
