package publish_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/pack"
	"github.com/urlake/urlake/lake/registry"
)

// half packs the finished batches of datasets with even numbers, and holds that they are packed.
func half(t *testing.T, store blob.Store) {
	t.Helper()
	for _, name := range testlake.Pack(t, store, func(d lake.Dataset, _ string) bool { return d.ID%2 == 0 }) {
		if !pack.ValidName(name) {
			t.Fatalf("pack %q", name)
		}
	}
}

// sameIndex holds that two lakes have the same objects of segments and parts, whatever else they
// have.
func sameIndex(t *testing.T, step string, plain, packed blob.Store) {
	t.Helper()
	indexOf := func(store blob.Store) map[string]string {
		all := map[string]string{}
		for _, root := range []string{"index/segments/", "urls/"} {
			for info, err := range store.List(t.Context(), root) {
				if err != nil {
					t.Fatal(err)
				}
				data, _, err := store.Get(t.Context(), info.Key)
				if err != nil {
					t.Fatal(err)
				}
				all[info.Key] = lake.Digest(data)
			}
		}
		return all
	}
	want, got := indexOf(plain), indexOf(packed)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("%s: objects of the index (-plain +packed): %s", step, diff)
	}
	r, err := lakecheck.Lake(t.Context(), packed, lakecheck.Options{AllVersions: true, Deep: true, TempDir: t.TempDir()})
	if err != nil || len(r.Problems) > 0 {
		t.Errorf("%s: %q, %v", step, r.Problems, err)
	}
}

// TestPackedBatchesMakeTheSameIndex does the same to a lake half of whose batches are packed and to
// one without packs: everything that answers come from is the same, byte by byte, after batches are
// published, replaced, withdrawn, moved to another public suffix list, and repaired.
func TestPackedBatchesMakeTheSameIndex(t *testing.T) {
	plain, packed := blob.NewMemory(), blob.NewMemory()
	both := func(do func(store blob.Store)) {
		t.Helper()
		do(plain)
		do(packed)
	}
	ingest := func(dataset, batch string, records []testlake.Record) {
		t.Helper()
		both(func(store blob.Store) { testlake.Ingest(t, store, dataset, batch, records) })
	}
	hosts := func(tag string, n int) (list []testlake.Record) {
		for i := range n {
			list = append(list, testlake.Record{URL: fmt.Sprintf("https://host%d.blog.test/%s/%d", i%9, tag, i)})
		}
		return append(list, testlake.Record{URL: "http://"})
	}
	both(func(store blob.Store) { testlake.SetList(t, store, "test") })
	for i, name := range []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta"} {
		ingest(name, "b1", append(records(name, 20+i), hosts(name, 10)...))
		ingest(name, "b2", records(name+"2", 5+i))
	}
	half(t, packed)
	both(func(store blob.Store) { testlake.Publish(t, store) })
	sameIndex(t, "published", plain, packed)

	// A packed batch is replaced by a packed one, and one that is not by one that is.
	ingest("beta", "b1", records("beta again", 12))
	ingest("delta", "b2", hosts("delta again", 12))
	ingest("alpha", "b1", records("alpha again", 12))
	half(t, packed)
	both(func(store blob.Store) { testlake.Publish(t, store) })
	sameIndex(t, "replaced", plain, packed)

	// A batch that waits is withdrawn.
	ingest("beta", "b3", records("beta withdrawn", 12))
	half(t, packed)
	both(func(store blob.Store) {
		all, err := registry.Ingests(t.Context(), store, 2)
		if err != nil {
			t.Fatal(err)
		}
		if version, err := published.Withdraw(t.Context(), store, 2, "b3", all["b3"][0].Run, all["b3"][0].Digest); err != nil || version != "" {
			t.Fatal(version, err)
		}
		testlake.Publish(t, store)
	})
	sameIndex(t, "withdrawn", plain, packed)

	// Another list divides a domain. Moved records are objects of their own.
	both(func(store blob.Store) {
		testlake.SetList(t, store, "test blog.test")
		testlake.Publish(t, store)
	})
	sameIndex(t, "moved", plain, packed)

	// Segments that are lost, and postings of packed batches, are made again.
	v := current(t, packed)
	both(func(store blob.Store) {
		for _, s := range v.Segments {
			if err := store.Delete(t.Context(), s.DomainsMPHF); err != nil {
				t.Fatal(err)
			}
		}
	})
	damaged := 0
	for info, err := range packed.List(t.Context(), pack.Prefix) {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := packed.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pack.Decode(data, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.Entries() {
			if object, _, err := p.Object(e.Key); strings.Contains(e.Key, "/postings-") && err == nil {
				object[0] ^= 1 // in data
				damaged++
			}
		}
		if _, err := packed.Put(t.Context(), info.Key, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	both(func(store blob.Store) {
		out, err := publish.Rebuild(t.Context(), store, publish.RebuildAll, t.TempDir())
		if err != nil || len(out.Unmended)+len(out.Earlier) > 0 || out.Files == 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		if store == blob.Store(packed) && out.Postings < damaged-1 || damaged == 0 {
			t.Errorf("%d of %d postings restored", out.Postings, damaged)
		}
	})
	sameIndex(t, "rebuilt", plain, packed)
}

// TestBuildReadsEachPackOnce counts the requests for packs of a publish of many packed batches.
func TestBuildReadsEachPackOnce(t *testing.T) {
	inner := blob.NewMemory()
	const batches = 60
	for i := range batches {
		testlake.Ingest(t, inner, fmt.Sprintf("d%d", i%5), fmt.Sprintf("b%d", i), records(fmt.Sprint(i), 5))
	}
	names := testlake.Pack(t, inner, func(lake.Dataset, string) bool { return true })
	if len(names) != batches {
		t.Fatalf("%d batches in packs", len(names))
	}
	packs := map[string]bool{}
	for _, name := range names {
		packs[name] = true
	}
	counting := &packReads{Store: inner}
	testlake.Publish(t, counting)
	// Plan, Build and Verify each begin anew.
	if most := 3 * len(packs); counting.gets > most {
		t.Errorf("%d reads of %d packs, want at most %d", counting.gets, len(packs), most)
	}
	expected := map[string]int64{}
	for b, err := range current(t, inner).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		expected[fmt.Sprint(b.DatasetID, b.Batch)] = b.Rows
		if b.Pack == "" {
			t.Errorf("batch %s of dataset %d has no pack in the version", b.Batch, b.DatasetID)
		}
	}
	if len(expected) != batches {
		t.Errorf("%d batches published", len(expected))
	}
}

// packReads counts reads of packs.
type packReads struct {
	blob.Store
	mu   sync.Mutex
	gets int
}

func (s *packReads) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if _, ok := pack.NameOf(key); ok {
		s.mu.Lock()
		s.gets++
		s.mu.Unlock()
	}
	return s.Store.Get(ctx, key)
}

// TestBatchInAnotherPack holds that a batch whose pack is lost is whole again when it is ingested
// again with the same content, also into another pack.
func TestBatchInAnotherPack(t *testing.T) {
	store := blob.NewMemory()
	all := func(lake.Dataset, string) bool { return true }
	testlake.Ingest(t, store, "alpha", "b1", records("a", 12))
	testlake.Ingest(t, store, "beta", "b1", records("b", 12))
	lost := testlake.Pack(t, store, all)[0]
	testlake.Publish(t, store)
	if err := store.Delete(t.Context(), pack.Key(lost)); err != nil {
		t.Fatal(err)
	}
	r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{})
	named := strings.Join(r.Problems, "\n")
	for _, want := range []string{pack.Key(lost), "batch b1 of dataset 1", "batch b1 of dataset 2", "starter ingest"} {
		if !strings.Contains(named, want) || err != nil {
			t.Errorf("%q is not in %s, %v", want, named, err)
		}
	}
	testlake.Ingest(t, store, "alpha", "b1", records("a", 12))
	again := testlake.PackAgain(t, store, all)
	testlake.Ingest(t, store, "beta", "b1", records("b", 12))
	if len(again) != 1 || again[0] == lost {
		t.Fatalf("packs %q", again)
	}
	check := func(when string) {
		t.Helper()
		r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{Deep: true, TempDir: t.TempDir()})
		if err != nil || len(r.Problems) > 0 {
			t.Errorf("%s: %q, %v", when, r.Problems, err)
		}
	}
	check("ingested again")
	// Both are built again, from where they are now, because a batch beside them is replaced.
	v := current(t, store)
	for _, s := range v.Segments {
		if err := store.Delete(t.Context(), s.DomainsMPHF); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := publish.Rebuild(t.Context(), store, publish.RebuildAll, t.TempDir()); err != nil || len(out.Unmended) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
	check("rebuilt")
	testlake.Ingest(t, store, "beta", "b1", records("c", 12))
	testlake.Publish(t, store)
	check("replaced")
	if b, ok, err := current(t, store).FindBatch(t.Context(), 1, "b1"); !ok || err != nil || b.Pack != again[0] {
		t.Errorf("the version names pack %+v, want %s, %v", b, again[0], err)
	}
}
