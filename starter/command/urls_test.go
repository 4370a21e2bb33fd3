package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// TestURLsOfAVersion lists an older version, by its id and by its tag.
func TestURLsOfAVersion(t *testing.T) {
	url := urlsLake(t)
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := catalog.ReadManifest(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	id := first.Versions[len(first.Versions)-1].ID
	testlake.Ingest(t, store, "news", "2", []testlake.Record{{URL: "https://c.example.com/new"}})
	testlake.Publish(t, store)
	if _, stderr, code := starter(t, "tag", id, "before", "--lake", url); code != 0 {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	for at, want := range map[string]string{id: "", "before": "", "current": "https://c.example.com/new\n"} {
		stdout, stderr, code := starter(t, "urls", "example.com", "--lake", url, "--dataset", "news", "--at", at, "--host", "c.example.com", "--format", "text")
		if stdout != want || code != 0 {
			t.Errorf("%s: exit %d, %q, %s", at, code, stdout, stderr)
		}
	}
	if _, stderr, code := starter(t, "urls", "example.com", "--lake", url, "--dataset", "news", "--at", "none"); code == 0 || !strings.Contains(stderr, "none") {
		t.Errorf("a version that is not there: exit %d, %s", code, stderr)
	}
}

// urlsLake returns the URL of a lake whose dataset news has a few captures of example.com.
func urlsLake(t *testing.T) string {
	t.Helper()
	url := "file://" + t.TempDir()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var records []testlake.Record
	for i := range 12 {
		records = append(records, testlake.Record{
			URL: fmt.Sprintf("https://%s.example.com/p/%d?a=1,2", []string{"a", "b"}[i%2], i/4),
			TS:  int64(i) * 86_400_000, HasTS: true, Size: int64(i), HasSize: true,
		})
	}
	testlake.Ingest(t, store, "news", "1", records)
	testlake.Publish(t, store)
	return url
}

func TestURLs(t *testing.T) {
	url := urlsLake(t)
	for _, tc := range []struct{ flags, stdout, stderr string }{
		{"--format table --fields url,size --host a.example.com --prefix /p/1", `URL                              SIZE
https://a.example.com/p/1?a=1,2     4
https://a.example.com/p/1?a=1,2     6
`, ""},
		{"--format text --from 1970-01-10 --to 1970-01-12T00:00:00Z", "https://a.example.com/p/2?a=1,2\nhttps://b.example.com/p/2?a=1,2\n", ""},
		{"--format csv --fields host,path,ts --limit 2", `host,path,ts
a.example.com,"/p/0?a=1,2",1970-01-01T00:00:00.000Z
a.example.com,"/p/0?a=1,2",1970-01-03T00:00:00.000Z
`, "2 rows of 12. All of them: --limit 0\n"},
		{"--unique --fields url,rows,first_ts --host b.example.com", `{"url":"https://b.example.com/p/0?a=1,2","rows":2,"first_ts":"1970-01-02T00:00:00.000Z"}
{"url":"https://b.example.com/p/1?a=1,2","rows":2,"first_ts":"1970-01-06T00:00:00.000Z"}
{"url":"https://b.example.com/p/2?a=1,2","rows":2,"first_ts":"1970-01-10T00:00:00.000Z"}
`, ""},
		{"--unique --json --fields url --limit 1", `{"url":"https://a.example.com/p/0?a=1,2"}` + "\n",
			"These are the first 1; more may follow. All of them: --limit 0\n"},
		{"--prefix /none", "", "example.com: the dataset has no such URL.\n"},
		{"--filter mime=x", "", "example.com: the dataset has no such URL.\n"},
		{"--filter mime!=x --format text --limit 1", "https://a.example.com/p/0?a=1,2\n", "These are the first 1; more may follow. All of them: --limit 0\n"},
		{"--format table --prefix /none", "", "example.com: the dataset has no such URL.\n"},
	} {
		stdout, stderr, code := starter(t, append([]string{"urls", "example.com", "--lake", url, "--dataset", "news"}, strings.Fields(tc.flags)...)...)
		if diff := cmp.Diff(tc.stdout, stdout); diff != "" || stderr != tc.stderr || code != 0 {
			t.Errorf("%s: exit %d, %q (-want +got):\n%s", tc.flags, code, stderr, diff)
		}
	}
	file, _, code := starter(t, "urls", "example.com", "--lake", url, "--dataset", "news", "--format", "parquet")
	if !strings.HasPrefix(file, "PAR1") || !strings.HasSuffix(file, "PAR1") || code != 0 {
		t.Errorf("Parquet: exit %d, %d bytes", code, len(file))
	}
	byID, _, code := starter(t, "urls", "https://example.com/x", "--lake", url, "--dataset", "1", "--format", "text")
	if strings.Count(byID, "\n") != 12 || code != 0 {
		t.Errorf("exit %d: %s", code, byID)
	}
	ofHost, note, code := starter(t, "urls", "a.example.com", "--lake", url, "--dataset", "news", "--format", "text")
	if strings.Count(ofHost, "https://a.example.com/") != 6 || strings.Count(ofHost, "\n") != 12 || code != 0 ||
		note != "These are the URLs of the domain example.com. Those of the host alone: --host a.example.com\n" {
		t.Errorf("exit %d, %s: %s", code, note, ofHost)
	}
	_, note, code = starter(t, "urls", "com", "--lake", url, "--dataset", "news")
	if want := "com is a public suffix: names below it are domains of their own. The lake has 1 domain below it: example.com\n"; code != 0 ||
		!strings.HasSuffix(note, want) {
		t.Errorf("exit %d, %s", code, note)
	}
}

func TestURLsMistakes(t *testing.T) {
	url := urlsLake(t)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"mailto:x", "--dataset", "news"}, 2, "mailto"},
		{[]string{"a.com,b.com", "--dataset", "news"}, 2, "character ','; ask for one domain at a time"},
		{[]string{"a.com\nb.com", "--dataset", "news"}, 2, "character 6 is a line break"},
		{[]string{"example.com"}, 2, "--dataset is missing"},
		{[]string{"example.com", "--dataset", "new"}, 1, `did you mean "news"?`},
		{[]string{"example.com", "--dataset", "something"}, 1, "starter datasets lists them"},
		{[]string{"example.com", "--dataset", "77"}, 1, `has no dataset "77"`},
		{[]string{"example.com", "--dataset", "news", "--host", "example.org"}, 1, "host is example.org, which is not of the domain example.com"},
		{[]string{"example.com", "--dataset", "news", "--host", "a/b"}, 2, "--host is no name of a host"},
		{[]string{"example.com", "--dataset", "news", "--from", "now"}, 2, "--from is a date"},
		{[]string{"example.com", "--dataset", "news", "--filter", "x"}, 2, "--filter is the name of a member"},
		{[]string{"example.com", "--dataset", "news", "--fields", "nope"}, 2, `--fields has "nope"`},
		{[]string{"example.com", "--dataset", "news", "--format", "json"}, 2, "use table, ndjson, csv, text or parquet"},
		{[]string{"example.com", "--dataset", "news", "--format", "text", "--fields", "url"}, 2, "--fields is not for text"},
		{[]string{"example.com", "--dataset", "news", "--format", "csv", "--json"}, 2, "leave out --format csv"},
		{[]string{"example.com", "--dataset", "news", "--limit", "-1"}, 2, "--limit is -1"},
	} {
		stdout, stderr, code := starter(t, append([]string{"urls", "--lake", url}, tc.args...)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit %d, %q, %q; want %d, %q", tc.args, code, stdout, stderr, tc.code, tc.want)
		}
	}
}
