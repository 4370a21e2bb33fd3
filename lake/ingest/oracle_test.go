package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

// steps runs all steps from the plan to the batch record, with a postings object for each task that
// holds the task's domains. It leaves staging as it is.
func steps(
	ctx context.Context, store blob.Store, run string, spec ingest.Spec, l ingest.Limits,
) (ingest.FinishResult, error) {
	l.Postings = countDomains
	plan, err := ingest.MakePlanWithin(ctx, store, run, spec, l)
	if err != nil {
		return ingest.FinishResult{}, err
	}
	for i := range plan.Splits {
		if _, err := ingest.NormalizeWithin(ctx, store, run, i, l); err != nil {
			return ingest.FinishResult{}, err
		}
	}
	merge, err := ingest.PlanMergeWithin(ctx, store, run, l)
	if err != nil {
		return ingest.FinishResult{}, err
	}
	for i := range merge.Tasks {
		if _, err := ingest.MergeWithin(ctx, store, run, i, "", l); err != nil {
			return ingest.FinishResult{}, err
		}
	}
	return ingest.FinishWithin(ctx, store, run, l)
}

// putDomains writes an object with domains and their numbers of rows.
func putDomains(
	ctx context.Context, store blob.Store, dataset uint32, batch string, domains map[string]int64,
) (lake.FrameObject, int64, error) {
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	var lines []byte
	for _, d := range slices.Sorted(maps.Keys(domains)) {
		lines = fmt.Appendf(lines, "%s %d\n", d, domains[d])
	}
	if _, _, err := w.Frame(nil, lines); err != nil {
		return lake.FrameObject{}, 0, err
	}
	ff, err := w.Finish()
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	key := lake.PostingsKey(dataset, batch, lake.Digest(buf.Bytes()))
	_, err = store.Put(ctx, key, buf.Bytes(), blob.Condition{})
	return lake.NewFrameObject(key, ff), int64(len(domains)), err
}

// domainCount counts the rows of domains while parts are written. It stands in for package
// indexbuild, which this package cannot import.
type domainCount struct {
	dataset uint32
	batch   string
	domains map[string]int64
	rows    int64 // of the part being written
}

func countDomains(dataset uint32, batch string) ingest.PostingsWriter {
	return &domainCount{dataset: dataset, batch: batch, domains: map[string]int64{}}
}

func (c *domainCount) Domains(rows *part.DomainRuns) error {
	for i := range rows.Len() {
		domain, n := rows.Run(i)
		c.domains[string(domain)] += n
		c.rows += n
	}
	return nil
}

func (c *domainCount) EndPart(p *part.Written) error {
	if c.rows != p.Part.Rows {
		return fmt.Errorf("domains with %d rows for a part of %d", c.rows, p.Part.Rows)
	}
	c.rows = 0
	return nil
}

func (c *domainCount) Finish(ctx context.Context, store blob.Store) (lake.FrameObject, int64, error) {
	return putDomains(ctx, store, c.dataset, c.batch, c.domains)
}

func (c *domainCount) Close() {}

// partRow is a row as parquet-go reads it.
type partRow struct {
	DatasetID int32   `parquet:"dataset_id"`
	Batch     string  `parquet:"batch"`
	Scheme    string  `parquet:"scheme"`
	Port      *int32  `parquet:"port,optional"`
	DomainID  int64   `parquet:"domain_id"`
	Domain    string  `parquet:"domain"`
	Host      string  `parquet:"host"`
	TS        *int64  `parquet:"ts,optional,timestamp(millisecond)"`
	Size      *int64  `parquet:"size,optional"`
	PathQuery string  `parquet:"path_query"`
	URLID     int64   `parquet:"url_id"`
	RawURL    *string `parquet:"raw_url,optional"`
	Extras    *string `parquet:"extras,optional,json"`
}

func (p partRow) row() row.Row {
	r := row.Row{Domain: p.Domain, Host: p.Host, PathQuery: p.PathQuery, Scheme: p.Scheme, Port: -1}
	if p.Port != nil {
		r.Port = *p.Port
	}
	if p.TS != nil {
		r.TS, r.HasTS = *p.TS, true
	}
	if p.Size != nil {
		r.Size, r.HasSize = *p.Size, true
	}
	if p.RawURL != nil {
		r.RawURL = *p.RawURL
	}
	if p.Extras != nil {
		r.Extras = *p.Extras
	}
	return r
}

func readPart(ctx context.Context, store blob.Store, p lake.Part) ([]partRow, error) {
	data, _, err := store.Get(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	return parquet.Read[partRow](bytes.NewReader(data), int64(len(data)))
}

// batchRows reads all rows of a batch, part by part, and checks their order and the columns that
// repeat the part's name.
func batchRows(t *testing.T, store blob.Store, b *lake.Batch) []row.Row {
	t.Helper()
	var out []row.Row
	for _, p := range b.Parts {
		rows, err := readPart(context.Background(), store, p)
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(rows)) != p.Rows {
			t.Errorf("%s has %d rows, the record says %d", p.Key, len(rows), p.Rows)
		}
		for i, r := range rows {
			row := r.row()
			id := urlnorm.FormatID(urlnorm.DomainID(r.Domain))
			if uint64(r.DomainID) != urlnorm.DomainID(r.Domain) || uint32(r.DatasetID) != b.DatasetID || r.Batch != b.Batch ||
				p.DomainPrefix != lake.AnyPrefix && !strings.HasPrefix(id, p.DomainPrefix) {
				t.Fatalf("%s row %d: %+v in partition %s", p.Key, i, r, p.DomainPrefix)
			}
			if i > 0 && compareRows(out[len(out)-1], row) >= 0 {
				t.Fatalf("%s row %d is not greater than the row before", p.Key, i)
			}
			out = append(out, row)
		}
	}
	return out
}

func compareRows(a, b row.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) }

func readBatch(t *testing.T, store blob.Store, key string) *lake.Batch {
	t.Helper()
	data, _, err := store.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := lake.DecodeBatch(data, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// oracle computes what a batch has to hold: sorted rows without duplicates, and rejects by reason.
type oracle struct {
	records  int64
	rows     []row.Row
	rejected map[string]int64
	kept     int64
}

func newOracle() *oracle { return &oracle{rejected: map[string]int64{}} }

func (o *oracle) add(rawURL string, rest row.Row, keepRaw bool) {
	o.records++
	rawURL = strings.Trim(rawURL, " \t\r\n")
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), rawURL)
	var rej *urlnorm.RejectError
	if errors.As(err, &rej) {
		o.rejected[string(rej.Reason)]++
		return
	}
	u = u.Clone()
	r := rest
	r.Scheme, r.Host, r.Port, r.PathQuery, r.Domain = u.Scheme, u.Host, u.Port, u.PathQuery, u.Domain
	if raw := string(urlnorm.WithoutUserInfo(nil, []byte(rawURL))); keepRaw && raw != u.String() {
		r.RawURL = raw
	}
	o.rows = append(o.rows, r)
	o.kept++
}

func (o *oracle) sorted() []row.Row {
	rows := slices.Clone(o.rows)
	slices.SortFunc(rows, compareRows)
	return slices.CompactFunc(rows, func(a, b row.Row) bool {
		a.RawURL, b.RawURL = "", ""
		return a == b
	})
}

// check compares a finished batch with the oracle.
func (o *oracle) check(t *testing.T, store blob.Store, f ingest.FinishResult) {
	t.Helper()
	b := readBatch(t, store, f.BatchKey)
	want := o.sorted()
	got := batchRows(t, store, b)
	slices.SortFunc(got, compareRows) // parts are in the order of partitions
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows differ: %s", diff)
	}
	domains := map[string]bool{}
	for _, r := range want {
		domains[r.Domain] = true
	}
	if b.Records != o.records || b.Rows != int64(len(want)) || b.Merged != o.kept-int64(len(want)) || b.Domains != int64(len(domains)) {
		t.Errorf("records %d, rows %d, merged %d, domains %d; want %d, %d, %d, %d", b.Records, b.Rows,
			b.Merged, b.Domains,
			o.records, len(want), o.kept-int64(len(want)), len(domains))
	}
	if diff := cmp.Diff(o.rejected, b.Rejected); diff != "" {
		t.Errorf("rejects differ: %s", diff)
	}
	var records, rejects, listed int64
	for _, in := range b.Inputs {
		records += in.Records
		rejects += in.Rejects
	}
	for _, n := range o.rejected {
		listed += n
	}
	if records != b.Records || rejects != listed {
		t.Errorf("inputs have %d records and %d rejects, want %d and %d", records, rejects, b.Records, listed)
	}
	if got := rejectLines(t, store, b.Rejects); int64(len(got)) != listed {
		t.Errorf("%d rejects listed, want %d", len(got), listed)
	}
}

// rejectLines reads a list of rejects with a plain zstd decoder.
func rejectLines(t *testing.T, store blob.Store, o *lake.Object) []ingest.Reject {
	t.Helper()
	if o == nil {
		return nil
	}
	data, _, err := store.Get(context.Background(), o.Key)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	var out []ingest.Reject
	lines := json.NewDecoder(dec)
	lines.DisallowUnknownFields()
	for {
		var r ingest.Reject
		if err := lines.Decode(&r); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

// objects returns all objects of a store except those in staging.
func objects(t *testing.T, store blob.Store) map[string]string {
	t.Helper()
	ctx := context.Background()
	out := map[string]string{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, "staging/") || strings.HasPrefix(info.Key, "pending/") { // which have the time
			continue
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Key] = string(data)
	}
	return out
}

func sameObjects(t *testing.T, want, got map[string]string) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[k]; !ok {
			t.Errorf("%s is missing", k)
		} else if g != want[k] {
			t.Errorf("%s has other bytes", k)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s exists, want none", k)
		}
	}
}

// folder writes files to a new folder and returns it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// madeUp writes a dataset of several files with timestamps, sizes, duplicates, unusual spellings
// and rejects.
func madeUp(t *testing.T, lines int) (dir string, want *oracle) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	want = newOracle()
	files := map[string]string{}
	for f := range 5 {
		var b strings.Builder
		b.WriteString("url,ts,bytes,title\n")
		for range lines / 5 {
			url := fmt.Sprintf("http://h%d.site%d.example/p/%d?b=%d&a=1", rng.IntN(3), rng.IntN(60),
				rng.IntN(40), rng.IntN(3))
			switch rng.IntN(12) {
			case 0:
				url = strings.ToUpper(url)
			case 1:
				url = "https://user:secret@" + url[len("http://"):]
			case 2:
				url = "mailto:someone@example.org"
			case 3:
				url = "no url at all"
			case 4:
				url = fmt.Sprintf("http://127.0.0.%d:8080/#f", rng.IntN(5))
			}
			row := row.Row{}
			ts, size, title := "", "", ""
			if rng.IntN(3) > 0 {
				row.TS, row.HasTS = int64(rng.IntN(5))*1000, true
				ts = strconv.FormatInt(row.TS/1000+1_600_000_000, 10)
				row.TS += 1_600_000_000_000
			}
			if rng.IntN(3) > 0 {
				row.Size, row.HasSize = int64(rng.IntN(3)), true
				size = strconv.FormatInt(row.Size, 10)
			}
			if rng.IntN(4) == 0 {
				title = fmt.Sprintf("t%d", rng.IntN(3))
				row.Extras = fmt.Sprintf(`{"title":%q}`, title)
			}
			fmt.Fprintf(&b, "%s,%s,%s,%s\n", url, ts, size, title)
			want.add(url, row, true)
		}
		files[fmt.Sprintf("part%d.csv", f)] = b.String()
	}
	return folder(t, files), want
}

func madeUpSpec(dir string) ingest.Spec {
	return ingest.Spec{Dataset: "made-up", Batch: "2026-11", Inputs: []string{dir}, URLColumn: "url",
		TSColumn: "ts", SizeField: "bytes",
		Extras: []string{"title"}, KeepRaw: true}
}

// withLarge adds an object to those of madeUp that is cut into ranges: few long records, some of
// them rejects. It returns l with a size of splits that cuts the object.
func withLarge(t *testing.T, dir string, l ingest.Limits) ingest.Limits {
	t.Helper()
	var b strings.Builder
	b.WriteString("url\tts\tbytes\ttitle\n")
	for i := 0; b.Len() < 400_000; i++ {
		fmt.Fprintf(&b, "http://site%d.example/%s?n=%d\t\t%d\t\n", i%7, strings.Repeat("x", 3000), i%50, i%3)
		if i%11 == 5 {
			b.WriteString("mailto:x\t\t\t\n")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "large.tsv"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	l.Split, l.Object = 32<<10, 32<<10
	return l
}
