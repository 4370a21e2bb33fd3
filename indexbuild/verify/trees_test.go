package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/pathtree"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// An index of trees that says something else than the parts is found, whichever number it is.
func TestTreesAreCountedAgain(t *testing.T) {
	store := blob.NewMemory()
	for i, dataset := range []string{"one", "two"} {
		var records []testlake.Record
		for j := range 300 {
			records = append(records, testlake.Record{
				URL:  fmt.Sprintf("https://h%d.site%d.test/%c/%d/%d", j%3, j%5+3*i, 'a'+j%7, j%(2+i), j),
				Size: int64(j), HasSize: j%2 == 0,
			})
		}
		testlake.Ingest(t, store, dataset, "b", records)
	}
	testlake.Publish(t, store)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	s := v.Segments[0]
	ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
	if err := verify.Trees(t.Context(), store, ref, true); err != nil {
		t.Fatalf("without an index: %v", err)
	}
	if _, err := treebuild.Build(t.Context(), store, ref, treebuild.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if err := verify.Trees(t.Context(), store, ref, true); err != nil {
		t.Fatal(err)
	}
	index, err := pathtree.Open(t.Context(), store, ref.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	// write stores the index with a change of one node.
	write := func(what string, change func(n *pathtree.Node) bool) {
		t.Helper()
		var out bytes.Buffer
		w := pathtree.NewWriter(&out)
		done := false
		for n, err := range index.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			done = done || change(n.Node)
			if err := w.Add(n.Key, n.Node); err != nil {
				t.Fatal(err)
			}
		}
		if !done {
			t.Fatalf("%s: no node to change", what)
		}
		written, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pathtree.Store(t.Context(), store, ref.ID, written, bytes.NewReader(out.Bytes())); err != nil {
			t.Fatal(err)
		}
	}
	// entry changes the first entry that is as it has to be.
	entry := func(may func(e *pathtree.Entry) bool, change func(e *pathtree.Entry)) func(n *pathtree.Node) bool {
		return func(n *pathtree.Node) bool {
			for i := range n.Entries {
				if e := &n.Entries[i]; may(e) {
					change(e)
					return true
				}
			}
			return false
		}
	}
	for what, change := range map[string]func(n *pathtree.Node) bool{
		"rows": func(n *pathtree.Node) bool {
			if pathtree.Level(n.Path) == 1 {
				return false // whose sum is that of the document
			}
			n.Entries[0].Rows++
			n.Entries[0].Direct++
			return true
		},
		"direct rows":      entry(func(e *pathtree.Entry) bool { return e.Rows-e.Direct > e.Children && e.Children > 0 }, func(e *pathtree.Entry) { e.Direct++ }),
		"rows with a size": entry(func(e *pathtree.Entry) bool { return e.Sized > 1 }, func(e *pathtree.Entry) { e.Sized-- }),
		"size":             entry(func(e *pathtree.Entry) bool { return e.Sized > 0 }, func(e *pathtree.Entry) { e.Size.Lo++ }),
		"dataset": func(n *pathtree.Node) bool {
			n.Entries[len(n.Entries)-1].Dataset++
			return true
		},
		"path": func(n *pathtree.Node) bool {
			n.Path[len(n.Path)-2]++ // which no other node has in its place
			return true
		},
		"children": func(n *pathtree.Node) bool {
			e := &n.Entries[0]
			if e.Children < 2 || len(n.Entries) > 1 {
				return false
			}
			e.Children--
			n.Children--
			return true
		},
	} {
		changed := false
		write(what, func(n *pathtree.Node) bool {
			if !changed {
				changed = change(n)
			}
			return changed
		})
		if err := verify.Trees(t.Context(), store, ref, true); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
