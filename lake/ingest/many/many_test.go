package many_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// writeLists writes files below a new folder, which it returns.
func writeLists(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeList(t, filepath.Join(dir, name), text)
	}
	return dir
}

func writeList(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func specOf(store blob.Store, from string, inputs ...string) many.Spec {
	return many.Spec{Spec: ingest.Spec{Lake: store.URL(), Inputs: inputs}, DatasetsFrom: from}
}

// options are those of a worker. Errors about the input are the list's fault.
func options(t *testing.T) many.GroupOptions {
	t.Helper()
	return many.GroupOptions{
		TempDir: t.TempDir(), InMemory: postings.CollectInMemory, Collect: postings.Collect(t.TempDir()),
		Fault: func(err error) string {
			var input *ingest.InputError
			if errors.As(err, &input) {
				return err.Error()
			}
			return ""
		},
		Panicked: func(list string, fault any, _ []byte) { t.Errorf("%s panics: %v", list, fault) },
	}
}

// takeUp does all steps of a run without large lists, and returns the plan and the outcomes.
func takeUp(t *testing.T, store blob.Store, spec many.Spec) (many.Summary, []many.Outcome) {
	t.Helper()
	ctx, run := t.Context(), testlake.Run()
	plan, err := many.Plan(ctx, store, run, spec)
	if err != nil {
		t.Fatal(err)
	}
	r, err := many.Open(ctx, store, run)
	if err != nil {
		t.Fatal(err)
	}
	for group := range plan.Groups {
		if _, err := r.Group(ctx, group, options(t), func(many.Progress) {}); err != nil {
			t.Fatal(err)
		}
	}
	return plan, finish(t, store, run)
}

func finish(t *testing.T, store blob.Store, run string) []many.Outcome {
	t.Helper()
	if _, _, err := many.Finish(t.Context(), store, run, true, ""); err != nil {
		t.Fatal(err)
	}
	if err := lake.DeleteStaging(t.Context(), store, run); err != nil {
		t.Fatal(err)
	}
	out, err := many.ReadReports(t.Context(), store, many.ReportPrefix(run))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rows returns the rows of each dataset that was ingested, and -1 for those that failed.
func rows(outcomes []many.Outcome) map[string]int64 {
	all := map[string]int64{}
	for _, o := range outcomes {
		if all[o.Dataset] = o.Rows; o.Error != "" {
			all[o.Dataset] = -1
		}
	}
	return all
}

// TestWhatCannotBeReadHarmsNoOther has inputs that are no dataset, no file, or two of one name.
func TestWhatCannotBeReadHarmsNoOther(t *testing.T) {
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{
		"good.txt": "http://a.example/\n", "two.txt": "http://b.example/\n", "two.csv": "http://c.example/\n", "\u65e5\u672c.txt": "http://d.example/\n",
	})
	if err := os.Symlink(filepath.Join(dir, "nothing"), filepath.Join(dir, "dangling.txt")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	spec := specOf(store, many.FromFiles, dir)
	plan, out := takeUp(t, store, spec)
	want := map[string]int64{"good": 1, "two": -1, "dangling": -1, "%E6%97%A5%E6%9C%AC.txt": -1}
	if diff := cmp.Diff(want, rows(out)); diff != "" || plan.Datasets != len(want) {
		t.Errorf("%d datasets, rows (-want +got):\n%s", plan.Datasets, diff)
	}
	for _, o := range out {
		for _, part := range map[string][]string{
			"two": {"two.csv", "two.txt", "would both be"}, "dangling": {"dangling.txt", "no such file"}, "%E6%97%A5%E6%9C%AC.txt": {"\u65e5\u672c.txt"},
		}[o.Dataset] {
			if !strings.Contains(o.Error, part) {
				t.Errorf("%s: %q, want %q", o.Dataset, o.Error, part)
			}
		}
	}
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], "/socket") {
		t.Errorf("notes %q", plan.Notes)
	}
	writeList(t, filepath.Join(dir, "good.txt"), "http://a.example/\nhttp://a.example/2\n")
	if err := os.Remove(filepath.Join(dir, "two.csv")); err != nil {
		t.Fatal(err)
	}
	want["good"], want["two"] = 2, 1
	if _, out = takeUp(t, store, spec); cmp.Diff(want, rows(out)) != "" {
		t.Errorf("again: %v, want %v", rows(out), want)
	}
}

func TestASecondRunTakesUpWhatChanged(t *testing.T) {
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{
		"a.txt": "http://a.example/1\nhttp://a.example/2\n", "b.txt": "http://b.example/1\n",
		"broken.csv": strings.Repeat("\x00\x01\x02", 1000), "sub/c.txt": "http://c.example/1\n",
	})
	spec := specOf(store, many.FromFiles, dir)
	plan, out := takeUp(t, store, spec)
	if diff := cmp.Diff(map[string]int64{"a": 2, "b": 1, "broken": -1, "sub-c": 1}, rows(out)); diff != "" {
		t.Error(diff)
	}
	if plan.Datasets != 4 || plan.Unchanged != 0 || plan.Large != 0 {
		t.Errorf("%+v", plan)
	}
	for _, o := range out {
		if o.Dataset == "broken" && (!strings.Contains(o.Error, "broken.csv") || !strings.HasSuffix(o.From, "/broken.csv")) {
			t.Errorf("%+v", o)
		}
	}

	// What failed is tried again, and what has not changed is left out.
	if plan, out = takeUp(t, store, spec); plan.Unchanged != 3 || !cmp.Equal(rows(out), map[string]int64{"broken": -1}) {
		t.Errorf("%+v, %v", plan, rows(out))
	}
	// A changed file replaces what the dataset holds.
	writeList(t, filepath.Join(dir, "b.txt"), "http://b.example/1\nhttp://b.example/2\nhttp://b.example/3\n")
	writeList(t, filepath.Join(dir, "broken.csv"), "url\nhttp://mended.example/\n")
	writeList(t, filepath.Join(dir, "new.txt"), "http://new.example/\n")
	plan, out = takeUp(t, store, spec)
	if diff := cmp.Diff(map[string]int64{"b": 3, "broken": 1, "new": 1}, rows(out)); diff != "" || plan.Unchanged != 2 {
		t.Errorf("%+v: %s", plan, diff)
	}
	// Other options give other batches.
	other := spec
	other.StripParams = []string{"utm_*"}
	if plan, out = takeUp(t, store, other); plan.Unchanged != 0 || len(out) != 5 || !out[0].Unchanged {
		t.Errorf("%+v, %+v", plan, out)
	}
	// A batch that another ingest has replaced is taken up again, although its file is as it was.
	again := func(run, batch string) {
		t.Helper()
		one := ingest.Spec{Lake: store.URL(), Dataset: "a", Batch: batch, Inputs: []string{filepath.Join(dir, "b.txt")}}
		if _, err := ingest.MakePlan(t.Context(), store, run, one); err != nil {
			t.Fatal(err)
		}
		if _, err := ingest.IngestSmall(t.Context(), store, run, t.TempDir(), postings.CollectInMemory,
			postings.Collect(t.TempDir()), nil); err != nil {
			t.Fatal(err)
		}
	}
	again("single-1", "another")
	if plan, out = takeUp(t, store, other); plan.Unchanged != 5 || len(out) != 0 {
		t.Errorf("after another batch: %+v, %+v", plan, out)
	}
	again("single-2", many.DefaultBatch)
	if plan, out = takeUp(t, store, other); plan.Unchanged != 4 || !cmp.Equal(rows(out), map[string]int64{"a": 2}) {
		t.Errorf("after a replaced batch: %+v, %+v", plan, out)
	}
	other.Again = true
	if plan, out = takeUp(t, store, other); plan.Unchanged != 0 || len(out) != 5 || !out[4].Unchanged {
		t.Errorf("again: %+v, %+v", plan, out)
	}
}

// A run that replaces leaves one batch to each of its datasets, also to those whose lists have not
// changed, and takes up none that has no other.
func TestARunReplacesItsDatasets(t *testing.T) {
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{
		"one.txt": "http://a.example/\n", "two.txt": "http://b.example/\n", "three.txt": "http://c.example/\n",
	})
	spec := specOf(store, many.FromFiles, dir)
	spec.Batch = "old"
	takeUp(t, store, spec)
	spec.Batch = "new"
	takeUp(t, store, spec)
	spec.Replace = true
	if plan, out := takeUp(t, store, spec); plan.Unchanged != 0 || len(out) != 3 {
		t.Fatalf("%+v, %+v", plan, out)
	}
	if plan, out := takeUp(t, store, spec); plan.Unchanged != 3 || len(out) != 0 {
		t.Fatalf("again: %+v, %+v", plan, out)
	}
	for id := uint32(1); id <= 3; id++ {
		state, err := catalog.LookBatches(t.Context(), store, id)
		if err != nil {
			t.Fatal(err)
		}
		states, err := state.Batches(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, s := range states {
			got[s.Batch] = s.Retired
		}
		if !maps.Equal(got, map[string]bool{"new": false, "old": true}) {
			t.Errorf("dataset %d: retired %v", id, got)
		}
	}
}

func TestFoldersAreDatasets(t *testing.T) {
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{
		"one/a.txt": "http://a.example/1\n", "one/deep/b.txt": "http://b.example/1\n", "two/a.txt": "http://a.example/2\n",
		"loose.txt": "http://loose.example/\n", ".git/config": "x",
	})
	plan, out := takeUp(t, store, specOf(store, many.FromFolders, dir))
	if diff := cmp.Diff(map[string]int64{"one": 2, "two": 1}, rows(out)); diff != "" {
		t.Error(diff)
	}
	notes := strings.Join(plan.Notes, "\n")
	if !strings.Contains(notes, "loose.txt") || !strings.Contains(notes, ".git") {
		t.Errorf("notes %q", plan.Notes)
	}
	_, err := many.Plan(t.Context(), store, "none", specOf(store, many.FromFolders, filepath.Join(dir, "two")))
	if err == nil || !strings.Contains(err.Error(), "no folders") {
		t.Errorf("%v", err)
	}
}

// names returns n files with a URL each.
func small(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("list-%03d.txt", i)] = fmt.Sprintf("http://site%d.example/%d\n", i%7, i)
	}
	return files
}

func TestAGroupGoesOnAfterFaultsOfTheStore(t *testing.T) {
	ctx, run := t.Context(), testlake.Run()
	memory := blob.NewMemory()
	store := blobtest.NewFaulty(memory)
	const n = 40
	dir := writeLists(t, small(n))
	if _, err := many.Plan(ctx, store, run, specOf(store, many.FromFiles, dir)); err != nil {
		t.Fatal(err)
	}
	r, err := many.Open(ctx, store, run)
	if err != nil {
		t.Fatal(err)
	}
	// Every attempt ends after some more changes to the store.
	attempts := 0
	for done := false; !done; attempts++ {
		if attempts > 1000 {
			t.Fatal("no progress")
		}
		store.CrashAfter(5 + attempts)
		p, err := r.Group(ctx, 0, options(t), func(many.Progress) {})
		store.Heal()
		done = err == nil
		if done && (p.Done != n || p.Failed != 0 || p.Kept != n) {
			t.Errorf("%+v", p)
		}
	}
	if attempts < 2 {
		t.Error("no attempt failed")
	}
	want := map[string]int64{}
	for name := range small(n) {
		want[strings.TrimSuffix(name, ".txt")] = 1
	}
	if diff := cmp.Diff(want, rows(finish(t, memory, run))); diff != "" {
		t.Error(diff)
	}
}

// What is complete is finished and reported once, also if that is repeated. The rest fails at the
// end.
func TestFinishTakesWhatIsComplete(t *testing.T) {
	ctx, run := t.Context(), testlake.Run()
	store := blob.NewMemory()
	dir := writeLists(t, small(600))
	plan, err := many.Plan(ctx, store, run, specOf(store, many.FromFiles, dir))
	if err != nil || plan.Groups < 3 {
		t.Fatalf("%+v, %v", plan, err)
	}
	r, err := many.Open(ctx, store, run)
	if err != nil {
		t.Fatal(err)
	}
	var sum many.Finished
	finish := func(last, wantMore bool) {
		t.Helper()
		var more bool
		if sum, more, err = many.Finish(ctx, store, run, last, "the deadline passed"); err != nil || more != wantMore {
			t.Fatalf("%+v, %v, %v", sum, more, err)
		}
	}
	finish(false, false)
	for group := range plan.Groups - 1 {
		before := sum
		if _, err := r.Group(ctx, group, options(t), func(many.Progress) {}); err != nil {
			t.Fatal(err)
		}
		finish(false, true)
		if finish(false, false); sum.Ingested <= before.Ingested || sum.Rows != int64(sum.Ingested) || sum.Failed > 0 {
			t.Errorf("group %d: %+v", group, sum)
		}
	}
	finish(true, true)
	if finish(true, false); sum.Ingested+sum.Failed != 600 || sum.Failed == 0 || sum.Failures[0].Error != "the deadline passed" {
		t.Errorf("%+v", sum)
	}
	out, err := many.ReadReports(ctx, store, many.ReportPrefix(run))
	if err != nil || len(out) != 600 || !slices.IsSortedFunc(out, func(a, b many.Outcome) int { return strings.Compare(a.Dataset, b.Dataset) }) {
		t.Errorf("%d outcomes, %v", len(out), err)
	}
	// What failed is taken up by another run, and nothing else.
	plan, again := takeUp(t, store, specOf(store, many.FromFiles, dir))
	if len(again) != sum.Failed || plan.Unchanged != sum.Ingested {
		t.Errorf("%+v, %d again", plan, len(again))
	}
}

func TestALargeListKeepsItsOptions(t *testing.T) {
	ctx, run := t.Context(), testlake.Run()
	store := blob.NewMemory()
	dir := writeLists(t, map[string]string{"small.txt": "http://a.example/\n", "skip.txt": "http://b.example/\n"})
	large, err := os.Create(filepath.Join(dir, "large.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(200<<20), large.Close()); err != nil {
		t.Fatal(err)
	}
	spec := specOf(store, many.FromFiles, dir)
	spec.Exclude, spec.KeepRaw = []string{"skip.txt"}, true
	plan, err := many.Plan(ctx, store, run, spec)
	if err != nil || plan.Large != 1 || plan.Groups != 1 || plan.Objects != 2 {
		t.Fatalf("%+v, %v", plan, err)
	}
	ref := many.Ref{Run: run, Number: 1}
	got, err := many.Large(ctx, store, ref)
	if err != nil {
		t.Fatal(err)
	}
	want := spec.Spec
	want.Start = plan.Start
	want.Dataset, want.Batch, want.Inputs, want.Exclude = "large", many.DefaultBatch, []string{"file://" + filepath.Join(dir, "large.txt")}, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := many.Large(ctx, store, many.Ref{Run: run}); err == nil {
		t.Error("a group is a large list")
	}
	// The first outcome that is recorded stays. It is completed by what the plan knows.
	for _, rows := range []int64{3, 4} {
		if err := many.Note(ctx, store, ref, many.Outcome{Run: "child", Digest: "d", Rows: rows}); err != nil {
			t.Fatal(err)
		}
	}
	sum, _, err := many.Finish(ctx, store, run, true, "not read")
	if err != nil || sum.Ingested != 1 || sum.Failed != 1 || sum.Rows != 3 || sum.Bytes != 200<<20 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// Lists of up to a split are grouped, and larger ones whose rows fit into memory, unless most of
// the work is theirs.
func TestListsThatAreGrouped(t *testing.T) {
	const MiB = 1 << 20
	for _, c := range []struct {
		name  string
		sizes map[string]int64
		large int
	}{
		{"a split alone", map[string]int64{"a.txt": 128 * MiB}, 0},
		{"more, alone", map[string]int64{"a.txt": 129 * MiB}, 1},
		{"more than a quarter", map[string]int64{"a.txt": 201 * MiB, "b.txt": 300 * MiB, "c.txt": 300 * MiB}, 3},
		{"a quarter each", map[string]int64{"a": 300 * MiB, "b.csv": 300 * MiB, "c.cdx": 300 * MiB, "d.txt": 300 * MiB}, 0},
		{"compressed", map[string]int64{"a.txt.GZ": 200 * MiB, "b.parquet": 200 * MiB, "c.txt": 200 * MiB, "d.txt": 384 * MiB, "e.txt": 384 * MiB,
			"f.txt": 384 * MiB}, 2},
		{"more than memory", map[string]int64{"a.txt": 385 * MiB, "b.txt": 384 * MiB, "c.txt": 384 * MiB, "d.txt": 384 * MiB, "e.txt": 384 * MiB}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, size := range c.sizes {
				f, err := os.Create(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
					t.Fatal(err)
				}
			}
			store := blob.NewMemory()
			plan, err := many.Plan(t.Context(), store, testlake.Run(), specOf(store, many.FromFiles, dir))
			if err != nil || plan.Large != c.large || plan.Objects != len(c.sizes) {
				t.Errorf("%d large, want %d: %+v, %v", plan.Large, c.large, plan, err)
			}
		})
	}
}

func TestBadSpecs(t *testing.T) {
	good := many.Spec{Spec: ingest.Spec{Inputs: []string{"/x"}}, DatasetsFrom: many.FromFiles}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*many.Spec){
		"datasets_from": func(s *many.Spec) { s.DatasetsFrom = "lines" },
		"named after":   func(s *many.Spec) { s.Dataset = "x" },
		"batch name":    func(s *many.Spec) { s.Batch = "a b" },
		"no inputs":     func(s *many.Spec) { s.Inputs = nil },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAnEndedContextEndsAGroup(t *testing.T) {
	run := testlake.Run()
	store := blob.NewMemory()
	dir := writeLists(t, small(200))
	if _, err := many.Plan(t.Context(), store, run, specOf(store, many.FromFiles, dir)); err != nil {
		t.Fatal(err)
	}
	r, err := many.Open(t.Context(), store, run)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p, err := r.Group(ctx, 0, options(t), func(p many.Progress) {
		if p.Done == 50 {
			stop()
		}
	})
	if !errors.Is(err, context.Canceled) || p.Done < 50 || p.Done == 200 {
		t.Fatalf("%+v, %v", p, err)
	}
	// What was done is kept.
	var first many.Progress
	if _, err := r.Group(t.Context(), 0, options(t), func(now many.Progress) {
		if first.Done == 0 {
			first = now
		}
	}); err != nil || first.Done != p.Done+1 {
		t.Errorf("after %d lists an attempt began with %d, %v", p.Done, first.Done, err)
	}
}
