//go:build unix

package migrate

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/frontier/frontiertest"
	"github.com/urlake/urlake/internal/testenv"
)

// benchRows is how many rows the benchmark migrates by default; URLAKE_BENCH_ROWS says another
// number. Three of four were visited, the others wait.
const benchRows = 20_000

// BenchmarkMigrate migrates rows from PostgreSQL into a frontier over HTTP, compares both sides,
// and migrates once more, when all is known.
func BenchmarkMigrate(b *testing.B) {
	n := benchRows
	if s := os.Getenv("URLAKE_BENCH_ROWS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	dsn := testenv.NewPostgres(b).NewDatabase(b)
	db, err := pgx.Connect(b.Context(), dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close(context.Background())
	if _, err := db.Exec(b.Context(), document+fmt.Sprintf(`
INSERT INTO visited_urls SELECT encode(sha256(i::text::bytea), 'hex'), 'https://www.site' || i %% (%[1]d / 40 + 1) || '.example/section/' || i %% 17 || '/a-page-of-it-' || i,
	1699564800 + i, 200 + i %% 5, 'content/' || i, NULL FROM generate_series(1, %[2]d) i;
INSERT INTO frontier (url, domain, depth, added_timestamp, priority_score)
	SELECT 'https://www.site' || i %% (%[1]d / 40 + 1) || '.example/section/' || i %% 17 || '/a-page-to-come-' || i, 'x', i %% 6, 1699564800 + i, 1 - i %% 5 * 0.1
	FROM generate_series(1, %[3]d) i;
INSERT INTO domain_metadata SELECT 'site' || i || '.example', NULL, NULL, 1, NULL FROM generate_series(1, %[3]d / 1000) i;
ANALYZE`, n, n-n/4, n/4), pgx.QueryExecModeSimpleProtocol); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		spec := Spec{Lake: "memory://", DSN: dsn, Frontier: frontiertest.Serve(b)}
		timed := func(what string, step func() int64) {
			began := time.Now()
			rows := step()
			b.ReportMetric(float64(rows)/time.Since(began).Seconds(), what+"/s")
		}
		run := func() Progress {
			at := Progress{}
			for !at.Done {
				var err error
				if at, err = Migrate(b.Context(), spec, at, func(Progress) {}); err != nil {
					b.Fatal(err)
				}
			}
			return at
		}
		timed("migrated", func() int64 {
			at := run()
			if v, q := at.Counts[tableVisited], at.Counts[tableFrontier]; v.Added != int64(n-n/4) || q.Added != int64(n/4) {
				b.Fatalf("%+v", at)
			}
			return at.Counts[tableVisited].Rows + at.Counts[tableFrontier].Rows
		})
		timed("compared", func() int64 {
			c, err := Verify(b.Context(), spec, b.TempDir(), func(Verifying) {})
			if err != nil {
				b.Fatal(err)
			}
			v, q, d := c.Sets[tableVisited], c.Sets[tableFrontier], c.Sets[tableDomains]
			if !c.Equal || v.Equal != int64(n-n/4) || v.Only != 0 || q.Equal != int64(n/4) || d.Equal != int64(n/4/1000) {
				b.Fatalf("%+v %+v %+v", v, q, d)
			}
			return v.Rows + q.Rows
		})
		timed("known", func() int64 {
			at := run()
			if v, q := at.Counts[tableVisited], at.Counts[tableFrontier]; v.Known != v.Rows || q.Known+q.Left["excluded"] != q.Rows {
				b.Fatalf("%+v", at)
			}
			return at.Counts[tableVisited].Rows + at.Counts[tableFrontier].Rows
		})
	}
	b.ReportMetric(0, "ns/op")
}
