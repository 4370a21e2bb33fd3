package lookup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// largeLists is a version with 40,000 domains in two segments. Dataset beta has few of them, whose
// reversed names are the last.
func largeLists(t testing.TB) (store blob.Store, beta uint32, names []string) {
	store = blob.NewMemory()
	for n := range 2 {
		var records []testlake.Record
		for i := range 20_000 {
			name := fmt.Sprintf("site%05d.test", 2*i+n)
			names = append(names, name)
			records = append(records, testlake.Record{URL: "https://" + name + "/"})
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprint(n), records)
		testlake.Publish(t, store)
	}
	testlake.Ingest(t, store, "beta", "1", []testlake.Record{{URL: "https://site99999.test/"}, {URL: "https://site89999.test/"}})
	testlake.Publish(t, store)
	datasets, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range datasets {
		if d.Name == "beta" {
			beta = d.ID
		}
	}
	names = append(names, "site99999.test", "site89999.test")
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(backwards(a), backwards(b)) })
	return store, beta, names
}

// A query with a suffix reads few frames of the reversed list. One with a prefix, too, reads the
// list that has fewer frames to be read. Domains below a public suffix are counted by reading what
// is below it.
func TestSuffixReadsFewFrames(t *testing.T) {
	store, _, _ := largeLists(t)
	snap := acquire(t, serve(t, blob.NewCounting(store), Options{}), "")
	read := func(what string, query func(ctx *blob.Trace) error) (forward, reversed int64) {
		t.Helper()
		snap.server.clearCaches(true, true)
		trace := new(blob.Trace)
		if err := query(trace); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for _, a := range trace.Accesses() {
			switch {
			case strings.HasSuffix(a.Key, "/"+segment.DomainsName):
				forward += a.N
			case strings.HasSuffix(a.Key, "/"+segment.ReversedName):
				reversed += a.N
			}
		}
		return forward, reversed
	}
	list := func(q DomainsQuery, n int) func(*blob.Trace) error {
		return func(trace *blob.Trace) error {
			page, err := snap.Domains(blob.WithTrace(t.Context(), trace), q)
			if err == nil && len(page.Domains) != n {
				err = fmt.Errorf("%d domains", len(page.Domains))
			}
			return err
		}
	}
	all := int64(0)
	for _, seg := range snap.segments {
		all += seg.Info().File(segment.ReversedName).Bytes
	}
	for _, c := range []struct {
		q        DomainsQuery
		n        int
		reversed bool
	}{
		{DomainsQuery{Suffix: "3.test", Limit: 10}, 10, true},
		{DomainsQuery{Suffix: "9999.test", Limit: 10}, 6, true},
		{DomainsQuery{Prefix: "site3", Suffix: "77.test", Limit: 1000}, 100, true},
		{DomainsQuery{Prefix: "site333", Suffix: "7.test", Limit: 1000}, 10, false},
		{DomainsQuery{Prefix: "site333", Suffix: "t", Limit: 1000}, 100, false},
	} {
		forward, reversed := read(fmt.Sprintf("%+v", c.q), list(c.q, c.n))
		if !c.reversed {
			forward, reversed = reversed, forward
		}
		if forward != 0 || reversed == 0 || reversed > all/4 {
			t.Errorf("%+v: %d bytes of one list, %d of the other, of %d", c.q, forward, reversed, all)
		}
	}
	forward, reversed := read("domains below 99.test", func(trace *blob.Trace) error {
		n, err := snap.DomainsBelow(blob.WithTrace(t.Context(), trace), "99.test")
		if err == nil && n != 0 {
			err = fmt.Errorf("%d domains", n)
		}
		return err
	})
	if forward != 0 || reversed > all/4 {
		t.Errorf("a count read %d bytes of names and %d of reversed ones, of %d", forward, reversed, all)
	}
}
