package ingest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// TestParquetAndArchivesAreIngested reads a Parquet file, which needs random access, and an archive from a
// folder and from a bucket, and names rejects by member and row.
func TestParquetAndArchivesAreIngested(t *testing.T) {
	ctx := context.Background()
	type row struct {
		URL string `parquet:"url"`
	}
	var rows []row
	want := newOracle()
	for i := range 5000 {
		u := fmt.Sprintf("http://h%d.example%d.org/p/%d", i%7, i%50, i)
		want.add(u, lake.Row{}, false)
		rows = append(rows, row{u})
	}
	rows = append(rows, row{""})
	want.records++
	want.rejected["no_url"]++
	var table bytes.Buffer
	w := parquet.NewGenericWriter[row](&table)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	for _, m := range [][2]string{{"README.md", "http://no.example/\n"}, {"list one.txt", "http://a.example/\nno url here\n"}, {"b.csv", "url,n\nhttp://b.example/,1\n"}} {
		if err := tw.WriteHeader(&tar.Header{Name: m[0], Typeflag: tar.TypeReg, Size: int64(len(m[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, m[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"http://a.example/", "no url here", "http://b.example/"} {
		want.add(u, lake.Row{}, false)
	}
	dir := folder(t, map[string]string{"t.parquet": table.String(), "lists.tar": archive.String()})
	bucket := blob.NewMemory()
	for _, name := range []string{"t.parquet", "lists.tar"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.Put(ctx, "in/"+name, data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, bucket)
	for in, places := range map[string][]string{
		dir:               {"file://" + filepath.ToSlash(dir) + "/lists.tar/list%20one.txt line 2 (byte 18)", "file://" + filepath.ToSlash(dir) + "/t.parquet row 5001"},
		"s3://bucket/in/": {"s3://bucket/in/lists.tar/list one.txt line 2 (byte 18)", "s3://bucket/in/t.parquet row 5001"},
	} {
		store := blob.NewMemory()
		got, err := steps(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{in}}, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		want.check(t, store, got)
		b := readBatch(t, store, got.BatchKey)
		var formats, found []string
		for _, i := range b.Inputs {
			formats = append(formats, i.Format)
		}
		for _, r := range rejectLines(t, store, b.Rejects) {
			place, _, _ := strings.Cut(r.String(), ": ")
			found = append(found, place)
		}
		if diff := cmp.Diff([]string{"tar", "parquet"}, formats); diff != "" {
			t.Errorf("formats (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(places, found); diff != "" {
			t.Errorf("places of rejects (-want +got):\n%s", diff)
		}
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "README.md") {
			t.Errorf("notes %q, want one on the member left out", got.Notes)
		}
	}

	// What cannot be read is named with its member, and cut objects are called so.
	cut := archive.Bytes()[:archive.Len()-1500]
	for name, data := range map[string][]byte{"cut.tar": cut, "cut.parquet": table.Bytes()[:table.Len()-100]} {
		dir := folder(t, map[string]string{name: string(data)})
		_, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}}, ingest.Limits{})
		var input *ingest.InputError
		if !errors.As(err, &input) || !strings.Contains(input.Object, name) || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("%s: got %v, want a truncated object", name, err)
		}
	}
}

// TestSplitOfParquetReadsItsRowGroupsAlone counts what a split of a Parquet file in a bucket reads of it.
func TestSplitOfParquetReadsItsRowGroupsAlone(t *testing.T) {
	ctx := context.Background()
	var rows []linked
	for i := range 4000 {
		rows = append(rows, linked{Links: []string{fmt.Sprintf("http://h.example/%d/%s", i, strings.Repeat("x", 200))}})
	}
	data := rowGroups(t, rows)
	bucket := blob.NewMemory()
	if _, err := bucket.Put(ctx, "in/t.parquet", []byte(data), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	l := ingest.Limits{Split: int64(len(data)) / 10}
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{"s3://bucket/in/"}}
	ingest.BehindS3(t, bucket)
	store := blob.NewMemory()
	plan, err := ingest.MakePlanWithin(ctx, store, "run", spec, l)
	if err != nil || plan.Splits < 9 || plan.Bytes != int64(len(data)) {
		t.Fatalf("%+v, %v", plan, err)
	}
	footer := 8 + int64(binary.LittleEndian.Uint32([]byte(data[len(data)-8:])))
	var records, bytes int64
	for split := range plan.Splits {
		counting := blob.NewCounting(bucket)
		ingest.BehindS3(t, counting)
		res, err := ingest.NormalizeWithin(ctx, store, "run", split, l)
		if err != nil {
			t.Fatal(err)
		}
		records += res.Records
		bytes += res.Bytes
		if got := counting.Count(blob.OpReadRange).Bytes; got > res.Bytes+footer {
			t.Errorf("split %d of %d bytes read %d", split, res.Bytes, got)
		}
		if n := counting.Count(blob.OpOpen); n.Requests > 0 {
			t.Errorf("split %d opened the object from its beginning %d times", split, n.Requests)
		}
	}
	if records != int64(len(rows)) || bytes != int64(len(data)) {
		t.Errorf("%d records of %d bytes, want %d of %d", records, bytes, len(rows), len(data))
	}
}
