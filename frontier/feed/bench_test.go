//go:build unix

package feed

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier/frontiertest"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// benchURLs is how many URLs the benchmark seeds by default; URLAKE_BENCH_URLS says another number.
const benchURLs = 20_000

// BenchmarkFeed seeds a frontier from a lake, once more when all is known, imports a visit of every
// other URL, and collects the visits for an ingest. All goes over HTTP.
func BenchmarkFeed(b *testing.B) {
	n := benchURLs
	if s := os.Getenv("URLAKE_BENCH_URLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	dir := b.TempDir()
	store, err := blob.Open(b.Context(), "file://"+filepath.ToSlash(dir)+"/lake")
	if err != nil {
		b.Fatal(err)
	}
	var list, visits bytes.Buffer
	for i := range n {
		url := fmt.Sprintf("https://www.site%d.example/section/%d/a-page-of-it-%d", i%(n/40+1), i%17, i)
		fmt.Fprintln(&list, url)
		if i%2 == 0 {
			fmt.Fprintf(&visits, `{"url":%q,"time":"2026-11-26T10:00:00Z","status":200,"content":"s3://pages/%d"}`+"\n", url, i)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "list.txt"), list.Bytes(), 0o666); err != nil {
		b.Fatal(err)
	}
	testlake.IngestSpec(b, store, ingest.Spec{Dataset: "seeds", Batch: "1", Inputs: []string{filepath.Join(dir, "list.txt")}})
	testlake.Publish(b, store)
	for b.Loop() {
		base := frontiertest.Serve(b)
		timed := func(what string, step func() int64) {
			b.Helper()
			began := time.Now()
			rows := step()
			b.ReportMetric(float64(rows)/time.Since(began).Seconds(), what+"/s")
		}
		run := func() (at SeedProgress) {
			for !at.Done {
				var err error
				if at, err = Seed(b.Context(), store, SeedSpec{Lake: store.URL(), Frontier: base}, "", at, func(SeedProgress) {}); err != nil {
					b.Fatal(err)
				}
			}
			return at
		}
		timed("seeded", func() int64 {
			if at := run(); at.Added != int64(n) {
				b.Fatalf("%+v", at)
			}
			return int64(n)
		})
		timed("known", func() int64 {
			if at := run(); at.Known != int64(n) {
				b.Fatalf("%+v", at)
			}
			return int64(n)
		})
		timed("imported", func() int64 { return imported(b, base, visits.Bytes()) })
		timed("collected", func() int64 {
			spec := VisitsSpec{Lake: store.URL(), Frontier: base, Dataset: fmt.Sprintf("visits%d", time.Now().UnixNano())}
			c, err := Collect(b.Context(), store, spec, func(Collecting) {})
			if err != nil || c.Visits != int64((n+1)/2) {
				b.Fatalf("%+v, %v", c, err)
			}
			return c.Visits
		})
	}
	b.ReportMetric(0, "ns/op")
}

// imported sends lines to POST /v1/visits in one request, and counts those that were added.
func imported(b *testing.B, base string, lines []byte) (n int64) {
	b.Helper()
	res, err := http.Post(base+"/v1/visits", "application/x-ndjson", bytes.NewReader(lines))
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	for in.Scan() {
		var r struct{ Result string }
		if err := json.Unmarshal(in.Bytes(), &r); err != nil || r.Result != "added" {
			b.Fatalf("%s: %v", in.Bytes(), err)
		}
		n++
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil || in.Err() != nil || n != int64(bytes.Count(lines, []byte("\n"))) {
		b.Fatalf("%d answers: %v", n, in.Err())
	}
	return n
}
