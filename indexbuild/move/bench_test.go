package move

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/row"
)

// BenchmarkMove moves a batch of 16 partitions, one hundredth of whose rows are of the sites of a
// hoster: the list gets the hoster's name as a suffix (split) or loses it (join). It reports the
// share of the bytes of parts and postings that are written again.
func BenchmarkMove(b *testing.B) {
	const rows = 200_000
	hoster := rules{"hoster.test": true}
	for _, bench := range []struct {
		name     string
		from, to rules
	}{{"split", rules{}, hoster}, {"join", hoster, rules{}}, {"nothing", rules{}, rules{"b.absent": true}}} {
		b.Run(bench.name, func(b *testing.B) {
			l := &indextest.Lake{Store: blob.NewMemory()}
			var in []row.Row
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range rows {
				host := fmt.Sprintf("www.site%d.test", i*i%24_000)
				if i%100 == 0 {
					host = fmt.Sprintf("site%d.hoster.test", i/100%800)
				}
				in = append(in, row.Row{
					Host: host, Domain: bench.from.domain(host), PathQuery: fmt.Sprintf("/%016x%016x", rng.Uint64(), rng.Uint64()), Scheme: "https", Port: -1,
				})
			}
			record := l.WriteBatch(b, 1, "b", in, indextest.Options{Width: 1, Tasks: 4}, func(t *indextest.Task) lake.FrameObject {
				o, _, err := postings.ExtractTask(context.Background(), l.Store, &t.MergedTask, b.TempDir(), nil)
				if err != nil {
					b.Fatal(err)
				}
				return o
			})
			ref := indextest.PutBatch(b, l.Store, record)
			bytes := int64(0)
			for _, p := range record.Parts {
				bytes += p.Bytes
			}
			for _, p := range record.Postings {
				bytes += p.Bytes
			}
			affected := func(domain string) bool {
				return domain == "hoster.test" || len(domain) > 12 && domain[len(domain)-12:] == ".hoster.test"
			}
			c := &Change{To: "other", Domain: bench.to.domain, Affected: affected}
			var res Result
			for run := 0; b.Loop(); run++ {
				var err error
				if res, err = Batch(context.Background(), l.Store, fmt.Sprint("run", run), ref, c, Options{TempDir: b.TempDir()}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
			b.ReportMetric(100*float64(res.Bytes)/float64(bytes), "%rewritten")
		})
	}
}
