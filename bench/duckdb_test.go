// Package bench checks urlake's Parquet with DuckDB; the programs below it measure urlake, some of
// them beside other systems. It is a module of its own, so that those systems are no dependency of
// the project.
package bench

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/urlake/urlake/bench/corpus"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// demoLake ingests and publishes the datasets of testdata/. It returns the lake's folder, its
// version and the paths of the version's parts.
func demoLake(t *testing.T) (dir string, v *catalog.Version, parts []string) {
	t.Helper()
	dir = t.TempDir()
	store, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(testenv.Root(t), "testdata")
	folders, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() {
			testlake.IngestSpec(t, store, ingest.Spec{Lake: store.URL(), Dataset: f.Name(), Batch: "b", Inputs: []string{filepath.Join(data, f.Name())}})
		}
	}
	testlake.Publish(t, store)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := m.Version("")
	if err != nil {
		t.Fatal(err)
	}
	if v, err = catalog.ReadVersion(t.Context(), store, ref); err != nil {
		t.Fatal(err)
	}
	for live, err := range v.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		raw, _, err := store.Get(t.Context(), live.Record())
		if err != nil {
			t.Fatal(err)
		}
		b, err := lake.DecodeBatch(raw, live.Record())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range b.Parts {
			parts = append(parts, filepath.Join(dir, p.Key))
		}
	}
	return dir, v, parts
}

// from returns the FROM clause that reads a version's parts.
func from(parts []string) string {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = "'" + strings.ReplaceAll(p, "'", "''") + "'"
	}
	return "read_parquet([" + strings.Join(quoted, ",") + "], hive_partitioning=true)"
}

// TestDuckDBCountsTheSameRows compares the counts of a version with those that DuckDB makes from
// its parts.
func TestDuckDBCountsTheSameRows(t *testing.T) {
	_, v, parts := demoLake(t)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	rows, err := db.Query("SELECT dataset_id, count(*), count(DISTINCT domain) FROM " + from(parts) + " GROUP BY 1 ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	total, seen := int64(0), 0
	for rows.Next() {
		var id, n, domains int64
		if err := rows.Scan(&id, &n, &domains); err != nil {
			t.Fatal(err)
		}
		known, err := v.FindDatasets(t.Context(), []uint32{uint32(id)})
		if d := known[uint32(id)]; err != nil || d.Rows != n {
			t.Errorf("dataset %d: DuckDB counts %d rows, the version says %+v, %v", id, n, d, err)
		}
		total += n
		seen++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if total != v.Counts.Rows || seen != v.Counts.Datasets || total == 0 {
		t.Errorf("DuckDB counts %d rows in %d datasets, the version %d in %d", total, seen, v.Counts.Rows, v.Counts.Datasets)
	}
	t.Logf("%d rows of %d datasets in %d parts", total, seen, len(parts))
}

// TestDuckDBReadsTheSameURLs compares 200,000 generated URLs, which fill pages of every kind, with
// what DuckDB reads from their parts.
func TestDuckDBReadsTheSameURLs(t *testing.T) {
	lists, dir := t.TempDir(), t.TempDir()
	c, err := corpus.New(corpus.Options{Rows: 200_000, Datasets: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteDir(lists, 2); err != nil {
		t.Fatal(err)
	}
	store, err := blob.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, name := range []string{"ds1", "ds2"} {
		list := filepath.Join(lists, name+".txt")
		testlake.IngestSpec(t, store, ingest.Spec{Lake: store.URL(), Dataset: name, Batch: name, Inputs: []string{list}})
		given := map[string]bool{}
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), strings.TrimSuffix(line, "\n")); err == nil {
				given[u.String()] = true
			}
		}
		parts := "read_parquet('" + dir + "/urls/*/*/part-" + name + "-*.parquet')"
		rows, err := db.Query("SELECT scheme || '://' || host || coalesce(':' || port, '') || path_query FROM " + parts)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; rows.Next(); n++ {
			var url string
			if err := rows.Scan(&url); err != nil {
				t.Fatal(err)
			}
			if !given[url] {
				t.Fatalf("%s: %s is not in the list", name, url)
			}
		}
		if err := rows.Err(); err != nil || n != len(given) {
			t.Fatalf("%s: DuckDB reads %d of %d URLs: %v", name, n, len(given), err)
		}
		var alike bool
		if err := db.QueryRow("SELECT count(DISTINCT domain_id) = count(DISTINCT domain) AND count(DISTINCT url_id) = count(*) AND count(DISTINCT batch) = 1" +
			" AND count(ts) + count(size) + count(raw_url) + count(extras) = 0 FROM " + parts).Scan(&alike); err != nil || !alike {
			t.Errorf("%s: ids, batch or empty columns are not as promised: %v, %v", name, alike, err)
		}
	}
}

// TestDuckDBSeesTheSchema checks with DuckDB the types of columns and what the format promises of
// order and ids.
func TestDuckDBSeesTheSchema(t *testing.T) {
	_, _, parts := demoLake(t)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	types := map[string]string{}
	rows, err := db.Query("DESCRIBE SELECT * FROM read_parquet(['" + parts[0] + "'], hive_partitioning=false)")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, kind string
		var rest [4]any
		if err := rows.Scan(&name, &kind, &rest[0], &rest[1], &rest[2], &rest[3]); err != nil {
			t.Fatal(err)
		}
		types[name] = kind
	}
	want := map[string]string{"dataset_id": "INTEGER", "batch": "VARCHAR", "scheme": "VARCHAR", "port": "INTEGER", "domain_id": "BIGINT", "domain": "VARCHAR",
		"host": "VARCHAR", "ts": "TIMESTAMP WITH TIME ZONE", "size": "BIGINT", "path_query": "VARCHAR", "url_id": "BIGINT", "raw_url": "VARCHAR", "extras": "JSON"}
	for name, kind := range want {
		if types[name] != kind {
			t.Errorf("column %s is %q to DuckDB, want %s", name, types[name], kind)
		}
	}
	if len(types) != len(want) {
		t.Errorf("columns %v", types)
	}
	// A domain's rows are one run in each part, and a host belongs to its domain.
	var foreign int64
	q := "SELECT count(*) FROM " + from(parts) + " WHERE host <> domain AND NOT ends_with(host, '.' || domain)"
	if err := db.QueryRow(q).Scan(&foreign); err != nil {
		t.Fatal(err)
	}
	if foreign != 0 {
		t.Errorf("%d rows have a host outside their domain", foreign)
	}
	for _, p := range parts {
		var runs, domains int64
		q := fmt.Sprintf(`SELECT count(*) FILTER (domain IS DISTINCT FROM before), count(DISTINCT domain)
			FROM (SELECT domain, lag(domain) OVER (ORDER BY file_row_number) AS before FROM read_parquet('%s', file_row_number=true))`, p)
		if err := db.QueryRow(q).Scan(&runs, &domains); err != nil {
			t.Fatal(err)
		}
		if runs != domains || domains == 0 {
			t.Errorf("%s: %d domains in %d runs", filepath.Base(p), domains, runs)
		}
	}
}
