package tree

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/serve/lookup"
)

// benchRows is the size of the benchmark's lake, by URLAKE_TREE_ROWS.
func benchRows(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("URLAKE_TREE_ROWS")
	if text == "" {
		return 30_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// benchLake makes a lake of one batch: a tenth of the rows are of one domain, the others of domains
// of a dozen rows on average.
func benchLake(tb testing.TB, rows int) blob.Store {
	tb.Helper()
	dir := tb.TempDir()
	name := filepath.Join(dir, "urls.txt")
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	rng := rand.New(rand.NewPCG(1, 1))
	small := max(1, rows/12)
	for i := range rows {
		host := fmt.Sprintf("www.site%d.test", rng.IntN(small))
		if i%10 == 0 {
			host = fmt.Sprintf("h%d.large.example", int(rng.ExpFloat64()*8))
		}
		fmt.Fprintf(w, "https://%s/", host)
		for range rng.IntN(4) {
			fmt.Fprintf(w, "section-%d/", int(rng.ExpFloat64()*20))
		}
		fmt.Fprintf(w, "page-%d.html\n", i)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	store, err := blob.Open(tb.Context(), "file://"+filepath.Join(dir, "lake"))
	if err != nil {
		tb.Fatal(err)
	}
	testlake.IngestSpec(tb, store, ingest.Spec{
		Lake: store.URL(), Dataset: "bench", Batch: "b", Inputs: []string{name}, Format: "lines", MaxRejectRate: 1,
	})
	testlake.Publish(tb, store)
	return store
}

// slow delays each request, as an object store over a network does.
type slow struct {
	blob.Store
	delay time.Duration
}

func (s *slow) wait(ctx context.Context) {
	timer := time.NewTimer(s.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *slow) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	s.wait(ctx)
	return s.Store.ReadRange(ctx, key, off, n)
}

func (s *slow) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	s.wait(ctx)
	return s.Store.Get(ctx, key)
}

// BenchmarkTree builds the index of a lake, and asks for trees of its largest domain and of others,
// with the index and without. URLAKE_TREE_ROWS sets the size.
func BenchmarkTree(b *testing.B) {
	store := benchLake(b, benchRows(b))
	m, _, err := catalog.ReadManifest(b.Context(), store)
	if err != nil {
		b.Fatal(err)
	}
	v, err := catalog.ReadVersion(b.Context(), store, m.Versions[0])
	if err != nil {
		b.Fatal(err)
	}
	ask := func(b *testing.B, name string, e *Engine, snap *lookup.Snapshot, domain func(i int) string, path string) {
		b.Run(name, func(b *testing.B) {
			for i := range b.N {
				tg, err := lookup.ParseTarget(domain(i))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := e.Answer(b.Context(), snap, Query{Target: tg, Path: path, Sort: ByRows, Limit: 20}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	large := func(int) string { return "large.example" }
	small := func(i int) string { return fmt.Sprintf("site%d.test", i*7919%max(1, benchRows(b)/12)) }
	all := func(what string) {
		// A scan of millions of rows takes longer than a server allows.
		server := lookup.NewServer(store, lookup.Options{CacheDir: b.TempDir(), Deadline: time.Hour})
		defer server.Close()
		if err := server.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		snap, err := server.Acquire(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer snap.Release()
		e := NewEngine(1<<40, 1<<30, 0)
		ask(b, what+"/large", e, snap, large, "")
		ask(b, what+"/host", e, snap, large, "h0.large.example/")
		ask(b, what+"/directory", e, snap, large, "h0.large.example/section-3/")
		ask(b, what+"/small", e, snap, small, "")
	}
	all("scan")
	b.Run("build", func(b *testing.B) {
		for range b.N {
			for _, s := range v.Segments {
				ref := segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64, Bytes: s.Bytes, Domains: s.Domains, Rows: s.Rows}
				info, err := treebuild.Build(b.Context(), store, ref, treebuild.Options{TempDir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Bytes)/float64(info.Nodes), "bytes/node")
				b.ReportMetric(float64(info.Nodes), "nodes")
				b.ReportMetric(float64(info.Rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			}
		}
	})
	all("index")
	// Cold, over a store that takes 20 ms for each request: the index is open, nothing else is
	// cached.
	b.Run("index/cold", func(b *testing.B) {
		server := lookup.NewServer(&slow{store, 20 * time.Millisecond}, lookup.Options{CacheDir: b.TempDir(), FrameBytes: 1, PageBytes: 1})
		defer server.Close()
		if err := server.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		snap, err := server.Acquire(b.Context(), "")
		if err != nil {
			b.Fatal(err)
		}
		defer snap.Release()
		e := NewEngine(0, 0, 0)
		ask(b, "large", e, snap, large, "h0.large.example/")
		ask(b, "small", e, snap, small, "")
	})
}
