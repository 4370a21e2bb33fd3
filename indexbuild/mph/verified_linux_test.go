package mph

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// protected returns a copy of data in memory of its own. After seal, reading a block that verify
// has not passed ends the process.
func protected(tb testing.TB, data []byte) (mem []byte, seal func(), verify func(off, n int64) error) {
	tb.Helper()
	size := (len(data) + BlockSize - 1) / BlockSize * BlockSize
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { unix.Munmap(mem) })
	copy(mem, data)
	all := mem
	return mem[:len(data):len(data)], func() {
			if err := unix.Mprotect(all, unix.PROT_NONE); err != nil {
				tb.Fatal(err)
			}
		}, func(off, n int64) error {
			return unix.Mprotect(all[off:][:BlockSize], unix.PROT_READ)
		}
}

// Concurrent lookups of keys and of absent keys, with a verify that fails at times, read verified
// blocks only.
func TestNoBlockIsReadBeforeItIsVerified(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 1, 3, 1000, BlockSize/recordSize - 4, BlockSize / recordSize, 250_000} {
		keys := append(randomKeys(n), sharedKeys(n/100, 3)...)
		data, _ := setup{Options{}, 50_000, memoryKeys}.build(t, keys)
		want := map[Key]uint32{}
		for i, k := range keys {
			want[k] = uint32(i)
		}
		queries := append(append([]Key{}, keys...), absentKeys(keys)...)
		for _, first := range []string{"absent", "all"} {
			t.Run(fmt.Sprintf("n=%d,%s", n, first), func(t *testing.T) {
				mem, seal, unseal := protected(t, data)
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(uint64(n), 3))
				table, err := Open(mem, "domains.mphf", Expect{uint64(len(keys)), testXXH64}, func(off, n int64) error {
					mu.Lock()
					defer mu.Unlock()
					if rng.IntN(3) == 0 {
						return broken
					}
					return unseal(off, n)
				})
				if err != nil {
					t.Fatal(err)
				}
				seal() // Open is done
				var all sync.WaitGroup
				for g := range 4 {
					all.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(n), uint64(10+g)))
						for range 300 {
							size := 1 + rng.IntN(40)
							if rng.IntN(10) == 0 {
								size = 600
							}
							some := make([]Key, size)
							for i := range some {
								some[i] = queries[rng.IntN(len(queries))]
								if first == "absent" {
									some[i].ID ^= 1 << rng.IntN(64)
								}
							}
							got := make([]uint32, size)
							switch err := table.LookupBatch(some, got); {
							case errors.Is(err, broken):
								continue
							case err != nil:
								t.Error(err)
								return
							}
							for i, k := range some {
								o, ok := want[k]
								if !ok {
									o = Absent
								}
								if got[i] != o {
									t.Errorf("%x: %d, want %d", k, got[i], o)
									return
								}
							}
							if o, ok, err := table.Lookup(some[0].ID, some[0].Check); err == nil {
								if w, want := want[some[0]]; ok != want || ok && o != w {
									t.Errorf("%x: %d, %v", some[0], o, ok)
								}
							} else if !errors.Is(err, broken) {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				for _, part := range []struct {
					what       string
					blocks     func() (first, end uint64)
					unverified int64
				}{
					{"records", table.recordBlocks, table.unverifiedRecords.Load()},
					{"lines", table.lineBlocks, table.unverifiedLines.Load()},
				} {
					left := int64(0)
					for i, end := part.blocks(); i < end; i++ {
						if !table.isVerified(i * BlockSize) {
							left++
						}
					}
					if part.unverified != left {
						t.Errorf("%d blocks with %s count as unverified, %d are", part.unverified, part.what, left)
					}
				}
			})
		}
	}
}

// LookupBatch of a key without a slot does not read an unverified record, although it may load any
// record.
func TestNoRecordIsReadForKeysWithoutSlot(t *testing.T) {
	keys := randomKeys(250_000)
	data, _ := setup{Options{}, 50_000, memoryKeys}.build(t, keys)
	rng := rand.New(rand.NewPCG(8, 8))
	var nowhere []Key
	for table := open(t, data, keys); len(nowhere) < 3; {
		id := rng.Uint64()
		if _, ok, err := table.Slot(id); err != nil {
			t.Fatal(err)
		} else if !ok {
			nowhere = append(nowhere, Key{id, 0})
		}
	}
	mem, seal, unseal := protected(t, data)
	table, err := Open(mem, "domains.mphf", Expect{uint64(len(keys)), testXXH64}, unseal)
	if err != nil {
		t.Fatal(err)
	}
	seal()
	out := make([]uint32, len(nowhere))
	if err := table.LookupBatch(nowhere, out); err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o != Absent {
			t.Errorf("absent key %d has ordinal %d", i, o)
		}
	}
}
