//go:build soak

package e2e

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// TestRealDataMovesToAnotherList makes a lake of real data by a list without the rules of two
// hosters of many sites, github.io and blogspot, and moves it to the list of the program. Its
// answers are those of a lake that had this list from the start. It logs what was written again.
func TestRealDataMovesToAnotherList(t *testing.T) {
	t.Parallel()
	full := urlnorm.BuiltinSuffixes()
	var rules []string
	removed := 0
	for rule := range strings.Lines(full.Text()) {
		if rule == "github.io\n" || strings.HasPrefix(rule, "blogspot.") {
			removed++
			continue
		}
		rules = append(rules, rule)
	}
	less, err := urlnorm.ParseSuffixList([]byte(strings.Join(rules, "")))
	if err != nil || removed < 2 {
		t.Fatalf("%d rules removed: %v", removed, err)
	}
	var stores [2]blob.Store
	for i, list := range []*urlnorm.SuffixList{less, full} {
		lakeURL := "file://" + filepath.ToSlash(t.TempDir())
		if stores[i], err = blob.Open(t.Context(), lakeURL); err != nil {
			t.Fatal(err)
		}
		if err := catalog.SetRules(t.Context(), stores[i], lake.Rules{}, list); err != nil {
			t.Fatal(err)
		}
		for n, d := range realDatasets {
			var inputs []string
			for _, f := range d.files {
				inputs = append(inputs, testenv.Shared(t, "data", f))
			}
			testlake.IngestSpec(t, stores[i], d.spec(lakeURL, "b1", inputs))
			if n == len(realDatasets)/2 {
				testlake.Publish(t, stores[i])
			}
		}
		testlake.Publish(t, stores[i])
	}
	before := stored(t, stores[0])
	if err := catalog.SetRules(t.Context(), stores[0], lake.RulesOf(less), full); err != nil {
		t.Fatal(err)
	}
	testlake.Publish(t, stores[0])
	after := stored(t, stores[0])
	sum := func(prefix string, all map[string]int64, without map[string]int64) (objects int, bytes int64) {
		for key, n := range all {
			if _, old := without[key]; !old && strings.HasPrefix(key, prefix) {
				objects++
				bytes += n
			}
		}
		return objects, bytes
	}
	for _, prefix := range []string{"urls/", "batches/", "index/segments/"} {
		n, bytes := sum(prefix, before, nil)
		written, writtenBytes := sum(prefix, after, before)
		t.Logf("%-16s %3d objects of %9d bytes, written again %3d of %9d", prefix, n, bytes, written, writtenBytes)
		if prefix == "urls/" && (writtenBytes == 0 || writtenBytes > bytes*9/10) {
			t.Errorf("%d bytes of parts were written again, the lake has %d", writtenBytes, bytes)
		}
	}

	snaps := [2]*lookup.Snapshot{}
	for i, store := range stores {
		s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(s.Close)
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if snaps[i], err = s.Acquire(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(snaps[i].Release)
	}
	truth := scan(t, realDatasets) // by domain of the program's list
	domains := pick(truth, 50, 100, 10)
	moved := 0
	for _, domain := range slices.Sorted(maps.Keys(truth)) {
		if less.Domain(domain) != domain && moved < 200 {
			moved++
			domains = append(domains, domain)
		}
	}
	if moved < 20 {
		t.Errorf("only %d domains are new", moved)
	}
	for _, domain := range domains {
		want, got := allOf(t, snaps[1], domain), allOf(t, snaps[0], domain)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-built by the list +moved to it):\n%.3000s", domain, diff)
		}
		rows := 0
		for _, items := range truth[domain] {
			rows += len(items)
		}
		if len(got) == 0 && rows > 0 {
			t.Fatalf("%s has no rows, the files have %d", domain, rows)
		}
	}
}

// allOf returns all URLs of a domain, by dataset and in order.
func allOf(t *testing.T, snap *lookup.Snapshot, domain string) (urls []string) {
	t.Helper()
	page, err := snap.Domain(context.Background(), lookup.Target{Host: domain}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range page.Datasets {
		q := lookup.URLsQuery{Target: lookup.Target{Host: domain}, Dataset: d.ID, Limit: 1000}
		for more := true; more; more = q.Cursor != "" {
			p, err := snap.URLs(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Len() {
				urls = append(urls, d.Name+" "+string(p.URL(i)))
			}
			q.Cursor = p.Cursor
		}
	}
	return urls
}

// stored returns the sizes of a lake's objects.
func stored(t *testing.T, store blob.Store) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = info.Size
	}
	return all
}
