package ingestreport_test

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/ingest/effect"
	"github.com/urlake/urlake/starter/ingestreport"
	"github.com/urlake/urlake/workflows"
)

// What is said of the URLs that the dataset had already.
func TestKnownRows(t *testing.T) {
	for _, c := range []struct {
		effect effect.Effect
		want   string
	}{
		{effect.Effect{}, "The batch is new; the dataset has no other batch.\n"},
		{effect.Effect{OtherRows: 900, OtherBatches: 2, KnownRows: 12},
			"had the URLs of 12 of these rows already, in other batches; they count once more.\n"},
		{effect.Effect{OtherRows: 900, OtherBatches: 2, KnownRows: 300},
			"had the URLs of all these rows already, in other batches; they count once more.\n"},
		{effect.Effect{OtherRows: 900, OtherBatches: 2}, "The dataset had none of the URLs before.\n"},
		{effect.Effect{OtherRows: 900, OtherBatches: 2, KnownRows: -1}, "the dataset has 900 rows in 2 other batches.\n"},
	} {
		r := &workflows.IngestResult{Dataset: "alpha", Batch: "b"}
		r.Rows, r.Effect = 300, &c.effect
		var out strings.Builder
		ingestreport.Print(&out, r, 0)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v:\n%s\nwant %q", c.effect, out.String(), c.want)
		}
		if (c.effect.OtherBatches == 0 || c.effect.KnownRows < 0) && strings.Contains(out.String(), "URLs") {
			t.Errorf("%+v:\n%s", c.effect, out.String())
		}
	}
}
