package api

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/serve/lookup"
)

// discard is an answer that nobody reads.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) WriteHeader(int)             {}
func (d discard) Write(b []byte) (int, error) { return io.Discard.Write(b) }

// BenchmarkStream streams a domain of 300,000 rows in three batches, whose pages are cached or are
// read from a store in memory, without a network.
func BenchmarkStream(b *testing.B) {
	store := blob.NewMemory()
	const rows = 100_000
	for batch := range 3 {
		var records []testlake.Record
		for i := range rows {
			records = append(records, testlake.Record{
				URL: fmt.Sprintf("https://h%d.example.com/another/path/%06d?b=%d", i%3, i, batch*(i%2)), TS: int64(i) * 1000, HasTS: true,
			})
		}
		testlake.Ingest(b, store, "alpha", fmt.Sprint(batch), records)
	}
	testlake.Publish(b, store)
	for _, cached := range []bool{true, false} {
		opt := lookup.Options{CacheDir: b.TempDir(), Log: slog.New(slog.DiscardHandler)}
		if !cached {
			opt.PageBytes = 1
		}
		server := lookup.NewServer(store, opt)
		b.Cleanup(server.Close)
		if err := server.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		web := New(server, slog.New(slog.DiscardHandler), NewMetrics(server, blob.NewCounting(store)))
		for _, query := range []string{
			"format=text", "format=ndjson", "format=csv", "format=text&from=1970-01-01", "format=text&unique=1",
		} {
			b.Run(fmt.Sprintf("%s/cached=%v", query, cached), func(b *testing.B) {
				for b.Loop() {
					web.ServeHTTP(discard{http.Header{}}, httptest.NewRequest("GET", listPath+"?"+query, nil))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(3*rows), "ns/row")
			})
		}
	}
}
