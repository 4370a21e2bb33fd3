package lookup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// sums are the domains of the oracle with their totals, those of one dataset alone if it has a
// name.
func (o oracle) sums(dataset string) []DomainSum {
	list := []DomainSum{}
	for _, name := range o.domains() {
		sum := DomainSum{Domain: name, DomainID: urlnorm.DomainID(name)}
		for _, t := range o.totals(name) {
			if dataset == "" || t.Name == dataset {
				sum.Datasets++
				sum.Add(segment.Totals{Rows: t.Rows, Size: t.Size, HasSize: t.HasSize, FirstTS: t.FirstTS, LastTS: t.LastTS, HasTS: t.HasTS})
			}
		}
		if sum.Datasets > 0 {
			list = append(list, sum)
		}
	}
	return list
}

// allDomains follows the cursors of a list.
func allDomains(t testing.TB, snap *Snapshot, q DomainsQuery) (list []DomainSum, late int) {
	t.Helper()
	list = []DomainSum{}
	for {
		page, err := snap.Domains(t.Context(), q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if len(page.Domains) > q.Limit || len(page.Domains) < q.Limit && page.Cursor != "" && page.StoppedBy == "" {
			t.Fatalf("%+v: a page of %d", q, len(page.Domains))
		}
		if page.StoppedBy != "" {
			late++
		}
		list = append(list, page.Domains...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return list, late
		}
	}
}

// backwards is a text with its bytes reversed.
func backwards(text string) string {
	b := []byte(text)
	slices.Reverse(b)
	return string(b)
}

// sortAsListed sorts domains as a list of them has to be: with a suffix by their reversed names.
// With a prefix, too, they may also be sorted by name, as got may be.
func sortAsListed(list []DomainSum, q DomainsQuery, got []DomainSum) {
	byName := func(a, b DomainSum) int { return cmp.Compare(a.Domain, b.Domain) }
	if q.Suffix == "" || q.Prefix != "" && slices.IsSortedFunc(got, byName) {
		slices.SortFunc(list, byName)
		return
	}
	slices.SortFunc(list, func(a, b DomainSum) int { return cmp.Compare(backwards(a.Domain), backwards(b.Domain)) })
}

// compareListed compares what is listed for a query, of a dataset unless its name is empty, with
// what brute force finds. It sets the query's dataset, and returns the list.
func compareListed(t *testing.T, s *Snapshot, left oracle, dataset string, q *DomainsQuery) (want []DomainSum) {
	t.Helper()
	if dataset != "" {
		found, ok := s.FindDataset(dataset)
		if !ok {
			t.Fatal(dataset)
		}
		q.OneDataset, q.Dataset = true, found.ID
	}
	want = slices.DeleteFunc(left.sums(dataset), func(d DomainSum) bool {
		return !strings.HasPrefix(d.Domain, q.Prefix) || !strings.HasSuffix(d.Domain, q.Suffix)
	})
	got, _ := allDomains(t, s, *q)
	sortAsListed(want, *q, got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%+v (-brute force +served):\n%.2000s", *q, diff)
	}
	return want
}

func TestListsOfDomainsEqualBruteForce(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		left := bulkLake(t, store, 9)
		server := serve(t, store, Options{})
		late := serve(t, store, Options{Deadline: time.Nanosecond})
		snap, lateSnap := acquire(t, server, ""), acquire(t, late, "")
		rng := rand.New(rand.NewPCG(3, 3))
		names := []string{"", "alpha", "beta", "gamma", "delta"}
		lates := 0
		for range 150 / testenv.Every(3) {
			q := DomainsQuery{Limit: 1 + rng.IntN(30)}
			q.Prefix = []string{"", "", "s", "site", "site1", "site10", "e", "[", "192", "zzz", "site7.test", "!"}[rng.IntN(12)]
			q.Suffix = []string{"", "", ".test", "test", "7.test", ".com", ".nowhere", "1]"}[rng.IntN(8)]
			want := compareListed(t, snap, left, names[rng.IntN(len(names))], &q)
			got, n := allDomains(t, lateSnap, q)
			lates += n
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("late, %+v (-brute force +served):\n%.2000s", q, diff)
			}
		}
		if lates == 0 {
			t.Error("no page ended at its deadline")
		}
		for _, suffix := range []string{"github.io", "test", "co.uk", "nowhere"} {
			want := int64(0)
			for _, name := range left.domains() {
				if strings.HasSuffix(name, "."+suffix) {
					want++
				}
			}
			for range 2 {
				if got, err := snap.DomainsBelow(t.Context(), suffix); err != nil || got != want {
					t.Errorf("%d domains below %s, want %d: %v", got, suffix, want, err)
				}
			}
		}
		for _, dataset := range names[1:] {
			checkTop(t, snap, left, dataset)
		}
	})
}

func checkTop(t *testing.T, snap *Snapshot, left oracle, dataset string) {
	t.Helper()
	found, ok := snap.FindDataset(dataset)
	if !ok {
		t.Fatal(dataset)
	}
	top, err := snap.TopOf(t.Context(), found.ID)
	if err != nil {
		t.Fatal(err)
	}
	all := left.sums(dataset)
	want := Top{Domains: int64(len(all)), TakedownEpoch: top.TakedownEpoch}
	for _, d := range all {
		want.Add(d.Totals)
	}
	first := func(list []DomainSum, of func(d DomainSum) int64) []DomainSum {
		slices.SortFunc(list, func(a, b DomainSum) int {
			return cmp.Or(-cmp.Compare(of(a), of(b)), compareDomains(a.DomainID, a.Domain, b.DomainID, b.Domain))
		})
		return list[:min(len(list), TopDomains)]
	}
	want.ByRows = first(slices.Clone(all), func(d DomainSum) int64 { return d.Rows })
	sized := slices.DeleteFunc(slices.Clone(all), func(d DomainSum) bool { return !d.HasSize })
	want.BySize = first(sized, func(d DomainSum) int64 { return d.Size })
	if diff := gocmp.Diff(want, *top); diff != "" {
		t.Errorf("%s (-brute force +served):\n%.3000s", dataset, diff)
	}
}

// A takedown changes what a scan has found out before.
func TestResultsAreOfOneEpoch(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	o := h.oracles[len(h.oracles)-1]
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	checkTop(t, snap, o, "alpha")
	before, err := snap.DomainsBelow(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	rule := naiveRule{kind: "domain", text: "site3.test"}
	rule.add(t, store, nil)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap = acquire(t, s, "")
	checkTop(t, snap, o.hide([]naiveRule{rule}), "alpha")
	if after, err := snap.DomainsBelow(t.Context(), "test"); err != nil || after != before-1 {
		t.Errorf("%d domains, %d before: %v", after, before, err)
	}
}

// held is a store whose reads of postings and of names wait until release is closed.
type heldStore struct {
	blob.Store
	release chan struct{}
}

func (h *heldStore) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if strings.Contains(key, "/postings/") || strings.HasSuffix(key, segment.ReversedName) {
		select {
		case <-h.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return h.Store.ReadRange(ctx, key, off, n)
}

func (h *heldStore) Unwrap() blob.Store { return h.Store }

// A scan that takes too long goes on, and is one scan for all who wait.
func TestScansGoOn(t *testing.T) {
	inner := blob.NewMemory()
	o := bulkLake(t, inner, 2)
	store := &heldStore{Store: inner, release: make(chan struct{})}
	counting := blob.NewCounting(store)
	released := store.release
	store.release = make(chan struct{})
	close(store.release) // while the version is opened
	s := serve(t, counting, Options{Deadline: time.Millisecond})
	snap := acquire(t, s, "")
	store.release = released
	id := uint32(0)
	if d, ok := snap.FindDataset("alpha"); ok {
		id = d.ID
	}
	if _, err := snap.TopOf(t.Context(), id); !errors.Is(err, ErrComputing) {
		t.Fatalf("while the store is held: %v", err)
	}
	if _, err := snap.DomainsBelow(t.Context(), "test"); !errors.Is(err, ErrComputing) {
		t.Fatalf("while another scan runs: %v", err)
	}
	for i := range 2 * scansWaiting {
		_, err := snap.DomainsBelow(t.Context(), fmt.Sprint("more", i))
		if !errors.Is(err, ErrComputing) {
			t.Fatal(err)
		}
	}
	if n := len(snap.results.all); n != scansAtOnce+scansWaiting {
		t.Errorf("%d scans are under way or wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snap.TopOf(ctx, id); !errors.Is(err, context.Canceled) && !errors.Is(err, ErrComputing) {
		t.Errorf("the client has gone: %v", err)
	}
	close(store.release)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				if _, err := snap.TopOf(t.Context(), id); err == nil {
					return
				} else if !errors.Is(err, ErrComputing) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	checkTop(t, snap, o, "alpha")
	testenv.Until(t, "all scans end", func() bool {
		snap.results.mu.Lock()
		defer snap.results.mu.Unlock()
		for _, r := range snap.results.all {
			select {
			case <-r.done:
			default:
				return false
			}
		}
		return true
	})
}

// A scan that fails is tried again, and what versions keep is bounded.
func TestResultsOfScans(t *testing.T) {
	store := blob.NewMemory()
	build(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	calls := 0
	ask := func(key string, err error) error {
		_, got := compute(t.Context(), snap, key, false, func(context.Context) (int, error) {
			calls++
			return calls, err
		})
		return got
	}
	broken := errors.New("broken")
	if err := ask("a", broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := ask("a", nil); err != nil || calls != 2 {
		t.Errorf("after a failure: %v, %d calls", err, calls)
	}
	if err := ask("a", nil); err != nil || calls != 2 {
		t.Errorf("again: %v, %d calls", err, calls)
	}
	for i := range maxResults {
		if err := ask(fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(snap.results.all); n != maxResults || len(snap.results.order) != maxResults {
		t.Errorf("%d results are kept", n)
	}
	if err := ask("a", nil); err != nil || calls != 3+maxResults {
		t.Errorf("an old result: %v, %d calls", err, calls)
	}
	_, err := compute(t.Context(), snap, "panic", false, func(context.Context) (int, error) { panic("here") })
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		t.Errorf("a panic: %v", err)
	}
}

func TestBadListsOfDomains(t *testing.T) {
	store := blob.NewMemory()
	h := build(t, store)
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	page, err := snap.Domains(t.Context(), DomainsQuery{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	forged := cursor{kind: cursorDomains, fingerprint: fingerprint(cursorDomains, `"" "" false`, 0), version: snap.version.ID}
	forged.at.name = "zzz"
	if page, err := snap.Domains(t.Context(), DomainsQuery{Limit: 1, Cursor: forged.String()}); err != nil || len(page.Domains) != 0 {
		t.Errorf("a cursor behind all domains: %+v, %v", page, err)
	}
	for _, c := range []struct {
		q    DomainsQuery
		want error
	}{
		{DomainsQuery{}, ErrRange}, {DomainsQuery{Limit: MaxLimit + 1}, ErrRange},
		{DomainsQuery{Limit: 1, OneDataset: true, Dataset: 99}, ErrUnknownDataset},
		{DomainsQuery{Limit: 1, Prefix: "a", Cursor: page.Cursor}, ErrBadCursor},
		{DomainsQuery{Limit: 1, OneDataset: true, Dataset: 1, Cursor: page.Cursor}, ErrBadCursor},
	} {
		if _, err := snap.Domains(t.Context(), c.q); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
	if _, err := snap.TopOf(t.Context(), 99); !errors.Is(err, ErrUnknownDataset) {
		t.Error(err)
	}
	old := acquire(t, s, h.versions[0])
	if _, err := old.Domains(t.Context(), DomainsQuery{Limit: 1, Cursor: page.Cursor}); !errors.Is(err, ErrBadCursor) {
		t.Errorf("the cursor of another version: %v", err)
	}
}

// A prefix is found by a search: what is read hardly grows with the lake.
func TestPrefixReadsFewFrames(t *testing.T) {
	store := blob.NewMemory()
	var records []testlake.Record
	for i := range 30_000 {
		records = append(records, testlake.Record{URL: fmt.Sprintf("https://site%05d.test/", i)})
	}
	testlake.Ingest(t, store, "alpha", "1", records)
	testlake.Publish(t, store)
	s := serve(t, blob.NewCounting(store), Options{})
	snap := acquire(t, s, "")
	trace := new(blob.Trace)
	page, err := snap.Domains(blob.WithTrace(t.Context(), trace), DomainsQuery{Prefix: "site23456", Limit: 10})
	if err != nil || len(page.Domains) != 1 || page.Cursor != "" {
		t.Fatalf("%+v, %v", page, err)
	}
	names := 0
	for _, a := range trace.Accesses() {
		if strings.HasSuffix(a.Key, segment.DomainsName) {
			names++
		}
	}
	if names < 1 || names > 9 {
		t.Errorf("%d reads for %d frames", names, (len(records)+segment.DomainsPerFrame-1)/segment.DomainsPerFrame)
	}
	all, _ := allDomains(t, snap, DomainsQuery{Prefix: "site2", Suffix: "9.test", Limit: 777})
	if len(all) != 1000 || all[999].Domain != "site29999.test" {
		t.Errorf("%d domains", len(all))
	}
}

// Whoever may not read all datasets gets the answers of a lake without the others, from lists, from
// scans and from what these have found out before.
func TestReadersOfLists(t *testing.T) {
	store := blob.NewMemory()
	left := bulkLake(t, store, 4)
	setReaders(t, store, map[string]string{"": "all", "alpha": "all,one,two", "beta": "all,two", "gamma": "all", "delta": "all"})
	s := serve(t, store, Options{Access: access.NewFollower(store)})
	for range 2 {
		for name, readable := range map[string][]string{
			"all": {"alpha", "beta", "gamma", "delta"}, "one": {"alpha"}, "two": {"alpha", "beta"}, "nobody": {},
		} {
			snap := acquireAs(t, s, name, "")
			o := left.only(func(dataset string) bool { return slices.Contains(readable, dataset) })
			var want []bulkAnswer
			texts := append(left.domains(), "absent.example")
			for i, domain := range texts {
				want = append(want, bulkAnswer{Domain: domain, Datasets: o.totals(domain), Suffix: domain == "co.uk"})
				texts[i] = spelling(domain)
			}
			if diff := gocmp.Diff(want, lookUp(t, snap, BulkQuery{}, texts)); diff != "" {
				t.Fatalf("%s (-brute force +served):\n%.2000s", name, diff)
			}
			got, _ := allDomains(t, snap, DomainsQuery{Limit: 7, Suffix: "t"})
			sums := slices.DeleteFunc(o.sums(""), func(d DomainSum) bool { return !strings.HasSuffix(d.Domain, "t") })
			sortAsListed(sums, DomainsQuery{Suffix: "t"}, got)
			if diff := gocmp.Diff(sums, got); diff != "" {
				t.Fatalf("%s (-brute force +served):\n%.2000s", name, diff)
			}
			below := int64(0)
			for _, domain := range o.domains() {
				if strings.HasSuffix(domain, ".test") {
					below++
				}
			}
			if n, err := snap.DomainsBelow(t.Context(), "test"); err != nil || n != below {
				t.Errorf("%s: %d domains below test, want %d: %v", name, n, below, err)
			}
			for id := range uint32(5) {
				d, ok := snap.Dataset(id)
				if !ok {
					if _, err := snap.TopOf(t.Context(), id); !errors.Is(err, ErrUnknownDataset) {
						t.Errorf("%s: %v", name, err)
					}
					continue
				}
				checkTop(t, snap, o, d.Name)
			}
		}
	}
}
