// Long file: the tests share one oracle of keys and one damage table.

package mph

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/codec"
)

const testXXH64 = 0x0123456789abcdef

// setup varies what must not change answers: sizes of buckets, and how much is spilled.
type setup struct {
	opt        Options
	bucketKeys int
	memoryKeys int
}

func (s setup) String() string {
	return fmt.Sprintf("par=%d,bucket=%d,memory=%d", s.opt.Parallelism, s.bucketKeys, s.memoryKeys)
}

var asShipped = setup{Options{}, bucketKeys, memoryKeys}

func (s setup) builder(tb testing.TB) *Builder {
	tb.Helper()
	if s.opt.Dir == "" {
		s.opt.Dir = tb.TempDir()
	}
	b := NewBuilder(s.opt)
	b.bucketKeys, b.memoryKeys = s.bucketKeys, s.memoryKeys
	tb.Cleanup(func() { b.Close() })
	return b
}

func (s setup) tryBuild(tb testing.TB, keys []Key) ([]byte, Stats, error) {
	tb.Helper()
	b := s.builder(tb)
	for _, k := range keys {
		if err := b.Add(k.ID, k.Check); err != nil {
			tb.Fatal(err)
		}
	}
	var buf bytes.Buffer
	stats, err := b.Finish(context.Background(), &buf, testXXH64)
	return buf.Bytes(), stats, err
}

func (s setup) build(tb testing.TB, keys []Key) ([]byte, Stats) {
	tb.Helper()
	data, stats, err := s.tryBuild(tb, keys)
	if err != nil {
		tb.Fatal(err)
	}
	return data, stats
}

func open(tb testing.TB, data []byte, keys []Key) *Table {
	tb.Helper()
	table, err := Open(data, "domains.mphf", Expect{uint64(len(keys)), testXXH64}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// absentKeys returns near misses of the keys and unrelated keys, none of which is among them.
func absentKeys(keys []Key) []Key {
	oracle := make(map[Key]bool, len(keys))
	for _, k := range keys {
		oracle[k] = true
	}
	rng := rand.New(rand.NewPCG(7, uint64(len(keys))))
	out := []Key{{0, 0}, {ones, 0xffffffff}}
	for _, k := range keys[:min(len(keys), 5000)] {
		out = append(out, Key{k.ID, k.Check + 1}, Key{k.ID + 1, k.Check}, Key{k.ID ^ 1<<63, k.Check}, Key{rng.Uint64(), k.Check})
	}
	kept := out[:0]
	for _, k := range out {
		if !oracle[k] {
			kept = append(kept, k)
		}
	}
	return kept
}

// checkAnswers compares all lookups with a map.
func checkAnswers(tb testing.TB, table *Table, keys []Key) {
	tb.Helper()
	want := make(map[Key]uint32, len(keys))
	distinct := make(map[uint64]bool, len(keys))
	for i, k := range keys {
		want[k] = uint32(i)
		distinct[k.ID] = true
	}
	if table.Len() != len(keys) || table.Keys() != len(distinct) {
		tb.Fatalf("%d domains and %d keys, want %d and %d", table.Len(), table.Keys(), len(keys), len(distinct))
	}
	queries := append(append([]Key{}, keys...), absentKeys(keys)...)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(queries), func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })

	ordinals := make([]uint32, len(queries))
	if err := table.LookupBatch(queries, ordinals); err != nil {
		tb.Fatal(err)
	}
	for n, rest := 1, queries; len(rest) > 0; n += 1 + n/5 {
		chunk := rest[:min(n, len(rest))]
		rest = rest[len(chunk):]
		got := append(make([]uint32, len(chunk)), 42)
		if err := table.LookupBatch(chunk, got[:len(chunk)]); err != nil {
			tb.Fatal(err)
		}
		for i, k := range chunk {
			o, ok := want[k]
			if !ok {
				o = Absent
			}
			if got[i] != o {
				tb.Fatalf("LookupBatch of %d keys at %d = %d, want %d", len(chunk), i, got[i], o)
			}
		}
		if got[len(chunk)] != 42 {
			tb.Fatalf("LookupBatch of %d keys wrote behind their ordinals", len(chunk))
		}
	}
	slotOf := make(map[uint64]uint64, len(distinct))
	for i, k := range queries {
		ordinal, ok, err := table.Lookup(k.ID, k.Check)
		if err != nil {
			tb.Fatal(err)
		}
		wantOrdinal, wantOK := want[k]
		if ok != wantOK || ok && ordinal != wantOrdinal {
			tb.Fatalf("Lookup(%x, %x) = %d, %v, want %d, %v", k.ID, k.Check, ordinal, ok, wantOrdinal, wantOK)
		}
		if !wantOK {
			wantOrdinal = Absent
		}
		if ordinals[i] != wantOrdinal {
			tb.Fatalf("LookupBatch at %d = %d, want %d", i, ordinals[i], wantOrdinal)
		}
		slot, ok, err := table.Slot(k.ID)
		if err != nil {
			tb.Fatal(err)
		}
		if distinct[k.ID] {
			if !ok || slot >= uint64(len(distinct)) {
				tb.Fatalf("key %x of the table: slot %d of %d, %v", k.ID, slot, len(distinct), ok)
			}
			if other, ok := slotOf[slot]; ok && other != k.ID {
				tb.Fatalf("keys %x and %x share slot %d", other, k.ID, slot)
			}
			slotOf[slot] = k.ID
		}
	}
}

func TestBatchesOfEveryLength(t *testing.T) {
	keys := append(randomKeys(5000), sharedKeys(20, 3)...)
	data, _ := setup{Options{Seed: 3}, 300, memoryKeys}.build(t, keys)
	table := open(t, data, keys)
	ordinals := make([]uint32, 2*batchSize)
	for n := range 2 * batchSize {
		some := keys[n:][:n]
		if err := table.LookupBatch(some, ordinals); err != nil {
			t.Fatal(err)
		}
		for i, k := range some {
			if want, ok, err := table.Lookup(k.ID, k.Check); err != nil || !ok || ordinals[i] != want {
				t.Fatalf("%d keys: ordinal %d is %d, want %d, %v, %v", n, i, ordinals[i], want, ok, err)
			}
		}
	}
}

func TestLookupAnswersAsAMap(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 63, 64, 65, 255, 256, 257, 479, 480, 481, 1000, 10_000, 100_000} {
		for _, s := range []setup{
			asShipped,
			{Options{Seed: 99, Parallelism: 2}, 1000, memoryKeys},
			{Options{Parallelism: 3}, 1000, 7000},
			{Options{Parallelism: 2}, 100, max(n/3, 1)},
		} {
			t.Run(fmt.Sprintf("n=%d,%s", n, s), func(t *testing.T) {
				keys := randomKeys(n)
				data, _ := s.build(t, keys)
				checkAnswers(t, open(t, data, keys), keys)
			})
		}
	}
}

func TestSameBytesWhateverTheParallelismAndSpilling(t *testing.T) {
	keys := append(randomKeys(50_000), sharedKeys(20, 3)...)
	want, wantStats := setup{Options{Parallelism: 1}, 1000, memoryKeys}.build(t, keys)
	for _, parallelism := range []int{1, 2, 4, 8} {
		for i, run := range []int{memoryKeys, 50_060, 50_059, 7001, 7001, 999, 999} {
			s := setup{Options{Parallelism: parallelism, Expect: []int64{0, 1, 5000, 50_060, 1, 0, 5000}[i]}, 1000, run}
			got, stats := s.build(t, keys)
			if !bytes.Equal(got, want) {
				t.Errorf("%s: other bytes", s)
			}
			if diff := cmp.Diff(wantStats, stats); diff != "" {
				t.Errorf("%s: %s", s, diff)
			}
		}
	}
}

func TestSeedChangesSlotsAndNotAnswers(t *testing.T) {
	keys := randomKeys(5000)
	a, _ := setup{Options{Seed: 1}, 1000, memoryKeys}.build(t, keys)
	b, _ := setup{Options{Seed: 2}, 1000, memoryKeys}.build(t, keys)
	if bytes.Equal(a[:5000*recordSize], b[:5000*recordSize]) {
		t.Error("records in the same order")
	}
	checkAnswers(t, open(t, a, keys), keys)
	checkAnswers(t, open(t, b, keys), keys)
}

// sharedKeys are groups of domains with one key each.
func sharedKeys(groups, size int) []Key {
	rng := rand.New(rand.NewPCG(^uint64(groups), uint64(size)))
	var keys []Key
	for range groups {
		id := rng.Uint64()
		checks := map[uint32]bool{}
		for len(checks) < size {
			if c := rng.Uint32(); !checks[c] {
				checks[c] = true
				keys = append(keys, Key{id, c})
			}
		}
	}
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func TestDomainsThatShareAKeyAreDistinguished(t *testing.T) {
	for _, c := range []struct{ plain, groups, size int }{
		{0, 1, 2}, {100, 1, 2}, {1000, 3, 7}, {0, 1, 20_000}, {0, 20_000, 2}, {20_000, 5000, 3},
	} {
		t.Run(fmt.Sprintf("%d+%dx%d", c.plain, c.groups, c.size), func(t *testing.T) {
			keys := append(randomKeys(c.plain), sharedKeys(c.groups, c.size)...)
			data, stats := setup{Options{}, 1000, 3000}.build(t, keys)
			if stats.Shared != c.groups*c.size {
				t.Errorf("%d domains with a shared key, want %d", stats.Shared, c.groups*c.size)
			}
			checkAnswers(t, open(t, data, keys), keys)
		})
	}
}

// collidingNames reads two real names with one xxh3_64.
func collidingNames(tb testing.TB) []string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Root(tb), "testdata", "collision.txt"))
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			names = append(names, line)
		}
	}
	if len(names) != 2 || names[0] == names[1] || xxh3.HashString(names[0]) != xxh3.HashString(names[1]) {
		tb.Fatalf("not two names with one xxh3_64: %q", names)
	}
	return names
}

// nameKeys are the keys that urlake's domains have.
func nameKeys(names []string) []Key {
	keys := make([]Key, len(names))
	for i, name := range names {
		keys[i] = Key{xxh3.HashString(name), uint32(xxh3.HashString128(name).Hi >> 32)}
	}
	return keys
}

func TestRealNamesThatCollideAreDistinguished(t *testing.T) {
	names := append(collidingNames(t), "example.com", "example.org")
	keys := nameKeys(names)
	data, stats := asShipped.build(t, keys)
	if stats.Shared != 2 || stats.Keys != 3 {
		t.Errorf("%+v, want 3 keys and 2 domains with a shared one", stats)
	}
	checkAnswers(t, open(t, data, keys), keys)
}

func TestEqualKeyAndCheckAreRejected(t *testing.T) {
	keys := append(randomKeys(5000), sharedKeys(3, 4)...)
	keys = append(keys, keys[17])
	_, _, err := setup{Options{}, 1000, 1000}.tryBuild(t, keys)
	var dup *DuplicateError
	if !errors.As(err, &dup) {
		t.Fatalf("error %v, want a *DuplicateError", err)
	}
	want := &DuplicateError{keys[17].ID, keys[17].Check, [2]uint32{17, uint32(len(keys) - 1)}}
	if diff := cmp.Diff(want, dup); diff != "" {
		t.Error(diff)
	}
}

func TestPatternedKeysBuild(t *testing.T) {
	const n = 50_000
	mulInverse := uint64(1) // of hashMul: its multiples have consecutive products
	for range 6 {
		mulInverse *= 2 - hashMul*mulInverse
	}
	for name, key := range map[string]func(i uint64) uint64{
		"consecutive":          func(i uint64) uint64 { return i },
		"high bits only":       func(i uint64) uint64 { return i << 40 },
		"one top byte":         func(i uint64) uint64 { return 0xab<<56 | i*0x10001 },
		"consecutive products": func(i uint64) uint64 { return i * mulInverse },
		"strided":              func(i uint64) uint64 { return i * 0x9e3779b97f4a7c16 },
	} {
		t.Run(name, func(t *testing.T) {
			keys := make([]Key, n)
			for i := range keys {
				keys[i].ID = key(uint64(i))
			}
			data, stats := setup{Options{Seed: 0x5eed}, 5000, memoryKeys}.build(t, keys)
			if bits := float64(stats.LevelBytes) * 8 / n; bits > 5 {
				t.Errorf("%.2f bits a key", bits)
			}
			checkAnswers(t, open(t, data, keys), keys)
		})
	}
}

// A level on which the last two keys collide ends the levels.
func TestKeysThatNoLevelPlacesAreFound(t *testing.T) {
	seen := 0
	for seed := range uint64(5000) {
		keys := []Key{{seed*3 + 1, 1}, {seed*5 + 1<<40, 2}}
		data, stats := setup{Options{Seed: seed, Parallelism: 1, Dir: os.TempDir()}, bucketKeys, memoryKeys}.build(t, keys)
		if stats.Fallback == 0 {
			continue
		}
		seen++
		checkAnswers(t, open(t, data, keys), keys)
	}
	if seen == 0 {
		t.Error("no seed made a fallback")
	}
}

func TestSizeOfLevels(t *testing.T) {
	_, stats := asShipped.build(t, randomKeys(1_000_000))
	if bits := float64(stats.LevelBytes) * 8 / 1e6; bits > 3.3 {
		t.Errorf("%.3f bits a key, want at most 3.3", bits)
	}
	if stats.Bytes > 1_000_000*17 {
		t.Errorf("%d bytes", stats.Bytes)
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	keys := append(randomKeys(3000), sharedKeys(10, 3)...)
	data, _ := asShipped.build(t, keys)
	table := open(t, data, keys)
	ordinals := make([]uint32, len(keys))
	if n := testing.AllocsPerRun(10, func() {
		for _, k := range keys {
			if _, _, err := table.Lookup(k.ID, k.Check); err != nil {
				t.Fatal(err)
			}
		}
	}); n > 0 {
		t.Errorf("Lookup: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := table.LookupBatch(keys, ordinals); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // a garbage collection may empty the pool
		t.Errorf("LookupBatch: %v allocations", n)
	}
}

// lazyFile returns a copy of data that is garbage at first. Each block gets its bytes when it is
// verified: a lookup that reads a block before gives wrong answers.
func lazyFile(data []byte) (lazy []byte, verify func(off, n int64) error, blocks *sync.Map) {
	tr, err := decodeTrailer(data, "")
	if err != nil {
		panic(err)
	}
	lazy = bytes.Clone(data)
	for i := range lazy[headerSize:tr.layout.directory] {
		lazy[headerSize+i] = byte(i*7) | 1
	}
	var mu sync.Mutex
	blocks = &sync.Map{}
	return lazy, func(off, n int64) error {
		mu.Lock()
		defer mu.Unlock()
		if off%BlockSize != 0 || n != min(BlockSize, int64(len(data))-off) {
			return fmt.Errorf("verify(%d, %d) is no block", off, n)
		}
		if _, again := blocks.LoadOrStore(off, true); !again {
			copy(lazy[off:][:n], data[off:])
		}
		return nil
	}, blocks
}

func TestNoByteIsReadBeforeItsBlockIsVerified(t *testing.T) {
	// The last group in the side table is larger than a block.
	keys := append(append(randomKeys(200_000), sharedKeys(50_000, 2)...), sharedKeys(1, 200_000)...)
	data, _ := setup{Options{}, 50_000, memoryKeys}.build(t, keys)
	expect := Expect{uint64(len(keys)), testXXH64}

	for name, lookUp := range map[string]func(table *Table, from, to int) error{
		"one by one": func(table *Table, from, to int) error {
			for i := from; i < to; i++ {
				if o, ok, err := table.Lookup(keys[i].ID, keys[i].Check); err != nil || !ok || o != uint32(i) {
					return fmt.Errorf("domain %d: %d, %v, %w", i, o, ok, err)
				}
			}
			return nil
		},
		"batch": func(table *Table, from, to int) error {
			out := make([]uint32, to-from)
			if err := table.LookupBatch(keys[from:to], out); err != nil {
				return err
			}
			for i, o := range out {
				if o != uint32(from+i) {
					return fmt.Errorf("domain %d: %d", from+i, o)
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			lazy, verify, blocks := lazyFile(data)
			table, err := Open(lazy, "domains.mphf", expect, verify)
			if err != nil {
				t.Fatal(err)
			}
			// In one goroutine; the next test has several.
			if err := lookUp(table, 0, len(keys)); err != nil {
				t.Error(err)
			}
			n := 0
			blocks.Range(func(any, any) bool { n++; return true })
			if want := int((table.trailer.layout.directory + BlockSize - 1) / BlockSize); n != want {
				t.Errorf("%d blocks verified, want %d", n, want)
			}
			if n := table.unverifiedLines.Load(); n != 0 {
				t.Errorf("%d blocks with lines unverified", n)
			}
			if n := table.unverifiedRecords.Load(); n != 0 {
				t.Errorf("%d blocks with records unverified", n)
			}
		})
	}
}

func TestConcurrentLookupsVerifyAndAnswer(t *testing.T) {
	keys := randomKeys(300_000)
	data, _ := asShipped.build(t, keys)
	var mu sync.Mutex
	calls := map[int64]int{}
	table, err := Open(data, "domains.mphf", Expect{uint64(len(keys)), testXXH64}, func(off, n int64) error {
		mu.Lock()
		defer mu.Unlock()
		calls[off]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			out := make([]uint32, 1000)
			for from := g * 1000; from+1000 <= len(keys); from += 16_000 {
				if err := table.LookupBatch(keys[from:from+1000], out); err != nil {
					t.Error(err)
					return
				}
				for i := range out {
					k := keys[from+i]
					o, ok, err := table.Lookup(k.ID, k.Check)
					if err != nil || !ok || o != uint32(from+i) || out[i] != o {
						t.Errorf("domain %d: %d, %v, %v, batch %d", from+i, o, ok, err, out[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for off, n := range calls {
		if n > 8 {
			t.Errorf("block at %d verified %d times by 8 goroutines", off, n)
		}
	}
	if n := table.unverifiedLines.Load(); n != 0 {
		t.Errorf("%d blocks with lines unverified", n)
	}
}

func TestVerifyErrorIsReturnedUntilItPasses(t *testing.T) {
	keys := randomKeys(1000)
	data, _ := asShipped.build(t, keys)
	bad := errors.New("block differs")
	fail := true
	table, err := Open(data, "domains.mphf", Expect{1000, testXXH64}, func(int64, int64) error {
		if fail {
			return bad
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok, err := table.Lookup(keys[0].ID, keys[0].Check); !errors.Is(err, bad) || ok {
			t.Errorf("Lookup: %v, %v", ok, err)
		}
		if err := table.LookupBatch(keys, make([]uint32, 1000)); !errors.Is(err, bad) {
			t.Errorf("LookupBatch: %v", err)
		}
		if _, ok, err := table.Slot(keys[0].ID); !errors.Is(err, bad) || ok {
			t.Errorf("Slot: %v, %v", ok, err)
		}
	}
	fail = false
	checkAnswers(t, table, keys)
}

// smallFile builds a file in which no section is empty.
func smallFile(tb testing.TB) ([]byte, []Key) {
	keys := append(randomKeys(60), sharedKeys(2, 3)...)
	data, _ := setup{Options{Seed: 4}, 20, memoryKeys}.build(tb, keys)
	return data, keys
}

func TestEveryTruncationIsCorrupt(t *testing.T) {
	data, keys := smallFile(t)
	for n := range data {
		_, err := Open(data[:n:n], "domains.mphf", Expect{uint64(len(keys)), testXXH64}, nil)
		checkCorrupt(t, err)
	}
	_, err := Open(append(bytes.Clone(data), 0), "domains.mphf", Expect{uint64(len(keys)), testXXH64}, nil)
	checkCorrupt(t, err)
}

func checkCorrupt(tb testing.TB, err error) {
	tb.Helper()
	var corrupt *codec.CorruptError
	if !errors.As(err, &corrupt) || !errors.Is(err, codec.ErrCorrupt) {
		tb.Fatalf("error %v, want a *codec.CorruptError", err)
	}
	if corrupt.File != "domains.mphf" || corrupt.Section == "" || corrupt.Want == corrupt.Got {
		tb.Fatalf("error %#v", corrupt)
	}
}

func TestAnotherDomainsFileIsRejected(t *testing.T) {
	data, keys := smallFile(t)
	for _, expect := range []Expect{{uint64(len(keys)), testXXH64 + 1}, {uint64(len(keys)) + 1, testXXH64}} {
		_, err := Open(data, "domains.mphf", expect, nil)
		checkCorrupt(t, err)
	}
}

// With verify every flipped bit is reported, at the latest by a lookup that reads it. Without
// verify a flipped bit may change answers, and nothing worse happens.
func TestEveryFlippedBitIsReported(t *testing.T) {
	good, keys := smallFile(t)
	expect := Expect{uint64(len(keys)), testXXH64}
	want := xxh3.Hash(good)
	data := bytes.Clone(good)
	queries := append(append([]Key{}, keys...), absentKeys(keys)...)
	out := make([]uint32, len(queries))
	for bit := range len(data) * 8 {
		data[bit/8] ^= 1 << (bit % 8)
		verify := func(off, n int64) error {
			if got := xxh3.Hash(data[off:][:n]); got != want {
				return codec.Corrupt("domains.mphf", "block", off, want, got)
			}
			return nil
		}
		if table, err := Open(data, "domains.mphf", expect, verify); err != nil {
			checkCorrupt(t, err)
		} else if err := table.LookupBatch(queries, out); err == nil {
			t.Fatalf("bit %d of byte %d not reported", bit%8, bit/8)
		} else {
			checkCorrupt(t, err)
		}
		if table, err := Open(data, "domains.mphf", expect, nil); err == nil {
			if err := table.LookupBatch(queries, out); err != nil {
				checkCorrupt(t, err)
			}
			for _, k := range queries {
				if _, _, err := table.Lookup(k.ID, k.Check); err != nil {
					checkCorrupt(t, err)
				}
			}
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

// reseal corrects the checksum after a change, so that other checks are tested.
func reseal(data []byte) []byte {
	if len(data) < headerSize+trailerSize {
		return data
	}
	p := data[len(data)-trailerSize:]
	directory := 0
	if bits := binary.LittleEndian.Uint32(p[56:]); bits <= maxBucketBits {
		directory = min(entrySize<<bits, len(data)-headerSize-trailerSize)
	}
	crc := sealCRC(data[:headerSize], data[len(data)-trailerSize-directory:][:directory], p[:112])
	binary.LittleEndian.PutUint32(p[112:], crc)
	return data
}

func TestWrongOffsetsUnderARightChecksumAreCorrupt(t *testing.T) {
	good, keys := smallFile(t)
	tr, err := decodeTrailer(good, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := tr.layout.directory
	for _, r := range [][2]uint64{
		{dir, tr.layout.trailer},
		{tr.layout.trailer + 24, tr.layout.trailer + 60},
		{tr.layout.trailer + 64, tr.layout.trailer + 112},
	} {
		for at := r[0]; at < r[1]; at++ {
			// Nothing else tells where a bucket's inner levels end, so a wrong end may be accepted.
			// Lookups stay inside the file all the same.
			plausible := false
			if at < tr.layout.trailer {
				field := (at - dir) % entrySize
				levels := binary.LittleEndian.Uint32(good[at-field+20:])
				plausible = 24 <= field && field < 24+4*uint64(levels-1)
			}
			for bit := range 8 {
				data := bytes.Clone(good)
				data[at] ^= 1 << bit
				table, err := Open(reseal(data), "domains.mphf", Expect{uint64(len(keys)), testXXH64}, nil)
				if err != nil {
					checkCorrupt(t, err)
					continue
				}
				if !plausible {
					t.Fatalf("bit %d of byte %d, %d from the directory, not reported", bit, at, at-dir)
				}
				for _, k := range keys {
					if _, _, err := table.Lookup(k.ID, k.Check); err != nil {
						checkCorrupt(t, err)
					}
				}
			}
		}
	}
}

func TestEmptyLevelIsCorrupt(t *testing.T) {
	data, keys := smallFile(t)
	tr, err := decodeTrailer(data, "")
	if err != nil {
		t.Fatal(err)
	}
	entry := data[tr.layout.directory:][:entrySize]
	levels := binary.LittleEndian.Uint32(entry[20:])
	copy(entry[24+4*levels:][:4], entry[20+4*levels:])
	binary.LittleEndian.PutUint32(entry[20:], levels+1)
	_, err = Open(reseal(data), "domains.mphf", Expect{uint64(len(keys)), testXXH64}, nil)
	checkCorrupt(t, err)
}

// Indexes in records and the side table are checked when a lookup uses them.
func TestIndexesOutOfRangeAreCorruptWhenUsed(t *testing.T) {
	keys := append(randomKeys(1), sharedKeys(1, 3)...)
	good, _ := asShipped.build(t, keys)
	tr, err := decodeTrailer(good, "")
	if err != nil {
		t.Fatal(err)
	}
	// Slot 0 is that of the first key, since shared keys come last.
	record, shared, side := int(tr.layout.records), int(tr.layout.records)+recordSize, int(tr.layout.side)
	order := make([]Key, 0, 3) // of the side table
	for i := range 3 {
		order = append(order, keys[binary.LittleEndian.Uint32(good[side+sideSize*(i+1)+4:])])
	}
	for name, c := range map[string]struct {
		at    int
		value uint32
		query Key
	}{
		"ordinal of a record":             {record + 12, 4, keys[0]},
		"entry of the side table":         {shared + 8, 4, order[0]},
		"entry that is no group's first":  {shared + 8, 1, order[0]},
		"count beyond the table":          {side, 4, order[0]},
		"count of one":                    {side, 1, order[0]},
		"ordinal in the side table":       {side + sideSize + 4, 4, order[0]},
		"ordinal in the side table, mark": {side + 3*sideSize + 4, sideFlag, order[2]},
	} {
		t.Run(name, func(t *testing.T) {
			data := bytes.Clone(good)
			binary.LittleEndian.PutUint32(data[c.at:], c.value)
			table := open(t, data, keys)
			_, ok, err := table.Lookup(c.query.ID, c.query.Check)
			checkCorrupt(t, err)
			if ok {
				t.Error("found")
			}
			checkCorrupt(t, table.LookupBatch([]Key{c.query}, make([]uint32, 1)))
		})
	}
}

func FuzzOpen(f *testing.F) {
	data, keys := smallFile(f)
	f.Add(data, uint64(1), false)
	f.Add(data, keys[0].ID, true)
	empty, _ := asShipped.build(f, nil)
	f.Add(empty, uint64(0), true)
	f.Add([]byte{}, uint64(0), false)
	f.Fuzz(func(t *testing.T, data []byte, key uint64, seal bool) {
		data = bytes.Clone(data)
		if seal {
			data = reseal(data)
		}
		expect := Expect{}
		if n := len(data) - trailerSize; n >= 0 {
			expect = Expect{binary.LittleEndian.Uint64(data[n+16:]), binary.LittleEndian.Uint64(data[n+8:])}
		}
		table, err := Open(data, "domains.mphf", expect, nil)
		if err != nil {
			checkCorrupt(t, err)
			return
		}
		queries := []Key{{key, 0}, {key, 1}, {^key, 0}}
		for _, k := range keys {
			queries = append(queries, k, Key{k.ID ^ key, k.Check})
		}
		out := make([]uint32, len(queries))
		batchErr := table.LookupBatch(queries, out)
		if batchErr != nil {
			checkCorrupt(t, batchErr)
		}
		for i, k := range queries {
			o, ok, err := table.Lookup(k.ID, k.Check)
			if err != nil {
				checkCorrupt(t, err)
				if batchErr == nil {
					t.Fatalf("Lookup fails with %v, LookupBatch succeeds", err)
				}
				continue
			}
			if ok && uint64(o) >= expect.Domains {
				t.Fatalf("ordinal %d of %d", o, expect.Domains)
			}
			if !ok {
				o = Absent
			}
			if batchErr == nil && out[i] != o {
				t.Fatalf("Lookup gives %d, LookupBatch %d", o, out[i])
			}
		}
	})
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte("some keys that are eight bytes long each, more or less"), uint64(1), uint16(3))
	f.Add(make([]byte, 100), uint64(0), uint16(0))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64, size uint16) {
		seen := map[Key]bool{}
		var keys []Key
		for ; len(raw) >= 3; raw = raw[3:] {
			// Keys of few values, so that many are shared.
			k := Key{uint64(raw[0]) | uint64(raw[1])<<60, uint32(raw[2])}
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
		s := setup{Options{Seed: seed, Parallelism: 2, Dir: t.TempDir()}, 1 + int(size>>8), 1 + int(size&0xff)}
		data, _ := s.build(t, keys)
		checkAnswers(t, open(t, data, keys), keys)
	})
}

func TestErrorOfASpillIsKept(t *testing.T) {
	b := setup{Options{Expect: 5000}, 500, 1000}.builder(t)
	keys := randomKeys(5000)
	var err error
	for i, k := range keys {
		if b.file != nil && i < 4000 {
			b.file.Close() // every later write fails
		}
		if aerr := b.Add(k.ID, k.Check); err == nil {
			err = aerr
		}
	}
	if _, ferr := b.Finish(context.Background(), io.Discard, 0); !errors.Is(err, os.ErrClosed) || !errors.Is(ferr, os.ErrClosed) {
		t.Errorf("Add: %v, Finish: %v, want %v", err, ferr, os.ErrClosed)
	}
	if err := b.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

func TestFinishedBuilderRejectsCalls(t *testing.T) {
	b := asShipped.builder(t)
	if _, err := b.Finish(context.Background(), io.Discard, 0); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(1, 1); err == nil {
		t.Error("Add: no error")
	}
	if _, err := b.Finish(context.Background(), io.Discard, 0); err == nil {
		t.Error("Finish: no error")
	}
}

func TestTooManyDomainsAreRejected(t *testing.T) {
	b := asShipped.builder(t)
	b.added = MaxDomains - 1
	if err := b.Add(1, 1); err != nil {
		t.Errorf("last domain: %v", err)
	}
	if err := b.Add(2, 1); err == nil {
		t.Error("one too many: no error")
	}
}

// failAfter is a writer that fails once it would get more than n bytes.
type failAfter struct {
	n   int
	err error
}

func (w *failAfter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestFailuresEndTheBuildAndLeaveNoFile(t *testing.T) {
	keys := randomKeys(20_000)
	dir := t.TempDir()
	s := setup{Options{Dir: dir, Parallelism: 4}, 500, 3000}
	size, _ := s.build(t, keys)
	full := errors.New("disk full")
	for n := 0; n < len(size); n += 1 + len(size)/50 {
		b := s.builder(t)
		for _, k := range keys {
			if err := b.Add(k.ID, k.Check); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Finish(context.Background(), &failAfter{n, full}, 0); !errors.Is(err, full) {
			t.Errorf("write fails after %d bytes: error %v", n, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := s.builder(t)
	for _, k := range keys {
		if err := b.Add(k.ID, k.Check); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Finish(ctx, io.Discard, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}

	b = setup{Options{Dir: filepath.Join(dir, "absent")}, 500, 10}.builder(t)
	var err error
	for _, k := range keys[:20] {
		err = errors.Join(err, b.Add(k.ID, k.Check))
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder to spill to: error %v", err)
	}

	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
}
