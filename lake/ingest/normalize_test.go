package ingest_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

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

// TestNormalizeMergesWhatFitsIntoMemory holds that a batch that fits into memory is not staged, and
// has the same objects.
func TestNormalizeMergesWhatFitsIntoMemory(t *testing.T) {
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
			objects[name] = append(objects[name], p.Part.Key) // a digest of its content
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

// TestNormalizeNeedsNoLocalDisk has short rows, which fill several row groups with few key bytes.
// Such a batch is staged: Normalize writes only parts of one row group, which are built in memory.
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
