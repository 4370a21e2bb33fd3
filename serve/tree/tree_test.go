package tree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/suppress"
	"github.com/urlake/urlake/serve/lookup"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// row is a row of the oracle, which is made from lists of URLs.
type row struct {
	dataset uint32
	host    string
	path    string // without the query
	size    int64
	sized   bool
}

// rowsOf lists what a version has of a domain.
func rowsOf(t testing.TB, snap *lookup.Snapshot, tg lookup.Target) (rows []row) {
	t.Helper()
	page, err := snap.Domain(t.Context(), tg, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range page.Datasets {
		list, err := snap.List(t.Context(), lookup.URLsQuery{Target: tg, Dataset: d.ID, Columns: lookup.With(part.ColSize)})
		if err != nil {
			t.Fatal(err)
		}
		for {
			p, err := list.Next(t.Context(), lookup.MaxLimit)
			if err != nil {
				t.Fatal(err)
			}
			if p == nil {
				break
			}
			for i := range p.Len() {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), string(p.URL(i)))
				if err != nil {
					t.Fatal(err)
				}
				r := row{dataset: d.ID, host: strings.Clone(u.Host)}
				r.path, _, _ = strings.Cut(strings.Clone(u.PathQuery), "?")
				r.size, r.sized = p.Size(i)
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// naive counts the nodes of the tree of some rows: each part of each path in a map.
func naive(rows []row, datasets []uint32) naiveTree {
	all, below := map[string]*Node{}, map[string][]*Node{}
	for _, r := range rows {
		if datasets != nil && !slices.Contains(datasets, r.dataset) {
			continue
		}
		parts := strings.SplitAfter(r.host+r.path, "/")
		path := ""
		for i := range parts {
			n := all[path]
			if n == nil {
				n = &Node{Path: path}
				all[path] = n
				if i > 0 {
					n.Name = parts[i-1]
					parent := strings.TrimSuffix(path, n.Name)
					all[parent].Children++
					below[parent] = append(below[parent], n)
				}
			}
			n.Rows++
			n.Size += r.size
			n.HasSize = n.HasSize || r.sized
			if i == len(parts)-1 {
				n.Direct++
			}
			path += parts[i]
		}
	}
	return naiveTree{all, below}
}

// naiveTree has the nodes by path, and the children of each.
type naiveTree struct {
	all   map[string]*Node
	below map[string][]*Node
}

// children returns the children of a node of a naive tree as a query lists them.
func children(t naiveTree, q *Query, path string, depth int) []Node {
	list := []Node{}
	for _, n := range t.below[path] {
		if n.Rows >= q.MinCount && n.Size >= q.MinBytes {
			list = append(list, *n)
		}
	}
	slices.SortFunc(list, func(a, b Node) int {
		c := 0
		switch q.Sort {
		case ByRows:
			c = cmp.Compare(b.Rows, a.Rows)
		case BySize:
			c = cmp.Compare(b.Size, a.Size)
		}
		return cmp.Or(c, strings.Compare(a.Name, b.Name))
	})
	for i := range list {
		if depth > 1 {
			below := children(t, q, list[i].Path, depth-1)
			list[i].Nodes = below[:min(len(below), q.Limit)]
		}
	}
	return list
}

// whole follows the cursors of a query and returns the node with all its children.
func whole(t testing.TB, e *Engine, snap *lookup.Snapshot, q Query) Node {
	t.Helper()
	var n Node
	for pages := 0; ; pages++ {
		p, err := e.Answer(t.Context(), snap, q)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if pages == 0 {
			n = p.Node
		} else {
			if p.Rows != n.Rows || p.Children != n.Children || len(p.Nodes) == 0 {
				t.Fatalf("%+v: page %d is %+v, the first %+v", q, pages, p.Node, n)
			}
			n.Nodes = append(n.Nodes, p.Nodes...)
		}
		if len(p.Nodes) > q.Limit {
			t.Fatalf("%+v: %d children on a page", q, len(p.Nodes))
		}
		if q.Cursor = p.Cursor; q.Cursor == "" {
			if p.Matching != len(n.Nodes) {
				t.Fatalf("%+v: %d children, %d matching", q, len(n.Nodes), p.Matching)
			}
			return n
		}
	}
}

// check compares the tree of a domain with the naive one: every node, and random queries.
func check(t testing.TB, rng *rand.Rand, e *Engine, snap *lookup.Snapshot, tg lookup.Target) (nodes int) {
	t.Helper()
	rows := rowsOf(t, snap, tg)
	sets := [][]uint32{nil}
	page, err := snap.Datasets(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range page.Datasets {
		sets = append(sets, []uint32{page.Datasets[i].ID})
	}
	if n := len(page.Datasets); n > 2 {
		sets = append(sets, []uint32{page.Datasets[n-1].ID, page.Datasets[0].ID})
	}
	for i, set := range sets {
		if i > 0 && rng.IntN(2) == 0 {
			continue
		}
		made := naive(rows, set)
		all := made.all
		compare := func(q Query) {
			t.Helper()
			want := Node{Nodes: []Node{}}
			if n := all[q.Path]; n != nil {
				want = *n
				want.Nodes = children(made, &q, q.Path, q.Depth)
			} else if want.Path = q.Path; q.Path != "" {
				want.Name = q.Path[strings.LastIndexByte(strings.TrimSuffix(q.Path, "/"), '/')+1:]
			}
			if diff := gocmp.Diff(want, whole(t, e, snap, q)); diff != "" {
				t.Fatalf("%+v (-brute force +answer):\n%.3000s", q, diff)
			}
			nodes++
		}
		compare(Query{Target: tg, Datasets: set, Depth: MaxDepth, Limit: 1 << 20, Listed: 1 << 20})
		paths := []string{""}
		for p := range all {
			paths = append(paths, p)
		}
		slices.Sort(paths)
		for i, p := range paths {
			if p == "" && i > 0 || p != "" && rng.IntN(len(paths)) > 7 {
				continue
			}
			q := Query{Target: tg, Path: p, Datasets: set, Depth: 1, Limit: 1 + rng.IntN(5)}
			compare(q)
			q.Sort = []Sort{ByName, ByRows, BySize}[rng.IntN(3)]
			q.Depth, q.MinCount = 1+rng.IntN(4), int64(rng.IntN(4))
			if rng.IntN(3) == 0 {
				q.MinBytes = int64(rng.IntN(20_000))
			}
			compare(q)
		}
		compare(Query{Target: tg, Path: tg.Host + "/no/such/", Datasets: set, Depth: 2, Limit: 3})
	}
	return nodes
}

// records are random records with deep paths, of which many are equal.
func records(rng *rand.Rand, n int) (list []testlake.Record) {
	hosts := []string{
		"www.example.com", "example.com", "a-b.example.com", "a.example.com", "EXAMPLE.com:8080", "bücher.example", "[2001:db8::1]", "localhost",
		"someone.github.io",
	}
	parts := []string{"a/", "b/", "a-b/", "a", "b?q=/x/y", "?/z/", "ü/", "/", "http://web.example/", "long" + strings.Repeat("x", 300) + "/", "a%2Fb/", ""}
	for range n {
		var r testlake.Record
		r.URL = []string{"http://", "https://"}[rng.IntN(2)] + hosts[int(rng.ExpFloat64()*2)%len(hosts)] + "/"
		for range rng.IntN(6) {
			r.URL += parts[int(rng.ExpFloat64()*3)%len(parts)]
		}
		if rng.IntN(2) == 0 {
			r.Size, r.HasSize = int64(rng.IntN(10_000)), true
		}
		if rng.IntN(2) == 0 {
			r.TS, r.HasTS = 1_500_000_000_000+int64(rng.IntN(50))*86_400_123, true
		}
		list = append(list, r)
	}
	return list
}

var domains = []string{
	"example.com", "http://xn--bcher-kva.example/", "http://[2001:db8::1]/", "http://localhost/", "someone.github.io", "absent.example",
}

func target(t testing.TB, text string) lookup.Target {
	t.Helper()
	tg, err := lookup.ParseTarget(text)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

func serve(t testing.TB, store blob.Store) *lookup.Server {
	t.Helper()
	s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir()})
	t.Cleanup(s.Close)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func acquire(t testing.TB, s *lookup.Server) *lookup.Snapshot {
	t.Helper()
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := s.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Release)
	return snap
}

// life takes a lake through all that changes what it has, and calls check after each step.
func life(t *testing.T, rng *rand.Rand, store blob.Store, check func(what string)) {
	ingest := func(batches ...[2]string) {
		t.Helper()
		for _, b := range batches {
			testlake.Ingest(t, store, b[0], b[1], records(rng, 50+rng.IntN(200)))
		}
		testlake.Publish(t, store)
		check(fmt.Sprint("ingest of ", batches))
	}
	ingest([2]string{"alpha", "b1"}, [2]string{"beta", "b1"})
	ingest([2]string{"alpha", "b2"}, [2]string{"alpha", "b3"}, [2]string{"gamma", "b1"})
	ingest([2]string{"beta", "b1"})
	all, err := catalog.Datasets(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	alpha := all[slices.IndexFunc(all, func(d lake.Dataset) bool { return d.Name == "alpha" })].ID
	b2 := []catalog.BatchName{{DatasetID: alpha, Batch: "b2"}}
	testlake.Retire(t, store, b2...)
	testlake.Publish(t, store)
	check("retire")
	for _, rule := range []struct {
		kind catalog.TargetKind
		text string
		id   uint32
	}{
		{catalog.PrefixTarget, "https://www.example.com/a/", 0}, {catalog.HostTarget, "a.example.com", alpha}, {catalog.PrefixTarget, "http://example.com/b", 0},
	} {
		tg, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), rule.kind, rule.text)
		if err != nil {
			t.Fatal(err)
		}
		r := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: tg, DatasetID: rule.id, Reason: "test", Created: time.Now().UTC()}
		if rule.id != 0 {
			r.Dataset = "alpha"
		}
		if _, err := suppress.Add(t.Context(), store, r, suppress.Options{TempDir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		check("takedown of " + rule.text)
	}
	testlake.Restore(t, store, b2...)
	testlake.Publish(t, store)
	check("restore")
	ingest([2]string{"alpha", "b4"})
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	check("compaction")
	ingest([2]string{"alpha", "b3"})
}

// buildAll builds the indexes of the current version's segments that have none.
func buildAll(t testing.TB, store blob.Store) {
	t.Helper()
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version("")
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Segments {
		ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
		// Little memory, so that runs are spilled.
		if _, err := treebuild.Build(t.Context(), store, ref, treebuild.Options{TempDir: t.TempDir(), MemoryBytes: 20_000}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestScannedTreesEqualBruteForce(t *testing.T) { testLife(t, func(string, blob.Store) {}) }

func TestIndexedTreesEqualBruteForce(t *testing.T) {
	testLife(t, func(_ string, store blob.Store) { buildAll(t, store) })
}

// Some segments have an index, and some have none.
func TestHalfIndexedTreesEqualBruteForce(t *testing.T) {
	steps := 0
	testLife(t, func(_ string, store blob.Store) {
		if steps++; steps%3 == 0 {
			buildAll(t, store)
		}
	})
}

// testLife compares trees with brute force after each step of a lake's life.
func testLife(t *testing.T, each func(what string, store blob.Store)) {
	store := blob.NewMemory()
	rng := rand.New(rand.NewPCG(1, 2))
	var s *lookup.Server
	life(t, rng, store, func(what string) {
		each(what, store)
		e := NewEngine(0, 0, 0) // which has not looked for indexes yet
		if s == nil {
			s = serve(t, store)
		}
		snap := acquire(t, s)
		nodes := 0
		for _, d := range domains {
			nodes += check(t, rng, e, snap, target(t, d))
		}
		if nodes < 50 {
			t.Fatalf("%s: only %d answers", what, nodes)
		}
	})
}

// A dataset of which all rows of a domain are hidden, by a takedown or because its batch is
// retired, does not count, neither in the numbers of children nor elsewhere.
func TestHiddenDatasetsDoNotCount(t *testing.T) {
	least := publish.LeastLeft
	t.Cleanup(func() { publish.LeastLeft = least })
	publish.LeastLeft = 1 // so that the segment stays
	for _, what := range []string{"takedown", "retire"} {
		store := blob.NewMemory()
		for _, d := range []string{"alpha", "beta", "gamma"} {
			var list []testlake.Record
			for i := range 20 {
				list = append(list, testlake.Record{URL: fmt.Sprintf("https://www.example.com/%s/%d/x", d, i)},
					testlake.Record{URL: fmt.Sprintf("https://%s.example.com/both/%d/x", d, i)})
			}
			testlake.Ingest(t, store, d, "b", list)
		}
		testlake.Publish(t, store)
		buildAll(t, store)
		all, err := catalog.Datasets(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		beta := all[slices.IndexFunc(all, func(d lake.Dataset) bool { return d.Name == "beta" })].ID
		if what == "retire" {
			testlake.Retire(t, store, catalog.BatchName{DatasetID: beta, Batch: "b"})
			testlake.Publish(t, store)
		} else {
			tg, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "example.com")
			if err != nil {
				t.Fatal(err)
			}
			r := catalog.Takedown{
				ID: catalog.NewTakedownID(time.Now()), Target: tg, DatasetID: beta, Dataset: "beta", Reason: "test", Created: time.Now().UTC(),
			}
			if _, err := suppress.Add(t.Context(), store, r, suppress.Options{TempDir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
		}
		e := NewEngine(0, 0, 0)
		snap := acquire(t, serve(t, store))
		tg := target(t, "example.com")
		page, err := e.Answer(t.Context(), snap, Query{Target: tg, Sort: ByName})
		if err != nil {
			t.Fatal(err)
		}
		if page.Indexed != 1 || page.Scanned != 0 {
			t.Errorf("%s: %d segments indexed, %d scanned", what, page.Indexed, page.Scanned)
		}
		got := map[string]int{}
		for _, n := range page.Nodes {
			got[n.Path] = n.Children
		}
		if want := map[string]int{"www.example.com/": 2, "alpha.example.com/": 1, "gamma.example.com/": 1}; !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
		if check(t, rand.New(rand.NewPCG(1, 1)), e, snap, tg) < 10 {
			t.Error("few answers")
		}
	}
}

// watched counts reads of the files of trees, and waits in each.
type watched struct {
	blob.Store
	mu       sync.Mutex
	reads    int // that have begun
	segments map[string]int
	most     int // segments that were read at once
	opened   int
}

func (w *watched) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if strings.Contains(key, "/tree-") {
		w.mu.Lock()
		w.reads++
		w.segments[key]++
		w.most = max(w.most, len(w.segments))
		w.mu.Unlock()
		runtime.Gosched()
		defer func() {
			w.mu.Lock()
			if w.segments[key]--; w.segments[key] == 0 {
				delete(w.segments, key)
			}
			w.mu.Unlock()
		}()
	}
	return w.Store.ReadRange(ctx, key, off, n)
}

func (w *watched) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if strings.HasSuffix(key, "/tree.json") {
		w.mu.Lock()
		w.opened++
		w.mu.Unlock()
		runtime.Gosched()
	}
	return w.Store.Get(ctx, key)
}

// An answer reads few segments at once, with memory that was reserved before, and answers that come
// at once open an index once.
func TestFewSegmentsAreReadAtOnce(t *testing.T) {
	store := &watched{Store: blob.NewMemory(), segments: map[string]int{}}
	const segments = 9
	for i := range segments {
		var list []testlake.Record
		for j := range 3000 {
			list = append(list, testlake.Record{URL: fmt.Sprintf("https://www.example.com/%d/%d/%x/x", i, j%50, j*0x9e3779b9)})
		}
		testlake.Ingest(t, store.Store, "alpha", fmt.Sprint("b", i), list)
		testlake.Publish(t, store.Store)
	}
	buildAll(t, store.Store)
	s := lookup.NewServer(store, lookup.Options{CacheDir: t.TempDir(), FrameBytes: 1})
	t.Cleanup(s.Close)
	snap := acquire(t, s)
	e := NewEngine(0, 0, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var reserved, before int64
			before = -1
			reserve := func(bytes int64) error {
				store.mu.Lock()
				defer store.mu.Unlock()
				if before < 0 {
					before = bytes
				}
				reserved = max(reserved, bytes)
				return nil
			}
			page, err := e.Answer(t.Context(), snap, Query{Target: target(t, "example.com"), Depth: 4, Limit: 5, Reserve: reserve})
			if err != nil {
				t.Error(err)
				return
			}
			if page.Indexed < 2*segmentsAtOnce || page.Rows != segments*3000 {
				t.Errorf("%d segments, %d rows", page.Indexed, page.Rows)
			}
			// Each of these domains has frames of its own: at least those of all its levels.
			if reserved < 32<<10 || before < 32<<10 {
				t.Errorf("%d bytes are reserved, at first %d", reserved, before)
			}
		})
	}
	wg.Wait()
	if store.opened != segments {
		t.Errorf("%d documents read of %d indexes", store.opened, segments)
	}
	store.mu.Lock()
	store.most, store.reads = 0, 0
	store.mu.Unlock()
	if _, err := e.Answer(t.Context(), snap, Query{Target: target(t, "example.com"), Depth: 3, Limit: 5}); err != nil {
		t.Fatal(err)
	}
	if store.most > segmentsAtOnce || store.reads < segments {
		t.Errorf("%d segments are read at once, in %d reads", store.most, store.reads)
	}
	if len(store.segments) > 0 {
		t.Error("reads go on")
	}
}

// Memory that is refused ends an answer before it reads nodes.
func TestRefusedMemoryEndsAnAnswer(t *testing.T) {
	store := &watched{Store: blob.NewMemory(), segments: map[string]int{}}
	testlake.Ingest(t, store.Store, "alpha", "b", []testlake.Record{{URL: "https://www.example.com/a/"}})
	testlake.Publish(t, store.Store)
	buildAll(t, store.Store)
	snap := acquire(t, serve(t, store))
	e, refused := NewEngine(0, 0, 0), errors.New("no memory")
	q := Query{Target: target(t, "example.com"), Reserve: func(int64) error { return refused }}
	if _, err := e.Answer(t.Context(), snap, q); !errors.Is(err, refused) {
		t.Error(err)
	}
	if store.reads != 2 { // of the footer and the directory
		t.Errorf("%d reads", store.reads)
	}
}

// An answer that was cancelled while it opened an index does not fail the others that wait for it.
func TestACancelledAnswerFailsNoOther(t *testing.T) {
	inner := blob.NewMemory()
	testlake.Ingest(t, inner, "alpha", "b", []testlake.Record{{URL: "https://www.example.com/a/"}})
	testlake.Publish(t, inner)
	buildAll(t, inner)
	for range 20 {
		store := &held{Store: inner, begun: make(chan struct{})}
		snap := acquire(t, serve(t, store))
		e := NewEngine(0, 0, 0)
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := e.Answer(ctx, snap, Query{Target: target(t, "example.com")})
			first <- err
		}()
		<-store.begun // the first one opens the index, and waits in the store
		second := make(chan error, 1)
		go func() {
			p, err := e.Answer(t.Context(), snap, Query{Target: target(t, "example.com")})
			if err == nil && (p.Rows != 1 || p.Indexed != 1) {
				err = fmt.Errorf("%+v", p)
			}
			second <- err
		}()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error("cancelled:", err)
		}
		if err := <-second; err != nil {
			t.Error("not cancelled:", err)
		}
	}
}

// held is a store in which the first read of a document of trees waits until it is cancelled.
type held struct {
	blob.Store
	once  sync.Once
	begun chan struct{}
}

func (h *held) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if strings.HasSuffix(key, "/tree.json") {
		first := false
		h.once.Do(func() { first = true })
		if first {
			close(h.begun)
			<-ctx.Done()
			return nil, blob.Info{}, context.Cause(ctx)
		}
	}
	return h.Store.Get(ctx, key)
}
