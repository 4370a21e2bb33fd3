package mph

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sort"
	"sync/atomic"

	"github.com/urlake/urlake/lake/codec"
)

// Absent is the ordinal that LookupBatch gives for a domain that is not in the table.
const Absent = math.MaxUint32

// absentSlot is a batch's slot of a key without a slot.
const absentSlot = math.MaxUint64

// Expect describes the domains.txt.zst of the segment, from segment.json.
type Expect struct {
	Domains      uint64 // its lines
	DomainsXXH64 uint64 // xxh64 of the whole file
}

// Key identifies a domain.
type Key struct {
	ID    uint64 // domain_id
	Check uint32 // further bits of the domain's hash, independent of ID
}

// Table answers lookups from the bytes of one file. It is safe for concurrent use. It refers to the
// bytes it was opened on and must not be used after they are unmapped.
type Table struct {
	name    string
	data    []byte
	trailer trailer
	levels
	// minLevels is the number of levels that all buckets have.
	minLevels int
	records   []byte

	verify func(off, n int64) error
	// verified has a bit for each block that verify has passed; without verify all are set.
	verified []atomic.Uint64
	// unverifiedLines is the number of unverified blocks with lines. There are few such blocks.
	// Once it is 0, lookups do not read verified for lines.
	unverifiedLines atomic.Int64
	// unverifiedRecords is the number of unverified blocks with records.
	unverifiedRecords atomic.Int64
}

// Open reads header, directory and trailer of a file and checks them against their checksum and
// against expect; it rejects the file of another domains.txt.zst. It reads no other part of the
// file, and allocates 384 bytes for each bucket, which has 2^16 keys or more in all but small
// files. All errors are *codec.CorruptError and have the name.
//
// Lookups call verify, unless it is nil, with the offset and length of each block of BlockSize
// bytes (the last may be shorter) before they read the block for the first time. Several goroutines
// may call it at the same time, also for the same block. The lookup returns its error, and the next
// lookup calls it again. Pass nil only if the bytes have been checked. Without verify a flipped bit
// cannot make a lookup panic or read outside of data, but it can make the answer wrong: "absent" or
// another ordinal.
func Open(data []byte, name string, expect Expect, verify func(off, n int64) error) (*Table, error) {
	tr, err := decodeTrailer(data, name)
	if err != nil {
		return nil, err
	}
	at := int64(tr.layout.trailer)
	if tr.domainsXXH64 != expect.DomainsXXH64 {
		want, got := fmt.Sprintf("domains_xxh64 %016x", expect.DomainsXXH64), fmt.Sprintf("%016x", tr.domainsXXH64)
		return nil, codec.Corrupt(name, "trailer", at+8, want, got)
	}
	if tr.domains != expect.Domains {
		return nil, codec.Corrupt(name, "trailer", at+16, fmt.Sprintf("%d domains", expect.Domains), tr.domains)
	}
	dir, err := decodeDirectory(data[tr.layout.directory:tr.layout.trailer], name, tr)
	if err != nil {
		return nil, err
	}
	t := &Table{
		name:    name,
		data:    data,
		trailer: *tr,
		levels: levels{
			dir: dir, lines: data[tr.layout.lines:tr.layout.fallback],
			seed: tr.seed, bucketBits: tr.bucketBits,
		},
		records:  data[tr.layout.records:][:tr.keys*recordSize],
		verify:   verify,
		verified: make([]atomic.Uint64, len(data)/BlockSize/64+1),
	}
	t.start(verify)
	return t, nil
}

// start sets the fields that follow from the directory and verify.
func (t *Table) start(verify func(off, n int64) error) {
	t.verify, t.minLevels = verify, maxLevels
	for i := range t.dir {
		n := 0
		for t.dir[i].levels[n].lines != 0 {
			n++
		}
		t.minLevels = min(t.minLevels, n)
	}
	if verify == nil {
		for i := range t.verified {
			t.verified[i].Store(ones)
		}
		return
	}
	first, end := t.lineBlocks()
	t.unverifiedLines.Store(int64(end - first))
	first, end = t.recordBlocks()
	t.unverifiedRecords.Store(int64(end - first))
}

// Len is the number of domains.
func (t *Table) Len() int { return int(t.trailer.domains) }

// Keys is the number of distinct keys, and thus of slots.
func (t *Table) Keys() int { return int(t.trailer.keys) }

// isVerified tells whether the block of the byte at off is verified.
func (t *Table) isVerified(off uint64) bool {
	i := off / BlockSize
	return t.verified[i/64].Load()&(1<<(i%64)) != 0
}

// lineBlocks returns the range of blocks with lines.
func (t *Table) lineBlocks() (first, end uint64) {
	l := &t.trailer.layout
	if l.lines == l.fallback {
		return 0, 0
	}
	return l.lines / BlockSize, (l.fallback-1)/BlockSize + 1
}

// recordBlocks returns the range of blocks with records.
func (t *Table) recordBlocks() (first, end uint64) {
	if len(t.records) == 0 {
		return 0, 0
	}
	at := t.trailer.layout.records
	return at / BlockSize, (at+uint64(len(t.records))-1)/BlockSize + 1
}

// check verifies the blocks of the n > 0 bytes at off.
func (t *Table) check(off, n uint64) error {
	for i := off / BlockSize; i <= (off+n-1)/BlockSize; i++ {
		start := i * BlockSize
		if t.isVerified(start) {
			continue
		}
		if err := t.verify(int64(start), min(BlockSize, int64(len(t.data))-int64(start))); err != nil {
			return err
		}
		bit := uint64(1) << (i % 64)
		if t.verified[i/64].Or(bit)&bit != 0 {
			continue // another goroutine has counted it
		}
		if first, end := t.lineBlocks(); first <= i && i < end {
			t.unverifiedLines.Add(-1)
		}
		if first, end := t.recordBlocks(); first <= i && i < end {
			t.unverifiedRecords.Add(-1)
		}
	}
	return nil
}

// Lookup returns the ordinal of the domain with this key and these check bits, or false if there is
// none. The error is that of verify, or a *codec.CorruptError if the file contradicts itself.
func (t *Table) Lookup(key uint64, check uint32) (ordinal uint32, ok bool, err error) {
	slot, ok, err := t.Slot(key)
	if !ok || err != nil {
		return 0, false, err
	}
	off := slot * recordSize
	if at := t.trailer.layout.records + off; !t.isVerified(at) {
		if err := t.check(at, recordSize); err != nil {
			return 0, false, err
		}
	}
	rec := t.records[off:][:recordSize]
	if binary.LittleEndian.Uint64(rec) != key {
		return 0, false, nil
	}
	v := binary.LittleEndian.Uint64(rec[8:])
	ordinal, err = t.resolve(slot, uint32(v), uint32(v>>32), check)
	return ordinal, ordinal != Absent && err == nil, err
}

// resolve returns the ordinal of the domain with the check bits check, or Absent. recCheck and
// recOrdinal are of the record at slot, whose key is that of the lookup.
func (t *Table) resolve(slot uint64, recCheck, recOrdinal, check uint32) (uint32, error) {
	if recOrdinal == sideFlag {
		return t.searchSide(slot, recCheck, check)
	}
	if recCheck != check {
		return Absent, nil
	}
	if uint64(recOrdinal) >= t.trailer.domains {
		at := int64(t.trailer.layout.records + slot*recordSize + 12)
		return Absent, codec.Corrupt(t.name, "records", at, fmt.Sprintf("an ordinal below %d", t.trailer.domains), recOrdinal)
	}
	return recOrdinal, nil
}

// searchSide returns the ordinal for check in the group of the side table that starts at entry
// first.
func (t *Table) searchSide(slot uint64, first, check uint32) (uint32, error) {
	tr := &t.trailer
	if uint64(first) >= tr.side {
		at := int64(tr.layout.records + slot*recordSize + 8)
		return Absent, codec.Corrupt(t.name, "records", at, fmt.Sprintf("a side entry below %d", tr.side), first)
	}
	at := tr.layout.side + uint64(first)*sideSize
	if err := t.check(at, sideSize); err != nil {
		return Absent, err
	}
	n := uint64(binary.LittleEndian.Uint32(t.data[at:]))
	if mark := binary.LittleEndian.Uint32(t.data[at+4:]); mark != sideFlag {
		want, got := fmt.Sprintf("%08x", uint32(sideFlag)), fmt.Sprintf("%08x", mark)
		return Absent, codec.Corrupt(t.name, "side table", int64(at)+4, want, got)
	}
	if left := tr.side - uint64(first) - 1; n < 2 || n > left {
		return Absent, codec.Corrupt(t.name, "side table", int64(at), fmt.Sprintf("2 to %d entries", left), n)
	}
	at += sideSize
	if err := t.check(at, n*sideSize); err != nil {
		return Absent, err
	}
	group := t.data[at:][:n*sideSize]
	i := sort.Search(int(n), func(i int) bool { return binary.LittleEndian.Uint32(group[i*sideSize:]) >= check })
	if i == int(n) || binary.LittleEndian.Uint32(group[i*sideSize:]) != check {
		return Absent, nil
	}
	ordinal := binary.LittleEndian.Uint32(group[i*sideSize+4:])
	if uint64(ordinal) >= tr.domains {
		off := int64(at) + int64(i)*sideSize + 4
		return Absent, codec.Corrupt(t.name, "side table", off, fmt.Sprintf("an ordinal below %d", tr.domains), ordinal)
	}
	return ordinal, nil
}

// Slot returns the hash of a key: a number below Keys, different for each key of the table. A key
// that is not in the table gets any slot or none.
func (t *Table) Slot(key uint64) (slot uint64, ok bool, err error) {
	a := key ^ t.seed
	mul := uint64(hashMul)
	i, h := bits.Mul64(mum(a, mul), uint64(len(t.dir)))
	b := &t.dir[i]
	for l := 0; b.levels[l].lines != 0; l++ {
		line, bit := locate(h, uint64(b.levels[l].lines))
		off := (uint64(b.levels[l].line) + line) * lineSize
		if t.unverifiedLines.Load() != 0 {
			if err := t.check(t.trailer.layout.lines+off, lineSize); err != nil {
				return 0, false, err
			}
		}
		p := (*[lineSize]byte)(t.lines[off:])
		if binary.LittleEndian.Uint64(p[(bit>>6&7)*8:])>>(bit&63)&1 != 0 {
			r := rank(p, bit)
			if r >= uint64(b.keys) {
				return 0, false, t.rankError(b, off, r)
			}
			return uint64(b.slot) + r, true, nil
		}
		mul += hashStep
		h = mum(a, mul)
	}
	return t.searchFallback(key)
}

func (t *Table) rankError(b *openBucket, off, r uint64) error {
	at := int64(t.trailer.layout.lines + off)
	return codec.Corrupt(t.name, "lines", at, fmt.Sprintf("a rank below %d", b.keys), r)
}

// searchFallback returns the slot of a key that no level placed.
func (t *Table) searchFallback(key uint64) (slot uint64, ok bool, err error) {
	n := t.trailer.fallback
	if n == 0 {
		return 0, false, nil
	}
	at := t.trailer.layout.fallback
	if err := t.check(at, n*8); err != nil {
		return 0, false, err
	}
	keys := t.data[at:][:n*8]
	i := sort.Search(int(n), func(i int) bool { return binary.LittleEndian.Uint64(keys[i*8:]) >= key })
	if i == int(n) || binary.LittleEndian.Uint64(keys[i*8:]) != key {
		return 0, false, nil
	}
	return t.trailer.keys - n + uint64(i), true, nil
}
