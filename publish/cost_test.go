package publish_test

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// A publish without compaction reads and writes as much as into an empty lake, whatever the lake
// holds.
func TestPublishCostsWhatTheBatchCosts(t *testing.T) {
	manyDomains := func(tag string, n int) []testlake.Record {
		list := make([]testlake.Record, n)
		for i := range list {
			list[i].URL = fmt.Sprintf("https://%s%d.test/%d", tag, i/3, i)
		}
		return list
	}
	small := manyDomains("new", 5000)
	cost := func(before int) (read, written int64) {
		store := blob.NewMemory()
		for i := range 3 {
			if before > 0 {
				testlake.Ingest(t, store, "old", fmt.Sprint("b", i), manyDomains(fmt.Sprint("old", i, "-"), before/3))
				testlake.Publish(t, store)
			}
		}
		testlake.Ingest(t, store, "new", "b", small)
		counting := blob.NewCounting(store)
		if _, err := publish.All(t.Context(), counting, testlake.Run(), t.TempDir()); err != nil {
			t.Fatal(err)
		}
		return counting.Reads().Bytes, counting.Writes().Bytes
	}
	emptyRead, emptyWritten := cost(0)
	for _, before := range []int{3000, 9000, 30_000} {
		read, written := cost(before)
		t.Logf("%d URLs into a lake of %d: %.3f of the bytes written into an empty one, %.3f of those read", len(small), before,
			float64(written)/float64(emptyWritten), float64(read)/float64(emptyRead))
		if float64(written) > 1.1*float64(emptyWritten) || float64(read) > 1.2*float64(emptyRead) {
			t.Errorf("lake of %d URLs: %d bytes written and %d read, %d and %d for an empty one",
				before, written, read, emptyWritten, emptyRead)
		}
	}
}
