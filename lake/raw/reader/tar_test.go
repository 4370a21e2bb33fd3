package reader

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// tarOf returns an archive. members are names and texts in turn. A name that ends in / is a folder,
// one that ends in @ is a link.
func tarOf(t testing.TB, members ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(members); i += 2 {
		h := &tar.Header{Name: members[i], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(members[i+1]))}
		if strings.HasSuffix(h.Name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		} else if name, ok := strings.CutSuffix(h.Name, "@"); ok {
			h.Name, h.Typeflag, h.Linkname, h.Size = name, tar.TypeSymlink, members[i+1], 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, members[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestMembersOfAnArchiveAreReadEachInItsFormat(t *testing.T) {
	gz := string(compressed(t, "gzip", []byte("url,n\nhttp://c/,1\n,2\n")))
	data := tarOf(t,
		"d/", "",
		"d/a.txt", "# c\nhttp://a/\n\nhttp://b/\n",
		"README.md", "http://no/\n",
		"d/.hidden/x.txt", "http://no/\n",
		"link.txt@", "d/a.txt",
		"LICENSE", "http://no/\n",
		strings.Repeat("long/", 40)+"b.csv.gz", gz,
		"empty.txt", "",
		"_e.jsonl", "{\"url\":\"http://d/\",\"ts\":\"2024-05-06\"}\n{\"url\":\n",
		"table.parquet", string(tinyParquet(t)),
	)
	long := strings.Repeat("long/", 40) + "b.csv.gz:"
	want := []string{"d/a.txt:2 http://a/", "d/a.txt:4 http://b/", long + "2 http://c/", long + "3 !no_url",
		"_e.jsonl:1 http://d/ ts=1714953600000", "_e.jsonl:2 !bad_json", "table.parquet:1 http://p/", "table.parquet:2 http://q/"}
	counts := raw.Counts{Records: 6, Rejects: 2, Blank: 1, Comments: 1, Members: 5, LeftOut: 4}
	for _, how := range []string{"none", "gzip", "zstd"} {
		object := data
		if how != "none" {
			object = compressed(t, how, data)
		}
		r, err := New(bytes.NewReader(object), "a.tar", raw.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(r.Plan())
		if err != nil {
			t.Fatal(err)
		}
		var plan raw.Plan
		if err := json.Unmarshal(b, &plan); err != nil {
			t.Fatal(err)
		}
		if plan.Format != raw.Tar || plan.Compression != how {
			t.Errorf("plan %s", b)
		}
		again, err := Open(&oneByte{data: object}, "a.tar", plan)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*Reader{r, again} {
			g, err := readAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, g.Rows); diff != "" {
				t.Errorf("%s: -want +got:\n%s", how, diff)
			}
			if diff := cmp.Diff(counts, g.Counts); diff != "" {
				t.Errorf("%s: counts (-want +got):\n%s", how, diff)
			}
			if notes := r.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "README.md") {
				t.Errorf("notes %q, want one on what was left out", notes)
			}
		}
	}
}

func TestTruncatedArchivesAreErrorsAtEveryLength(t *testing.T) {
	data := tarOf(t, "a.txt", "http://a/\nhttp://b/\n", "c.csv", "url,n\nhttp://c/,1\n")
	end := len(data)
	for _, n := range testenv.Places(512, end, 11, 1024, 1536) {
		r, err := New(bytes.NewReader(data[:n]), "a.tar", raw.Options{})
		if err == nil {
			_, err = readAll(r)
		}
		var de *raw.DataError
		if !errors.As(err, &de) || !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("cut to %d of %d bytes: %v, want a truncated object", n, end, err)
		}
	}
}

func TestDamagedArchivesNameTheirPlace(t *testing.T) {
	data := tarOf(t, "a.txt", "http://a/\nhttp://b/\n", "b.json", "[\"http://c/\"\n5")
	broken := errors.New("connection reset")
	list := []byte(strings.Join(benchURLs(9000), "\n"))
	large := tarOf(t, "a.txt", string(list))
	for _, tc := range []struct {
		name   string
		r      io.Reader
		object string
		line   int64
	}{
		{"a member broken inside", bytes.NewReader(data), "a.tar/b.json", 2},
		{"a wrong sum", bytes.NewReader(append(append(bytes.Clone(data[:1024]), 'x'), data[1025:]...)), "a.tar", 0},
		{"archives joined", bytes.NewReader(append(bytes.Clone(data[:1024+1024]), tarOf(t, "c.txt", "http://a/")...)), "", 0},
		{"gzip that ends inside a member", bytes.NewReader(compressed(t, "gzip", large)[:40_000]), "a.tar/a.txt", -1},
	} {
		r, err := New(tc.r, "a.tar", raw.Options{})
		if err == nil {
			_, err = readAll(r)
		}
		if tc.object == "" {
			continue
		}
		var de *raw.DataError
		if !errors.As(err, &de) || de.Name != tc.object || tc.line >= 0 && de.Line != tc.line || tc.line < 0 && de.Line < 1 {
			t.Errorf("%s: got %v, want a *DataError in %s", tc.name, err, tc.object)
		}
	}
	for _, how := range []string{"none", "gzip"} {
		object := large
		if how != "none" {
			object = compressed(t, how, large)
		}
		r, err := New(io.MultiReader(bytes.NewReader(object[:40_000]), &failing{broken}), "a.tar", raw.Options{})
		if err == nil {
			_, err = readAll(r)
		}
		if !errors.Is(err, broken) || errors.Is(err, raw.ErrInput) {
			t.Errorf("%s: got %v, want the store's error and no ErrInput", how, err)
		}
	}
	joined := append(tarOf(t, "c.txt", "http://a/\n"), data...)
	r, err := New(bytes.NewReader(joined), "a.tar", raw.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(r); !errors.Is(err, raw.ErrInput) {
		t.Errorf("archives joined end to end: %v, want an error", err)
	}
}

func TestTablesInArchivesAreRefused(t *testing.T) {
	for _, log := range []string{"t/_delta_log/0.json", "./t/metadata/v1.metadata.json", "t/.hoodie/hoodie.properties"} {
		data := tarOf(t, "t/a.txt", "http://a/\n", log, "{}", "t/b.txt", "http://b/\n")
		r, err := New(bytes.NewReader(data), "a.tar", raw.Options{SkipUnreadable: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(r)
		var fe *raw.FormatError
		if !errors.As(err, &fe) || fe.Name != "a.tar" || !strings.Contains(fe.Reason, "table") || !strings.Contains(fe.Advice, "./t/") {
			t.Errorf("%s: got %v, want a refused table", log, err)
		}
	}
}

func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, "a.txt", "http://a/\nhttp://b/\n", "d/", "", "README", "x", "c.csv", "url,n\nhttp://c/,1\n"))
	f.Add(tarOf(f, strings.Repeat("long/", 40)+"a.txt", "http://a/\n", "b@", "a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if unpack.CompressionOf(data) == raw.NoCompression && isTar(data) {
			checkReader(t, "a.tar", data, raw.Options{Extras: []string{"*"}, MaxLine: 200})
		}
	})
}
