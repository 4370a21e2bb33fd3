package api

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// TestLargeFilters asks with regular expressions that are too large for a request, or for a value.
func TestLargeFilters(t *testing.T) {
	store := blob.NewMemory()
	path := filepath.Join(t.TempDir(), "noted.jsonl")
	line := fmt.Sprintf(`{"url":"https://example.com/","note":%q}`, strings.Repeat("x", 4000))
	if err := os.WriteFile(path, []byte(line+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	spec := testlake.Spec(t, store, "alpha", "b", nil)
	spec.Inputs, spec.Extras = []string{path}, []string{"note"}
	testlake.IngestSpec(t, store, spec)
	testlake.Publish(t, store)
	s := start(t, store, lookup.Options{})
	filter := func(text string) string { return "filter=" + url.QueryEscape("note~"+text) }
	for query, want := range map[string]string{
		filter("a{900}"):                                "422 /problems/filter-too-large",
		filter("a{900}") + "&format=csv":                "422 /problems/filter-too-large",
		filter("a{900}") + "&unique=1":                  "422 /problems/filter-too-large",
		filter("(a{900}){1}b{900}c{900}"):               "400 /problems/bad-parameter",
		filter("a{900}b{900}") + "&" + filter("c{500}"): "400 /problems/bad-parameter",
	} {
		var p problemDocument
		status := s.get(listPath+"?"+query, &p)
		if got := fmt.Sprint(status, " ", p.Type); got != want || !strings.Contains(p.Detail, "size") {
			t.Errorf("%s: %s %s", query, got, p.Detail)
		}
	}
	if got := s.all(listPath + "?" + filter("^x{100}")); len(got) != 1 {
		t.Errorf("%d rows", len(got))
	}
	// What is not there has nothing to be matched with.
	var p problemDocument
	if status := s.get("/v1/domain/example.com/datasets/99/urls?"+filter("a{900}"), &p); status != 404 {
		t.Errorf("an unknown dataset: %d %+v", status, p)
	}
}

// TestFiltersNeedRoom counts compiled filters as memory of the request.
func TestFiltersNeedRoom(t *testing.T) {
	g := testGate(10<<20, 4, 4)
	r := &request{ctx: t.Context(), ticket: g.admitted(t, clientNumber(1), 100_000)}
	for _, tc := range []struct {
		filter      string
		least, most int64
	}{{"a=x", 100_000, 100_000}, {"a~x{950}y{950}", 100_000 + 1_900*500, 5 << 20}} {
		var sel lookup.Selection
		if err := sel.AddFilter(tc.filter); err != nil {
			t.Fatal(err)
		}
		if err := r.needFilters(&sel); err != nil {
			t.Fatal(err)
		}
		if n := g.stats().used; n < tc.least || n > tc.most {
			t.Errorf("%s: %d bytes", tc.filter, n)
		}
	}
	if err := (&request{}).needFilters(&lookup.Selection{}); err != nil {
		t.Errorf("without a gate: %v", err)
	}
}
