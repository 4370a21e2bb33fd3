package files_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/export/domain64/numbers"
	"github.com/urlake/urlake/export/files"
	"github.com/urlake/urlake/export/scan"
	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/suppress"
)

// row is a row of an export, as text.
type row struct{ dataset, url, ts, size string }

// model is what the lake has, by dataset and batch.
type model map[string]map[string][]testlake.Record

func (m model) ingest(t testing.TB, store blob.Store, dataset, batch string, records []testlake.Record) {
	t.Helper()
	testlake.Ingest(t, store, dataset, batch, records)
	if m[dataset] == nil {
		m[dataset] = map[string][]testlake.Record{}
	}
	m[dataset][batch] = records
}

// rows are the sorted rows that are not hidden, of some datasets and domains or of all.
func (m model) rows(hidden func(dataset string, u urlnorm.URL) bool, datasets, domains []string) (all []row) {
	for dataset, batches := range m {
		if len(datasets) > 0 && !slices.Contains(datasets, dataset) {
			continue
		}
		for _, records := range batches {
			seen := map[row]bool{}
			for _, r := range records {
				u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), r.URL)
				if err != nil || hidden(dataset, u) || len(domains) > 0 && !slices.Contains(domains, u.Domain) {
					continue
				}
				x := row{dataset: dataset, url: u.String()}
				if r.HasTS {
					x.ts = strconv.FormatInt(r.TS, 10)
				}
				if r.HasSize {
					x.size = strconv.FormatInt(r.Size, 10)
				}
				if !seen[x] {
					all = append(all, x)
				}
				seen[x] = true
			}
		}
	}
	sortRows(all)
	return all
}

func sortRows(all []row) {
	slices.SortFunc(all, func(a, b row) int { return strings.Compare(fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)) })
}

func randomRecords(r *rand.Rand, n int) (list []testlake.Record) {
	hosts := []string{
		"example.com", "www.example.com", "a.b.example.com", "example.co.uk", "news.bbc.co.uk:8080", "localhost", "192.0.2.7",
		"[2001:db8::1]:81", "foo.github.io", "hidden.test", "part.hidden.org", "bücher.example",
	}
	for range n {
		rec := testlake.Record{URL: fmt.Sprintf("%s://%s/%d,%d?q=\"%d\"", []string{"http", "https"}[r.IntN(2)], hosts[r.IntN(len(hosts))], r.IntN(7), r.IntN(9), r.IntN(5))}
		if r.IntN(3) > 0 {
			rec.TS, rec.HasTS = time.Date(2026, 1, 1+r.IntN(3), 0, 0, 0, 5e6, time.UTC).UnixMilli(), true
		}
		if r.IntN(3) > 0 {
			rec.Size, rec.HasSize = int64(r.IntN(3)), true
		}
		list = append(list, rec)
	}
	return list
}

// life makes a lake with everything that decides which rows are there: replaced and retired
// batches, a union of which a batch was replaced, and takedowns. It calls look after each
// step.
func life(t *testing.T, store blob.Store, look func(what string, m model, hidden func(string, urlnorm.URL) bool)) {
	t.Helper()
	r := rand.New(rand.NewPCG(19, 6))
	m := model{}
	none := func(string, urlnorm.URL) bool { return false }
	for i, dataset := range []string{"alpha", "beta", "gamma"} {
		for b := range 3 {
			m.ingest(t, store, dataset, fmt.Sprint("b", b), randomRecords(r, 150*(i+1)))
		}
	}
	testlake.Publish(t, store)
	look("first version", m, none)
	m.ingest(t, store, "alpha", "b1", randomRecords(r, 90))
	m.ingest(t, store, "delta", "d", randomRecords(r, 40))
	testlake.Publish(t, store)
	look("a replaced batch", m, none)
	if _, err := publish.CompactAll(t.Context(), store, testlake.Run(), publish.Compaction{Full: true}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	look("a compaction", m, none)
	m.ingest(t, store, "beta", "b2", randomRecords(r, 60))
	testlake.Publish(t, store)
	look("a replaced batch of a union", m, none)
	ids, err := catalog.DatasetsNamed(t.Context(), store, "beta")
	if err != nil {
		t.Fatal(err)
	}
	hide := func(dataset string, kind catalog.TargetKind, text string) {
		target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), kind, text)
		if err != nil {
			t.Fatal(err)
		}
		rule := catalog.Takedown{
			ID: catalog.NewTakedownID(time.Now()), Target: target, DatasetID: ids[dataset].ID, Dataset: dataset,
			Created: time.Now().UTC(), Reason: "test",
		}
		if _, err := suppress.Add(t.Context(), store, rule, suppress.Options{TempDir: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
	}
	hide("", catalog.DomainTarget, "hidden.test")
	hide("beta", catalog.PrefixTarget, "https://part.hidden.org/3")
	hidden := func(dataset string, u urlnorm.URL) bool {
		return u.Domain == "hidden.test" ||
			dataset == "beta" && u.Host == "part.hidden.org" && u.Scheme == "https" && strings.HasPrefix(u.PathQuery, "/3")
	}
	look("takedowns", m, hidden)
	m.ingest(t, store, "gamma", "b3", randomRecords(r, 100))
	retired := []catalog.BatchName{{DatasetID: ids["beta"].ID, Batch: "b0"}}
	testlake.Retire(t, store, retired...)
	delete(m["beta"], "b0")
	testlake.Publish(t, store)
	look("a publish with a retired batch after takedowns", m, hidden)
}

func open(t testing.TB, store blob.Store, opt scan.Options) *scan.Slice {
	t.Helper()
	s, err := scan.Open(t.Context(), store, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readParquet reads all files of an export by parquet-go's readers, and checks the columns that
// follow from the URL.
func readParquet(t testing.TB, out blob.Store, m *files.Manifest, code func(host string) int64) (all []row) {
	t.Helper()
	for _, f := range m.Files {
		data, _, err := out.Get(t.Context(), f.Name)
		if err != nil {
			t.Fatal(err)
		}
		type line struct {
			URL      string  `parquet:"url"`
			Key      int64   `parquet:"key"`
			Domain64 int64   `parquet:"domain64"`
			Dataset  string  `parquet:"dataset"`
			TS       *int64  `parquet:"ts,optional"`
			Size     *int64  `parquet:"size,optional"`
			Extras   *string `parquet:"extras,optional"`
		}
		lines, err := parquet.Read[line](bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(lines)) != f.Rows || int64(len(data)) != f.Bytes {
			t.Errorf("%s has %d rows in %d bytes, listed as %+v", f.Name, len(lines), len(data), f)
		}
		for _, l := range lines {
			x := row{dataset: l.Dataset, url: l.URL}
			if l.TS != nil {
				x.ts = strconv.FormatInt(*l.TS, 10)
			}
			if l.Size != nil {
				x.size = strconv.FormatInt(*l.Size, 10)
			}
			all = append(all, x)
			u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), l.URL)
			if err != nil || uint64(l.Key) != urlkey.Key(l.URL) || l.Extras != nil {
				t.Fatalf("%+v: %v", l, err)
			}
			if code != nil && l.Domain64 != code(u.Host) {
				t.Fatalf("%s has the code %d, want %d", u.Host, l.Domain64, code(u.Host))
			}
		}
	}
	sortRows(all)
	return all
}

func readCSV(t testing.TB, data []byte) (all []row) {
	t.Helper()
	lines, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines[0], ","); got != "url,key,dataset,ts,size,extras,host" {
		t.Fatalf("columns %s", got)
	}
	for _, l := range lines[1:] {
		x := row{dataset: l[2], url: l[0], size: l[4]}
		if l[1] != strconv.FormatUint(urlkey.Key(l[0]), 10) || !strings.Contains(l[0], "://"+l[6]) {
			t.Fatalf("%q", l)
		}
		if l[3] != "" {
			ts, err := time.Parse(time.RFC3339, l[3])
			if err != nil {
				t.Fatal(err)
			}
			x.ts = strconv.FormatInt(ts.UnixMilli(), 10)
		}
		all = append(all, x)
	}
	sortRows(all)
	return all
}

func same(t testing.TB, what string, got, want []row) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %d rows, want %d; they differ at %d: %v, %v", what, len(got), len(want), i, at(got, i), at(want, i))
		}
	}
}

func at(rows []row, i int) any {
	if i < len(rows) {
		return rows[i]
	}
	return "none"
}

// Exports of a lake that lives through everything that hides rows have the rows of a model.
func TestExportsEqualAModel(t *testing.T) {
	store := blob.NewMemory()
	out := blob.NewMemory()
	id := ""
	life(t, store, func(what string, m model, hidden func(string, urlnorm.URL) bool) {
		want := m.rows(hidden, nil, nil)
		s := open(t, store, scan.Options{})
		opt := files.Options{Format: files.Parquet, Layout: domain64.Document, FileRows: 300, Workers: 2}
		got, written, err := files.ToFolder(t.Context(), store, s, out, opt)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !written || got.Rows != int64(len(want)) || len(got.Files) < 4 || got.ID == id {
			t.Errorf("%s: %+v, %v", what, got, written)
		}
		id = got.ID
		codes := map[string]int64{}
		for e, err := range numbers.Open(store, domain64.Document).All(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			codes[e.Name.Host()] = e.Code.Signed()
		}
		same(t, what, readParquet(t, out, got, func(host string) int64 { return codes[host] }), want)
		// Nothing of earlier exports is left, and files are bounded.
		n := 0
		for info, err := range out.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			n++
			if !slices.ContainsFunc(got.Files, func(f files.File) bool { return f.Name == info.Key && f.Rows <= 300 }) && info.Key != files.ManifestName {
				t.Errorf("%s: %s is in the folder", what, info.Key)
			}
		}
		if n != len(got.Files)+1 {
			t.Errorf("%s: %d objects, %d files", what, n, len(got.Files))
		}
		counting := blob.NewCounting(out)
		again, written, err := files.ToFolder(t.Context(), store, open(t, store, scan.Options{}), counting, opt)
		if err != nil || written || again.ID != got.ID || counting.Writes() != (blob.Count{}) {
			t.Errorf("%s: a second export wrote %v, %v", what, written, err)
		}
		// Slices, as one CSV file.
		for _, o := range []struct{ datasets, hosts, domains []string }{
			{[]string{"beta"}, nil, nil},
			{[]string{"alpha", "gamma"}, []string{"www.example.com", "news.bbc.co.uk"}, []string{"example.com", "bbc.co.uk"}},
			{nil, []string{"part.hidden.org"}, []string{"hidden.org"}},
			{nil, []string{"hidden.test", "192.0.2.7"}, []string{"hidden.test", "192.0.2.7"}},
			{nil, []string{"nowhere.test"}, []string{"nowhere.test"}},
		} {
			s := open(t, store, scan.Options{Datasets: o.datasets, Hosts: o.hosts})
			file := blob.NewMemory()
			got, err := files.ToFile(t.Context(), store, s, file, "x.csv", files.Options{
				Format: files.CSV, Columns: []string{"url", "key", "dataset", "ts", "size", "extras", "host"},
			})
			if err != nil {
				t.Fatalf("%s, %+v: %v", what, o, err)
			}
			data, _, err := file.Get(t.Context(), "x.csv")
			if err != nil {
				t.Fatal(err)
			}
			want := m.rows(hidden, o.datasets, o.domains)
			same(t, fmt.Sprintf("%s, %+v", what, o), readCSV(t, data), want)
			counts := map[string]int64{}
			for _, r := range want {
				counts[r.dataset]++
			}
			for _, d := range got.Datasets {
				if d.Rows != counts[d.Name] {
					t.Errorf("%s, %+v: %d rows of %s, want %d", what, o, d.Rows, d.Name, counts[d.Name])
				}
			}
		}
	})
}

// An export that ends anywhere leaves the earlier one as it was, or is complete.
func TestDeathOfAnExport(t *testing.T) {
	store := blob.NewMemory()
	m := model{}
	r := rand.New(rand.NewPCG(3, 3))
	m.ingest(t, store, "alpha", "b", randomRecords(r, 300))
	testlake.Publish(t, store)
	first := open(t, store, scan.Options{})
	m.ingest(t, store, "beta", "b", randomRecords(r, 300))
	testlake.Publish(t, store)
	opt := files.Options{Format: files.Parquet, FileRows: 100, Workers: 1}
	none := func(string, urlnorm.URL) bool { return false }
	for changes := 0; ; changes++ {
		out := blob.NewMemory()
		old, _, err := files.ToFolder(t.Context(), store, first, out, opt)
		if err != nil {
			t.Fatal(err)
		}
		faulty := blobtest.NewFaulty(out)
		faulty.CrashAfter(changes)
		_, _, err = files.ToFolder(t.Context(), store, open(t, store, scan.Options{}), faulty, opt)
		// What is there now is one of both.
		now, written, againErr := files.ToFolder(t.Context(), store, first, out, opt)
		if againErr != nil || now.ID != old.ID || err == nil && !written {
			t.Fatalf("after %d changes: %v", changes, againErr)
		}
		same(t, "the earlier export", readParquet(t, out, now, nil), m.rows(none, []string{"alpha"}, nil))
		now, _, againErr = files.ToFolder(t.Context(), store, open(t, store, scan.Options{}), out, opt)
		if againErr != nil {
			t.Fatal(againErr)
		}
		same(t, "the later export", readParquet(t, out, now, nil), m.rows(none, nil, nil))
		if err == nil {
			if changes < 6 {
				t.Fatalf("%d changes of an export", changes)
			}
			return
		}
	}
}

// Errors say what is wrong, and nothing is visible then.
func TestWhatExportsRefuse(t *testing.T) {
	store := blob.NewMemory()
	m := model{}
	r := rand.New(rand.NewPCG(4, 4))
	m.ingest(t, store, "alpha", "b", randomRecords(r, 300))
	testlake.Publish(t, store)
	ctx := t.Context()
	if _, err := scan.Open(ctx, store, scan.Options{Datasets: []string{"alpha", "nothing"}}); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("unknown dataset: %v", err)
	}
	if _, err := scan.Open(ctx, store, scan.Options{Version: "nothing"}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("unknown version: %v", err)
	}
	s := open(t, store, scan.Options{})
	foreign := blob.NewMemory()
	if _, err := foreign.Put(ctx, "holiday.jpg", []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := files.ToFolder(ctx, store, s, foreign, files.Options{Format: files.CSV}); err == nil || !strings.Contains(err.Error(), "holiday.jpg") {
		t.Errorf("a folder with other files: %v", err)
	}
	for _, o := range []files.Options{{Columns: []string{"colour"}}, {Columns: []string{"domain64"}}} {
		if _, _, err := files.ToFolder(ctx, store, s, blob.NewMemory(), o); err == nil || !strings.Contains(err.Error(), o.Columns[0]) {
			t.Errorf("columns %v: %v", o.Columns, err)
		}
	}
	// Two exports to one folder at once: one of them fails.
	out := blob.NewMemory()
	inner := open(t, store, scan.Options{})
	hooked := &hooked{Store: out, before: func() error {
		_, _, err := files.ToFolder(ctx, store, inner, out, files.Options{Format: files.CSV})
		return err
	}}
	if _, _, err := files.ToFolder(ctx, store, s, hooked, files.Options{Format: files.Parquet}); err == nil || !strings.Contains(err.Error(), "another export") {
		t.Errorf("two exports at once: %v", err)
	}
	// A takedown in between.
	target, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), catalog.DomainTarget, "example.com")
	if err != nil {
		t.Fatal(err)
	}
	rule := catalog.Takedown{ID: catalog.NewTakedownID(time.Now()), Target: target, Created: time.Now().UTC(), Reason: "test"}
	if _, err := suppress.Add(ctx, store, rule, suppress.Options{TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	empty := blob.NewMemory()
	if _, _, err := files.ToFolder(ctx, store, s, empty, files.Options{Format: files.Parquet}); !errors.Is(err, files.ErrTakedown) {
		t.Errorf("a takedown during an export: %v", err)
	}
	if _, err := empty.Stat(ctx, files.ManifestName); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a refused export is visible: %v", err)
	}
	if _, err := files.ToFile(ctx, store, s, empty, "x.parquet", files.Options{Format: files.Parquet}); !errors.Is(err, files.ErrTakedown) {
		t.Errorf("a takedown during an export to a file: %v", err)
	}
	if _, err := empty.Stat(ctx, "x.parquet"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a refused file is visible: %v", err)
	}
}

// hooked calls before when the document is put.
type hooked struct {
	blob.Store
	before func() error
}

func (h *hooked) Put(ctx context.Context, key string, data []byte, cond blob.Condition) (blob.Info, error) {
	if key == files.ManifestName {
		if err := h.before(); err != nil {
			return blob.Info{}, err
		}
	}
	return h.Store.Put(ctx, key, data, cond)
}

// The bytes of an export do not depend on the number of workers.
func TestSameInputSameBytes(t *testing.T) {
	store := blob.NewMemory()
	m := model{}
	r := rand.New(rand.NewPCG(5, 5))
	for _, dataset := range []string{"alpha", "beta"} {
		m.ingest(t, store, dataset, "b", randomRecords(r, 2000))
	}
	testlake.Publish(t, store)
	var want map[string]string
	for _, workers := range []int{1, 3} {
		out := blob.NewMemory()
		if _, _, err := files.ToFolder(t.Context(), store, open(t, store, scan.Options{}), out, files.Options{
			Format: files.Parquet, Layout: domain64.Production, FileRows: 500, Workers: workers,
		}); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for info, err := range out.List(t.Context(), "") {
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := out.Get(t.Context(), info.Key)
			if err != nil {
				t.Fatal(err)
			}
			got[info.Key] = string(data)
		}
		if want == nil {
			want = got
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d workers wrote other bytes", workers)
		}
	}
}
