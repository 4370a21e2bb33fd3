//go:build unix

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// benchURLs is how many URLs the benchmark exports by default; URLAKE_BENCH_URLS says another
// number.
const benchURLs = 400_000

// loads is how many chunks are loaded at once, as a worker with two processors does.
const loads = 2

// BenchmarkExport exports a lake in a folder, and copies the same rows from a prepared file by one
// COPY: the share is of the same rows, tables, server and run. The lake's rows are read from
// Parquet, so all of the export but the ingest is measured. A chunk has two million rows, so only
// more of them are loaded by two connections.
func BenchmarkExport(b *testing.B) {
	n := benchSize(b)
	s := newSetup(b)
	dir := b.TempDir()
	local, err := blob.Open(b.Context(), "file://"+filepath.Join(dir, "lake"))
	if err != nil {
		b.Fatal(err)
	}
	s.store = local
	list := filepath.Join(dir, "list.txt")
	writeList(b, list, n)
	testlake.IngestSpec(b, s.store, ingest.Spec{Dataset: "bench", Batch: "1", Inputs: []string{"file://" + list}})
	testlake.Publish(b, s.store)
	s.spec.Rebuild = true
	for b.Loop() {
		run := s.run()
		planned, err := Plan(b.Context(), s.store, s.spec, run, s.opt)
		if err != nil {
			b.Fatal(err)
		}
		started := time.Now()
		var copied atomic.Int64
		g, ctx := errgroup.WithContext(b.Context())
		g.SetLimit(loads)
		for i := range planned.Chunks {
			g.Go(func() error {
				l, err := Load(ctx, s.store, run, i, s.opt)
				copied.Add(l.URLs)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		loaded, urls := time.Since(started), copied.Load()
		reference := copyPrepared(b, s, run, urls)
		started = time.Now()
		if _, err := Finish(b.Context(), s.store, run, s.progress, s.opt); err != nil {
			b.Fatal(err)
		}
		rate := func(d time.Duration) float64 { return float64(urls) / d.Seconds() }
		b.ReportMetric(float64(planned.Chunks), "chunks")
		b.ReportMetric(rate(loaded), "urls/s")
		b.ReportMetric(rate(reference), "copied/s")
		b.ReportMetric(reference.Seconds()/loaded.Seconds(), "of-COPY")
		b.ReportMetric(time.Since(started).Seconds(), "finish-s")
	}
}

// benchSize is how many URLs a benchmark exports.
func benchSize(b *testing.B) int {
	b.Helper()
	text := os.Getenv("URLAKE_BENCH_URLS")
	if text == "" {
		return benchURLs
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkChangedDataset exports three datasets, and again when one with a hundredth of the rows
// has changed. Rows are counted by the transactions that have written them.
func BenchmarkChangedDataset(b *testing.B) {
	n := benchSize(b)
	s := newSetup(b)
	dir := b.TempDir()
	publish := func(dataset, batch string, n int) {
		b.Helper()
		list := filepath.Join(dir, dataset+batch+".txt")
		writeList(b, list, n)
		testlake.IngestSpec(b, s.store, ingest.Spec{Dataset: dataset, Batch: batch, Inputs: []string{"file://" + list}})
		testlake.Publish(b, s.store)
	}
	publish("large", "1", n*6/10)
	publish("middle", "1", n*39/100)
	publish("small", "1", n/100)
	c := s.connect()
	value := func(sql string, args ...any) (v int64) {
		b.Helper()
		if err := c.QueryRow(b.Context(), sql, args...).Scan(&v); err != nil {
			b.Fatal(err)
		}
		return v
	}
	export := func() (r Result, written int64, wal float64) {
		xid := value("SELECT pg_current_xact_id()::text::bigint")
		from := value("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
		r = s.export()
		to := value("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
		return r, value("SELECT count(*) FROM urls WHERE xmin::text::bigint > $1", xid), float64(to-from) / (1 << 20)
	}
	for i := 2; b.Loop(); i++ {
		all, first, firstWAL := export()
		publish("small", strconv.Itoa(i), n/1000)
		started := time.Now()
		some, second, secondWAL := export()
		b.ReportMetric(time.Since(started).Seconds(), "second-s")
		if all.Added != first || some.Added != second || some.Changed != 1 {
			b.Fatalf("%d rows are written, then %d: %+v, %+v", first, second, all, some)
		}
		b.ReportMetric(float64(all.Rows), "rows")
		b.ReportMetric(float64(first), "first-rows")
		b.ReportMetric(float64(second), "second-rows")
		b.ReportMetric(firstWAL, "first-WAL-MiB")
		b.ReportMetric(secondWAL, "second-WAL-MiB")
	}
}

// copyPrepared copies the rows that a load has copied from a prepared binary file into a table like
// that of the load, and returns how long that took, the faster of two times: a checkpoint may come
// in between.
func copyPrepared(b *testing.B, s *setup, run string, rows int64) time.Duration {
	b.Helper()
	t, err := openStep(b.Context(), s.store, run, s.opt)
	if err != nil {
		b.Fatal(err)
	}
	defer t.close()
	p := t.plan
	file := filepath.Join(b.TempDir(), "rows")
	f, err := os.Create(file)
	if err != nil {
		b.Fatal(err)
	}
	for i := range p.Chunks {
		src, err := newSource(t, &p.Chunks[i])
		if err != nil {
			b.Fatal(err)
		}
		if err := src.numberHosts(); err != nil {
			b.Fatal(err)
		}
		var rows bytes.Buffer
		for task := src.first; task < src.end; task++ {
			rows.Reset()
			if err := src.copyURLs(task, &rows); err != nil {
				b.Fatal(err)
			}
			data := rows.Bytes()
			if i > 0 || task > src.first {
				data = data[len(copyHeader):]
			}
			if _, err := f.Write(bytes.TrimSuffix(data, copyTrailer)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := f.Write(copyTrailer); err != nil {
		b.Fatal(err)
	}
	f.Close()
	return min(copyFile(b, s, file, rows), copyFile(b, s, file, rows))
}

func copyFile(b *testing.B, s *setup, file string, rows int64) time.Duration {
	b.Helper()
	c := s.connect()
	ctx := context.Background()
	if _, err := c.Exec(ctx, "DROP TABLE IF EXISTS prepared; CREATE TABLE prepared (LIKE urls, CHECK (dataset_id = 1))", simple); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	started := time.Now()
	tag, err := c.PgConn().CopyFrom(ctx, f, "COPY prepared ("+copyColumns+") FROM STDIN (FORMAT binary)")
	took := time.Since(started)
	if err != nil || tag.RowsAffected() != rows {
		b.Fatalf("%d rows copied, want %d: %v", tag.RowsAffected(), rows, err)
	}
	if _, err := c.Exec(ctx, "DROP TABLE prepared", simple); err != nil {
		b.Fatal(err)
	}
	return took
}

// writeList writes a list of URLs as crawls have them: some large sites, many small ones.
func writeList(tb testing.TB, file string, n int) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for i := range n {
		site := int(rng.ExpFloat64() * rng.ExpFloat64() * 2000)
		fmt.Fprintf(&b, "https://www%d.site-%d.%s/section-%d/articles/%d/a-title-of-usual-length-%x\n",
			site%3, site, []string{"com", "org", "de", "net"}[site%4], rng.IntN(40), i, rng.Uint32())
	}
	if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
		tb.Fatal(err)
	}
}
