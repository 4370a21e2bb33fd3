package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/cli"
)

// runInventory runs the verb and returns what it prints.
func runInventory(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	root := New()
	var out, errs bytes.Buffer
	root.SetArgs(append([]string{"inventory"}, args...))
	root.SetOut(&out)
	root.SetErr(&errs)
	code = cli.Run(context.Background(), root)
	return out.String(), errs.String(), code
}

// object is an object of a test's bucket.
type object struct {
	key  string
	size uint64
}

// bucket returns objects, and writes them to a file of CSV.
func bucket(t *testing.T) (objects []object, file string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	var text strings.Builder
	text.WriteString("Bucket,Key,Size\n")
	for i := range 2000 {
		var key strings.Builder
		for range rng.IntN(5) {
			key.WriteString([]string{"a", "b", "ü", "", "\xff", "x y"}[rng.IntN(6)] + "/")
		}
		fmt.Fprint(&key, "f", i)
		o := object{key.String(), rng.Uint64N(1 << 40)}
		objects = append(objects, o)
		fmt.Fprintf(&text, "b,%s,%d\n", url.QueryEscape(o.key), o.size)
	}
	file = filepath.Join(t.TempDir(), "report.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return objects, file
}

// answer is a folder of query --json.
type answer struct {
	Prefix    string   `json:"prefix"`
	PrefixURL string   `json:"prefix_url"`
	Objects   uint64   `json:"objects"`
	Bytes     uint64   `json:"bytes"`
	Levels    int      `json:"levels"`
	Folders   int      `json:"folders"`
	Children  []answer `json:"children"`
}

// walk answers a question about a folder by looking at all objects.
func walk(objects []object, prefix string, depth, top int, minObjects, minBytes uint64) answer {
	a := answer{Prefix: prefix}
	below := map[string][]object{}
	for _, o := range objects {
		if !strings.HasPrefix(o.key, prefix) {
			continue
		}
		a.Objects++
		a.Bytes += o.size
		rest := o.key[len(prefix):]
		a.Levels = max(a.Levels, strings.Count(rest, "/"))
		if name, _, ok := strings.Cut(rest, "/"); ok {
			below[prefix+name+"/"] = append(below[prefix+name+"/"], o)
		}
	}
	a.Folders = len(below)
	if depth == 0 {
		return a
	}
	for child, objects := range below {
		c := walk(objects, child, depth-1, top, minObjects, minBytes)
		if c.Objects >= minObjects && c.Bytes >= minBytes {
			a.Children = append(a.Children, c)
		}
	}
	slices.SortFunc(a.Children, func(x, y answer) int {
		if top > 0 {
			return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(y.Objects, x.Objects), strings.Compare(x.Prefix, y.Prefix))
		}
		return strings.Compare(x.Prefix, y.Prefix)
	})
	if top > 0 {
		a.Children = a.Children[:min(top, len(a.Children))]
	}
	return a
}

// restore gives a folder whose prefix is not UTF-8 its prefix again.
func restore(t *testing.T, a *answer) {
	t.Helper()
	if a.PrefixURL != "" {
		var err error
		if a.Prefix, err = url.QueryUnescape(a.PrefixURL); err != nil {
			t.Error(err)
		}
		a.PrefixURL = ""
	}
	for i := range a.Children {
		restore(t, &a.Children[i])
	}
}

func TestQueriesEqualAWalkOverAllObjects(t *testing.T) {
	objects, file := bucket(t)
	for _, format := range []string{"seed", "s3inv"} {
		dir := filepath.Join(t.TempDir(), "index")
		stdout, stderr, code := runInventory(t, "build", "--out", dir, "--format", format, file)
		if code != 0 || !strings.Contains(stdout, "2,000 objects") || !strings.Contains(stderr, "reading: 0 of 1 files") {
			t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
		}
		if stdout, stderr, code := runInventory(t, "verify", dir); code != 0 || !strings.Contains(stdout, "no fault") {
			t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
		}
		checkList(t, dir, objects)
		for _, c := range []struct {
			prefix               string
			depth, top           int
			minObjects, minBytes uint64
		}{
			{"", 1, 0, 0, 0},
			{"", 0, 0, 0, 0},
			{"", 9, 0, 0, 0},
			{"a/", 2, 0, 0, 0},
			{"a/", 3, 2, 0, 0},
			{"ü/x y/", 4, 0, 3, 0},
			{"//", 4, 1, 0, 1 << 40},
			{"\xff/", 2, 0, 0, 0},
			{"", 3, 1 << 30, 5, 1 << 41},
		} {
			want := walk(objects, c.prefix, c.depth, c.top, c.minObjects, c.minBytes)
			stdout, stderr, code := runInventory(t, "query", dir, url.QueryEscape(c.prefix), "--url-encoded", "--json", "--depth", fmt.Sprint(c.depth),
				"--top", fmt.Sprint(c.top), "--min-count", fmt.Sprint(c.minObjects), "--min-bytes", fmt.Sprint(c.minBytes))
			if code != 0 {
				t.Fatalf("%+v: exit %d\n%s", c, code, stderr)
			}
			var got answer
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%+v: %v\n%s", c, err, stdout)
			}
			restore(t, &got)
			if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
				t.Fatalf("%s, %+v: %s, want %s", format, c, g, w)
			}
		}
	}
}

// checkList asks for all folders at once, and for as many that there are not.
func checkList(t *testing.T, dir string, objects []object) {
	t.Helper()
	var asked []string
	for _, o := range objects {
		for i := range o.key {
			if o.key[i] == '/' {
				asked = append(asked, url.QueryEscape(o.key[:i+1]), url.QueryEscape(o.key[:i+1]+"none/"))
			}
		}
	}
	list := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(list, []byte(strings.Join(asked, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := runInventory(t, "query", dir, "--prefixes", list, "--url-encoded", "--json")
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	if code != 0 || len(lines) != len(asked) {
		t.Fatalf("exit %d, %d lines for %d folders\n%s", code, len(lines), len(asked), stderr)
	}
	for i, line := range lines {
		var got struct {
			answer
			Found bool
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		restore(t, &got.answer)
		prefix, _ := url.QueryUnescape(asked[i])
		want := walk(objects, prefix, 0, 0, 0, 0)
		if got.Prefix != prefix || got.Found != (want.Objects > 0) || got.Objects != want.Objects || got.Bytes != want.Bytes || got.Folders != want.Folders {
			t.Fatalf("%s, want %+v", line, want)
		}
	}
}

func TestPrintedAnswers(t *testing.T) {
	dir := t.TempDir()
	file, index := filepath.Join(dir, "report.csv"), filepath.Join(dir, "index")
	rows := "Key,Size,StorageClass,IsLatest\ndata/2025/a,1024,STANDARD,true\ndata/2026/b,1,GLACIER,true\n" +
		"data/2026/old,1,GLACIER,false\nlogs/%1B%5B31m/x,,STANDARD,true\n"
	if err := os.WriteFile(file, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	list, encoded := filepath.Join(dir, "list"), filepath.Join(dir, "encoded")
	for name, lines := range map[string]string{list: "data\nnone/\r\n\n", encoded: "data\n%zz\n"} {
		if err := os.WriteFile(name, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		want []string
		code int
	}{
		{"build --out INDEX FILE", []string{"3 objects, 1.0 KiB in 6 folders", "left out: 1 object", "counted as 0 bytes: 1 object"}, 0},
		{"build --out INDEX FILE", []string{"exists"}, 1},
		{"build FILE", []string{"--out is missing"}, 2},
		{"build --out X", []string{"arg"}, 2},
		{"build --out X --format tar FILE", []string{`"seed" "s3inv"`}, 2},
		{"build --out X --memory 0 FILE", []string{"want 1 or more MiB"}, 2},
		{"query INDEX", []string{"(all)", "2    data/\n", "1    logs/\n"}, 0},
		{"query INDEX data", []string{"2    1.0 KiB            2  data/\n", "0    2025/\n"}, 0},
		{"query INDEX data --top 1 --by objects", []string{"    2025/\n"}, 0},
		{"query INDEX logs", []string{`\x1b[31m/`}, 0},
		{"query INDEX data/2027/x", []string{`no object is below "data/2027/x"; the nearest folder is "data/"`}, 1},
		{"query INDEX nothing", []string{"lists the folders that there are"}, 1},
		{"query INDEX %zz --url-encoded", []string{"not URL-encoded"}, 2},
		{"query INDEX --by age", []string{"choose bytes or objects"}, 2},
		{"query INDEX --top -1", []string{"want 0 or more"}, 2},
		{"query INDEX --prefixes LIST", []string{"2    1.0 KiB            2  data/\n", "-          -            -  none/\n", "(all)\n"}, 0},
		{"query INDEX data --prefixes LIST", []string{"goes without PREFIX"}, 2},
		{"query INDEX --prefixes ENCODED --url-encoded", []string{"line 2 is not URL-encoded"}, 1},
		{"query INDEX --prefixes NONE", []string{"no such file"}, 1},
		{"query DIR", []string{"no path-tree index"}, 1},
		{"verify INDEX", []string{"6 folders, no fault"}, 0},
		{"verify INDEX --json", []string{`"ok": true`}, 0},
		{"verify DIR", []string{"no path-tree index"}, 1},
		{"", []string{"choose one of build, query and verify"}, 2},
	} {
		args := strings.NewReplacer("INDEX", index, "FILE", file, "LIST", list, "ENCODED", encoded, "NONE", list+"x", "DIR", dir, "X", filepath.Join(dir, "x")).Replace(c.args)
		stdout, stderr, code := runInventory(t, strings.Fields(args)...)
		for _, want := range c.want {
			if code != c.code || !strings.Contains(stdout+stderr, want) {
				t.Errorf("%s: exit %d, want %d\n%s%s, want %q", c.args, code, c.code, stdout, stderr, want)
			}
		}
	}
	path := filepath.Join(index, "total_bytes.u64")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[3] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", index}, {"query", index}} {
		if _, stderr, code := runInventory(t, args...); code != 1 || !strings.Contains(stderr, "total_bytes.u64: corrupt") || !strings.Contains(stderr, index) {
			t.Errorf("%s of a damaged index: exit %d, %s", args[0], code, stderr)
		}
	}
}
