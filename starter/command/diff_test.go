package command

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// diffLake returns the URL of a lake with three versions, and the versions.
func diffLake(t *testing.T) (url string, versions []string) {
	t.Helper()
	url = "file://" + t.TempDir()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	pages := func(host string, n int) (out []testlake.Record) {
		for i := range n {
			out = append(out, testlake.Record{URL: fmt.Sprintf("https://%s/%d", host, i), TS: 1e12 + int64(i), HasTS: true})
		}
		return out
	}
	publish := func() { versions = append(versions, testlake.Publish(t, store).Version) }
	testlake.Ingest(t, store, "news", "1", append(pages("stays.test", 3), pages("shrinks.test", 2000)...))
	testlake.Ingest(t, store, "blogs", "1", pages("leaves.test", 7))
	publish()
	testlake.Ingest(t, store, "news", "1", append(pages("stays.test", 3), pages("shrinks.test", 500)...))
	testlake.Ingest(t, store, "news", "2", pages("www.grows.test", 1234))
	testlake.Ingest(t, store, "blogs", "1", pages("arrives.test", 1))
	publish()
	testlake.Ingest(t, store, "news", "2", pages("grows.test", 1234)) // another host, the same totals
	publish()
	return url, versions
}

func TestDiff(t *testing.T) {
	url, v := diffLake(t)
	stdout, stderr, code := starter(t, "diff", "--lake", url, v[0], v[1])
	want := `From  ` + v[0] + `  2,010 rows of 2 datasets in 2 batches
To    ` + v[1] + `  1,738 rows of 2 datasets in 3 batches

Domains of each dataset, and the rows that they gained and lost:
DATASET  ADDED  REMOVED  CHANGED   +ROWS   -ROWS
blogs        1        1        0      +1      -7
news         1        0        1  +1,234  -1,500

The largest changes, in rows:
DOMAIN        DATASET  BEFORE  AFTER  CHANGE
shrinks.test  news      2,000    500  -1,500
grows.test    news          0  1,234  +1,234
leaves.test   blogs         7      0      -7
arrives.test  blogs         0      1      +1
`
	if diff := cmp.Diff(want, stdout); diff != "" || stderr != "" || code != 0 {
		t.Errorf("exit %d, %s (-want +got):\n%s", code, stderr, diff)
	}
	// By default the current version and the one before it.
	stdout, _, code = starter(t, "diff", "--lake", url)
	if code != 0 || !strings.Contains(stdout, "From  "+v[1]) || !strings.Contains(stdout, "To    "+v[2]) ||
		!strings.Contains(stdout, "No domain has other totals") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
	// The lake is as before: the leases are removed.
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(t.Context(), "index/leases/") {
		t.Errorf("%s is left, %v", info.Key, err)
	}
}

func TestDiffAsJSON(t *testing.T) {
	url, v := diffLake(t)
	for _, dataset := range []string{"", "news"} {
		stdout, stderr, code := starter(t, "diff", "--json", "--lake", url, v[0], v[1], "--dataset", dataset)
		if code != 0 {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
		got := map[string]string{}
		type side struct {
			Rows    int    `json:"url_count_est"`
			FirstTS string `json:"first_ts"`
			LastTS  string `json:"last_ts"`
		}
		show := func(s *side) string {
			if s == nil {
				return "none"
			}
			return fmt.Sprint(s.Rows, " ", s.FirstTS, " ", s.LastTS)
		}
		for _, line := range lines[:len(lines)-1] {
			var c struct {
				Change, Domain, Name string
				Before, After        *side
			}
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Fatal(err)
			}
			got[c.Domain] = fmt.Sprintf("%s %s, %s, %s", c.Name, c.Change, show(c.Before), show(c.After))
		}
		const start = "2001-09-09T01:46:40.000Z"
		want := map[string]string{
			"shrinks.test": "news changed, 2000 " + start + " 2001-09-09T01:46:41.999Z, 500 " + start + " 2001-09-09T01:46:40.499Z",
			"grows.test":   "news added, none, 1234 " + start + " 2001-09-09T01:46:41.233Z",
		}
		datasets := 1
		if dataset == "" {
			datasets = 2
			want["leaves.test"] = "blogs removed, 7 " + start + " 2001-09-09T01:46:40.006Z, none"
			want["arrives.test"] = "blogs added, none, 1 " + start + " " + start
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("dataset %q (-want +got):\n%s", dataset, diff)
		}
		var last struct {
			From, To string
			Complete bool
			Datasets []map[string]any
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(err)
		}
		if last.From != v[0] || last.To != v[1] || !last.Complete || len(last.Datasets) != datasets {
			t.Errorf("%+v", last)
		}
		news := map[string]any{"dataset_id": 1.0, "name": "news", "domains_added": 1.0, "domains_removed": 0.0,
			"domains_changed": 1.0, "rows_added": 1234.0, "rows_removed": 1500.0}
		if diff := cmp.Diff(news, last.Datasets[datasets-1]); diff != "" {
			t.Error(diff)
		}
	}
}

func TestBadDiffs(t *testing.T) {
	url, v := diffLake(t)
	for want, args := range map[string][]string{
		"a version is empty":                            {"", v[0]},
		`neither version has a dataset "nwes"; did you`: {v[0], v[1], "--dataset", "nwes"},
		`neither version has a dataset "else"`:          {v[0], v[1], "--dataset", "else"},
		"not a version id":                              {"2026-11-20"},
		`unknown version or tag "yesterday"`:            {"yesterday"},
		"20200101T000000.000Z-00000000":                 {"20200101T000000.000Z-00000000"},
		"accepts at most 2 arg":                         {v[0], v[1], v[2]},
	} {
		_, stderr, code := starter(t, append([]string{"diff", "--lake", url}, args...)...)
		if code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %s, want %s", args, code, stderr, want)
		}
	}
}
