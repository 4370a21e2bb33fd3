package publish_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// Limits of a publish of one batch, whatever the lake holds: objects that it reads and bytes that
// it writes, besides its own segment.
const (
	maxObjects = 60
	maxBytes   = 256 << 10
)

// publishCost is what one publish cost besides its own segment.
type publishCost struct {
	objects, requests int // read
	written           int64
}

// publishInto publishes one new batch into a lake of Years.
func publishInto(tb testing.TB, store blob.Store, n int) publishCost {
	tb.Helper()
	testlake.Ingest(tb, store, "d7", fmt.Sprint("new-", n), records(fmt.Sprint("new", n), 100))
	counting := blob.NewCounting(store)
	trace := &blob.Trace{}
	ctx := blob.WithTrace(tb.Context(), trace)
	done, err := publish.All(ctx, counting, testlake.Run(), tb.TempDir())
	if err != nil || done.Existed || len(done.Skipped) > 0 {
		tb.Fatalf("%+v, %v", done, err)
	}
	var cost publishCost
	objects := map[string]bool{}
	for _, a := range trace.Accesses() {
		if strings.HasPrefix(a.Key, "index/segments/") {
			continue
		}
		switch a.Op {
		case blob.OpGet, blob.OpReadRange, blob.OpOpen, blob.OpStat, blob.OpList:
			objects[a.Key] = true
			cost.requests++
		case blob.OpPut, blob.OpCreate:
			cost.written += a.N
		}
	}
	cost.objects = len(objects)
	return cost
}

// A publish of one batch costs the same in a lake with many datasets and batches as in a small one.
// BenchmarkPublishYears does the same in a lake of 10,000 datasets with 365 batches each.
func TestPublishOfOneBatchIntoMany(t *testing.T) {
	store := blob.NewMemory()
	testlake.Years(t, store, 120, 60)
	const publishes = 20 // some of which fold segments
	for n := range publishes {
		cost := publishInto(t, store, n)
		t.Logf("publish %d: %+v", n, cost)
		if cost.objects > maxObjects || cost.written > maxBytes {
			t.Errorf("publish %d: %+v, allowed are %d objects and %d bytes", n, cost, maxObjects, maxBytes)
		}
	}
	v := current(t, store)
	if err := v.Check(t.Context()); err != nil || v.Counts.Batches != 120*60+publishes || v.Counts.Datasets != 120 {
		t.Errorf("%+v, %v", v.Counts, err)
	}
}

// BenchmarkPublishYears publishes single batches into a lake of 10,000 datasets with 365 batches
// each:
//
//	go test ./publish -run xxx -bench PublishYears -benchtime 10x -timeout 1h
func BenchmarkPublishYears(b *testing.B) {
	store, err := blob.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	testlake.Years(b, store, 10_000, 365)
	objects, bytes := 0, int64(0)
	for info, err := range store.List(b.Context(), "") {
		if err != nil {
			b.Fatal(err)
		}
		objects, bytes = objects+1, bytes+info.Size
	}
	var most publishCost
	n := 0
	for b.Loop() {
		cost := publishInto(b, store, n)
		most.objects = max(most.objects, cost.objects)
		most.requests = max(most.requests, cost.requests)
		most.written = max(most.written, cost.written)
		n++
	}
	b.ReportMetric(float64(objects), "lake-objects")
	b.ReportMetric(float64(bytes), "lake-bytes")
	b.ReportMetric(float64(most.objects), "objects-read")
	b.ReportMetric(float64(most.requests), "reads")
	b.ReportMetric(float64(most.written), "bytes-written")
	if most.objects > maxObjects || most.written > maxBytes {
		b.Errorf("%+v, allowed are %d objects and %d bytes", most, maxObjects, maxBytes)
	}
}
