package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// lookupLake makes a lake of two datasets and two versions.
func lookupLake(t *testing.T) (url string, versions []string) {
	t.Helper()
	url = "file://" + t.TempDir()
	store, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	testlake.Ingest(t, store, "news", "1", []testlake.Record{
		{URL: "https://www.example.com/1", Size: 7, HasSize: true, TS: 1e12, HasTS: true}, {URL: "https://example.com/2"},
		{URL: "https://other.test/"},
	})
	versions = append(versions, testlake.Publish(t, store).Version)
	testlake.Ingest(t, store, "blogs", "1", []testlake.Record{{URL: "https://example.com/1"}})
	return url, append(versions, testlake.Publish(t, store).Version)
}

func TestLookup(t *testing.T) {
	url, v := lookupLake(t)
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte("# opt-outs\nother.test\n\nwww.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	csvList := filepath.Join(t.TempDir(), "list.csv")
	if err := os.WriteFile(csvList, []byte("rank,domain\n1,other.test\n2,mailto:x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"lookup example.com --file " + list + " --csv", `line,asked,domain,dataset_id,dataset,url_count_est,size,first_ts,last_ts,note
,example.com,example.com,1,news,2,7,2001-09-09T01:46:40.000Z,2001-09-09T01:46:40.000Z,
,example.com,example.com,2,blogs,1,,,,
2,other.test,other.test,1,news,1,,,,
4,www.example.com,example.com,1,news,2,7,2001-09-09T01:46:40.000Z,2001-09-09T01:46:40.000Z,
4,www.example.com,example.com,2,blogs,1,,,,
`},
		{"lookup --file " + list + " --matrix --csv --dataset blogs,1", `line,asked,domain,blogs,blogs size,news,news size,note
2,other.test,other.test,0,,1,,
4,www.example.com,example.com,1,,2,7,
`},
		{"lookup example.com --csv --presence --at " + v[0], `line,asked,domain,dataset_id,dataset,note
,example.com,example.com,1,news,
`},
		{"lookup example.com absent.test --matrix --presence --csv", `line,asked,domain,news,blogs,note
,example.com,example.com,1,1,
,absent.test,absent.test,0,0,
`},
	} {
		stdout, stderr, code := starter(t, append(strings.Fields(c.args), "--lake", url)...)
		if diff := cmp.Diff(c.want, stdout); diff != "" || stderr != "" || code != 0 {
			t.Errorf("%s: exit %d, stderr %q, stdout (-want +got):\n%s", c.args, code, stderr, diff)
		}
	}
	// Where there is no terminal a line of JSON is printed for each question, bad ones among them.
	for _, flags := range [][]string{nil, {"--json"}} {
		stdout, stderr, code := starter(t, append([]string{"lookup", "--file", csvList, "--lake", url}, flags...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		var answers [2]struct {
			Line          int
			Asked, Reason string
			Total         int `json:"total_datasets"`
		}
		for i := range lines {
			if err := json.Unmarshal([]byte(lines[i]), &answers[i]); err != nil {
				t.Fatal(err)
			}
		}
		if len(lines) != 2 || answers[0].Line != 2 || answers[0].Total != 1 || answers[1].Line != 3 || answers[1].Reason != "scheme" ||
			code != 1 || !strings.Contains(stderr, "1 question not answered") {
			t.Errorf("exit %d, %+v, %q", code, answers, stderr)
		}
	}
}

func TestLookupThatFails(t *testing.T) {
	url, _ := lookupLake(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"lookup --lake " + url, "which domain?", 2},
		{"lookup a.example --csv --json --lake " + url, "choose one", 2},
		{"lookup a.example --dataset new --lake " + url, `has no dataset "new"; did you mean "news"?`, 1},
		{"lookup a.example --dataset new --lake " + url, `did you mean "news"?`, 1},
		{"lookup a.example --dataset 7 --lake " + url, `no dataset "7"`, 1},
		{"lookup a.example --dataset 1,news --lake " + url, "twice", 2},
		{"lookup a.example --at yesterday --lake " + url, "yesterday", 1},
		{"lookup --file " + empty + " --lake " + url, "has no domains", 1},
		{"lookup --file /does/not/exist --lake " + url, "no such file", 1},
		{"lookup a.example --lake " + t.TempDir(), "nothing was ever ingested", 1},
	} {
		stdout, stderr, code := starter(t, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%s: exit %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}
