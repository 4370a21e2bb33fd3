package membership

import (
	"fmt"
	"math/bits"
	"runtime/debug"
	"sync/atomic"

	"github.com/urlake/urlake/internal/mapped"
)

// Sums computes for sets of datasets the sum of a number per dataset. Equal sets are stored once
// in the file, and Sums computes their sum once. It is safe for concurrent use.
type Sums struct {
	r     *Reader
	of    func(dataset uint32) uint64
	slots []setSum // by where the bitmap is; a power of two
}

// setSum caches the sum of one set. It needs no lock: if two sets are written to a slot at the same
// time, the tag of one does not match the sum of the other.
type setSum struct {
	tag atomic.Uint64 // of the bitmap's byte range, XOR sum
	sum atomic.Uint64
}

const (
	// maxSums bounds the cache to 16 MiB.
	maxSums = 1 << 20

	// setSpacing is the least that a bitmap takes in Roaring's portable form. While there are
	// enough slots, no two sets share one. Sets that share a slot are summed again.
	setSpacing = runHeader + 4
)

// NewSums returns the sums over the sets of r of the numbers that of returns.
func (r *Reader) NewSums(of func(dataset uint32) uint64) *Sums {
	n := min(1<<bits.Len64(uint64(r.index/setSpacing)), maxSums)
	return &Sums{r: r, of: of, slots: touchedSlots[setSum](n)}
}

func (t *Sums) slot(r byteRange) *setSum {
	return &t.slots[uint64(r.start)/setSpacing&uint64(len(t.slots)-1)]
}

// tag distinguishes byte ranges: any two in a file below 2 GiB, in larger files except with a
// probability of 2^-64.
func (r byteRange) tag() uint64 { return uint64(r.start)*0x9e3779b97f4a7c15 + uint64(r.length) }

// Range sets sums to the sums of the domains from ordinal first on, which the file has.
func (t *Sums) Range(first uint32, sums []uint64) (err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, t.r.file)
	if int64(len(sums)) > t.r.domains-int64(first) {
		return fmt.Errorf("%s: %d ordinals from %d of %d", t.r.file.Name(), len(sums), first, t.r.domains)
	}
	var memory [setBatch]byteRange
	var datasets []uint32
	for len(sums) > 0 {
		ranges := memory[:min(len(sums), setBatch)]
		if err := t.r.ranges(first, ranges); err != nil {
			return err
		}
		// Reading all slots before the first is needed lets their cache misses overlap.
		for _, r := range ranges {
			t.slot(r).tag.Load()
		}
		for i, r := range ranges {
			slot, tag := t.slot(r), r.tag()
			sum := slot.sum.Load()
			if slot.tag.Load()^sum != tag {
				if datasets, err = t.r.appendDatasets(datasets[:0], r); err != nil {
					return err
				}
				sum = 0
				for _, d := range datasets {
					sum += t.of(d)
				}
				slot.sum.Store(sum)
				slot.tag.Store(tag ^ sum)
			}
			sums[i] = sum
		}
		first, sums = first+uint32(len(ranges)), sums[len(ranges):]
	}
	return nil
}
