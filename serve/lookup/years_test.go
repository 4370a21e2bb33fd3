package lookup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// openYears opens a server on a lake of Years and asks about a domain of one dataset and about the
// domain that all have.
func openYears(tb testing.TB, store blob.Store, datasets, batches int) {
	tb.Helper()
	s := NewServer(store, Options{CacheDir: tb.TempDir()})
	defer s.Close()
	if err := s.Refresh(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	snap, err := s.Acquire(tb.Context(), "")
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Release()
	id := uint32(datasets / 2)
	for domain, want := range map[string]int{testlake.YearsDomain(id): 1, testlake.EverywhereDomain: datasets} {
		target, err := ParseTarget("https://" + domain + "/")
		if err != nil {
			tb.Fatal(err)
		}
		page, err := snap.Domain(tb.Context(), target, "")
		if err != nil || page.Total != want {
			tb.Fatalf("%s: %d datasets, want %d, %v", domain, page.Total, want, err)
		}
		d, rows := page.Datasets[0], int64(testlake.OwnRows*batches)
		if want > 1 {
			rows = int64(testlake.EverywhereRows * batches)
		}
		if d.Rows != rows || want == 1 && d.Name != fmt.Sprint("d", id) {
			tb.Errorf("%s: %+v, want %d rows", domain, d, rows)
		}
	}
}

// A server that opens a version reads neither its batches nor those of its segments, and the lists
// of parts only where it looks parts up. Three of its requests find out whether the manifest was
// put back.
// BenchmarkOpenYears opens a lake of 10,000 datasets with 365 batches each.
func TestOpeningDoesNotReadBatches(t *testing.T) {
	const datasets = 30
	for _, batches := range []int{10, 1000} {
		store := blob.NewMemory()
		testlake.Years(t, store, datasets, batches)
		counting, trace := blob.NewCounting(store), &blob.Trace{}
		s := NewServer(counting, Options{CacheDir: t.TempDir()})
		defer s.Close()
		ctx := blob.WithTrace(t.Context(), trace)
		if err := s.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		read := counting.Reads()
		t.Logf("%d batches: %d requests, %d bytes", datasets*batches, read.Requests, read.Bytes)
		if read.Requests > 18 || read.Bytes > 300<<10 {
			t.Errorf("%d batches: %d requests of %d bytes", datasets*batches, read.Requests, read.Bytes)
		}
		for _, a := range trace.Accesses() {
			if strings.HasSuffix(a.Key, segment.BatchesName) {
				t.Errorf("%s was read", a.Key)
			}
		}
		openYears(t, store, datasets, batches)
	}
}

// BenchmarkOpenYears opens a lake of 10,000 datasets with 365 batches each, in a folder, and looks
// up two domains:
//
//	go test ./serve/lookup -run xxx -bench OpenYears -benchtime 10x -timeout 1h
func BenchmarkOpenYears(b *testing.B) {
	const datasets, batches = 10_000, 365
	store, err := blob.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	testlake.Years(b, store, datasets, batches)
	counting := blob.NewCounting(store)
	n := 0
	for b.Loop() {
		openYears(b, counting, datasets, batches)
		n++
	}
	read := counting.Reads()
	b.ReportMetric(float64(read.Requests)/float64(n), "reads/op")
	b.ReportMetric(float64(read.Bytes)/float64(n), "bytes-read/op")
}
