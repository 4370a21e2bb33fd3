package lookup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// bulkLake makes a lake with several segments, takedowns and dead rows, and returns it with the
// rows that are left in its current version.
func bulkLake(t testing.TB, store blob.Store, seed uint64) oracle {
	t.Helper()
	h := build(t, store)
	o := h.oracles[len(h.oracles)-1].clone()
	datasets, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]uint32{}
	for _, d := range datasets {
		ids[d.Name] = d.ID
	}
	testlake.Retire(t, store, catalog.BatchName{DatasetID: ids["alpha"], Batch: "b2"})
	o.replace("alpha", "b2", nil)
	testlake.Publish(t, store)
	rng := rand.New(rand.NewPCG(seed, 1))
	var rules []naiveRule
	for range 8 {
		n := randomRule(rng, o)
		n.add(t, store, ids)
		rules = append(rules, n)
	}
	all := naiveRule{kind: "domain", text: "site7.test"}
	all.add(t, store, ids)
	return o.hide(append(rules, all))
}

// bulkAnswer is an answer that stays.
type bulkAnswer struct {
	Domain   string
	Reason   urlnorm.Reason
	Suffix   bool
	Datasets []totals
}

// lookUp returns the answers to texts, which must not depend on how many domains have their totals
// in memory at once.
func lookUp(t testing.TB, snap *Snapshot, q BulkQuery, texts []string) []bulkAnswer {
	t.Helper()
	var raw [][]byte
	for _, text := range texts {
		raw = append(raw, []byte(text))
	}
	got := lookUpPairs(t, snap, q, raw, bulkPairs)
	some := min(len(texts), 1000)
	for _, pairs := range []int{100, 1} {
		if diff := gocmp.Diff(got[:some], lookUpPairs(t, snap, q, raw[:some], pairs)); diff != "" {
			t.Fatalf("%d pairs at once (-many +few):\n%.3000s", pairs, diff)
		}
	}
	return got
}

func lookUpPairs(t testing.TB, snap *Snapshot, q BulkQuery, texts [][]byte, pairs int) (got []bulkAnswer) {
	t.Helper()
	b, err := snap.Bulk(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	b.pairs = pairs
	err = b.Lookup(t.Context(), texts, func(i int, a *BulkAnswer) error {
		if i != len(got) {
			return fmt.Errorf("answer %d after %d", i, len(got))
		}
		g := bulkAnswer{Domain: a.Domain, Suffix: a.PublicSuffix, Datasets: []totals{}}
		if a.Reject != nil {
			g.Reason = a.Reject.Reason
		} else if a.DomainID != urlnorm.DomainID(a.Domain) || !strings.HasSuffix(a.Host, a.Domain) {
			return fmt.Errorf("%+v", a)
		}
		for _, d := range a.Datasets {
			g.Datasets = append(g.Datasets, totals{d.Name, d.Rows, d.Size, d.HasSize, d.FirstTS, d.LastTS, d.HasTS})
		}
		slices.SortFunc(g.Datasets, func(a, b totals) int { return strings.Compare(a.Name, b.Name) })
		got = append(got, g)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// spellings are ways to ask for a domain of randomRecords.
func spellings(domain string) []string {
	if !strings.Contains(domain, ".") || strings.HasPrefix(domain, "[") {
		return []string{domain, "http://" + domain + "/x"}
	}
	return []string{domain, " " + strings.ToUpper(domain) + ".", "https://" + domain + ":8443/a,b?c#d"}
}

func TestBulkEqualsBruteForce(t *testing.T) {
	stores(t, func(t *testing.T, store blob.Store) {
		left := bulkLake(t, store, 5)
		snap := acquire(t, serve(t, store, Options{}), "")
		rng := rand.New(rand.NewPCG(2, 3))
		names := append(left.domains(), "site7.test", "absent.example", "site999.test", "github.io", "uk", "a,b.example")
		var texts []string
		var want []bulkAnswer
		for range 9000 {
			domain := names[rng.IntN(len(names))]
			list := spellings(domain)
			texts = append(texts, list[rng.IntN(len(list))])
			w := bulkAnswer{Domain: domain, Datasets: left.totals(domain), Suffix: slices.Contains([]string{"github.io", "co.uk", "uk"}, domain)}
			if domain == "a,b.example" {
				w = bulkAnswer{Reason: urlnorm.RejectHost, Datasets: []totals{}}
			}
			if rng.IntN(50) == 0 {
				texts[len(texts)-1] = []string{"", "mailto:x", "a.com b.com", "http://a:99999/", "\xff\xfe"}[rng.IntN(5)]
				_, err := ParseTarget(texts[len(texts)-1])
				var reject *urlnorm.RejectError
				if !errors.As(err, &reject) {
					t.Fatal(err)
				}
				w = bulkAnswer{Reason: reject.Reason, Datasets: []totals{}}
			}
			want = append(want, w)
		}
		if diff := gocmp.Diff(want, lookUp(t, snap, BulkQuery{}, texts)); diff != "" {
			t.Fatalf("-brute force +served:\n%.3000s", diff)
		}
		some := []uint32{}
		page, err := snap.Datasets(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range page.Datasets {
			if i%2 == 1 {
				some = append(some, d.ID)
			}
		}
		chosen := func(d totals) bool {
			found, ok := snap.FindDataset(d.Name)
			return ok && slices.Contains(some, found.ID)
		}
		for _, q := range []BulkQuery{{Datasets: some}, {PresenceOnly: true}, {Datasets: some, PresenceOnly: true}} {
			adapted := slices.Clone(want)
			for i := range adapted {
				adapted[i].Datasets = slices.DeleteFunc(slices.Clone(want[i].Datasets), func(d totals) bool { return q.Datasets != nil && !chosen(d) })
				for j := range adapted[i].Datasets {
					if q.PresenceOnly {
						adapted[i].Datasets[j] = totals{Name: adapted[i].Datasets[j].Name}
					}
				}
			}
			if diff := gocmp.Diff(adapted, lookUp(t, snap, q, texts)); diff != "" {
				t.Fatalf("%+v (-brute force +served):\n%.3000s", q, diff)
			}
		}
	})
}

// What is read does not grow with the number of times that a domain is asked for, and domains that
// are next to each other in the index are read together.
func TestBulkReadsEachFrameOnce(t *testing.T) {
	store := blob.NewMemory()
	o := bulkLake(t, store, 5)
	counting := blob.NewCounting(store)
	s := serve(t, counting, Options{FrameBytes: 1}) // the cache keeps nothing
	snap := acquire(t, s, "")
	reads := func(q BulkQuery, texts []string) (requests int, bytes int64) {
		trace := new(blob.Trace)
		b, err := snap.Bulk(blob.WithTrace(t.Context(), trace), q)
		if err != nil {
			t.Fatal(err)
		}
		var raw [][]byte
		for _, text := range texts {
			raw = append(raw, []byte(text))
		}
		if err := b.Lookup(blob.WithTrace(t.Context(), trace), raw, func(int, *BulkAnswer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		for _, a := range trace.Accesses() {
			requests, bytes = requests+1, bytes+a.N
		}
		return requests, bytes
	}
	names := o.domains()
	texts := []string{}
	for _, n := range names {
		texts = append(texts, spelling(n))
	}
	once, onceBytes := reads(BulkQuery{}, texts)
	repeated := slices.Repeat(texts, 10)
	if again, bytes := reads(BulkQuery{}, repeated); again != once || bytes != onceBytes || once == 0 {
		t.Errorf("%d reads of %d bytes for each domain once, %d of %d for each ten times", once, onceBytes, again, bytes)
	}
	if once > 2*len(snap.segments) {
		t.Errorf("%d reads for %d domains in %d segments", once, len(texts), len(snap.segments))
	}
	one, _ := reads(BulkQuery{}, texts[:1])
	if one == 0 || one > once {
		t.Errorf("%d reads of one domain, %d of all", one, once)
	}
	if n, _ := reads(BulkQuery{PresenceOnly: true}, repeated); n != 0 {
		t.Errorf("%d reads for presence", n)
	}
}

func TestBulkEndsWithTheErrorOfItsCaller(t *testing.T) {
	store := blob.NewMemory()
	build(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	b, err := snap.Bulk(t.Context(), BulkQuery{})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	calls := 0
	err = b.Lookup(t.Context(), slices.Repeat([][]byte{[]byte("example.com")}, 10_000), func(int, *BulkAnswer) error {
		if calls++; calls == 7 {
			return gone
		}
		return nil
	})
	if !errors.Is(err, gone) || calls != 7 {
		t.Errorf("%v after %d calls", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	snap.server.clearCaches(true, true)
	if err := b.Lookup(ctx, [][]byte{[]byte("example.com")}, func(int, *BulkAnswer) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestBulkWithoutThePublicSuffixList(t *testing.T) {
	store := blob.NewMemory()
	list := testlake.SetList(t, store, "com example platform.example")
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "http://shop.platform.example/1"}, {URL: "http://other.platform.example/"}, {URL: "http://www.example.com/"},
	})
	testlake.Publish(t, store)
	testlake.LoseList(t, store, list)
	snap := acquire(t, serve(t, store, Options{}), "")
	if !snap.LacksSuffixes() {
		t.Fatal("the list is still there")
	}
	b, err := snap.Bulk(t.Context(), BulkQuery{})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"shop.platform.example", "x.shop.platform.example", "www.example.com", "nobody.example"}
	raw := [][]byte{}
	for _, text := range texts {
		raw = append(raw, []byte(text))
	}
	err = b.Lookup(t.Context(), raw, func(i int, a *BulkAnswer) error {
		page, err := snap.Domain(t.Context(), target(t, texts[i]), "")
		if err != nil {
			return err
		}
		if a.Domain != page.Domain || !slices.Equal(a.OtherDomains, page.OtherDomains) || !slices.Equal(a.Datasets, page.Datasets) {
			return fmt.Errorf("%s: %+v, want %+v", texts[i], a, page)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBulkOfDamagedLakes(t *testing.T) {
	store := blob.NewMemory()
	build(t, store)
	rng := rand.New(rand.NewPCG(8, 8))
	var names []string
	for info, err := range store.List(t.Context(), "index/segments/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Key, "postings.idx") || strings.Contains(info.Key, "roar") {
			names = append(names, info.Key)
		}
	}
	found := 0
	for _, name := range names {
		for range 20 / testenv.Every(2) {
			copied := copied(t, store)
			data, _, err := copied.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			data = slices.Clone(data)
			data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			if _, err := copied.Put(t.Context(), name, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			s := NewServer(copied, Options{CacheDir: t.TempDir()})
			err = s.Refresh(t.Context())
			if err == nil {
				snap := acquire(t, s, "")
				b, berr := snap.Bulk(t.Context(), BulkQuery{})
				if berr != nil {
					t.Fatal(berr)
				}
				var raw [][]byte
				for i := range 80 {
					raw = append(raw, fmt.Appendf(nil, "site%d.test", i))
				}
				err = b.Lookup(t.Context(), append(raw, []byte("example.com")), func(int, *BulkAnswer) error { return nil })
			}
			if err != nil {
				if !errors.Is(err, codec.ErrCorrupt) {
					t.Fatalf("%s: %v", name, err)
				}
				found++
			}
			s.Close()
		}
	}
	if found == 0 {
		t.Error("no damage was found")
	}
}

// BenchmarkBulk looks up 100,000 domains, of which one in ten is unknown, in as many requests at
// once as there are processors.
func BenchmarkBulk(b *testing.B) {
	snap := benchLake(b)
	var texts [][]byte
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		texts = append(texts, fmt.Appendf(nil, "www.site%05d.test", rng.IntN(22_000)))
	}
	for _, c := range []struct {
		name string
		q    BulkQuery
	}{{"presence", BulkQuery{PresenceOnly: true}}, {"totals", BulkQuery{}}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					bulk, err := snap.Bulk(b.Context(), c.q)
					if err == nil {
						err = bulk.Lookup(b.Context(), texts, func(int, *BulkAnswer) error { return nil })
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)*float64(len(texts))/b.Elapsed().Seconds(), "lookups/s")
		})
	}
}
