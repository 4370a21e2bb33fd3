package indexbuild_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// BenchmarkPageKeys builds a segment of two million rows in turns with the keys of pages and
// without them. Half of the rows are of 200,000 small domains, half of ten large ones. Times are of
// the processor.
func BenchmarkPageKeys(b *testing.B) {
	const small, large = 200_000, 10
	records := make([]testlake.Record, 0, 2_000_000)
	for i := range 1_000_000 {
		records = append(records,
			testlake.Record{URL: fmt.Sprintf("https://www.site%06d.test/page/%d", i%small, i)},
			testlake.Record{URL: fmt.Sprintf("https://www.large%d.test/catalogue/section-%03d/item-%07d.html", i%large, i/5000, i)})
	}
	ctx := b.Context()
	store := blob.NewMemory()
	testlake.Ingest(b, store, "d", "b", records)
	testlake.Publish(b, store)
	m, _, err := catalog.ReadManifest(ctx, store)
	if err != nil {
		b.Fatal(err)
	}
	v, err := catalog.ReadVersion(ctx, store, m.Versions[len(m.Versions)-1])
	if err != nil {
		b.Fatal(err)
	}
	var refs []segment.BatchRef
	for _, s := range v.Segments {
		info, err := segment.ReadInfo(ctx, store, segment.Ref{ID: s.ID, XXH64: s.SegmentXXH64})
		if err != nil {
			b.Fatal(err)
		}
		for ref, err := range info.Batches(ctx, store) {
			if err != nil {
				b.Fatal(err)
			}
			refs = append(refs, ref)
		}
	}
	var used [2]time.Duration
	var size [2]int64
	for b.Loop() {
		for i, skip := range []bool{true, false} {
			started := indextest.ProcessorTime(b)
			ref, err := indexbuild.BuildSegment(ctx, store, refs, indexbuild.Options{TempDir: b.TempDir(), SkipPageKeys: skip})
			if err != nil {
				b.Fatal(err)
			}
			used[i] += indextest.ProcessorTime(b) - started
			size[i] = ref.Bytes
		}
	}
	rows := float64(len(records))
	b.ReportMetric(float64(used[0].Nanoseconds())/rows/float64(b.N), "cpu-ns/row-without")
	b.ReportMetric(float64(used[1].Nanoseconds())/rows/float64(b.N), "cpu-ns/row-with")
	b.ReportMetric(float64(size[0])/rows, "B/row-without")
	b.ReportMetric(float64(size[1]-size[0])/rows, "key-B/row")
}
