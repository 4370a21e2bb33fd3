package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// difference is a change as the oracle knows it.
type difference struct {
	Domain, Dataset string
	Before, After   totals
}

// diff compares two oracles domain by domain.
func (o oracle) diff(after oracle) []difference {
	found := map[[2]string]*difference{}
	at := func(domain, dataset string) *difference {
		key := [2]string{domain, dataset}
		if found[key] == nil {
			found[key] = &difference{Domain: domain, Dataset: dataset}
		}
		return found[key]
	}
	for _, domain := range o.domains() {
		for _, t := range o.totals(domain) {
			at(domain, t.Name).Before = t
		}
	}
	for _, domain := range after.domains() {
		for _, t := range after.totals(domain) {
			at(domain, t.Name).After = t
		}
	}
	list := []difference{}
	for _, d := range found {
		if d.Before != d.After {
			list = append(list, *d)
		}
	}
	sortDifferences(list)
	return list
}

func sortDifferences(list []difference) {
	slices.SortFunc(list, func(a, b difference) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), strings.Compare(a.Dataset, b.Dataset))
	})
}

// compareDomains compares domains in the order of an index: by id, and by check bits if they share
// one, which needs the tag weakhash to happen.
func compareDomains(idA uint64, a string, idB uint64, b string) int {
	return cmp.Or(cmp.Compare(idA, idB), cmp.Compare(urlnorm.CheckBits(a), urlnorm.CheckBits(b)))
}

// pagedDiff returns the changes on all pages, and how many pages ended at the deadline.
func pagedDiff(t *testing.T, before, after *Snapshot, q DiffQuery) (list []difference, late int) {
	t.Helper()
	list = []difference{}
	var last *Change
	for pages := 0; ; pages++ {
		p, err := after.Diff(t.Context(), before, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Changes) > q.Limit || p.StoppedBy == "" && p.Cursor != "" && len(p.Changes) < q.Limit {
			t.Fatalf("page %d has %d changes, stopped by %q, cursor %q", pages, len(p.Changes), p.StoppedBy, p.Cursor)
		}
		if p.Before != before.Version().ID || p.After != after.Version().ID {
			t.Fatalf("from %s to %s", p.Before, p.After)
		}
		if p.StoppedBy == "deadline" {
			late++
		}
		for i := range p.Changes {
			c := &p.Changes[i]
			if last != nil && cmp.Or(compareDomains(last.DomainID, last.Domain, c.DomainID, c.Domain),
				cmp.Compare(last.Dataset, c.Dataset)) >= 0 {
				t.Fatalf("%+v after %+v", c, last)
			}
			if last = c; urlnorm.DomainID(c.Domain) != c.DomainID {
				t.Fatalf("%+v", c)
			}
			d := difference{Domain: c.Domain, Dataset: c.Name}
			for _, side := range []struct {
				to   *totals
				from DatasetTotals
			}{{&d.Before, DatasetTotals{Totals: c.Before}}, {&d.After, DatasetTotals{Totals: c.After}}} {
				if f := side.from; f.Rows > 0 {
					*side.to = totals{c.Name, f.Rows, f.Size, f.HasSize, f.FirstTS, f.LastTS, f.HasTS}
				}
			}
			list = append(list, d)
		}
		if q.Cursor = p.Cursor; q.Cursor == "" {
			sortDifferences(list)
			return list, late
		}
	}
}

// Between any two versions, in either direction, whole or a page at a time.
func TestDiffEqualsBruteForce(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		build(t, store).checkDiffs(t, store)
	})
}

// checkDiffs compares the differences between any two versions with those of the oracles.
func (h *history) checkDiffs(t *testing.T, store blob.Store) {
	t.Helper()
	s := serve(t, store, Options{})
	for i := range h.versions {
		for j := range h.versions {
			before, after := acquire(t, s, h.versions[i]), acquire(t, s, h.versions[j])
			want := h.oracles[i].diff(h.oracles[j])
			if (len(want) == 0) != (i == j) {
				t.Fatalf("versions %d and %d have %d differences", i, j, len(want))
			}
			limits := []int{MaxLimit, 1 + len(want)/3}
			if j == i+1 {
				limits = append(limits, 1)
			}
			for _, limit := range limits {
				got, _ := pagedDiff(t, before, after, DiffQuery{Limit: limit})
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("versions %d and %d, limit %d (-brute force +served):\n%.3000s", i, j, limit, diff)
				}
			}
			for id := uint32(1); id <= 4; id++ {
				dataset, ok := after.Dataset(id)
				if !ok {
					if dataset, ok = before.Dataset(id); !ok {
						continue
					}
				}
				want := slices.DeleteFunc(slices.Clone(want), func(d difference) bool { return d.Dataset != dataset.Name })
				got, _ := pagedDiff(t, before, after, DiffQuery{Dataset: id, OneDataset: true, Limit: 50})
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("versions %d and %d, %s (-brute force +served):\n%.3000s", i, j, dataset.Name, diff)
				}
			}
		}
	}
}

// A page that is late ends where the next one begins. What did not change is not listed, although
// the segment that has it was built again.
func TestDiffThatIsLate(t *testing.T) {
	store := blob.NewMemory()
	o := oracle{}
	put := func(batch string, from, to int) {
		var records []testlake.Record
		for i := range to - from {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://site%d.test/", from+i)})
		}
		testlake.Ingest(t, store, "d", batch, records)
		o.replace("d", batch, records)
	}
	put("a", 0, 3000)
	put("b", 3000, 6000)
	first, before := testlake.Publish(t, store).Version, o.clone()
	put("b", 3100, 6100)
	second := testlake.Publish(t, store).Version
	want := before.diff(o)
	if len(want) != 200 {
		t.Fatalf("%d differences", len(want))
	}
	s := serve(t, store, Options{Deadline: time.Nanosecond})
	got, late := pagedDiff(t, acquire(t, s, first), acquire(t, s, second), DiffQuery{Limit: MaxLimit})
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-brute force +served):\n%.3000s", diff)
	}
	if late == 0 {
		t.Error("no page was late")
	}
}

// No more pages are made at once than there is memory for. One that waits too long is an error.
func TestDiffsWaitForEachOther(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, store, Options{Deadline: 20 * time.Millisecond})
		before, after := acquire(t, s, h.versions[0]), acquire(t, s, h.versions[1])
		if err := s.diffs.Acquire(t.Context(), diffsAtOnce); err != nil {
			t.Fatal(err)
		}
		if _, err := after.Diff(t.Context(), before, DiffQuery{Limit: 1}); !errors.Is(err, ErrDeadline) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := after.Diff(ctx, before, DiffQuery{Limit: 1}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		s.diffs.Release(diffsAtOnce)
		for range diffsAtOnce + 1 {
			if page, err := after.Diff(t.Context(), before, DiffQuery{Limit: 1}); err != nil || len(page.Changes) != 1 {
				t.Errorf("%+v, %v", page, err)
			}
		}
	})
}

func TestBadDiffs(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	s := serve(t, store, Options{})
	before, after := acquire(t, s, h.versions[0]), acquire(t, s, h.versions[1])
	page, err := after.Diff(t.Context(), before, DiffQuery{Limit: 1})
	if err != nil || page.Cursor == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	cursorOf := func(at position) string {
		d := &differ{before: before, after: after}
		c := cursor{kind: cursorDiff, fingerprint: fingerprint(cursorDiff, d.name(), 0), version: h.versions[1], at: at}
		return c.String()
	}
	if _, err := after.Diff(t.Context(), before, DiffQuery{Limit: 1, Cursor: cursorOf(position{})}); err != nil {
		t.Fatal(err)
	}
	const most = 1<<32 - 1
	for name, c := range map[string]struct {
		before, after *Snapshot
		q             DiffQuery
		want          error
	}{
		"no limit":        {before, after, DiffQuery{}, ErrRange},
		"unknown dataset": {before, after, DiffQuery{Limit: 1, OneDataset: true, Dataset: 99}, ErrUnknownDataset},
		"of another query": {before, after,
			DiffQuery{Limit: 1, OneDataset: true, Dataset: 0, Cursor: page.Cursor}, ErrUnknownDataset},
		"of all datasets": {before, after, DiffQuery{Limit: 1, OneDataset: true, Dataset: 1, Cursor: page.Cursor}, ErrBadCursor},
		"the other way":   {after, before, DiffQuery{Limit: 1, Cursor: page.Cursor}, ErrBadCursor},
		"another version": {acquire(t, s, h.versions[2]), after, DiffQuery{Limit: 1, Cursor: page.Cursor}, ErrBadCursor},
		"of the end":      {before, after, DiffQuery{Limit: 1, Cursor: cursorOf(position{domain: 1<<64 - 1, check: most, dataset: most})}, ErrBadCursor},
		"of no check":     {before, after, DiffQuery{Limit: 1, Cursor: cursorOf(position{check: most + 1})}, ErrBadCursor},
		"of no dataset":   {before, after, DiffQuery{Limit: 1, Cursor: cursorOf(position{dataset: most + 1})}, ErrBadCursor},
	} {
		if _, err := c.after.Diff(t.Context(), c.before, c.q); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
