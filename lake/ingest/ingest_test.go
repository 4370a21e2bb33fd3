package ingest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
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
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/urlnorm"
)

// steps takes a run from its plan to its batch record, with a postings object a task that holds
// the task's domains, and leaves staging as it is.
func steps(ctx context.Context, store blob.Store, run string, spec ingest.Spec, l ingest.Limits) (ingest.FinishResult, error) {
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
	var postings []lake.FrameObject
	var domains int64
	for i := range merge.Tasks {
		m, err := ingest.MergeWithin(ctx, store, run, i, "", l)
		if err != nil {
			return ingest.FinishResult{}, err
		}
		o, n := m.Postings, m.Domains
		if l.Postings == nil {
			if o, n, err = extract(ctx, store, run, i); err != nil {
				return ingest.FinishResult{}, err
			}
		}
		postings = append(postings, o)
		domains += n
	}
	return ingest.Finish(ctx, store, run, postings, domains)
}

// extract stands in for package indexbuild, which is above this one.
func extract(ctx context.Context, store blob.Store, run string, task int) (lake.FrameObject, int64, error) {
	m, err := ingest.ReadMerged(ctx, store, run, task)
	if err != nil {
		return lake.FrameObject{}, 0, err
	}
	domains := map[string]int64{}
	for _, p := range m.Parts {
		var rows int64
		for i := range p.Blocks {
			rows += p.Blocks[i].Rows()
		}
		if rows != p.Part.Rows {
			return lake.FrameObject{}, 0, fmt.Errorf("page index of %d rows for a part of %d", rows, p.Part.Rows)
		}
		got, err := readPart(ctx, store, p.Part)
		if err != nil {
			return lake.FrameObject{}, 0, err
		}
		for _, r := range got {
			domains[r.Domain]++
		}
	}
	return putDomains(ctx, store, m.DatasetID, m.Batch, domains)
}

// putDomains writes an object with domains and how many rows they have.
func putDomains(ctx context.Context, store blob.Store, dataset uint32, batch string, domains map[string]int64) (lake.FrameObject, int64, error) {
	var buf bytes.Buffer
	w := codec.NewFrameWriter(&buf, 0)
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

// domainCount is extract for what is being written.
type domainCount struct {
	dataset uint32
	batch   string
	domains map[string]int64
	rows    int64 // of the open part
}

func countDomains(dataset uint32, batch string) ingest.PostingsWriter {
	return &domainCount{dataset: dataset, batch: batch, domains: map[string]int64{}}
}

func (c *domainCount) Domains(rows *lake.DomainRuns) error {
	for i := range rows.Len() {
		domain, n := rows.Run(i)
		c.domains[string(domain)] += n
		c.rows += n
	}
	return nil
}

func (c *domainCount) EndPart(p *lake.WrittenPart) error {
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

func (p partRow) row() lake.Row {
	r := lake.Row{Domain: p.Domain, Host: p.Host, PathQuery: p.PathQuery, Scheme: p.Scheme, Port: -1}
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

// batchRows reads all rows of a batch, part by part, and checks what every row repeats.
func batchRows(t *testing.T, store blob.Store, b *lake.Batch) []lake.Row {
	t.Helper()
	var out []lake.Row
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
				t.Fatalf("%s row %d is not above the one before", p.Key, i)
			}
			out = append(out, row)
		}
	}
	return out
}

func compareRows(a, b lake.Row) int { return bytes.Compare(a.AppendKey(nil), b.AppendKey(nil)) }

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

// oracle is what a batch of records has to hold: rows sorted, one of each record, and rejects by reason.
type oracle struct {
	records  int64
	rows     []lake.Row
	rejected map[string]int64
	kept     int64
}

func newOracle() *oracle { return &oracle{rejected: map[string]int64{}} }

func (o *oracle) add(rawURL string, rest lake.Row, keepRaw bool) {
	o.records++
	rawURL = strings.Trim(rawURL, " \t\r\n")
	u, err := urlnorm.Parse(rawURL)
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

func (o *oracle) sorted() []lake.Row {
	rows := slices.Clone(o.rows)
	slices.SortFunc(rows, compareRows)
	return slices.CompactFunc(rows, func(a, b lake.Row) bool {
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
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("rows differ: %s", diff)
	}
	domains := map[string]bool{}
	for _, r := range want {
		domains[r.Domain] = true
	}
	if b.Records != o.records || b.Rows != int64(len(want)) || b.Merged != o.kept-int64(len(want)) || b.Domains != int64(len(domains)) {
		t.Errorf("records %d, rows %d, merged %d, domains %d; want %d, %d, %d, %d", b.Records, b.Rows, b.Merged, b.Domains,
			o.records, len(want), o.kept-int64(len(want)), len(domains))
	}
	if diff := gocmp.Diff(o.rejected, b.Rejected); diff != "" {
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

// rejectLines reads a list of rejects as any program would.
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

// objects are all objects of a store but those in staging, and the manifest of runs: registry documents hold
// the run's name.
func objects(t *testing.T, store blob.Store) map[string]string {
	t.Helper()
	ctx := context.Background()
	out := map[string]string{}
	for info, err := range store.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(info.Key, "staging/") {
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
			t.Errorf("%s is there and should not be", k)
		}
	}
}

// folder writes files and returns their folder.
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

// madeUp is a dataset in several files, with a timestamp, a size, duplicates, odd spellings and rejects.
func madeUp(t *testing.T, lines int) (dir string, want *oracle) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	want = newOracle()
	files := map[string]string{}
	for f := range 5 {
		var b strings.Builder
		b.WriteString("url,ts,bytes,title\n")
		for range lines / 5 {
			url := fmt.Sprintf("http://h%d.site%d.example/p/%d?b=%d&a=1", rng.IntN(3), rng.IntN(60), rng.IntN(40), rng.IntN(3))
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
			row := lake.Row{}
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
	return ingest.Spec{Dataset: "made-up", Batch: "2026-11", Inputs: []string{dir}, URLColumn: "url", TSColumn: "ts", SizeField: "bytes",
		Extras: []string{"title"}, KeepRaw: true}
}

// withLarge adds an object to those of madeUp that is cut into ranges: few records, long ones, some of them rejects. l cuts it.
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

func TestBatchHoldsWhatTheInputsHold(t *testing.T) {
	ctx := context.Background()
	dir, want := madeUp(t, 4000)
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", madeUpSpec(dir), ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Existed || !f.Current {
		t.Errorf("existed %v, current %v", f.Existed, f.Current)
	}
	want.check(t, store, f)
	current, err := lake.CurrentBatches(ctx, store, 1)
	if err != nil || current["2026-11"] != f.Digest {
		t.Errorf("current %v, %v", current, err)
	}
	for key, data := range objects(t, store) {
		if strings.Contains(data, "secret") {
			t.Errorf("%s holds a credential", key)
		}
	}
	// More than one deletion takes, and another run's.
	for i := range 1500 {
		if _, err := store.Put(ctx, fmt.Sprintf("staging/run/more/%d", i), nil, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Put(ctx, "staging/run2/plan.json", nil, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if err := ingest.Cleanup(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Stat(ctx, "staging/run2/plan.json"); err != nil {
		t.Errorf("another run's staging: %v", err)
	}
	for info := range store.List(ctx, "staging/run/") {
		t.Errorf("%s was left behind", info.Key)
	}
}

// What is left in the lake must not show how the work was cut up.
func TestSameBytesHoweverTheWorkIsCut(t *testing.T) {
	ctx := context.Background()
	dir, oracle := madeUp(t, 4000)
	for _, width := range []struct {
		prefixes int
		limits   ingest.Limits
	}{
		{1, ingest.Limits{}},
		{16, ingest.Limits{AnyPrefix: 1}},
		{61, ingest.Limits{AnyPrefix: 1, OneDigit: 2}}, // 60 sites and an address
	} {
		var want map[string]string
		for i, cut := range []ingest.Limits{
			{},
			{Arena: 1000},
			{MergeArena: 1000},
			{Arena: 20_000, MergeArena: 30_000},
			{Arena: 30_000},
			{Split: 1, Object: 1},
			{Split: 1, Object: 1, Arena: 20_000},
			{Split: 1, Object: 1, Splits: 2},
		} {
			cut.AnyPrefix, cut.OneDigit, cut.Task = width.limits.AnyPrefix, width.limits.OneDigit, 1<<14
			store := blob.NewMemory()
			f, err := steps(ctx, store, "run", madeUpSpec(dir), cut)
			if err != nil {
				t.Fatal(err)
			}
			got := objects(t, store)
			if i > 0 {
				sameObjects(t, want, got)
				continue
			}
			want = got
			oracle.check(t, store, f)
			b := readBatch(t, store, f.BatchKey)
			prefixes := map[string]bool{}
			for _, p := range b.Parts {
				prefixes[p.DomainPrefix] = true
			}
			if len(prefixes) < width.prefixes/2 || len(prefixes) > max(1, width.prefixes) {
				t.Errorf("%d prefixes, want about %d", len(prefixes), width.prefixes)
			}
			if width.prefixes > 1 && len(b.Postings) < 2 {
				t.Errorf("%d tasks", len(b.Postings))
			}
		}
	}
}

// seekable compresses text in frames of size bytes with a seek table.
func seekable(t *testing.T, text string, size int) string {
	t.Helper()
	var buf bytes.Buffer
	w := codec.NewFrameWriter(&buf, 0)
	for len(text) > 0 {
		n := min(size, len(text))
		if _, _, err := w.Frame(nil, []byte(text[:n])); err != nil {
			t.Fatal(err)
		}
		text = text[n:]
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// linked is a row of Parquet whose URLs stand in a list.
type linked struct {
	Links []string `parquet:"links,list"`
}

// rowGroups writes Parquet of 40 rows a group.
func rowGroups(t *testing.T, rows []linked) string {
	t.Helper()
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[linked](&buf, parquet.Compression(&parquet.Uncompressed))
	for group := range slices.Chunk(rows, 40) {
		if _, err := w.Write(group); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

// largeFiles are objects above the size of a head, one in each format that is cut, with what belongs to their batch.
func largeFiles(t *testing.T, name string) (spec ingest.Spec, want *oracle) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 12))
	want = newOracle()
	var b strings.Builder
	var rows []linked
	switch name {
	case "t.tsv":
		b.WriteString("A title\n\nurl\tbytes\n")
	case "i.cdx":
		b.WriteString(" CDX N b a m s k r M S V g\n")
	}
	for i := 0; b.Len() < 900_000; i++ {
		url := fmt.Sprintf("http://h%d.site%d.example/%s/%d", rng.IntN(3), rng.IntN(40), strings.Repeat("p", rng.IntN(120)), rng.IntN(4000))
		switch rng.IntN(30) {
		case 0:
			url = "mailto:someone@example.org"
		case 1:
			url = "http://long.example/" + strings.Repeat("q", rng.IntN(30_000))
		case 2:
			url = "HTTP://UPPER.example/" + strconv.Itoa(i)
		case 3:
			url = "http://exa\"mple/"
		}
		row := lake.Row{}
		switch name {
		case "t.tsv":
			if i%5 > 0 {
				row.Size, row.HasSize = int64(i%5), true
				fmt.Fprintf(&b, "%s\t%d\r\n", url, i%5)
			} else {
				fmt.Fprintf(&b, "%s\t\n", url)
			}
		case "l.jsonl":
			line, err := json.Marshal(map[string]any{"url": url, "text": "a\nb"})
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(line, '\n'))
		case "i.cdx":
			fmt.Fprintf(&b, "key 20200101000000 %s - - - - - 1 2 f\n", url)
			row.TS, row.HasTS = 1_577_836_800_000, true
		case "p.parquet":
			rows = append(rows, linked{Links: []string{url}})
			if i%7 == 0 { // two records of one row, and none of another
				rows = append(rows, linked{Links: []string{url, url}}, linked{})
				want.add(url, row, true)
				want.add(url, row, true)
				b.WriteString(url + url)
			}
			b.WriteString(url)
		default:
			if i%50 == 0 {
				b.WriteString("\n# remark\n")
			}
			b.WriteString(url + "\n")
		}
		want.add(url, row, true)
	}
	text := b.String()
	switch {
	case strings.HasSuffix(name, ".zst"):
		text = seekable(t, text, 5000)
	case name == "p.parquet":
		text = rowGroups(t, rows)
	}
	dir := folder(t, map[string]string{"a.txt": "", "b-" + name: text, "c.txt": ""})
	spec = ingest.Spec{Dataset: "large", Batch: "b", Inputs: []string{dir}, KeepRaw: true}
	if name == "t.tsv" {
		spec.SizeField = "bytes"
	}
	return spec, want
}

// Ranges must not show either: not in parts, counts of inputs, lists of rejects, nor what a person is told.
func TestSameBytesHoweverLargeObjectsAreCut(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"l.txt", "t.tsv", "l.jsonl", "i.cdx", "l.txt.zst", "p.parquet"} {
		t.Run(name, func(t *testing.T) {
			spec, oracle := largeFiles(t, name)
			var want map[string]string
			var first ingest.FinishResult
			for i, c := range []struct {
				splits int // at least
				limits ingest.Limits
			}{
				{1, ingest.Limits{}},
				{2, ingest.Limits{Split: 500_000}},
				{100, ingest.Limits{Split: 4000}},
				{100, ingest.Limits{Split: 4000, Object: 1, Arena: 100_000}},
				{2, ingest.Limits{Split: 1000, Splits: 3}},
			} {
				switch {
				case name == "p.parquet":
					c.splits = min(c.splits, 30) // it has 30 row groups or so
				case strings.HasSuffix(name, ".zst"):
					c.splits, c.limits.Split = max(1, c.splits/4), c.limits.Split/8 // as stored
				}
				c.limits.AnyPrefix, c.limits.Task = 1, 1<<18
				store := blob.NewMemory()
				plan, err := ingest.MakePlanWithin(ctx, store, "run", spec, c.limits)
				if err != nil {
					t.Fatal(err)
				}
				if plan.Splits < c.splits || c.splits == 1 && i == 0 && plan.Splits != 1 {
					t.Errorf("%+v: %d splits, want %d", c.limits, plan.Splits, c.splits)
				}
				f, err := steps(ctx, store, "run", spec, c.limits)
				if err != nil {
					t.Fatal(err)
				}
				got := objects(t, store)
				if i == 0 {
					want, first = got, f
					oracle.check(t, store, f)
					continue
				}
				sameObjects(t, want, got)
				if diff := gocmp.Diff(first, f); diff != "" {
					t.Errorf("results differ: %s", diff)
				}
			}
			if len(first.Examples) != 5 || first.Examples[0].Line < 1 {
				t.Errorf("examples %v", first.Examples)
			}
		})
	}
}

// A batch that fails names the same places however it was cut, and one that cannot be read fails at once.
func TestErrorsOfObjectsThatAreCut(t *testing.T) {
	ctx := context.Background()
	text := strings.Repeat("http://a.example/\n", 20_000) + strings.Repeat("mailto:x\n", 30_000)
	dir := folder(t, map[string]string{"x.txt": text})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	var texts []string
	for _, l := range []ingest.Limits{{}, {Split: 10_000}, {Split: 70_000}} {
		_, err := steps(ctx, blob.NewMemory(), "run", spec, l)
		var input *ingest.InputError
		if !errors.As(err, &input) || input.Line != 20_001 || len(input.Rejects) != 3 || input.Rejects[2].Line != 20_003 {
			t.Fatalf("%+v: %v", l, err)
		}
		texts = append(texts, err.Error())
	}
	if texts[0] != texts[1] || texts[0] != texts[2] {
		t.Errorf("errors differ: %q", texts)
	}

	dir = folder(t, map[string]string{"x.tsv": "url\tx\n" + strings.Repeat("http://a.example/\t1\n", 20_000)})
	spec = ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, URLColumn: "link"}
	var input *ingest.InputError
	if _, err := ingest.MakePlanWithin(ctx, blob.NewMemory(), "run", spec, ingest.Limits{Split: 10_000}); !errors.As(err, &input) {
		t.Errorf("no such column: %v", err)
	}

	// Damage in the middle: the ranges before it are done, its own names the place.
	var list strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&list, "http://h%d.example/%x\n", i, uint32(i)*2654435761)
	}
	data := []byte(seekable(t, list.String(), 10_000))
	clear(data[len(data)/2:][:8000]) // the beginning of a frame with it
	dir = folder(t, map[string]string{"x.zst": string(data)})
	spec = ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	if _, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{Split: 1000}); !errors.As(err, &input) || input.Offset < 256<<10 {
		t.Errorf("damaged frame: %v", err)
	} else if !strings.Contains(err.Error(), fmt.Sprintf("x.zst byte %d: ", input.Offset)) {
		t.Errorf("the text does not name the place: %v", err)
	}
}

func TestObjectChangedBetweenItsRangesIsRefused(t *testing.T) {
	ctx := context.Background()
	text := strings.Repeat("http://a.example/\n", 40_000)
	bucket := blob.NewMemory()
	ingest.BehindS3(t, bucket)
	for name, change := range map[string]string{"other bytes": strings.Replace(text, "a", "b", 1), "shorter": text[:100], "gone": ""} {
		t.Run(name, func(t *testing.T) {
			if _, err := bucket.Put(ctx, "in/x.txt", []byte(text), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			dir := folder(t, map[string]string{"x.txt": text})
			for run, in := range map[string]string{"file": dir, "key": "s3://bucket/in/"} {
				store := blob.NewMemory()
				l := ingest.Limits{Split: 100_000}
				plan, err := ingest.MakePlanWithin(ctx, store, run, ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{in}}, l)
				if err != nil || plan.Splits < 3 {
					t.Fatalf("%+v, %v", plan, err)
				}
				if _, err := ingest.NormalizeWithin(ctx, store, run, 0, l); err != nil {
					t.Fatal(err)
				}
				switch {
				case run == "file" && change == "":
					err = os.Remove(filepath.Join(dir, "x.txt"))
				case run == "file":
					err = os.WriteFile(filepath.Join(dir, "x.txt"), []byte(change), 0o644)
				case change == "":
					err = bucket.Delete(ctx, "in/x.txt")
				default:
					_, err = bucket.Put(ctx, "in/x.txt", []byte(change), blob.Condition{})
				}
				if err != nil {
					t.Fatal(err)
				}
				var input *ingest.InputError
				if _, err := ingest.NormalizeWithin(ctx, store, run, 2, l); !errors.As(err, &input) || input.Object == "" {
					t.Errorf("%s: %v", run, err)
				}
			}
		})
	}
}

func TestFinishTellsWhatWasGuessed(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{}
	for i := range 9 {
		files[fmt.Sprintf("%d.csv", i)] = fmt.Sprintf("c%d,d\n%smailto:x,7\n", i/2, strings.Repeat("http://a.example/,5\n", 20))
	}
	dir := folder(t, files)
	for _, l := range []ingest.Limits{{}, {Split: 1, Object: 1}} {
		f, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}, l)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Notes) != 5 || !strings.Contains(f.Notes[0], `"c0"`) || !strings.Contains(f.Notes[4], `"c4"`) {
			t.Errorf("notes %q", f.Notes)
		}
		if len(f.Examples) != 5 || f.Examples[4] != (ingest.Reject{Object: "file://" + filepath.Join(dir, "4.csv"), Line: 22, Offset: 5 + 20*20, Reason: "scheme"}) {
			t.Errorf("examples %v", f.Examples)
		}
	}
}

func TestEveryStepMayRunTwiceAtOnce(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 1000)
	l := withLarge(t, dir, ingest.Limits{Arena: 5000, AnyPrefix: 1})
	alone := blob.NewMemory()
	if _, err := steps(ctx, alone, "run", madeUpSpec(dir), l); err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	const n = 4
	results := make([]ingest.FinishResult, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			// Workers of different sizes cut runs differently.
			l := l
			l.Arena *= int64(i + 1)
			results[i], errs[i] = steps(ctx, store, "run", madeUpSpec(dir), l)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if diff := gocmp.Diff(results[0], r); diff != "" {
			t.Errorf("results differ: %s", diff)
		}
	}
	sameObjects(t, objects(t, alone), objects(t, store))
}

func TestAfterACrashAnywhereTheRunCompletes(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	l := withLarge(t, dir, ingest.Limits{Arena: 100_000, AnyPrefix: 1, Task: 100_000})
	alone := blob.NewMemory()
	f, err := steps(ctx, alone, "run", spec, l)
	if err != nil {
		t.Fatal(err)
	}
	want := objects(t, alone)
	for name, postings := range map[string]ingest.NewPostings{"extracted": nil, "collected": countDomains} {
		l.Postings = postings
		crashes := 0
		for n := 0; ; n++ {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.CrashAfter(n)
			_, err := steps(ctx, store, "run", spec, l)
			if !store.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			crashes++
			if !errors.Is(err, blobtest.ErrCrashed) {
				t.Fatalf("postings %s: crash after %d changes: %v", name, n, err)
			}
			got, err := steps(ctx, inner, "run", spec, l)
			if err != nil {
				t.Fatalf("postings %s: after a crash after %d changes: %v", name, n, err)
			}
			if diff := gocmp.Diff(f, got); diff != "" {
				t.Fatalf("postings %s: after a crash after %d changes the result differs: %s", name, n, diff)
			}
			sameObjects(t, want, objects(t, inner))
		}
		if crashes < 30 {
			t.Errorf("postings %s: only %d places to crash in", name, crashes)
		}
	}
}

func TestLostRepliesDoNotShow(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	l := ingest.Limits{Split: 1, Object: 1, AnyPrefix: 1}
	alone := blob.NewMemory()
	if _, err := steps(ctx, alone, "run", madeUpSpec(dir), l); err != nil {
		t.Fatal(err)
	}
	want := objects(t, alone)
	for _, op := range []blob.Op{blob.OpPut, blob.OpFinish} {
		for n := 1; ; n++ {
			inner := blob.NewMemory()
			store := blobtest.NewFaulty(inner)
			store.Inject(blobtest.Fault{Op: op, Nth: n, After: true})
			_, err := steps(ctx, store, "run", madeUpSpec(dir), l)
			if store.Fired() == 0 {
				break
			}
			if err != nil {
				if _, err = steps(ctx, store, "run", madeUpSpec(dir), l); err != nil {
					t.Fatalf("reply to %v %d lost, done again: %v", op, n, err)
				}
			}
			sameObjects(t, want, objects(t, inner))
		}
	}
}

func TestIngestingAgainChangesNothingAndSaysSo(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 500)
	spec := madeUpSpec(dir)
	store := blob.NewMemory()
	first, err := steps(ctx, store, "run1", spec, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := steps(ctx, store, "run1", spec, ingest.Limits{}); err != nil || again.Existed {
		t.Errorf("the same run again: existed %v, %v", again.Existed, err)
	}
	before := objects(t, store)
	second, err := steps(ctx, store, "run2", spec, ingest.Limits{Split: 1, Object: 1, Arena: 3000})
	if err != nil {
		t.Fatal(err)
	}
	if !second.Existed || !second.Current || second.Digest != first.Digest {
		t.Errorf("existed %v, current %v, digest %s, want %s", second.Existed, second.Current, second.Digest, first.Digest)
	}
	after := objects(t, store)
	delete(before, lake.BatchRegistryKey(1))
	delete(after, lake.BatchRegistryKey(1))
	sameObjects(t, before, after)

	// Other content replaces it, and the first content is new again after that.
	other := spec
	other.Extras = nil
	third, err := steps(ctx, store, "run3", other, ingest.Limits{})
	if err != nil || third.Existed || !third.Current || third.Digest == first.Digest {
		t.Errorf("other content: %+v, %v", third, err)
	}
	fourth, err := steps(ctx, store, "run4", spec, ingest.Limits{})
	if err != nil || fourth.Existed || !fourth.Current || fourth.Digest != first.Digest {
		t.Errorf("the first content again: %+v, %v", fourth, err)
	}
}

func TestRunRegisteredEarlierDoesNotReplaceALaterOne(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	store := blob.NewMemory()
	if _, err := ingest.MakePlan(ctx, store, "early", spec); err != nil {
		t.Fatal(err)
	}
	other := spec
	other.Extras = nil
	late, err := steps(ctx, store, "late", other, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	early, err := steps(ctx, store, "early", spec, ingest.Limits{})
	if err != nil || early.Current {
		t.Errorf("current %v, %v", early.Current, err)
	}
	current, err := lake.CurrentBatches(ctx, store, 1)
	if err != nil || current[spec.Batch] != late.Digest {
		t.Errorf("%v, %v; want %s", current, err, late.Digest)
	}
}

func TestRejectsAreListedInInputOrder(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{
		"a.txt": "http://a.example/\nmailto:x@y.z\n\n# comment\nhttp://b.example/\nhttp://exa mple/\n",
		"b.txt": "http://c.example/\r\nhttp://d.example:99999/\r\n",
		"c.txt": "",
		"d.txt": "http://e.example/\n" + "http://f.example/" + strings.Repeat("x", 70_000) + "\nhttp://g.example/" + strings.Repeat("y", 2_000_000) + "\nhttp://h.example/\n",
	}
	dir := folder(t, files)
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	file := func(name string) string { return "file://" + filepath.Join(dir, name) }
	want := []ingest.Reject{
		{file("a.txt"), 2, 18, "scheme"},
		{file("a.txt"), 6, 60, "host"},
		{file("b.txt"), 2, 19, "port"},
		{file("d.txt"), 2, 18, "too_long"},
		{file("d.txt"), 3, 18 + 17 + 70_000 + 1, "too_long_line"},
	}
	for _, l := range []ingest.Limits{{}, {Split: 1, Object: 1}} {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, l)
		if err != nil {
			t.Fatal(err)
		}
		b := readBatch(t, store, f.BatchKey)
		if diff := gocmp.Diff(want, rejectLines(t, store, b.Rejects)); diff != "" {
			t.Errorf("differs: %s", diff)
		}
		info, err := store.Stat(ctx, b.Rejects.Key)
		if err != nil || info.Size != b.Rejects.Bytes || f.RejectsKey != b.Rejects.Key {
			t.Errorf("%+v, %v, want %+v", info, err, b.Rejects)
		}
		wantInputs := []lake.Input{
			{Name: file("a.txt"), Bytes: int64(len(files["a.txt"])), Format: "lines", Records: 4, Rejects: 2},
			{Name: file("b.txt"), Bytes: int64(len(files["b.txt"])), Format: "lines", Records: 2, Rejects: 1},
			{Name: file("c.txt"), Bytes: int64(len(files["c.txt"])), Format: "empty"},
			{Name: file("d.txt"), Bytes: int64(len(files["d.txt"])), Format: "lines", Records: 4, Rejects: 2},
		}
		if diff := gocmp.Diff(wantInputs, b.Inputs); diff != "" {
			t.Errorf("inputs differ: %s", diff)
		}
	}
}

func TestBatchWithTooManyRejectsFails(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name, text string
		rate       float64
		fails      bool
	}{
		{"half, by default", "http://a.example/\nmailto:x\n", 0, false},
		{"more than half, by default", "http://a.example/\nmailto:x\nmailto:y\n", 0, true},
		{"more than half, allowed", "http://a.example/\nmailto:x\nmailto:y\n", 0.7, false},
		{"one, none allowed", "http://a.example/\nhttp://b.example/\nmailto:x\n", ingest.NoRejects, true},
		{"none, none allowed", "http://a.example/\n", ingest.NoRejects, false},
		{"all, all allowed", "mailto:x\nmailto:y\n", 1, true},
		{"no records", "# nothing\n", 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, map[string]string{"x.txt": c.text})
			store := blob.NewMemory()
			_, err := steps(ctx, store, "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, Format: "lines", MaxRejectRate: c.rate}, ingest.Limits{})
			var input *ingest.InputError
			if !c.fails {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.As(err, &input) {
				t.Fatalf("got %v", err)
			}
			if strings.Contains(c.text, "mailto") {
				line := int64(1 + strings.Count(c.text[:strings.Index(c.text, "mailto")], "\n"))
				if input.Line != line || !strings.HasSuffix(input.Object, "/x.txt") || len(input.Rejects) == 0 || input.Rejects[0].Reason != "scheme" {
					t.Errorf("%+v does not name the first reject", input)
				}
				if !strings.Contains(err.Error(), "x.txt line") {
					t.Errorf("the text does not name the place: %v", err)
				}
			}
			for key := range objects(t, store) {
				if !strings.HasPrefix(key, "registry/") {
					t.Errorf("the failed batch left %s", key)
				}
			}
		})
	}
}

func TestBadInputIsAnInputError(t *testing.T) {
	ctx := context.Background()
	var cut bytes.Buffer
	z := gzip.NewWriter(&cut)
	fmt.Fprint(z, strings.Repeat("http://a.example/\n", 1000))
	z.Close()
	dir := folder(t, map[string]string{
		"good.txt":    "http://a.example/\n",
		"cut.gz":      cut.String()[:cut.Len()-10],
		"table.csv":   "url,title\nhttp://a.example/,t\n",
		"p.parquet":   "PAR1" + strings.Repeat("\x00", 100) + "PAR1",
		"empty/.keep": "",
	})
	good := filepath.Join(dir, "good.txt")
	for name, spec := range map[string]ingest.Spec{
		"no inputs":              {Dataset: "d"},
		"dataset name":           {Dataset: "a/b", Inputs: []string{good}},
		"batch name":             {Dataset: "d", Batch: "..", Inputs: []string{good}},
		"no such file":           {Dataset: "d", Inputs: []string{filepath.Join(dir, "none")}},
		"below a file":           {Dataset: "d", Inputs: []string{good + "/x"}},
		"no such match":          {Dataset: "d", Inputs: []string{filepath.Join(dir, "none*")}},
		"bad glob":               {Dataset: "d", Inputs: []string{filepath.Join(dir, "[")}},
		"empty folder":           {Dataset: "d", Inputs: []string{filepath.Join(dir, "empty")}},
		"relative path":          {Dataset: "d", Inputs: []string{"good.txt"}},
		"other scheme":           {Dataset: "d", Inputs: []string{"https://example.org/list.txt"}},
		"format":                 {Dataset: "d", Inputs: []string{good}, Format: "xml"},
		"line length":            {Dataset: "d", Inputs: []string{good}, MaxLine: -1},
		"time format":            {Dataset: "d", Inputs: []string{good}, TSFormat: "%Q"},
		"reject rate":            {Dataset: "d", Inputs: []string{good}, MaxRejectRate: 2},
		"parameter":              {Dataset: "d", Inputs: []string{good}, StripParams: []string{"a*b"}},
		"truncated object":       {Dataset: "d", Inputs: []string{filepath.Join(dir, "cut.gz")}},
		"no such column":         {Dataset: "d", Inputs: []string{filepath.Join(dir, "table.csv")}, URLColumn: "link"},
		"format that is no text": {Dataset: "d", Inputs: []string{filepath.Join(dir, "p.parquet")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{})
			var input *ingest.InputError
			if !errors.As(err, &input) {
				t.Fatalf("got %v", err)
			}
			if n := strings.Count(err.Error(), dir); n > 1 {
				t.Errorf("the object is named %d times: %v", n, err)
			}
		})
	}
	if _, err := steps(ctx, blob.NewMemory(), "a/b", ingest.Spec{Dataset: "d", Inputs: []string{good}}, ingest.Limits{}); err == nil {
		t.Error("a run name with a slash: no error")
	}
}

func TestObjectChangedSinceThePlanIsRefused(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	store := blob.NewMemory()
	spec := ingest.Spec{Dataset: "d", Inputs: []string{dir}}
	plan, err := ingest.MakePlan(ctx, store, "run", spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.txt"), []byte("http://b.example/x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var input *ingest.InputError
	if _, err := ingest.Normalize(ctx, store, "run", 0, nil, nil); !errors.As(err, &input) {
		t.Errorf("got %v", err)
	}
	// The plan itself stays what it was.
	if again, err := ingest.MakePlan(ctx, store, "run", spec); err != nil || again != plan {
		t.Errorf("%+v, %v; want %+v", again, err, plan)
	}
	spec.Extras = []string{} // says the same
	if again, err := ingest.MakePlan(ctx, store, "run", spec); err != nil || again != plan {
		t.Errorf("%+v, %v; want %+v", again, err, plan)
	}
	spec.KeepRaw = true
	if _, err := ingest.MakePlan(ctx, store, "run", spec); !errors.As(err, &input) {
		t.Errorf("another spec under the same run: %v", err)
	}
	if next, err := ingest.MakePlan(ctx, store, "run2", spec); err != nil || next.Batch == plan.Batch {
		t.Errorf("the changed object gives batch %s as before, %v", next.Batch, err)
	}
}

func TestRawURLIsKeptWhereItDiffers(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"x.txt": "http://same.example/a\nHTTP://case.example/a\nhttp://user:secret@user.example/a\n" +
		"http://user:secret@both.example\nhttp://bytes.example/\xff\xc3\xa9#f\nhttp://merged.example\nHTTP://merged.example\n"})
	for _, keep := range []bool{true, false} {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}, KeepRaw: keep}, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"case.example":   "HTTP://case.example/a",
			"both.example":   "http://both.example",
			"bytes.example":  "http://bytes.example/%FF\u00e9#f",
			"merged.example": "HTTP://merged.example",
			"same.example":   "", "user.example": "",
		}
		got := map[string]string{}
		for _, r := range batchRows(t, store, readBatch(t, store, f.BatchKey)) {
			got[r.Host] = r.RawURL
		}
		if !keep {
			for host := range want {
				want[host] = ""
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("keep %v: %s", keep, diff)
		}
	}
}

func TestObjectThatGoesIsAnInputError(t *testing.T) {
	ctx := context.Background()
	bucket, store := blob.NewMemory(), blob.NewMemory()
	if _, err := bucket.Put(ctx, "in/a.txt", []byte("http://a.example/\n"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	ingest.BehindS3(t, bucket)
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	for run, in := range map[string]string{"file": dir, "key": "s3://bucket/in/"} {
		if _, err := ingest.MakePlan(ctx, store, run, ingest.Spec{Dataset: "d", Batch: run, Inputs: []string{in}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "x.txt")), bucket.Delete(ctx, "in/a.txt")); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"file", "key"} {
		var input *ingest.InputError
		if _, err := ingest.Normalize(ctx, store, run, 0, nil, nil); !errors.As(err, &input) || input.Object == "" {
			t.Errorf("%s: %v", run, err)
		}
	}
}

func TestStepsOutOfOrderAreRefused(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	try := func(want error, steps ...func() error) {
		t.Helper()
		for i, step := range steps {
			if err := step(); !errors.Is(err, want) {
				t.Errorf("step %d: %v", i, err)
			}
		}
	}
	normalize := func() error { _, err := ingest.Normalize(ctx, store, "run", 0, nil, nil); return err }
	planMerge := func() error { _, err := ingest.PlanMerge(ctx, store, "run"); return err }
	merge := func() error { _, err := ingest.Merge(ctx, store, "run", 0, "", nil, nil); return err }
	read := func() error { _, err := ingest.ReadMerged(ctx, store, "run", 0); return err }
	finish := func() error { _, err := ingest.Finish(ctx, store, "run", make([]lake.FrameObject, 1), 1); return err }
	try(blob.ErrNotExist, normalize, planMerge, merge, read, finish)
	if _, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	try(blob.ErrNotExist, planMerge, merge, read, finish)
	try(nil, normalize)
	try(blob.ErrNotExist, merge, finish)
	try(nil, planMerge)
	try(nil, merge, read, finish)
	if _, err := ingest.Normalize(ctx, store, "run", 1, nil, nil); err == nil {
		t.Error("a split that is not planned: no error")
	}
	if _, err := ingest.Merge(ctx, store, "run", 1, "", nil, nil); err == nil {
		t.Error("a task that is not planned: no error")
	}
	if _, err := ingest.Finish(ctx, store, "run", nil, 1); err == nil {
		t.Error("too few postings: no error")
	}
}

func TestWorkerOfOtherRulesRefuses(t *testing.T) {
	ctx := context.Background()
	store := blob.NewMemory()
	dir := folder(t, map[string]string{"x.txt": "http://a.example/\n"})
	if _, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}}); err != nil {
		t.Fatal(err)
	}
	key := "staging/run/plan.json"
	data, _, err := store.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := codec.Unseal(data, key, &doc); err != nil {
		t.Fatal(err)
	}
	doc["rules"].(map[string]any)["public_suffix_list"] = "of another day"
	if data, err = codec.Seal(doc); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, key, data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	var rules *ingest.RulesError
	if _, err := ingest.Normalize(ctx, store, "run", 0, nil, nil); !errors.As(err, &rules) {
		t.Errorf("got %v", err)
	}
}

func TestDamagedStagingIsCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 100)
	spec := madeUpSpec(dir)
	l := ingest.Limits{Split: 1, Object: 1}
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", spec, l)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(ctx, "staging/") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, len(data) / 2, len(data) - 1} {
			bad := bytes.Clone(data)
			bad[at] ^= 0x40
			// A fresh store with everything but what the damaged object leads to.
			broken := blob.NewMemory()
			for other := range store.List(ctx, "") {
				d, _, err := store.Get(ctx, other.Key)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(info.Key, "staging/run/shuffle/") && strings.HasPrefix(other.Key, "staging/run/merged/") {
					continue
				}
				if strings.HasPrefix(info.Key, "staging/run/plan-") && strings.HasPrefix(other.Key, "staging/run/splits/") {
					continue
				}
				if _, err := broken.Put(ctx, other.Key, d, blob.Condition{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := broken.Put(ctx, info.Key, bad, blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			got, err := steps(ctx, broken, "run", spec, l)
			if err == nil && got.Digest != f.Digest || err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("%s byte %d: digest %s, want %s; %v", info.Key, at, got.Digest, f.Digest, err)
			}
		}
	}
}

func TestProgressAddsUp(t *testing.T) {
	ctx := context.Background()
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "http://h%d.example/\n", i)
	}
	dir := folder(t, map[string]string{"x.txt": text.String(), "y.txt": "http://a.example/\nmailto:x\n"})
	store := blob.NewMemory()
	plan, err := ingest.MakePlan(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	var all []ingest.Progress
	split, err := ingest.Normalize(ctx, store, "run", 0, nil, func(p ingest.Progress) { all = append(all, p) })
	if err != nil {
		t.Fatal(err)
	}
	last := all[len(all)-1]
	want := ingest.Progress{Records: 10_002, Kept: 10_001, Rejected: 1, BytesRead: plan.Bytes, BytesTotal: plan.Bytes}
	if diff := gocmp.Diff(want, last); diff != "" {
		t.Errorf("last progress differs: %s", diff)
	}
	if len(all) < 3 || !slices.IsSortedFunc(all, func(a, b ingest.Progress) int {
		return cmp.Or(cmp.Compare(a.Records, b.Records), cmp.Compare(a.BytesRead, b.BytesRead))
	}) {
		t.Errorf("progress %+v", all)
	}
	if split.Records != want.Records || split.Kept != want.Kept || split.Bytes != plan.Bytes {
		t.Errorf("%+v", split)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	var merging ingest.Progress
	m, err := ingest.Merge(ctx, store, "run", 0, "", nil, func(p ingest.Progress) { merging = p })
	if err != nil {
		t.Fatal(err)
	}
	if merging.Kept != m.Rows || merging.Records != split.Kept {
		t.Errorf("merge progress %+v of %+v", merging, m)
	}
}

// A batch that fits into memory does not go through staging, and what it leaves is the same.
func TestSmallBatchIsMergedAtOnce(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	spec := madeUpSpec(dir)
	staged := ingest.Limits{Arena: 20_000, Postings: countDomains}
	objects := map[string][]string{}
	for name, within := range map[string]ingest.Limits{"at once": {Postings: countDomains}, "staged": staged} {
		store := blob.NewMemory()
		if _, err := ingest.MakePlan(ctx, store, "run", spec); err != nil {
			t.Fatal(err)
		}
		split, err := ingest.NormalizeWithin(ctx, store, "run", 0, within)
		if err != nil {
			t.Fatal(err)
		}
		if atOnce := split.Files == 0; atOnce != (name == "at once") {
			t.Errorf("%s: %d files", name, split.Files)
		}
		if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.Merge(ctx, store, "run", 0, t.TempDir(), countDomains, nil); err != nil {
			t.Fatal(err)
		}
		merged, err := ingest.ReadMerged(ctx, store, "run", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range merged.Parts {
			objects[name] = append(objects[name], p.Part.Key) // named by its content
		}
		if merged.Postings.Key == "" || merged.Domains == 0 {
			t.Errorf("%s: postings %+v of %d domains", name, merged.Postings, merged.Domains)
		}
		objects[name] = append(objects[name], merged.Postings.Key)
	}
	if len(objects["staged"]) == 0 || !slices.Equal(objects["staged"], objects["at once"]) {
		t.Errorf("parts %v", objects)
	}
}

// Postings of other parts than those that the merge's record names do not become a batch with these.
func TestFinishRefusesPostingsOfOtherParts(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 300)
	store := blob.NewMemory()
	if _, err := ingest.MakePlan(ctx, store, "run", madeUpSpec(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Normalize(ctx, store, "run", 0, countDomains, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	m, err := ingest.Merge(ctx, store, "run", 0, t.TempDir(), countDomains, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := m.Postings
	other.XXH64 = "0000000000000000"
	if _, err := ingest.Finish(ctx, store, "run", []lake.FrameObject{other}, m.Domains); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("postings of other parts: %v", err)
	}
	if _, err := ingest.Finish(ctx, store, "run", []lake.FrameObject{m.Postings}, m.Domains); err != nil {
		t.Error(err)
	}
}

// Rows of few letters are a part of several row groups long before their keys are many bytes. Such a batch goes through
// staging: a part of one row group is all that Normalize has room for.
func TestNormalizeNeedsNoLocalDisk(t *testing.T) {
	ctx := context.Background()
	var text strings.Builder
	const rows = 1_600_000
	for i := range rows {
		fmt.Fprintf(&text, "http://a%d.de/\n", i)
	}
	dir := folder(t, map[string]string{"short.txt": text.String()})
	store := blob.NewMemory()
	spec := ingest.Spec{Dataset: "short", Batch: "a-name-that-every-row-holds", Inputs: []string{dir}}
	if _, err := ingest.MakePlan(ctx, store, "run", spec); err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(temp, "absent"))
	if split, err := ingest.Normalize(ctx, store, "run", 0, nil, nil); err != nil || split.Kept != rows {
		t.Fatalf("%+v, %v", split, err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.Merge(ctx, store, "run", 0, temp, nil, nil); err != nil {
		t.Fatal(err)
	}
	merged, err := ingest.ReadMerged(ctx, store, "run", 0)
	if err != nil || merged.Rows != rows || len(merged.Parts) != 1 || merged.Parts[0].Part.RowGroups < 2 {
		t.Errorf("%+v, %v", merged.Parts[0].Part, err)
	}
}

func TestCancelledStepStops(t *testing.T) {
	store := blob.NewMemory()
	dir, _ := madeUp(t, 30_000)
	if _, err := ingest.MakePlan(context.Background(), store, "run", madeUpSpec(dir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	_, err := ingest.Normalize(ctx, store, "run", 0, nil, func(ingest.Progress) {
		seen++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%v after %d reports", err, seen)
	}
}

func TestInputs(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"b.txt": "1", "a.txt": "22", "sub/c d.txt": "3", "sub/deep/e.csv": "4", ".hidden": "x", "_SUCCESS": "", "sub/.git/f": "x"})
	if err := os.Symlink(filepath.Join(dir, "sub"), filepath.Join(dir, "sub", "deep", "loop")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "a.txt"), filepath.Join(dir, "sub", "link.txt")); err != nil {
		t.Fatal(err)
	}
	bucket := blob.NewMemory()
	for _, key := range []string{"crawl/1/a.gz", "crawl/1/b.gz", "crawl/2/a.gz", "crawl/2/_SUCCESS", "crawl/10.gz", "other"} {
		if _, err := bucket.Put(ctx, key, []byte(key), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	ingest.BehindS3(t, bucket)
	for _, c := range []struct {
		in   []string
		want []string
	}{
		{[]string{dir}, []string{"/a.txt", "/b.txt", "/sub/c%20d.txt", "/sub/deep/e.csv", "/sub/link.txt"}},
		{[]string{dir + "/b.txt", dir + "/a.txt", dir + "/*.txt"}, []string{"/a.txt", "/b.txt"}},
		{[]string{dir + "/s*"}, []string{"/sub/c%20d.txt", "/sub/deep/e.csv", "/sub/link.txt"}},
		{[]string{"file://" + dir + "/sub/c%20d.txt"}, []string{"/sub/c%20d.txt"}},
		{[]string{dir + "/.hidden"}, []string{"/.hidden"}},
		{[]string{"s3://bucket/crawl/1/a.gz"}, []string{"s3://bucket/crawl/1/a.gz"}},
		{[]string{"s3://bucket/crawl/1", "s3://bucket/crawl/2/"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/1/b.gz", "s3://bucket/crawl/2/a.gz"}},
		{[]string{"s3://bucket/crawl/*/a.gz"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/2/a.gz"}},
		{[]string{"s3://bucket"}, []string{"s3://bucket/crawl/1/a.gz", "s3://bucket/crawl/1/b.gz", "s3://bucket/crawl/10.gz", "s3://bucket/crawl/2/a.gz", "s3://bucket/other"}},
	} {
		got, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: c.in})
		if err != nil {
			t.Errorf("%v: %v", c.in, err)
			continue
		}
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], "file://"+dir)
		}
		if diff := gocmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v: %s", c.in, diff)
		}
	}
	var input *ingest.InputError
	for _, in := range []string{"s3://bucket/none", "s3://bucket/none/", "s3://bucket/none*", "s3://bucket/["} {
		if got, _, err := ingest.Expand(ctx, ingest.Spec{Inputs: []string{in}}); !errors.As(err, &input) {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
}

func TestBucketIsReadAsPlanned(t *testing.T) {
	ctx := context.Background()
	bucket := blob.NewMemory()
	put := func(key, text string) {
		t.Helper()
		if _, err := bucket.Put(ctx, key, []byte(text), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put("in/a.txt", "http://a.example/\n")
	put("in/b.txt", "http://b.example/\n")
	ingest.BehindS3(t, bucket)
	spec := ingest.Spec{Dataset: "d", Inputs: []string{"s3://bucket/in/"}}
	store := blob.NewMemory()
	f, err := steps(ctx, store, "run", spec, ingest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := newOracle()
	want.add("http://a.example/", lake.Row{}, false)
	want.add("http://b.example/", lake.Row{}, false)
	want.check(t, store, f)
	if _, err := ingest.MakePlan(ctx, store, "run2", spec); err != nil {
		t.Fatal(err)
	}
	put("in/b.txt", "http://c.example/\n")
	var input *ingest.InputError
	if _, err := ingest.Normalize(ctx, store, "run2", 0, nil, nil); !errors.As(err, &input) || input.Object != "s3://bucket/in/b.txt" {
		t.Errorf("got %v", err)
	}
}

func TestLakeAndInputsOnS3(t *testing.T) {
	ctx := context.Background()
	open := func() blob.Store {
		store, err := blob.Open(ctx, testenv.S3(t))
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	inputs, store := open(), open()
	dir, want := madeUp(t, 500)
	for i := range 5 {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("part%d.csv", i)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inputs.Put(ctx, fmt.Sprintf("in/part%d.csv", i), data, blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	spec := madeUpSpec(inputs.URL() + "/in/")
	l := ingest.Limits{Split: 1, Object: 1, Arena: 5000, AnyPrefix: 1}
	f, err := steps(ctx, store, "run", spec, l)
	if err != nil {
		t.Fatal(err)
	}
	want.check(t, store, f)
	again, err := steps(ctx, store, "run2", spec, ingest.Limits{AnyPrefix: 1})
	if err != nil || !again.Existed {
		t.Errorf("again: existed %v, %v", again.Existed, err)
	}
	for _, run := range []string{"run", "run2"} {
		if err := ingest.Cleanup(ctx, store, run); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range store.List(ctx, "staging/") {
		t.Errorf("%s was left behind (%v)", info.Key, err)
	}
}

// Real data against readers that share nothing with package raw.
func TestRealDatasets(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		file, column string
		read         func(r io.Reader, add func(url string))
	}{
		{"eot2024/RoundupListsforEOT.txt.zst", "", readLines},
		{"kagi-smallweb/smallweb.txt.gz", "", readLines},
		{"eot2024/Violation_Tracker_unique_infosource_URLs.csv.gz", "url", readCSV(0)},
		{"eot2024/EDGI_EoT_Bulk_List_2025-01-16.csv.gz", "url", readCSV(0)},
		{"wimbd/c4-sample.json.gz", "url", readMember("url")},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := testenv.Shared(t, "data", c.file)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var r io.Reader
			if strings.HasSuffix(path, ".zst") {
				r, err = zstd.NewReader(f)
			} else {
				r, err = gzip.NewReader(f)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := newOracle()
			c.read(r, func(url string) { want.add(url, lake.Row{}, false) })
			store := blob.NewMemory()
			got, err := steps(ctx, store, "run", ingest.Spec{Dataset: "real", Inputs: []string{path}, URLColumn: c.column},
				ingest.Limits{Arena: 1 << 20, AnyPrefix: 1 << 16, OneDigit: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			// A record without a URL is nothing to the oracle.
			b := readBatch(t, store, got.BatchKey)
			if n := b.Rejected["no_url"]; n > 0 {
				want.records += n
				want.rejected["no_url"] = n
			}
			want.check(t, store, got)
			t.Logf("%d records, %d rows, %d domains, rejected %v, %d parts", b.Records, b.Rows, b.Domains, b.Rejected, len(b.Parts))
		})
	}
}

func readLines(r io.Reader, add func(string)) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		line := strings.TrimSpace(strings.TrimPrefix(s.Text(), "\ufeff"))
		if line != "" && !strings.HasPrefix(line, "#") {
			add(line)
		}
	}
}

func readCSV(column int) func(io.Reader, func(string)) {
	return func(r io.Reader, add func(string)) {
		c := csv.NewReader(r)
		c.FieldsPerRecord, c.LazyQuotes = -1, true
		for i := 0; ; i++ {
			rec, err := c.Read()
			if err != nil {
				return
			}
			if i > 0 && strings.TrimSpace(rec[column]) != "" {
				add(rec[column])
			}
		}
	}
}

func readMember(name string) func(io.Reader, func(string)) {
	return func(r io.Reader, add func(string)) {
		d := json.NewDecoder(r)
		for {
			var rec map[string]any
			if d.Decode(&rec) != nil {
				return
			}
			if s, ok := rec[name].(string); ok && s != "" {
				add(s)
			}
		}
	}
}

func BenchmarkSteps(b *testing.B) {
	ctx := context.Background()
	const records = 300_000
	rng := rand.New(rand.NewPCG(3, 4))
	var text bytes.Buffer
	for range records {
		site := rng.IntN(1 + rng.IntN(1+rng.IntN(20_000)))
		fmt.Fprintf(&text, "https://www.site%d.example/archive/%d/articles/%x.html?id=%d\n", site, rng.IntN(3000), rng.Uint64()>>16, rng.IntN(100_000))
	}
	path := filepath.Join(b.TempDir(), "urls.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	spec := ingest.Spec{Dataset: "d", Inputs: []string{path}}
	// Two steps are measured, each on what the ones before it left.
	prepare := func(steps ...func(store blob.Store) error) blob.Store {
		store, err := blob.NewLocal(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range steps {
			if err := s(store); err != nil {
				b.Fatal(err)
			}
		}
		return store
	}
	plan := func(store blob.Store) error { _, err := ingest.MakePlan(ctx, store, "run", spec); return err }
	normalize := func(store blob.Store) error { _, err := ingest.Normalize(ctx, store, "run", 0, nil, nil); return err }
	planMerge := func(store blob.Store) error { _, err := ingest.PlanMerge(ctx, store, "run"); return err }
	merge := func(store blob.Store) error { _, err := ingest.Merge(ctx, store, "run", 0, "", nil, nil); return err }
	for _, c := range []struct {
		name   string
		before []func(blob.Store) error
		step   func(blob.Store) error
	}{
		{"normalize", []func(blob.Store) error{plan}, normalize},
		{"merge", []func(blob.Store) error{plan, normalize, planMerge}, merge},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				store := prepare(c.before...)
				b.StartTimer()
				if err := c.step(store); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/records, "ns/record")
		})
	}
}

// A document of one split that stands where another's should is not taken for it: its rows would be there twice, and the other's not at all.
func TestSplitsInEachOthersPlaceAreCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	store := blob.NewMemory()
	plan, err := ingest.MakePlanWithin(ctx, store, "run", madeUpSpec(dir), ingest.Limits{Split: 20_000, Object: 1})
	if err != nil || plan.Splits < 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for i := range plan.Splits {
		if _, err := ingest.Normalize(ctx, store, "run", i, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	data, _, err := store.Get(ctx, "staging/run/splits/000001.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, "staging/run/splits/000000.json", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// A staging object that has become shorter is corrupt: to ask for the same range again helps nobody.
func TestShortShuffleFileIsCorrupt(t *testing.T) {
	ctx := context.Background()
	dir, _ := madeUp(t, 3000)
	store := blob.NewMemory()
	within := ingest.Limits{Arena: 20_000}
	if _, err := ingest.MakePlan(ctx, store, "run", madeUpSpec(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.NormalizeWithin(ctx, store, "run", 0, within); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.PlanMerge(ctx, store, "run"); err != nil {
		t.Fatal(err)
	}
	for info, err := range store.List(ctx, "staging/run/shuffle/") {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(ctx, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(ctx, info.Key, data[:len(data)/2], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		break
	}
	if _, err := ingest.Merge(ctx, store, "run", 0, t.TempDir(), nil, nil); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}
