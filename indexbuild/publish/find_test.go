package publish_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
)

// ingests returns the registered ingests of batch b1 of dataset 1, at least one.
func ingests(t *testing.T, store blob.Store) []registry.Ingest {
	t.Helper()
	all, err := registry.Ingests(t.Context(), store, 1)
	if err != nil || len(all["b1"]) == 0 {
		t.Fatal(all, err)
	}
	return all["b1"]
}

func TestFindTellsWhatBecameOfABatch(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	first := segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: ingests(t, store)[0].Digest}
	find := func(ref segment.BatchRef, seen string) published.Found {
		t.Helper()
		found, err := published.Find(t.Context(), store, ref, seen)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(first, ""); found != (published.Found{}) {
		t.Errorf("before a publish: %+v", found)
	}
	testlake.Publish(t, store)
	id := current(t, store).ID
	if found := find(first, ""); found != (published.Found{Current: id, Published: true}) {
		t.Errorf("published: %+v", found)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("b", 5))
	all := ingests(t, store)
	second := segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: all[len(all)-1].Digest}
	if found := find(second, ""); found != (published.Found{Current: id}) {
		t.Errorf("the next ingest, before its publish: %+v", found)
	}
	testlake.Publish(t, store)
	id = current(t, store).ID
	for name, ref := range map[string]segment.BatchRef{"replaced": first, "new": second, "any": {DatasetID: 1, Batch: "b1"}} {
		if found := find(ref, ""); found != (published.Found{Current: id, Published: true}) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	testlake.Ingest(t, store, "alpha", "b1", records("c", 5))
	all = ingests(t, store)
	third := segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: all[len(all)-1].Digest}
	if err := store.Delete(t.Context(), lake.BatchKey(1, "b1", third.Digest)); err != nil {
		t.Fatal(err)
	}
	if found := find(third, ""); found.Published || !strings.Contains(found.Damage, third.Digest) {
		t.Errorf("without its record: %+v", found)
	}
}

// A batch gets back its first content: an ingest of what it held before another one replaced it. It
// is published only when a version has that content.
func TestFirstContentAgainIsPublished(t *testing.T) {
	store := blob.NewMemory()
	first := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", records("b", 5))
	testlake.Publish(t, store)
	again := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	if again.Digest != first.Digest || !again.Current {
		t.Fatalf("%+v, want the record %s", again, first.Digest)
	}
	ref := segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: again.Digest}
	before := current(t, store).ID
	if found, err := published.Find(t.Context(), store, ref, ""); err != nil || found != (published.Found{Current: before}) {
		t.Errorf("before its publish: %+v, %v", found, err)
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10})
	after := current(t, store).ID
	if found, err := published.Find(t.Context(), store, ref, ""); err != nil || found != (published.Found{Current: after, Published: true}) {
		t.Errorf("after its publish: %+v, %v", found, err)
	}
}

// TestFindIsCheapUntilThereIsAnotherVersion looks again at a lake of which only the manifest can be
// read.
func TestFindIsCheapUntilThereIsAnotherVersion(t *testing.T) {
	inner := blob.NewMemory()
	testlake.Ingest(t, inner, "alpha", "b0", records("a", 1))
	testlake.Publish(t, inner)
	id := current(t, inner).ID
	testlake.Ingest(t, inner, "alpha", "b1", records("b", 1))
	ref := segment.BatchRef{DatasetID: 1, Batch: "b1", Digest: ingests(t, inner)[0].Digest}
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Key: func(key string) bool { return key != manifest.Key }})
	for range 2 {
		if found, err := published.Find(t.Context(), store, ref, id); err != nil || found != (published.Found{Current: id}) {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	testlake.Publish(t, inner)
	found, err := published.Find(t.Context(), inner, ref, id)
	if want := (published.Found{Current: current(t, inner).ID, Published: true}); err != nil || found != want {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
}

// TestWithdrawnBatchIsNotPublished withdraws a batch before a publish, between a publish's plan and
// its commit, and after the commit.
func TestWithdrawnBatchIsNotPublished(t *testing.T) {
	withdraw := func(t *testing.T, store blob.Store) string {
		t.Helper()
		version, err := published.Withdraw(t.Context(), store, 1, "b1", ingests(t, store)[0].Run, "")
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	start := func(t *testing.T) blob.Store {
		store := blob.NewMemory()
		testlake.Ingest(t, store, "zeta", "b1", records("z", 1)) // dataset 1 is the one to withdraw
		return store
	}
	t.Run("before", func(t *testing.T) {
		store := start(t)
		if version := withdraw(t, store); version != "" {
			t.Errorf("in version %q", version)
		}
		if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("before the registry is lost", func(t *testing.T) {
		store := start(t)
		testlake.Ingest(t, store, "other", "b0", records("o", 1))
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "zeta", "b2", records("y", 1))
		all, err := registry.Ingests(t.Context(), store, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := published.Withdraw(t.Context(), store, 1, "b2", all["b2"][0].Run, ""); err != nil {
			t.Fatal(err)
		}
		if err := store.Delete(t.Context(), registry.ShardKey(registry.ShardOf(1))); err != nil {
			t.Fatal(err)
		}
		r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
		if err != nil || len(r.Lost) != 2 || !strings.Contains(r.Lost[0], "b2") {
			t.Errorf("%+v, %v", r, err)
		}
		if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
			t.Errorf("%+v, %v", s, err)
		}
	})
	for _, name := range []string{"and ingested again", "with another ingest of the same content"} {
		t.Run(name+", before the registry is lost", func(t *testing.T) {
			store := start(t)
			testlake.Ingest(t, store, "other", "b0", records("o", 1))
			testlake.Ingest(t, store, "zeta", "b0", records("y", 1)) // without a withdrawal
			if name == "and ingested again" {
				withdraw(t, store)
				testlake.Ingest(t, store, "zeta", "b1", records("z", 1))
			} else {
				testlake.Ingest(t, store, "zeta", "b1", records("z", 1))
				withdraw(t, store)
			}
			if err := store.Delete(t.Context(), registry.ShardKey(registry.ShardOf(1))); err != nil {
				t.Fatal(err)
			}
			r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
			if err != nil || len(r.Lost) != 1 || !strings.Contains(r.Lost[0], "2 batches will be published") {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	t.Run("between", func(t *testing.T) {
		store := start(t)
		late := begin(t, store)
		if version := withdraw(t, store); version != "" {
			t.Errorf("in version %q", version)
		}
		if done := late.commit(t, store); !done.Stale {
			t.Errorf("committed: %+v", done)
		}
	})
	t.Run("after", func(t *testing.T) {
		store := start(t)
		testlake.Publish(t, store)
		if version, want := withdraw(t, store), current(t, store).ID; version != want {
			t.Errorf("in version %q, want %q", version, want)
		}
		if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// TestWithdrawalDuringACommit withdraws a batch after the commit has looked into the registry, and
// before it replaces the manifest.
func TestWithdrawalDuringACommit(t *testing.T) {
	inner := blob.NewMemory()
	testlake.Ingest(t, inner, "other", "b0", records("o", 1))
	testlake.Publish(t, inner)
	testlake.Ingest(t, inner, "other", "b1", records("z", 1))
	run := ingests(t, inner)[0].Run
	late := begin(t, inner)
	store := blobtest.NewFaulty(inner)
	withdrawn := false
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == manifest.Key }, Nth: 1, Do: func() {
		withdrawn = true
		if version, err := published.Withdraw(t.Context(), inner, 1, "b1", run, ""); err != nil || version != "" {
			t.Errorf("withdraw: version %q, %v", version, err)
		}
	}})
	if done := late.commit(t, store); !withdrawn || !done.Stale {
		t.Errorf("withdrawn %v, committed %+v", withdrawn, done)
	}
	if _, ok := findLive(t, current(t, inner), 1, "b1"); ok {
		t.Error("the withdrawn batch is published")
	}
}

// TestWithdrawalOfWhatACommitPublishes withdraws an ingest whose commit has looked into the
// registry before, and replaces the manifest right after. The ingest keeps its place in the order,
// also if the worker that withdraws it dies before it is put back.
func TestWithdrawalOfWhatACommitPublishes(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inner := blob.NewMemory()
		testlake.Ingest(t, inner, "other", "b0", records("o", 1))
		testlake.Publish(t, inner)
		digest := testlake.Ingest(t, inner, "other", "b1", records("z", 1)).Digest
		late := begin(t, inner)
		testlake.Ingest(t, inner, "other", "b1", records("corrected", 1))
		before := ingests(t, inner)

		looked, withdrawn, committed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		first := blobtest.NewFaulty(inner)
		first.Inject(blobtest.Fault{Op: blob.OpPut, Key: func(key string) bool { return key == manifest.Key }, Nth: 1, Do: func() {
			close(looked)
			<-withdrawn
		}})
		go func() {
			defer close(committed)
			if _, err := publish.Commit(t.Context(), first, late.key, late.built, t.TempDir()); err != nil {
				t.Error(err)
			}
		}()
		<-looked
		second := blobtest.NewFaulty(inner)
		isOrder := func(key string) bool { return key == registry.ShardKey(registry.ShardOf(1)) }
		second.Inject(blobtest.Fault{Op: blob.OpPut, Key: isOrder, Nth: 1, After: true, Do: func() {
			close(withdrawn)
			<-committed
		}})
		if dies {
			second.Inject(blobtest.Fault{Op: blob.OpPut, Key: isOrder, Nth: 2})
		}
		version, err := published.Withdraw(t.Context(), second, 1, "b1", before[0].Run, digest)
		if dies {
			if err == nil {
				t.Error("the fault did not happen")
			}
			version, err = published.Withdraw(t.Context(), inner, 1, "b1", before[0].Run, digest)
		}
		if want := current(t, inner).ID; err != nil || version != want {
			t.Errorf("withdrawn from version %q, want %q: %v", version, want, err)
		}
		if diff := cmp.Diff(before, ingests(t, inner)); diff != "" {
			t.Errorf("the order of ingests: %s", diff)
		}
	}
}

// TestWithdrawalWhileABatchMoves withdraws a published batch whose record in the registry is
// already the one under the next public suffix list.
func TestWithdrawalWhileABatchMoves(t *testing.T) {
	store := blob.NewMemory()
	testlake.SetList(t, store, "x y")
	digest := testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://s.a.x/1"}, {URL: "https://t.a.x/1"}}).Digest
	testlake.Publish(t, store)
	testlake.SetList(t, store, "x y a.x")
	plan, err := publish.Plan(t.Context(), store, testlake.Run(), 0)
	if err != nil || plan.RewriteTasks != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	if _, err := publish.Rewrite(t.Context(), store, plan.RewriteKey, 0, t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	before := ingests(t, store)
	if before[0].MovedFrom != digest {
		t.Fatalf("not moved: %+v", before)
	}
	version, err := published.Withdraw(t.Context(), store, 1, "b1", before[0].Run, digest)
	if want := current(t, store).ID; err != nil || version != want {
		t.Errorf("withdrawn from version %q, want %q: %v", version, want, err)
	}
	if diff := cmp.Diff(before, ingests(t, store)); diff != "" {
		t.Errorf("the order of ingests: %s", diff)
	}
}

// TestWithdrawalAfterARestoredRegistry withdraws an ingest that the registry has under another run
// since it was restored.
func TestWithdrawalAfterARestoredRegistry(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "other", "b0", records("o", 1))
	testlake.Publish(t, store)
	digest := testlake.Ingest(t, store, "other", "b1", records("z", 1)).Digest
	run := ingests(t, store)[0].Run
	if err := store.Delete(t.Context(), registry.ShardKey(registry.ShardOf(1))); err != nil {
		t.Fatal(err)
	}
	r, err := publish.Rebuild(t.Context(), store, testlake.Run(), t.TempDir())
	if err != nil || len(r.Lost) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if version, err := published.Withdraw(t.Context(), store, 1, "b1", run, digest); err != nil || version != "" {
		t.Fatalf("withdrawn from version %q, %v", version, err)
	}
	if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
		t.Errorf("%+v, %v", s, err)
	}
}
