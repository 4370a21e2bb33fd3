//go:build soak

package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/tree"
)

// treeNode is a host or a directory in one dataset.
type treeNode struct{ dataset, path string }

// treeCounts are what a brute-force scan counts for a node.
type treeCounts struct{ rows, direct, children int64 }

// bruteForceTrees counts every node of every dataset, each part of each path of each row.
func bruteForceTrees(t *testing.T, truth map[string]map[string][]item) map[treeNode]treeCounts {
	all := map[treeNode]treeCounts{}
	for _, sets := range truth {
		for name, rows := range sets {
			for _, r := range rows {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), r.URL)
				if err != nil {
					t.Fatal(err)
				}
				path, _, _ := strings.Cut(u.Host+u.PathQuery, "?")
				parts := strings.SplitAfter(path, "/")
				parts = parts[:len(parts)-1] // what is behind the last slash is no directory
				for i := range parts {
					n := treeNode{name, strings.Join(parts[:i+1], "")}
					c, known := all[n]
					c.rows++
					if i == len(parts)-1 {
						c.direct++
					}
					all[n] = c
					if !known && i > 0 {
						above := treeNode{name, strings.Join(parts[:i], "")}
						c := all[above]
						c.children++
						all[above] = c
					}
				}
			}
		}
	}
	return all
}

// TestTreesOfRealDataEqualBruteForce makes one lake of all real datasets, builds the indexes of
// path trees, and compares every node of every dataset with a brute-force scan, and what a server
// answers for some hundred domains.
func TestTreesOfRealDataEqualBruteForce(t *testing.T) {
	all := append(append([]dataset{}, realDatasets...), moreDatasets...)
	lakeURL := "file://" + filepath.ToSlash(t.TempDir())
	store, err := blob.Open(t.Context(), lakeURL)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range all {
		var inputs []string
		for _, f := range d.files {
			inputs = append(inputs, testenv.Shared(t, "data", f))
		}
		testlake.IngestSpec(t, store, d.spec(lakeURL, "b1", inputs))
		if i%20 == 0 {
			testlake.Publish(t, store)
		}
	}
	testlake.Publish(t, store)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint32]string{}
	registered, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range registered {
		names[d.ID] = d.Name
	}
	truth := scan(t, all)
	left := bruteForceTrees(t, truth)
	nodes, datasets := len(left), map[string]bool{}
	for n := range left {
		datasets[n.dataset] = true
	}
	wrong := 0
	complain := func(format string, args ...any) {
		if wrong++; wrong < 20 {
			t.Errorf(format, args...)
		}
	}
	for _, s := range v.Segments {
		info, err := treebuild.Build(t.Context(), store, lakecheck.SegmentRef(s), treebuild.Options{TempDir: t.TempDir(), MemoryBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		index, err := pathtree.Open(t.Context(), store, s.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n, err := range index.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range n.Entries {
				at := treeNode{names[e.Dataset], string(n.Path)}
				want, ok := left[at]
				if got := (treeCounts{e.Rows, e.Direct, e.Children}); !ok || got != want {
					complain("%+v: %+v, brute force %+v (%v)", at, got, want, ok)
				}
				delete(left, at) // each dataset has one batch, which one segment has
			}
		}
		t.Logf("segment %s: %d nodes and %d entries of %d rows in %d bytes", s.ID, info.Nodes, info.Entries, info.Rows, info.Bytes)
	}
	for n, want := range left {
		complain("%+v: missing, brute force %+v", n, want)
	}
	if len(datasets) != len(all) || len(v.Segments) < 2 || nodes < 300_000 {
		t.Errorf("%d datasets of %d, %d segments, %d nodes", len(datasets), len(all), len(v.Segments), nodes)
	}

	server := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir()})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	e := tree.NewEngine(1<<40, 1<<30, 0)
	picked := pick(truth, 100, 200, 20)
	for _, domain := range picked {
		tg, err := lookup.ParseTarget(domain)
		if err != nil {
			t.Fatal(err)
		}
		page, err := e.Answer(t.Context(), snap, tree.Query{Target: tg, Depth: 1, Limit: 1 << 20, Listed: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]int64{}, map[string]int64{}
		hosts := map[string]bool{}
		for _, rows := range truth[domain] {
			for _, r := range rows {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), r.URL)
				if err != nil {
					t.Fatal(err)
				}
				want[u.Host+"/"]++
				hosts[u.Host] = true
			}
		}
		for _, n := range page.Nodes {
			got[n.Path] = n.Rows
		}
		if page.Children != len(hosts) || page.Scanned != 0 || !maps.Equal(want, got) {
			complain("%s: %d hosts, %v; brute force %v", domain, page.Children, got, slices.Sorted(maps.Keys(want)))
		}
	}
	t.Logf("%d nodes of %d datasets equal brute force, and the answers for %d domains", nodes, len(datasets), len(picked))
}
