package mph

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Hash is the hash of a table alone, built and kept in memory: levels and ranks, for keys whose values stand elsewhere.
type Hash struct {
	table Table
}

// BuildHash builds the hash of the keys, which it leaves as they are. They must be distinct. Of the options it takes Seed and Parallelism.
// The slots are those of a Table of the same keys and seed.
func BuildHash(keys []uint64, opt Options) (*Hash, error) {
	if len(keys) > MaxDomains {
		return nil, fmt.Errorf("build hash: %d keys are more than %d", len(keys), uint64(MaxDomains))
	}
	b := NewBuilder(opt)
	b.keysOnly = true
	b.memoryKeys = math.MaxInt
	nbits := bucketBits(uint64(len(keys)), b.bucketKeys)
	b.sortAll(keys, nbits)

	t := trailer{seed: b.opt.Seed, bucketBits: nbits}
	dir := make([]openBucket, 0, 1<<nbits)
	lines := make([]byte, 0, levelLines(len(keys))*lineSize*2)
	var fallback []uint64
	err := b.buildBuckets(context.Background(), nbits, func(k *bucketBuild) error {
		k.dir.slot, k.dir.line = t.keys, t.lines
		dir = append(dir, k.dir.open())
		t.keys += uint64(k.dir.keys)
		t.lines += k.dir.lines()
		lines = append(lines, k.lines...)
		for _, e := range k.rest {
			fallback = append(fallback, e.key)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("build hash: %w", err)
	}
	slices.Sort(fallback)
	for i, key := range fallback {
		if i > 0 && key == fallback[i-1] {
			return nil, fmt.Errorf("build hash: key %016x is there twice", key)
		}
	}
	t.fallback = uint64(len(fallback))
	t.keys += t.fallback
	t.layout.fallback = uint64(len(lines))
	for _, key := range fallback {
		lines = binary.LittleEndian.AppendUint64(lines, key)
	}
	h := &Hash{Table{
		name: "hash", data: lines, trailer: t,
		levels:   levels{dir: dir, lines: lines[:t.layout.fallback], seed: t.seed, bucketBits: nbits, lanes: hasLanes},
		verified: make([]atomic.Uint64, len(lines)/BlockSize/64+1),
	}}
	h.table.start(nil)
	return h, nil
}

// sortAll makes runs of all keys, several at once.
func (b *Builder) sortAll(keys []uint64, nbits uint32) {
	if nbits == 0 {
		b.runs = []*run{{ends: []uint32{uint32(len(keys))}, keys: keys}}
		return
	}
	size := b.chunkSize(nbits)
	b.runs = make([]*run, (len(keys)+size-1)/size)
	var next atomic.Int64
	var all sync.WaitGroup
	for range b.opt.Parallelism {
		all.Go(func() {
			var c chunk
			for i := int(next.Add(1)) - 1; i < len(b.runs); i = int(next.Add(1)) - 1 {
				c.keys = keys[i*size : min((i+1)*size, len(keys))]
				b.runs[i] = &run{}
				b.runs[i].sort(&c, b.opt.Seed, nbits, b.lanes)
			}
		})
	}
	all.Wait()
}

// Keys is the number of keys.
func (h *Hash) Keys() int { return h.table.Keys() }

// Size is the number of bytes of the hash: bits and samples of ones, and the keys that no level placed.
func (h *Hash) Size() int64 { return int64(len(h.table.data)) }

// Slot is a number below Keys, a different one for each key of the hash. Another key gets some slot or none.
func (h *Hash) Slot(key uint64) (slot uint64, ok bool) {
	slot, ok, _ = h.table.Slot(key) // nothing is verified, and ranks are what they were built
	return slot, ok
}

// SlotBatch is Slot for many keys, as Table's.
func (h *Hash) SlotBatch(keys, slots []uint64) {
	_ = h.table.SlotBatch(keys, slots)
}
