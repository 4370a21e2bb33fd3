package feed

import (
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	_ "github.com/urlake/urlake/lake/blob/s3blob"
	"github.com/urlake/urlake/lake/ingest/allow"
)

// A lake in a bucket: an ingest reads what Collect has written there, also where workers may read
// only what an operator names and what belongs to the visits.
func TestVisitsOfALakeInS3(t *testing.T) {
	url := testenv.S3(t)
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	spec := VisitsSpec{Lake: url, Frontier: f.URL, Dataset: "visits"}
	allowed, err := allow.Parse([]string{"s3://elsewhere/", url + "/" + Root})
	if err != nil {
		t.Fatal(err)
	}
	ctx := allow.With(t.Context(), allowed)
	for range 2 {
		f.visit(8)
		if err := cycle(ctx, store, spec, visitLimits{page: 3, object: 5, batch: 6}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	testlake.Publish(t, store)
	if have := rows(t, store, "visits"); len(have) != 16 {
		t.Errorf("%d rows, want 16", len(have))
	}
}
