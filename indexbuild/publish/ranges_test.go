package publish_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/publish"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/blobtest"
)

// rangePairs makes eight ranges of what rangesLake has.
const rangePairs = 15

// inRanges builds the segments of a plan by the tasks of several workers.
func inRanges(t testing.TB, store blob.Store, planKey string) (publish.Built, error) {
	ctx := t.Context()
	opt := indexbuild.Options{TempDir: t.TempDir(), RangePairs: rangePairs}
	r, err := publish.Split(ctx, store, planKey, opt)
	if err != nil || r.Damaged > 0 {
		return publish.Built{Damaged: r.Damaged}, err
	}
	if r.Merges < 4 || r.Writes < 3 {
		return publish.Built{}, fmt.Errorf("split into %+v", r)
	}
	for i := range r.Merges {
		if o, err := publish.MergeRange(ctx, store, planKey, r, i, opt); err != nil || o.Damaged > 0 {
			return publish.Built{Damaged: o.Damaged}, err
		}
	}
	for i := range r.Writes {
		if o, err := publish.WriteRange(ctx, store, planKey, r, i, opt); err != nil || o.Damaged > 0 {
			return publish.Built{Damaged: o.Damaged}, err
		}
	}
	return publish.FinishBuild(ctx, store, planKey, r, opt)
}

// rangesLake returns a lake with a plan of three batches.
func rangesLake(t testing.TB) (blob.Store, string) {
	store := blob.NewMemory()
	for i, dataset := range []string{"alpha", "beta", "gamma"} {
		var list []testlake.Record
		for n := range 60 {
			list = append(list, testlake.Record{URL: fmt.Sprintf("https://site%d.test/%d", n%(20+10*i), n)})
		}
		testlake.Ingest(t, store, dataset, "b1", list)
	}
	plan, err := publish.Plan(t.Context(), store, "run", 0)
	if err != nil {
		t.Fatal(err)
	}
	if publish.Large(plan.Rows, 0) || !publish.Large(plan.Rows, rangePairs) {
		t.Fatalf("a plan of %d rows is large for the wrong ranges", plan.Rows)
	}
	return store, plan.PlanKey
}

func objectsBelow(t testing.TB, store blob.Store, prefix string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range store.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := store.Get(t.Context(), info.Key)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = data
	}
	return all
}

// A build in ranges writes what a build in one piece writes, also if its worker dies at any change
// of the store and another one goes on. Tasks that have finished are not repeated.
func TestRangesSurviveCrashes(t *testing.T) {
	store, planKey := rangesLake(t)
	remove := func(prefix string) {
		for key := range objectsBelow(t, store, prefix) {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := publish.Build(t.Context(), store, planKey, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	files := objectsBelow(t, store, "index/segments/")
	for n, done := 0, false; !done; n++ {
		remove("index/segments/")
		remove("staging/run/build-")
		faulty := blobtest.NewFaulty(store)
		faulty.CrashAfter(n)
		_, err := inRanges(t, faulty, planKey)
		if done = err == nil; !done && !errors.Is(err, blobtest.ErrCrashed) {
			t.Fatalf("crash after %d changes: %v", n, err)
		}
		staged := objectsBelow(t, store, "staging/run/build-")
		writes := &putsOf{Store: store}
		got, err := inRanges(t, writes, planKey)
		switch {
		case err != nil && strings.HasPrefix(err.Error(), "split into"):
			// The crash came when the segment was complete, so there is nothing to split.
		case err != nil:
			t.Fatalf("after a crash at change %d: %v", n, err)
		case got.Segment != want.Segment:
			t.Fatalf("after a crash at change %d: built %+v, want %+v", n, got, want)
		}
		if d := cmp.Diff(files, objectsBelow(t, store, "index/segments/")); d != "" {
			t.Fatalf("after a crash at change %d: the segment has other bytes", n)
		}
		for key := range staged {
			name, isDone := strings.CutSuffix(path.Base(key), ".json")
			task, isMerge := strings.CutPrefix(name, "merge-")
			if values := path.Dir(key) + "/values-" + task; isDone && isMerge && slices.Contains(writes.keys, values) {
				t.Fatalf("after a crash at change %d: %s was written again, but its task had finished", n, values)
			}
		}
	}
}

// putsOf is a store that remembers what it was asked to create.
type putsOf struct {
	blob.Store
	keys []string
}

func (s *putsOf) Create(ctx context.Context, key string) (blob.Writer, error) {
	if strings.Contains(key, "/values-") { // by one task after the other
		s.keys = append(s.keys, key)
	}
	return s.Store.Create(ctx, key)
}

// A damaged batch is found by the tasks, whichever reads it first, and left out by the next plan.
func TestRangesLeaveOutDamagedBatches(t *testing.T) {
	for _, how := range []string{"missing", "truncated", "flipped"} {
		store, planKey := rangesLake(t)
		var postings string
		for key := range objectsBelow(t, store, lake.BatchPrefix(2, "b1")) {
			if strings.Contains(key, "postings-") {
				postings = key
			}
		}
		damage(t, store, postings, how)
		for range 2 { // the second time, the batch is on the list already
			if built, err := inRanges(t, store, planKey); err != nil || built.Damaged != 1 {
				t.Fatalf("%s: %+v, %v", how, built, err)
			}
		}
		plan, err := publish.Plan(t.Context(), store, "run", 1)
		if err != nil || len(plan.Skipped) != 1 || plan.Skipped[0].Dataset != "beta" {
			t.Fatalf("%s: %+v, %v", how, plan, err)
		}
		if built, err := inRanges(t, store, plan.PlanKey); err != nil || built.Damaged != 0 {
			t.Fatalf("%s: %+v, %v", how, built, err)
		} else if err := publish.Verify(t.Context(), store, built, t.TempDir(), func(err error) { t.Error(err) }); err != nil {
			t.Error(err)
		}
	}
}

// Tasks of a split that another build of urlake made write nothing: the segment would get other
// bytes under its id.
func TestRangesOfAnotherBuild(t *testing.T) {
	store, planKey := rangesLake(t)
	ctx := context.Background()
	opt := indexbuild.Options{TempDir: t.TempDir(), RangePairs: rangePairs}
	r, err := publish.Split(ctx, store, planKey, opt)
	if err != nil {
		t.Fatal(err)
	}
	opt.Builder = "0123456789abcdef"
	before := len(objectsBelow(t, store, ""))
	for i := range r.Merges {
		if o, err := publish.MergeRange(ctx, store, planKey, r, i, opt); err != nil || !o.Other {
			t.Fatalf("%+v, %v", o, err)
		}
	}
	if n := len(objectsBelow(t, store, "")); n != before {
		t.Errorf("%d objects, want %d", n, before)
	}
	built, err := publish.FinishBuild(ctx, store, planKey, r, opt)
	if err != nil || built.Segment.ID != segment.ID(batchesOf(t, store, planKey), opt.Builder) {
		t.Errorf("%+v, %v", built, err)
	}
}

// batchesOf returns the batches of a built plan, as a segment lists them.
func batchesOf(t testing.TB, store blob.Store, planKey string) []segment.BatchRef {
	t.Helper()
	built, err := publish.Build(t.Context(), store, planKey, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	info, err := segment.ReadInfo(t.Context(), store, built.Segment)
	if err != nil {
		t.Fatal(err)
	}
	var all []segment.BatchRef
	for ref, err := range info.Batches(t.Context(), store) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ref)
	}
	return all
}
