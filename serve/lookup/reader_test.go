package lookup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/turns"
)

// setReaders sets the readers of datasets, "" being the default.
func setReaders(t testing.TB, store blob.Store, readers map[string]string) {
	t.Helper()
	for name, text := range readers {
		r, err := access.ParseReaders(text)
		if err != nil {
			t.Fatal(err)
		}
		e := access.Edit{Dataset: name, Readers: &r}
		if name == "" {
			e = access.Edit{Default: &r}
		}
		if _, err := access.Change(t.Context(), store, e); err != nil {
			t.Fatal(err)
		}
	}
}

// as returns the context of a principal.
func as(t testing.TB, s *Server, name string) context.Context {
	t.Helper()
	ctx, _, err := s.As(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return ctx
}

// acquireAs is acquire for a principal.
func acquireAs(t testing.TB, s *Server, name, version string) *Snapshot {
	t.Helper()
	snap, err := s.Acquire(as(t, s, name), version)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Release)
	return snap
}

// only returns the rows of some datasets.
func (o oracle) only(may func(name string) bool) oracle {
	left := oracle{}
	for name, rows := range o {
		if may(name) {
			left[name] = rows
		}
	}
	return left
}

// TestReadersEqualBruteForce asks as each of sixteen principals, who may read each set of the four
// datasets, and as one who says no name.
func TestReadersEqualBruteForce(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	all := []string{"alpha", "beta", "gamma", "delta"}
	readers := map[string]string{"": "p15"}
	for d, name := range all {
		text := ""
		for set := 1; set < 16; set++ {
			if set>>d&1 == 1 {
				text += fmt.Sprintf(",p%d", set)
			}
		}
		readers[name] = text[1:]
	}
	setReaders(t, store, readers)
	s := serve(t, store, Options{Access: access.NewFollower(store)})
	for set := 0; set < 16; set += testenv.Every(3) {
		name := fmt.Sprintf("p%d", set) // no dataset names p0
		may := func(dataset string) bool { return set>>slices.Index(all, dataset)&1 == 1 }
		domains := append(h.oracles[len(h.oracles)-1].domains(), "site999.test")
		for i, version := range h.versions {
			snap := acquireAs(t, s, name, version)
			left := h.oracles[i].only(may)
			s.datasets = MaxDatasets
			left.check(t, snap, domains)
			rows, names := int64(0), []string{}
			for dataset, list := range left {
				if len(list) > 0 {
					rows += int64(len(list))
					names = append(names, dataset)
				}
			}
			s.datasets = 1
			got := []string{}
			for cursorText, pages := "", 0; cursorText != "" || pages == 0; pages++ {
				p, err := snap.Datasets(t.Context(), cursorText)
				if err != nil {
					t.Fatal(err)
				}
				if p.Total != len(names) || p.Rows != rows || p.Before != len(got) {
					t.Fatalf("%s, version %d: %d datasets, %d rows, want %d of %v", name, i, p.Total, p.Rows, rows, names)
				}
				for _, d := range p.Datasets {
					got = append(got, d.Name)
				}
				cursorText = p.Cursor
			}
			slices.Sort(got)
			slices.Sort(names)
			if !slices.Equal(got, names) {
				t.Fatalf("%s, version %d: %v, want %v", name, i, got, names)
			}
			for id := uint32(1); id <= 4; id++ {
				dataset, ok := acquireAs(t, s, "p15", version).Dataset(id)
				if !ok {
					continue
				}
				_, byID := snap.Dataset(id)
				_, byName := snap.FindDataset(dataset.Name)
				_, err := snap.URLs(t.Context(), URLsQuery{Target: target(t, "http://site1.test/"), Dataset: id, Limit: 1})
				if want := may(dataset.Name); byID != want || byName != want || (err == nil) != want || !want && !errors.Is(err, ErrUnknownDataset) {
					t.Fatalf("%s finds %s: %v, %v, %v", name, dataset.Name, byID, byName, err)
				}
			}
		}
		for i := range h.versions {
			for j := range h.versions {
				ctx := as(t, s, name)
				before, errBefore := s.Acquire(ctx, h.versions[i])
				after, errAfter := s.Acquire(ctx, h.versions[j])
				if err := errors.Join(errBefore, errAfter); err != nil {
					t.Fatal(err)
				}
				want := h.oracles[i].only(may).diff(h.oracles[j].only(may))
				for _, limit := range []int{MaxLimit, 1 + len(want)/3} {
					got, _ := pagedDiff(t, before, after, DiffQuery{Limit: limit})
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Fatalf("%s, versions %d and %d (-brute force +served):\n%.3000s", name, i, j, diff)
					}
				}
				before.Release()
				after.Release()
			}
		}
	}
}

// TestLateDiffNamesNothingHidden pages through a diff whose pages all end at the deadline, most of
// them among domains that may not be known. No cursor names one.
func TestLateDiffNamesNothingHidden(t *testing.T) {
	store := blob.NewMemory()
	o := oracle{}
	put := func(dataset, batch string, from, to int) {
		var records []testlake.Record
		for i := range to - from {
			records = append(records, testlake.Record{URL: fmt.Sprintf("https://site%d.test/", from+i)})
		}
		testlake.Ingest(t, store, dataset, batch, records)
		o.replace(dataset, batch, records)
	}
	open := func(name string) bool { return name == "open" }
	put("open", "a", 0, 50)
	put("hidden", "a", 0, 6000)
	first, before := testlake.Publish(t, store).Version, o.clone()
	put("open", "a", 20, 90)
	put("hidden", "a", 3000, 20_000)
	second := testlake.Publish(t, store).Version
	want := before.only(open).diff(o.only(open))
	setReaders(t, store, map[string]string{"hidden": "ops"})
	s := serve(t, store, Options{Deadline: time.Nanosecond, Access: access.NewFollower(store)})
	known := map[uint64]bool{}
	for _, domain := range slices.Concat(before.only(open).domains(), o.only(open).domains()) {
		known[urlnorm.DomainID(domain)] = true
	}
	got := []Change{}
	late := 0
	q := DiffQuery{Limit: MaxLimit}
	a, b := acquireAs(t, s, "", first), acquireAs(t, s, "", second)
	for {
		p, err := b.Diff(t.Context(), a, q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.Changes...)
		if q.Cursor = p.Cursor; q.Cursor == "" {
			break
		}
		late++
		c, err := parseCursor(q.Cursor, cursorDiff)
		if err != nil {
			t.Fatal(err)
		}
		if coarsely := c.at.domain&coarse == 0 && c.at.check == 0 && c.at.dataset == 0; !coarsely && !known[c.at.domain] {
			t.Fatalf("the cursor names domain %016x of a dataset that is hidden", c.at.domain)
		}
	}
	if len(got) != len(want) || late < 3 {
		t.Fatalf("%d changes on %d late pages, want %d", len(got), late, len(want))
	}
	for i := range got {
		if got[i].Name != "open" || i > 0 && got[i-1].DomainID >= got[i].DomainID {
			t.Fatalf("%+v", got[i])
		}
	}
}

// TestPagesOfWhatMayBeRead pages through datasets of which every third may be read.
func TestPagesOfWhatMayBeRead(t *testing.T) {
	store := blob.NewMemory()
	const n = 60
	readers := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("d%02d", i)
		testlake.Ingest(t, store, name, "b", []testlake.Record{{URL: "https://example.com/"}})
		if readers[name] = "ops"; i%3 == 0 {
			readers[name] = "ops,ada"
		}
		if i%7 == 0 {
			testlake.Publish(t, store)
		}
	}
	testlake.Publish(t, store)
	setReaders(t, store, readers)
	s := serve(t, store, Options{Access: access.NewFollower(store)})
	snap := acquireAs(t, s, "ada", "")
	tg := target(t, "example.com")
	for _, size := range []int{1, 7, 19, 20, 21, 1000} {
		s.datasets = size
		var ids, listed []uint32
		for cursorText, pages := "", 0; cursorText != "" || pages == 0; pages++ {
			p, err := snap.Domain(t.Context(), tg, cursorText)
			if err != nil {
				t.Fatal(err)
			}
			if p.Total != n/3 || len(p.Datasets) != min(size, n/3-len(ids)) {
				t.Fatalf("page %d of %d: %d of %d", pages, size, len(p.Datasets), p.Total)
			}
			for _, d := range p.Datasets {
				if ids = append(ids, d.ID); d.Rows != 1 {
					t.Fatalf("%+v", d)
				}
			}
			cursorText = p.Cursor
		}
		for cursorText, pages := "", 0; cursorText != "" || pages == 0; pages++ {
			p, err := snap.Datasets(t.Context(), cursorText)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range p.Datasets {
				listed = append(listed, d.ID)
			}
			cursorText = p.Cursor
		}
		for i, id := range ids {
			if id != uint32(3*i+1) || listed[i] != id {
				t.Fatalf("pages of %d: %v and %v", size, ids, listed)
			}
		}
	}
}

// TestAudience holds that an audience names what may be read and nothing else.
func TestAudience(t *testing.T) {
	store := blob.NewMemory()
	for _, name := range []string{"a", "b", "c"} {
		testlake.Ingest(t, store, name, "b", []testlake.Record{{URL: "https://example.com/"}})
	}
	testlake.Publish(t, store)
	setReaders(t, store, map[string]string{"a": "ada,ops", "b": "bea,ops", "c": "ops"})
	s := serve(t, store, Options{Access: access.NewFollower(store)})
	audience := func(name string) string { return acquireAs(t, s, name, "").Audience() }
	ada, nobody := audience("ada"), audience("")
	if ada == "" || nobody == "" || ada == nobody || audience("bea") == ada || audience("zoe") != nobody || audience("ops") != "" {
		t.Fatalf("%q, %q, %q", ada, nobody, audience("ops"))
	}
	setReaders(t, store, map[string]string{"c": "bea,ops"})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if audience("ada") != ada {
		t.Error("a change of what others may read shows")
	}
	setReaders(t, store, map[string]string{"c": "ada,ops"})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if audience("ada") == ada {
		t.Error("a change of what may be read does not show")
	}
	if plain := acquire(t, serve(t, store, Options{}), ""); plain.Audience() != "" {
		t.Error("there is an audience without access control")
	}
}

// TestManyReadersStayBounded asks as many principals at once, while the list of readers changes. It
// is for the race detector.
func TestManyReadersStayBounded(t *testing.T) {
	store := blob.NewMemory()
	const public = 120 // so many that not all groups are kept
	for i := range public {
		testlake.Ingest(t, store, fmt.Sprint("open", i), "b", []testlake.Record{{URL: "https://example.com/"}})
	}
	testlake.Ingest(t, store, "closed", "b", []testlake.Record{{URL: "https://example.com/"}})
	testlake.Publish(t, store)
	names := ""
	for i := range 400 {
		names += fmt.Sprintf(",n%d", i)
	}
	setReaders(t, store, map[string]string{"closed": names[1:]})
	s := serve(t, store, Options{Access: access.NewFollower(store)})
	tg := target(t, "example.com")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 600 {
				name := fmt.Sprintf("n%d", (i*7+g)%500)
				ctx, _, err := s.As(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				snap, err := s.Acquire(ctx, "")
				if err != nil {
					t.Error(err)
					return
				}
				page, err := snap.Domain(ctx, tg, "")
				want := public
				if (i*7+g)%500 < 400 {
					want++
				}
				if err != nil || page.Total != want {
					t.Errorf("%s: %+v, %v", name, page, err)
				}
				snap.Release()
			}
		})
	}
	for range 20 {
		setReaders(t, store, map[string]string{"other": "zoe"})
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		setReaders(t, store, map[string]string{"other": "yan"})
	}
	wg.Wait()
	open := s.current.Load()
	open.visible.mu.Lock()
	defer open.visible.mu.Unlock()
	if most := visibleDatasets / len(open.every); most >= 400 || len(open.visible.of) > most {
		t.Errorf("%d groups are kept of at most %d", len(open.visible.of), most)
	}
}

// TestAccessIsKnownBeforeTheFirstAnswer holds that a server which has not read the list of readers
// answers nobody.
func TestAccessIsKnownBeforeTheFirstAnswer(t *testing.T) {
	store := blob.NewMemory()
	s := NewServer(store, Options{CacheDir: t.TempDir(), Access: access.NewFollower(store)})
	defer s.Close()
	var notReady *NotReadyError
	if _, err := s.Acquire(t.Context(), ""); !errors.As(err, &notReady) {
		t.Errorf("acquire: %v", err)
	}
	if _, _, err := s.As(t.Context(), "ada"); !errors.As(err, &notReady) {
		t.Errorf("as: %v", err)
	}
	if _, err := s.Versions(t.Context(), 1, ""); !errors.As(err, &notReady) {
		t.Errorf("versions: %v", err)
	}
}

// BenchmarkAccess pins the current version and asks for a domain of two datasets: without access
// control, as one who may read both, and as one who may read one.
func BenchmarkAccess(b *testing.B) {
	store := benchLake(b).server.store
	setReaders(b, store, map[string]string{"d1": "ops"})
	closed := serve(b, store, Options{Access: access.NewFollower(store)})
	open := serve(b, store, Options{})
	tg := target(b, "site00077.test")
	for _, c := range []struct {
		name   string
		server *Server
		ctx    context.Context
	}{{"off", open, b.Context()}, {"all", closed, as(b, closed, "ops")}, {"part", closed, as(b, closed, "ada")}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				snap, err := c.server.Acquire(c.ctx, "")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := snap.Domain(c.ctx, tg, ""); err != nil {
					b.Fatal(err)
				}
				snap.Release()
			}
		})
	}
}

// TestPaceHidesWhatIsPassed lists the domains with a prefix that only a hidden dataset has, and
// with one that none has, and counts those below a suffix. Each read of the store takes a second.
func TestPaceHidesWhatIsPassed(t *testing.T) {
	inner := blob.NewMemory()
	build(t, inner)
	setReaders(t, inner, map[string]string{"": "nobody", "alpha": "anyone,nobody"})
	const pace = 300 * time.Millisecond
	for _, c := range []struct {
		name                  string
		known, unknown, below time.Duration
	}{{"anyone", 8 * pace, 4 * pace, 4 * pace}, {"nobody", 0, 0, time.Second}} {
		testenv.Bubble(t, func(t *testing.T) {
			s := serve(t, &watched{Store: inner}, Options{Access: access.NewFollower(inner), Pace: pace})
			snap := acquireAs(t, s, c.name, "")
			for prefix, want := range map[string]time.Duration{"site": c.known, "zzz": c.unknown} {
				s.clearCaches(true, true)
				began := time.Now()
				page, err := snap.Domains(t.Context(), DomainsQuery{Prefix: prefix, Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				if got := page.Due; want == 0 && !got.IsZero() || want > 0 && got.Sub(began) != want {
					t.Errorf("%s, %s: due after %s, want %s", c.name, prefix, got.Sub(began), want)
				}
			}
			s.clearCaches(true, true)
			began := time.Now()
			var err error
			var took time.Duration
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = snap.DomainsBelow(t.Context(), "test")
				took = time.Since(began)
			}()
			synctest.Wait()
			if err := s.scans.Acquire(t.Context(), scansAtOnce); err != nil || time.Since(began) > time.Second ||
				!s.scansWaiting.TryAcquire(scansAtOnce+scansWaiting) {
				t.Errorf("%s: the result that is not due keeps others waiting, %v", c.name, err)
			}
			<-done
			if err != nil || took != c.below {
				t.Errorf("%s: counted after %s, want %s: %v", c.name, took, c.below, err)
			}
		})
	}
}

// TestPagesOfHiddenNamesAreFewAtATime lists domains while no page of hidden names may be made.
func TestPagesOfHiddenNamesAreFewAtATime(t *testing.T) {
	inner := blob.NewMemory()
	var hidden, open []testlake.Record
	for i := range 100 {
		hidden = append(hidden, testlake.Record{URL: fmt.Sprintf("https://b%02d.test/", i)})
	}
	for _, name := range []string{"a", "b00", "c"} {
		open = append(open, testlake.Record{URL: "https://" + name + ".test/"})
	}
	testlake.Ingest(t, inner, "hidden", "b", hidden)
	testlake.Ingest(t, inner, "open", "b", open)
	testlake.Publish(t, inner)
	setReaders(t, inner, map[string]string{"hidden": "nobody"})
	testenv.Bubble(t, func(t *testing.T) {
		s := serve(t, inner, Options{Access: access.NewFollower(inner)})
		if !s.diffs.TryAcquire(diffsAtOnce) {
			t.Fatal("no page is made")
		}
		list := func(name string, q DomainsQuery) (*DomainsPage, time.Duration, error) {
			ctx, turn := turns.With(t.Context(), s.Turns())
			defer turn.Give()
			began := time.Now()
			var page *DomainsPage
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				page, err = acquireAs(t, s, name, "").Domains(ctx, q)
			}()
			synctest.Wait()
			select {
			case <-done:
			default:
				if turn.Has() {
					t.Error("a page that waits has a turn")
				}
			}
			<-done
			return page, time.Since(began), err
		}
		of, _ := acquireAs(t, s, "nobody", "").FindDataset("open")
		one := DomainsQuery{Limit: 4, OneDataset: true, Dataset: of.ID}
		for _, q := range []DomainsQuery{{Limit: 4}, one} { // nothing is hidden, but not listed
			page, took, err := list("nobody", q)
			if err != nil || took > 0 || page.StoppedBy != "" {
				t.Errorf("%+v: %+v after %s, %v", q, page, took, err)
			}
		}
		page, took, err := list("anyone", DomainsQuery{Limit: 4})
		if err != nil || took != DefaultDeadline || page.StoppedBy != "deadline" || page.Cursor == "" || len(page.Domains) != 2 {
			t.Fatalf("%+v after %s, %v", page, took, err)
		}
		s.diffs.Release(diffsAtOnce)
		page, took, err = list("anyone", DomainsQuery{Limit: 4, Cursor: page.Cursor})
		if err != nil || took > 0 || page.Cursor != "" || len(page.Domains) != 1 || page.Domains[0].Domain != "c.test" {
			t.Errorf("the next page: %+v after %s, %v", page, took, err)
		}
		if !s.diffs.TryAcquire(diffsAtOnce) {
			t.Error("a page is still made")
		}
	})
}
