package prefixtree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/urlake/urlake/internal/mapped"
)

// NotFound is the position of a prefix that an index does not have.
const NotFound = math.MaxUint64

// together is how many prefixes take each step of a lookup together. The places that one step reads
// do not depend on each other, so the processor fetches several at once.
const together = 32

// Lookups sets positions[i] to what Lookup returns for prefixes[i], NotFound for one that the index
// does not have. For many prefixes it takes about half of the time of Lookup.
func (x *Index) Lookups(prefixes [][]byte, positions []uint64) (err error) {
	if len(prefixes) != len(positions) {
		return fmt.Errorf("%d prefixes and room for %d positions", len(prefixes), len(positions))
	}
	if _, err := x.perfect(); err != nil {
		return err
	}
	for len(prefixes) > 0 && err == nil {
		n := min(len(prefixes), together)
		if err = x.lookups(prefixes[:n], positions[:n]); err == nil {
			err = x.settle(prefixes[:n], positions[:n])
		}
		prefixes, positions = prefixes[n:], positions[n:]
	}
	return err
}

// lookups finds at most together prefixes by the perfect hash. Those that it does not find are
// NotFound, whether the index has them or not.
func (x *Index) lookups(prefixes [][]byte, positions []uint64) (err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	var offsets, ends, keys [together]uint64
	h := x.hash.Load()
	fnv1aMany(prefixes, keys[:])
	for i := range prefixes {
		slot, ok := h.Slot(keys[i])
		if positions[i] = slot; !ok {
			positions[i] = NotFound
		}
	}
	for i, slot := range positions {
		if slot == NotFound {
			continue
		}
		pos, err := x.positions.at(slot)
		if err != nil {
			return err
		}
		if pos >= x.doc.NodeCount {
			return x.positions.bad(slot, fmt.Sprintf("a position below %d", x.doc.NodeCount), pos)
		}
		positions[i] = pos
	}
	for i, pos := range positions {
		if pos == NotFound {
			continue
		}
		if offsets[i], ends[i], err = x.bounds(pos); err != nil {
			return err
		}
	}
	if x.layout.lengths {
		for i, pos := range positions {
			if pos == NotFound {
				continue
			}
			head, err := x.blob.slice(offsets[i], 4)
			if err != nil {
				return err
			}
			offsets[i] += 4
			ends[i] = offsets[i] + uint64(binary.LittleEndian.Uint32(head))
		}
	}
	for i, pos := range positions {
		if pos == NotFound {
			continue
		}
		p, err := x.blob.slice(offsets[i], ends[i]-offsets[i])
		if err != nil {
			return err
		}
		if !bytes.Equal(p, prefixes[i]) {
			positions[i] = NotFound
		}
	}
	return nil
}

// fnv1aMany sets keys[i] to the FNV-1a of prefixes[i]. A byte of FNV-1a waits for the
// multiplication of the one before, so four prefixes take hardly longer than one.
func fnv1aMany(prefixes [][]byte, keys []uint64) {
	for len(prefixes) >= 4 {
		a, b, c, d := prefixes[0], prefixes[1], prefixes[2], prefixes[3]
		n := min(len(a), len(b), len(c), len(d))
		h, i, j, k := uint64(fnvOffset), uint64(fnvOffset), uint64(fnvOffset), uint64(fnvOffset)
		for at := range n {
			h = (h ^ uint64(a[at])) * fnvPrime
			i = (i ^ uint64(b[at])) * fnvPrime
			j = (j ^ uint64(c[at])) * fnvPrime
			k = (k ^ uint64(d[at])) * fnvPrime
		}
		keys[0], keys[1], keys[2], keys[3] = fnv1a(h, a[n:]), fnv1a(i, b[n:]), fnv1a(j, c[n:]), fnv1a(k, d[n:])
		prefixes, keys = prefixes[4:], keys[4:]
	}
	for i, p := range prefixes {
		keys[i] = fnv1a(fnvOffset, p)
	}
}

// settle looks up what the perfect hash alone does not find: the root, and where some prefixes have
// the same key as another and no slot, these.
func (x *Index) settle(prefixes [][]byte, positions []uint64) error {
	all := x.hash.Load().Keys() == x.doc.NodeCount
	for i, pos := range positions {
		if pos != NotFound || all && len(prefixes[i]) > 0 {
			continue
		}
		pos, ok, err := x.Lookup(prefixes[i])
		if err != nil {
			return err
		}
		if ok {
			positions[i] = pos
		}
	}
	return nil
}

// bounds returns where the bytes of a prefix begin and end; in a layout with lengths, where its
// length is.
func (x *Index) bounds(pos uint64) (off, end uint64, err error) {
	if off, err = x.offsets.at(pos); err != nil || x.layout.lengths {
		return off, off, err
	}
	if end, err = x.offsets.at(pos + 1); err != nil {
		return 0, 0, err
	}
	if end < off {
		return 0, 0, x.offsets.bad(pos+1, fmt.Sprintf("an offset from %d", off), end)
	}
	return off, end, nil
}
