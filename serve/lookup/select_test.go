package lookup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup/filter"
)

// selections chooses what the checks of all tests select.
var selections = rand.New(rand.NewPCG(19, 5))

// randomSelection selects something of rows, mostly.
func randomSelection(rng *rand.Rand, rows []row) (s Selection) {
	r := rows[rng.IntN(len(rows))]
	if rng.IntN(2) == 0 {
		s.Host = r.Host
	}
	if rng.IntN(2) == 0 {
		s.Prefix = r.Path[:1+rng.IntN(len(r.Path))]
	}
	at := func() *int64 {
		if rng.IntN(3) > 0 {
			return nil
		}
		ms := rows[rng.IntN(len(rows))].TS + int64(rng.IntN(3)) - 1
		return &ms
	}
	s.From, s.To = at(), at()
	return s
}

// selects is the oracle's Selection.
func (s *Selection) selects(url string, ts int64, hasTS bool) bool {
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), url)
	if err != nil {
		panic(err)
	}
	return (s.Host == "" || u.Host == s.Host) && strings.HasPrefix(u.PathQuery, s.Prefix) &&
		(s.From == nil && s.To == nil || hasTS) && (s.From == nil || ts >= *s.From) && (s.To == nil || ts < *s.To)
}

// distinct is one URL of a list of distinct ones.
type distinct struct {
	URL               string
	Rows, First, Last int64
	HasTS             bool
}

// distinctOf is what a list of distinct URLs of rows has, which have the order of a part.
func distinctOf(rows []row, sel *Selection) []distinct {
	list := []distinct{}
	for _, r := range rows {
		if !sel.selects(r.URL, r.TS, r.HasTS) {
			continue
		}
		if n := len(list); n == 0 || list[n-1].URL != r.URL {
			list = append(list, distinct{URL: r.URL})
		}
		d := &list[len(list)-1]
		d.Rows++
		if r.HasTS {
			if !d.HasTS {
				d.First, d.Last, d.HasTS = r.TS, r.TS, true
			}
			d.First, d.Last = min(d.First, r.TS), max(d.Last, r.TS)
		}
	}
	return list
}

func pageDistinct(p *URLsPage) []distinct {
	list := make([]distinct, 0, p.Len())
	for i := range p.Len() {
		first, ok := p.TS(i)
		rows, last := p.Count(i)
		list = append(list, distinct{string(p.URL(i)), rows, first, last, ok})
	}
	return list
}

// pages reads a list: page by page with cursors, or through a List. It calls f with each page.
func pages(ctx context.Context, snap *Snapshot, q URLsQuery, stream bool, limit func() int, f func(p *URLsPage) error) error {
	var l *List
	if stream {
		var err error
		if l, err = snap.List(ctx, q); err != nil {
			return err
		}
	}
	for {
		var p *URLsPage
		var err error
		if stream {
			p, err = l.Next(ctx, limit())
		} else {
			q.Limit = limit()
			p, err = snap.URLs(ctx, q)
		}
		if err != nil {
			return err
		}
		if p == nil {
			return errors.New("no page after one with a cursor")
		}
		if err := f(p); err != nil {
			return err
		}
		if p.Cursor == "" {
			if stream {
				if p, err := l.Next(ctx, limit()); p != nil || err != nil {
					return fmt.Errorf("a page after the last: %v, %w", p, err)
				}
			}
			return nil
		}
		if p.Len() == 0 && p.StoppedBy == "" {
			return errors.New("an empty page with a cursor and no cap")
		}
		q.Cursor, q.Offset = p.Cursor, 0
	}
}

// checkSelection compares a list of rows and one of distinct URLs of a random selection with
// brute force. All is the whole list, in its order.
func (o oracle) checkSelection(t testing.TB, snap *Snapshot, tg Target, d DatasetTotals, rows []row, all []item) {
	t.Helper()
	rng := selections
	if len(rows) < 50 && rng.IntN(3) > 0 {
		return // most domains are small, and tests check all of them again and again
	}
	sel := randomSelection(rng, rows)
	limit := func() int { return 1 + rng.IntN(1+rng.IntN(len(rows)+10)) }
	want := []item{}
	for _, it := range all {
		if sel.selects(it.URL, it.TS, it.HasTS) {
			want = append(want, it)
		}
	}
	q := URLsQuery{Target: tg, Dataset: d.ID, Selection: sel}
	got := []item{}
	for _, stream := range []bool{false, true} {
		got = got[:0]
		err := pages(t.Context(), snap, q, stream, limit, func(p *URLsPage) error {
			if p.NotCounted == "" && (p.Offset != int64(len(got)) || p.Total != int64(len(want))) {
				return fmt.Errorf("offset %d of %d, after %d rows of %d", p.Offset, p.Total, len(got), len(want))
			}
			if counted := sel.Host != "" && !sel.timed() || sel.All(); counted != (p.NotCounted == "") {
				return fmt.Errorf("not counted: %q", p.NotCounted)
			}
			got = append(got, pageItems(p)...)
			return nil
		})
		if err != nil {
			t.Fatalf("%+v of %s in %s: %v", sel, tg.Host, d.Name, err)
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v of %s in %s (-brute force +served):\n%.3000s", sel, tg.Host, d.Name, diff)
		}
	}
	q.Offset, q.Limit = int64(rng.IntN(len(want)+2)), limit()
	p, err := snap.URLs(t.Context(), q)
	switch counted := sel.Host != "" && !sel.timed() || sel.All(); {
	case !counted && q.Offset > 0:
		if !errors.Is(err, ErrNotCounted) {
			t.Fatalf("%+v with an offset: %v", sel, err)
		}
	case err != nil:
		t.Fatalf("%+v: %v", sel, err)
	case counted:
		lo := min(int(q.Offset), len(want))
		if diff := gocmp.Diff(want[lo:min(lo+q.Limit, len(want))], pageItems(p)); diff != "" {
			t.Fatalf("%+v from row %d on (-brute force +served):\n%.3000s", sel, q.Offset, diff)
		}
	}
	q.Offset, q.Unique = 0, true
	for _, stream := range []bool{false, true} {
		got, first := []distinct{}, true
		err := pages(t.Context(), snap, q, stream, limit, func(p *URLsPage) error {
			switch whole := first && p.Cursor == ""; {
			case !whole && (p.NotCounted != "unique" || p.Total != 0):
				return fmt.Errorf("not counted: %q, total %d", p.NotCounted, p.Total)
			case whole && (p.NotCounted != "" || p.Total != int64(len(distinctOf(rows, &sel)))):
				return fmt.Errorf("the only page: %q, total %d", p.NotCounted, p.Total)
			}
			first = false
			got = append(got, pageDistinct(p)...)
			return nil
		})
		if err != nil {
			t.Fatalf("distinct URLs of %+v of %s in %s: %v", sel, tg.Host, d.Name, err)
		}
		if diff := gocmp.Diff(distinctOf(rows, &sel), got); diff != "" {
			t.Fatalf("distinct URLs of %+v of %s in %s (-brute force +served):\n%.3000s", sel, tg.Host, d.Name, diff)
		}
	}
}

// checkURL compares which datasets hold some URLs with brute force.
func (o oracle) checkURL(t testing.TB, snap *Snapshot) {
	t.Helper()
	var urls []string
	for _, rows := range o {
		for range min(3, len(rows)) {
			urls = append(urls, rows[selections.IntN(len(rows))].URL)
		}
	}
	slices.Sort(urls)
	for _, text := range append(urls, "https://example.com/no-such-path", "http://nowhere.example/") {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), text)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]distinct{}
		for name := range o {
			sel := &Selection{Host: u.Host, Prefix: u.PathQuery}
			for _, d := range distinctOf(o.rows(name, u.Domain), sel) {
				if d.URL == text {
					want[name] = d
				}
			}
		}
		got := map[string]distinct{}
		p, err := snap.URLDatasets(t.Context(), u.Clone(), "")
		if err != nil || p.Cursor != "" || p.URL != text || p.URLID != urlnorm.URLID([]byte(text)) {
			t.Fatalf("%s: %+v, %v", text, p, err)
		}
		for _, d := range p.Datasets {
			got[d.Name] = distinct{text, d.Rows, d.FirstTS, d.LastTS, d.HasTS}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("datasets of %s (-brute force +served):\n%s", text, diff)
		}
	}
}

// A selection of a large list reads few pages: those in which its ends are searched, and its rows.
func TestSelectionIsFoundByBinarySearch(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	const hosts, paths = 40, 3000
	for h := range hosts {
		for i := range paths {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://h%02d.big.example/p%05d", h, i)})
		}
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	s := serve(t, store, Options{PageBytes: 1})
	snap := acquire(t, s, "")
	tg := target(t, "big.example")
	misses := s.Status().Pages.Misses
	for _, tc := range []struct {
		sel   Selection
		rows  int
		pages int64
	}{
		{Selection{Host: "h07.big.example"}, paths, 20},
		{Selection{Host: "h39.big.example", Prefix: "/p0123"}, 10, 15},
		{Selection{Host: "h39.big.example", Prefix: "/q"}, 0, 15},
		{Selection{Host: "no.big.example"}, 0, 15},
		{Selection{Prefix: "/p00007"}, hosts, 64},
	} {
		before := s.Status().Pages.Misses
		n := 0
		q := URLsQuery{Target: tg, Dataset: 1, Selection: tc.sel}
		err := pages(t.Context(), snap, q, true, func() int { return MaxLimit }, func(p *URLsPage) error {
			n += p.Len()
			return nil
		})
		if got := s.Status().Pages.Misses - before; err != nil || n != tc.rows || got > tc.pages {
			t.Errorf("%+v: %d rows, %d pages, %v", tc.sel, n, got, err)
		}
	}
	if s.Status().Pages.Misses == misses {
		t.Error("nothing was read")
	}
}

func TestCursorBelongsToItsSelection(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	ms := int64(10)
	all := []URLsQuery{
		{}, {Unique: true}, {Selection: Selection{Host: "www.big.example"}},
		{Selection: Selection{Host: "www.big.example"}, Unique: true},
		{Selection: Selection{Prefix: "/b1"}}, {Selection: Selection{Prefix: "/b"}},
		{Selection: Selection{From: &ms}}, {Selection: Selection{To: &ms}},
	}
	for i, made := range all {
		made.Target, made.Dataset, made.Limit = tg, 1, 2
		p, err := snap.URLs(t.Context(), made)
		if err != nil || p.Cursor == "" {
			t.Fatalf("%+v: %v", made, err)
		}
		for j, q := range all {
			q.Target, q.Dataset, q.Limit, q.Cursor = tg, 1, 2, p.Cursor
			if _, err := snap.URLs(t.Context(), q); (i == j) != (err == nil) || err != nil && !errors.Is(err, ErrBadCursor) {
				t.Errorf("cursor of %d for %d: %v", i, j, err)
			}
		}
		// A forged position is no way to read other rows.
		c, err := parseCursor(p.Cursor, cursorURLs)
		if err != nil {
			t.Fatal(err)
		}
		for name, forge := range map[string]func(at *position){
			"segment": func(at *position) { at.segment = 9 }, "file": func(at *position) { at.file = 99 },
			"row group": func(at *position) { at.rowGroup = 5 }, "row": func(at *position) { at.row = 1 << 40 },
		} {
			forged := *c
			forge(&forged.at)
			q := made
			q.Cursor = forged.String()
			if _, err := snap.URLs(t.Context(), q); !errors.Is(err, ErrBadCursor) {
				t.Errorf("%d with a forged %s: %v", i, name, err)
			}
		}
	}
}

// Pages that a cap ends without a row still lead to all rows.
func TestScansEndAtTheirCaps(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 1700 {
		records = append(records, testlake.Record{
			URL: fmt.Sprintf("https://example.com/%05d/%s", i, strings.Repeat("x", 16_000)), TS: int64(i), HasTS: true,
		})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	for b := range MaxMerged + 1 {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("many%02d", b), []testlake.Record{
			{URL: "https://many.test/same", TS: int64(b), HasTS: true}, {URL: fmt.Sprintf("https://many.test/%d", b)},
		})
	}
	testlake.Publish(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	from := int64(1690)
	caps := map[string]int{}
	for _, tc := range []struct {
		domain string
		q      URLsQuery
		rows   int
	}{
		{"example.com", URLsQuery{Selection: Selection{From: &from}}, 10},
		{"example.com", URLsQuery{Selection: Selection{From: &from}, Unique: true}, 10},
		{"example.com", URLsQuery{Columns: With(part.ColExtras)}, 1700},
		{"many.test", URLsQuery{Selection: Selection{Prefix: "/same"}}, MaxMerged + 1},
		{"many.test", URLsQuery{Selection: Selection{Host: "many.test"}}, 2 * (MaxMerged + 1)},
	} {
		for _, stream := range []bool{false, true} {
			tc.q.Target, tc.q.Dataset = target(t, tc.domain), 1
			n, empty := 0, 0
			err := pages(t.Context(), snap, tc.q, stream, func() int { return MaxLimit }, func(p *URLsPage) error {
				n += p.Len()
				caps[p.StoppedBy]++
				if p.Len() == 0 {
					empty++
				}
				return nil
			})
			if err != nil || n != tc.rows || tc.q.Selection.From != nil && empty == 0 {
				t.Errorf("%+v: %d rows, %d empty pages, %v", tc.q, n, empty, err)
			}
		}
	}
	if caps["pages"] == 0 || caps["row_groups"] == 0 {
		t.Errorf("ends of pages: %v", caps)
	}
	var many *TooManyPartsError
	q := URLsQuery{Target: target(t, "many.test"), Dataset: 1, Unique: true, Limit: 1}
	if _, err := snap.URLs(t.Context(), q); !errors.As(err, &many) || many.Parts != MaxMerged+1 {
		t.Errorf("distinct URLs of %d parts: %v", MaxMerged+1, err)
	}
	q = URLsQuery{Target: target(t, "many.test"), Dataset: 1, Selection: Selection{Host: "example.com"}, Limit: 1}
	var of *SelectionError
	if _, err := snap.URLs(t.Context(), q); !errors.As(err, &of) || of.Part != "host" {
		t.Errorf("a host of another domain: %v", err)
	}
}

// A list that is open shows what the takedowns left when it was opened.
func TestListIsOfOneEpoch(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	s := serve(t, store, Options{})
	for _, q := range []URLsQuery{{}, {Unique: true}, {Selection: Selection{Prefix: "/b"}}, {Selection: Selection{Host: "www.big.example"}}} {
		q.Target, q.Dataset = tg, 1
		l, err := acquire(t, s, "").List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		epoch := s.Status().TakedownEpoch
		rule := naiveRule{kind: "prefix", text: fmt.Sprintf("www.big.example/b1/00%d", epoch)}
		rule.add(t, store, nil)
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		n, left := 0, 0
		for {
			p, err := l.Next(t.Context(), 3000)
			if err != nil {
				t.Fatal(err)
			}
			if p == nil {
				break
			}
			if n += p.Len(); p.TakedownEpoch != epoch {
				t.Fatalf("epoch %d, opened in %d", p.TakedownEpoch, epoch)
			}
		}
		err = pages(t.Context(), acquire(t, s, ""), q, true, func() int { return 3000 }, func(p *URLsPage) error { left += p.Len(); return nil })
		if err != nil || left >= n || n != 10_500-1000*int(epoch) {
			t.Fatalf("%+v: %d rows, then %d, %v", q, n, left, err)
		}
	}
}

// At the deadline a page has what was found so far; one that found nothing is an error.
func TestSelectionsEndAtTheDeadline(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	s := serve(t, store, Options{Deadline: time.Nanosecond})
	snap := acquire(t, s, "")
	for _, q := range []URLsQuery{{Unique: true}, {Selection: Selection{Prefix: "/b"}}, {Selection: Selection{Host: "www.big.example"}}} {
		q.Target, q.Dataset, q.Limit = tg, 1, 10
		if _, err := snap.URLs(t.Context(), q); !errors.Is(err, ErrDeadline) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), "https://www.big.example/b1/000001")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snap.URLDatasets(t.Context(), u, ""); !errors.Is(err, ErrDeadline) {
		t.Errorf("a URL: %v", err)
	}
	slow := &late{Store: blob.NewMemory()}
	var records []testlake.Record
	for i := range 3000 { // 128 of them fill a page of a part
		path := fmt.Sprintf("%06d%s", i, strings.Repeat("x", 2000))
		records = append(records, testlake.Record{URL: "https://big.example/" + path, TS: int64(i), HasTS: true})
	}
	for d := range 12 {
		testlake.Ingest(t, slow, fmt.Sprintf("d%02d", d), "b1", records[:1+d%2*2999])
	}
	testlake.Publish(t, slow)
	testenv.Bubble(t, func(t *testing.T) { selectionsFromASlowStore(t, slow, records) })
}

// selectionsFromASlowStore selects from records, which are those of every second dataset.
func selectionsFromASlowStore(t *testing.T, slow *late, records []testlake.Record) {
	s := serve(t, slow, Options{Deadline: 200 * time.Millisecond, PageBytes: 1})
	snap := acquire(t, s, "")
	// From the nth read of parts on, the store does not answer.
	var reads atomic.Int64
	stuck := func(after int64) {
		reads.Store(-after)
		slow.is = func(key string) bool { return strings.HasPrefix(key, "urls/") && reads.Add(1) > 0 }
	}
	var block *part.PageIndexBlock
	for p, err := range snap.segments[0].Pages(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if snap.segments[0].Files().Info(p.File).DatasetID == 2 {
			block = p.PageIndexBlock
		}
	}
	from := int64(0)
	for _, q := range []URLsQuery{{Unique: true}, {Selection: Selection{From: &from}}, {Selection: Selection{Prefix: "/"}}} {
		q.Target, q.Dataset, q.Limit = target(t, "big.example"), 2, MaxLimit
		if stuck(5); q.Selection.Prefix != "" { // the pages are read at once
			slow.is = nil
			path := func(page int) int64 { return block.PageOffset(part.ColPathQuery, page) }
			slow.at = func(key string, off int64) bool {
				return strings.HasPrefix(key, "urls/dataset_id=2/") && off >= path(16) && off < path(block.Pages())
			}
		}
		l, err := snap.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Next(t.Context(), MaxLimit)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		n := p.Len()
		if p.StoppedBy != "deadline" || n == 0 || n >= len(records) || p.Cursor == "" {
			t.Fatalf("%+v: %d rows, stopped by %q", q, n, p.StoppedBy)
		}
		if _, err = l.Next(t.Context(), MaxLimit); !errors.Is(err, ErrDeadline) {
			t.Fatalf("a page of which nothing comes: %v", err)
		}
		slow.is, slow.at = nil, nil
		for {
			if p, err = l.Next(t.Context(), MaxLimit); err != nil || p == nil {
				break
			}
			for i := range p.Len() {
				if want := records[n+i].URL; string(p.URL(i)) != want {
					t.Fatalf("row %d is %.40s, want %.40s", n+i, p.URL(i), want)
				}
			}
			n += p.Len()
		}
		if err != nil || n != len(records) {
			t.Fatalf("%+v: %d rows, %v", q, n, err)
		}
	}
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), records[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := snap.URLDatasets(t.Context(), u, "")
	if err != nil || len(whole.Datasets) != 12 {
		t.Fatalf("%+v, %v", whole, err)
	}
	// Datasets are searched at once, and the page has those before the first that does not answer.
	slow.is = func(key string) bool { return strings.HasPrefix(key, "urls/dataset_id=6/") }
	part, err := snap.URLDatasets(t.Context(), u, "")
	if err != nil || part.StoppedBy != "deadline" || len(part.Datasets) != 5 || part.Cursor == "" {
		t.Fatalf("%+v, %v", part, err)
	}
	slow.is = nil
	rest, err := snap.URLDatasets(t.Context(), u, part.Cursor)
	if err != nil || rest.Cursor != "" {
		t.Fatalf("%+v, %v", rest, err)
	}
	if diff := gocmp.Diff(whole.Datasets, append(part.Datasets, rest.Datasets...)); diff != "" {
		t.Errorf("in two pages (-one page +two):\n%s", diff)
	}
}

func TestParseSelection(t *testing.T) {
	ms := func(n int64) *int64 { return &n }
	for _, tc := range []struct {
		host, prefix, from, to string
		want                   Selection
		bad                    string // the part that is malformed
	}{
		{},
		{host: "WWW.Example.COM.", prefix: "/a b/ü?x", want: Selection{Host: "www.example.com", Prefix: "/a%20b/%C3%BC?x"}},
		{host: "localhost", want: Selection{Host: "localhost"}},
		{host: "[2001:DB8::1]", want: Selection{Host: "[2001:db8::1]"}},
		{host: "bücher.example", want: Selection{Host: "xn--bcher-kva.example"}},
		{from: "1970-01-02", to: "1970-01-02T00:00:00.0005Z", want: Selection{From: ms(86_400_000), To: ms(86_400_001)}},
		{from: "1970-01-01T01:00:00+01:00", want: Selection{From: ms(0)}},
		{from: "1969-12-31T23:59:59.9999Z", want: Selection{From: ms(0)}},
		{host: "http://example.com/", bad: "host"}, {host: "example.com:80", bad: "host"}, {host: "a b", bad: "host"},
		{host: "u@example.com", bad: "host"}, {prefix: "docs", bad: "prefix"}, {prefix: "/a#b", bad: "prefix"},
		{prefix: "/" + strings.Repeat("a", maxPrefix), bad: "prefix"},
		{from: "yesterday", bad: "from"}, {to: "2026-13-01", bad: "to"}, {to: "1700000000", bad: "to"},
		{from: "2026-01-02", to: "2026-01-02", bad: "from"},
	} {
		got, err := ParseSelection(tc.host, tc.prefix, tc.from, tc.to)
		var bad *SelectionError
		switch {
		case tc.bad != "":
			if !errors.As(err, &bad) || bad.Part != tc.bad {
				t.Errorf("%+v: %v", tc, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", tc, err)
		default:
			if diff := gocmp.Diff(tc.want, got, gocmp.AllowUnexported(Selection{}, filter.Set{})); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", tc, diff)
			}
		}
	}
	var sel Selection
	var bad *SelectionError
	if err := sel.AddFilter("status"); !errors.As(err, &bad) || bad.Part != "filter" || !sel.All() {
		t.Errorf("a malformed filter: %v", err)
	}
	if err := sel.AddFilter("status=404"); err != nil || sel.Filters.Len() != 1 || sel.All() {
		t.Errorf("a filter: %v", err)
	}
}
