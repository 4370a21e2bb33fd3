package publish_test

import (
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
)

// A version that replaced a batch is lost with the manifest, and something else than a publish
// finds that first. The next publish has the batch nevertheless, although the version in the place
// of the lost one has as many batches.
func TestReplacementInALostVersionIsPublishedAgain(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", records("b", 5))
	testlake.Publish(t, store)
	lost := current(t, store).ID
	if err := store.Delete(t.Context(), catalog.ManifestKey, catalog.VersionKey(lost)); err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Recover(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10})
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 5})
	if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
}
