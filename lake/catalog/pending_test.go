package catalog_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

func TestDocumentIsAsItsPageShows(t *testing.T) {
	store := blob.NewMemory()
	digest := lake.Digest([]byte("record"))
	err := catalog.PutPending(t.Context(), store, "019342c6-8f2b-7c35-a1f5-6c8f9f3b7f10", 1_796_032_800_123_456_789, []catalog.Change{
		{DatasetID: 3, Batch: "2026-11", Digest: digest, Replace: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	const key = "pending/3/1796032800123456789-019342c6-8f2b-7c35-a1f5-6c8f9f3b7f10.json"
	data, _, err := store.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "pending.md", "json", string(data))
}

// truth is what a batch should be.
type truth struct {
	start   int64
	digest  string
	retired bool
}

// model is a lake's batches: every change counts at once, whatever is published.
type model map[catalog.BatchName]truth

func (m model) apply(start int64, c catalog.Change, replaced map[uint32]int64) {
	name := catalog.BatchName{DatasetID: c.DatasetID, Batch: c.Batch}
	now := truth{start, c.Digest, c.Retired}
	if cut := replaced[c.DatasetID]; start < cut {
		now = truth{cut, c.Digest, true}
	}
	if have, ok := m[name]; !ok || now.start > have.start {
		m[name] = now
	}
	if !c.Replace || replaced[c.DatasetID] > start {
		return
	}
	replaced[c.DatasetID] = start
	for other, b := range m {
		if other.DatasetID == c.DatasetID && other != name && b.start < start {
			m[other] = truth{start, b.digest, true}
		}
	}
}

// publish makes a version of some of what waits, as package publish does, and deletes what its
// parent has.
func publish(t *testing.T, store blob.Store, n int) {
	t.Helper()
	s, err := catalog.LookBatches(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), c.Superseded...); err != nil {
		t.Fatal(err)
	}
	live := map[catalog.BatchName]catalog.Batch{}
	for b, err := range s.Version.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		live[b.BatchName] = b
	}
	next := &catalog.Next{CanonicalForm: "form", PublicSuffix: "list"}
	for _, b := range c.Batches {
		if b.Retired {
			delete(live, b.BatchName)
			next.Gone = append(next.Gone, catalog.Gone{BatchName: b.BatchName, Start: b.Start, Digest: b.Digest})
			continue
		}
		live[b.BatchName] = catalog.Batch{BatchName: b.BatchName, Digest: b.Digest, Rows: 1, Parts: 1, Start: b.Start}
		next.Back = append(next.Back, b.BatchName)
	}
	for _, g := range c.Replaced {
		next.Gone = append(next.Gone, catalog.Gone{BatchName: catalog.BatchName{DatasetID: g.DatasetID}, Start: g.Start})
	}
	id := lake.Digest(fmt.Append(nil, "version ", n))
	next.Segments = []catalog.Segment{catalog.NewSegment(id, strings.Repeat("0", 16), 1, 1, int64(len(live)))}
	next.Batches = map[string]iter.Seq2[catalog.Batch, error]{id: func(yield func(catalog.Batch, error) bool) {
		for _, name := range slices.SortedFunc(maps.Keys(live), catalog.CompareNames) {
			if !yield(live[name], nil) {
				return
			}
		}
	}}
	for id := range uint32(3) {
		next.Datasets = append(next.Datasets, catalog.Dataset{ID: id + 1, Name: fmt.Sprint("d", id+1)})
	}
	commit := catalog.Commit{ID: id, BuiltBy: "test", Build: func(context.Context, *catalog.Version) (*catalog.Next, error) { return next, nil }}
	if _, err := commit.Apply(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), c.Settled...); err != nil {
		t.Fatal(err)
	}
}

// Whatever finishes in whichever order, is published or lost with the newest version, each batch is
// that of the change that began last.
func TestWhatBeganLastWins(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		store, want, replaced := blob.NewMemory(), model{}, map[uint32]int64{}
		starts := r.Perm(200)
		last := 0
		for n := range 120 {
			switch r.IntN(5) {
			case 0:
				publish(t, store, n)
				last = n
			case 1:
				m, _, err := catalog.ReadManifest(t.Context(), store)
				if errors.Is(err, catalog.ErrNoVersion) || last == 0 || len(m.Versions) < 2 || r.IntN(3) > 0 {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				last = 0 // only one version is lost before the next publish
				if err := store.Delete(t.Context(), catalog.VersionKey(m.CurrentVersion)); err != nil {
					t.Fatal(err)
				}
			default:
				start := int64(starts[n]) + 1
				var changes []catalog.Change
				for range 1 + r.IntN(2) {
					c := catalog.Change{DatasetID: uint32(1 + r.IntN(3)), Batch: fmt.Sprint("b", r.IntN(3)), Digest: lake.Digest(fmt.Append(nil, r.IntN(4)))}
					if slices.ContainsFunc(changes, func(o catalog.Change) bool { return o.DatasetID == c.DatasetID }) {
						continue
					}
					c.Retired = r.IntN(4) == 0
					c.Replace = !c.Retired && r.IntN(5) == 0
					changes = append(changes, c)
				}
				slices.SortFunc(changes, func(a, b catalog.Change) int { return cmp.Compare(a.DatasetID, b.DatasetID) })
				for _, c := range changes {
					want.apply(start, c, replaced)
				}
				if err := catalog.PutPending(t.Context(), store, fmt.Sprint("run", n), start, changes); err != nil {
					t.Fatal(err)
				}
			}
			got := model{}
			for dataset := range uint32(3) {
				s, err := catalog.LookBatches(t.Context(), store, dataset+1)
				if err != nil {
					t.Fatal(err)
				}
				all, err := s.Batches(t.Context(), dataset+1)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range all {
					got[b.BatchName] = truth{b.Start, b.Digest, b.Retired}
				}
			}
			if d := gocmp.Diff(want, got, gocmp.Comparer(func(a, b truth) bool { return a == b || a.retired && b.retired })); d != "" {
				t.Fatalf("seed %d, step %d (-want +got):\n%s", seed, n, d)
			}
		}
		publish(t, store, 1000)
		publish(t, store, 1001)
		for info := range store.List(t.Context(), catalog.PendingRoot) {
			t.Errorf("seed %d: %s is left", seed, info.Key)
		}
	}
}

// A damaged document hides no other, and is named.
func TestDamagedDocument(t *testing.T) {
	store := blob.NewMemory()
	for i, dataset := range []uint32{1, 2} {
		c := []catalog.Change{{DatasetID: dataset, Batch: "b", Digest: lake.Digest(nil)}}
		if err := catalog.PutPending(t.Context(), store, "run", int64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	const key = "pending/1/0000000000000000001-run.json"
	if _, err := store.Put(t.Context(), key, []byte("damaged"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	s, err := catalog.LookBatches(t.Context(), store)
	if err != nil || len(s.Damaged) != 1 || s.Damaged[0].Key != key || s.Damaged[0].DatasetID != 1 || !errors.Is(s.Damaged[0].Err, codec.ErrCorrupt) {
		t.Errorf("%+v, %v", s, err)
	}
	if names := s.Names(0); len(names) != 1 || names[0].DatasetID != 2 {
		t.Errorf("%v", names)
	}
}
