package bench

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
)

// TestTheReadmesSQLRuns runs the README's SQL on the view that the command above it writes.
func TestTheReadmesSQLRuns(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(testenv.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```sql\n")
	statements, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the README has no SQL")
	}
	dir, v, _ := demoLake(t)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(view(t, dir)); err != nil {
		t.Fatal(err)
	}
	for _, s := range strings.Split(strings.TrimSpace(statements), ";") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		rows, err := db.Query(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		var n, total int64
		for rows.Next() {
			if !strings.HasPrefix(s, "SELECT") {
				continue
			}
			var domain string
			var count int64
			if err := rows.Scan(&domain, &count); err != nil {
				t.Fatal(err)
			}
			n, total = n+1, total+count
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		rows.Close()
		if strings.HasPrefix(s, "SELECT") && (n != 10 || total == 0 || total > v.Counts.Rows) {
			t.Errorf("%s: %d domains with %d of %d rows", s, n, total, v.Counts.Rows)
		}
	}
}
