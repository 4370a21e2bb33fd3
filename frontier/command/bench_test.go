//go:build unix

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/urlake/urlake/internal/testenv"
)

// The load of the benchmarks: URLAKE_BENCH_URLS URLs, by default 400,000, of a twentieth as many
// domains, in batches; then workers that claim and report until a quarter was fetched.
const (
	benchBatch   = 10_000
	benchAdders  = 2
	benchWorkers = 500
	benchClaims  = 20
)

func benchURLs(b *testing.B) int {
	n := 400_000
	if s := os.Getenv("URLAKE_BENCH_URLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// queueUnderTest is what the benchmarks compare.
type queueUnderTest interface {
	// add adds URLs and returns how many were new.
	add(ctx context.Context, urls []string) (int, error)
	// claim claims up to n URLs, of as many domains.
	claim(ctx context.Context, n int) (leases []string, err error)
	settle(ctx context.Context, leases []string) error
}

// measure puts the load on a queue, and reports URLs a second, and what claims took.
func measure(b *testing.B, q queueUnderTest, n int) {
	ctx := b.Context()
	batches := make(chan []string, benchAdders)
	go func() {
		defer close(batches)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := 0; i < n; {
			var batch []string
			for range min(benchBatch, n-i) {
				batch = append(batch, fmt.Sprintf("https://site%d.example/path/to/page-%d.html", rng.IntN(n/20), i))
				i++
			}
			batches <- batch
		}
	}()
	rate := func(name string, count int, since time.Time) {
		b.ReportMetric(float64(count)/time.Since(since).Seconds(), name+"/s")
	}
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}
	started := time.Now()
	var adders sync.WaitGroup
	var added atomic.Int64
	for range benchAdders {
		adders.Go(func() {
			for batch := range batches {
				got, err := q.add(ctx, batch)
				fail(err)
				added.Add(int64(got))
			}
		})
	}
	adders.Wait()
	rate("added", n, started)
	if added.Load() != int64(n) {
		b.Errorf("%d of %d URLs were added", added.Load(), n)
	}
	started = time.Now()
	var workers sync.WaitGroup
	var claimed atomic.Int64
	took := make([][]time.Duration, benchWorkers)
	for w := range benchWorkers {
		workers.Go(func() {
			for claimed.Load() < int64(n/4) && !b.Failed() {
				asked := time.Now()
				leases, err := q.claim(ctx, benchClaims)
				fail(err)
				took[w] = append(took[w], time.Since(asked))
				claimed.Add(int64(len(leases)))
				fail(q.settle(ctx, leases))
			}
		})
	}
	workers.Wait()
	rate("claimed", int(claimed.Load()), started)
	all := slices.Sorted(func(yield func(time.Duration) bool) {
		for _, ds := range took {
			for _, d := range ds {
				if !yield(d) {
					return
				}
			}
		}
	})
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "claim-p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "claim-p99-ms")
}

// BenchmarkFrontierd measures a frontierd over HTTP.
func BenchmarkFrontierd(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		d := startDaemon(b, filepath.Join(dir, "log"), "--redis", testenv.NewRedis(b).URL, "--data", filepath.Join(dir, "data"), "--crawl-delay", "0s",
			"--fsync", "never") // as the server of BenchmarkPostgresQueue
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWorkers}}
		measure(b, &daemonUnderTest{client, d.base}, benchURLs(b))
		d.kill(b)
	}
}

type daemonUnderTest struct {
	client *http.Client
	base   string
}

func (d *daemonUnderTest) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, data)
	}
	return data, err
}

func (d *daemonUnderTest) add(ctx context.Context, urls []string) (int, error) {
	var body []byte
	for _, u := range urls {
		body = append(append(append(body, `{"url":"`...), u...), "\"}\n"...)
	}
	data, err := d.post(ctx, "/v1/urls", body)
	return bytes.Count(data, []byte(`"added"`)), err
}

func (d *daemonUnderTest) claim(ctx context.Context, n int) (leases []string, err error) {
	data, err := d.post(ctx, "/v1/claims", fmt.Appendf(nil, `{"max":%d,"wait_ms":1000}`, n))
	if err != nil {
		return nil, err
	}
	var got struct{ Claims []struct{ Lease string } }
	err = json.Unmarshal(data, &got)
	for _, c := range got.Claims {
		leases = append(leases, c.Lease)
	}
	return leases, err
}

func (d *daemonUnderTest) settle(ctx context.Context, leases []string) error {
	var body []byte
	for _, l := range leases {
		body = append(append(append(body, `{"status":200,"lease":"`...), l...), "\"}\n"...)
	}
	_, err := d.post(ctx, "/v1/results", body)
	return err
}

// BenchmarkPostgresQueue measures a queue in PostgreSQL, without HTTP: batches by COPY, and claims
// of one URL of each domain that is not locked (FOR UPDATE SKIP LOCKED), by partial indexes. It has
// no leases that end.
func BenchmarkPostgresQueue(b *testing.B) {
	if testenv.PostgresBin() == "" {
		testenv.Missing(b, "PostgreSQL")
	}
	for b.Loop() {
		pool, err := pgxpool.New(b.Context(), testenv.NewPostgres(b).NewDatabase(b)+" pool_max_conns=32")
		if err != nil {
			b.Fatal(err)
		}
		_, err = pool.Exec(b.Context(), `
CREATE TABLE urls (id bigserial PRIMARY KEY, url text NOT NULL UNIQUE, domain text NOT NULL, priority int NOT NULL DEFAULT 0,
	depth int NOT NULL DEFAULT 0, state smallint NOT NULL DEFAULT 0, status smallint);
CREATE INDEX ON urls (domain, priority DESC, depth, id) WHERE state = 0;
CREATE TABLE domains (domain text PRIMARY KEY, next_at timestamptz NOT NULL DEFAULT now(), waiting bigint NOT NULL);
CREATE INDEX ON domains (next_at) WHERE waiting > 0`)
		if err != nil {
			b.Fatal(err)
		}
		measure(b, &postgresUnderTest{pool}, benchURLs(b))
		pool.Close()
	}
}

type postgresUnderTest struct{ pool *pgxpool.Pool }

func (p *postgresUnderTest) add(ctx context.Context, urls []string) (added int, err error) {
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS fresh (url text, domain text) ON COMMIT DELETE ROWS"); err != nil {
			return err
		}
		rows := pgx.CopyFromSlice(len(urls), func(i int) ([]any, error) {
			domain, _, _ := strings.Cut(strings.TrimPrefix(urls[i], "https://"), "/")
			return []any{urls[i], domain}, nil
		})
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"fresh"}, []string{"url", "domain"}, rows); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
WITH added AS (INSERT INTO urls (url, domain) SELECT url, domain FROM fresh ON CONFLICT DO NOTHING RETURNING domain),
counted AS (SELECT domain, count(*) AS n FROM added GROUP BY domain ORDER BY domain),
woken AS (INSERT INTO domains (domain, waiting) SELECT domain, n FROM counted ORDER BY domain
	ON CONFLICT (domain) DO UPDATE SET waiting = domains.waiting + excluded.waiting)
SELECT count(*) FROM added`).Scan(&added)
	})
	return added, err
}

func (p *postgresUnderTest) claim(ctx context.Context, n int) (leases []string, err error) {
	rows, err := p.pool.Query(ctx, `
WITH ready AS (SELECT domain FROM domains WHERE waiting > 0 AND next_at <= now() ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED),
picked AS (SELECT u.id FROM ready, LATERAL (SELECT id FROM urls WHERE urls.domain = ready.domain AND state = 0
	ORDER BY priority DESC, depth, id LIMIT 1) u),
put_off AS (UPDATE domains SET next_at = now(), waiting = waiting - 1 FROM ready WHERE domains.domain = ready.domain)
UPDATE urls SET state = 1 FROM picked WHERE urls.id = picked.id RETURNING urls.id::text`, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (p *postgresUnderTest) settle(ctx context.Context, leases []string) error {
	ids := make([]int64, 0, len(leases))
	for _, l := range leases {
		id, err := strconv.ParseInt(l, 10, 64)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	_, err := p.pool.Exec(ctx, "UPDATE urls SET state = 2, status = 200 WHERE id = ANY($1)", ids)
	return err
}
