package treebuild

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/indexbuild/prefixtree"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	_ "github.com/urlake/urlake/lake/blob/s3blob" // inputs in buckets
	"github.com/urlake/urlake/lake/ingest/inventory"
)

// listed is a row of a report, as its Parquet has it.
type listed struct {
	Bucket         string  `parquet:"bucket"`
	Key            string  `parquet:"key"`
	VersionID      *string `parquet:"version_id,optional"`
	IsLatest       *bool   `parquet:"is_latest,optional"`
	IsDeleteMarker *bool   `parquet:"is_delete_marker,optional"`
	Size           *int64  `parquet:"size,optional"`
	StorageClass   *string `parquet:"storage_class,optional"` // which is not read
}

const schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, StorageClass"

// report returns the rows of a report.
func report(n int) (rows []listed) {
	rng := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b+c", "d e", "ü", "", "100%", `q"t`, "x,y", "日本"}
	class := "GLACIER"
	for i := range n {
		var key strings.Builder
		for range rng.IntN(5) {
			key.WriteString(names[rng.IntN(len(names))] + "/")
		}
		fmt.Fprintf(&key, "file %d", i)
		latest, deleted, size := rng.IntN(5) > 0, rng.IntN(10) == 0, rng.Int64N(1<<45)
		row := listed{
			Bucket: "bucket", Key: key.String(), IsLatest: &latest, IsDeleteMarker: &deleted, Size: &size,
			StorageClass: &class,
		}
		if deleted {
			row.Size, row.StorageClass = nil, nil
		} else if i%50 == 0 {
			row.Size = nil
		}
		rows = append(rows, row)
	}
	return rows
}

// csvOf writes rows as CSV.
func csvOf(t *testing.T, rows []listed, header bool, escape func(string) string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	if header {
		_ = w.Write(strings.Split(schema, ", "))
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	for _, r := range rows {
		size := ""
		if r.Size != nil {
			size = strconv.FormatInt(*r.Size, 10)
		}
		_ = w.Write([]string{
			r.Bucket, escape(r.Key), text(r.VersionID), fmt.Sprint(*r.IsLatest), fmt.Sprint(*r.IsDeleteMarker), size,
			text(r.StorageClass),
		})
	}
	if w.Flush(); w.Error() != nil {
		t.Fatal(w.Error())
	}
	return buf.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func parquetOf(t *testing.T, rows []listed) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := pq.NewGenericWriter[listed](&buf)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// manifestOf returns the manifest.json of data files by key.
func manifestOf(t *testing.T, format, fileSchema, bucket string, data map[string][]byte) []byte {
	t.Helper()
	var files []map[string]any
	for key, data := range data {
		sum := md5.Sum(data)
		files = append(files, map[string]any{"key": key, "size": len(data), "MD5checksum": hex.EncodeToString(sum[:])})
	}
	doc, err := json.Marshal(map[string]any{
		"sourceBucket": "bucket", "destinationBucket": "arn:aws:s3:::" + bucket, "version": "2016-11-30",
		"creationTimestamp": "1514944800000", "fileFormat": format, "fileSchema": fileSchema, "files": files,
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// folderOf writes files to a new folder.
func folderOf(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// content returns all files of a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// plainIndex writes the index of objects, whose nodes are found by looking at all of them, and
// returns its folder.
func plainIndex(t *testing.T, format prefixtree.Format, rows []listed) string {
	t.Helper()
	nodes := map[string]*prefixtree.Node{"": {}}
	for _, r := range rows {
		folder := r.Key[:strings.LastIndexByte(r.Key, '/')+1]
		for n := 0; n <= len(folder); n++ {
			prefix := folder[:n]
			if n > 0 && folder[n-1] != '/' {
				continue
			}
			if nodes[prefix] == nil {
				nodes[prefix] = &prefixtree.Node{Depth: uint32(strings.Count(prefix, "/"))}
			}
			node := nodes[prefix]
			node.MaxDepth = max(node.MaxDepth, uint32(strings.Count(folder, "/")))
			if node.Objects++; r.Size != nil {
				node.Bytes += uint64(*r.Size)
			}
		}
	}
	prefixes := slices.Sorted(maps.Keys(nodes))
	out := filepath.Join(t.TempDir(), "index")
	w, err := prefixtree.Create(out, format)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, p := range prefixes {
		node := nodes[p]
		node.Position = uint64(i)
		for at := p; ; {
			nodes[at].End = uint64(i)
			if at == "" {
				break
			}
			at = at[:strings.LastIndexByte(at[:len(at)-1], '/')+1]
		}
		if err := w.Open([]byte(p), int(node.Depth)); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		if err := w.Close(*node); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(t.Context(), 1<<20, time.Time{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// The same objects give the same bytes in whatever order they are listed, however many files list
// them, and however little memory there is.
func TestBytesFollowFromTheObjects(t *testing.T) {
	rows := report(4000)
	for i := range rows {
		yes, no := true, false
		if rows[i].IsLatest, rows[i].IsDeleteMarker = &yes, &no; i%9 == 0 {
			rows[i].Key = []string{"/", "//", "no slash", "a//b", "folder/", "a/\x00/b", "a/\x00\x00\x00\x00\x00\x00/b", "\x01/b"}[i/9%8] + fmt.Sprint(i)
		}
	}
	for _, format := range prefixtree.Formats() {
		want := content(t, plainIndex(t, format, rows))
		rand.New(rand.NewPCG(4, 4)).Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		for _, files := range []int{1, 7} {
			for _, memory := range []int64{1, 0} {
				var inputs []string
				for part := range slices.Chunk(rows, len(rows)/files+1) {
					dir := folderOf(t, map[string][]byte{"x.csv": csvOf(t, part, true, url.QueryEscape)})
					inputs = append(inputs, filepath.Join(dir, "x.csv"))
				}
				out := filepath.Join(t.TempDir(), "index")
				if _, err := Inventory(t.Context(), out, inputs, InventoryOptions{Format: format, MemoryBytes: memory}); err != nil {
					t.Fatal(err)
				}
				if got := content(t, out); !maps.Equal(got, want) {
					t.Errorf("%s, %d files, %d bytes of memory: other files", format, files, memory)
				}
			}
		}
	}
}

// A report without objects has an index with the root alone.
func TestReportWithoutObjects(t *testing.T) {
	dir := folderOf(t, map[string][]byte{"x.csv": []byte("Key\n")})
	for _, format := range prefixtree.Formats() {
		out := filepath.Join(t.TempDir(), "index")
		if _, err := Inventory(t.Context(), out, []string{filepath.Join(dir, "x.csv")}, InventoryOptions{Format: format}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(content(t, out), content(t, plainIndex(t, format, nil))) {
			t.Errorf("%s: other files", format)
		}
	}
}

func plainKey(key string) string { return key }

// However a report is stored, its index is that of the objects that it lists.
func TestEveryFormOfAReportGivesTheSameIndex(t *testing.T) {
	ctx := context.Background()
	rows := report(3000)
	half := len(rows) / 2
	var old, unsized, objects uint64
	var left []listed
	for _, r := range rows {
		if !*r.IsLatest || *r.IsDeleteMarker {
			old++
			continue
		}
		if r.Size == nil {
			unsized++
		}
		objects++
		left = append(left, r)
	}
	want := content(t, plainIndex(t, prefixtree.Seed, left))

	first, second := csvOf(t, rows[:half], false, url.QueryEscape), csvOf(t, rows[half:], false, url.QueryEscape)
	dir := folderOf(t, map[string][]byte{
		"first.csv": first, "second.csv.gz": gzipped(t, second),
		"named.csv":       csvOf(t, rows, true, url.QueryEscape),
		"plain.csv":       csvOf(t, rows, true, plainKey),
		"all.parquet":     parquetOf(t, rows),
		"r/manifest.json": manifestOf(t, "CSV", schema, "reports", map[string][]byte{"x/data/1.csv.gz": gzipped(t, first), "x/data/2.csv.gz": gzipped(t, second)}),
		"r/data/1.csv.gz": gzipped(t, first), "data/2.csv.gz": gzipped(t, second),
		"p/manifest.json": manifestOf(t, "Parquet", "message s3.inventory {}", "reports", map[string][]byte{"x/1.parquet": parquetOf(t, rows)}),
		"p/1.parquet":     parquetOf(t, rows),
	})
	at := func(names ...string) (paths []string) {
		for _, n := range names {
			paths = append(paths, filepath.Join(dir, n))
		}
		return paths
	}
	bucketURL := testenv.S3(t)
	bucket, below, _ := strings.Cut(strings.TrimPrefix(bucketURL, "s3://"), "/")
	store, err := blob.Open(ctx, "s3://"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) string { return strings.TrimPrefix(below+"/"+name, "/") }
	for name, data := range map[string][]byte{
		key("1.csv.gz"): gzipped(t, first), key("2.csv.gz"): gzipped(t, second), key("1.parquet"): parquetOf(t, rows),
		key("manifest.json"): manifestOf(t, "CSV", schema, bucket, map[string][]byte{key("1.csv.gz"): gzipped(t, first), key("2.csv.gz"): gzipped(t, second)}),
	} {
		if _, err := store.Put(ctx, name, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		inputs []string
		csv    inventory.CSV
	}{
		{"schema", at("first.csv", "second.csv.gz"), inventory.CSV{Schema: schema}},
		{"named columns", at("named.csv"), inventory.CSV{}},
		{"plain keys", at("plain.csv"), inventory.CSV{PlainKeys: true}},
		{"Parquet", at("all.parquet"), inventory.CSV{}},
		{"URL of a file", []string{"file://" + filepath.ToSlash(at("all.parquet")[0])}, inventory.CSV{}},
		{"report of CSV", at("r/manifest.json"), inventory.CSV{}},
		{"report of Parquet", at("p/manifest.json"), inventory.CSV{}},
		{"report in a bucket", []string{"s3://" + bucket + "/" + key("manifest.json")}, inventory.CSV{}},
		{"Parquet in a bucket", []string{"s3://" + bucket + "/" + key("1.parquet")}, inventory.CSV{}},
	} {
		out := filepath.Join(t.TempDir(), "index")
		var last InventoryProgress
		r, err := Inventory(ctx, out, c.inputs, InventoryOptions{CSV: c.csv, Progress: func(p InventoryProgress) { last = p }})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if r.Old != old || r.Unsized != unsized || r.Bucket != "bucket" || r.Root.Objects != objects {
			t.Errorf("%s: %+v", c.name, r)
		}
		if last.Files != r.Files || last.Objects != uint64(len(rows)) {
			t.Errorf("%s: the last progress is %+v", c.name, last)
		}
		got := content(t, out)
		for name := range want {
			if got[name] != want[name] {
				t.Errorf("%s: %s differs", c.name, name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d files, want %d", c.name, len(got), len(want))
		}
	}
}

// What cannot be read is named, with the place and the reason, and leaves nothing behind.
func TestBadInputs(t *testing.T) {
	rows := report(10)
	good := gzipped(t, csvOf(t, rows, false, url.QueryEscape))
	other := slices.Clone(rows)
	other[9].Bucket = "another"
	key := "x/1.csv.gz"
	files := map[string][]byte{
		"named.csv":     csvOf(t, rows, true, url.QueryEscape),
		"rows.csv":      csvOf(t, rows, false, url.QueryEscape),
		"other.csv":     csvOf(t, other, true, url.QueryEscape),
		"size.csv":      []byte("key,size\na,1\nb,-1\n"),
		"escape.csv":    []byte("key,size\na,1\n%zz,1\n"),
		"fields.csv":    []byte("key,size\na\n"),
		"quote.csv":     []byte("key,size\na,1\n\"b,1\n"),
		"nokey.csv":     []byte("key,size\n,1\n"),
		"twice.csv":     []byte("key,size,Key\na,1,a\n"),
		"line.csv":      []byte("key\n" + strings.Repeat("x", 200_000) + "\n"),
		"long.csv":      []byte("key\n" + strings.Repeat("x", prefixtree.MaxKey+1) + "\n"),
		"huge.csv":      []byte("key,size\na/b,9223372036854775807\na/c,9223372036854775807\na/d,9223372036854775807\n"),
		"cut.csv.gz":    good[:len(good)/2],
		"cut.parquet":   parquetOf(t, rows)[:200],
		"x.orc":         []byte("ORC rest"),
		"orc.json":      manifestOf(t, "ORC", "struct<bucket:string,key:string>", "b", map[string][]byte{key: good}),
		"away.json":     manifestOf(t, "CSV", schema, "b", map[string][]byte{"x/away.csv.gz": good}),
		"none.json":     manifestOf(t, "CSV", schema, "b", nil),
		"else.json":     []byte(`{"a": 1}`),
		"md5.json":      bytes.Replace(manifestOf(t, "CSV", schema, "b", map[string][]byte{key: good}), []byte(`"MD5checksum":"`), []byte(`"MD5checksum":"00`), 1),
		"size.json":     bytes.Replace(manifestOf(t, "CSV", schema, "b", map[string][]byte{key: good}), []byte(`"size":`), []byte(`"size":1`), 1),
		"schema.json":   manifestOf(t, "CSV", "Bucket, Size", "b", map[string][]byte{key: good}),
		"good.json":     manifestOf(t, "CSV", schema, "b", map[string][]byte{key: good}),
		"data/1.csv.gz": good,
	}
	dir := folderOf(t, files)
	err := errors.Join(os.Symlink("named.csv", filepath.Join(dir, "link.csv")), os.Symlink(".", filepath.Join(dir, "linked")),
		os.Link(filepath.Join(dir, "named.csv"), filepath.Join(dir, "hard.csv")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		inputs string
		csv    inventory.CSV
		want   []string
	}{
		{"absent.csv", inventory.CSV{}, []string{"absent.csv", "no such file"}},
		{"data", inventory.CSV{}, []string{"it is a folder"}},
		{"rows.csv", inventory.CSV{}, []string{"rows.csv", "first line has no column key", "manifest.json"}},
		{"rows.csv", inventory.CSV{Schema: "Bucket, Size"}, []string{"schema has no column key"}},
		{"rows.csv", inventory.CSV{Schema: "Bucket, Key"}, []string{"line 1", "wrong number of fields"}},
		{"other.csv", inventory.CSV{}, []string{"another and bucket", "a tree for each bucket"}},
		{"size.csv", inventory.CSV{}, []string{"line 3", `size of b is "-1"`}},
		{"escape.csv", inventory.CSV{}, []string{"line 3", "URL-encoded", "%zz"}},
		{"fields.csv", inventory.CSV{}, []string{"line 2", "wrong number of fields"}},
		{"quote.csv", inventory.CSV{}, []string{"line 3", "quote"}},
		{"nokey.csv", inventory.CSV{}, []string{"line 2", "no key"}},
		{"twice.csv", inventory.CSV{}, []string{"two columns key"}},
		{"line.csv", inventory.CSV{}, []string{"too long for a list of objects"}},
		{"long.csv", inventory.CSV{}, []string{"8193 bytes, at most 8192"}},
		{"huge.csv", inventory.CSV{}, []string{"exceeds 64 bits"}},
		{"cut.csv.gz", inventory.CSV{Schema: schema}, []string{"cut.csv.gz", "EOF"}},
		{"cut.parquet", inventory.CSV{}, []string{"cut.parquet"}},
		{"x.orc", inventory.CSV{}, []string{"ORC", "CSV or Parquet"}},
		{"orc.json", inventory.CSV{}, []string{"ORC", "CSV or Parquet"}},
		{"away.json", inventory.CSV{}, []string{"x/away.csv.gz is not there", filepath.Join(dir, "data", "away.csv.gz")}},
		{"none.json", inventory.CSV{}, []string{"lists no files"}},
		{"else.json", inventory.CSV{}, []string{"no manifest.json"}},
		{"md5.json", inventory.CSV{}, []string{"1.csv.gz", "its MD5 is"}},
		{"size.json", inventory.CSV{}, []string{"1.csv.gz", "bytes, and"}},
		{"schema.json", inventory.CSV{}, []string{"fileSchema has no column key"}},
		{"named.csv named.csv", inventory.CSV{}, []string{"would count twice"}},
		{"good.json data/1.csv.gz", inventory.CSV{}, []string{"1.csv.gz is listed by", "would count twice"}},
		{"named.csv ./data/../named.csv", inventory.CSV{}, []string{"named.csv already", "would count twice"}},
		{"named.csv link.csv", inventory.CSV{}, []string{"link.csv is listed by", "would count twice"}},
		{"hard.csv named.csv", inventory.CSV{}, []string{"named.csv is listed by", "would count twice"}},
		{"good.json linked/good.json", inventory.CSV{}, []string{"1.csv.gz is listed by", "would count twice"}},
		{"ftp://host/x", inventory.CSV{}, []string{"ftp://host/x"}},
		{"file://host/x", inventory.CSV{}, []string{"file:///path"}},
	} {
		var inputs []string
		for _, name := range strings.Fields(c.inputs) {
			if !strings.Contains(name, "://") {
				name = dir + "/" + name // as it is spelled
			}
			inputs = append(inputs, name)
		}
		parent := t.TempDir()
		_, err := Inventory(context.Background(), filepath.Join(parent, "index"), inputs, InventoryOptions{CSV: c.csv})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", c.inputs, err, want)
			}
		}
		left, rerr := os.ReadDir(parent)
		if rerr != nil || len(left) > 0 {
			t.Errorf("%s: %v is left (%v)", c.inputs, left, rerr)
		}
	}
	out := t.TempDir()
	if _, err := Inventory(context.Background(), out, []string{filepath.Join(dir, "named.csv")}, InventoryOptions{}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("built in a folder that exists: %v", err)
	}
	if _, err := Inventory(context.Background(), filepath.Join(out, "a", "b"), []string{filepath.Join(dir, "named.csv")}, InventoryOptions{}); err == nil {
		t.Error("built in a folder whose parent does not exist")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Inventory(ctx, filepath.Join(out, "x"), []string{filepath.Join(dir, "named.csv")}, InventoryOptions{}); err == nil {
		t.Error("built although the context has ended")
	}
}
