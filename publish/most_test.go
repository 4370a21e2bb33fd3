package publish_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
)

// A plan covers a limited number of batches, since it is one object. A batch that replaces one of a
// segment with more waits and stops no other, and folding makes no such segment.
func TestPlansAreBounded(t *testing.T) {
	before := *publish.MaxPlanned
	t.Cleanup(func() { *publish.MaxPlanned = before })
	*publish.MaxPlanned = 4
	store := blob.NewMemory()
	add := func(batch string, rows int) {
		t.Helper()
		all := make([]testlake.Record, rows)
		for i := range all {
			all[i].URL = fmt.Sprintf("https://%s.test/%d", batch, i)
		}
		testlake.Ingest(t, store, "alpha", batch, all)
	}
	live := func() (*catalog.Version, map[string]int64) {
		t.Helper()
		v := current(t, store)
		all := map[string]int64{}
		for b, err := range v.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			all[b.Batch] = b.Rows
		}
		return v, all
	}
	for n := range 20 {
		add(fmt.Sprint("b", n), 1)
		testlake.Publish(t, store)
		compact(t, store, false)
		v, all := live()
		if len(all) != n+1 || len(v.Segments) > publish.TargetSegments+1 {
			t.Fatalf("%d batches in %d segments after %d publishes", len(all), len(v.Segments), n+1)
		}
		for _, s := range v.Segments {
			if v.CountIn(s.ID) > *publish.MaxPlanned {
				t.Errorf("after %d publishes a segment has %d batches", n+1, v.CountIn(s.ID))
			}
		}
	}
	if info, err := store.Stat(t.Context(), catalog.ManifestKey); err != nil || info.Size > 40*256 {
		t.Errorf("a manifest of %d bytes for some 40 versions, %v", info.Size, err)
	}
	add("b0", 3)
	testlake.Publish(t, store)
	if _, all := live(); all["b0"] != 3 {
		t.Errorf("not replaced: %v", all)
	}
	*publish.MaxPlanned = 1
	add("b1", 3)
	add("new", 1)
	done := testlake.Publish(t, store)
	if _, all := live(); all["b1"] != 1 || all["new"] != 1 || len(done.Skipped) != 1 || !strings.Contains(done.Skipped[0].Reason, "at most 1") {
		t.Errorf("%v, %+v", all, done.Skipped)
	}
	*publish.MaxPlanned = before
	testlake.Publish(t, store)
	if _, all := live(); all["b1"] != 3 {
		t.Errorf("still waits: %v", all)
	}
}
