package api

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
)

// buildTrees builds the index of path trees of all segments of the lake's versions.
func buildTrees(t testing.TB, store blob.Store) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range m.Versions {
		v, err := catalog.ReadVersion(t.Context(), store, ref)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range v.Segments {
			ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
			if _, _, err := treebuild.Ensure(t.Context(), store, ref, treebuild.Options{TempDir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// treeLake is a lake of two datasets and one domain with a few hosts and many directories.
func treeLake(t testing.TB) blob.Store {
	t.Helper()
	store := blob.NewMemory()
	for i, dataset := range []string{"one", "two"} {
		var records []testlake.Record
		for j := range 400 {
			records = append(records, testlake.Record{
				URL: fmt.Sprintf("https://%s.example.com/d%02d/e%d/%d?x=/y/", []string{"www", "a"}[j%2], j%(30+i), j%3, j), Size: int64(j), HasSize: i == 0,
			})
		}
		testlake.Ingest(t, store, dataset, "b", records)
	}
	testlake.Publish(t, store)
	return store
}

type treeAnswer struct {
	Domain        string     `json:"domain"`
	DomainID      string     `json:"domain_id"`
	Version       string     `json:"version"`
	TakedownEpoch int        `json:"takedown_epoch"`
	Path          string     `json:"path"`
	Rows          int64      `json:"rows"`
	DirectRows    int64      `json:"direct_rows"`
	Size          *int64     `json:"size"`
	TotalChildren int        `json:"total_children"`
	Matching      int        `json:"matching_children"`
	Children      []treeItem `json:"children"`
	Returned      int        `json:"returned"`
	Complete      bool       `json:"complete"`
	StoppedBy     *string    `json:"stopped_by"`
	NextCursor    *string    `json:"next_cursor"`
	Next          *string    `json:"next"`
	Explain       any        `json:"explain"`
}

type treeItem struct {
	Name          string `json:"name"`
	Path          string `json:"path"`
	Rows          int64  `json:"rows"`
	DirectRows    int64  `json:"direct_rows"`
	Size          *int64 `json:"size"`
	TotalChildren int    `json:"total_children"`
	Children      any    `json:"children"`
}

// The pages of a tree are the whole, in each order, and the same with an index and without.
func TestTreePages(t *testing.T) {
	store := treeLake(t)
	var before []string
	for _, indexed := range []bool{false, true} {
		if indexed {
			buildTrees(t, store)
		}
		s := start(t, store, lookup.Options{})
		var all []string
		for _, query := range []string{
			"path=www.example.com/&limit=7", "path=www.example.com&top=4", "path=a.example.com/d01/&sort=size&limit=2&dataset=one",
			"depth=3&limit=2&min_count=20", "path=/d02/", "sort=size&limit=1&min_bytes=1", "path=none.example.com/", "dataset=two,one&depth=16&limit=10000",
		} {
			host := "example.com"
			if strings.HasPrefix(query, "path=/") {
				host = "www.example.com"
			}
			next := "/v1/domain/" + host + "/tree?" + query
			children, total := 0, 0
			for next != "" {
				var a treeAnswer
				if status := s.get(next, &a); status != 200 {
					t.Fatalf("%s: status %d", next, status)
				}
				children += len(a.Children)
				total = a.Matching
				for _, c := range a.Children {
					all = append(all, fmt.Sprintf("%s %s %d %d %v", query, c.Path, c.Rows, c.DirectRows, c.Children))
				}
				if next = ""; a.Next != nil {
					next = *a.Next
				}
			}
			if children != total {
				t.Errorf("%s: %d children of %d", query, children, total)
			}
			all = append(all, fmt.Sprint(query, " ", total))
		}
		if !indexed {
			before = all
		} else if diff := cmp.Diff(before, all); diff != "" {
			t.Errorf("(-scanned +indexed):\n%s", diff)
		}
		if len(all) < 50 {
			t.Errorf("only %d children", len(all))
		}
	}
}

// Requests that make no sense are told why, and a tree that is too large what to do.
func TestTreeProblems(t *testing.T) {
	store := treeLake(t)
	s := start(t, store, lookup.Options{})
	for query, want := range map[string]string{
		"path=other.test/": "is not of the domain", "path=%3F": "a query or a fragment", "path=": "is empty", "depth=17": "is at most 16",
		"depth=0": "at least 1", "top=3&limit=3": "leave one out", "sort=age": "is name, rows or size", "min_count=x": "at least 0",
		"dataset=one,one": "twice", "path=" + url.QueryEscape("exa mple/x"): "no name of a host", "cursor=x": "bad-cursor",
	} {
		w := s.do("GET", "/v1/domain/example.com/tree?"+query)
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	// The cursor of another node is none of this one.
	var a treeAnswer
	s.get("/v1/domain/example.com/tree?path=www.example.com/&limit=1", &a)
	if w := s.do("GET", "/v1/domain/example.com/tree?path=a.example.com/&cursor="+*a.NextCursor); w.Code != 400 {
		t.Errorf("another node's cursor: %d %s", w.Code, w.Body)
	}
	if w := s.do("GET", "/v1/domain/example.com/tree?dataset=none"); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}

	s.web, s.routes = routes(s.server, slog.New(slog.DiscardHandler), NewMetrics(s.server, blob.NewCounting(store)), func(h *handler) { h.trees = tree.NewEngine(100, 0, 0) })
	w := s.do("GET", "/v1/domain/example.com/tree")
	if w.Code != 422 || !strings.Contains(w.Body.String(), `"limit":"rows","maximum":"100"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := s.do("GET", "/v1/domain/example.com/tree?path=www.example.com/d01/"); w.Code != 200 {
		t.Errorf("a small part: %d %s", w.Code, w.Body)
	}
	buildTrees(t, store)
	s.web, s.routes = routes(s.server, slog.New(slog.DiscardHandler), NewMetrics(s.server, blob.NewCounting(store)), func(h *handler) { h.trees = tree.NewEngine(100, 0, 0) })
	if w := s.do("GET", "/v1/domain/example.com/tree"); w.Code != 200 {
		t.Errorf("with an index: %d %s", w.Code, w.Body)
	}
}

// A server that is asked for a tree finds damage of the index, and answers again once it is mended.
func TestDamagedTreeIndex(t *testing.T) {
	store := treeLake(t)
	buildTrees(t, store)
	var keys []string
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Key, "/tree") {
			keys = append(keys, info.Key)
		}
	}
	if len(keys) != 2 {
		t.Fatalf("objects %q", keys)
	}
	slices.Sort(keys)
	for _, key := range keys {
		data, _, err := store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		bad := slices.Clone(data)
		bad[len(bad)/4] ^= 4
		if _, err := store.Put(t.Context(), key, bad, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		s := start(t, store, lookup.Options{})
		if w := s.do("GET", "/v1/domain/example.com/tree"); w.Code != 500 || !strings.Contains(w.Body.String(), "starter tree build") {
			t.Errorf("%s: %d %s", key, w.Code, w.Body)
		}
		buildTrees(t, store)
		if w := s.do("GET", "/v1/domain/example.com/tree"); w.Code != 200 {
			t.Errorf("%s, mended: %d %s", key, w.Code, w.Body)
		}
	}
}
