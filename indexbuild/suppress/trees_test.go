package suppress_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

// The index of path trees has names of hosts, so the status of a takedown names it until it is
// gone.
func TestStatusNamesIndexesOfTrees(t *testing.T) {
	store := blob.NewMemory()
	if err := treebuild.SetAlways(t.Context(), store, true); err != nil {
		t.Fatal(err)
	}
	for _, batch := range []string{"a", "b"} {
		var records []testlake.Record
		for i := range 60 {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://www.site%d.test/%s/%d", i%6, batch, i)})
		}
		testlake.Ingest(t, store, "news", batch, records)
		testlake.Publish(t, store)
	}
	target, err := takedown.ParseTarget(urlnorm.BuiltinSuffixes(), takedown.Domain, "site3.test")
	if err != nil {
		t.Fatal(err)
	}
	r := takedown.Rule{ID: takedown.NewID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC()}
	if _, err := suppress.Add(t.Context(), store, r, suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	trees := func() (all, held []string) {
		t.Helper()
		for info, err := range store.List(t.Context(), "index/segments/") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(info.Key, "/tree-") {
				all = append(all, info.Key)
			}
		}
		s, err := suppress.Inspect(t.Context(), store, r.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range s.Holdings {
			if strings.Contains(h.Object, "/tree-") {
				held = append(held, h.Object)
			}
		}
		slices.Sort(held)
		return all, held
	}
	before, held := trees()
	if len(before) != 2 || !slices.Equal(before, held) {
		t.Fatalf("%q hold the name, of %q", held, before)
	}
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	after, held := trees()
	if len(after) != 3 || !slices.Equal(before, held) {
		t.Fatalf("after a compaction %q hold the name, of %q", held, after)
	}
}
