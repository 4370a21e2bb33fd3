package publish_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
)

// A collection reads the plans of publishes, moves and compactions that are under way, and not what
// their steps leave beside them: which batches are damaged, what is done, at what a worker died.
func TestCollectionBesideStepsUnderWay(t *testing.T) {
	collect := func(store blob.Store, when string) {
		t.Helper()
		if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	store, run := blob.NewMemory(), testlake.Run()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://a.test/"}})
	testlake.Publish(t, store)
	done := testlake.Ingest(t, store, "alpha", "b2", []testlake.Record{{URL: "https://b.test/"}})
	plan, err := publish.Plan(t.Context(), store, run, 0)
	if err != nil {
		t.Fatal(err)
	}
	collect(store, "beside a plan")
	damage(t, store, record(t, store, 1, "b2", done.Digest).Postings[0].Key, "truncated")
	built, err := publish.Build(t.Context(), store, plan.PlanKey, 0, t.TempDir())
	if err != nil || built.Damaged != 1 {
		t.Fatalf("%+v, %v", built, err)
	}
	collect(store, "beside a list of damaged batches")
	for _, name := range []string{"move-0-0123-000000", "unite-0-0123-000000", "publish-0-0123"} {
		data, err := codec.Seal(map[string]any{"format": 1, "object": "urls/x", "beat": 3})
		if err == nil {
			_, err = store.Put(t.Context(), lake.StagingPrefix(run)+"suspects/"+name+".json", data, blob.Condition{})
		}
		if err != nil {
			t.Fatal(err)
		}
		collect(store, "beside the marker of a step")
	}

	// Beside each write of a compaction.
	inner := blob.NewMemory()
	for _, b := range []string{"b1", "b2", "b3"} {
		testlake.Ingest(t, inner, "alpha", b, []testlake.Record{{URL: "https://" + b + ".test/"}})
		testlake.Publish(t, inner)
	}
	faults, writes := blobtest.NewFaulty(inner), 0
	faults.Inject(blobtest.Fault{
		Op: blob.OpPut, Key: func(key string) bool { return strings.HasPrefix(key, "staging/") }, After: true,
		Do: func() {
			writes++
			collect(inner, "beside a compaction")
		},
	})
	if _, err := publish.CompactAll(t.Context(), faults, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if writes < 3 {
		t.Errorf("%d writes", writes)
	}
}
