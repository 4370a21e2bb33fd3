package lookup

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// Lists of domains, bulk lookups, the sums of a dataset and explained queries take rounds of reads
// that neither segments nor the lengths of lists and answers make more. Only the sums of a dataset
// take more in a larger index: they read all postings, a quarter of a megabyte at a time.
func TestRoundsOfListsAndScans(t *testing.T) {
	for _, shape := range []struct{ domains, segments int }{{500, 1}, {500, 4}, {20_000, 1}, {7000, 3}} {
		t.Run(fmt.Sprintf("%+v", shape), func(t *testing.T) {
			store := blob.NewMemory()
			var texts [][]byte
			for n := range shape.segments {
				var records []testlake.Record
				for i := range shape.domains {
					name := fmt.Sprintf("site%05d.test", i*shape.segments+n)
					records = append(records, testlake.Record{URL: "https://" + name + "/", Size: int64(i), HasSize: true})
					texts = append(texts, []byte(name))
				}
				testlake.Ingest(t, store, "alpha", fmt.Sprint(n), records)
				testlake.Publish(t, store)
			}
			slices.SortFunc(texts, bytes.Compare) // any part of the list has domains of all segments
			testenv.Bubble(t, func(t *testing.T) {
				roundsOfListsAndScans(t, store, shape.domains, shape.segments, texts)
			})
		})
	}
}

// roundsOfListsAndScans looks at segments of as many domains each, named by texts.
func roundsOfListsAndScans(t *testing.T, store blob.Store, domains, segments int, texts [][]byte) {
	s := serve(t, slow{store}, Options{Deadline: time.Hour})
	snap := acquire(t, s, "")
	if n := len(snap.segments); n != segments {
		t.Fatalf("%d segments", n)
	}
	postings := 0 // bytes
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Key, "/postings/") && strings.HasSuffix(info.Key, "/postings.idx.zst") {
			postings += int(info.Size)
		}
	}
	if postings == 0 {
		t.Fatal("no postings")
	}
	check := func(what string, most int, query func() error) {
		t.Helper()
		s.clearCaches(true, true)
		start := time.Now()
		if err := query(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := int(time.Since(start) / round); got < 1 || got > most {
			t.Errorf("%s: %d rounds, want at most %d", what, got, most)
		}
	}
	// exactly also counts none if all was read before.
	exactly := func(what string, want int, query func() error) {
		t.Helper()
		for _, want := range []int{want, 0} {
			if want > 0 {
				s.clearCaches(true, true)
			}
			start := time.Now()
			if err := query(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got := int(time.Since(start) / round); got != want {
				t.Errorf("%s: %d rounds, want %d", what, got, want)
			}
		}
	}
	list := func(q DomainsQuery, n int) func() error {
		return func() error {
			page, err := snap.Domains(t.Context(), q)
			if err == nil && (len(page.Domains) != n || page.StoppedBy != "") {
				err = fmt.Errorf("%+v: %d domains, %q", q, len(page.Domains), page.StoppedBy)
			}
			return err
		}
	}
	// Names, and then postings.
	exactly("the first domains", 2, list(DomainsQuery{Limit: 100}, 100))
	exactly("domains with a prefix", 2, list(DomainsQuery{Prefix: "site0012", Limit: 100}, 10))
	exactly("many domains with a prefix", 2, list(DomainsQuery{Prefix: "site00", Limit: 1000}, min(1000, len(texts))))
	exactly("no domains with a prefix", 1, list(DomainsQuery{Prefix: "site0012x", Limit: 100}, 0))
	some := len(texts) / 10 // with a suffix of one digit
	exactly("domains with a suffix", 2, list(DomainsQuery{Suffix: "3.test", Limit: 10}, 10))
	exactly("many domains with a suffix", 2, list(DomainsQuery{Suffix: "3.test", Limit: 1000}, min(1000, some)))
	exactly("all domains with a suffix", 2, list(DomainsQuery{Suffix: ".test", Limit: 1000}, min(1000, len(texts))))
	exactly("no domains with a suffix", 1, list(DomainsQuery{Suffix: "x001.test", Limit: 100}, 0))
	exactly("domains with a prefix and a suffix", 2, list(DomainsQuery{Prefix: "site001", Suffix: "3.test", Limit: 100}, 10))
	for _, limit := range []int{1, 20} {
		q := DomainsQuery{Suffix: "3.test", Limit: limit}
		page, err := snap.Domains(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Cursor = page.Cursor
		exactly(fmt.Sprintf("%d domains with a suffix after a page", limit), 2, list(q, limit))
	}
	page, err := snap.Domains(t.Context(), DomainsQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	exactly("domains after a page", 2, list(DomainsQuery{Limit: 100, Cursor: page.Cursor}, 100))
	for _, n := range []int{1, 10, 100, len(texts)} {
		check(fmt.Sprintf("%d domains in bulk", n), 1, func() error {
			b, err := snap.Bulk(t.Context(), BulkQuery{})
			if err != nil {
				return err
			}
			found := 0
			err = b.Lookup(t.Context(), texts[:n], func(_ int, a *BulkAnswer) error {
				found += len(a.Datasets)
				return nil
			})
			if err == nil && found != n {
				err = fmt.Errorf("%d of %d found", found, n)
			}
			return err
		})
	}
	var apart [][]byte // with frames of postings between them
	for i := 0; i < len(texts); i += len(texts) / 60 {
		apart = append(apart, texts[i])
	}
	check("domains that are far apart in bulk", 1, func() error {
		b, err := snap.Bulk(t.Context(), BulkQuery{})
		if err != nil {
			return err
		}
		return b.Lookup(t.Context(), apart, func(_ int, a *BulkAnswer) error {
			if len(a.Datasets) != 1 {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
	})
	// Postings of all segments, and then names.
	check("a dataset", 2+postings>>18, func() error {
		top, err := snap.TopOf(t.Context(), 1)
		if err == nil && (top.Domains != int64(len(texts)) || len(top.ByRows) != TopDomains || len(top.BySize) != TopDomains) {
			err = fmt.Errorf("%+v", top)
		}
		return err
	})
	for _, ctx := range []context.Context{t.Context(), blob.WithTrace(t.Context(), new(blob.Trace))} {
		check("a lookup, without and with explain", 1, func() error {
			a, err := snap.Domain(ctx, target(t, string(texts[0])), "")
			if err == nil && len(a.Datasets) != 1 {
				err = fmt.Errorf("%+v", a)
			}
			return err
		})
	}
}
