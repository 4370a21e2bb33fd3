package gc_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/gc"
	"github.com/urlake/urlake/publish/suppress"
)

// day makes the URLs of a daily batch: those of a few sites that many days have.
func day(d, n int) []testlake.Record {
	rng := rand.New(rand.NewPCG(7, uint64(d)))
	var list []testlake.Record
	for range n {
		site := int(5000 * rng.Float64() * rng.Float64() * rng.Float64())
		list = append(list, testlake.Record{URL: fmt.Sprintf("https://www.site%d.example/%d/%d/page.html", site, d, rng.IntN(1e6))})
	}
	return list
}

// months makes a lake of daily batches, each of which is published by itself, and one in thirty of
// which is replaced a day later; and a lake that gets the same batches at once.
func months(t testing.TB, used, fresh blob.Store, days, urls int) {
	t.Helper()
	content := func(d int) []testlake.Record {
		if d%30 == 28 {
			return day(d+1000, urls)
		}
		return day(d, urls)
	}
	name := func(d int) string { return fmt.Sprintf("d%03d", d) }
	for d := range days {
		testlake.Ingest(t, used, "crawl", name(d), day(d, urls))
		testlake.Publish(t, used)
		if d > 0 && (d-1)%30 == 28 {
			testlake.Ingest(t, used, "crawl", name(d-1), content(d-1))
			testlake.Publish(t, used)
		}
		testlake.Ingest(t, fresh, "crawl", name(d), content(d))
	}
	testlake.Publish(t, fresh)
	// What a fresh lake has of replaced pieces is garbage too.
	collect(t, fresh, now())
}

// fortyDays returns copies of two lakes of months, which are made once.
func fortyDays(t *testing.T) (used, fresh blob.Store) {
	t.Helper()
	if fortyDaysMade == nil {
		fortyDaysMade = []blob.Store{blob.NewMemory(), blob.NewMemory()}
		months(t, fortyDaysMade[0], fortyDaysMade[1], 40, 500)
	}
	used, fresh = blob.NewMemory(), blob.NewMemory()
	blobtest.Copy(t, fortyDaysMade[0], used)
	blobtest.Copy(t, fortyDaysMade[1], fresh)
	return used, fresh
}

var fortyDaysMade []blob.Store

// measure returns the objects of a lake and their bytes, without staging, and what segments have of
// them.
func measure(t testing.TB, store blob.Store) (n, bytes, segments int64) {
	t.Helper()
	for key, size := range objects(t, store, "registry/", "rules/", "batches/", "rejects/", "urls/", "index/") {
		n, bytes = n+1, bytes+size
		if strings.HasPrefix(key, "index/segments/") {
			segments += size
		}
	}
	return n, bytes, segments
}

// After a collection a lake takes at most a twentieth more than one that has had its batches at
// once, but for segments: it has up to eight, which share domains, where the other one has one.
func TestUsedLakeIsAsSmallAsAFreshOne(t *testing.T) {
	used, fresh := fortyDays(t)
	size := func(store blob.Store) int64 {
		_, bytes, segments := measure(t, store)
		return bytes - segments
	}
	before := size(used)
	collect(t, used, now())
	if after, want := size(used), size(fresh); after*20 > want*21 || before < want*5/4 {
		t.Errorf("%d bytes before, %d after, a fresh lake %d", before, after, want)
	}
	sound(t, used)
}

// compacted compacts a lake and collects its garbage.
func compacted(t testing.TB, store blob.Store) {
	t.Helper()
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	collect(t, store, now())
}

// whole makes a lake with one batch of all rows that the lakes of months have.
func whole(t testing.TB, store blob.Store, days, urls int) {
	t.Helper()
	var all []testlake.Record
	for d := range days {
		if d%30 == 28 && d+1 < days {
			all = append(all, day(d+1000, urls)...)
		} else {
			all = append(all, day(d, urls)...)
		}
	}
	testlake.Ingest(t, store, "crawl", "all", all)
	testlake.Publish(t, store)
}

// After a compaction and a collection a lake of daily batches has as many parts as one that has had
// all rows in one batch, and takes less than one that has had the batches at once.
func TestCompactedLakeIsAsSmallAsOneBatch(t *testing.T) {
	used, fresh := fortyDays(t)
	one := blob.NewMemory()
	whole(t, one, 40, 500)
	compacted(t, used)
	sound(t, used)
	parts := func(store blob.Store) (n int) { return len(objects(t, store, "urls/")) }
	if got, want := parts(used), parts(one); got != want {
		t.Errorf("%d parts, want %d", got, want)
	}
	n, got, _ := measure(t, used)
	_, atOnce, _ := measure(t, fresh)
	_, want, _ := measure(t, one)
	t.Logf("compacted: %d objects, %d bytes; all batches at once: %d; one batch: %d", n, got, atOnce, want)
	if got > atOnce {
		t.Errorf("%d bytes, more than the %d of all batches at once", got, atOnce)
	}
}

// A lake with months of replacements, retirements and takedowns takes at most a tenth more, once it
// is compacted and collected, than a fresh lake that gets the rows that are left at once.
func TestCompactedLifeIsAsSmallAsAFreshLake(t *testing.T) {
	used, fresh := blob.NewMemory(), blob.NewMemory()
	const days, urls = 40, 500
	hidden := []string{"site0.example", "site1.example", "site7.example"}
	batch := func(d int) string { return fmt.Sprintf("d%03d", d) }
	for d := range days {
		testlake.Ingest(t, used, "crawl", batch(d), day(d, urls))
		testlake.Ingest(t, used, fmt.Sprintf("list%d", d%5), batch(d), day(d+500, urls/5))
		testlake.Publish(t, used)
		switch d % 4 {
		case 1:
			testlake.Ingest(t, used, "crawl", batch(d), day(d+1000, urls))
		case 2:
			testlake.Retire(t, used, catalog.BatchName{DatasetID: 1, Batch: batch(d)})
		}
		if n := d / 10; d%10 == 5 && n < len(hidden) {
			target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, hidden[n])
			if err != nil {
				t.Fatal(err)
			}
			r := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, Reason: "test", Created: time.Now().UTC().Truncate(time.Second)}
			if _, err := suppress.Add(t.Context(), used, r, suppress.Options{}); err != nil {
				t.Fatal(err)
			}
		}
		testlake.Publish(t, used)
		if d == days/2 {
			compacted(t, used)
		}

		left := func(all []testlake.Record) []testlake.Record {
			return slices.DeleteFunc(all, func(r testlake.Record) bool {
				return slices.ContainsFunc(hidden, func(name string) bool { return strings.Contains(r.URL, "."+name+"/") })
			})
		}
		if d%4 != 2 {
			n := d
			if d%4 == 1 {
				n += 1000
			}
			testlake.Ingest(t, fresh, "crawl", batch(d), left(day(n, urls)))
		}
		testlake.Ingest(t, fresh, fmt.Sprintf("list%d", d%5), batch(d), left(day(d+500, urls/5)))
	}
	testlake.Publish(t, fresh)
	compacted(t, fresh)
	_, before, _ := measure(t, used)
	compacted(t, used)
	sound(t, used)
	n, got, _ := measure(t, used)
	_, want, _ := measure(t, fresh)
	t.Logf("%d bytes before, %d objects with %d bytes after, a fresh lake %d", before, n, got, want)
	if got*10 > want*11 || before < want*5/4 {
		t.Errorf("%d bytes, a fresh lake has %d", got, want)
		byRoot := func(store blob.Store) map[string]int64 {
			sum := map[string]int64{}
			for key, size := range objects(t, store, "registry/", "rules/", "batches/", "rejects/", "urls/", "index/") {
				root, rest, _ := strings.Cut(key, "/")
				folder, _, _ := strings.Cut(rest, "/")
				sum[root+"/"+folder] += size
			}
			return sum
		}
		t.Errorf("%v\nfresh: %v", byRoot(used), byRoot(fresh))
	}
}

// BenchmarkYear collects the garbage of a year of daily batches, in a folder.
func BenchmarkYear(b *testing.B) {
	open := func() blob.Store {
		store, err := blob.Open(b.Context(), "file://"+b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		return store
	}
	report := func(name string, store blob.Store) {
		n, bytes, segments := measure(b, store)
		b.ReportMetric(float64(n), name+"-objects")
		b.ReportMetric(float64(bytes)/1e6, name+"-MB")
		b.ReportMetric(float64(segments)/1e6, name+"-segments-MB")
	}
	for b.Loop() {
		used, fresh := open(), open()
		months(b, used, fresh, 365, 2000)
		report("before", used)
		run := func(name string) {
			store := blob.NewCounting(used)
			began := time.Now()
			if _, err := gc.Collect(b.Context(), store, gc.Options{Keep: 1}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), name+"-s")
			b.ReportMetric(float64(store.Reads().Requests), name+"-reads")
			b.ReportMetric(float64(store.Writes().Requests), name+"-writes")
		}
		run("first")
		report("after", used)
		run("second")
		report("fresh", fresh)
		compacted(b, used)
		report("compacted", used)
		one := open()
		whole(b, one, 365, 2000)
		report("one", one)
	}
}
