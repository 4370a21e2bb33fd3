package prefixtree

import (
	"bytes"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// rowBytes is what a row takes in memory beside its folder: itself, and two slots of the hash
	// table, which is half full at most.
	rowBytes = 32 + 2*4
	// minRows is the number of rows that a Collector holds at least.
	minRows = 64
	// maxArena bounds the folders of a Collector: offsets have 32 bits.
	maxArena = 1 << 32
)

// row is what a Collector knows of the objects of one tier directly in a folder. Those of folders
// below are not in it.
type row struct {
	off  uint32 // of the folder in the arena
	n    uint16 // its length
	tier Tier
	sum  Sum
}

// Collector takes objects for a Builder, for one goroutine. It sums the objects of a folder, so its
// memory grows with the folders that it has seen. Once that is used up it sorts its rows and writes
// them to the Builder's temporary file.
type Collector struct {
	b      *Builder
	memory int64

	arena []byte
	rows  []row
	table []uint32 // indexes of rows plus one, by hash of folder and tier
	last  int      // index of the row to which was added last, or -1
}

func newCollector(b *Builder, memory int64) *Collector {
	return &Collector{b: b, memory: min(memory, maxArena), table: make([]uint32, 2*minRows), last: -1}
}

// Add adds an object with that key and size. The key's folder is what is before and with its last
// slash. Keys that come twice count twice.
func (c *Collector) Add(key []byte, size uint64, tier Tier) error {
	if len(key) > MaxKey {
		return keyError(key, fmt.Sprintf("%d bytes, at most %d", len(key), MaxKey))
	}
	if tier > NoTier {
		return keyError(key, fmt.Sprintf("no tier has the number %d", tier))
	}
	return c.add(key[:bytes.LastIndexByte(key, '/')+1], tier, Sum{1, size})
}

func (c *Collector) add(folder []byte, tier Tier, sum Sum) error {
	// Listings are mostly in order, so the object is often in the folder of the one before.
	if c.last >= 0 {
		if r := &c.rows[c.last]; r.tier == tier && bytes.Equal(c.folder(r), folder) {
			return r.sum.add(sum)
		}
	}
	slot := c.find(folder, tier)
	if i := c.table[slot]; i != 0 {
		c.last = int(i - 1)
		return c.rows[c.last].sum.add(sum)
	}
	if c.full(len(folder)) {
		if err := c.spill(); err != nil {
			return err
		}
		slot = c.find(folder, tier)
	} else if 2*len(c.rows) >= len(c.table) {
		c.grow()
		slot = c.find(folder, tier)
	}
	c.last = len(c.rows)
	c.rows = append(c.rows, row{off: uint32(len(c.arena)), n: uint16(len(folder)), tier: tier, sum: sum})
	c.arena = append(c.arena, folder...)
	c.table[slot] = uint32(len(c.rows))
	return nil
}

func (c *Collector) folder(r *row) []byte { return c.arena[r.off : int(r.off)+int(r.n)] }

// tiers returns a bit for each tier that the rows have.
func (c *Collector) tiers() (set uint32) {
	for i := range c.rows {
		set |= 1 << c.rows[i].tier
	}
	return set
}

// full tells whether the memory has no space for one more row.
func (c *Collector) full(folder int) bool {
	n := int64(len(c.rows))
	return n >= minRows && n*rowBytes+int64(len(c.arena)+folder) > c.memory
}

// find returns the slot of a folder and tier in the table, which is empty if no row has them.
func (c *Collector) find(folder []byte, tier Tier) int {
	h := xxhash.Sum64(folder) + uint64(tier)*0x9e3779b97f4a7c15
	mask := len(c.table) - 1
	for i := int(h>>(64-bits.Len(uint(mask)))) & mask; ; i = (i + 1) & mask {
		if c.table[i] == 0 {
			return i
		}
		if r := &c.rows[c.table[i]-1]; r.tier == tier && bytes.Equal(c.folder(r), folder) {
			return i
		}
	}
}

// grow doubles the table.
func (c *Collector) grow() {
	c.table = make([]uint32, 2*len(c.table))
	for i := range c.rows {
		c.table[c.find(c.folder(&c.rows[i]), c.rows[i].tier)] = uint32(i + 1)
	}
}

// sorted sorts the rows by folder and returns them as records: their folders are the keys, and
// rowValue has the rest. The table is invalid then.
func (c *Collector) sorted() keysort.Source {
	slices.SortFunc(c.rows, func(a, b row) int { return bytes.Compare(c.folder(&a), c.folder(&b)) })
	return &sortedRows{c: c}
}

type sortedRows struct {
	c     *Collector
	next  int
	value []byte
}

// Next implements keysort.Source.
func (s *sortedRows) Next() (key, value []byte, err error) {
	if s.next == len(s.c.rows) {
		return nil, nil, io.EOF
	}
	r := &s.c.rows[s.next]
	s.next++
	s.value = append(s.value[:0], byte(r.tier))
	s.value = codec.AppendUvarint(s.value, r.sum.Objects)
	s.value = codec.AppendUvarint(s.value, r.sum.Bytes)
	return s.c.folder(r), s.value, nil
}

// rowOf decodes the value of a record that sortedRows has made.
func rowOf(value []byte) (tier Tier, sum Sum, err error) {
	d := codec.NewDecoder(value, "sorted folders", "value")
	tier = Tier(d.U8())
	sum = Sum{Objects: d.Uvarint(), Bytes: d.Uvarint()}
	return tier, sum, d.Close()
}

// spill sorts the rows, moves them to the Builder's temporary file and forgets them.
func (c *Collector) spill() error {
	if len(c.rows) == 0 {
		return nil
	}
	if err := c.b.runs.Add(c.sorted()); err != nil {
		return err
	}
	c.b.mu.Lock()
	c.b.rows += uint64(len(c.rows))
	c.b.present |= c.tiers()
	c.b.mu.Unlock()
	c.rows, c.arena, c.last = c.rows[:0], c.arena[:0], -1
	clear(c.table)
	return nil
}
