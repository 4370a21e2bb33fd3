package feed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/suppress"
)

// fake is a frontier as this package sees one: a set of URLs and a list of visits.
type fake struct {
	*httptest.Server
	mu     sync.Mutex
	urls   map[string]time.Time // by URL, when it may be fetched
	sent   int                  // lines
	visits []string             // lines
	page   int                  // the most visits of a page
}

func newFake(t *testing.T) *fake {
	f := &fake{urls: map[string]time.Time{}, page: 3}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.URL.Path {
	case "/v1/stats":
		_, _ = io.WriteString(w, "{}")
	case "/v1/urls":
		body, err := io.ReadAll(r.Body) // all of it before the answer begins
		if err != nil {
			return
		}
		for in := bufio.NewScanner(bytes.NewReader(body)); in.Scan(); {
			var u struct {
				URL          string    `json:"url"`
				RefetchAfter time.Time `json:"refetch_after"`
			}
			if err := json.Unmarshal(in.Bytes(), &u); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			f.sent++
			if strings.Contains(u.URL, "/refused/") {
				fmt.Fprintln(w, `{"result":"rejected","reason":"cap: https://example.com/"}`)
				continue
			}
			result := "known"
			if _, ok := f.urls[u.URL]; !ok {
				f.urls[u.URL] = u.RefetchAfter
				result = "added"
			}
			fmt.Fprintf(w, "{\"result\":%q}\n", result)
		}
	case "/v1/visited":
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(len(f.visits), from+n, from+f.page)
		for _, v := range f.visits[from:to] {
			fmt.Fprintln(w, v)
		}
		fmt.Fprintf(w, "{\"next_cursor\":\"%d\"}\n", to)
	default:
		http.NotFound(w, r)
	}
}

func (f *fake) visit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		i := len(f.visits)
		f.visits = append(f.visits, fmt.Sprintf(`{"url":"https://site%d.test/%d","crawl":"DEFAULT","domain":"site%d.test",`+
			`"time":"2026-11-26T10:00:%02d.%03dZ","status":%d,"depth":0}`, i%3, i, i%3, i/1000, i%1000, 200+i%2*204))
	}
}

// rows returns the rows of a dataset of the current version: how often there is each URL.
func rows(t *testing.T, store blob.Store, dataset string) map[string]int {
	t.Helper()
	s, err := scan.Open(t.Context(), store, scan.Options{Datasets: []string{dataset}})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for i := range s.Tasks {
		for r, err := range s.Read(t.Context(), i, part.ColScheme, part.ColHost, part.ColPathQuery, part.ColExtras) {
			if err != nil {
				t.Fatal(err)
			}
			for n := range r.Len() {
				at := r.At(n)
				have[r.Scheme[at]+"://"+r.Host[at]+r.PathQuery[at]+" "+r.Extras[at]]++
			}
		}
	}
	return have
}

// cycle is what the workflow does: it collects, ingests and settles until nothing is new.
func cycle(ctx context.Context, store blob.Store, spec VisitsSpec, lim visitLimits, dir string) error {
	return cycleOf(ctx, store, store, spec, lim, dir)
}

// cycleOf is cycle with another store for the ingest.
func cycleOf(ctx context.Context, store, ingests blob.Store, spec VisitsSpec, lim visitLimits, dir string) error {
	for {
		c, err := collect(ctx, store, spec, lim, func(Collecting) {})
		if err != nil || c.Batch == "" {
			return err
		}
		if _, err := testlake.Steps(ctx, ingests, c.Ingest, dir); err != nil {
			return err
		}
		if err := Settle(ctx, store, spec, c.Batch); err != nil {
			return err
		}
	}
}

// Whatever change of the store by this package is the last one before everything stops, each visit
// is in one batch in the end, and nothing but the cursor is left below the root.
func TestVisitsAreIngestedOnce(t *testing.T) {
	for n := 0; ; n++ {
		dir := t.TempDir()
		store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(dir)+"/lake")
		if err != nil {
			t.Fatal(err)
		}
		f := newFake(t)
		spec := VisitsSpec{Lake: store.URL(), Frontier: f.URL, Dataset: "visits"}
		lim := visitLimits{page: 3, object: 5, batch: 10}
		f.visit(14)
		faulty := blobtest.NewFaulty(store)
		faulty.CrashAfter(n)
		if err := cycleOf(t.Context(), faulty, store, spec, lim, t.TempDir()); (err != nil) != faulty.Crashed() {
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		f.visit(3) // others come meanwhile
		if err := cycle(t.Context(), store, spec, lim, t.TempDir()); err != nil {
			t.Fatalf("after a crash after %d changes: %v", n, err)
		}
		testlake.Publish(t, store)
		have := rows(t, store, "visits")
		if len(have) != 17 {
			t.Fatalf("crash after %d changes: %d rows, want 17", n, len(have))
		}
		for row, times := range have {
			if times != 1 {
				t.Fatalf("crash after %d changes: %s is there %d times", n, row, times)
			}
		}
		for info, err := range store.List(t.Context(), Root) {
			if err != nil || info.Key != CursorKey("visits") {
				t.Errorf("crash after %d changes: %s is left: %v", n, info.Key, err)
			}
		}
		if !faulty.Crashed() {
			if n < 10 {
				t.Errorf("only %d changes", n)
			}
			return
		}
	}
}

// Two runs at once, and a reply that is lost: one batch is made.
func TestWhoeverComesSecondTakesTheFirstsBatch(t *testing.T) {
	f := newFake(t)
	f.visit(7)
	memory := blob.NewMemory()
	spec := VisitsSpec{Lake: memory.URL(), Frontier: f.URL, Dataset: "visits"}
	lim := visitLimits{page: 3, object: 5, batch: 100}
	store := blobtest.NewFaulty(memory)
	var other Collected
	isCursor := func(key string) bool { return key == CursorKey("visits") }
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: isCursor, Nth: 1, Do: func() {
		f.visit(2)
		var err error
		if other, err = collect(t.Context(), memory, spec, lim, func(Collecting) {}); err != nil {
			t.Error(err)
		}
	}})
	c, err := collect(t.Context(), store, spec, lim, func(Collecting) {})
	if err != nil || !c.Again || c.Visits != 9 || !slices.Equal(c.Ingest.Inputs, other.Ingest.Inputs) {
		t.Errorf("%+v, %v; the other run made %+v", c, err, other)
	}
	if err := Settle(t.Context(), memory, spec, c.Batch); err != nil {
		t.Fatal(err)
	}
	if err := Settle(t.Context(), memory, spec, c.Batch); err != nil {
		t.Errorf("a repetition: %v", err)
	}
	f.visit(1)
	store.Heal()
	store.Inject(blobtest.Fault{Op: blob.OpPut, Key: isCursor, Nth: 1, After: true, Err: blob.ErrPrecondition})
	if c, err = collect(t.Context(), store, spec, lim, func(Collecting) {}); err != nil || c.Visits != 1 || c.Again || c.Total != 9 {
		t.Errorf("when the reply was lost: %+v, %v", c, err)
	}
	// A dataset follows one frontier.
	spec.Frontier = "http://elsewhere:7070"
	var input *InputError
	if _, err := collect(t.Context(), memory, spec, lim, func(Collecting) {}); !errors.As(err, &input) || !strings.Contains(err.Error(), "--moved") {
		t.Errorf("another frontier: %v", err)
	}
	spec.Moved = true
	if c, err := collect(t.Context(), memory, spec, lim, func(Collecting) {}); err != nil || !c.Again {
		t.Errorf("it has moved: %+v, %v", c, err)
	}
}

// If the cursor is lost, the next batch would have the name of the first.
func TestLostCursor(t *testing.T) {
	f := newFake(t)
	f.visit(2)
	store, err := blob.Open(t.Context(), "file://"+filepath.ToSlash(t.TempDir())+"/lake")
	if err != nil {
		t.Fatal(err)
	}
	spec := VisitsSpec{Lake: store.URL(), Frontier: f.URL, Dataset: "visits"}
	if err := cycle(t.Context(), store, spec, defaultVisits, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), CursorKey("visits")); err != nil {
		t.Fatal(err)
	}
	var input *InputError
	if _, err := Collect(t.Context(), store, spec, func(Collecting) {}); !errors.As(err, &input) || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("%v", err)
	}
}

// Wherever a seed stops, one that goes on at a position that was reported sends the rest.
func TestSeedGoesOn(t *testing.T) {
	store := blob.NewMemory()
	want := map[string]bool{}
	for batch := range 3 {
		var records []testlake.Record
		for i := range 60 {
			url := fmt.Sprintf("https://h%d.site%d.test/%d/%d", i%2, i%5, batch, i/2)
			if i == 33 {
				url = "https://site1.test/refused/1"
			}
			records = append(records, testlake.Record{URL: url, TS: int64(i+1) * 1000, HasTS: true})
			if !strings.HasPrefix(url, "https://h1.site3.test/") && !strings.Contains(url, "refused") {
				want[url] = true
			}
		}
		testlake.Ingest(t, store, "a", strconv.Itoa(batch), records)
	}
	testlake.Publish(t, store)
	if _, err := suppress.Add(t.Context(), store, catalog.Takedown{
		ID: catalog.NewTakedownID(time.Now()), Target: catalog.Target{Kind: catalog.HostTarget, Host: "h1.site3.test"}, Reason: "a test", Created: time.Now(),
	}, suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	spec := SeedSpec{Lake: store.URL(), Frontier: f.URL, Datasets: []string{"a"}}
	plan, err := PlanSeed(t.Context(), store, spec)
	if err != nil || plan.Parts == 0 {
		t.Fatalf("%+v, %v", plan, err)
	}
	run := func(from SeedProgress) (all []SeedProgress) {
		t.Helper()
		for at := from; !at.Done; {
			next, err := seed(t.Context(), store, spec, plan.Version, at, seedLimits{lines: 7, rows: 50}, func(p SeedProgress) { all = append(all, p) })
			if err != nil {
				t.Fatal(err)
			}
			at = next
			all = append(all, at)
		}
		return all
	}
	all := run(SeedProgress{})
	last := all[len(all)-1]
	if !sameSet(f.urls, want) || last.Added != int64(len(want)) || last.Rows != plan.Rows || last.Rejected["cap"] == 0 || len(last.Rejected) != 1 {
		t.Errorf("%d URLs were added, want %d; %+v", len(f.urls), len(want), last)
	}
	if len(all) < 20 {
		t.Errorf("%d positions", len(all))
	}
	for _, at := range all {
		had := f.sent
		before := at.URLs
		rest := run(at)
		end := at
		if len(rest) > 0 {
			end = rest[len(rest)-1]
		}
		// What comes after a position, and what came before it, is all that there is.
		if int64(f.sent-had) != last.URLs-before || end.URLs != last.URLs || end.Rows != last.Rows {
			t.Errorf("from %+v: %d lines were sent, want %d; %+v", at, f.sent-had, last.URLs-before, end)
		}
	}
}

func sameSet(have map[string]time.Time, want map[string]bool) bool {
	return slices.Equal(slices.Sorted(maps.Keys(have)), slices.Sorted(maps.Keys(want)))
}

// A URL is not fetched before a time after its row's, of several rows the latest.
func TestSeedRefetchesAfter(t *testing.T) {
	store := blob.NewMemory()
	now := time.Now().UTC().Truncate(time.Second)
	at := func(url string, ago time.Duration) testlake.Record {
		return testlake.Record{URL: url, TS: now.Add(-ago).UnixMilli(), HasTS: true}
	}
	testlake.Ingest(t, store, "a", "1", []testlake.Record{
		at("https://a.test/old", 100*time.Hour), at("https://a.test/young", time.Hour), at("https://a.test/both", 90*time.Hour),
		at("https://a.test/both", 2*time.Hour), {URL: "https://a.test/none"},
	})
	testlake.Ingest(t, store, "a", "2", []testlake.Record{at("https://a.test/other", 0)})
	testlake.Publish(t, store)
	f := newFake(t)
	spec := SeedSpec{Lake: store.URL(), Frontier: f.URL, Datasets: []string{"a"}, Batches: []string{"1"}, RefetchAfter: "2d"}
	if _, err := Seed(t.Context(), store, spec, "", SeedProgress{}, func(SeedProgress) {}); err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Time{
		"https://a.test/old": {}, "https://a.test/none": {},
		"https://a.test/young": now.Add(47 * time.Hour), "https://a.test/both": now.Add(46 * time.Hour),
	}
	if !maps.EqualFunc(f.urls, want, time.Time.Equal) {
		t.Errorf("%v, want %v", f.urls, want)
	}
}

// The rows of a batch are found in a union, too.
func TestSeedOfABatchOfAUnion(t *testing.T) {
	store := blob.NewMemory()
	for batch := range 3 {
		testlake.Ingest(t, store, "a", strconv.Itoa(batch), []testlake.Record{{URL: fmt.Sprintf("https://a.test/%d", batch)}, {URL: "https://a.test/all"}})
		testlake.Publish(t, store)
	}
	if _, err := publish.CompactAll(t.Context(), store, "compaction", publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	spec := SeedSpec{Lake: store.URL(), Frontier: f.URL, Datasets: []string{"a"}, Batches: []string{"0", "2"}}
	if plan, err := PlanSeed(t.Context(), store, spec); err != nil || plan.Parts != 1 {
		t.Fatalf("%+v, %v: want the part of a union", plan, err)
	}
	if _, err := Seed(t.Context(), store, spec, "", SeedProgress{}, func(SeedProgress) {}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{"https://a.test/0": true, "https://a.test/2": true, "https://a.test/all": true}; !sameSet(f.urls, want) {
		t.Errorf("%v, want %v", f.urls, want)
	}
}

func TestSeedOfWhatIsNotThere(t *testing.T) {
	store := blob.NewMemory()
	f := newFake(t)
	plan := func(change func(*SeedSpec), text string) {
		t.Helper()
		spec := SeedSpec{Lake: store.URL(), Frontier: f.URL}
		change(&spec)
		var input *InputError
		if _, err := PlanSeed(t.Context(), store, spec); !errors.As(err, &input) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	plan(func(*SeedSpec) {}, "no version yet")
	testlake.Ingest(t, store, "a", "1", []testlake.Record{{URL: "https://a.test/"}})
	testlake.Publish(t, store)
	plan(func(s *SeedSpec) { s.Datasets = []string{"b"} }, `"b"`)
	plan(func(s *SeedSpec) { s.Datasets, s.Batches = []string{"a"}, []string{"2"} }, `"2"`)
	plan(func(s *SeedSpec) { s.Batches = []string{"2"} }, "name it")
	plan(func(s *SeedSpec) { s.Domains = []string{"www.example.com"} }, "host of the domain example.com")
	plan(func(s *SeedSpec) { s.Domains = []string{"a/b"} }, "no domain")
	plan(func(s *SeedSpec) { s.Version = "none" }, "none")
	plan(func(s *SeedSpec) { s.Frontier = "redis://127.0.0.1" }, "no URL of a frontier")
	plan(func(s *SeedSpec) { s.Frontier = "http://user:secret@127.0.0.1" }, "user")
	plan(func(s *SeedSpec) { s.Frontier = f.URL + "/nothing" }, "404")
	plan(func(s *SeedSpec) { s.RefetchAfter = "soon" }, "soon")
}
