package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urlake/urlake/export/files"
)

func TestExport(t *testing.T) {
	url := urlsLake(t)
	out := filepath.Join(t.TempDir(), "out")
	stdout, stderr, code := starter(t, "export", "parquet", "--lake", url, "--out", out, "--domain64", "8-24-8-24", "--file-rows", "5")
	if code != 0 || stderr != "" || !strings.HasPrefix(stdout, "12 rows of 1 dataset in version ") || !strings.Contains(stdout, ": 3 files (") {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, _, code := starter(t, "export", "parquet", "--lake", url, "--out", out, "--domain64", "8-24-8-24", "--file-rows", "5"); code != 0 || !strings.Contains(stdout, "already") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	stdout, _, code = starter(t, "export", "csv", "--lake", url, "--out", out, "--dataset", "news", "--json")
	var res struct {
		Out     string
		Written bool
		files.Manifest
	}
	if err := json.Unmarshal([]byte(stdout), &res); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, stdout)
	}
	left, err := filepath.Glob(filepath.Join(out, "[^.]*")) // a store has its locks in a hidden folder
	if err != nil || len(left) != 2 || len(res.Files) != 1 || res.Rows != 12 || !res.Written || res.Out != out {
		t.Errorf("%d files in the folder, %v: %+v", len(left), err, res)
	}
	file := filepath.Join(t.TempDir(), "x.csv")
	if _, stderr, code := starter(t, "export", "csv", "--lake", url, "--out", file, "--domain", "https://a.example.com/", "--columns", "url,size"); code != 0 {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(data), "url,size\n\"https://a.example.com/p/0?a=1,2\",0\n") || strings.Count(string(data), "\n") != 13 {
		t.Errorf("%v: %s", err, data)
	}
	if stdout, _, code := starter(t, "export", "csv", "--lake", url, "--out", file, "--domain", "example.org"); code != 0 || !strings.HasPrefix(stdout, "0 rows") {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

func TestExportMistakes(t *testing.T) {
	url := urlsLake(t)
	file := filepath.Join(t.TempDir(), "a-file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "no form given"},
		{[]string{"parquet", "--lake", url}, 2, "--out is missing"},
		{[]string{"parquet", "--lake", url, "--out", "x", "--file-rows", "0"}, 2, "--file-rows is 0"},
		{[]string{"parquet", "--lake", url, "--out", "x", "--domain64", "8-8"}, 2, "want four numbers of bits"},
		{[]string{"parquet", "--lake", url, "--out", "x", "--domain", "mailto:x"}, 2, "mailto"},
		{[]string{"csv", "--lake", url, "--out", "x", "--columns", "colour"}, 2, `no column "colour"`},
		{[]string{"csv", "--lake", url, "--out", "x", "--columns", "domain64"}, 2, "needs --domain64"},
		{[]string{"csv", "--lake", url, "--out", "x", "--dataset", "nothing"}, 1, `no dataset "nothing"`},
		{[]string{"csv", "--lake", url, "--out", "x", "--version", "nothing"}, 1, "nothing"},
		{[]string{"csv", "--lake", url, "--out", filepath.Dir(file)}, 1, "is not empty: it has a-file"},
		{[]string{"csv", "--lake", t.TempDir(), "--out", "x"}, 1, "nothing was ever ingested there"},
	} {
		stdout, stderr, code := starter(t, append([]string{"export"}, tc.args...)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit %d, %q, %q; want %d, %q", tc.args, code, stdout, stderr, tc.code, tc.want)
		}
	}
}
