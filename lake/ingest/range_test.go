package ingest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/seekable"
)

// seekableText compresses text in frames of size bytes with a seek table.
func seekableText(t *testing.T, text string, size int) string {
	t.Helper()
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
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

// linked is a row of Parquet with a list of URLs.
type linked struct {
	Links []string `parquet:"links,list"`
}

// rowGroups writes Parquet with row groups of 40 rows.
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

// largeFiles writes objects that are larger than raw.HeadSize, one in each format that can be cut,
// and returns the batch they have to make.
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
		url := fmt.Sprintf("http://h%d.site%d.example/%s/%d", rng.IntN(3), rng.IntN(40),
			strings.Repeat("p", rng.IntN(120)), rng.IntN(4000))
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
		row := row.Row{}
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
			row.Extras = `{"filename":"f","length":"1","offset":"2"}`
		case "c.log":
			fmt.Fprintf(&b, "2020-01-01T00:00:09.000Z %5d %10d %s L - - #001 20200101000000123+5 - - -\n", 200-i%2*209, i%7, url)
			row.TS, row.HasTS = 1_577_836_800_000, true
			row.Size, row.HasSize = int64(i%7), true
			row.Extras = fmt.Sprintf(`{"status":"%d"}`, 200-i%2*209)
		case "s.txt":
			fmt.Fprintf(&b, "%7d %s\n", i%5, url)
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
		text = seekableText(t, text, 5000)
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

// TestSameBytesHoweverObjectsAreCut holds that ranges do not show in parts, counts of inputs, lists
// of rejects and results.
func TestSameBytesHoweverObjectsAreCut(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"l.txt", "t.tsv", "l.jsonl", "i.cdx", "c.log", "s.txt", "l.txt.zst", "p.parquet"} {
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
				if diff := cmp.Diff(first, f); diff != "" {
					t.Errorf("results differ: %s", diff)
				}
			}
			if len(first.Examples) != 5 || first.Examples[0].Line < 1 {
				t.Errorf("examples %v", first.Examples)
			}
		})
	}
}

// TestErrorsOfObjectsThatAreCut holds that errors name the same locations however objects are cut,
// and that objects which cannot be read fail the plan.
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
	if _, err := ingest.MakePlanWithin(ctx, blob.NewMemory(), "run", spec,
		ingest.Limits{Split: 10_000}); !errors.As(err, &input) {
		t.Errorf("no such column: %v", err)
	}

	// Damage in the middle: the ranges before it succeed, and the damaged one names the location.
	var list strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&list, "http://h%d.example/%x\n", i, uint32(i)*2654435761)
	}
	data := []byte(seekableText(t, list.String(), 10_000))
	clear(data[len(data)/2:][:8000]) // the beginning of a frame with it
	dir = folder(t, map[string]string{"x.zst": string(data)})
	spec = ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{dir}}
	if _, err := steps(ctx, blob.NewMemory(), "run", spec, ingest.Limits{Split: 1000}); !errors.As(err,
		&input) || input.Offset < 256<<10 {
		t.Errorf("damaged frame: %v", err)
	} else if !strings.Contains(err.Error(), fmt.Sprintf("x.zst byte %d: ", input.Offset)) {
		t.Errorf("the error does not name the location: %v", err)
	}
}

func TestObjectChangedBetweenItsRangesIsRefused(t *testing.T) {
	ctx := context.Background()
	text := strings.Repeat("http://a.example/\n", 40_000)
	bucket := blob.NewMemory()
	ingest.BehindS3(t, bucket)
	for name, change := range map[string]string{"other bytes": strings.Replace(text, "a", "b", 1),
		"shorter": text[:100], "gone": ""} {
		t.Run(name, func(t *testing.T) {
			if _, err := bucket.Put(ctx, "in/x.txt", []byte(text), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			dir := folder(t, map[string]string{"x.txt": text})
			for run, in := range map[string]string{"file": dir, "key": "s3://bucket/in/"} {
				store := blob.NewMemory()
				l := ingest.Limits{Split: 100_000}
				plan, err := ingest.MakePlanWithin(ctx, store, run,
					ingest.Spec{Dataset: "d", Batch: "b", Inputs: []string{in}}, l)
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
				if _, err := ingest.NormalizeWithin(ctx, store, run, 2, l); !errors.As(err,
					&input) || input.Object == "" {
					t.Errorf("%s: %v", run, err)
				}
			}
		})
	}
}
