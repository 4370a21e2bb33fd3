package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// ignoreRows ignores where an entry's rows are.
var ignoreRows = cmp.Options{
	cmpopts.IgnoreUnexported(Entry{}), cmpopts.IgnoreFields(Entry{}, "First", "Inline"), cmpopts.EquateEmpty(),
}

// compare compares every answer of a segment with the model.
func (m *model) compare(s *Segment) error {
	ctx := context.Background()
	diff := func(what string, want, got any) error {
		if reflect.DeepEqual(want, got) {
			return nil // cmp is slow
		}
		if d := cmp.Diff(want, got, ignoreRows); d != "" {
			return fmt.Errorf("%s (-want +got):\n%s", what, d)
		}
		return nil
	}
	var wrong error
	keep := func(err error) {
		if wrong == nil {
			wrong = err
		}
	}
	for i, name := range m.names() {
		k := m.keyOf(name)
		ordinal, ok, err := s.Ordinal(k)
		if err != nil {
			return err
		}
		if !ok || int(ordinal) != i {
			return fmt.Errorf("ordinal of %s: %d, %v, want %d", name, ordinal, ok, i)
		}
		got, err := s.Domain(ctx, ordinal)
		if err != nil {
			return err
		}
		keep(diff("domain", name, got))
		set, err := s.Datasets(ordinal)
		if err != nil {
			return err
		}
		datasets := slices.Sorted(maps.Keys(m.domains[name]))
		keep(diff("datasets of "+name, datasets, set.ToArray()))
		entries, err := s.Entries(ctx, k, 0, 0)
		if err != nil {
			return err
		}
		var want []Entry
		for _, d := range datasets {
			want = append(want, m.domains[name][d].Entry)
		}
		if len(want) != len(entries) {
			return diff("entries of "+name, want, entries)
		}
		for j, e := range entries {
			wantTuples := m.domains[name][datasets[j]].Tuples
			want[j].First, want[j].Inline = wantTuples[0], len(wantTuples) == 1
			if !want[j].Inline {
				want[j].First = Tuple{FileID: want[j].First.FileID}
			}
			want[j].offset, want[j].length = e.offset, e.length
			if e != want[j] {
				keep(fmt.Errorf("entry %+v, want %+v", e, want[j]))
			}
			one, ok, err := s.Entry(ctx, k, e.Dataset)
			if err != nil {
				return err
			}
			if !ok || one != e {
				keep(fmt.Errorf("entry %s/%d: %+v, want %+v", name, e.Dataset, one, e))
			}
			tuples, err := s.Tuples(ctx, e)
			if err != nil {
				return err
			}
			keep(diff("tuples", wantTuples, tuples))
			for _, t := range tuples {
				if err := m.comparePages(s, t); err != nil {
					return err
				}
			}
		}
		if wrong != nil {
			return wrong
		}
	}
	return wrong
}

func (m *model) comparePages(s *Segment, t Tuple) error {
	blocks, err := s.PageBlocks(context.Background(), t.FileID, t.RowGroup, t.FirstRow, t.Rows)
	if err != nil {
		return err
	}
	last := blocks[len(blocks)-1]
	from, to := blocks[0].FirstRow, last.FirstRow+last.Rows()
	end := t.FirstRow + t.Rows
	if from > t.FirstRow || to < end || last.FirstRow >= end || from+blocks[0].Rows() <= t.FirstRow {
		return fmt.Errorf("page index of %+v: rows %d to %d", t, from, to)
	}
	var want []*part.PageKeyBlock
	for _, b := range blocks {
		if k := modelKeys(t.FileID, b); k != nil {
			want = append(want, k)
		}
	}
	got, err := s.PageKeys(context.Background(), t.FileID, t.RowGroup, t.FirstRow, t.Rows)
	// A block before the rows does no harm.
	for len(got) > 0 && got[0].FirstRow < from {
		got = got[1:]
	}
	if err != nil {
		return err
	}
	if len(want)+len(got) > 0 && !reflect.DeepEqual(want, got) { // cmp is slow
		return fmt.Errorf("page keys of %+v (-want +got):\n%s", t, cmp.Diff(want, got))
	}
	f, err := s.File(context.Background(), t.FileID)
	if err != nil {
		return err
	}
	if f != m.files[t.FileID] {
		return fmt.Errorf("file %d: %+v, want %+v", t.FileID, f, m.files[t.FileID])
	}
	return nil
}

// compareAbsent looks up keys and datasets of which most are absent.
func (m *model) compareAbsent(t *testing.T, s *Segment, rng *rand.Rand) {
	ctx := context.Background()
	known := map[Key]map[uint32]*Posting{}
	for name, sets := range m.domains {
		known[m.keyOf(name)] = sets
	}
	lookup := func(k Key, dataset uint32) {
		t.Helper()
		if known[k] == nil {
			if o, ok, err := s.Ordinal(k); ok || err != nil {
				t.Errorf("ordinal of absent %+v: %d, %v", k, o, err)
			}
			if e, err := s.Entries(ctx, k, 0, 0); len(e) > 0 || err != nil {
				t.Errorf("entries of absent %+v: %v, %v", k, e, err)
			}
		}
		if e, ok, err := s.Entry(ctx, k, dataset); ok != (known[k][dataset] != nil) || err != nil {
			t.Errorf("entry of %+v in dataset %d: %v, %v, %v", k, dataset, e, ok, err)
		}
	}
	names := m.names()
	for range min(len(names), 200) {
		k := m.keyOf(names[rng.IntN(len(names))])
		lookup(k, 1<<31)
		lookup(k, 0)
		lookup(k, uint32(2+7*rng.IntN(10)))
		lookup(Key{ID: k.ID, Check: k.Check + 1}, 1)
		lookup(Key{ID: k.ID, Check: k.Check - 1}, 1)
		lookup(Key{ID: k.ID + 1, Check: k.Check}, 1)
		lookup(Key{ID: k.ID - 1, Check: k.Check}, 1)
	}
	for range 200 {
		lookup(Key{ID: rng.Uint64(), Check: rng.Uint32()}, 1)
	}
	lookup(Key{ID: 0, Check: 0}, 1)
	lookup(Key{ID: 1<<64 - 1, Check: 1<<32 - 1}, 1)
}

// compareScans compares the scans over all frames with the model.
func (m *model) compareScans(t *testing.T, s *Segment) {
	ctx := context.Background()
	var names []string
	for d, err := range s.Domains(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, d)
	}
	if d := cmp.Diff(m.names(), names, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("domains: %s", d)
	}
	// segments of earlier versions have none
	names = nil
	for f, err := range s.Reversed().Frames(ctx, 0, s.Info().Domains) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Ends {
			names = append(names, string(f.Domain(i)))
		}
	}
	if d := cmp.Diff(m.reversed(), names, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("reversed domains: %s", d)
	}
	var all []Posting
	for shard := range 1 << s.Info().ShardBits {
		for p, err := range s.Postings(ctx, shard) {
			if err != nil {
				t.Fatal(err)
			}
			p.First, p.Inline, p.offset, p.length = Tuple{}, false, 0, 0
			all = append(all, p)
		}
	}
	var want []Posting
	for _, p := range m.postings() {
		want = append(want, *p)
	}
	if !reflect.DeepEqual(want, all) {
		t.Errorf("postings: %s", cmp.Diff(want, all, ignoreRows))
	}
	rows := make([][]int64, len(m.files))
	for p, err := range s.Pages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		for len(rows[p.File]) <= p.RowGroup {
			rows[p.File] = append(rows[p.File], 0)
		}
		rows[p.File][p.RowGroup] += p.Rows()
	}
	if d := cmp.Diff(m.groups, rows, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("row groups: %s", d)
	}
}

func mustOpen(tb testing.TB, store blob.Store, ref Ref, opt Options) *Segment {
	tb.Helper()
	if opt.CacheDir == "" {
		opt.CacheDir = tb.TempDir()
	}
	s, err := Open(context.Background(), store, ref, opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func TestAnswersMatchTheModel(t *testing.T) {
	for i, o := range []modelOptions{
		{datasets: 1, files: 1, domains: 1, groupRows: 5},
		{datasets: 3, files: 4, domains: 40, groupRows: 50, sizes: 0.5, times: 0.5},
		{datasets: 2, files: 3, domains: 1000, groupRows: 1000, sizes: 1, times: 1},
		{datasets: 40, files: 60, domains: 300, groupRows: 3, times: 0.3},
		{datasets: 10, files: 400, domains: 60, groupRows: 7, sizes: 0.2},
	} {
		for shardBits := 0; shardBits < 3; shardBits += testenv.Every(2) {
			t.Run(fmt.Sprintf("%d/%d shard bits", i, shardBits), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				m := randomModel(rng, o)
				store := blob.NewMemory()
				ref := m.write(t, store, shardBits)
				for _, cache := range []Cache{nil, mapCache{}} {
					s := mustOpen(t, store, ref, Options{Cache: cache})
					if err := m.compare(s); err != nil {
						t.Error(err)
					}
					m.compareAbsent(t, s, rng)
					m.compareScans(t, s)
				}
			})
		}
	}
}

// Domains with the same id are kept apart by their check bits.
func TestDomainsThatShareIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: func(s string) Key {
		k := KeyOf(s)
		return Key{ID: k.ID % 5, Check: k.Check % 65536}
	}}
	var names []string
	seen := map[Key]bool{}
	for i := range 900 {
		name := fmt.Sprintf("%04d.test", i)
		if k := m.keyOf(name); !seen[k] {
			seen[k] = true
			names = append(names, name)
		}
	}
	for id := range 6 {
		m.addFile(rng, id, uint32(1+id/2), names, modelOptions{groupRows: 20, sizes: 0.5})
	}
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 0), Options{})
	if err := m.compare(s); err != nil {
		t.Error(err)
	}
	m.compareAbsent(t, s, rng)
	m.compareScans(t, s)
}

// The entries of a domain in ten thousand datasets span blocks. Reading all of them takes one read,
// as does reading one.
func TestReadsOfADomainInManyDatasets(t *testing.T) {
	const datasets = 10_000
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range datasets {
		n := int64(1 + rng.IntN(100))
		tuples := []Tuple{{FileID: uint32(i), Rows: n}}
		if i%3 == 0 {
			n += 5
			tuples = append(tuples, Tuple{FileID: uint32(i), RowGroup: 1, Rows: 5})
			m.groups = append(m.groups, []int64{n - 5, 5})
		} else {
			m.groups = append(m.groups, []int64{n})
		}
		m.files = append(m.files, FileInfo{
			DatasetID: uint32(i + 1), DomainPrefix: "any", Path: fmt.Sprint("urls/", i), Batch: "b", Rows: n,
		})
		m.add("example.org", uint32(i+1), Totals{Rows: n}, tuples)
	}
	for i := range 2000 {
		m.files = append(m.files, FileInfo{
			DatasetID: datasets + 1, DomainPrefix: "any", Path: fmt.Sprint("urls/x", i), Batch: "b", Rows: 1,
		})
		m.groups = append(m.groups, []int64{1})
		m.add(fmt.Sprintf("%d.example", i), datasets+1, Totals{Rows: 1}, []Tuple{{FileID: uint32(datasets + i), Rows: 1}})
	}
	memory := blob.NewMemory()
	ref := m.write(t, memory, 0)
	store := blob.NewCounting(memory)
	s := mustOpen(t, store, ref, Options{})
	k := KeyOf("example.org")

	reads := func(what string, want int64, f func(context.Context) error) {
		t.Helper()
		before := store.Reads().Requests
		if err := f(context.Background()); err != nil {
			t.Fatal(err)
		}
		if got := store.Reads().Requests - before; got != want {
			t.Errorf("%s: %d reads, want %d", what, got, want)
		}
	}
	var entries []Entry
	reads("all entries", 1, func(ctx context.Context) (err error) {
		entries, err = s.Entries(ctx, k, 0, 0)
		return err
	})
	if len(entries) != datasets {
		t.Fatalf("%d entries, want %d", len(entries), datasets)
	}
	for i, e := range entries {
		if e.Dataset != uint32(i+1) || e.Rows != m.domains["example.org"][e.Dataset].Rows {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	reads("one entry", 1, func(ctx context.Context) error { _, _, err := s.Entry(ctx, k, 4321); return err })
	reads("entries from one on", 1, func(ctx context.Context) error {
		e, err := s.Entries(ctx, k, 5000, 1000)
		if len(e) != 1000 || e[0].Dataset != 5000 || e[999].Dataset != 5999 {
			t.Errorf("%d entries from %v", len(e), e[:1])
		}
		return err
	})
	reads("entries of none", 1, func(ctx context.Context) error {
		_, err := s.Entries(ctx, Key{ID: k.ID, Check: k.Check + 1}, 0, 0)
		return err
	})
	reads("payload", 1, func(ctx context.Context) error { _, err := s.Tuples(ctx, entries[3]); return err })
	reads("inline", 0, func(ctx context.Context) error { _, err := s.Tuples(ctx, entries[1]); return err })
	reads("pages", 1, func(ctx context.Context) error { _, err := s.PageBlocks(ctx, 17, 0, 0, 1); return err })

	cached := mustOpen(t, store, ref, Options{Cache: mapCache{}})
	readAll := func(ctx context.Context) error { _, err := cached.Entries(ctx, k, 0, 0); return err }
	reads("all entries into the cache", 1, readAll)
	reads("all entries from the cache", 0, readAll)
	readOne := func(ctx context.Context) error { _, _, err := cached.Entry(ctx, k, 77); return err }
	reads("one entry from the cache", 0, readOne)
	m.compareScans(t, s)
}

func TestEmptySegment(t *testing.T) {
	m := &model{domains: map[string]map[uint32]*Posting{}, keyOf: KeyOf}
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 1), Options{})
	m.compareAbsent(t, s, rand.New(rand.NewPCG(1, 1)))
	m.compareScans(t, s)
	if _, err := s.Domain(context.Background(), 0); err == nil {
		t.Error("domain 0 of none: no error")
	}
	if _, err := s.Datasets(0); err == nil {
		t.Error("datasets of domain 0 of none: no error")
	}
}

func smallModel() *model {
	rng := rand.New(rand.NewPCG(5, 5))
	return randomModel(rng, modelOptions{datasets: 3, files: 5, domains: 25, groupRows: 10, sizes: 0.5, times: 0.5})
}

// objects returns all objects of a store.
func objects(tb testing.TB, store blob.Store) map[string][]byte {
	tb.Helper()
	ctx := context.Background()
	all := map[string][]byte{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			tb.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			tb.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

// put replaces an object.
func put(tb testing.TB, store blob.Store, key string, data []byte) {
	tb.Helper()
	if _, err := store.Put(context.Background(), key, data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
}

// Whatever the damage to a file, answers are right or there is an error that says it is corrupt.
func TestDamageIsNeverAWrongAnswer(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	ref := m.write(t, store, 1)
	dir := t.TempDir()
	noticed, harmless := 0, 0
	try := func(key string, data []byte, what string) {
		t.Helper()
		put(t, store, key, data)
		s, err := Open(context.Background(), store, ref, Options{CacheDir: dir})
		if err == nil {
			err = m.compare(s)
			if cerr := s.Close(); cerr != nil {
				t.Fatal(cerr)
			}
		}
		switch {
		case err == nil:
			harmless++
		case errors.Is(err, codec.ErrCorrupt), errors.Is(err, blob.ErrRange):
			noticed++
		default:
			t.Errorf("%s of %s: %v", what, key, err)
		}
	}
	for key, data := range objects(t, store) {
		step := testenv.Every(5) + len(data)*testenv.Every(5)/250
		for i := 0; i < len(data); i += step {
			clearDir(t, dir)
			bad := bytes.Clone(data)
			bad[i] ^= 1 << (i % 8)
			try(key, bad, fmt.Sprintf("flipping byte %d", i))
		}
		for i := 0; i < len(data); i += 1 + len(data)/50 {
			clearDir(t, dir)
			try(key, data[:i], fmt.Sprintf("truncation to %d", i))
		}
		clearDir(t, dir)
		try(key, append(bytes.Clone(data), 0), "appending a byte")
		put(t, store, key, data)
	}
	clearDir(t, dir)
	if err := m.compare(mustOpen(t, store, ref, Options{CacheDir: dir})); err != nil {
		t.Fatal(err)
	}
	if noticed == 0 {
		t.Error("no damage was noticed")
	}
	t.Logf("%d noticed, %d without effect", noticed, harmless)
}

func clearDir(tb testing.TB, dir string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Remove(dir + "/" + e.Name()); err != nil {
			tb.Fatal(err)
		}
	}
}

// A byte that changes in the cache directory is noticed when it is touched, and repaired from the
// store. If the store has the same damage, the lookup fails.
func TestDamagedCacheIsRepaired(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	ref := m.write(t, store, 0)
	dir := t.TempDir()
	mustOpen(t, store, ref, Options{CacheDir: dir})
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Fatalf("%d files in the cache, want 2", len(entries))
	}
	for _, e := range entries {
		path := dir + "/" + e.Name()
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := bytes.Clone(good)
		for i := 0; i < len(good); i += 13 {
			bad[i] ^= 0x10
			if err := os.WriteFile(path, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, store, ref, Options{CacheDir: dir})
			if err := m.compare(s); err != nil {
				t.Fatalf("flipping byte %d of %s: %v", i, path, err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, good) {
				t.Fatalf("byte %d of %s is still flipped (%v)", i, path, err)
			}
			bad[i] ^= 0x10
		}
		key := Prefix(ref.ID) + e.Name()[len(ref.ID+"-0123456789abcdef-"):]
		bad[len(bad)/2] ^= 1
		put(t, store, key, bad)
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), store, ref, Options{CacheDir: dir})
		if err == nil {
			err = m.compare(s)
			s.Close()
		}
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s damaged in store and cache: %v", key, err)
		}
		put(t, store, key, good)
	}
}

// A copy appears in the cache directory whole or not at all.
func TestBrokenFetchLeavesNoCopy(t *testing.T) {
	m := smallModel()
	memory := blob.NewMemory()
	ref := m.write(t, memory, 0)
	size := int64(len(objects(t, memory)[Prefix(ref.ID)+MPHFName]))
	for _, fault := range []blobtest.Fault{
		{Op: blob.OpStream, Cut: size / 2},
		{Op: blob.OpStream, Cut: size / 2, Err: io.EOF},
		{Op: blob.OpOpen},
	} {
		fault.Key = func(key string) bool { return strings.HasSuffix(key, MPHFName) }
		store := blobtest.NewFaulty(memory)
		store.Inject(fault)
		dir := t.TempDir()
		if s, err := Open(context.Background(), store, ref, Options{CacheDir: dir}); err == nil {
			s.Close()
			t.Errorf("%+v: opened", fault)
		}
		if store.Fired() == 0 {
			t.Fatal("no fault happened")
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), MembershipName) {
				t.Errorf("%+v left %s", fault, e.Name())
			}
		}
		store.Heal()
		if err := m.compare(mustOpen(t, store, ref, Options{CacheDir: dir})); err != nil {
			t.Error(err)
		}
	}
}

// lockedCache is a mapCache for several goroutines.
type lockedCache struct {
	mu sync.Mutex
	m  mapCache
}

func (c *lockedCache) Get(k CacheKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m.Get(k)
}

func (c *lockedCache) Again(k CacheKey) (any, bool) { return c.Get(k) }

func (c *lockedCache) Add(k CacheKey, v any, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m.Add(k, v, n)
}

// Goroutines that share one segment share what they decode, and meet blocks of mapped files that
// were not checked yet or need a repair.
func TestConcurrentLookups(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	m := randomModel(rng, modelOptions{datasets: 5, files: 9, domains: 120, groupRows: 20, sizes: 0.5, times: 0.5})
	store := blob.NewMemory()
	ref := m.write(t, store, 1)
	dir := t.TempDir()
	mustOpen(t, store, ref, Options{CacheDir: dir})
	s := mustOpen(t, store, ref, Options{CacheDir: dir, Cache: &lockedCache{m: mapCache{}}})
	path := dir + "/" + copyName(ref.ID, s.Info().File(MembershipName))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("damage"), 100); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, store, ref, Options{CacheDir: dir, Cache: &lockedCache{m: mapCache{}}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := m.compare(s); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
}

// The reference vouches for segment.json: that of another segment is rejected.
func TestSegmentJSONOfAnotherSegment(t *testing.T) {
	store := blob.NewMemory()
	a := smallModel().write(t, store, 0)
	other := smallModel()
	for i := range other.files {
		other.files[i].Batch = "other"
	}
	b := other.write(t, store, 0)
	if a.ID == b.ID {
		t.Fatal("two segments of other batches have one id")
	}
	ctx := context.Background()
	data, _, err := store.Get(ctx, Prefix(b.ID)+InfoName)
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, Prefix(a.ID)+InfoName, data)
	for _, ref := range []Ref{a, {ID: a.ID, XXH64: b.XXH64}} {
		if _, err := Open(ctx, store, ref, Options{CacheDir: t.TempDir()}); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("open %s with the document of %s: %v", a.ID, b.ID, err)
		}
	}
}

func TestFindIgnoresUnfinishedSegments(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	ctx := context.Background()
	if _, ok, err := Find(ctx, store, m.batches(), Unnamed); ok || err != nil {
		t.Fatalf("before: %v, %v", ok, err)
	}
	ref := m.write(t, store, 0)
	got, ok, err := Find(ctx, store, m.batches(), Unnamed)
	if !ok || err != nil || got != ref {
		t.Errorf("found %+v, %v, %v; want %+v", got, ok, err, ref)
	}
	var size int64
	for _, data := range objects(t, store) {
		size += int64(len(data))
	}
	if ref.Bytes != size {
		t.Errorf("reference says %d bytes, objects have %d", ref.Bytes, size)
	}
}

// Objects that are files are mapped themselves, without a cache directory.
func TestLocalStoreNeedsNoCache(t *testing.T) {
	m := smallModel()
	store, err := blob.NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ref := m.write(t, store, 1)
	s, err := Open(context.Background(), blob.NewCounting(store), ref, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := m.compare(s); err != nil {
		t.Error(err)
	}
	if _, err := Open(context.Background(), blob.NewMemory(), ref, Options{}); err == nil {
		t.Error("opened a segment that does not exist")
	}
}

// A mapped file that is truncated leaves mapped memory without pages.
func TestFileTruncatedUnderAnOpenSegment(t *testing.T) {
	for _, name := range []string{MPHFName, MembershipName} {
		m := smallModel()
		store, err := blob.NewLocal(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		ref := m.write(t, store, 1)
		s := mustOpen(t, store, ref, Options{})
		path, err := store.LocalPath(Prefix(ref.ID) + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, d := range m.names() {
			ordinal, ok, err := s.Ordinal(KeyOf(d))
			if err == nil && ok {
				_, err = s.Datasets(ordinal)
			}
			var c *codec.CorruptError
			switch {
			case errors.As(err, &c) && strings.HasSuffix(c.File, name):
				failed++
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case !ok:
				t.Errorf("%s is truncated, and %s is reported absent", name, d)
			}
		}
		if failed == 0 {
			t.Errorf("%s is truncated, and no lookup fails", name)
		}
	}
}

func TestSameInputSameBytes(t *testing.T) {
	a, b := blob.NewMemory(), blob.NewMemory()
	ra, rb := smallModel().write(t, a, 1), smallModel().write(t, b, 1)
	if ra != rb {
		t.Errorf("references %+v and %+v", ra, rb)
	}
	if d := cmp.Diff(objects(t, a), objects(t, b)); d != "" {
		t.Error(d)
	}
}

func TestPruneCache(t *testing.T) {
	store := blob.NewMemory()
	a := smallModel().write(t, store, 0)
	other := smallModel()
	for i := range other.files {
		other.files[i].Batch = "other"
	}
	b := other.write(t, store, 0)
	dir := t.TempDir()
	for _, ref := range []Ref{a, b} {
		s := mustOpen(t, store, ref, Options{CacheDir: dir})
		defer s.Close()
	}
	others := map[string]string{"fetch-123.tmp": "left by a dead process", "fetch-124.tmp": "", "other": "x"}
	for name, data := range others {
		if err := os.WriteFile(dir+"/"+name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := PruneCache(dir, []string{b.ID}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), "-")
		left = append(left, name)
	}
	slices.Sort(left)
	want := []string{"fetch", "other", b.ID, b.ID}
	slices.Sort(want)
	if d := cmp.Diff(want, left); d != "" {
		t.Error(d)
	}
	if err := PruneCache(dir+"/absent", nil); err != nil {
		t.Error(err)
	}
}

func TestOrdinalsOfMany(t *testing.T) {
	m := smallModel()
	store := blob.NewMemory()
	s := mustOpen(t, store, m.write(t, store, 0), Options{})
	var keys []Key
	var want []uint32
	for i, name := range m.names() {
		keys = append(keys, m.keyOf(name), KeyOf("absent.example"))
		want = append(want, uint32(i), mph.Absent)
	}
	got := make([]uint32, len(keys))
	if err := s.Ordinals(keys, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
