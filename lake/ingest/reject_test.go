package ingest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

func TestRejectsAreListedInInputOrder(t *testing.T) {
	ctx := context.Background()
	files := map[string]string{
		"a.txt": "http://a.example/\nmailto:x@y.z\n\n# comment\nhttp://b.example/\nhttp://exa mple/\n",
		"b.txt": "http://c.example/\r\nhttp://d.example:99999/\r\n",
		"c.txt": "",
		"d.txt": "http://e.example/\n" + "http://f.example/" + strings.Repeat("x",
			70_000) + "\nhttp://g.example/" + strings.Repeat("y", 2_000_000) + "\nhttp://h.example/\n",
	}
	dir := folder(t, files)
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	file := func(name string) string { return "file://" + filepath.Join(dir, name) }
	want := []ingest.Reject{
		{file("a.txt"), 2, 18, "scheme", ""},
		{file("a.txt"), 6, 60, "host", ""},
		{file("b.txt"), 2, 19, "port", ""},
		{file("d.txt"), 2, 18, "too_long", ""},
		{file("d.txt"), 3, 18 + 17 + 70_000 + 1, "too_long_line", ""},
	}
	for _, l := range []ingest.Limits{{}, {Split: 1, Object: 1}} {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, l)
		if err != nil {
			t.Fatal(err)
		}
		b := readBatch(t, store, f.BatchKey)
		if diff := cmp.Diff(want, rejectLines(t, store, b.Rejects)); diff != "" {
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
		if diff := cmp.Diff(wantInputs, b.Inputs); diff != "" {
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
			_, err := steps(ctx, store, "run",
				ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, Format: "lines", MaxRejectRate: c.rate}, ingest.Limits{})
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
				if input.Line != line || !strings.HasSuffix(input.Object,
					"/x.txt") || len(input.Rejects) == 0 || input.Rejects[0].Reason != "scheme" {
					t.Errorf("%+v does not name the first reject", input)
				}
				if !strings.Contains(err.Error(), "x.txt line") {
					t.Errorf("the error does not name the location: %v", err)
				}
			}
			for key := range objects(t, store) {
				if !strings.HasPrefix(key, "registry/") && !strings.HasPrefix(key, "rules/") {
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
	if _, err := steps(ctx, blob.NewMemory(), "a/b", ingest.Spec{Dataset: "d", Inputs: []string{good}},
		ingest.Limits{}); err == nil {
		t.Error("a run name with a slash: no error")
	}
}

// TestListsOfRejectsAreBounded holds that a list has the first rejects of the batch in input order,
// however the inputs are split, and that all are counted.
func TestListsOfRejectsAreBounded(t *testing.T) {
	ctx := context.Background()
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "http://a.example/%d\nmailto:%d\nhttp://exa mple/%d\nhttp://b.example/%d\n", i, i, i, i)
	}
	dir := folder(t, map[string]string{"a.txt": text.String(), "b.txt": text.String(), "c.txt": "mailto:x\n"})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}, MaxRejectRate: 0.6}
	all := func() []ingest.Reject {
		store := blob.NewMemory()
		f, err := steps(ctx, store, "run", spec, ingest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if f.Listed != 0 || readBatch(t, store, f.BatchKey).ListedRejects != 0 {
			t.Errorf("%d rejects listed, want all, which is 0", f.Listed)
		}
		return rejectLines(t, store, readBatch(t, store, f.BatchKey).Rejects)
	}()
	for name, bound := range map[string]ingest.Limits{
		"one":          {RejectLines: 1},
		"in a.txt":     {RejectLines: 999},
		"all of a.txt": {RejectLines: 6000},
		"in b.txt":     {RejectLines: 7001},
		"all but one":  {RejectLines: 12_000},
		"by size":      {RejectBytes: 100_000},
		"by both":      {RejectLines: 6500, RejectBytes: 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			var want map[string]string
			for _, split := range []int64{0, 1000, 20_000} {
				l := bound
				l.Split, l.Object = split, split/10
				store := blob.NewMemory()
				f, err := steps(ctx, store, "run", spec, l)
				if err != nil {
					t.Fatal(err)
				}
				b := readBatch(t, store, f.BatchKey)
				got := rejectLines(t, store, b.Rejects)
				n := int(bound.RejectLines)
				if bound.RejectBytes != 0 {
					n = len(got)
				}
				if len(got) == 0 || f.Listed != int64(len(got)) || b.ListedRejects != int64(len(got)) {
					t.Fatalf("%d rejects in the list, %d and %d by result and record", len(got), f.Listed, b.ListedRejects)
				}
				if diff := cmp.Diff(all[:n], got); diff != "" {
					t.Errorf("these are not the first: %s", diff)
				}
				if counts := (map[string]int64{"scheme": 6001, "host": 6000}); !maps.Equal(b.Rejected, counts) {
					t.Errorf("counts %v, want %v", b.Rejected, counts)
				}
				if want == nil {
					want = objects(t, store)
				}
				sameObjects(t, want, objects(t, store))
			}
		})
	}
}

// TestLongNamesFitIntoResults reads an archive whose members have names of almost a megabyte. The
// list of rejects names them; results and errors, which Temporal delivers, shorten them.
func TestLongNamesFitIntoResults(t *testing.T) {
	long := strings.Repeat("é", 400_000)
	archive := func(members map[string]string) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			text := members[name]
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const most = 64 << 10
	ingested := func(members map[string]string) (ingest.FinishResult, []ingest.Reject, error) {
		dir := folder(t, map[string]string{"x.tar": archive(members)})
		store := blob.NewMemory()
		f, err := steps(t.Context(), store, "run", ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}, ingest.Limits{})
		if err != nil {
			return f, nil, err
		}
		return f, rejectLines(t, store, readBatch(t, store, f.BatchKey).Rejects), nil
	}
	f, listed, err := ingested(map[string]string{
		long + ".png": "x", long + "1.txt": "http://a.example/\nmailto:x\n", long + "2.txt": "http://b.example/\nmailto:x\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := json.Marshal(f)
	if err != nil || len(result) > most || len(f.Examples) != 2 || !strings.HasSuffix(f.Examples[1].Object, "%A92.txt") || len(f.Notes) == 0 {
		t.Errorf("a result of %d bytes with %d examples and %d notes, %v", len(result), len(f.Examples), len(f.Notes), err)
	}
	if len(listed) != 2 || len(listed[0].Object) < 2*len(long) {
		t.Errorf("%d rejects are listed, want 2 with their whole names", len(listed))
	}
	for what, members := range map[string]map[string]string{
		"rejects":    {long + ".txt": "mailto:x\nmailto:y\n"},
		"format":     {long + ".parquet": "PAR1" + strings.Repeat("x", 100)},
		"no records": {long + ".png": "x"},
	} {
		if _, _, err := ingested(members); err == nil || len(err.Error()) > most {
			t.Errorf("%s: an error of %d bytes", what, len(fmt.Sprint(err)))
		}
	}
}

// TestBadSplitOfASoundBatchIsTaken has a split with nothing but rejects in a batch that has few,
// and a batch that begins with many. The rate is one of the whole batch.
func TestBadSplitOfASoundBatchIsTaken(t *testing.T) {
	bad := strings.Repeat("x\n", 5000)
	var good bytes.Buffer
	z := gzip.NewWriter(&good)
	for i := range 20_000 {
		fmt.Fprintf(z, "http://a.example/%d\n", i)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"a.txt": bad, "b.txt.gz": good.String()})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	for _, l := range []ingest.Limits{{Hopeless: 1000, Split: 1, Object: 1}, {Hopeless: 1000}} {
		f, err := steps(t.Context(), blob.NewMemory(), "run", spec, l)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Examples) == 0 {
			t.Error("no reject is named")
		}
	}
}

// TestHopelessSplitIsNotReadToItsEnd has an object that is damaged behind too many rejects. Only a
// split that is read on notices.
func TestHopelessSplitIsNotReadToItsEnd(t *testing.T) {
	ctx := context.Background()
	lines := strings.Repeat("http://a.example/\n", 2000) + strings.Repeat("mailto:x\n", 30_000)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(lines)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{"a.txt": "http://a.example/\nmailto:x\n", "b.txt.gz": zipped.String() + "damaged"})
	spec := ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	var texts []string
	for _, l := range []ingest.Limits{{Hopeless: 1000}, {Hopeless: 1000, Arena: 10_000}, {Hopeless: 5000}} {
		_, err := steps(ctx, blob.NewMemory(), "run", spec, l)
		var input *ingest.InputError
		if !errors.As(err, &input) || !strings.HasSuffix(input.Object, "b.txt.gz") || len(input.Rejects) != 3 {
			t.Fatalf("error %v, want one about b.txt.gz", err)
		}
		texts = append(texts, err.Error())
	}
	// 2,001 records of a.txt and b.txt.gz are kept, and as many rejects are allowed.
	if want := "2002 of 4003 records so far were rejected (scheme 2002)"; !strings.Contains(texts[0], want) || texts[0] != texts[1] {
		t.Errorf("errors\n%s\n%s\nwant %s", texts[0], texts[1], want)
	}
	if want := "5000 of 7001 records"; !strings.Contains(texts[2], want) {
		t.Errorf("error %s, want %s", texts[2], want)
	}
	// A rate that allows them reads on.
	spec.MaxRejectRate = 1
	if _, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{Hopeless: 1000}); err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("error %v, want that the object is damaged", err)
	}
}
