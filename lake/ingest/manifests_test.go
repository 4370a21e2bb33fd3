package ingest_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pq "github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// listed is a row of a report as S3 Inventory writes Parquet.
type listed struct {
	Bucket         string    `parquet:"bucket"`
	Key            string    `parquet:"key"`
	VersionID      *string   `parquet:"version_id,optional"`
	IsLatest       *bool     `parquet:"is_latest,optional"`
	IsDeleteMarker *bool     `parquet:"is_delete_marker,optional"`
	Size           *int64    `parquet:"size,optional"`
	LastModified   time.Time `parquet:"last_modified_date,timestamp"`
	ETag           *string   `parquet:"e_tag,optional"`
}

// keys are the objects of the bucket in these tests: names that CSV escapes, and what a selection
// leaves out.
var keys = []string{"crawl/a b+c&d.txt", "crawl/ü,\"x\".txt", "crawl/plain.txt", "crawl/old.csv", "crawl/_SUCCESS"}

// bucketWith puts objects into a bucket and returns their rows in a report.
func bucketWith(t *testing.T) (*blob.Memory, []listed) {
	t.Helper()
	bucket := blob.NewMemory()
	var rows []listed
	yes, no := true, false
	for i, key := range keys {
		info, err := bucket.Put(context.Background(), key, []byte(urls(fmt.Sprintf("h%d.example", i), i+1)), blob.Condition{})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, listed{Bucket: "bucket", Key: key, IsLatest: &yes, IsDeleteMarker: &no, Size: &info.Size, ETag: &info.ETag})
	}
	zero := int64(0)
	rows = append(rows,
		listed{Bucket: "bucket", Key: "crawl/plain.txt", IsLatest: &no, IsDeleteMarker: &no, Size: &zero, ETag: rows[0].ETag},
		listed{Bucket: "bucket", Key: "crawl/deleted.txt", IsLatest: &yes, IsDeleteMarker: &yes},
		listed{Bucket: "bucket", Key: "crawl/", IsLatest: &yes, IsDeleteMarker: &no, Size: &zero, ETag: rows[0].ETag})
	ingest.BehindS3(t, bucket)
	return bucket, rows
}

const csvSchema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag"

// inventoryCSV writes rows as S3 Inventory does: every field in quotes, keys escaped.
func inventoryCSV(t *testing.T, rows []listed) []byte {
	t.Helper()
	var s strings.Builder
	for _, r := range rows {
		size, etag := "", ""
		if r.Size != nil {
			size, etag = fmt.Sprint(*r.Size), *r.ETag
		}
		fmt.Fprintf(&s, "%q,%q,\"\",\"%v\",\"%v\",%q,\"2026-01-01T00:00:00.000Z\",%q\n", r.Bucket, url.QueryEscape(r.Key),
			*r.IsLatest, *r.IsDeleteMarker, size, etag)
	}
	return []byte(gzipped(t, s.String()))
}

func inventoryParquet(t *testing.T, rows []listed) []byte {
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

// manifestOf returns a manifest.json of one data file.
func manifestOf(t *testing.T, format, schema, key string, data []byte) []byte {
	t.Helper()
	sum := md5.Sum(data)
	out, err := json.Marshal(map[string]any{
		"sourceBucket": "bucket", "destinationBucket": "arn:aws:s3:::reports", "version": "2016-11-30",
		"creationTimestamp": "1514944800000", "fileFormat": format, "fileSchema": schema,
		"files": []any{map[string]any{"key": key, "size": len(data), "MD5checksum": hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAManifestListsTheInputs reads reports in the bucket and copies of them in a folder, and
// compares the rows with those of the same objects given by name.
func TestAManifestListsTheInputs(t *testing.T) {
	ctx := context.Background()
	bucket, rows := bucketWith(t)
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{"s3://bucket/crawl/"}, Exclude: []string{"*.csv"}}
	rowsOf := func(spec ingest.Spec) (rows []string) {
		t.Helper()
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		b := readBatch(t, store, f.BatchKey)
		for _, in := range b.Inputs {
			rows = append(rows, in.Name)
		}
		for _, r := range batchRows(t, store, b) {
			rows = append(rows, r.Domain+r.PathQuery)
		}
		return append(rows, f.Notes...)
	}
	want := rowsOf(spec)
	if len(want) != 3+6+2 {
		t.Fatalf("%q", want)
	}
	dir := t.TempDir()
	var manifests []string
	for i, c := range []struct {
		format, schema string
		data           []byte
	}{
		{"CSV", csvSchema, inventoryCSV(t, rows)},
		{"Parquet", "message s3.inventory { required binary bucket (UTF8); }", inventoryParquet(t, rows)},
	} {
		key := fmt.Sprintf("reports/bucket/%d/data/x.data", i)
		manifest := manifestOf(t, c.format, c.schema, key, c.data)
		for name, data := range map[string][]byte{key: c.data, fmt.Sprintf("reports/bucket/%d/2026-01-01T00-00Z/manifest.json", i): manifest} {
			if _, err := bucket.Put(ctx, name, data, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), data)
		}
		flat := filepath.Join(dir, fmt.Sprint("flat", i))
		write(t, filepath.Join(flat, "manifest.json"), manifest)
		write(t, filepath.Join(flat, "x.data"), c.data)
		at := fmt.Sprintf("/reports/bucket/%d/2026-01-01T00-00Z/manifest.json", i)
		manifests = append(manifests, "s3://bucket"+at, dir+at, flat+"/manifest.json")
	}
	list := filepath.Join(dir, "list.txt.gz")
	write(t, list, []byte(gzipped(t, "\ufeff# the crawl\r\ns3://bucket/crawl/\r\n\r\n")))
	for _, m := range append(manifests, list) {
		spec := spec
		spec.Inputs, spec.Manifests = nil, []string{m}
		if diff := cmp.Diff(want, rowsOf(spec)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", m, diff)
		}
	}
	// Both at once name each object once.
	spec.Manifests = manifests
	if diff := cmp.Diff(want[:9], rowsOf(spec)[:9]); diff != "" {
		t.Errorf("inputs and manifests: -want +got:\n%s", diff)
	}
}

// TestAReportIsCheckedAgainstTheObjects has an object that was changed after its report, and a
// report without sizes.
func TestAReportIsCheckedAgainstTheObjects(t *testing.T) {
	ctx := context.Background()
	bucket, rows := bucketWith(t)
	dir := t.TempDir()
	put := func(schema string, data []byte) ingest.Spec {
		write(t, dir+"/x.csv.gz", data)
		write(t, dir+"/manifest.json", manifestOf(t, "CSV", schema, "p/data/x.csv.gz", data))
		return ingest.Spec{Dataset: "d", Batch: "b", Manifests: []string{dir + "/manifest.json"}}
	}
	short := []byte(gzipped(t, "\"bucket\",\"crawl%2Fplain.txt\"\n"))
	f, err := steps(ctx, blob.NewMemory(), "run", put("Bucket, Key", short), ingest.Limits{})
	if err != nil || f.Rows != 3 {
		t.Errorf("a report without sizes: %d rows, %v", f.Rows, err)
	}
	if _, err := bucket.Put(ctx, "crawl/plain.txt", []byte(urls("new.example", 1)), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	_, err = steps(ctx, blob.NewMemory(), "run", put(csvSchema, inventoryCSV(t, rows)), ingest.Limits{})
	if err == nil || !strings.Contains(err.Error(), "s3://bucket/crawl/plain.txt: the object was changed since it was listed") {
		t.Errorf("a changed object: %v", err)
	}
	_, err = steps(ctx, blob.NewMemory(), "run", put("Bucket, Key", []byte(gzipped(t, "\"bucket\",\"gone.txt\"\n"))), ingest.Limits{})
	if err == nil || !strings.Contains(err.Error(), "s3://bucket/gone.txt: no such object") {
		t.Errorf("an object that is gone: %v", err)
	}
}

func TestBadManifests(t *testing.T) {
	ctx := context.Background()
	_, rows := bucketWith(t)
	dir := t.TempDir()
	good := inventoryCSV(t, rows)
	cases := map[string]struct {
		manifest, data []byte
		want           string
	}{
		"orc":       {manifestOf(t, "ORC", "struct<bucket:string,key:string>", "x", good), nil, "ORC, which is not read; have the inventory written as CSV or Parquet"},
		"other":     {[]byte(`{"a": 1}`), nil, "no manifest.json of S3 Inventory"},
		"broken":    {[]byte(`{"a": `), nil, "no manifest.json of S3 Inventory"},
		"no key":    {manifestOf(t, "CSV", "Bucket, Size", "x", good), good, "no column key"},
		"format":    {manifestOf(t, "XML", "Bucket, Key", "x", good), good, `"XML"; want CSV or Parquet`},
		"no file":   {manifestOf(t, "CSV", csvSchema, "x", good), nil, "its data file x is not there; looked for "},
		"size":      {manifestOf(t, "CSV", csvSchema, "x", good), good[:len(good)-1], "bytes, and "},
		"checksum":  {bytes.Replace(manifestOf(t, "CSV", csvSchema, "x", good), []byte(`"MD5checksum":"`), []byte(`"MD5checksum":"0`), 1), good, "its MD5 is "},
		"columns":   {manifestOf(t, "CSV", "Bucket, Key", "x", good), good, "wrong number of fields"},
		"no gzip":   {manifestOf(t, "CSV", csvSchema, "x", []byte("a,b\n")), []byte("a,b\n"), "not compressed with gzip"},
		"long line": {manifestOf(t, "CSV", "Bucket, Key", "x", []byte(gzipped(t, strings.Repeat("x", 1<<20)))), []byte(gzipped(t, strings.Repeat("x", 1<<20))), "a row has more than 65536 bytes"},
		"parquet":   {manifestOf(t, "Parquet", "m", "x", good), good, "x"},
		"a line":    {[]byte("# fine\n" + dir + "/none.txt\n"), nil, "line 2 (byte 7): file://" + dir + "/none.txt: no such file"},
		"relative":  {[]byte("a.txt\n"), nil, "line 1 (byte 0): a.txt: want an absolute path"},
		"empty":     {[]byte("\n"), nil, "it lists nothing"},
	}
	for name, c := range cases {
		m := filepath.Join(dir, name, "manifest.json")
		write(t, m, c.manifest)
		if c.data != nil {
			write(t, filepath.Join(dir, name, "x"), c.data)
		}
		_, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Batch: "b", Manifests: []string{m}}, ingest.Limits{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	none := ingest.Spec{Dataset: "d", Batch: "b", Manifests: []string{"s3://bucket/none/manifest.json"}}
	if _, err := steps(ctx, blob.NewMemory(), "run", none, ingest.Limits{}); err == nil ||
		!strings.Contains(err.Error(), "s3://bucket/none/manifest.json: there is nothing there") {
		t.Errorf("a manifest that does not exist: %v", err)
	}
}
