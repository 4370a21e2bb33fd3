package ingest_test

import (
	"cmp"
	"context"
	"fmt"
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
	split, err := ingest.Normalize(ctx, store, "run", 0, func(p ingest.Progress) { all = append(all, p) })
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
	m, err := ingest.Merge(ctx, store, "run", 0, "", countDomains, func(p ingest.Progress) { merging = p })
	if err != nil {
		t.Fatal(err)
	}
	if merging.Kept != m.Rows || merging.Records != split.Kept {
		t.Errorf("merge progress %+v of %+v", merging, m)
	}
}

// TestLargePartsAreStaged has short rows, which fill several row groups with few key bytes. Such a
// batch is staged: only parts of one row group are built in memory.
func TestLargePartsAreStaged(t *testing.T) {
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
	r, err := ingest.IngestSmall(ctx, store, "run", t.TempDir(), countDomains, countDomains, nil)
	if err != nil || r.Merge.Rows != rows || r.Merge.Parts != 1 || r.Split.Files == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
