package lookup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// slow is a store of which each read takes a round. In a bubble of synctest the time that a query
// takes is exactly that of its rounds.
type slow struct{ blob.Store }

const round = time.Second

func (s slow) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	time.Sleep(round)
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s slow) Unwrap() blob.Store { return s.Store }

// longPaths makes records of www.big.example, of which 64 fill a page of a part.
func longPaths(from, n int) (records []testlake.Record) {
	for i := range n {
		path := fmt.Sprintf("d%02d/%06d%s", (from+i)/200, from+i, strings.Repeat("x", 4000))
		records = append(records, testlake.Record{URL: "https://www.big.example/" + path, TS: int64(i), HasTS: true})
	}
	return records
}

// A URL, and the first page of a prefix, take the rounds of reads that any page takes: the entry,
// where its rows are if they are in several row groups, the page index with the keys of pages, and
// pages. Neither pages nor parts, segments, datasets and positions make them more.
func TestRoundsOfSearches(t *testing.T) {
	for _, shape := range []struct {
		pages, parts, segments, datasets int
	}{
		{4, 1, 1, 1}, {40, 1, 1, 1}, {5, 12, 1, 1}, {5, 1, 4, 1}, {3, 3, 3, 3}, {2, 1, 1, 40},
	} {
		t.Run(fmt.Sprintf("%+v", shape), func(t *testing.T) {
			store := blob.NewMemory()
			rows := 0
			for range shape.segments {
				for p := range shape.parts {
					for d := range shape.datasets {
						testlake.Ingest(t, store, fmt.Sprintf("d%02d", d), fmt.Sprintf("b%d-%d", rows, p),
							longPaths(rows, 64*shape.pages))
					}
					rows += 64 * shape.pages
				}
				testlake.Publish(t, store)
			}
			testenv.Bubble(t, func(t *testing.T) {
				s := serve(t, slow{store}, Options{Deadline: time.Hour})
				snap := acquire(t, s, "")
				if n := len(snap.segments); n != shape.segments {
					t.Fatalf("%d segments", n)
				}
				tg := target(t, "big.example")
				want := 3 // entry, page index, page
				if shape.parts > 1 {
					want++ // where the rows are
				}
				check := func(what string, want int, query func() error) {
					t.Helper()
					s.clearCaches(true, true)
					start := time.Now()
					if err := query(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
					if got := int(time.Since(start) / round); got != want {
						t.Errorf("%s: %d rounds, want %d", what, got, want)
					}
				}
				page := func(sel Selection, unique bool, offset int64, n int) func() error {
					return func() error {
						p, err := snap.URLs(t.Context(),
							URLsQuery{Target: tg, Dataset: 1, Selection: sel, Unique: unique, Offset: offset, Limit: 20})
						if err == nil && p.Len() != n {
							err = fmt.Errorf("%d rows, want %d", p.Len(), n)
						}
						return err
					}
				}
				check("a page", want, page(Selection{}, false, 0, 20))
				check("a page at the end", want, page(Selection{}, false, int64(rows-20), 20))
				for _, i := range []int{0, 1, 63, 64, 65, rows / 2, rows - 1} {
					r := longPaths(i, 1)[0]
					u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), r.URL)
					if err != nil {
						t.Fatal(err)
					}
					check(fmt.Sprintf("URL %d", i), want, func() error {
						p, err := snap.URLDatasets(t.Context(), u, "")
						if err == nil && (len(p.Datasets) != shape.datasets || p.Datasets[0].Rows != 1 || p.StoppedBy != "") {
							err = fmt.Errorf("%+v", p)
						}
						return err
					})
					prefix := fmt.Sprintf("/d%02d/%06d", i/200, i)
					check("prefix of one row in a host "+prefix, want, page(Selection{Host: "www.big.example", Prefix: prefix}, false, 0, 1))
					check("prefix of one row "+prefix, want, page(Selection{Prefix: prefix}, false, 0, 1))
				}
				n := min(rows, 200)
				check("prefix of many rows in a host", want, page(Selection{Host: "www.big.example", Prefix: "/d00/"}, false, 0, 20))
				check("the end of a prefix", want, page(Selection{Host: "www.big.example", Prefix: "/d00/"}, false, int64(n-20), 20))
				check("a host", want, page(Selection{Host: "www.big.example"}, false, 0, 20))
				check("another host", want, page(Selection{Host: "big.example"}, false, 0, 0))
				check("prefix of no row", want, page(Selection{Host: "www.big.example", Prefix: "/e"}, false, 0, 0))
				// Distinct URLs are merged from all parts, each of which may need a second page.
				check("distinct URLs", want, page(Selection{Host: "www.big.example", Prefix: "/d00/000001"}, true, 0, 1))
			})
		})
	}
}

// Lists of selections of a large domain with many hosts, ports and repeated URLs, on short pages,
// are those of brute force, at every page.
func TestSelectionsByPageKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 1))
	store := blob.NewMemory()
	o := oracle{}
	for b := range 2 {
		var records []testlake.Record
		for i := range 2500 {
			host := []string{"big.example", "a.big.example", "www.big.example", "z.www.big.example"}[rng.IntN(4)]
			path := []string{"", "a", "a/b", "a/b/c", "a?b", "z"}[rng.IntN(6)] + strings.Repeat("y", 600*rng.IntN(2))
			path += fmt.Sprint(rng.IntN(400))
			origin := []string{"https://", "http://"}[rng.IntN(2)] + host + []string{"", ":8080", ":81"}[rng.IntN(3)]
			r := testlake.Record{URL: origin + "/" + path, TS: int64(i), HasTS: true}
			if rng.IntN(4) == 0 {
				r.TS, r.HasTS = 0, false
			}
			records = append(records, r)
			for rng.IntN(400) == 0 && len(records) < 4000 { // captures of one URL that fill pages
				for j := range 300 {
					records = append(records, testlake.Record{
						URL: "https://www.big.example/a" + strings.Repeat("q", 1500), TS: int64(1000*i + j), HasTS: true,
					})
				}
			}
		}
		batch := fmt.Sprintf("b%d", b)
		o.replace("alpha", batch, records)
		testlake.Ingest(t, store, "alpha", batch, records)
		testlake.Publish(t, store)
	}
	s := serve(t, store, Options{})
	snap := acquire(t, s, "")
	keys := 0
	for _, seg := range snap.segments {
		for k, err := range seg.AllPageKeys(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			keys += len(k.Keys)
		}
	}
	if keys < 10 {
		t.Fatalf("%d pages in blocks with keys", keys)
	}
	tg := target(t, "big.example")
	var all []item
	whole := URLsQuery{Target: tg, Dataset: 1}
	err := pages(t.Context(), snap, whole, false, func() int { return MaxLimit }, func(p *URLsPage) error {
		all = append(all, pageItems(p)...)
		return nil
	})
	rows := o.rows("alpha", "big.example")
	if err != nil || len(all) != len(rows) {
		t.Fatalf("%d rows, want %d, %v", len(all), len(rows), err)
	}
	for range 60 / testenv.Every(3) {
		o.checkSelection(t, snap, tg, DatasetTotals{ID: 1, Name: "alpha"}, rows, all)
	}
	for range 10 {
		o.checkURL(t, snap)
	}
}
