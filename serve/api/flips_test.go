package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/starter/retire"
)

// flipLakes are the lakes of TestFlipsUnderLoad, and how many versions it publishes in each. The
// build tag soak has more.
var flipLakes = map[string]func(t *testing.T) (store blob.Store, flips int){
	"memory": func(*testing.T) (blob.Store, int) { return blob.NewMemory(), 200 / testenv.Every(4) },
}

const (
	// flipKeep is how many versions collections keep. Publishes wait for a reader that reads a
	// version flipLag versions old, so that a version is kept as long as somebody pages through it.
	flipKeep, flipLag = 6, 3
	flipDomains       = 4
	// compactEvery is how many publishes there are from the end of a compaction to the begin of the
	// next.
	compactEvery = 12
)

// held is what a version holds, taken down or not: the rows of each domain by the number of the
// dataset, in the order of their URLs.
type held map[string]map[int][]testlake.Record

// flipLoad is what happens to a lake and its server.
type flipLoad struct {
	store blob.Store
	// flips is how many versions are published, unless there is a time during which they are.
	flips  int
	during time.Duration
	// pause is the time between two of them.
	pause time.Duration
	// readers is how many clients there are, of which slow ones take their time to receive answers.
	readers, slow int
	// walks is the most walks of a reader between two publishes, so that readers leave the
	// processors to the writers.
	walks int
	// zipf tells that few of many domains have most of the URLs and most of the requests.
	zipf bool
	// faults is the share of the server's reads that fail.
	faults float64
}

// fewReaders is a load without slow clients and faults, of so many versions.
func fewReaders(store blob.Store, flips int) flipLoad {
	return flipLoad{store: store, flips: flips, readers: 2, walks: 6}
}

// zipfDomains is how many domains a load of that kind has.
const zipfDomains = 60

// domain chooses a domain.
func (l *flipLoad) domain(rng *rand.Rand) string {
	if !l.zipf {
		return flipDomain(rng.IntN(flipDomains))
	}
	// The exponent makes the first domain a third of all.
	return flipDomain(int(rand.NewZipf(rng, 1.3, 1, zipfDomains-1).Uint64()))
}

// records is the number of URLs of a batch: few in most, thousands in some if there are heavy
// tails.
func (l *flipLoad) records(rng *rand.Rand) int {
	n := 5 + rng.IntN(60)
	if l.zipf {
		n = min(4000, int(float64(n)/math.Pow(1-rng.Float64(), 0.8)))
	}
	return n
}

// flipper publishes versions.
type flipper struct {
	flipLoad
	t    *testing.T
	temp string
	rng  *rand.Rand

	live    map[string]map[string][]testlake.Record // dataset → batch
	retired map[string]map[string][]testlake.Record
	done    map[string]int

	takedowns flipTakedowns

	mu       sync.Mutex
	spec     int             // the serial number of the last ingest, which its URLs have
	versions map[string]held // the newest
	order    []string        // of versions
	changed  *sync.Cond
	begun    []int // the flip at which each reader began its walk
	walked   []int // how many it has begun at that flip
	flip     int
	ended    bool

	compactions int // that made a version
}

var flipDatasets = []string{"alpha", "beta", "gamma"}

func flipDomain(i int) string { return fmt.Sprintf("site%d.test", i) }

// ingest adds a batch of a dataset or replaces one.
func (f *flipper) ingest(dataset string) error {
	batch := fmt.Sprintf("b%d", f.rng.IntN(6))
	f.mu.Lock()
	f.spec++
	serial := f.spec
	f.mu.Unlock()
	var records []testlake.Record
	for i := range f.records(f.rng) {
		domain := flipDomain(i % flipDomains)
		if f.zipf {
			domain = f.domain(f.rng)
		}
		records = append(records, testlake.Record{
			URL: fmt.Sprintf("https://%s/%d/%d", flipHost(serial, i/flipDomains, domain), serial, i),
			TS:  flipTime(serial, i), HasTS: true,
		})
	}
	spec := testlake.Spec(f.t, f.store, dataset, batch, records)
	if _, err := testlake.Steps(f.t.Context(), f.store, spec, f.temp); err != nil {
		return err
	}
	if f.live[dataset] == nil {
		f.live[dataset], f.retired[dataset] = map[string][]testlake.Record{}, map[string][]testlake.Record{}
	}
	f.live[dataset][batch] = records
	delete(f.retired[dataset], batch)
	f.done["ingests"]++
	return nil
}

// move retires a batch, or restores one unless a collection was faster.
func (f *flipper) move(restore bool) error {
	from, to, what := f.live, f.retired, "retired"
	if restore {
		from, to, what = f.retired, f.live, "restored"
	}
	dataset := flipDatasets[f.rng.IntN(len(flipDatasets))]
	batches := slices.Sorted(maps.Keys(from[dataset]))
	if len(batches) == 0 {
		return nil
	}
	batch := batches[f.rng.IntN(len(batches))]
	opt := retire.Options{Dataset: dataset, Batches: []string{batch}, Restore: restore}
	s, err := opt.Select(f.t.Context(), f.store)
	if err == nil {
		err = s.Apply(f.t.Context(), f.store)
	}
	if err != nil && restore && strings.Contains(err.Error(), "not all of it is left") {
		delete(from[dataset], batch)
		f.done["collected first"]++
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", what, dataset, batch, err)
	}
	to[dataset][batch] = from[dataset][batch]
	delete(from[dataset], batch)
	f.done[what]++
	return nil
}

// publish makes the next version.
func (f *flipper) publish() error {
	state := held{}
	for d, dataset := range flipDatasets {
		for _, records := range f.live[dataset] {
			for _, r := range records {
				host := strings.Split(r.URL, "/")[2]
				domain := host[strings.LastIndex(host, "site"):]
				if state[domain] == nil {
					state[domain] = map[int][]testlake.Record{}
				}
				state[domain][d+1] = append(state[domain][d+1], r)
			}
		}
	}
	for _, datasets := range state {
		for _, rows := range datasets {
			slices.SortFunc(rows, func(a, b testlake.Record) int { return strings.Compare(a.URL, b.URL) })
		}
	}
	done, err := publish.All(f.t.Context(), f.store, testlake.Run(), f.temp)
	if err == nil && len(done.Skipped) > 0 {
		err = fmt.Errorf("skipped %+v", done.Skipped)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.versions[done.Version] == nil {
		f.flip++
	}
	f.published(done.Version, state)
	for !f.ended && slices.ContainsFunc(f.begun[:], func(at int) bool { return at < f.flip-flipLag }) {
		f.changed.Wait()
	}
	return nil
}

// published notes what a version holds. The caller holds f.mu.
func (f *flipper) published(version string, state held) {
	if f.versions[version] == nil {
		f.order = append(f.order, version)
	}
	f.versions[version] = state
	if len(f.order) > 10*flipKeep { // nobody asks for it any more
		delete(f.versions, f.order[0])
		f.order = f.order[1:]
	}
	f.changed.Broadcast()
}

// compact makes a version with the contents of the one before.
func (f *flipper) compact(full bool) error {
	f.takedowns.undropped.Lock()
	defer f.takedowns.undropped.Unlock()
	done, err := publish.CompactAll(f.t.Context(), f.store, testlake.Run(), publish.Compaction{Full: full}, f.t.TempDir())
	if err != nil || done.Existed {
		return err
	}
	data, _, err := f.store.Get(f.t.Context(), catalog.VersionKey(done.Version))
	if err != nil {
		return err
	}
	v, err := catalog.DecodeVersion(f.store, data, catalog.VersionKey(done.Version))
	if err != nil {
		return err
	}
	state := f.wait(v.Parent)
	f.mu.Lock()
	defer f.mu.Unlock()
	if state != nil {
		f.published(done.Version, state)
		f.compactions++
	}
	return nil
}

// wait returns what a version holds, once its publisher knows that it has published it.
func (f *flipper) wait(version string) held {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.versions[version] == nil && !f.ended {
		f.changed.Wait()
	}
	return f.versions[version]
}

// kept reports whether a version is so new that no collection may have dropped it.
func (f *flipper) kept(version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.order[max(0, len(f.order)-flipKeep+1):], version)
}

// begin notes that a reader begins a walk, and reports whether there are more flips to come.
func (f *flipper) begin(reader int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.walked[reader] == f.walks && f.begun[reader] == f.flip && !f.ended {
		f.changed.Wait()
	}
	if f.begun[reader] != f.flip {
		f.walked[reader] = 0
	}
	f.walked[reader]++
	f.begun[reader] = f.flip
	f.changed.Broadcast()
	return !f.ended
}

func (f *flipper) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.changed.Broadcast()
}

// walk asks for a domain and for all URLs of one of its datasets, page after page, and compares the
// answers with what the version holds that the first page was of.
func (f *flipper) walk(get func(path string, v any) error, served func() int, rng *rand.Rand) error {
	domain := f.domain(rng)
	var totals domainAnswer
	least := served()
	if err := get("/v1/domain/"+domain, &totals); err != nil {
		return err
	}
	stored := f.wait(totals.Version)
	if stored == nil {
		return nil // the test ends
	}
	if totals.TakedownEpoch < least {
		return fmt.Errorf("totals of epoch %d, and the server had %d before", totals.TakedownEpoch, least)
	}
	rules, err := f.takedowns.of(totals.TakedownEpoch)
	if err != nil {
		return err
	}
	want := map[int]int{}
	for dataset, rows := range stored[domain] {
		for _, row := range rows {
			if !hides(rules, dataset, row) {
				want[dataset]++
			}
		}
	}
	got := map[int]int{}
	for _, d := range totals.Datasets {
		got[d.ID] = d.Count
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("version %s, epoch %d: URLs of %s by dataset: %v, want %v", totals.Version, totals.TakedownEpoch, domain, got, want)
	}
	dataset := 1 + rng.IntN(len(flipDatasets))
	path := fmt.Sprintf("/v1/domain/%s/datasets/%d/urls?limit=%d", domain, dataset, 3+rng.IntN(30))
	version := ""
	seen := map[string]bool{}
	var epochs [][]flipRule // of the pages
	for {
		page, rules, err := f.urls(get, served, path)
		if err != nil {
			if version == "" && strings.Contains(err.Error(), "404") {
				return nil // no batch of the dataset is left
			}
			if strings.Contains(err.Error(), "410") && !f.kept(version) {
				return nil // the server was so far behind the publisher
			}
			return fmt.Errorf("after %d URLs of version %q: %w", len(seen), version, err)
		}
		if version == "" {
			version = page.Version
		}
		if page.Version != version {
			return fmt.Errorf("a page of version %s after one of %s", page.Version, version)
		}
		if stored = f.wait(version); stored == nil {
			return nil
		}
		total := 0
		for _, row := range stored[domain][dataset] {
			if !hides(rules, dataset, row) {
				total++
			}
		}
		if page.Total != total {
			return fmt.Errorf("version %s, epoch %d: %d URLs of %s in dataset %d, want %d", version, page.TakedownEpoch, page.Total, domain, dataset, total)
		}
		epochs = append(epochs, rules)
		for _, item := range page.Items {
			if seen[item.URL] {
				return fmt.Errorf("version %s: %s is on two pages", version, item.URL)
			}
			seen[item.URL] = true
		}
		if page.Next == nil {
			break
		}
		path = *page.Next
	}
	// A row that a page did not show was taken down when one of the pages was made.
	found, hidden := 0, 0
	for _, row := range stored[domain][dataset] {
		down := slices.ContainsFunc(epochs, func(rules []flipRule) bool { return hides(rules, dataset, row) })
		switch {
		case seen[row.URL]:
			found++
		case !down:
			return fmt.Errorf("version %s: %s of dataset %d is missing", version, row.URL, dataset)
		}
		if down {
			hidden++
		}
	}
	if found != len(seen) {
		return fmt.Errorf("version %s: %d URLs of %s in dataset %d that were never ingested", version, len(seen)-found, domain, dataset)
	}
	f.takedowns.mu.Lock()
	f.takedowns.hidden += hidden
	f.takedowns.mu.Unlock()
	return nil
}

// linger asks for a page, waits until its version is kept no longer, and asks for the next page.
// The answer is that of the version, or that it is gone.
func (f *flipper) linger(get func(path string, v any) error, served func() int) (gone bool, err error) {
	first, _, _ := f.urls(get, served, "/v1/domain/"+flipDomain(0)+"/datasets/1/urls?limit=1")
	if first.Next == nil {
		return false, nil // no batch of the dataset is left
	}
	f.sleep(flipKeep + 3)
	next, _, err := f.urls(get, served, *first.Next)
	if err != nil && strings.Contains(err.Error(), "410") {
		return true, nil
	}
	if err == nil && next.Version != first.Version {
		err = fmt.Errorf("a page of version %s after one of %s", next.Version, first.Version)
	}
	return false, err
}

// sleep returns after so many flips, or reports that there are no more.
func (f *flipper) sleep(flips int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for until := f.flip + flips; f.flip < until && !f.ended; {
		f.changed.Wait()
	}
	return !f.ended
}

// footprint is what must not grow with the number of versions.
type footprint struct{ goroutines, files, maps, leased, open, heapMB int }

// most has the highest value of each.
func (p footprint) most(q footprint) footprint {
	return footprint{
		max(p.goroutines, q.goroutines), max(p.files, q.files), max(p.maps, q.maps),
		max(p.leased, q.leased), max(p.open, q.open), max(p.heapMB, q.heapMB),
	}
}

func measureFootprint(s *lookup.Server) (p footprint) {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	p.heapMB = int(mem.HeapAlloc >> 20)
	// Idle connections belong to the store, or to the tests' own proxy before it.
	stacks := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if !strings.Contains(stack, "net/http.(*persistConn)") && !strings.Contains(stack, "net/http.(*connReader)") {
			p.goroutines++
		}
	}
	st := s.Status()
	p.leased, p.open = st.Leased, st.Open
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.files = len(fds)
	}
	if data, err := os.ReadFile("/proc/self/maps"); err == nil {
		p.maps = strings.Count(string(data), ".mphf\n")
	}
	return p
}

// expected is how many versions there will be, about.
func (l *flipLoad) expected() int {
	if l.during > 0 {
		return int(l.during / (l.pause + time.Second/2))
	}
	return l.flips
}

// failingReads is a store of which a share of reads fails.
type failingReads struct {
	blob.Store
	rate   float64
	failed atomic.Int64
}

var errInjected = errors.New("injected: connection reset by peer")

func (s *failingReads) fails() bool {
	fails := s.rate > 0 && rand.Float64() < s.rate
	if fails {
		s.failed.Add(1)
	}
	return fails
}

// ReadRange implements blob.Store.
func (s *failingReads) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if s.fails() {
		return nil, fmt.Errorf("read %s: %w", key, errInjected)
	}
	return s.Store.ReadRange(ctx, key, off, n)
}

// Get implements blob.Store.
func (s *failingReads) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if s.fails() {
		return nil, blob.Info{}, fmt.Errorf("get %s: %w", key, errInjected)
	}
	return s.Store.Get(ctx, key)
}

// Unwrap gives access to the files of a local store.
func (s *failingReads) Unwrap() blob.Store { return s.Store }

// slowReader reads some hundred kB a second.
type slowReader struct{ r io.Reader }

// Read implements io.Reader.
func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return s.r.Read(p[:min(len(p), 1<<10)])
}

// TestFlipsUnderLoad publishes versions with batches that are ingested, replaced, retired and
// restored, while takedowns come and go, compactions and collections run one after the other and
// clients page through answers. Every client sees one version from its first page to the last, no
// error, and nothing that is taken down when the page is made. Nothing grows with the number of
// versions.
func TestFlipsUnderLoad(t *testing.T) {
	for name, open := range flipLakes {
		t.Run(name, func(t *testing.T) {
			store, flips := open(t)
			flipUnderLoad(t, fewReaders(store, flips))
		})
	}
}

func flipUnderLoad(t *testing.T, load flipLoad) {
	f := &flipper{
		flipLoad: load, begun: make([]int, load.readers), walked: make([]int, load.readers),
		t: t, temp: t.TempDir(), rng: rand.New(rand.NewPCG(17, 4)),
		live: map[string]map[string][]testlake.Record{}, retired: map[string]map[string][]testlake.Record{},
		done: map[string]int{}, versions: map[string]held{},
		takedowns: flipTakedowns{rng: rand.New(rand.NewPCG(17, 5)), rules: make([][]flipRule, 1), added: map[catalog.TargetKind]int{}},
	}
	f.changed = sync.NewCond(&f.mu)
	for _, dataset := range flipDatasets { // in the order of their numbers
		if err := f.ingest(dataset); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.publish(); err != nil {
		t.Fatal(err)
	}
	failing := &failingReads{Store: f.store, rate: load.faults}
	counting := blob.NewCounting(failing)
	opt := lookup.Options{
		CacheDir: t.TempDir(), Poll: 5 * time.Millisecond, Warm: 100, LeaseTTL: lease.DefaultTTL, Program: "test",
		Log: slog.New(slog.DiscardHandler),
	}
	if load.faults > 0 { // so that many requests read
		opt.FrameBytes, opt.PageBytes = 256<<10, 1
	}
	server := lookup.NewServer(counting, opt)
	goroutines := measureFootprint(server).goroutines
	testenv.Until(t, "the first version", func() bool {
		err := server.Refresh(t.Context())
		if err != nil && failing.failed.Load() == 0 {
			t.Fatal(err)
		}
		return err == nil
	})
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	background.Go(func() { server.Run(ctx) })
	web := httptest.NewServer(New(server, slog.New(slog.DiscardHandler), NewMetrics(server, counting)))
	client := web.Client()
	var injected, shed atomic.Int64 // answers
	ask := func(path string, v any, slow bool) error {
		for {
			before := failing.failed.Load()
			reply, err := client.Get(web.URL + path)
			if err != nil {
				return err
			}
			var body io.Reader = reply.Body
			if slow {
				body = &slowReader{body}
			}
			data, err := io.ReadAll(body)
			reply.Body.Close()
			switch {
			case err == nil && reply.StatusCode >= 500 && failing.failed.Load() > before && !strings.Contains(string(data), "corrupt"):
				injected.Add(1)
				continue
			case err == nil && (reply.StatusCode == 429 || reply.StatusCode == 503) && load.faults > 0 &&
				(strings.Contains(string(data), "/overloaded") || strings.Contains(string(data), "/too-many-requests")):
				shed.Add(1)
				time.Sleep(20 * time.Millisecond) // sooner than the server asks for
				continue
			case err == nil && reply.StatusCode != http.StatusOK:
				err = fmt.Errorf("GET %s: %d %s", path, reply.StatusCode, data)
			}
			if err != nil {
				return err
			}
			return json.Unmarshal(data, v)
		}
	}
	get := func(path string, v any) error { return ask(path, v, false) }

	served := func() int { return int(server.Status().TakedownEpoch) }

	var walks, collections, deleted, late410 atomic.Int64
	for reader := range load.readers {
		background.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(reader), 2))
			own := func(path string, v any) error { return ask(path, v, reader < load.slow) }
			for f.begin(reader) {
				if err := f.walk(own, served, rng); err != nil {
					t.Errorf("reader %d: %v", reader, err)
					f.end()
				}
				walks.Add(1)
			}
		})
	}
	background.Go(func() {
		for n := 1; f.sleep(max(changeEvery, load.expected()/mostChanges)); n++ {
			if err := f.change(n, served); err != nil && ctx.Err() == nil {
				t.Errorf("change %d of the takedowns: %v", n, err)
				f.end()
			}
		}
		if f.takedowns.lift != "" {
			f.takedowns.undropped.Unlock()
		}
	})
	background.Go(func() {
		for n := 1; f.sleep(compactEvery); n++ {
			if err := f.compact(n%2 == 0); err != nil && ctx.Err() == nil {
				t.Errorf("compaction %d: %v", n, err)
				f.end()
			}
		}
	})
	background.Go(func() {
		for ctx.Err() == nil && !t.Failed() {
			gone, err := f.linger(get, served)
			if err != nil && ctx.Err() == nil {
				t.Errorf("a slow reader: %v", err)
				f.end()
			}
			if gone {
				late410.Add(1)
			}
		}
	})
	background.Go(func() {
		for ctx.Err() == nil && !t.Failed() {
			res, err := gc.Collect(ctx, f.store, gc.Options{Keep: flipKeep})
			if err != nil && ctx.Err() == nil {
				t.Errorf("collection %d: %v", collections.Load(), err)
				f.end()
			}
			collections.Add(1)
			deleted.Add(res.Deleted.Total().Objects)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})

	// The load begins with few versions and idle connections, so the first quarter does not count.
	// What then is in use at one moment varies with the requests, so the highest values of the
	// second quarter and of the last one are compared.
	var early, late footprint
	var measured [2]int
	began := time.Now()
	more := func() bool {
		if load.during > 0 {
			return time.Since(began) < load.during
		}
		return f.flip < load.flips
	}
	for i := 0; more() && !t.Failed(); i++ {
		var err error
		switch n := f.rng.IntN(10); {
		case n < 6:
			err = f.ingest(flipDatasets[f.rng.IntN(len(flipDatasets))])
		case n < 8:
			err = f.move(false)
		default:
			err = f.move(true)
		}
		if err == nil {
			err = f.publish()
		}
		if err != nil {
			t.Errorf("flip %d: %v", i, err)
		}
		part := float64(f.flip) / float64(max(1, load.flips))
		if load.during > 0 {
			part = float64(time.Since(began)) / float64(load.during)
		}
		switch {
		case load.during == 0 && i%max(1, load.flips/100) != 0: // measuring takes time
		case part >= 0.25 && part < 0.5:
			early = early.most(measureFootprint(server))
			measured[0]++
		case part >= 0.75:
			late = late.most(measureFootprint(server))
			measured[1]++
		}
		if load.pause > 0 && time.Since(began) < load.during {
			time.Sleep(load.pause)
		}
	}
	late = late.most(measureFootprint(server))
	f.end()
	stop()
	background.Wait()
	t.Logf("%d versions in %v, %d walks, %d collections of %d objects, %d compactions, %d slow readers too late, %v", f.flip, time.Since(began).Round(time.Millisecond),
		walks.Load(), collections.Load(), deleted.Load(), f.compactions, late410.Load(), f.done)
	k := &f.takedowns
	t.Logf("takedowns added: %v, lifted: %d, shown by the server after at most %v; walks met %d hidden rows",
		k.added, k.lifted, k.slowest.Round(time.Millisecond), k.hidden)
	roots := map[string]int{}
	for info := range f.store.List(t.Context(), "") {
		root, _, _ := strings.Cut(strings.TrimPrefix(info.Key, "index/"), "/")
		roots[root]++
	}
	t.Log(roots)
	t.Logf("second quarter %+v, last quarter %+v, of %v measurements", early, late, measured)
	if load.faults > 0 {
		st := server.Status().Ahead
		t.Logf("%d of the server's reads failed, %d answers for that; %d shed; read ahead and before flips: %+v",
			failing.failed.Load(), injected.Load(), shed.Load(), st)
	}
	if t.Failed() {
		return
	}
	flips := f.flip
	few := load.during > 0 && flips < 100 // a short form of a long test
	if walks.Load() < int64(flips) || !few && (deleted.Load() < int64(flips) || f.done["restored"] == 0 || late410.Load() == 0 ||
		f.compactions == 0 || len(k.added) < 4 || k.lifted == 0 || k.hidden < flips) {
		t.Error("too little has happened")
	}
	if n := failing.failed.Load(); (n > 0) != (load.faults > 0) {
		t.Errorf("%d faults were injected", n)
	}
	// A flip opens a version beside those that are open.
	if most := lookup.DefaultKeepOpen + 3; late.open > most || late.leased > most {
		t.Errorf("%d versions are open, and the lease names %d", late.open, late.leased)
	}
	for what, n := range map[string][2]int{
		"goroutines": {early.goroutines, late.goroutines}, "open files": {early.files, late.files},
		"mapped files": {early.maps, late.maps}, "MiB of heap": {early.heapMB, late.heapMB},
	} {
		// A form of some seconds can hardly tell a leak from a moment with many slow readers.
		slack := 20
		if load.during == 0 {
			slack = 100
		}
		if min(measured[0], measured[1]) >= 5 && n[1] > n[0]+n[0]/2+slack {
			t.Errorf("%s: at most %d in the second quarter, %d in the last", what, n[0], n[1])
		}
	}
	leases, err := lease.All(t.Context(), f.store)
	if err != nil || len(leases) != 1 {
		t.Errorf("%d leases, %v", len(leases), err)
	}

	web.Close()
	client.CloseIdleConnections()
	server.Close()
	left := measureFootprint(server)
	for until := time.Now().Add(10 * time.Second); (left.goroutines > goroutines || left.maps > 0) && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
		left = measureFootprint(server)
	}
	if left.maps > 0 || left.open > 0 || left.goroutines > goroutines {
		t.Errorf("after the end of the server: %+v, %d goroutines before", left, goroutines)
	}
	if leases, err := lease.All(t.Context(), f.store); err != nil || len(leases) != 0 {
		t.Errorf("%d leases after the end of the server, %v", len(leases), err)
	}
	if _, err := gc.Collect(t.Context(), f.store, gc.Options{Keep: 1}); err != nil {
		t.Error(err)
	}
	report, err := lakecheck.Lake(t.Context(), f.store, lakecheck.Options{AllVersions: true, Deep: true, TempDir: f.temp})
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%v, %v", report.Problems, err)
	}
}
