package indexbuild

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// nastyDomain is of few bytes, zeros and 0xff among them, mostly ends near a column's, and often begins as others do.
func nastyDomain(rng *rand.Rand) []byte {
	n := postings.ColumnBytes*rng.IntN(segment.MaxDomain/postings.ColumnBytes+1) + rng.IntN(3) - 1
	if rng.IntN(3) > 0 {
		n = rng.IntN(20)
	}
	b := bytes.Repeat([]byte{[]byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]}, min(max(n, 1), segment.MaxDomain))
	for range rng.IntN(3) {
		b[len(b)-1-rng.IntN(min(len(b), 8))] = []byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]
	}
	return b
}

// All bits of a node have one meaning: what a code is, is left of the source, and below the end's.
func TestCodesLeaveTheSourceAndTheEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	least := uint64(math.MaxUint64)
	for range 200_000 {
		d := nastyDomain(rng)
		shared := rng.IntN(len(d))
		code := postings.OffsetCode(d, shared)
		padded := append(bytes.Clone(d), bytes.Repeat([]byte{byte(rng.Uint32())}, postings.BlockSlack)...)
		if fast := postings.OffsetCodeFast(padded, len(d), shared); fast != code {
			t.Fatalf("%x of which %d are shared: %x and %x", d, shared, code, fast)
		}
		if code&sourceMask != 0 || code|sourceMask >= endCode {
			t.Fatalf("%x of which %d are shared: code %x", d, shared, code)
		}
		least = min(least, code)
	}
	if least>>sourceBits == 0 {
		t.Error("a code of 0")
	}
	if most := postings.OffsetCode(bytes.Repeat([]byte{0xff}, segment.MaxDomain), 0); most|sourceMask >= endCode {
		t.Errorf("the largest code is %x", most)
	}
}

// As many sources as are merged at once, with all that domains may be.
func TestMergeOfManySources(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 511, 512, 513, mergeWidth - 1, mergeWidth} {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(uint64(n), seed))
			var pool []string
			for range 10 + rng.IntN(300) {
				pool = append(pool, string(nastyDomain(rng)))
			}
			pool = append(pool, strings.Repeat("\xff", segment.MaxDomain), strings.Repeat("\xff", 6), strings.Repeat("\x00", segment.MaxDomain), "\x00")
			want := map[string][]uint32{}
			sources := make([]domainSource, n)
			for i := range n {
				src := &listSource{rng: rand.New(rand.NewPCG(seed, uint64(i)))}
				names := map[string]bool{}
				if i%5 != 4 || i == n-1 { // some have nothing
					for range 1 + rng.IntN(12) {
						names[pool[rng.IntN(len(pool))]] = true
					}
				}
				for _, name := range slices.Sorted(maps.Keys(names)) {
					want[name] = append(want[name], uint32(i))
					src.list = append(src.list, postings.Record{Key: []byte(name), Totals: segment.Totals{Rows: 1}, Tuples: []segment.Tuple{{FileID: uint32(i), Rows: 1}}})
				}
				sources[i] = src
			}
			names, sets, err := mergeNames(sources, eachItsOwn(n))
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%d sources, seed %d", n, seed)
			if d := cmp.Diff(slices.Sorted(maps.Keys(want)), names); d != "" {
				t.Fatalf("%s: %s", what, d)
			}
			if d := cmp.Diff(want, sets); d != "" {
				t.Fatalf("%s: %s", what, d)
			}
		}
	}
}

// measuredPart is a source of n domains with sizes and times, whose frames are large.
func measuredPart(tb testing.TB, n int) (all []indextest.NamedTotals, open func() *postings.BatchSource) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(13, 13))
	var buf bytes.Buffer
	w := postings.NewBatchWriter(&buf, 1, "b")
	rows := int64(0)
	for i := range n {
		d := indextest.NamedTotals{Name: fmt.Sprintf("%06d.example", i), Totals: segment.Totals{Rows: 1 + rng.Int64N(300), HasSize: true, Size: rng.Int64N(1e9), HasTS: true, FirstTS: rng.Int64N(1e12)}}
		d.Totals.LastTS = d.Totals.FirstTS + rng.Int64N(1e12)
		if err := w.Domain([]byte(d.Name), &d.Totals); err != nil {
			tb.Fatal(err)
		}
		rows += d.Totals.Rows
		all = append(all, d)
	}
	if err := w.Part(&lake.Part{Object: lake.Object{Key: "p", Bytes: 1}, Rows: rows}, []int64{rows}, nil); err != nil {
		tb.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	store := blob.NewMemory()
	indextest.Put(tb, store, "postings", buf.Bytes())
	r, err := postings.OpenBatch(context.Background(), store, lake.NewFrameObject("postings", ff))
	if err != nil {
		tb.Fatal(err)
	}
	if _, size := r.Frames.Range(0, 1); size <= postings.BatchBuffer {
		tb.Fatalf("a frame of %d bytes is read at once", size)
	}
	return all, func() *postings.BatchSource {
		return postings.NewBatchSource(&postings.PostingsObject{Reader: r, Files: []uint32{7}}, 0)
	}
}

// Sources whose frames are larger than what is read at once do not get into each other's way.
func TestSourcesOfLargeFrames(t *testing.T) {
	want, open := measuredPart(t, 10_000)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			records, err := sourceRecords(open())
			if err != nil || len(records) != len(want) {
				t.Errorf("%d domains, %v, want %d", len(records), err, len(want))
				return
			}
			for i, r := range records {
				if string(r.Key) != want[i].Name || r.Totals != want[i].Totals {
					t.Errorf("%q %+v, want %+v", r.Key, r.Totals, want[i])
					return
				}
			}
		})
	}
	all.Wait()
}

// What a merge takes is counted by what each source has.
func TestSourcesAreSmall(t *testing.T) {
	_, open := measuredPart(t, 20_000)
	const n = 50
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // what pools have goes with the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var sources [n]*postings.BatchSource
	var blocks [n][blocksAhead][]byte
	for i := range sources {
		sources[i] = open()
		for k := range 5 * blocksAhead {
			b, err := sources[i].Load(context.Background(), blocks[i][k%blocksAhead])
			if err != nil || b == nil {
				t.Fatal(k, err)
			}
			blocks[i][k%blocksAhead] = b
		}
	}
	if each := (heap() - before) / n; each > 200_000 {
		t.Errorf("%d bytes a source", each)
	}
	runtime.KeepAlive(&blocks)
	blocks = [n][blocksAhead][]byte{}
	var buf []byte
	for _, s := range sources {
		for more := true; more; more = len(buf) > 0 {
			var err error
			if buf, err = s.Load(context.Background(), buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A build keeps those that were merged into a file first, however many these are.
	if each := (heap() - before) / n; each > 5000 {
		t.Errorf("%d bytes a source that has ended", each)
	}
	runtime.KeepAlive(&sources)
}
