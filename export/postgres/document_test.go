//go:build unix

package postgres

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
)

// TestDocumentedSQLRuns runs every statement of docs/postgres.md, and checks that queries of a site
// read its partition alone.
func TestDocumentedSQLRuns(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.spec.Partitions = []string{"example.com", "other.com"}
	urls := append(urlsOf("example.com", 2, 40), "https://www.example.com/a?b=1")
	testlake.Ingest(t, s.store, "a", "1", records(urls...))
	s.publish("b", "1", append(urlsOf("example.com", 1, 9), urlsOf("other.com", 1, 50)...)...)
	s.export()
	text, err := os.ReadFile(filepath.Join(testenv.Root(t), "docs", "postgres.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := s.connect()
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 7 {
		t.Fatalf("%d blocks of SQL in docs/postgres.md", len(blocks))
	}
	for i, b := range blocks {
		sql := b[1]
		if strings.HasPrefix(sql, "SELECT") || strings.HasPrefix(sql, "WITH") {
			rows, err := c.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) "+sql)
			if err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			plan := strings.Join(lines, "\n")
			if strings.Contains(sql, "('example.com')") &&
				(!strings.Contains(plan, "Subplans Removed") || strings.Contains(plan, "_0100000200000000")) {
				t.Errorf("block %d does not prune:\n%s", i, plan)
			}
			t.Logf("plan of block %d:\n%s", i, plan)
		}
		if _, err := c.Exec(t.Context(), sql, simple); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
