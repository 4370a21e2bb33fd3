// Long file: the tests share one lake and one brute-force answer.

package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// row is one row of the oracle.
type row struct {
	URL           string
	Host, Path    string
	Scheme        string
	Port          int32
	TS, Size      int64
	HasTS         bool
	HasSize       bool
	Batch, Domain string
}

// item is one row of an answer.
type item struct {
	URL   string
	TS    int64
	HasTS bool
}

// oracle maps datasets to their live rows. It answers queries by scanning them, and shares only
// urlnorm with the code under test.
type oracle map[string][]row

// replace replaces the rows of a batch.
func (o oracle) replace(dataset, batch string, records []testlake.Record) {
	o[dataset] = slices.DeleteFunc(slices.Clone(o[dataset]), func(r row) bool { return r.Batch == batch })
	seen := map[row]bool{}
	for _, rec := range records {
		u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), rec.URL)
		if err != nil {
			continue
		}
		r := row{
			URL: u.String(), Host: u.Host, Path: u.PathQuery, Scheme: u.Scheme, Port: u.Port,
			Batch: batch, Domain: u.Domain,
			TS: rec.TS, HasTS: rec.HasTS, Size: rec.Size, HasSize: rec.HasSize,
		}
		if !seen[r] {
			seen[r] = true
			o[dataset] = append(o[dataset], r)
		}
	}
}

// clone returns a copy that later calls of replace do not change.
func (o oracle) clone() oracle {
	c := oracle{}
	for k, v := range o {
		c[k] = v
	}
	return c
}

// rows returns the rows that a dataset has of a domain, in the order of a part.
func (o oracle) rows(dataset, domain string) []row {
	var found []*row // rows are large to compare and to swap
	for i := range o[dataset] {
		if r := &o[dataset][i]; r.Domain == domain {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *row) int {
		return cmp.Or(
			strings.Compare(a.Host, b.Host), strings.Compare(a.Path, b.Path),
			strings.Compare(a.Scheme, b.Scheme), cmp.Compare(a.Port, b.Port),
			compareOptional(a.TS, b.TS, a.HasTS, b.HasTS), compareOptional(a.Size, b.Size, a.HasSize, b.HasSize))
	})
	list := make([]row, 0, len(found))
	for _, r := range found {
		list = append(list, *r)
	}
	return list
}

func compareOptional(a, b int64, hasA, hasB bool) int {
	if hasA != hasB {
		if hasA {
			return 1
		}
		return -1
	}
	return cmp.Compare(a, b)
}

func items(list []row) []item {
	out := []item{}
	for _, r := range list {
		out = append(out, item{r.URL, r.TS, r.HasTS})
	}
	return out
}

func sorted(list []item) []item {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b item) int {
		return cmp.Or(strings.Compare(a.URL, b.URL), compareOptional(a.TS, b.TS, a.HasTS, b.HasTS))
	})
	return list
}

func (o oracle) domains() []string {
	seen := map[string]bool{}
	for _, rows := range o {
		for _, r := range rows {
			seen[r.Domain] = true
		}
	}
	list := []string{}
	for d := range seen {
		list = append(list, d)
	}
	slices.Sort(list)
	return list
}

// totals are the totals of a domain in one dataset, as Domain lists them.
type totals struct {
	Name            string
	Rows, Size      int64
	HasSize         bool
	FirstTS, LastTS int64
	HasTS           bool
}

func (o oracle) totals(domain string) []totals {
	list := []totals{}
	for name := range o {
		t := totals{Name: name}
		for _, r := range o.rows(name, domain) {
			t.Rows++
			if r.HasSize {
				t.Size, t.HasSize = t.Size+r.Size, true
			}
			if r.HasTS {
				if !t.HasTS || r.TS < t.FirstTS {
					t.FirstTS = r.TS
				}
				if !t.HasTS || r.TS > t.LastTS {
					t.LastTS = r.TS
				}
				t.HasTS = true
			}
		}
		if t.Rows > 0 {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b totals) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// randomRecords returns n records of a few large and many small domains, in many spellings.
func randomRecords(rng *rand.Rand, n int) []testlake.Record {
	hosts := []string{
		"www.example.com", "example.com", "EXAMPLE.com", "a.b.example.com", "news.example.co.uk",
		"bücher.example", "xn--bcher-kva.example", "192.0.2.7", "[2001:db8::1]", "localhost", "co.uk",
		"someone.github.io", "r3---sn-x.example.net",
	}
	paths := []string{"", "x?b=2&a=1", "%7Euser", "ü", "a b", "#frag"}
	list := make([]testlake.Record, 0, n)
	for range n {
		var r testlake.Record
		host := hosts[int(rng.ExpFloat64()*3)%len(hosts)]
		if rng.IntN(3) == 0 {
			host = fmt.Sprintf("site%d.test", rng.IntN(80))
		}
		scheme := []string{"http", "https", "https", "ftp"}[rng.IntN(4)]
		port := []string{"", "", "", ":443", ":8080"}[rng.IntN(5)]
		r.URL = fmt.Sprintf("%s://%s%s/p%d/%s", scheme, host, port, rng.IntN(1+n/4), paths[rng.IntN(len(paths))])
		if rng.IntN(2) == 0 {
			r.TS, r.HasTS = 1_500_000_000_000+int64(rng.IntN(5))*86_400_123, true
		}
		if rng.IntN(3) == 0 {
			r.Size, r.HasSize = int64(rng.IntN(10_000)), true
		}
		if rng.IntN(60) == 0 {
			r.URL = "mailto:someone"
		}
		list = append(list, r)
	}
	return list
}

// stores runs a test in a folder, and with the tag soak with each kind of store.
func stores(t *testing.T, f func(t *testing.T, store blob.Store)) {
	t.Run("file", func(t *testing.T) { f(t, open(t, "file://"+t.TempDir())) })
	if testenv.Every(2) == 1 {
		t.Run("memory", func(t *testing.T) { f(t, blob.NewMemory()) })
		t.Run("s3", func(t *testing.T) { f(t, open(t, testenv.S3(t))) })
	}
}

func open(t testing.TB, url string) blob.Store {
	t.Helper()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// serve returns a server of the lake in store, with an empty cache directory.
func serve(t testing.TB, store blob.Store, opt Options) *Server {
	t.Helper()
	opt.CacheDir = t.TempDir()
	s := NewServer(store, opt)
	t.Cleanup(s.Close)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func acquire(t testing.TB, s *Server, version string) *Snapshot {
	t.Helper()
	snap, err := s.Acquire(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Release)
	return snap
}

func target(t testing.TB, text string) Target {
	t.Helper()
	tg, err := ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

// spelling returns a URL of a domain, because a name without a dot is not a host by itself.
func spelling(domain string) string { return "http://" + domain + "/" }

func pageItems(p *URLsPage) []item {
	list := make([]item, 0, p.Len())
	for i := range p.Len() {
		ms, ok := p.TS(i)
		list = append(list, item{string(p.URL(i)), ms, ok})
		if want := urlnorm.URLID(p.URL(i)); p.ID(i) != want {
			panic(fmt.Sprintf("url_id %x of %s", p.ID(i), p.URL(i)))
		}
	}
	return list
}

// wholeList reads a list page by page, following the cursors.
func wholeList(ctx context.Context, snap *Snapshot, tg Target, dataset uint32, limit func() int) ([]item, error) {
	all := []item{}
	q := URLsQuery{Target: tg, Dataset: dataset, Limit: limit()}
	for {
		p, err := snap.URLs(ctx, q)
		if err != nil {
			return nil, err
		}
		if p.Offset != int64(len(all)) {
			return nil, fmt.Errorf("the page has offset %d after %d rows", p.Offset, len(all))
		}
		all = append(all, pageItems(p)...)
		if p.Cursor == "" {
			if p.Total != int64(len(all)) {
				return nil, fmt.Errorf("%d rows of a total of %d", len(all), p.Total)
			}
			return all, nil
		}
		if p.Len() == 0 {
			return nil, errors.New("an empty page with a cursor")
		}
		q.Cursor, q.Limit = p.Cursor, limit()
	}
}

// check compares all answers of a snapshot about domains with the oracle.
func (o oracle) check(t testing.TB, snap *Snapshot, domains []string) {
	t.Helper()
	for _, domain := range domains {
		tg := target(t, spelling(domain))
		page, err := snap.Domain(t.Context(), tg, "")
		if err != nil {
			t.Fatalf("%s: %v", domain, err)
		}
		got := []totals{}
		for _, d := range page.Datasets {
			got = append(got, totals{d.Name, d.Rows, d.Size, d.HasSize, d.FirstTS, d.LastTS, d.HasTS})
		}
		slices.SortFunc(got, func(a, b totals) int { return strings.Compare(a.Name, b.Name) })
		if diff := gocmp.Diff(o.totals(domain), got); diff != "" {
			t.Fatalf("%s (-brute force +served):\n%s", domain, diff)
		}
		if page.Domain != domain || page.DomainID != urlnorm.DomainID(domain) || page.Total != len(got) {
			t.Fatalf("%s: answer is for %s, total %d", domain, page.Domain, page.Total)
		}
		for _, d := range page.Datasets {
			all, err := wholeList(t.Context(), snap, tg, d.ID, func() int { return MaxLimit })
			if err != nil {
				t.Fatalf("%s in %s: %v", domain, d.Name, err)
			}
			if diff := gocmp.Diff(sorted(items(o.rows(d.Name, domain))), sorted(all)); diff != "" {
				t.Fatalf("%s in %s (-brute force +served):\n%.3000s", domain, d.Name, diff)
			}
			o.checkSelection(t, snap, tg, d, o.rows(d.Name, domain), all)
		}
	}
	o.checkURL(t, snap)
}

// history lists the versions of a lake, each with an oracle of its rows.
type history struct {
	versions []string
	oracles  []oracle
}

// built is the lake that build copies, made by the first test that needs it.
var built struct {
	store blob.Store
	history
}

// build fills a store with a lake of several versions.
func build(t testing.TB, store blob.Store) *history {
	t.Helper()
	if built.store == nil {
		made := blob.NewMemory()
		built.history, built.store = *makeHistory(t, made), made
	}
	blobtest.Copy(t, built.store, store)
	h := &history{versions: slices.Clone(built.versions)}
	for _, o := range built.oracles {
		h.oracles = append(h.oracles, o.clone())
	}
	return h
}

// makeHistory makes a lake of several versions. Versions add and replace batches, some of them
// several at once, and some of the same dataset.
func makeHistory(t testing.TB, store blob.Store) *history {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	h := &history{}
	o := oracle{}
	steps := [][][2]string{
		{{"alpha", "b1"}, {"beta", "b1"}},
		{{"alpha", "b2"}, {"alpha", "b3"}, {"gamma", "b1"}},
		{{"beta", "b1"}, {"delta", "only"}},
		{{"alpha", "b2"}},
	}
	for i, step := range steps {
		for _, b := range step {
			records := randomRecords(rng, 300+200*i)
			testlake.Ingest(t, store, b[0], b[1], records)
			o.replace(b[0], b[1], records)
		}
		done := testlake.Publish(t, store)
		h.versions = append(h.versions, done.Version)
		h.oracles = append(h.oracles, o.clone())
	}
	return h
}

func TestEveryVersionEqualsBruteForce(t *testing.T) {
	check := func(t *testing.T, store blob.Store) {
		h := build(t, store)
		s := serve(t, store, Options{})
		for i, version := range h.versions {
			snap := acquire(t, s, version)
			domains := append(h.oracles[i].domains(), "no-such-domain.example", "site999.test")
			h.oracles[i].check(t, snap, domains)
		}
		if cur := acquire(t, s, ""); cur.Version().ID != h.versions[len(h.versions)-1] {
			t.Fatalf("current is %s", cur.Version().ID)
		}
	}
	t.Run("file", func(t *testing.T) { check(t, open(t, "file://"+t.TempDir())) })
	t.Run("s3", func(t *testing.T) { check(t, open(t, testenv.S3(t))) })
}

// Retired batches are in the versions before, and in those after they are restored. A version may
// have nothing at all.
func TestVersionsWithoutRetiredBatches(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	o := h.oracles[len(h.oracles)-1].clone()
	all := map[[2]string][]row{} // of each batch
	for dataset, rows := range o {
		for _, r := range rows {
			all[[2]string{dataset, r.Batch}] = append(all[[2]string{dataset, r.Batch}], r)
		}
	}
	registered, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		retire, restore [][2]string
	}{
		{retire: [][2]string{{"gamma", "b1"}, {"alpha", "b2"}}},
		{retire: [][2]string{{"alpha", "b1"}, {"alpha", "b3"}, {"beta", "b1"}, {"delta", "only"}}},
		{restore: [][2]string{{"beta", "b1"}, {"gamma", "b1"}}},
	} {
		ids := func(batches [][2]string) (ids []catalog.BatchName) {
			for _, b := range batches {
				at := slices.IndexFunc(registered, func(d lake.Dataset) bool { return d.Name == b[0] })
				ids = append(ids, catalog.BatchName{DatasetID: registered[at].ID, Batch: b[1]})
			}
			return ids
		}
		for _, b := range step.retire {
			o.replace(b[0], b[1], nil)
		}
		for _, b := range step.restore {
			o[b[0]] = append(slices.Clone(o[b[0]]), all[b]...)
		}
		testlake.Retire(t, store, ids(step.retire)...)
		testlake.Restore(t, store, ids(step.restore)...)
		h.versions = append(h.versions, testlake.Publish(t, store).Version)
		h.oracles = append(h.oracles, o.clone())
	}
	s := serve(t, store, Options{})
	for i, version := range h.versions {
		snap := acquire(t, s, version)
		h.oracles[i].check(t, snap, append(h.oracles[3].domains(), "site999.test"))
		want := []string{}
		for name, rows := range h.oracles[i] {
			if len(rows) > 0 {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		page, err := snap.Datasets(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for i := range page.Datasets {
			got = append(got, page.Datasets[i].Name)
		}
		slices.Sort(got)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("version %d: datasets (-brute force +served):\n%s", i, diff)
		}
	}
	h.versions, h.oracles = h.versions[3:], h.oracles[3:]
	h.checkDiffs(t, store)
}

func TestOneBatchIsListedInPartOrder(t *testing.T) {
	store := blob.NewMemory()
	records := randomRecords(rand.New(rand.NewPCG(1, 1)), 3000)
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	o := oracle{}
	o.replace("alpha", "b1", records)
	snap := acquire(t, serve(t, store, Options{}), "")
	for _, domain := range o.domains() {
		got, err := wholeList(t.Context(), snap, target(t, spelling(domain)), 1, func() int { return MaxLimit })
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(items(o.rows("alpha", domain)), got); diff != "" {
			t.Fatalf("%s (-brute force +served):\n%.3000s", domain, diff)
		}
	}
}

// large makes a lake of two segments and returns a domain that has several pages in each of its
// three batches.
func large(t testing.TB, store blob.Store) Target {
	t.Helper()
	for b := range 3 {
		var records []testlake.Record
		for i := range 5000 - 1500*b {
			url := fmt.Sprintf("https://www.big.example/b%d/%06d", b, i)
			records = append(records, testlake.Record{URL: url, TS: int64(i), HasTS: i%3 == 0})
			if i%10 == 0 {
				records = append(records, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%d", i%100, i)})
			}
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%d", b), records)
		if b > 0 {
			testlake.Publish(t, store)
		}
	}
	return target(t, "big.example")
}

func TestPagesAreSlicesOfTheList(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	if len(snap.segments) != 2 {
		t.Fatalf("%d segments", len(snap.segments))
	}
	all, err := wholeList(t.Context(), snap, tg, 1, func() int { return MaxLimit })
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 5000+3500+2000 {
		t.Fatalf("%d rows", len(all))
	}
	rng := rand.New(rand.NewPCG(3, 4))
	again, err := wholeList(t.Context(), snap, tg, 1, func() int { return 1 + rng.IntN(3000) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(all, again); diff != "" {
		t.Fatalf("pages of other sizes:\n%.2000s", diff)
	}
	for range 300 {
		offset, limit := rng.IntN(len(all)+100), 1+rng.IntN(400)
		if rng.IntN(10) == 0 {
			limit = 1 + rng.IntN(MaxLimit)
		}
		p, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Offset: int64(offset), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		lo := min(offset, len(all))
		hi := min(offset+limit, len(all))
		diff := gocmp.Diff(all[lo:hi], pageItems(p))
		if diff != "" || (p.Cursor == "") != (hi == len(all)) || p.StoppedBy != "" {
			t.Fatalf("offset %d, limit %d: cursor %q, stopped by %q\n%.2000s",
				offset, limit, p.Cursor, p.StoppedBy, diff)
		}
		if p.Cursor == "" {
			continue
		}
		next, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Cursor: p.Cursor, Limit: 5})
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(all[hi:min(hi+5, len(all))], pageItems(next)); diff != "" || next.Offset != int64(hi) {
			t.Fatalf("the page after offset %d, limit %d has offset %d:\n%.2000s", offset, limit, next.Offset, diff)
		}
	}
}

func TestCursorsAreCheckedAgainstTheIndex(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	p, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Offset: 4000, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	good, err := parseCursor(p.Cursor, cursorURLs)
	if err != nil {
		t.Fatal(err)
	}
	urls := func(c *cursor, tg Target) error {
		_, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Cursor: c.String(), Limit: 10})
		return err
	}
	if err := urls(good, tg); err != nil {
		t.Fatal(err)
	}
	if err := urls(good, target(t, "site1.test")); !errors.Is(err, ErrBadCursor) {
		t.Fatalf("of another domain: %v", err)
	}
	for name, forge := range map[string]func(c *cursor){
		"segment":       func(c *cursor) { c.at.segment = 2 },
		"segment max":   func(c *cursor) { c.at.segment = 1<<64 - 1 },
		"file":          func(c *cursor) { c.at.file = 9 },
		"row group":     func(c *cursor) { c.at.rowGroup = 1 },
		"row":           func(c *cursor) { c.at.row = 1 << 40 },
		"row max":       func(c *cursor) { c.at.row = 1<<64 - 1 },
		"other domain":  func(c *cursor) { c.at.row = 1 << 13 },
		"other version": func(c *cursor) { c.version = "20200101T000000.000Z-00000000" },
	} {
		c := *good
		forge(&c)
		if err := urls(&c, tg); !errors.Is(err, ErrBadCursor) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPageEndsAtMaxRowGroups(t *testing.T) {
	store := blob.NewMemory()
	const batches = MaxRowGroups + 8
	for b := range batches {
		testlake.Ingest(t, store, "alpha", fmt.Sprintf("b%02d", b),
			[]testlake.Record{{URL: fmt.Sprintf("https://example.com/%d", b)}, {URL: "https://example.com/same"}})
	}
	testlake.Publish(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	tg := target(t, "example.com")
	p, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if p.StoppedBy != "row_groups" || p.Len() != 2*MaxRowGroups || p.Total != 2*batches || p.Cursor == "" {
		t.Fatalf("%d rows of %d, stopped by %q", p.Len(), p.Total, p.StoppedBy)
	}
	all, err := wholeList(t.Context(), snap, tg, 1, func() int { return 1000 })
	if err != nil || len(all) != 2*batches {
		t.Fatalf("%d rows, %v", len(all), err)
	}
}

// With rows of 16 KB a page of a part has about 16 rows, so the domain has more pages than one
// answer
// may decode.
func TestPageEndsAtMaxPages(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	const n = 1700
	for i := range n {
		url := fmt.Sprintf("https://example.com/%05d/%s", i, strings.Repeat("x", 16_000))
		records = append(records, testlake.Record{URL: url})
	}
	testlake.Ingest(t, store, "alpha", "b1", records)
	testlake.Publish(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	tg := target(t, "example.com")
	p, err := snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	if p.StoppedBy != "pages" || p.Len() == 0 || p.Len() >= n || p.Total != n {
		t.Fatalf("%d rows of %d, stopped by %q", p.Len(), p.Total, p.StoppedBy)
	}
	all, err := wholeList(t.Context(), snap, tg, 1, func() int { return 10_000 })
	if err != nil || len(all) != n {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	for i, it := range all {
		if it.URL != records[i].URL {
			t.Fatalf("row %d is %.60s", i, it.URL)
		}
	}
}

func TestDatasetsArePaged(t *testing.T) {
	store := blob.NewMemory()
	const n = 45
	for i := range n {
		records := []testlake.Record{{URL: "https://example.com/"}, {URL: "https://example.com/a"}}
		testlake.Ingest(t, store, fmt.Sprintf("d%04d", i), "b", records[:1+i%2])
		if i%20 == 0 {
			testlake.Publish(t, store)
		}
	}
	testlake.Publish(t, store)
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	tg := target(t, "example.com")
	for _, size := range []int{1, 7, 44, 45, 46, MaxDatasets} {
		s.datasets = size
		var got []DatasetTotals
		for cursorText, pages := "", 0; cursorText != "" || pages == 0; pages++ {
			p, err := snap.Domain(t.Context(), tg, cursorText)
			if err != nil {
				t.Fatal(err)
			}
			if p.Total != n || len(p.Datasets) != min(size, n-len(got)) {
				t.Fatalf("page %d of %d: %d of %d", pages, size, len(p.Datasets), p.Total)
			}
			got = append(got, p.Datasets...)
			cursorText = p.Cursor
		}
		if len(got) != n {
			t.Fatalf("%d datasets", len(got))
		}
		for i, d := range got {
			if d.ID != uint32(i+1) || d.Name != fmt.Sprintf("d%04d", i) || d.Rows != int64(1+i%2) {
				t.Fatalf("dataset %d is %+v", i, d)
			}
		}
		var all []catalog.Dataset
		for cursorText, pages := "", 0; cursorText != "" || pages == 0; pages++ {
			p, err := snap.Datasets(t.Context(), cursorText)
			if err != nil {
				t.Fatal(err)
			}
			if p.Total != n || p.Before != len(all) || len(p.Datasets) != min(size, n-len(all)) || p.Version != snap.Version().ID {
				t.Fatalf("page %d of %d: %d of %d", pages, size, len(p.Datasets), p.Total)
			}
			all = append(all, p.Datasets...)
			cursorText = p.Cursor
		}
		if diff := gocmp.Diff(snap.every, all); diff != "" {
			t.Fatalf("pages of %d (-version +pages):\n%s", size, diff)
		}
	}
	for name, text := range map[string]string{
		"after the last id": snap.datasetCursor(cursorAllDatasets, "", 1<<32-1),
		"of a domain":       snap.datasetCursor(cursorDatasets, "example.com", 1),
	} {
		if _, err := snap.Datasets(t.Context(), text); !errors.Is(err, ErrBadCursor) {
			t.Errorf("a cursor %s: %v", name, err)
		}
	}
	p, err := snap.Datasets(t.Context(), snap.datasetCursor(cursorAllDatasets, "", n))
	if err != nil || len(p.Datasets) != 0 || p.Cursor != "" {
		t.Errorf("after the last dataset: %+v, %v", p, err)
	}
}

func TestCursorSurvivesAPublish(t *testing.T) {
	store := blob.NewMemory()
	tg := large(t, store)
	s := serve(t, store, Options{})
	before := acquire(t, s, "")
	all, err := wholeList(t.Context(), before, tg, 1, func() int { return MaxLimit })
	if err != nil {
		t.Fatal(err)
	}
	first, err := before.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	// Replace the first batch of the list.
	testlake.Ingest(t, store, "alpha", "b0", []testlake.Record{{URL: "https://big.example/new"}})
	testlake.Publish(t, store)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := acquire(t, s, "")
	if after.Version().ID == before.Version().ID {
		t.Fatal("no new version")
	}
	version, err := CursorVersion(first.Cursor)
	if err != nil {
		t.Fatal(err)
	}
	pinned := acquire(t, s, version)
	rest, err := pinned.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Cursor: first.Cursor, Limit: MaxLimit})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(all[100:min(100+MaxLimit, len(all))], pageItems(rest)); diff != "" {
		t.Fatalf("%.2000s", diff)
	}
	_, err = after.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Cursor: first.Cursor, Limit: 1})
	if !errors.Is(err, ErrBadCursor) {
		t.Fatalf("in another version: %v", err)
	}
	now, err := after.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 1})
	if err != nil || now.Total != 1+3500+2000 {
		t.Fatalf("%+v, %v", now, err)
	}
	// A server that has not opened the old version before.
	cold := acquire(t, serve(t, store, Options{}), version)
	rest, err = cold.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Cursor: first.Cursor, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(all[100:110], pageItems(rest)); diff != "" {
		t.Fatal(diff)
	}
}

// rewrite applies change to the manifest and writes it as the next generation.
func rewrite(t *testing.T, store blob.Store, change func(m *catalog.Manifest)) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	m.Generation++
	change(m)
	data, err := codec.Seal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(t.Context(), catalog.ManifestKey, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
}

func TestRejectedVersions(t *testing.T) {
	store := blob.NewMemory()
	s := NewServer(store, Options{CacheDir: t.TempDir()})
	t.Cleanup(s.Close)
	var notReady *NotReadyError
	if err := s.Refresh(t.Context()); !errors.Is(err, catalog.ErrNoVersion) {
		t.Fatalf("empty lake: %v", err)
	}
	if _, err := s.Acquire(t.Context(), ""); !errors.As(err, &notReady) || !errors.Is(err, catalog.ErrNoVersion) {
		t.Fatalf("empty lake: %v", err)
	}
	h := build(t, store)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := acquire(t, s, h.versions[0])
	rewrite(t, store, func(m *catalog.Manifest) { m.Versions = m.Versions[1:] })
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.oracles[0].check(t, old, h.oracles[0].domains()) // still pinned
	for version, want := range map[string]error{
		h.versions[0]:                   ErrGone,
		"20200101T000000.000Z-00000000": ErrGone,
		"29990101T000000.000Z-00000000": catalog.ErrUnknownVersion,
		"latest":                        catalog.ErrUnknownVersion,
		"1":                             ErrBadVersion,
		"../../etc/passwd":              ErrBadVersion,
	} {
		if _, err := s.Acquire(t.Context(), version); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", version, err, want)
		}
	}
	_, err := acquire(t, s, "").URLs(t.Context(), URLsQuery{Target: target(t, "example.com"), Dataset: 99, Limit: 1})
	if !errors.Is(err, ErrUnknownDataset) {
		t.Errorf("unknown dataset: %v", err)
	}
	for _, q := range []URLsQuery{
		{Limit: 0}, {Limit: MaxLimit + 1}, {Limit: 1, Offset: -1}, {Limit: 1, Offset: 1, Cursor: "x"},
	} {
		q.Target, q.Dataset = target(t, "example.com"), 1
		if _, err := acquire(t, s, "").URLs(t.Context(), q); !errors.Is(err, ErrRange) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// For a version published after the last poll, the server polls again.
func TestVersionNewerThanTheLastPollIsServed(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, store)
	s := serve(t, store, Options{})
	testlake.Ingest(t, store, "alpha", "b2", []testlake.Record{{URL: "https://example.com/2"}})
	next := testlake.Publish(t, store).Version
	s.mu.Lock()
	s.polled = s.polled.Add(-2 * newerPoll)
	s.mu.Unlock()
	if got := acquire(t, s, next).Version().ID; got != next {
		t.Fatalf("got %s", got)
	}
}

// A tag answers from its version, also if it was set or moved after the last poll that found it.
func TestTagIsServed(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	s := serve(t, store, Options{})
	s.polled = time.Now().Add(-time.Hour)
	last := len(h.versions) - 1
	for i, name := range []string{"first", "second"} {
		if _, _, err := catalog.SetTag(t.Context(), store, name, h.versions[i], false); err != nil {
			t.Fatal(err)
		}
	}
	snap := acquire(t, s, "second")
	h.oracles[1].check(t, snap, h.oracles[1].domains())
	if _, _, err := catalog.SetTag(t.Context(), store, "second", "", true); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]string{"first": h.versions[0], "second": h.versions[last], "": h.versions[last]} {
		if got := acquire(t, s, name).Version().ID; got != version {
			t.Errorf("%s is %s, want %s", name, got, version)
		}
	}
	if _, err := catalog.RemoveTag(t.Context(), store, "second"); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "second"); !errors.Is(err, catalog.ErrUnknownVersion) {
		t.Errorf("a tag that was removed: %v", err)
	}
}

func TestManySnapshotsStayBounded(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	s := serve(t, store, Options{KeepOpen: 1})
	for range 3 {
		for i, v := range h.versions {
			snap, err := s.Acquire(t.Context(), v)
			if err != nil {
				t.Fatal(err)
			}
			h.oracles[i].check(t, snap, []string{"example.com"})
			snap.Release()
		}
	}
	if st := s.Status(); st.Open > 2 {
		t.Fatalf("%d versions open", st.Open)
	}
}

// While versions are published, every answer belongs to one whole version. In the end all segments
// are closed.
func TestNewVersionsUnderTraffic(t *testing.T) {
	store := blob.NewMemory()
	var known sync.Map // number of the publish → oracle
	o := oracle{}
	rng := rand.New(rand.NewPCG(5, 5))
	publish := func(i int) {
		batch := fmt.Sprintf("b%d", i%3) // added at first, then replaced
		records := randomRecords(rng, 100)
		testlake.Ingest(t, store, "alpha", batch, records)
		o.replace("alpha", batch, records)
		// Readers may see the version before Publish returns its id, so store the oracle first.
		known.Store(i, o.clone())
		testlake.Publish(t, store)
	}
	publish(0)
	s := NewServer(store, Options{CacheDir: t.TempDir(), KeepOpen: 2})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	const flips = 6
	var stop atomic.Bool
	var answers atomic.Int64
	var readers sync.WaitGroup
	for g := range 3 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			tg, err := ParseTarget("example.com")
			for err == nil && !stop.Load() {
				var snap *Snapshot
				if snap, err = s.Acquire(t.Context(), ""); err != nil {
					break
				}
				var all []item
				if all, err = wholeList(t.Context(), snap, tg, 1, func() int { return 1 + rng.IntN(200) }); err == nil {
					match := false
					known.Range(func(_, v any) bool {
						match = gocmp.Equal(sorted(items(v.(oracle).rows("alpha", "example.com"))), sorted(all))
						return !match
					})
					if !match {
						err = fmt.Errorf("version %s: a list of %d rows that no version has",
							snap.Version().ID, len(all))
					}
				}
				snap.Release()
				answers.Add(1)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	for i := 1; i <= flips; i++ {
		publish(i)
		if err := s.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		for seen := answers.Load(); answers.Load() < seen+3 && !t.Failed(); {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	readers.Wait()
	s.Close()
	for range s.older {
		t.Error("a version is still open")
	}
	// Close does not wait: goroutines of its own release the last pins.
	for {
		s.mu.Lock()
		n := len(s.segments)
		s.mu.Unlock()
		if n == 0 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d segments are still open", n)
		}
		runtime.Gosched()
	}
	if answers.Load() < flips {
		t.Fatalf("only %d answers", answers.Load())
	}
}

// Each version answers by the list that it follows, whatever list the program has and the lake
// follows now.
func TestVersionAnswersByItsOwnPublicSuffixList(t *testing.T) {
	store := blob.NewMemory()
	testlake.SetList(t, store, "com uk example.com")
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "http://a.example.com/"}, {URL: "http://b.a.example.com/"}, {URL: "http://www.example.co.uk/"},
		{URL: "http://other.co.uk/"}, {URL: "http://someone.github.io/"},
	})
	testlake.Publish(t, store)
	server := serve(t, store, Options{})
	snap := acquire(t, server, "")
	check := func(snap *Snapshot) {
		t.Helper()
		for _, c := range []struct {
			host, domain string
			rows         int64
		}{
			{"b.a.example.com", "a.example.com", 2}, {"c.example.com", "c.example.com", 0}, {"example.com", "example.com", 0},
			{"www.example.co.uk", "co.uk", 2}, {"someone.github.io", "github.io", 1},
		} {
			p, err := snap.URLs(t.Context(), URLsQuery{Target: target(t, c.host), Dataset: 1, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if p.Domain != c.domain || p.Total != c.rows || p.OtherDomains != nil || snap.LacksSuffixes() {
				t.Errorf("%s: got %s with %d rows, others %v", c.host, p.Domain, p.Total, p.OtherDomains)
			}
		}
	}
	check(snap)
	testlake.SetList(t, store, "com uk co.uk")
	check(snap)
	check(acquire(t, serve(t, store, Options{}), ""))
}

// A lake from before public suffix lists were objects has a version of a list that the program does
// not have either.
func TestWithoutItsPublicSuffixListEveryParentIsLookedUp(t *testing.T) {
	store := blob.NewMemory()
	list := testlake.SetList(t, store, "com uk co.uk io github.io test")
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "http://co.uk/"}, {URL: "http://co.uk/2"},
		{URL: "http://www.example.co.uk/"}, {URL: "http://someone.github.io/"},
	})
	testlake.Publish(t, store)
	same := acquire(t, serve(t, store, Options{}), "")
	testlake.LoseList(t, store, list)
	other := acquire(t, serve(t, store, Options{}), "")
	if same.LacksSuffixes() || !other.LacksSuffixes() {
		t.Fatalf("lists are missing: %v, %v", same.LacksSuffixes(), other.LacksSuffixes())
	}
	for _, c := range []struct {
		snap         *Snapshot
		host, domain string
		rows         int64
		others       []string
	}{
		{same, "www.example.co.uk", "example.co.uk", 1, nil},
		{same, "other.co.uk", "other.co.uk", 0, nil},
		{other, "www.example.co.uk", "example.co.uk", 1, []string{"co.uk"}},
		{other, "other.co.uk", "co.uk", 2, nil},
		{other, "a.b.someone.github.io", "someone.github.io", 1, nil},
		{other, "nowhere.test", "nowhere.test", 0, nil},
		{other, "[2001:db8::1]", "[2001:db8::1]", 0, nil},
	} {
		tg := target(t, c.host)
		p, err := c.snap.URLs(t.Context(), URLsQuery{Target: tg, Dataset: 1, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if p.Domain != c.domain || p.Total != c.rows || !slices.Equal(p.OtherDomains, c.others) {
			t.Errorf("%s: got %s with %d rows, others %v", c.host, p.Domain, p.Total, p.OtherDomains)
		}
	}
}
