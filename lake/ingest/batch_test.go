package ingest_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/row"
)

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
	if current := testlake.Batches(t, store, 1); current["2026-11"] != f.Digest {
		t.Errorf("current %v", current)
	}
	for key, data := range objects(t, store) {
		if strings.Contains(data, "secret") && !strings.HasPrefix(key, "rules/") { // a part of some suffixes
			t.Errorf("%s holds a credential", key)
		}
	}
	// More keys than one deletion takes, and a key of another run.
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
		t.Errorf("%s is left in staging", info.Key)
	}
}

// TestSameBytesHoweverTheWorkIsDivided holds that splits, tasks and memory do not show in the lake.
func TestSameBytesHoweverTheWorkIsDivided(t *testing.T) {
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

func TestFinishReportsGuesses(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{}
	for i := range 9 {
		files[fmt.Sprintf("%d.csv", i)] = fmt.Sprintf("c%d,d\n%smailto:x,7\n", i/2,
			strings.Repeat("http://a.example/,5\n", 20))
	}
	dir := folder(t, files)
	for _, l := range []ingest.Limits{{}, {Split: 1, Object: 1}} {
		f, err := steps(ctx, blob.NewMemory(), "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}, l)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Notes) != 6 || !strings.Contains(f.Notes[0], `/0.csv and 1 more: the URL column is "c0"`) ||
			!strings.Contains(f.Notes[4], `/8.csv: the URL column is "c4"`) || !strings.Contains(f.Notes[5], "without a time: 180") {
			t.Errorf("notes %q", f.Notes)
		}
		if len(f.Examples) != 5 || f.Examples[4] != (ingest.Reject{Object: "file://" + filepath.Join(dir,
			"4.csv"), Line: 22, Offset: 5 + 20*20, Reason: "scheme"}) {
			t.Errorf("examples %v", f.Examples)
		}
	}
}

func TestIngestingTheSameAgain(t *testing.T) {
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
		t.Errorf("existed %v, current %v, digest %s, want %s", second.Existed, second.Current,
			second.Digest, first.Digest)
	}
	after := objects(t, store)
	for _, all := range []map[string]string{before, after} {
		maps.DeleteFunc(all, func(key, _ string) bool {
			return strings.HasPrefix(key, "registry/") || strings.HasPrefix(key, "pending/")
		})
	}
	sameObjects(t, before, after)

	// Other content replaces it. After that the first content is new again.
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

func TestRunThatBeganEarlierDoesNotReplaceALaterOne(t *testing.T) {
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
	if current := testlake.Batches(t, store, 1); current[spec.Batch] != late.Digest {
		t.Errorf("%v; want %s", current, late.Digest)
	}
}

func TestRawURLIsKeptIfItDiffers(t *testing.T) {
	ctx := context.Background()
	dir := folder(t, map[string]string{"x.txt": "http://same.example/a\nHTTP://case.example/a\nhttp://user:secret@user.example/a\n" +
		"http://user:secret@both.example\nhttp://bytes.example/\xff\xc3\xa9#f\nhttp://merged.example\nHTTP://merged.example\n"})
	for _, keep := range []bool{true, false} {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", ingest.Spec{Dataset: "d", Inputs: []string{dir}, KeepRaw: keep},
			ingest.Limits{})
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
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("keep %v: %s", keep, diff)
		}
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
		t.Errorf("%s is left in staging (%v)", info.Key, err)
	}
}

// TestRealDatasets compares batches of real data with readers that share no code with package raw.
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
			c.read(r, func(field string) {
				for _, url := range testenv.FieldURLs(field) {
					want.add(url, row.Row{}, false)
				}
			})
			store := blob.NewMemory()
			got, err := steps(ctx, store, "run",
				ingest.Spec{Dataset: "real", Inputs: []string{path}, URLColumn: c.column, TSColumn: "none"},
				ingest.Limits{Arena: 1 << 20, AnyPrefix: 1 << 16, OneDigit: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			// The oracle does not see fields, and parts of them, that are no URL.
			b := readBatch(t, store, got.BatchKey)
			for _, reason := range []string{raw.NoURL, raw.TextAfterURL, raw.SeveralURLs} {
				if n := b.Rejected[reason]; n > 0 {
					want.records += n
					want.rejected[reason] = n
				}
			}
			want.check(t, store, got)
			t.Logf("%d records, %d rows, %d domains, rejected %v, %d parts", b.Records, b.Rows, b.Domains,
				b.Rejected, len(b.Parts))
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
		fmt.Fprintf(&text, "https://www.site%d.example/archive/%d/articles/%x.html?id=%d\n", site,
			rng.IntN(3000), rng.Uint64()>>16, rng.IntN(100_000))
	}
	path := filepath.Join(b.TempDir(), "urls.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		b.Fatal(err)
	}
	spec := ingest.Spec{Dataset: "d", Inputs: []string{path}}
	// Two steps are measured, each on the results of the steps before it.
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
	normalize := func(store blob.Store) error { _, err := ingest.Normalize(ctx, store, "run", 0, nil); return err }
	planMerge := func(store blob.Store) error { _, err := ingest.PlanMerge(ctx, store, "run"); return err }
	merge := func(store blob.Store) error {
		_, err := ingest.Merge(ctx, store, "run", 0, "", countDomains, nil)
		return err
	}
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
