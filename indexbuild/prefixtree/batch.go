package prefixtree

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime/debug"

	"github.com/urlake/urlake/indexbuild/bbhash"
	"github.com/urlake/urlake/internal/mapped"
)

// NotFound is the position of a prefix that an index does not have. Lookups replaces slots by their
// positions, so it is also the slot of a key that has none.
const NotFound = bbhash.NoSlot

// Lookups sets positions[i] to what Lookup returns for prefixes[i], NotFound for one that the index
// does not have. For many prefixes it takes a fraction of the time of Lookup.
func (x *Index) Lookups(prefixes [][]byte, positions []uint64) (err error) {
	if len(prefixes) != len(positions) {
		return fmt.Errorf("%d prefixes and room for %d positions", len(prefixes), len(positions))
	}
	if _, err := x.perfect(); err != nil {
		return err
	}
	for len(prefixes) > 0 && err == nil {
		n := min(len(prefixes), bbhash.Together)
		if err = x.lookups(prefixes[:n], positions[:n]); err == nil {
			err = x.settle(prefixes[:n], positions[:n])
		}
		prefixes, positions = prefixes[n:], positions[n:]
	}
	return err
}

// lookups finds at most bbhash.Together prefixes by the perfect hash. Those that it does not find
// are NotFound, whether the index has them or not. All prefixes take one step before any takes the
// next: the memory that a step reads follows from the steps before, so the processor fetches that
// of many prefixes at once.
func (x *Index) lookups(prefixes [][]byte, positions []uint64) (err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, x.files...)
	var keys, offsets [bbhash.Together]uint64
	fnv1aMany(prefixes, keys[:])
	x.hash.Load().Slots(keys[:len(prefixes)], positions)
	if err := x.slots.gather(positions, offsets[:]); err != nil {
		return err
	}
	for i, slot := range positions {
		if slot == NotFound {
			continue
		}
		if positions[i], offsets[i], err = x.split(slot, offsets[i]); err != nil {
			return err
		}
	}
	if !x.packed {
		if err := x.offsets.gather(positions, offsets[:]); err != nil {
			return err
		}
	}
	if x.layout.lengths {
		if err := x.compareLengths(prefixes, positions, offsets[:]); err != nil {
			return err
		}
	}
	for i, pos := range positions {
		if pos == NotFound {
			continue
		}
		off, end := offsets[i]+lengthBytes, offsets[i]+lengthBytes+uint64(len(prefixes[i]))
		if !x.layout.lengths {
			if off, end, err = x.bounds(pos); err != nil {
				return err
			}
		}
		p, err := x.blob.slice(off, end-off)
		if err != nil {
			return err
		}
		if !bytes.Equal(p, prefixes[i]) {
			positions[i] = NotFound
		}
	}
	return nil
}

// compareLengths compares the lengths at offsets and the last bytes of the prefixes after them with
// those of prefixes. That reads the first and the last cache line of most. Positions of others
// become NotFound.
func (x *Index) compareLengths(prefixes [][]byte, positions, offsets []uint64) error {
	data, size := x.blob.Data(), uint64(x.blob.Size())
	for i, off := range offsets[:len(prefixes)] {
		if positions[i] == NotFound {
			continue
		}
		n := uint64(len(prefixes[i]))
		if off > size || size-off < lengthBytes {
			_, err := x.blob.slice(off, lengthBytes)
			return err
		}
		end := min(off+lengthBytes+n, size)
		if x.blob.lazy {
			if err := x.blob.Check(int64(off), int64(end-off)); err != nil {
				return err
			}
		}
		if uint64(binary.LittleEndian.Uint32(data[off:])) != n || data[end-1] != '/' {
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
