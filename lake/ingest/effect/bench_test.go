package effect_test

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest/effect"
)

// A batch of 100,000 rows is compared with a dataset of two million.
func BenchmarkKnownRows(b *testing.B) {
	const rows, batches = 100_000, 20
	store, err := blob.Open(b.Context(), "file://"+b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	add := func(batch string, from int) string {
		list := make([]testlake.Record, rows)
		for i := range list {
			list[i].URL = fmt.Sprintf("https://site%d.test/%d", (from+i)%5000, from+i)
		}
		return testlake.Ingest(b, store, "alpha", batch, list).BatchKey
	}
	for i := range batches {
		add(fmt.Sprint("b", i), i*rows)
	}
	testlake.Publish(b, store)
	key, run := add("new", rows/2), runOf(b, store, 1, "new")
	for b.Loop() {
		e, err := effect.Of(b.Context(), store, run, key)
		if err != nil || e.KnownRows != rows {
			b.Fatalf("%+v, %v", e, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(rows*batches), "ns/row")
}
