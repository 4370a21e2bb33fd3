package ingest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// tarOf makes an archive of names and contents, which follow one another.
func tarOf(t *testing.T, members ...string) string {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(members); i += 2 {
		h := tar.Header{Name: members[i], Mode: 0o600, Size: int64(len(members[i+1])), Format: tar.FormatGNU}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(members[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// urls returns n lines, each the URL of a page of one host.
func urls(host string, n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "http://%s/%d\n", host, i)
	}
	return s.String()
}

// TestUnreadableFilesAreSkippedAndNamed has every kind of file that cannot be read beside files
// that can. What is kept does not depend on how the batch is split.
func TestUnreadableFilesAreSkippedAndNamed(t *testing.T) {
	ctx := context.Background()
	damaged := gzipped(t, urls("damaged.example", 200_000))
	damaged = damaged[:len(damaged)/2]
	member := []byte(gzipped(t, urls("member.example", 5)))
	member[len(member)-6] ^= 1 // its checksum
	dir := folder(t, map[string]string{
		"a.txt":      urls("a.example", 3),
		"b.xml":      "<a></a>",
		"c.csv":      "name,size\nx,1\ny,2\n",
		"d.txt.gz":   damaged,
		"e.idx":      "com,example)/ 20200101000000\ta.cdx.gz\t0\t188\t1\ncom,example)/b 20200101000000\ta.cdx.gz\t188\t190\t2\n",
		"f.parquet":  "PAR1" + strings.Repeat("x", 40) + "PAR1",
		"g/z.txt":    urls("z.example", 2),
		"t.tar":      tarOf(t, "one.txt", urls("one.example", 4), "no.csv", "name,n\nx,1\n", "bad.gz", string(member), "two.txt", urls("two.example", 1)),
		"u.tar":      tarOf(t, "only.xml", "<a/>"),
		"empty.csv":  "",
		"y.json.bz2": "BZh91AY&SY but no more than that",
	})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	if _, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{}); err == nil || !strings.Contains(err.Error(), "--skip-unreadable") {
		t.Fatalf("without the option: %v", err)
	}
	spec.SkipUnreadable = true
	var first []byte
	for _, l := range []ingest.Limits{{}, {Split: 1, Object: 1}, {Split: 4096, Object: 1}} {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, l)
		if err != nil {
			t.Fatal(err)
		}
		b := readBatch(t, store, f.BatchKey)
		var rejected int64
		for _, n := range b.Rejected {
			rejected += n
		}
		if b.Records != b.Rows+b.Merged+rejected {
			t.Errorf("%d records, %d rows, %d merged, %d rejected", b.Records, b.Rows, b.Merged, rejected)
		}
		hosts := map[string]int{}
		for _, r := range batchRows(t, store, b) {
			hosts[r.Domain]++
		}
		half := hosts["damaged.example"]
		delete(hosts, "damaged.example")
		want := map[string]int{"a.example": 3, "z.example": 2, "one.example": 4, "two.example": 1, "member.example": 5}
		if diff := cmp.Diff(want, hosts); diff != "" || half < 50_000 || half > 150_000 {
			t.Errorf("%d of the damaged file; -want +got: %s", half, diff)
		}
		names := map[string]string{}
		for _, u := range b.Unread {
			names[strings.TrimPrefix(u.Name, "file://"+dir+"/")] = u.Reason
		}
		for name, reason := range map[string]string{
			"b.xml": "XML", "c.csv": "URL", "d.txt.gz": "truncated", "e.idx": "ZipNum", "f.parquet": "footer",
			"t.tar/no.csv": "URL", "t.tar/bad.gz": "checksum", "u.tar/only.xml": "XML", "y.json.bz2": "",
		} {
			if got, ok := names[name]; !ok || !strings.Contains(got, reason) {
				t.Errorf("%s: %q, want %q", name, got, reason)
			}
			delete(names, name)
		}
		if len(names) > 0 || b.UnreadCount != 9 || f.UnreadCount != 9 || len(f.Unread) != 9 {
			t.Errorf("%d unread, also %v", b.UnreadCount, names)
		}
		data, _, err := store.Get(ctx, f.BatchKey)
		if first == nil {
			first = data
		}
		if err != nil || !bytes.Equal(data, first) {
			t.Errorf("%v, the record depends on the splits:\n%s", err, cmp.Diff(string(first), string(data)))
		}
	}
}

// TestSkippingStillFails has what --skip-unreadable does not skip.
func TestSkippingStillFails(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"a.xml": "<a/>", "b.xml": "<b/>"})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, SkipUnreadable: true}
	_, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{})
	if err == nil || !strings.Contains(err.Error(), "no records; 2 files cannot be read, the first is file://"+dir+"/a.xml: it is XML") {
		t.Errorf("nothing to read: %v", err)
	}
	spec.Inputs = []string{dir + "/none"}
	if _, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no such file: %v", err)
	}
	// A file that is changed while it is read is not one that cannot be read.
	dir = folder(t, map[string]string{"a.txt": urls("a.example", 2), "b.gz": gzipped(t, urls("b.example", 2))})
	spec.Inputs = []string{dir}
	store := blob.NewMemory()
	if _, err := ingest.MakePlan(ctx, store, "run", spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.gz"), []byte("\x1f\x8b and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = ingest.NormalizeWithin(ctx, store, "run", 0, ingest.Limits{})
	var input *ingest.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a changed file: %v", err)
	}
}

func TestTheWorstFilesAreNamed(t *testing.T) {
	ctx := context.Background()
	const bad = "mailto:a@b.example\n"
	dir := folder(t, map[string]string{
		"a.txt": urls("a.example", 50) + bad,
		"m.tar": tarOf(t, "good.txt", urls("g.example", 90)+bad, "report.txt", strings.Repeat(bad, 30)+"http://x.example/\n"),
		"z.txt": urls("z.example", 40) + bad + bad,
	})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	want := []ingest.FileRejects{
		{Object: "file://" + dir + "/m.tar/report.txt", Records: 31, Rejected: map[string]int64{"scheme": 30},
			First: ingest.Reject{Object: "file://" + dir + "/m.tar/report.txt", Line: 1, Reason: "scheme"}},
		{Object: "file://" + dir + "/z.txt", Records: 42, Rejected: map[string]int64{"scheme": 2},
			First: ingest.Reject{Object: "file://" + dir + "/z.txt", Line: 41, Offset: int64(len(urls("z.example", 40))), Reason: "scheme"}},
		{Object: "file://" + dir + "/a.txt", Records: 51, Rejected: map[string]int64{"scheme": 1},
			First: ingest.Reject{Object: "file://" + dir + "/a.txt", Line: 51, Offset: int64(len(urls("a.example", 50))), Reason: "scheme"}},
		{Object: "file://" + dir + "/m.tar/good.txt", Records: 91, Rejected: map[string]int64{"scheme": 1},
			First: ingest.Reject{Object: "file://" + dir + "/m.tar/good.txt", Line: 91, Offset: int64(len(urls("g.example", 90))), Reason: "scheme"}},
	}
	// The small splits cut the lists into ranges, so that lines and counts have to be added up.
	for _, l := range []ingest.Limits{{}, {Split: 200, Object: 1}} {
		f, err := steps(ctx, blob.NewMemory(), "run", spec, l)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.Worst); diff != "" {
			t.Errorf("split %d, -want +got:\n%s", l.Split, diff)
		}
	}
	spec.MaxRejectRate = 0.01
	_, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{})
	const most = "m.tar/report.txt: 30 of 31 records (scheme 30), the first at line 1 (byte 0)"
	if err == nil || !strings.Contains(err.Error(), most) {
		t.Errorf("%v, want %s", err, most)
	}
}

func TestArchiveCopiesAreUnwrapped(t *testing.T) {
	ctx := context.Background()
	const wayback = "https://web.archive.org/web/"
	dir := folder(t, map[string]string{
		"list.txt": wayback + "20200131235959/http://page.example/a\n" + wayback + "20200131235959id_/http://page.example/b?c\n" +
			"http://plain.example/\n",
		"t.csv": "url,timestamp\n" + wayback + "2019/http://timed.example/,2021-01-01T00:00:00Z\n" + wayback + "2019/http://timed.example/x,\n",
	})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	f, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Notes) != 1 || !strings.HasPrefix(f.Notes[0], "file://"+dir+"/list.txt and 1 more: most of its first URLs") || !strings.Contains(f.Notes[0], "--unwrap") {
		t.Errorf("notes %q", f.Notes)
	}
	spec.Unwrap, spec.KeepRaw = true, true
	store := blob.NewMemory()
	if f, err = steps(ctx, store, "run", spec, ingest.Limits{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range batchRows(t, store, readBatch(t, store, f.BatchKey)) {
		got[r.Domain+r.PathQuery] = fmt.Sprint(r.TS, r.HasTS, " ", r.RawURL)
	}
	want := map[string]string{
		"page.example/a":   "1580515199000 true " + wayback + "20200131235959/http://page.example/a",
		"page.example/b?c": "1580515199000 true " + wayback + "20200131235959id_/http://page.example/b?c",
		"plain.example/":   "0 false ",
		"timed.example/":   "1609459200000 true " + wayback + "2019/http://timed.example/",
		"timed.example/x":  "1546300800000 true " + wayback + "2019/http://timed.example/x",
	}
	if diff := cmp.Diff(want, got); diff != "" || f.Unwrapped != 4 || len(f.Notes) != 0 {
		t.Errorf("%d unwrapped, notes %q; -want +got:\n%s", f.Unwrapped, f.Notes, diff)
	}
}

// TestABadTimeIsShown has a column of times that is named and holds something else.
func TestABadTimeIsShown(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"a.csv": "url,when\nhttp://a.example/,2020-01-01\nhttp://b.example/,31/12/2020\n" +
		"http://c.example/,http://secret.example/token\nhttp://d.example/,2020-01-02\n"})
	f, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, TSColumn: "when"}, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Examples) != 2 || f.Examples[0].Value != "31/12/2020" || f.Examples[1].Value != "" ||
		!strings.HasSuffix(f.Examples[0].String(), `bad_ts "31/12/2020"`) {
		t.Errorf("%+v", f.Examples)
	}
}

// TestMergingWithoutTimesIsNoted: lists have no times, tables may have some.
func TestMergingWithoutTimesIsNoted(t *testing.T) {
	ctx := context.Background()
	for text, want := range map[string]string{
		"url,seen\nhttp://a.example/,x\nhttp://a.example/,y\nhttp://b.example/,z\n":   "equal ones: 1; records of tables without a time: 3, the first in file://",
		"url,timestamp\nhttp://a.example/,2020-01-01\nhttp://a.example/,2020-01-01\n": "",
		"url,seen\nhttp://a.example/,x\nhttp://b.example/,y\n":                        "",
		"http://a.example/\nhttp://a.example/\n":                                      "",
		`{"url":"http://a.example/"}` + "\n" + `{"url":"http://a.example/"}` + "\n":   "without a time: 2",
		`["http://a.example/","http://a.example/"]`:                                   "",
	} {
		dir := folder(t, map[string]string{"f": text})
		f, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(f.Notes, "\n")
		if want == "" && strings.Contains(notes, "merged") || !strings.Contains(notes, want) {
			t.Errorf("%q: %q, want %q", text, notes, want)
		}
	}
}

// TestUnreadIsBounded has an archive with more unreadable members than a batch record names.
func TestUnreadIsBounded(t *testing.T) {
	ctx := context.Background()
	members := []string{"ok.txt", urls("a.example", 1)}
	for i := range 1500 {
		members = append(members, fmt.Sprintf("%d.xml", i), "<a/>")
	}
	dir := folder(t, map[string]string{"t.tar": tarOf(t, members...)})
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, SkipUnreadable: true}, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	b := readBatch(t, store, f.BatchKey)
	if b.UnreadCount != 1500 || len(b.Unread) != 1000 || len(f.Unread) != 10 || b.Unread[999] != (lake.Unread{
		Name: "file://" + dir + "/t.tar/999.xml", Reason: b.Unread[0].Reason}) {
		t.Errorf("%d unread, %d named, %d shown; the last %v", b.UnreadCount, len(b.Unread), len(f.Unread), b.Unread[len(b.Unread)-1])
	}
}
