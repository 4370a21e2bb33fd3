package suppress_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/suppress"
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
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "site3.test")
	if err != nil {
		t.Fatal(err)
	}
	r := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC()}
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

// A build of trees that ends after a collection has deleted its segment leaves a file with
// directories of hidden rows, and page keys can be left too. Status names them for rules about a
// part of a domain as well, and not those of other rows or of segments that are in use.
func TestStatusNamesWhatIsLeftOfSegments(t *testing.T) {
	const site = "https://www.site3.test"
	for _, c := range []struct {
		kind        catalog.TargetKind
		text        string
		trees, keys bool
	}{
		{catalog.URLTarget, site + "/x/3/3", true, true},
		{catalog.URLTarget, site + "/x/3", true, true}, // directly in /x/
		{catalog.URLTarget, site + "/x/4/9", false, false},
		{catalog.PrefixTarget, site + "/x/3/", true, true},
		{catalog.PrefixTarget, site + "/x/2", true, false}, // a row directly in /x/ may begin so
		{catalog.PrefixTarget, site + "/z/", false, false},
		{catalog.HostTarget, "www.site3.test", true, true},
		{catalog.HostTarget, "www.site2.test", false, false},
		{catalog.DomainTarget, "site3.test", true, true},
		{catalog.DomainTarget, "site2.test", false, false},
	} {
		store := blob.NewMemory()
		if err := treebuild.SetAlways(t.Context(), store, true); err != nil {
			t.Fatal(err)
		}
		testlake.Ingest(t, store, "news", "a", []testlake.Record{{URL: site + "/x/3/3"}, {URL: site + "/x/3"}, {URL: site + "/y"}})
		testlake.Publish(t, store)
		r := rule(t, 1, c.kind, c.text)
		if _, err := suppress.Add(t.Context(), store, r, suppress.Options{TempDir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		left := map[string][]byte{}
		for info, err := range store.List(t.Context(), "index/segments/") {
			if err == nil && strings.Contains(info.Key, "/tree-") {
				left[info.Key], _, err = store.Get(t.Context(), info.Key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var file bytes.Buffer
		w := segment.NewPageKeysWriter(&file)
		key := part.PageKey{Host: "www.site3.test", Path: "/x/3", Port: part.NoPort}
		if err := w.Add(0, &part.PageKeyBlock{FirstRow: 7, Keys: []part.PageKey{{Port: part.NoPort}, key}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		left["index/segments/00000000000000000000000000000000/parts.keys.zst"] = file.Bytes()
		// Another batch, so that what is compacted is another segment.
		testlake.Ingest(t, store, "news", "b", []testlake.Record{{URL: "https://other.test/"}})
		testlake.Publish(t, store)
		if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
			t.Fatal(err)
		}
		status := func() (gone bool, objects []string) {
			t.Helper()
			s, err := suppress.Inspect(t.Context(), store, r.ID, false)
			if err != nil || len(s.Unknown) > 0 {
				t.Fatal(s.Unknown, err)
			}
			for _, h := range s.Holdings {
				if h.Bytes == 0 || len(h.Versions) > 0 || !strings.Contains(h.Until, "starter gc") {
					t.Errorf("%s: %+v", c.text, h)
				}
				objects = append(objects, h.Object)
			}
			slices.Sort(objects)
			return s.Gone, objects
		}
		if gone, objects := status(); !gone {
			t.Fatalf("%s: %q hold something before", c.text, objects)
		}
		var want []string
		for key, data := range left {
			if _, err := store.Put(t.Context(), key, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			if c.trees && strings.Contains(key, "/tree-") || c.keys && strings.HasSuffix(key, "/parts.keys.zst") {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		if gone, got := status(); gone != (len(want) == 0) || !slices.Equal(got, want) {
			t.Errorf("%s: %q hold something, want %q; gone %v", c.text, got, want, gone)
		}
		if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
			t.Fatal(err)
		}
		if gone, got := status(); !gone {
			t.Errorf("%s: %q hold something after a collection", c.text, got)
		}
	}
}
