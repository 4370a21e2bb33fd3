package catalog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
)

// collect returns what a sequence yields.
func collect[T any](t testing.TB, seq iter.Seq2[T, error]) []T {
	t.Helper()
	all := []T{}
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// content is what a version holds, kept in plain lists and maps.
type content struct {
	batches  map[BatchName]Batch
	datasets map[uint32]Dataset // descriptions
}

// list returns the batches by dataset and name.
func (c *content) list() []Batch {
	return slices.SortedFunc(maps.Values(c.batches), func(a, b Batch) int { return CompareNames(a.BatchName, b.BatchName) })
}

// totals sums up the batches of each dataset and of all of them.
func (c *content) totals() (sets []Dataset, all Counts) {
	byID := map[uint32]*Dataset{}
	for _, b := range c.batches {
		d := byID[b.DatasetID]
		if d == nil {
			d = new(Dataset)
			*d = c.datasets[b.DatasetID]
			byID[b.DatasetID] = d
		}
		d.Batches++
		d.Rows, d.Parts, d.Bytes = d.Rows+b.Rows, d.Parts+b.Parts, d.Bytes+b.Bytes
		all.Batches++
		all.Rows, all.Parts, all.PartBytes = all.Rows+b.Rows, all.Parts+b.Parts, all.PartBytes+b.Bytes
	}
	for _, d := range byID {
		sets = append(sets, *d)
	}
	slices.SortFunc(sets, func(a, b Dataset) int { return cmp.Compare(a.ID, b.ID) })
	all.Datasets = len(sets)
	return sets, all
}

// compare compares all that a version tells with c.
func (c *content) compare(t testing.TB, v *Version, rng *rand.Rand) {
	t.Helper()
	ctx := context.Background()
	if err := v.Check(ctx); err != nil {
		t.Fatal(err)
	}
	want := c.list()
	sets, counts := c.totals()
	counts.Segments, counts.IndexBytes = v.Counts.Segments, v.Counts.IndexBytes
	if d := gocmp.Diff(counts, v.Counts); d != "" {
		t.Fatal(d)
	}
	if d := gocmp.Diff(want, collect(t, v.Batches(ctx))); d != "" {
		t.Fatal(d)
	}
	if d := gocmp.Diff(sets, collect(t, v.Datasets(ctx, 0))); d != "" {
		t.Fatal(d)
	}
	from := uint32(rng.IntN(40))
	if got := collect(t, v.Datasets(ctx, from)); len(got) != len(slices.DeleteFunc(slices.Clone(sets), func(d Dataset) bool { return d.ID < from })) {
		t.Fatalf("datasets from %d: %v", from, got)
	}
	inSegments := 0
	for _, s := range v.Segments {
		part := slices.DeleteFunc(slices.Clone(want), func(b Batch) bool { return b.Segment != s.ID })
		inSegments += len(part)
		if d := gocmp.Diff(part, collect(t, v.BatchesIn(ctx, s.ID))); d != "" || v.CountIn(s.ID) != int64(len(part)) {
			t.Fatalf("segment %s with %d batches: %s", s.ID, v.CountIn(s.ID), d)
		}
	}
	if inSegments != len(want) {
		t.Fatalf("%d batches in segments, %d in all", inSegments, len(want))
	}
	names, ids := []BatchName{}, []uint32{}
	for range 20 {
		names = append(names, BatchName{uint32(1 + rng.IntN(40)), fmt.Sprintf("b%02d", rng.IntN(30))})
		ids = append(ids, uint32(1+rng.IntN(45)))
	}
	found, err := v.FindBatches(ctx, names)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if b, ok := c.batches[n]; b != found[n] || ok != (found[n] != Batch{}) {
			t.Fatalf("%v is %+v, want %+v", n, found[n], b)
		}
	}
	described, err := v.FindDatasets(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		at := slices.IndexFunc(sets, func(d Dataset) bool { return d.ID == id })
		if _, ok := described[id]; ok != (at >= 0) || ok && described[id] != sets[at] {
			t.Fatalf("dataset %d is %+v of %+v", id, described[id], sets)
		}
	}
	id := names[0].DatasetID
	own := slices.DeleteFunc(slices.Clone(want), func(b Batch) bool { return b.DatasetID != id })
	if d := gocmp.Diff(own, collect(t, v.BatchesOf(ctx, id))); d != "" {
		t.Fatal(d)
	}
}

// next returns what adds batches in a new segment to a version and takes the place of the segments
// in replaced.
func (c *content) next(parent *Version, segment string, batches []Batch, replaced []string) *Next {
	n := &Next{CanonicalForm: "form", PublicSuffix: "list", Batches: map[string]iter.Seq2[Batch, error]{}}
	if parent != nil {
		n.Segments = slices.DeleteFunc(slices.Clone(parent.Segments), func(s Segment) bool { return slices.Contains(replaced, s.ID) })
	}
	rows := int64(0)
	seen := map[uint32]bool{}
	for _, b := range batches {
		rows += b.Rows
		if !seen[b.DatasetID] {
			seen[b.DatasetID] = true
			n.Datasets = append(n.Datasets, c.datasets[b.DatasetID])
		}
	}
	n.Segments = append(n.Segments, NewSegment(segment, "00112233445566aa", 1000+rows, 3, rows))
	n.Batches[segment] = sequenceOf(batches)
	return n
}

func commitNext(t testing.TB, store blob.Store, n int, build func(parent *Version) *Next) *Version {
	t.Helper()
	c := Commit{ID: id32(n), Build: func(_ context.Context, parent *Version) (*Next, error) { return build(parent), nil }}
	done, err := c.Apply(context.Background(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVersion(context.Background(), store, done.Version)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Random versions are made one after the other, Each holds what a plain list says,
// and has the pieces of a version with that content that is made at once.
func TestVersionsHoldWhatWasCommitted(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 16))
		store := blob.NewMemory()
		c := &content{batches: map[BatchName]Batch{}, datasets: map[uint32]Dataset{}}
		var v *Version
		for n := 100; n < 130; n++ {
			segment := id32(n)
			var replaced []string
			taken := map[BatchName]Batch{}
			if v != nil {
				for _, s := range v.Segments {
					if len(v.Segments) > 5 || rng.IntN(6) == 0 {
						replaced = append(replaced, s.ID)
						for _, b := range collect(t, v.BatchesIn(t.Context(), s.ID)) {
							taken[b.BatchName] = b
						}
					}
				}
			}
			for name := range taken { // a batch is withdrawn
				if rng.IntN(10) == 0 && len(taken) > 1 {
					delete(taken, name)
					delete(c.batches, name)
				}
			}
			for range 1 + rng.IntN(6) {
				name := BatchName{uint32(1 + rng.IntN(40)), fmt.Sprintf("b%02d", rng.IntN(30))}
				if old, ok := c.batches[name]; ok && !slices.Contains(replaced, old.Segment) {
					continue
				}
				taken[name] = Batch{
					BatchName: name, Digest: id32(rng.IntN(1 << 30)), Rows: rng.Int64N(1000), Parts: rng.Int64N(5),
					Bytes: rng.Int64N(1 << 40),
				}
			}
			if len(taken) == 0 {
				continue
			}
			for name, b := range taken {
				b.Segment = segment
				c.batches[name] = b
				c.datasets[name.DatasetID] = Dataset{
					ID: name.DatasetID, Name: fmt.Sprint("d", name.DatasetID), Title: strings.Repeat("é", rng.IntN(3)), Source: "s",
				}
				taken[name] = b
			}
			batches := slices.SortedFunc(maps.Values(taken), func(a, b Batch) int { return CompareNames(a.BatchName, b.BatchName) })
			v = commitNext(t, store, n, func(parent *Version) *Next { return c.next(parent, segment, batches, replaced) })
			c.compare(t, v, rng)
		}
		atOnce := commitNext(t, blob.NewMemory(), 1, func(*Version) *Next {
			n := &Next{CanonicalForm: "form", PublicSuffix: "list", Segments: v.Segments, Batches: map[string]iter.Seq2[Batch, error]{}}
			for _, s := range v.Segments {
				n.Batches[s.ID] = v.BatchesIn(t.Context(), s.ID)
			}
			n.Datasets = slices.Collect(maps.Values(c.datasets))
			return n
		})
		if d := gocmp.Diff(v.Segments, atOnce.Segments); d != "" || v.datasets.Ref() != atOnce.datasets.Ref() {
			t.Fatalf("pieces depend on the history: %s, %v and %v", d, v.datasets.Ref(), atOnce.datasets.Ref())
		}
	}
}

// A commit whose batches do not fit their segment, or whose datasets are not described, is refused.
func TestWrongCommitsAreRefused(t *testing.T) {
	batch := Batch{BatchName: BatchName{1, "b"}, Digest: id32(1), Rows: 5}
	good := func() *Next {
		return &Next{
			CanonicalForm: "form", PublicSuffix: "list",
			Segments: []Segment{NewSegment(id32(1), "00112233445566aa", 1, 1, 5)},
			Batches:  map[string]iter.Seq2[Batch, error]{id32(1): sequenceOf([]Batch{batch})},
			Datasets: []Dataset{{ID: 1, Name: "d"}},
		}
	}
	for name, change := range map[string]func(n *Next){
		"rows":           func(n *Next) { n.Segments[0].Rows++ },
		"no batches":     func(n *Next) { n.Batches = nil },
		"not described":  func(n *Next) { n.Datasets = nil },
		"name":           func(n *Next) { n.Datasets[0].Name = "a b" },
		"digest":         func(n *Next) { b := batch; b.Digest = "x"; n.Batches[id32(1)] = sequenceOf([]Batch{b}) },
		"batch name":     func(n *Next) { b := batch; b.Batch = "../x"; n.Batches[id32(1)] = sequenceOf([]Batch{b}) },
		"negative count": func(n *Next) { b := batch; b.Parts = -1; n.Batches[id32(1)] = sequenceOf([]Batch{b}) },
		"batch twice":    func(n *Next) { n.Segments[0].Rows = 10; n.Batches[id32(1)] = sequenceOf([]Batch{batch, batch}) },
	} {
		n := good()
		change(n)
		c := Commit{ID: id32(1), Build: func(context.Context, *Version) (*Next, error) { return n, nil }}
		if _, err := c.Apply(t.Context(), blob.NewMemory()); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
}

// Every lost piece of a version is named. A version that is made of the same batches and
// descriptions, without those of its parent, has the same pieces.
func TestLostPieces(t *testing.T) {
	store := blob.NewMemory()
	c := &content{batches: map[BatchName]Batch{}, datasets: map[uint32]Dataset{}}
	segment := id32(1)
	for i := range 2000 {
		name := BatchName{uint32(1 + i/10), fmt.Sprintf("b%04d", i)}
		c.batches[name] = Batch{BatchName: name, Digest: id32(i), Rows: 1, Parts: 1, Bytes: 9, Segment: segment}
		c.datasets[name.DatasetID] = Dataset{ID: name.DatasetID, Name: fmt.Sprint("d", name.DatasetID), Title: "t"}
	}
	v := commitNext(t, store, 1, func(*Version) *Next { return c.next(nil, segment, c.list(), nil) })
	n := 1
	retell := func() {
		n++
		next := commitNext(t, store, n, func(parent *Version) *Next {
			return &Next{
				CanonicalForm: parent.CanonicalForm, PublicSuffix: parent.PublicSuffix, Segments: slices.Clone(parent.Segments),
				Batches:  map[string]iter.Seq2[Batch, error]{segment: sequenceOf(c.list())},
				Datasets: slices.Collect(maps.Values(c.datasets)), Anew: true,
			}
		})
		if next.Segments[0].BatchPieces != v.Segments[0].BatchPieces || next.datasets.Ref() != v.datasets.Ref() {
			t.Fatal("other pieces")
		}
	}
	var keys []string
	for info := range store.List(t.Context(), VersionPiecesRoot) {
		keys = append(keys, info.Key)
	}
	if len(keys) < 10 {
		t.Fatalf("%d pieces", len(keys))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, key := range keys {
		good := get(t, store, key)
		for _, damage := range ways {
			damage(t, store, key)
			v, err := ReadVersion(t.Context(), store, mustRef(t, store, v.ID))
			if err != nil {
				t.Fatal(err)
			}
			if err := v.Check(t.Context()); err == nil {
				t.Fatalf("%s: no error", key)
			}
			lost := []string{}
			for _, pieces := range []iter.Seq2[string, error]{v.DatasetPieces(t.Context()), v.BatchPieces(t.Context(), segment)} {
				for key, err := range pieces {
					if err != nil {
						lost = append(lost, key)
					}
				}
			}
			if !slices.Equal(lost, []string{key}) {
				t.Fatalf("lost are %q, want %s", lost, key)
			}
			if retell(); string(get(t, store, key)) != string(good) {
				t.Fatalf("%s has not got its bytes back", key)
			}
		}
	}
	c.compare(t, v, rng)
}

func mustRef(t *testing.T, store blob.Store, id string) VersionRef {
	t.Helper()
	m, _, err := ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version(id)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// sequenceOf returns a sequence of batches, which must be sorted by dataset and name.
func sequenceOf(batches []Batch) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for i := range batches {
			if !yield(batches[i], nil) {
				return
			}
		}
	}
}
