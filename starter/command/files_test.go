package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/starter/command"
)

// The files of a version hold its rows, also those in unions; of those that it does not have they
// say which.
func TestFilesHoldTheRowsOfTheVersion(t *testing.T) {
	defer func(rows int64) { publish.LeastLeft = rows }(publish.LeastLeft)
	publish.LeastLeft = 0
	dir := t.TempDir()
	store, err := blob.Open(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		var records []testlake.Record
		for n := range 10 + i {
			records = append(records, testlake.Record{URL: fmt.Sprintf("http://www.d%d.example/%d/%d", n%3, i, n)})
		}
		testlake.Ingest(t, store, "alpha", fmt.Sprint("b", i), records)
	}
	testlake.Publish(t, store)
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	// The own files of the batches go, and two batches die, one of which comes back elsewhere.
	if _, err := gc.Collect(t.Context(), store, gc.Options{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	testlake.Retire(t, store, catalog.BatchName{DatasetID: 1, Batch: "b1"})
	testlake.Ingest(t, store, "alpha", "b2", []testlake.Record{{URL: "http://www.d1.example/again"}})
	testlake.Publish(t, store)
	m, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	v, err := catalog.ReadVersion(t.Context(), store, m.Versions[len(m.Versions)-1])
	if err != nil {
		t.Fatal(err)
	}
	files, err := command.ReadFiles(t.Context(), store, "file://"+dir, v)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, p := range files.Paths {
		dead := map[string]bool{}
		for _, d := range files.Dead {
			for _, of := range d.Paths {
				for _, b := range d.Batches {
					dead[b] = dead[b] || of == p
				}
			}
		}
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := parquet.Read[struct {
			Batch string `parquet:"batch"`
		}](f, size(t, f))
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if !dead[r.Batch] {
				got[r.Batch]++
			}
		}
	}
	if want := map[string]int{"b0": 10, "b2": 1, "b3": 13}; fmt.Sprint(got) != fmt.Sprint(want) || v.Counts.Rows != 24 {
		t.Errorf("%v of %d rows, want %v", got, v.Counts.Rows, want)
	}
	var sql strings.Builder
	if err := files.WriteView(t.Context(), &sql, v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(sql.String(), "WHERE NOT (rows.batch IN ('b1', 'b2') AND rows.filename IN ('"+dir) {
		t.Error(sql.String())
	}
}

func size(t *testing.T, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
