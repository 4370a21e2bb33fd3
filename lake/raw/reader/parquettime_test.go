package reader

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
)

// TestParquetTimeBesideANestedURL reads times in the group of the URL and in the groups around it.
func TestParquetTimeBesideANestedURL(t *testing.T) {
	type visit struct {
		URL       string    `parquet:"url"`
		Timestamp time.Time `parquet:"timestamp,timestamp(millisecond)"`
	}
	type other struct {
		Timestamp time.Time `parquet:"timestamp,timestamp(millisecond)"`
	}
	type inStruct struct {
		Other other `parquet:"another"`
		Visit visit `parquet:"visit"`
	}
	type inList struct {
		N      int64   `parquet:"n"`
		Visits []visit `parquet:"visits,list"`
	}
	type link struct {
		URL string `parquet:"url"`
	}
	type around struct {
		Fetched []int64   `parquet:"fetched,list"` // several for a URL
		Links   []link    `parquet:"links,list"`
		When    time.Time `parquet:"when,timestamp(microsecond)"`
	}
	at := time.UnixMilli(1700000000000).UTC()
	later := at.Add(time.Second)
	for name, tc := range map[string]struct {
		data []byte
		ts   string
		want []string
	}{
		"in a struct": {writeParquet(t, []inStruct{{other{later}, visit{"http://a.com/", at}}}), "visit.timestamp",
			[]string{"1 http://a.com/ ts=1700000000000"}},
		"in a list": {writeParquet(t, []inList{{1, []visit{{"http://a.com/", at}, {"http://b.com/", later}}}, {2, nil}}), "visits.timestamp",
			[]string{"1 http://a.com/ ts=1700000000000", "1 http://b.com/ ts=1700000001000"}},
		"around the list": {writeParquet(t, []around{{[]int64{1, 2}, []link{{"http://a.com/"}, {"http://b.com/"}}, later}}), "when",
			[]string{"1 http://a.com/ ts=1700000001000", "1 http://b.com/ ts=1700000001000"}},
	} {
		g, plan := readParquet(t, tc.data, raw.Options{})
		if diff := cmp.Diff(tc.want, g.Rows); diff != "" || plan.TS == nil || plan.TS.Name != tc.ts {
			t.Errorf("%s: time in %+v, rows (-want +got):\n%s", name, plan.TS, diff)
		}
		checkReader(t, "a.parquet", tc.data, raw.Options{})
	}
	data, err := os.ReadFile(testenv.Shared(t, "cases/time-beside-a-nested-url/struct.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	g, plan := readParquet(t, data, raw.Options{})
	if len(g.Rows) == 0 || plan.TS == nil {
		t.Errorf("%d rows, plan %+v", len(g.Rows), plan)
	}
	for _, row := range g.Rows {
		if !strings.Contains(row, " ts=") {
			t.Fatalf("%s has no time", row)
		}
	}
}
