package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// mappedBytes returns a file of intact blocks.
func mappedBytes(data []byte) *mapped.File {
	h := mapped.NewHash()
	h.Write(data)
	return mapped.New("roar", data, h.Sums())
}

func writeMembership(tb testing.TB, sets [][]uint32) []byte {
	tb.Helper()
	w := NewWriter(tb.TempDir())
	defer w.Close()
	for _, s := range sets {
		if err := w.Add(s); err != nil {
			tb.Fatal(err)
		}
	}
	var buf bytes.Buffer
	if err := w.Write(&buf); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func randomSets(rng *rand.Rand, n int) [][]uint32 {
	sets := make([][]uint32, n)
	for i := range sets {
		switch rng.IntN(8) {
		case 0: // a run
			from := rng.Uint32N(100_000)
			for d := from; d < from+5000; d++ {
				sets[i] = append(sets[i], d)
			}
		case 1: // too many for an array container
			for d := range uint32(70_000) {
				if rng.IntN(6) == 0 {
					sets[i] = append(sets[i], d)
				}
			}
			sets[i] = append(sets[i], 1<<32-1)
		default:
			for d := range uint32(6) {
				if rng.IntN(2) == 0 {
					sets[i] = append(sets[i], 1+d*3)
				}
			}
			if len(sets[i]) == 0 {
				sets[i] = []uint32{7}
			}
		}
	}
	return sets
}

// parseDTDR reads domain_to_datasets.roar as the two specifications describe it: its header and
// index, and Roaring's portable form (RoaringFormatSpec). It uses neither this package nor the
// library.
func parseDTDR(data []byte) (sets [][]uint32, distinct int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	le := binary.LittleEndian
	if string(data[:4]) != "DTDR" || le.Uint32(data[4:]) != 1 {
		return nil, 0, errors.New("header")
	}
	n, index := le.Uint64(data[8:]), le.Uint64(data[16:])
	starts := map[uint64]bool{}
	for i := range n {
		e := data[index+12*i:]
		start, length := le.Uint64(e), uint64(le.Uint32(e[8:]))
		starts[start] = true
		b := data[start : start+length]
		cookie := le.Uint32(b)
		var containers int
		var runs []byte
		switch cookie & 0xffff {
		case 12346:
			containers = int(le.Uint32(b[4:]))
			b = b[8:]
		case 12347:
			containers = int(cookie>>16) + 1
			runs = b[4 : 4+(containers+7)/8]
			b = b[4+len(runs):]
		default:
			return nil, 0, errors.New("cookie")
		}
		headers := b[:4*containers]
		b = b[4*containers:]
		if runs == nil || containers >= 4 {
			b = b[4*containers:] // offsets
		}
		var set []uint32
		for c := range containers {
			high := uint32(le.Uint16(headers[4*c:])) << 16
			card := int(le.Uint16(headers[4*c+2:])) + 1
			switch {
			case runs != nil && runs[c/8]>>(c%8)&1 == 1:
				for range int(le.Uint16(b)) {
					b = b[2:]
					v, l := uint32(le.Uint16(b)), uint32(le.Uint16(b[2:]))
					for d := v; d <= v+l; d++ {
						set = append(set, high|d)
					}
					b = b[2:]
				}
				b = b[2:]
			case card <= 4096:
				for i := range card {
					set = append(set, high|uint32(le.Uint16(b[2*i:])))
				}
				b = b[2*card:]
			default:
				for i := range uint32(1 << 16) {
					if b[i/8]>>(i%8)&1 == 1 {
						set = append(set, high|i)
					}
				}
				b = b[8192:]
			}
		}
		if len(b) != 0 {
			return nil, 0, errors.New("bytes left")
		}
		sets = append(sets, set)
	}
	return sets, len(starts), nil
}

func TestMembershipFollowsTheSpecification(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	sets := randomSets(rng, 400)
	data := writeMembership(t, sets)
	got, stored, err := parseDTDR(data)
	if err != nil || !slices.EqualFunc(got, sets, slices.Equal) {
		t.Fatalf("an independent reader disagrees: %v", err)
	}
	distinct := map[string]bool{}
	for _, s := range sets {
		distinct[fmt.Sprint(s)] = true
	}
	if stored != len(distinct) {
		t.Errorf("%d bitmaps stored for %d different sets", stored, len(distinct))
	}
	r, err := Open(mappedBytes(data), int64(len(sets)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range sets {
		if b, err := r.Datasets(uint32(i)); err != nil || !slices.Equal(b.ToArray(), want) {
			t.Fatalf("set %d: %v, %v", i, b, err)
		}
	}
	if _, err := Open(mappedBytes(data), int64(len(sets))+1); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("another number of domains: %v", err)
	}
}

// The file is the same whether the sections were buffered in memory or spilled.
func TestMembershipWithSpilledSections(t *testing.T) {
	sets := slices.Repeat(randomSets(rand.New(rand.NewPCG(8, 8)), 700), 2) // large ones
	for range 45_000 {
		sets = append(sets, []uint32{7})
	}
	want := writeMembership(t, sets)
	w := NewWriter(t.TempDir())
	defer w.Close()
	w.bitmaps.memory, w.index.memory = spillChunk, spillChunk
	for _, s := range sets {
		if err := w.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if w.bitmaps.file == nil || w.index.file == nil {
		t.Error("nothing was spilled")
	}
	var got bytes.Buffer
	if err := w.Write(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("a spilled file of %d bytes differs from one of %d bytes made in memory", got.Len(), len(want))
	}
}

func TestMembershipWriterRejects(t *testing.T) {
	for _, sets := range [][][]uint32{{{}}, {{2, 1}}, {{1, 1}}, {{1, 2}, {3, 2}}} {
		w := NewWriter(t.TempDir())
		var err error
		for _, s := range sets {
			err = w.Add(s)
		}
		if err == nil {
			t.Errorf("%v: no error", sets)
		}
		w.Close()
	}
}

// Whatever the bytes, a set that is returned ascends and has its cardinality.
func FuzzMembership(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	f.Add(writeMembership(f, [][]uint32{{1}, {1, 2, 3}, {1}, {5, 70_000}}))
	f.Add(writeMembership(f, randomSets(rng, 3)))
	run := make([]uint32, 300)
	for i := range run {
		run[i] = uint32(i)
	}
	f.Add(writeMembership(f, [][]uint32{run}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < headerBytes || len(data) > 1<<16 {
			return
		}
		n := min(binary.LittleEndian.Uint64(data[8:]), uint64(len(data)))
		r, err := Open(mappedBytes(data), int64(n))
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for i := range uint32(n) {
			b, err := r.Datasets(i)
			if err != nil {
				if !errors.Is(err, codec.ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			checkSet(t, b)
		}
	})
}

func checkSet(t *testing.T, b *roaring.Bitmap) {
	t.Helper()
	values := b.ToArray()
	if uint64(len(values)) != b.GetCardinality() || len(values) == 0 {
		t.Fatalf("%d values, cardinality %d", len(values), b.GetCardinality())
	}
	for i := range values {
		if i > 0 && values[i] <= values[i-1] {
			t.Fatalf("%d after %d", values[i], values[i-1])
		}
		if !b.Contains(values[i]) {
			t.Fatalf("%d is not in its set", values[i])
		}
	}
}

// BenchmarkMembershipWriter writes sets as in a lake of several lists: half of the domains are in
// one dataset, few are in many, and large datasets have more of them.
func BenchmarkMembershipWriter(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	const domains, window = 1 << 20, 1 << 12
	var datasets, ends []uint32
	for range domains {
		n := 1
		for n < 20 && rng.IntN(2) == 0 {
			n++
		}
		set := map[uint32]bool{}
		for len(set) < n {
			set[uint32(32*rng.Float64()*rng.Float64())] = true
		}
		datasets = append(datasets, slices.Sorted(maps.Keys(set))...)
		ends = append(ends, uint32(len(datasets)))
	}
	for b.Loop() {
		w := NewWriter(b.TempDir())
		from := uint32(0)
		some := make([]uint32, 0, window)
		for i := 0; i < domains; i += window {
			some = some[:0]
			for _, end := range ends[i : i+window] {
				some = append(some, end-from)
			}
			if err := w.AddAll(datasets[from:ends[i+window-1]], some); err != nil {
				b.Fatal(err)
			}
			from = ends[i+window-1]
		}
		w.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/domains, "ns/domain")
}

// FuzzPackTiny compares packTiny with packSmall.
func FuzzPackTiny(f *testing.F) {
	f.Add(uint32(1), uint32(2), uint32(3), uint32(4), 3)
	f.Add(uint32(0), uint32(1<<16-2), uint32(1<<16-1), uint32(math.MaxUint32), 4)
	f.Fuzz(func(t *testing.T, a, b, c, d uint32, n int) {
		datasets := [maxTiny]uint32{a, b, c, d}
		if n < 0 || n > maxTiny {
			return
		}
		want, ok := packSmall(datasets[:n])
		got, fits := packTiny(&datasets, n)
		if !slices.IsSorted(datasets[:n]) || len(slices.Compact(slices.Clone(datasets[:n]))) < n {
			return // packTiny packs these too
		}
		if fits != ok || ok && want != (smallKey{got}) {
			t.Errorf("%d of %v: %x, %v, want %x, %v", n, datasets, got, fits, want, ok)
		}
	})
}

// Sums are those of the sets that were written, also with concurrent callers and when many sets
// share few slots.
func TestSums(t *testing.T) {
	sets := randomSets(rand.New(rand.NewPCG(5, 5)), 1500)
	r, err := Open(mappedBytes(writeMembership(t, sets)), int64(len(sets)))
	if err != nil {
		t.Fatal(err)
	}
	of := func(dataset uint32) uint64 { return uint64(dataset)*0x9e3779b97f4a7c15 + 1 }
	want := make([]uint64, len(sets))
	for i, set := range sets {
		for _, d := range set {
			want[i] += of(d)
		}
	}
	for _, slots := range []int{1, 64, 0} {
		sums := r.NewSums(of)
		if slots > 0 {
			sums.slots = sums.slots[:slots]
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				got := make([]uint64, len(sets))
				for from := 0; from < len(sets); {
					to := min(from+1+from%100, len(sets))
					if err := sums.Range(uint32(from), got[from:to]); err != nil {
						t.Error(err)
						return
					}
					from = to
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d slots: wrong sums", slots)
				}
			})
		}
		all.Wait()
		if err := sums.Range(uint32(len(sets)-1), make([]uint64, 2)); err == nil {
			t.Error("a domain past the last has a sum")
		}
	}
}
