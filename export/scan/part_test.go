package scan_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
)

// recording notes which bytes of parts are read.
type recording struct {
	blob.Store
	mu   sync.Mutex
	read [][2]int64
}

func (r *recording) ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if strings.HasSuffix(key, ".parquet") {
		r.mu.Lock()
		r.read = append(r.read, [2]int64{off, off + n})
		r.mu.Unlock()
	}
	return r.Store.ReadRange(ctx, key, off, n)
}

// A part of many pages is read in pieces, none of which reads a page again.
func TestPagesAreReadOnce(t *testing.T) {
	lake := blob.NewMemory()
	var records []testlake.Record
	var want []string
	for i := range 70_000 {
		path := fmt.Sprintf("/section-%d/a-title-of-the-usual-length-%d", i%7, i)
		records = append(records, testlake.Record{URL: "https://www.example.com" + path})
		want = append(want, path)
	}
	testlake.Ingest(t, lake, "a", "1", records)
	testlake.Publish(t, lake)
	store := &recording{Store: lake}
	s, err := scan.Open(t.Context(), store, scan.Options{})
	if err != nil || len(s.Tasks) != 1 {
		t.Fatalf("%d parts: %v", len(s.Tasks), err)
	}
	var got []string
	pieces := 0
	for rows, err := range s.Read(t.Context(), 0, part.ColPathQuery) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rows.PathQuery...)
		pieces++
	}
	slices.Sort(want)
	if !slices.Equal(got, want) || pieces < 3 {
		t.Errorf("%d rows in %d pieces, want %d", len(got), pieces, len(want))
	}
	slices.SortFunc(store.read, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for i := 1; i < len(store.read); i++ {
		if store.read[i][0] < store.read[i-1][1] {
			t.Errorf("bytes %v and %v of the part are read", store.read[i-1], store.read[i])
		}
	}
}
