package ingest_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
)

// previewed collects the previews of a spec.
func previewed(t *testing.T, spec ingest.Spec) (all []ingest.Preview, totals ingest.PreviewTotals) {
	t.Helper()
	totals, err := ingest.Previews(context.Background(), spec, func(p *ingest.Preview) error {
		all = append(all, *p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, totals
}

// TestAPreviewIsWhatTheIngestDoes holds previews of one file at a time against the ingest of that
// file: the choice, the first rows, and whether it is refused.
func TestAPreviewIsWhatTheIngestDoes(t *testing.T) {
	ctx := context.Background()
	own := folder(t, map[string]string{
		"list.txt": "# a list\nexample.com\nHTTP://EXAMPLE.com:80/b/../c\nnot a url:\n", "a.csv": "n,link,timestamp\n1,http://a.example/,2020-01-01\n2,http://b.example/,2020-01-02\n",
		"b.csv": "a,b\nx,y\n", "c.jsonl": `{"u":{"href":"https://a.example/x"},"ts":"2021-02-03T04:05:06Z"}` + "\n", "d.json": `[{"url":"http://d.example/"},{"url":7}]`,
		"e.xml": "<a/>", "f.tar": tarOf(t, "x.csv", "url,bytes\nhttp://x.example/,9\n", "y.txt", "http://y.example/\n"), "g.tar": tarOf(t, "x.csv", "a,b\n1,2\n"),
		"h.gz": gzipped(t, urls("h.example", 10))[:40], "i.txt.gz": gzipped(t, urls("i.example", 4)), "empty": "", "blank.csv": "\n\n",
		"j.csv": "url,fact_check_url\nhttp://j.example/,http://k.example/\n",
		"s.xml": "<urlset><url><loc>http://s.example/</loc><lastmod>2024-05-06</lastmod></url></urlset>", "t.xml": "<urlset></urlset>",
		"comments.txt": "# one\n\n# two\n", "header.csv": "url,n\n", "m.tar": tarOf(t, "x.txt", "\n"), "n.tar": tarOf(t),
		"rejects.txt": "not a url:\nneither:\n",
		"w.txt":       "https://web.archive.org/web/20200101000000/http://w.example/\n",
	})
	var files []string
	for _, dir := range []string{own, filepath.Join(testenv.Root(t), "testdata")} {
		if err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				files = append(files, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	refused, read := 0, 0
	for _, file := range files {
		for _, options := range []ingest.Spec{{}, {SkipUnreadable: true, Unwrap: true, KeepRaw: true}} {
			spec := options
			spec.Dataset, spec.Batch, spec.Inputs, spec.MaxRejectRate = "d", "b", []string{file}, 1
			all, totals := previewed(t, spec)
			if len(all) != 1 || totals.Objects != 1 || all[0].Bytes != totals.Bytes {
				t.Fatalf("%s: %+v", file, totals)
			}
			p := all[0]
			store := blob.NewMemory()
			f, err := steps(ctx, store, "run", spec, ingest.Limits{})
			noRows := err != nil && (strings.Contains(err.Error(), "no records") || strings.Contains(err.Error(), "could be kept"))
			if fails := totals.Fails(&spec); totals.Partly == 0 && (fails != "") != (err != nil) {
				t.Errorf("%s: the preview says %q, and the ingest %v", file, fails, err)
			}
			if p.Refused == "" && len(p.Sample) == 0 && p.Empty == "" && len(p.Rejected)+len(p.Unread) == 0 {
				t.Errorf("%s: the preview says nothing: %+v", file, p)
			}
			if (p.Refused != "") != (err != nil && !noRows) || p.Refused != "" && !strings.Contains(err.Error(), p.Refused) {
				t.Errorf("%s: refused %q, and the ingest says %v", file, p.Refused, err)
				continue
			}
			if err != nil {
				refused++
				if len(p.Sample) > 0 && p.Refused == "" {
					t.Errorf("%s has a row, and the ingest says %v", file, err)
				}
				continue
			}
			read++
			if len(f.Groups) != 1 || f.Groups[0].Choice != p.Choice {
				t.Errorf("%s: chosen %+v, and the ingest chose %+v", file, p.Choice, f.Groups)
			}
			rows := batchRows(t, store, readBatch(t, store, f.BatchKey))
			for _, s := range p.Sample {
				if !slices.ContainsFunc(rows, func(r row.Row) bool { return same(r, s) }) {
					t.Errorf("%s: the ingest has no row %+v", file, s)
				}
			}
			if len(p.Sample) == 0 {
				t.Errorf("%s: %d rows in the sample, %d in the batch", file, len(p.Sample), f.Rows)
			}
		}
	}
	if refused < 5 || read < 20 {
		t.Errorf("%d refused, %d read: too few for a test", refused, read)
	}
}

// same reports whether a row is one of a preview.
func same(r row.Row, s ingest.PreviewRow) bool {
	u := urlnorm.URL{Scheme: r.Scheme, Host: r.Host, Domain: r.Domain, Port: r.Port, PathQuery: r.PathQuery}
	return u.String() == s.URL && r.HasTS == (s.Time != nil) && r.HasSize == (s.Size != nil) &&
		(!r.HasTS || time.UnixMilli(r.TS).Equal(*s.Time)) && (!r.HasSize || r.Size == *s.Size)
}

// TestAPreviewShowsWhatAPersonNeeds has the details that the ingest's result has not.
func TestAPreviewShowsWhatAPersonNeeds(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.csv": "url,when,n,who\nhttp://A.example/,2020-01-01,5,x\nhttp://a.example/b,1/2/2020,6,y\nmailto:c,,,\nhttp://a.example/d,,7,\nhttp://a.example/e,,7,\n",
		"b.tar": tarOf(t, "ok.txt", "http://b.example/\n", "no.xml", "<a/>"), "c.xml": "<a/>", ".hidden": "x",
	})
	spec := ingest.Spec{Inputs: []string{dir}, Include: []string{"a.csv"}, TSColumn: "when", SizeField: "n", Extras: []string{"who"}}
	all, totals := previewed(t, spec)
	day, five, seven := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), int64(5), int64(7)
	want := []ingest.Preview{{
		Object: "file://" + dir + "/a.csv", Bytes: all[0].Bytes, Extras: []string{"who"},
		Choice:  ingest.Choice{Format: "csv", URL: "url", TS: "when", Size: "n"},
		Sample:  []ingest.PreviewRow{{URL: "http://a.example/", Time: &day, Size: &five}, {URL: "http://a.example/d", Size: &seven}, {URL: "http://a.example/e", Size: &seven}},
		Records: 5, Rejected: map[string]int64{"bad_ts": 1, "scheme": 1}, Whole: true,
		First: &ingest.Reject{Object: "file://" + dir + "/a.csv", Line: 3, Offset: 48, Reason: "bad_ts", Value: "1/2/2020"},
	}}
	if diff := gocmp.Diff(want, all); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(totals.Notes) != 2 || !strings.Contains(totals.Notes[0], ".hidden") {
		t.Errorf("%+v", totals)
	}
	all, totals = previewed(t, ingest.Spec{Inputs: []string{dir}, SkipUnreadable: true, Exclude: []string{"*.csv"}})
	if len(all) != 2 || totals.Unread != 2 || totals.Refused != 0 || totals.Rows != 1 {
		t.Fatalf("%+v %+v", all, totals)
	}
	if p := all[0]; len(p.Members) != 1 || p.Members[0].Name != "ok.txt" || p.Members[0].Format != "lines" ||
		len(p.Unread) != 1 || !strings.HasPrefix(p.Unread[0], "no.xml: it is XML") {
		t.Errorf("%+v", p)
	}
	if p := all[1]; len(p.Unread) != 1 || !strings.HasPrefix(p.Unread[0], "it is XML") || p.Format != "unreadable" {
		t.Errorf("%+v", p)
	}
}
