package ingest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/row"
)

// TestParquetAndArchivesAreIngested reads a Parquet file, which needs random access, and an
// archive, from a folder and from a bucket. Rejects have to be named by member and row.
func TestParquetAndArchivesAreIngested(t *testing.T) {
	ctx := context.Background()
	type listed struct {
		URL string `parquet:"url"`
	}
	var rows []listed
	want := newOracle()
	for i := range 5000 {
		u := fmt.Sprintf("http://h%d.example%d.org/p/%d", i%7, i%50, i)
		want.add(u, row.Row{}, false)
		rows = append(rows, listed{u})
	}
	rows = append(rows, listed{""})
	want.records++
	want.rejected["no_url"]++
	var table bytes.Buffer
	w := parquet.NewGenericWriter[listed](&table)
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
		want.add(u, row.Row{}, false)
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
			t.Errorf("locations of rejects (-want +got):\n%s", diff)
		}
		if len(got.Notes) != 2 || !strings.Contains(got.Notes[0], "README.md") || !strings.Contains(got.Notes[1], "URLs with a space inside, which becomes %20: 1;") {
			t.Errorf("notes %q, want one about the skipped member and one about a URL with a space", got.Notes)
		}
	}

	// Errors name the member, and say if the object is truncated.
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

// TestSplitOfParquetReadsOnlyItsRowGroups counts the bytes that each split reads of a Parquet file
// in a bucket.
func TestSplitOfParquetReadsOnlyItsRowGroups(t *testing.T) {
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

// TestSameRecordsInEveryFormatMakeTheSameParts writes the same URLs, times and sizes in every
// format, notation and packing that is read, and compares the keys of the parts, which are digests
// of their rows.
func TestSameRecordsInEveryFormatMakeTheSameParts(t *testing.T) {
	ctx := context.Background()
	type record struct {
		URL   string    `parquet:"url" json:"url"`
		When  time.Time `parquet:"when,timestamp(millisecond)" json:"when"`
		Bytes int64     `parquet:"bytes" json:"bytes"`
		Title string    `parquet:"title" json:"title"`
	}
	type nested struct {
		Site struct {
			Pages []record `parquet:"pages,list" json:"pages"`
		} `parquet:"site" json:"site"`
	}
	var records []record
	for i := range 50 {
		records = append(records, record{fmt.Sprintf("http://h%d.example%d.org/p/%d?a=%d", i%7, i%5, i, i), time.Unix(1_700_000_000+int64(i)*86_400, 0).UTC(), int64(10 * i), fmt.Sprintf("title \"%d\",\nof two lines", i)})
	}
	text := func(format string, args func(i int, r record) []any) string {
		var b strings.Builder
		for i, r := range records {
			fmt.Fprintf(&b, format, args(i, r)...)
		}
		return b.String()
	}
	cells := func(comma rune, crlf bool, header []string, row func(i int, r record) []string) string {
		var b strings.Builder
		w := csv.NewWriter(&b)
		w.Comma, w.UseCRLF = comma, crlf
		if header != nil {
			w.Write(header)
		}
		for i, r := range records {
			w.Write(row(i, r))
		}
		w.Flush()
		return b.String()
	}
	times := func(layout string) string {
		return cells(',', false, []string{"url", "when", "bytes"}, func(_ int, r record) []string {
			return []string{r.URL, r.When.Format(layout), fmt.Sprint(r.Bytes)}
		})
	}
	number := func(format string, per float64) string {
		return cells(',', false, []string{"url", "when", "bytes"}, func(_ int, r record) []string {
			return []string{r.URL, fmt.Sprintf(format, float64(r.When.Unix())*per), fmt.Sprint(r.Bytes)}
		})
	}
	marshal := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	byName := map[string]record{}
	var pages nested
	for i, r := range records {
		byName[fmt.Sprint(i)] = r
	}
	pages.Site.Pages = records
	header := []string{"id", "url", "when", "bytes", "title"}
	row := func(i int, r record) []string {
		return []string{fmt.Sprint(i), r.URL, r.When.Format(time.RFC3339), fmt.Sprint(r.Bytes), r.Title}
	}
	digits := func(r record) string { return r.When.Format("20060102150405") }
	eleven := func(i int, r record) []any { return []any{digits(r), r.URL, r.Bytes, i} }
	named := ingest.Spec{URLColumn: "url", TSColumn: "when", SizeField: "bytes"}
	none := []string{"none"}
	numbered := ingest.Spec{URLColumn: "2", TSColumn: "3", SizeField: "4"}
	in := func(format string) ingest.Spec { s := named; s.TSFormat = format; return s }
	table := cells(',', true, header, row)
	forms := []struct {
		name, text string
		spec       ingest.Spec
	}{
		{"csv", table, named},
		{"csv by number", table, numbered},
		{"csv behind a byte order mark", "\ufeff" + table, named},
		{"semicolons", cells(';', false, header, row), named},
		{"csv without a header", cells(',', false, nil, row), numbered},
		{"csv without a header, the URL guessed", cells(',', false, nil, row), ingest.Spec{TSColumn: "3", SizeField: "4"}},
		{"csv in another order", cells('|', false, []string{"bytes", "when", "url"}, func(_ int, r record) []string {
			return []string{fmt.Sprint(r.Bytes), r.When.Format(time.RFC3339), r.URL}
		}), named},
		{"tsv", text("%s\t%s\t%d\n", func(_ int, r record) []any { return []any{r.URL, r.When.Format(time.RFC3339), r.Bytes} }), ingest.Spec{TSColumn: "2", SizeField: "3"}},
		{"json lines", text("%s\n", func(_ int, r record) []any { return []any{marshal(r)} }), named},
		{"nested json lines", text("{\"a\":%s}\n", func(_ int, r record) []any { return []any{marshal(r)} }), ingest.Spec{TSColumn: "a.when", SizeField: "a.bytes"}},
		{"array", marshal(records), named},
		{"array over lines", strings.ReplaceAll(marshal(records), "},{", "}\n,\n {"), named},
		{"object of records", marshal(byName), named},
		{"object around an array", marshal(pages), named},
		{"cdx of 11", text("key %s %s text/html 200 AAAA - - %d %d f.warc.gz\n", eleven), ingest.Spec{SizeField: "length", Extras: none}},
		{"cdx of 11 with legend", " CDX N b a m s k r M S V g\n" + text("key %s %s text/html 200 AAAA - - %d %d f.warc.gz\n", eleven), ingest.Spec{SizeField: "length", Extras: none}},
		{"cdx of 9, its sizes where offsets stand", text("key %s %s text/html 200 AAAA - %d f.warc.gz\n", func(_ int, r record) []any { return []any{digits(r), r.URL, r.Bytes} }), ingest.Spec{SizeField: "offset", Extras: none}},
		{"cdxj", text("key %s {\"url\":%q,\"length\":\"%d\"}\n", func(_ int, r record) []any { return []any{digits(r), r.URL, r.Bytes} }), ingest.Spec{SizeField: "length", Extras: none}},
		{"parquet", parquetOf(t, records), named},
		{"nested parquet", parquetOf(t, []nested{pages, {}}), ingest.Spec{URLColumn: "site.pages.url", TSColumn: "site.pages.when", SizeField: "site.pages.bytes"}},
		{"local time with zone", times("2006-01-02 15:04:05-0700"), named},
		{"14 digits", times("20060102150405"), named},
		{"seconds", number("%.0f", 1), named},
		{"seconds with a fraction", number("%.3f", 1), named},
		{"seconds with an exponent", number("%.9e", 1), named},
		{"milliseconds", number("%.0f", 1e3), named},
		{"microseconds", number("%.0f", 1e6), named},
		{"nanoseconds", number("%.0f", 1e9), named},
		{"strftime", times("1/2/2006 15:04:05"), in("%m/%d/%Y %H:%M:%S")},
		{"a log's time", times("02/Jan/2006:15:04:05 -0700"), in("%d/%b/%Y:%H:%M:%S %z")},
		{"a layout of Go's", times(time.RFC1123), in(time.RFC1123)},
	}
	parts := func(name string, data string, spec ingest.Spec) []string {
		t.Helper()
		spec.Dataset, spec.Batch, spec.Inputs = "d", "b", []string{folder(t, map[string]string{"x": data})}
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, ingest.Limits{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		var keys []string
		for _, p := range readBatch(t, store, f.BatchKey).Parts {
			keys = append(keys, p.Key)
		}
		return keys
	}
	want := parts(forms[0].name, forms[0].text, forms[0].spec)
	if len(want) == 0 {
		t.Fatal("no parts")
	}
	for _, form := range forms {
		half := len(form.text) / 2
		members := gzipped(t, form.text[:half]) + gzipped(t, "") + gzipped(t, form.text[half:]) + "\x00\x00"
		for packing, data := range map[string]string{"plain": form.text, "gzip members": members, "tar": tarred(t, form.text), "gzip in tar in gzip": gzipped(t, tarred(t, members))} {
			if diff := cmp.Diff(want, parts(form.name+", "+packing, data, form.spec)); diff != "" {
				t.Errorf("%s, %s: %s", form.name, packing, diff)
			}
		}
	}
}

func parquetOf[T any](t *testing.T, rows []T) string {
	t.Helper()
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[T](&buf)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// tarred returns an archive of one member.
func tarred(t *testing.T, text string) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: "in/x", Typeflag: tar.TypeReg, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// TestPagesOfParquetNeedTheirMemory holds that a step with too little memory for pages ends with an
// error that is not the input's, and that the same step succeeds with more.
func TestPagesOfParquetNeedTheirMemory(t *testing.T) {
	type record struct {
		URL string `parquet:"url"`
	}
	var buf, archive bytes.Buffer
	w := parquet.NewGenericWriter[record](&buf, parquet.PageBufferSize(1<<20))
	for i := range 40_000 {
		if _, err := w.Write([]record{{fmt.Sprintf("http://a.example/%d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(&archive)
	if err := tw.WriteHeader(&tar.Header{Name: "m.parquet", Mode: 0o600, Size: int64(buf.Len())}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write(buf.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"a.parquet": buf.String(), "a.tar": archive.String()} {
		t.Run(name, func(t *testing.T) {
			store := blob.NewMemory()
			spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{folder(t, map[string]string{name: data})}}
			if _, err := ingest.MakePlan(t.Context(), store, "run", spec); err != nil {
				t.Fatal(err)
			}
			_, err := ingest.Normalize(ingest.WithPageMemory(t.Context(), 300_000), store, "run", 0, nil)
			var input *ingest.InputError
			if !errors.Is(err, ingest.ErrPageMemory) || errors.As(err, &input) || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want that pages need more memory", err)
			}
			r, err := ingest.Normalize(ingest.WithPageMemory(t.Context(), 8<<20), store, "run", 0, nil)
			if err != nil || r.Kept != 40_000 {
				t.Errorf("%d rows, %v", r.Kept, err)
			}
		})
	}
}
