package publish_test

import (
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
)

// finish leaves a batch, whose record is in the store, to the next publish, as an ingest does that
// began at start.
func finish(t testing.TB, store blob.Store, dataset uint32, batch, digest string, start int64, replace bool) {
	t.Helper()
	c := []catalog.Change{{DatasetID: dataset, Batch: batch, Digest: digest, Replace: replace}}
	if err := catalog.PutPending(t.Context(), store, testlake.Run(), start, c); err != nil {
		t.Fatal(err)
	}
}

// whatWaits returns what the current version lacks of what waits.
func whatWaits(t testing.TB, store blob.Store) *catalog.Changes {
	t.Helper()
	s, err := catalog.LookBatches(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// documents returns the keys of what waits.
func documents(t testing.TB, store blob.Store) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), catalog.PendingRoot) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// The documents of what a version has are deleted by the commit of the next one.
func TestDocumentsStayUntilTheNextVersion(t *testing.T) {
	store := blob.NewMemory()
	for n := range 4 {
		testlake.Ingest(t, store, "alpha", string(rune('a'+n)), records("a", 10+n))
		testlake.Publish(t, store)
		if got := documents(t, store); len(got) != 1 {
			t.Errorf("after %d publishes: %q", n+1, got)
		}
		if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing || len(documents(t, store)) != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// An ingest that began before one that is published changes nothing, however late it finishes, also
// if the later one has the same content as an earlier one.
func TestEarlierStartNeverReplacesALaterOne(t *testing.T) {
	store := blob.NewMemory()
	a := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	slow := time.Now().UnixNano()
	again := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	if again.Digest != a.Digest {
		t.Fatal(again)
	}
	testlake.Publish(t, store) // nothing
	testlake.Ingest(t, store, "beta", "b1", records("b", 20))
	testlake.Publish(t, store) // knows that the batch began later
	testlake.Ingest(t, store, "beta", "b2", records("c", 21))
	testlake.Publish(t, store) // deletes what said so
	b := testlake.Ingest(t, store, "alpha", "other", records("b", 11))
	testlake.Publish(t, store)
	data, _, err := store.Get(t.Context(), b.BatchKey)
	if err == nil {
		_, err = store.Put(t.Context(), lake.BatchKey(1, "b1", b.Digest), data, blob.Condition{})
	}
	if err != nil {
		t.Fatal(err)
	}
	finish(t, store, 1, "b1", b.Digest, slow, false)
	if done := testlake.Publish(t, store); len(done.Skipped) > 0 || len(whatWaits(t, store).Batches) > 0 {
		t.Errorf("%+v", done)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10, "1/other": 11, "2/b1": 20, "2/b2": 21})
}

// A batch that began before another one replaced its dataset does not come back, although it
// finishes after that is published.
func TestLateBatchOfAReplacedDataset(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	slow := time.Now().UnixNano()
	testlake.Replace(t, store, "alpha", "b2", records("b", 20))
	for range 3 {
		testlake.Publish(t, store)
		testlake.Ingest(t, store, "beta", "b1", records("c", 30))
	}
	late := testlake.Ingest(t, store, "alpha", "b3", records("d", 40))
	for _, key := range documents(t, store) {
		if strings.HasPrefix(key, "pending/1/") {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish(t, store, 1, "b3", late.Digest, slow, false)
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b2": 20, "2/b1": 30})
	testlake.Restore(t, store, catalog.BatchName{DatasetID: 1, Batch: "b3"})
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b2": 20, "1/b3": 40, "2/b1": 30})
}
