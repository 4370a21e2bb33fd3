package publish_test

import (
	"testing"

	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
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
	if err := store.Delete(t.Context(), manifest.Key, manifest.VersionKey(lost)); err != nil {
		t.Fatal(err)
	}
	if _, err := published.FindAll(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	expectLive(t, store, map[string]int64{"1/b1": 10})
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 5})
	if s, err := publish.Plan(t.Context(), store, testlake.Run(), 0); err != nil || !s.Nothing {
		t.Errorf("afterwards: %+v, %v", s, err)
	}
}

// What a commit tells the registry arrives late: a later version has replaced the batch meanwhile,
// and the batch has got back its first content, which waits to be published.
func TestLateSettlementHidesNothing(t *testing.T) {
	store := blob.NewMemory()
	first := testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	testlake.Publish(t, store)
	version := current(t, store).ID
	testlake.Ingest(t, store, "alpha", "b1", records("b", 5))
	testlake.Publish(t, store)
	testlake.Ingest(t, store, "alpha", "b1", records("a", 10))
	late := []registry.Pending{{DatasetID: 1, Batch: "b1", Digest: first.Digest}}
	if err := registry.Settle(t.Context(), store, version, late); err != nil {
		t.Fatal(err)
	}
	testlake.Publish(t, store)
	expectLive(t, store, map[string]int64{"1/b1": 10})
}
