package bench

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// TestViewHasTheURLsOfTheLists runs the SQL of "versions --parts --sql" in DuckDB. Its rows are
// those of the lists, whose URLs urlnorm makes canonical, in a folder whose name has to be quoted.
func TestViewHasTheURLsOfTheLists(t *testing.T) {
	lists := map[string][]string{
		"one": {
			"http://example.com", "https://example.com:8443/a/b?z=1&a=2#f", "ftp://u:p@example.org:2121/x",
			"http://[2001:db8::1]:81/", "http://192.0.2.1/%41?'\"", "HTTP://BÜCHER.example/ä ö",
		},
		"two": {"http://example.com/", "http://localhost:8080/?q", "http://example.com:80/?"},
	}
	dir := filepath.Join(t.TempDir(), "it's a lake")
	store, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"one", "two"} {
		input := filepath.Join(t.TempDir(), name+".txt")
		if err := os.WriteFile(input, []byte(strings.Join(lists[name], "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		testlake.IngestSpec(t, store, ingest.Spec{Lake: store.URL(), Dataset: name, Batch: "b", Inputs: []string{input}})
		for _, raw := range lists[name] {
			u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			text := u.String()
			want = append(want, fmt.Sprintf("%s %s %d %d", name, text, urlnorm.DomainID(u.Domain), urlnorm.URLID([]byte(text))))
		}
	}
	testlake.Publish(t, store)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(view(t, dir)); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query("SELECT dataset, url, domain_id, url_id FROM urls")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var dataset, url string
		var domainID, urlID uint64
		if err := rows.Scan(&dataset, &url, &domainID, &urlID); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d %d", dataset, url, domainID, urlID))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(slices.Compact(got), slices.Compact(want)) {
		t.Errorf("the view has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// view runs starter to get the view of a lake.
func view(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "starter")
	build := exec.Command("go", "build", "-tags", "nos3", "-o", program, "./starter")
	build.Dir = testenv.Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program, "versions", "--lake", dir, "--parts", "--sql").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
