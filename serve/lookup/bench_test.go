package lookup

import (
	"fmt"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// benchLake returns a lake with 20,000 small domains and one domain of 20,000 rows a dataset, in
// two datasets and two segments.
func benchLake(b *testing.B) *Snapshot {
	b.Helper()
	store := blob.NewMemory()
	for batch := range 2 {
		for d := range 2 {
			var records []testlake.Record
			for i := range 20_000 {
				url := fmt.Sprintf("https://www.site%05d.test/some/path/%d/%d?q=%d", i, batch, d, i)
				records = append(records, testlake.Record{URL: url})
				if batch == 0 {
					url := fmt.Sprintf("https://www.large.test/another/path/%06d", i)
					records = append(records, testlake.Record{URL: url, TS: int64(i) * 1000, HasTS: true})
				}
			}
			testlake.Ingest(b, store, fmt.Sprintf("d%d", d), fmt.Sprint(batch), records)
		}
		testlake.Publish(b, store)
	}
	return acquire(b, serve(b, store, Options{}), "")
}

func BenchmarkDomain(b *testing.B) {
	snap := benchLake(b)
	for _, c := range []struct{ name, domain string }{{"found", "site00077.test"}, {"absent", "no-such-domain.test"}} {
		tg := target(b, c.domain)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := snap.Domain(b.Context(), tg, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstPage reads pages whose rows and index frames are cached. The cold case decodes them
// again, from a store in memory.
func BenchmarkFirstPage(b *testing.B) {
	snap := benchLake(b)
	for _, c := range []struct {
		name   string
		domain string
		offset int64
		limit  int
		cold   bool
	}{
		{"small domain", "site00077.test", 0, 100, false},
		{"100 rows", "large.test", 0, 100, false},
		{"100 rows at 15000", "large.test", 15_000, 100, false},
		{"10000 rows", "large.test", 0, 10_000, false},
		{"100 rows, cold", "large.test", 0, 100, true},
	} {
		q := URLsQuery{Target: target(b, c.domain), Dataset: 1, Offset: c.offset, Limit: c.limit}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c.cold {
					snap.server.clearCaches(true, true)
				}
				if _, err := snap.URLs(b.Context(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
