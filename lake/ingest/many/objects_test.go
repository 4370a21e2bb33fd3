package many_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/many"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
)

// lists writes n lists of ten URLs, one of which is none, and returns their folder and, by domain
// and dataset, how many URLs of the domain a dataset has.
func lists(t *testing.T, n int) (folder string, counts map[string]map[string]int64) {
	t.Helper()
	folder, counts = t.TempDir(), map[string]map[string]int64{}
	for i := range n {
		name := fmt.Sprintf("list-%04d", i)
		var text strings.Builder
		for u := range 9 {
			domain := fmt.Sprintf("site%d.test", (i*7+u*u)%40)
			fmt.Fprintf(&text, "http://www.%s/%s/%d\n", domain, name, u)
			if counts[domain] == nil {
				counts[domain] = map[string]int64{}
			}
			counts[domain][name]++
		}
		text.WriteString("http://\n")
		if err := os.WriteFile(filepath.Join(folder, name+".txt"), []byte(text.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return folder, counts
}

// TestObjectsOfManyLists holds that each list has a part, a record, postings and a list of rejects,
// and that the answers about the lists equal a count of them.
func TestObjectsOfManyLists(t *testing.T) {
	const n = 300
	folder, counts := lists(t, n)
	store := blob.NewMemory()
	spec := specOf(store, many.FromFiles, folder)
	spec.MaxRejectRate = 1
	_, done := takeUp(t, store, spec)
	if len(done) != n || slices.ContainsFunc(done, func(o many.Outcome) bool { return o.Error != "" || o.Rejected["no_host"] != 1 }) {
		t.Fatalf("%+v", done)
	}
	kinds := map[string]int{}
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		root, _, _ := strings.Cut(info.Key, "/")
		kinds[root]++
	}
	if kinds["urls"] != n || kinds["batches"] != 2*n || kinds["rejects"] != n {
		t.Errorf("objects %v", kinds)
	}
	testlake.Publish(t, store)
	r, err := lakecheck.Lake(t.Context(), store, lakecheck.Options{Deep: true, TempDir: t.TempDir()})
	if err != nil || len(r.Problems) > 0 || r.Batches != n || r.Rows != 9*n {
		t.Errorf("%+v, %v", r, err)
	}
	s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir()})
	defer s.Close()
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	for _, domain := range slices.Sorted(maps.Keys(counts)) {
		target, err := lookup.ParseTarget("http://" + domain + "/")
		if err != nil {
			t.Fatal(err)
		}
		page, err := snap.Domain(t.Context(), target, "")
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, d := range page.Datasets {
			got[d.Name] = d.Rows
		}
		if diff := cmp.Diff(counts[domain], got); diff != "" {
			t.Errorf("%s: %s", domain, diff)
		}
	}
	if plan, done := takeUp(t, store, spec); len(done) != 0 || plan.Unchanged != n {
		t.Errorf("a second run: %+v", done)
	}
}
