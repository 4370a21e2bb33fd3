package postings_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/indexbuild/indextest"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
)

// Pages in another order than the part's are no part.
func TestCollectorRefusesDomainsOutOfOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	l := &indextest.Lake{Store: blob.NewMemory()}
	for _, o := range []indextest.Options{{Rows: 200, Domains: 100}, {Rows: 200, Domains: 100, Sizes: true}} {
		o.Limits = part.Limits{PageRows: 20}
		l.WriteBatch(t, 1, "b", indextest.RandomRows(rng, o), o, func(task *ingest.MergedTask) lake.FrameObject {
			pages := indextest.DomainPages(t, l.Store, &task.Parts[0])
			c := postings.NewCollector(1, "b", "")
			defer c.Close()
			for i, p := range pages {
				if i == 3 {
					if err := c.Domains(pages[0]); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("the first page again: %v", err)
					}
				}
				if err := c.Domains(p); err != nil && i <= 3 {
					t.Error(err)
				}
			}
			return lake.FrameObject{}
		})
	}
}
