package pack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pack"
)

// batch is a made-up batch: its objects by key.
type batch struct {
	dataset uint32
	name    string
	objects map[string][]byte
}

func makeBatch(r *rand.Rand, dataset uint32, name string, size int) batch {
	b := batch{dataset, name, map[string][]byte{}}
	random := func(n int) []byte {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		return data
	}
	record, postings, rejects := random(size), random(size/2), random(size/3)
	b.objects[lake.BatchKey(dataset, name, lake.Digest(record))] = record
	b.objects[lake.PostingsKey(dataset, name, lake.Digest(postings))] = postings
	if len(rejects) > 0 {
		b.objects[lake.RejectsKey(dataset, name, lake.Digest(rejects))] = rejects
	}
	return b
}

func collect(t testing.TB, store blob.Store, b batch) *pack.Collector {
	t.Helper()
	c := pack.NewCollector(store)
	for key, data := range b.objects {
		if len(data)%2 == 0 {
			if _, err := c.Put(t.Context(), key, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		w, err := c.Create(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		for part := range slices.Chunk(data, 1000) {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// write writes batches in packs and returns a view of all.
func write(t testing.TB, store blob.Store, batches []batch) (*pack.View, []string) {
	t.Helper()
	var all []*pack.Collector
	for _, b := range batches {
		all = append(all, collect(t, store, b))
	}
	names, err := pack.Write(t.Context(), store, all)
	if err != nil {
		t.Fatal(err)
	}
	v := pack.NewView(store)
	for i, b := range batches {
		v.Add(b.dataset, b.name, names[i])
	}
	return v, names
}

func keys(t testing.TB, store blob.Store) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var batches []batch
	for i := range 400 {
		batches = append(batches, makeBatch(r, uint32(i%7+1), fmt.Sprintf("b-%d", i), r.IntN(8000)))
	}
	batches = append(batches, makeBatch(r, 8, "large", pack.MaxBatch), makeBatch(r, 8, "large-sum", pack.MaxBatch*3/5))
	store := blob.NewMemory()
	v, names := write(t, store, batches)
	packs := slices.Compact(slices.Sorted(slices.Values(names)))
	if packs[0] != "" || names[400] != "" || names[401] != "" || slices.Contains(names[:400], "") {
		t.Errorf("packs of large batches: %q", names[400:])
	}
	if got, want := len(keys(t, store)), len(packs)-1+6; got != want || len(packs) < 4 {
		t.Errorf("%d objects, want %d", got, want)
	}
	all := map[string][]byte{}
	for _, b := range batches {
		for key, data := range b.objects {
			all[key] = data
		}
	}
	for key, want := range all {
		checkReads(t, v, key, want)
	}
	// All finds the same objects as those that were put in.
	for o, err := range pack.All(t.Context(), store) {
		if err != nil || !bytes.Equal(all[o.Key], o.Data) {
			t.Fatalf("%s in %s: %d bytes, %v", o.Key, o.Pack, len(o.Data), err)
		}
		delete(all, o.Key)
	}
	if len(all) != 6 {
		t.Errorf("%d objects are in no pack, want those of the large batches", len(all))
	}

	// The order of batches and of their objects makes no difference.
	other := blob.NewMemory()
	shuffled := slices.Clone(batches)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	write(t, other, shuffled)
	if diff := cmp.Diff(keys(t, store), keys(t, other)); diff != "" {
		t.Errorf("in another order: %s", diff)
	}
	// So does a repetition.
	write(t, store, batches)
	if diff := cmp.Diff(keys(t, store), keys(t, other)); diff != "" {
		t.Errorf("after a repetition: %s", diff)
	}
}

// TestLayout holds a pack against the layout in docs/formats/pack.md, written down by hand.
func TestLayout(t *testing.T) {
	digest := strings.Repeat("ab", 16)
	record, postings := lake.BatchKey(1, "b", digest), lake.PostingsKey(1, "b", digest)
	b := batch{1, "b", map[string][]byte{record: []byte("record"), postings: []byte("post")}}
	store := blob.NewMemory()
	_, names := write(t, store, []batch{b})
	const folder = "batches/dataset_id=1/b/"
	rest := strings.TrimPrefix(postings, folder)
	dir := append([]byte{2, 0, byte(len(record))}, record...)
	dir = binary.LittleEndian.AppendUint64(append(dir, 6), xxhash.Sum64String("record"))
	dir = append(append(dir, byte(len(folder)), byte(len(rest))), rest...)
	dir = binary.LittleEndian.AppendUint64(append(dir, 4), xxhash.Sum64String("post"))
	dir = binary.LittleEndian.AppendUint32(dir, crc32.Checksum(dir, crc32.MakeTable(crc32.Castagnoli)))
	want := binary.LittleEndian.AppendUint32([]byte("PACK\x01\x00\x00\x00"), uint32(len(dir)))
	want = append(append(want, dir...), "recordpost"...)
	got, _, err := store.Get(t.Context(), "batches/packs/"+lake.Digest(want)+".pack")
	if diff := cmp.Diff(want, got); err != nil || diff != "" || names[0] != lake.Digest(want) {
		t.Errorf("pack %s: %v %s", names[0], err, diff)
	}
}

// checkReads holds that all ways to read an object give its bytes.
func checkReads(t *testing.T, store blob.Store, key string, want []byte) {
	t.Helper()
	ctx := t.Context()
	size := int64(len(want))
	if info, err := store.Stat(ctx, key); err != nil || info.Size != size || info.Key != key {
		t.Errorf("stat %s: %+v, %v", key, info, err)
	}
	if data, info, err := store.Get(ctx, key); err != nil || !bytes.Equal(data, want) || info.Size != size {
		t.Errorf("get %s: %d bytes, %v", key, len(data), err)
	}
	from, n := size/3, size/2
	if data, err := store.ReadRange(ctx, key, from, n); err != nil || !bytes.Equal(data, want[from:from+n]) {
		t.Errorf("read %s: %d bytes, %v", key, len(data), err)
	}
	stream, err := store.Open(ctx, key, from, -1)
	if err != nil {
		t.Fatalf("open %s: %v", key, err)
	}
	defer stream.Close()
	if data, err := io.ReadAll(stream); err != nil || !bytes.Equal(data, want[from:]) {
		t.Errorf("open %s: %d bytes, %v", key, len(data), err)
	}
	for _, c := range [][2]int64{{0, size + 1}, {size, 1}, {-1, 1}, {size + 1, 0}} {
		if _, err := store.ReadRange(ctx, key, c[0], c[1]); !errors.Is(err, blob.ErrRange) {
			t.Errorf("read %s %v: %v", key, c, err)
		}
		if r, err := store.Open(ctx, key, c[0], c[1]); !errors.Is(err, blob.ErrRange) {
			t.Errorf("open %s %v: %v, %v", key, c, r, err)
		}
	}
}

func TestEveryDamagedByteIsFound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	batches := []batch{makeBatch(r, 1, "a", 40), makeBatch(r, 1, "b", 50), makeBatch(r, 2, "a", 60)}
	pristine := blob.NewMemory()
	_, names := write(t, pristine, batches)
	key := pack.Key(names[0])
	good, _, err := pristine.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		t.Helper()
		store := blob.NewMemory()
		if data != nil {
			if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
		}
		found := len(data) > len(good) || data == nil // bytes behind a pack harm nothing; All does not know of lost packs
		for _, err := range pack.All(t.Context(), store) {
			found = found || errors.Is(err, codec.ErrCorrupt)
		}
		if !found {
			t.Errorf("%s: not found", what)
		}
		v := pack.NewView(store)
		for _, b := range batches {
			v.Add(b.dataset, b.name, names[0])
		}
		for _, b := range batches {
			for object, want := range b.objects {
				got, _, err := v.Get(t.Context(), object)
				var c *codec.CorruptError
				if err == nil && bytes.Equal(got, want) {
					continue
				}
				if !errors.As(err, &c) || c.File != object {
					t.Errorf("%s: %s: %d bytes, %v", what, object, len(got), err)
				}
			}
		}
	}
	for i := range good {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(good)
			bad[i] ^= bit
			try(fmt.Sprintf("byte %d", i), bad)
		}
		try(fmt.Sprintf("%d bytes", i), good[:i:i])
	}
	try("longer", append(bytes.Clone(good), 0))
	try("missing", nil)
}

// TestLostObjectsUnderTheirOwnKeys holds that an object that a damaged pack has lost is read from
// where it was written again, and that objects that the pack never had are read from the store.
func TestLostObjectsUnderTheirOwnKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a := makeBatch(r, 1, "a", 40)
	store := blob.NewMemory()
	v, names := write(t, store, []batch{a})
	moved := lake.BatchKey(1, "a", lake.Digest([]byte("moved")))
	if _, err := v.Put(t.Context(), moved, []byte("moved"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	checkReads(t, v, moved, []byte("moved"))
	none := lake.BatchKey(1, "a", lake.Digest(nil))
	if _, err := v.Stat(t.Context(), none); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("an object that nobody has: %v", err)
	}

	if err := store.Delete(t.Context(), pack.Key(names[0])); err != nil {
		t.Fatal(err)
	}
	v = pack.NewView(store)
	v.Add(1, "a", names[0])
	if _, err := v.Stat(t.Context(), none); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("an object that the lost pack may have had: %v", err)
	}
	if _, err := v.Stat(t.Context(), lake.WithdrawnKey(1, "a", lake.Digest(nil))); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a mark, which no pack has: %v", err)
	}
	for key, data := range a.objects {
		if _, err := v.Put(t.Context(), key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		checkReads(t, v, key, data)
	}
}

// TestReadersShareRequests holds that a pack is read once, however many readers there are and
// however many of its objects they read.
func TestReadersShareRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	var batches []batch
	for i := range 200 {
		batches = append(batches, makeBatch(r, 1, fmt.Sprint(i), 3000))
	}
	store := blob.NewCounting(blob.NewMemory())
	v, names := write(t, store, batches)
	before := store.Count(blob.OpGet)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, b := range batches {
				for key, want := range b.objects {
					if data, _, err := v.Get(t.Context(), key); err != nil || !bytes.Equal(data, want) {
						t.Errorf("%s: %d bytes, %v", key, len(data), err)
					}
				}
			}
		})
	}
	wg.Wait()
	packs := len(slices.Compact(slices.Sorted(slices.Values(names))))
	if got := store.Count(blob.OpGet).Requests - before.Requests; got != int64(packs) || packs < 2 {
		t.Errorf("%d reads of %d packs", got, packs)
	}
}

// TestFailuresAreNotKept holds that a reader that is cancelled harms no later reader.
func TestFailuresAreNotKept(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	a := makeBatch(r, 1, "a", 40)
	inner := blob.NewMemory()
	_, names := write(t, inner, []batch{a})
	store := blobtest.NewFaulty(inner)
	v := pack.NewView(store)
	v.Add(1, "a", names[0])
	key := slices.Sorted(func(yield func(string) bool) {
		for key := range a.objects {
			if !yield(key) {
				return
			}
		}
	})[0]
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := v.Get(cancelled, key); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled read: %v", err)
	}
	checkReads(t, v, key, a.objects[key])
}

func FuzzDecode(f *testing.F) {
	store := blob.NewMemory()
	_, names := write(f, store, []batch{makeBatch(rand.New(rand.NewPCG(1, 1)), 1, "a", 30)})
	good, _, err := store.Get(f.Context(), pack.Key(names[0]))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := pack.Decode(data, "x")
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for _, e := range p.Entries() {
			got, ok, err := p.Object(e.Key)
			if !ok || err == nil && int64(len(got)) != e.Size || err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%s: %d of %d bytes, %v, %v", e.Key, len(got), e.Size, ok, err)
			}
		}
	})
}

// TestObjectsInTwoPlaces holds that a batch is read where it is said to be.
func TestObjectsInTwoPlaces(t *testing.T) {
	a := makeBatch(rand.New(rand.NewPCG(9, 10)), 1, "a", 40)
	store := blob.NewMemory()
	v, names := write(t, store, []batch{a})
	for key, data := range a.objects {
		other := append([]byte("x"), data...)
		if _, err := store.Put(t.Context(), key, other, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		checkReads(t, v.In(names[0]), key, data)
		checkReads(t, v.In(""), key, other)
	}
}
