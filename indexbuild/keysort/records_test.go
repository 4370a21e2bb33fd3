package keysort

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/urlake/urlake/lake/codec"
)

// randomRecords are records of which many have equal keys, keys that begin with others, or long
// ones.
func randomRecords(rng *rand.Rand, n int) (all [][2][]byte) {
	for i := range n {
		key := fmt.Appendf(nil, "%c/%d/", 'a'+rng.IntN(3), rng.IntN(n/2+1))
		switch rng.IntN(40) {
		case 0:
			key = nil
		case 1:
			key = append(key, bytes.Repeat([]byte{byte(rng.IntN(256))}, 3000)...)
		}
		all = append(all, [2][]byte{key, binary.AppendUvarint(nil, uint64(i))})
	}
	return all
}

func compareRecords(a, b [2][]byte) int {
	if c := bytes.Compare(a[0], b[0]); c != 0 {
		return c
	}
	return bytes.Compare(a[1], b[1])
}

// Records that several goroutines add come out in the order of a plain sort, with few runs and with
// so many that they are merged more than once.
func TestRecordsEqualASort(t *testing.T) {
	for _, c := range []struct{ records, spillAt, fanIn int }{
		{0, 100, 2}, {1, 1 << 20, 2}, {1000, 1 << 20, 2}, {1000, 5000, 2}, {3000, 500, 2}, {3000, 700, 3}, {3000, 2000, mergedAtOnce},
		{40_000, 400_000, 8},
	} {
		rng := rand.New(rand.NewPCG(1, uint64(c.records)))
		want := randomRecords(rng, c.records)
		runs := NewRuns(t.TempDir())
		runs.fanIn = c.fanIn
		defer runs.Close()
		var mu sync.Mutex
		var left []Source
		var wg sync.WaitGroup
		const adders = 3
		failed := make([]error, adders)
		for a := range adders {
			wg.Go(func() {
				var r Records
				for i := a; i < len(want); i += adders {
					r.Add(want[i][0], want[i][1])
					if r.Bytes() > c.spillAt {
						failed[a] = errors.Join(failed[a], runs.Add(r.Sorted()))
						r.Reset()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				left = append(left, r.Sorted())
			})
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			t.Fatal(err)
		}
		many := runs.Len()
		var got [][2][]byte
		err := runs.Merge(t.Context(), left, func(key, value []byte) error {
			got = append(got, [2][]byte{bytes.Clone(key), bytes.Clone(value)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(got, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) }) {
			t.Fatalf("%+v: not in order", c)
		}
		slices.SortFunc(got, compareRecords)
		slices.SortFunc(want, compareRecords)
		if !slices.EqualFunc(got, want, func(a, b [2][]byte) bool { return compareRecords(a, b) == 0 }) {
			t.Fatalf("%+v: %d records of %d, or others", c, len(got), len(want))
		}
		if c.spillAt == 500 && many < 50 {
			t.Errorf("only %d runs", many)
		}
	}
}

// A flipped bit anywhere in the temporary file is an error.
func TestDamagedRunsAreFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		runs := NewRuns(t.TempDir())
		for range 3 {
			var r Records
			for _, one := range randomRecords(rng, 20) {
				r.Add(one[0], one[1])
			}
			if err := runs.Add(r.Sorted()); err != nil {
				t.Fatal(err)
			}
		}
		at := rng.Int64N(runs.spool.size)
		var b [1]byte
		if _, err := runs.spool.file.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << rng.IntN(8)
		if _, err := runs.spool.file.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		err := runs.Merge(t.Context(), nil, func(_, _ []byte) error { return nil })
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("a bit of byte %d: %v", at, err)
		}
		runs.Close()
	}
}
