package publish_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
)

// finished returns the last ingest of batch b1 of dataset 1.
func finished(t *testing.T, store blob.Store) publish.Ingest {
	t.Helper()
	return testlake.Finished(t, store, 1, "b1")
}

func TestFindTellsWhatBecameOfABatch(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	first := finished(t, store)
	find := func(ref publish.Ingest, seen string) publish.Found {
		t.Helper()
		found, err := publish.Find(t.Context(), store, ref, seen)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(first, ""); found != (publish.Found{}) {
		t.Errorf("before a publish: %+v", found)
	}
	testlake.Publish(t, store)
	id := current(t, store).ID
	if found := find(first, ""); found != (publish.Found{Current: id, Published: true}) {
		t.Errorf("published: %+v", found)
	}
	testlake.Ingest(t, store, "alpha", "b1", records("b", 5))
	second := finished(t, store)
	if found := find(second, ""); found != (publish.Found{Current: id}) {
		t.Errorf("the next ingest, before its publish: %+v", found)
	}
	testlake.Publish(t, store)
	id = current(t, store).ID
	for name, ref := range map[string]publish.Ingest{"replaced": first, "new": second} {
		if found := find(ref, ""); found != (publish.Found{Current: id, Published: true}) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	testlake.Ingest(t, store, "alpha", "b1", records("c", 5))
	third := finished(t, store)
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
	ref := finished(t, store)
	before := current(t, store).ID
	if found, err := publish.Find(t.Context(), store, ref, ""); err != nil || found != (publish.Found{Current: before}) {
		t.Errorf("before its publish: %+v, %v", found, err)
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10})
	after := current(t, store).ID
	if found, err := publish.Find(t.Context(), store, ref, ""); err != nil || found != (publish.Found{Current: after, Published: true}) {
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
	ref := finished(t, inner)
	store := blobtest.NewFaulty(inner)
	store.Inject(blobtest.Fault{Key: func(key string) bool { return key != catalog.ManifestKey }})
	for range 2 {
		if found, err := publish.Find(t.Context(), store, ref, id); err != nil || found != (publish.Found{Current: id}) {
			t.Fatalf("%+v, %v", found, err)
		}
	}
	testlake.Publish(t, inner)
	found, err := publish.Find(t.Context(), inner, ref, id)
	if want := (publish.Found{Current: current(t, inner).ID, Published: true}); err != nil || found != want {
		t.Errorf("%+v, %v, want %+v", found, err, want)
	}
}

// An ingest that waits is told if nothing names its batch any more.
func TestLostDocumentIsTold(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	in := finished(t, store)
	if err := store.Delete(t.Context(), documents(t, store)...); err != nil {
		t.Fatal(err)
	}
	if found, err := publish.Find(t.Context(), store, in, ""); err != nil || found.Published || !strings.Contains(found.Damage, "ingest it again") {
		t.Errorf("%+v, %v", found, err)
	}
}
