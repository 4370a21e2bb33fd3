package numbers_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/frontier/numbers"
	"github.com/urlake/urlake/internal/testenv"
)

// A table is as a map is, while it grows and shrinks.
func TestTableEqualsMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	table, want := numbers.New[int](), map[uint64]int{}
	check := func(number uint64) {
		t.Helper()
		v, has := want[number]
		if got := table.At(number); (got != nil) != has || has && *got != v {
			t.Fatalf("%d: %v; the map has %d, %t", number, got, v, has)
		}
	}
	for _, phase := range []struct{ steps, of, deleted int }{
		{100_000, 50_000, 30}, {200_000, 50_000, 70}, {20_000, 100, 50}, {100_000, 1 << 40, 10}, {200_000, 1 << 16, 90},
	} {
		for i := range phase.steps {
			number := rng.Uint64N(uint64(phase.of))
			if rng.IntN(100) < phase.deleted {
				_, has := want[number]
				if table.Delete(number) != has {
					t.Fatalf("%d was deleted: %t", number, !has)
				}
				delete(want, number)
			} else {
				table.Set(number, i)
				want[number] = i
			}
			check(number)
			check(rng.Uint64N(uint64(phase.of)))
			table.Touch(rng.Uint64())
		}
		if got := maps.Collect(table.All()); !maps.Equal(got, want) {
			t.Fatalf("%d values; the map has %d", len(got), len(want))
		}
	}
	for number := range want {
		table.Delete(number)
	}
	for number := range table.All() {
		t.Fatalf("%d is left", number)
	}
	check(^uint64(0) - 1)
}

// Numbers that are there all the time are yielded once, whatever is done meanwhile.
func TestAllWhileOthersChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	table := numbers.New[int]()
	for number := range uint64(10_000) {
		table.Set(number, 0)
	}
	yielded := map[uint64]int{}
	for number := range table.All() {
		yielded[number]++
		for range 10 { // those from 5,000 on change
			other := 5_000 + rng.Uint64N(30_000)
			if rng.IntN(2) == 0 {
				table.Set(other, 1)
			} else {
				table.Delete(other)
			}
		}
	}
	for number := range uint64(5_000) {
		if yielded[number] != 1 {
			t.Fatalf("%d was yielded %d times", number, yielded[number])
		}
	}
}

// Parts grow, and shrink, at different times, also if numbers follow one another and all parts have
// as many at any time.
func TestPartsGrowOneByOne(t *testing.T) {
	const size, some = 400_000, 1000
	for range 10 / testenv.Every(5) {
		table, before := numbers.New[int](), 0
		step := func(number uint64) {
			if number%some != 0 {
				return
			}
			slots := table.Slots()
			if most := max(before, slots) / 4; number > 10*some && max(slots-before, before-slots) > most {
				t.Fatalf("from %d to %d slots within %d numbers of %d", before, slots, some, number)
			}
			before = slots
		}
		for number := range uint64(size) {
			table.Set(number, 0)
			step(number)
		}
		full := table.Slots()
		if full < size || full > 3*size {
			t.Fatalf("%d numbers are in %d slots", size, full)
		}
		for number := uint64(size); number > 0; number-- {
			table.Delete(number - 1)
			step(number)
		}
		if left := table.Slots(); left > full/1000 {
			t.Fatalf("%d slots are left of %d", left, full)
		}
	}
}

// Searches are short whatever the seed, also of numbers that follow one another at some distance.
func TestSearchesAreShort(t *testing.T) {
	for range 300 {
		for _, distance := range []uint64{1, 32, 64, 1000} {
			table := numbers.New[int]()
			for i := range uint64(5_000) {
				table.Set(i*distance, 0)
			}
			if got := table.Probes(); got > 3 {
				t.Fatalf("numbers %d apart are found in %.1f slots", distance, got)
			}
		}
	}
}

// BenchmarkTable sets and deletes numbers in batches, beside a map.
func BenchmarkTable(b *testing.B) {
	const size, batch = 1 << 20, 20
	next := func(i uint64) uint64 { return i * 0x9e3779b97f4a7c15 >> 40 }
	b.Run("Table", func(b *testing.B) {
		t, i, sum := numbers.New[[3]uint64](), uint64(0), uint64(0)
		for ; i < size; i++ {
			t.Set(next(i), [3]uint64{})
		}
		for b.Loop() {
			for j := range uint64(batch) {
				sum += t.Touch(next(i+j)) + t.Touch(next(i+j-size))
			}
			for range batch {
				t.Set(next(i), [3]uint64{sum})
				t.Delete(next(i - size))
				i++
			}
		}
	})
	b.Run("map", func(b *testing.B) {
		t, i := map[uint64][3]uint64{}, uint64(0)
		for ; i < size; i++ {
			t[next(i)] = [3]uint64{}
		}
		for b.Loop() {
			for range batch {
				t[next(i)] = [3]uint64{}
				delete(t, next(i-size))
				i++
			}
		}
	})
}
