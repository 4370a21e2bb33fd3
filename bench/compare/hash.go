package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/urlake/urlake/bench/relab"
	"github.com/urlake/urlake/bench/steps"
	"github.com/urlake/urlake/indexbuild/mph"
)

// hashed is what was measured of a perfect hash. Times are nanoseconds a key unless said otherwise.
type hashed struct {
	Keys        int     `json:"keys"`
	BuildRate   float64 `json:"build_rate"` // keys a second, from the first Add to the last byte, on two cores
	Bits        float64 `json:"bits"`       // a key, levels and ranks
	Slot        float64 `json:"slot"`       // the hash alone
	Lookup      float64 `json:"lookup"`     // with the record, and so with the key check
	LookupBatch float64 `json:"lookup_batch"`
	Open        float64 `json:"open"` // microseconds
	Map         float64 `json:"map"`  // the same keys in a Go map
	// Of relab's method on the same keys: levels and ranks built without records, from keys in
	// memory and with the same parallelism; found one by one; loaded in microseconds.
	RelabRate, RelabBits, RelabFind, RelabLoad float64
}

const (
	// timedLookups is how many lookups are timed together, batchSize how many of them one batched
	// call does.
	timedLookups = 1 << 20
	batchSize    = 1024
	// hashRounds is how often everything is timed; the median counts. Builds of more than ten
	// million keys are timed less often.
	hashRounds = 5
	// relabTime bounds the time for relab's lookups, whose cost grows with the number of keys: a
	// million lookups among ten million keys would take most of a minute.
	relabTime = time.Second
)

// measureHash builds a hash of n random keys and looks up keys of it in random order.
func measureHash(ctx context.Context, n int, dir string) (*hashed, error) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	keys := make([]mph.Key, n)
	for i := range keys {
		keys[i] = mph.Key{ID: rng.Uint64(), Check: rng.Uint32()}
	}
	out := &hashed{Keys: n}
	var buf bytes.Buffer
	var rates []float64
	buf.Grow(17 * n)
	for range rounds(n) {
		buf.Reset()
		started := time.Now()
		b := mph.NewBuilder(mph.Options{Dir: dir, Parallelism: steps.Slots, Expect: int64(n)}) // a segment's writer knows n too
		for _, k := range keys {
			if err := b.Add(k.ID, k.Check); err != nil {
				return nil, err
			}
		}
		stats, err := b.Finish(ctx, &buf, 0)
		if err != nil {
			return nil, err
		}
		rates = append(rates, float64(n)/time.Since(started).Seconds())
		out.Bits = float64(stats.LevelBytes) * 8 / float64(stats.Keys)
		if err := b.Close(); err != nil {
			return nil, err
		}
	}
	out.BuildRate = median(rates)

	wanted := make([]mph.Key, timedLookups)
	ids := make([]uint64, timedLookups)
	for i := range wanted {
		wanted[i] = keys[rng.IntN(n)]
		ids[i] = wanted[i].ID
	}
	started := time.Now()
	table, err := mph.Open(buf.Bytes(), "bench", mph.Expect{Domains: uint64(n)}, nil)
	if err != nil {
		return nil, err
	}
	out.Open = float64(time.Since(started).Nanoseconds()) / 1e3
	ordinals := make([]uint32, batchSize)
	for _, m := range []struct {
		result *float64
		do     func() error
	}{
		{&out.Slot, func() error {
			for _, id := range ids {
				if _, ok, err := table.Slot(id); err != nil || !ok {
					return fmt.Errorf("key %x is not found: %w", id, err)
				}
			}
			return nil
		}},
		{&out.Lookup, func() error {
			for _, k := range wanted {
				if _, ok, err := table.Lookup(k.ID, k.Check); err != nil || !ok {
					return fmt.Errorf("key %x is not found: %w", k.ID, err)
				}
			}
			return nil
		}},
		{&out.LookupBatch, func() error {
			for chunk := range slices.Chunk(wanted, batchSize) {
				if err := table.LookupBatch(chunk, ordinals); err != nil {
					return err
				}
				if slices.Contains(ordinals, mph.Absent) {
					return fmt.Errorf("a key is not found")
				}
			}
			return nil
		}},
	} {
		if *m.result, err = timeKeys(m.do); err != nil {
			return nil, err
		}
	}
	if err := measureRelab(keys, ids, out); err != nil {
		return nil, err
	}
	naive := make(map[uint64]uint32, n)
	for i, k := range keys {
		naive[k.ID] = uint32(i)
	}
	out.Map, err = timeKeys(func() error {
		for _, id := range ids {
			if _, ok := naive[id]; !ok {
				return fmt.Errorf("key %x is not found", id)
			}
		}
		return nil
	})
	return out, err
}

// measureRelab does with relab's method what was done with the project's hash.
func measureRelab(keys []mph.Key, wanted []uint64, out *hashed) error {
	n := len(keys)
	ids := make([]uint64, n)
	for i, k := range keys {
		ids[i] = k.ID
	}
	var h *relab.Hash
	var rates []float64
	for range rounds(n) {
		runtime.GC() // the previous round's hash
		started := time.Now()
		var err error
		if h, err = relab.Build(ids, steps.Slots); err != nil {
			return err
		}
		rates = append(rates, float64(n)/time.Since(started).Seconds())
	}
	out.RelabRate, out.RelabBits = median(rates), float64(h.Bits())/float64(n)
	data := h.Encode()
	started := time.Now()
	h = relab.Load(data)
	out.RelabLoad = float64(time.Since(started).Nanoseconds()) / 1e3
	found := 0
	for started = time.Now(); found < len(wanted) && time.Since(started) < relabTime; {
		for _, id := range wanted[found:min(found+64, len(wanted))] {
			if h.Find(id) == 0 {
				return fmt.Errorf("relab: key %x is not found", id)
			}
			found++
		}
	}
	out.RelabFind = float64(time.Since(started).Nanoseconds()) / float64(found)
	return nil
}

// rounds returns how often a hash of n keys is built.
func rounds(n int) int { return max(2, min(hashRounds, int(5e7)/n)) }

// timeKeys runs do, which does timedLookups lookups, a few times and returns the median in
// nanoseconds a lookup.
func timeKeys(do func() error) (float64, error) {
	var times []float64
	for range hashRounds {
		started := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(started).Nanoseconds())/timedLookups)
	}
	return median(times), nil
}

// median returns the median of values: for an even number the mean of the middle two, for none 0.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
