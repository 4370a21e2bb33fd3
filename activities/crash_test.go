package activities

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/publish"
)

// TestCrashesOfOneBatchDoNotStopThePublish has a batch whose postings kill workers. The next plan
// of the run leaves it out, and the other batch is published.
func TestCrashesOfOneBatchDoNotStopThePublish(t *testing.T) {
	fastMarkers(t)
	const run = "default-test-run-id" // of the SDK's test environment
	l := testLake()
	l.URL, l.TempDir = l.Store.URL(), t.TempDir()
	index := &Index{*l}
	for _, b := range []string{"good", "poison"} {
		testlake.Ingest(t, l.Store, "d", b, []testlake.Record{{URL: "http://" + b + ".example/"}})
	}
	plan, err := publish.Plan(t.Context(), l.Store, run, 0)
	if err != nil || plan.Batches != 2 {
		t.Fatal(plan, err)
	}
	s := step{run: run, name: "build-" + documentName(plan.PlanKey) + "-0"}
	left := func(object string) {
		t.Helper()
		if err := writeDocument(t.Context(), l.Store, s.key(""), &marker{Format: suspectFormat, Object: object, Deaths: 1}); err != nil {
			t.Fatal(err)
		}
	}
	left("index/segments/of-no-batch")
	_, err = do[publish.Built](t, index.BuildSegment, l.URL, plan.PlanKey, 0, lastDeath)
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != ErrCrash || !app.NonRetryable() {
		t.Errorf("an object of no batch: %v, want a final %s", err, ErrCrash)
	}
	left(lake.PostingsKey(1, "poison", "x"))
	built, err := do[publish.Built](t, index.BuildSegment, l.URL, plan.PlanKey, 0, lastDeath)
	if err != nil || built.Damaged != 1 {
		t.Fatalf("%+v, %v", built, err)
	}
	plan, err = publish.Plan(t.Context(), l.Store, run, 1)
	if err != nil || plan.Batches != 1 || !slices.ContainsFunc(plan.Skipped, func(s publish.Skipped) bool {
		return s.Batch == "poison" && strings.Contains(s.Reason, "killed its worker")
	}) {
		t.Fatalf("%+v, %v", plan, err)
	}
	if built, err = do[publish.Built](t, index.BuildSegment, l.URL, plan.PlanKey, 0, 0); err != nil || len(built.Segments) == 0 {
		t.Errorf("%+v, %v", built, err)
	}
}

// TestCrashesOfOneBatchDoNotStopTheMove has a batch whose move to another list kills workers.
func TestCrashesOfOneBatchDoNotStopTheMove(t *testing.T) {
	fastMarkers(t)
	const run = "default-test-run-id" // of the SDK's test environment
	l := testLake()
	l.URL, l.TempDir = l.Store.URL(), t.TempDir()
	write := &Write{*l}
	testlake.SetList(t, l.Store, "example")
	for _, b := range []string{"a-poison", "b-good"} {
		testlake.Ingest(t, l.Store, "d", b, []testlake.Record{{URL: "http://www.a.example/" + b}})
	}
	testlake.SetList(t, l.Store, "example a.example")
	plan, err := publish.Plan(t.Context(), l.Store, run, 0)
	if err != nil || plan.RewriteTasks != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	s := step{run: run, name: documentName(plan.RewriteKey) + "-000000"}
	if err := writeDocument(t.Context(), l.Store, s.key(""), &marker{Format: suspectFormat, Object: "urls/x", Deaths: 1}); err != nil {
		t.Fatal(err)
	}
	var app *temporal.ApplicationError
	if _, err = do[publish.Rewritten](t, write.RewriteParts, l.URL, plan.RewriteKey, 0, lastDeath); !errors.As(err, &app) || app.NonRetryable() {
		t.Fatalf("%v, want a retry", err)
	}
	moved, err := do[publish.Rewritten](t, write.RewriteParts, l.URL, plan.RewriteKey, 0, lastDeath)
	if err != nil || moved.Batches != 2 || moved.Damaged != 1 || moved.Again != 1 {
		t.Fatalf("%+v, %v", moved, err)
	}
	plan, err = publish.Plan(t.Context(), l.Store, run, 0)
	if err != nil || plan.Batches != 1 || len(plan.Skipped) != 1 || plan.Skipped[0].Batch != "a-poison" {
		t.Errorf("%+v, %v", plan, err)
	}
}

// TestCrashesOfOneUnionDoNotStopTheCompaction has a union whose writing kills workers. The others
// are made, and the segments with its batches stay.
func TestCrashesOfOneUnionDoNotStopTheCompaction(t *testing.T) {
	fastMarkers(t)
	const run = "default-test-run-id" // of the SDK's test environment
	l := testLake()
	l.URL, l.TempDir = l.Store.URL(), t.TempDir()
	write, full := &Write{*l}, publish.Compaction{Full: true}
	for _, dataset := range []string{"a-poison", "b-good"} {
		for _, b := range []string{"1", "2"} {
			testlake.Ingest(t, l.Store, dataset, b, []testlake.Record{{URL: "http://www.a.example/" + dataset + b}})
			testlake.Publish(t, l.Store)
		}
	}
	plan, err := publish.PlanCompaction(t.Context(), l.Store, run, 0, full)
	if err != nil || plan.RewriteTasks != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	s := step{run: run, name: documentName(plan.RewriteKey) + "-000000"}
	if err := writeDocument(t.Context(), l.Store, s.key(""), &marker{Format: suspectFormat, Object: "urls/x", Deaths: 1}); err != nil {
		t.Fatal(err)
	}
	var app *temporal.ApplicationError
	if _, err = do[publish.Rewritten](t, write.RewriteParts, l.URL, plan.RewriteKey, 0, lastDeath); !errors.As(err, &app) || app.NonRetryable() {
		t.Fatalf("%v, want a retry", err)
	}
	united, err := do[publish.Rewritten](t, write.RewriteParts, l.URL, plan.RewriteKey, 0, lastDeath)
	if err != nil || united.Unions != 2 || united.Damaged != 1 || united.Parts != 1 {
		t.Fatalf("%+v, %v", united, err)
	}
	plan, err = publish.PlanCompaction(t.Context(), l.Store, run, 1, full)
	if err != nil || plan.Unions != 1 || plan.Segments != 2 || plan.Covered != 2 {
		t.Errorf("%+v, %v", plan, err)
	}
}

// TestPanicNamesWhatWasReadLast holds that the object of a panic is the one that was read last, not
// the one that was opened last.
func TestPanicNamesWhatWasReadLast(t *testing.T) {
	l, s := testLake(), step{run: "run", name: "build", deaths: 2, ofLake: true}
	for _, key := range []string{"a", "b"} {
		if _, err := l.Store.Put(t.Context(), key, []byte("x"), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	err := runStep(t, l, s, func(ctx context.Context, store blob.Store) error {
		for _, key := range []string{"a", "b", "a"} {
			if _, err := store.ReadRange(ctx, key, 0, 1); err != nil {
				t.Error(err)
			}
		}
		panic("a defect")
	})
	if err == nil || !strings.Contains(err.Error(), ": a: panic: ") {
		t.Errorf("error %v, want that it names a", err)
	}
}

// panicking panics where an object with the prefix is read.
type panicking struct {
	blob.Store
	prefix string
}

func (p *panicking) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if strings.HasPrefix(key, p.prefix) {
		panic("a defect")
	}
	return p.Store.Get(ctx, key)
}

// TestPanicsOfOneRoundAreNotThoseOfAnother holds that a publisher, which makes many rounds, counts
// panics for each segment.
func TestPanicsOfOneRoundAreNotThoseOfAnother(t *testing.T) {
	names := map[string]bool{}
	l := testLake()
	l.URL = l.Store.URL()
	index := &Index{*l}
	index.Store = &panicking{Store: index.Store, prefix: "staging/r/"}
	for _, key := range []string{"staging/r/publish-0-a.json", "staging/r/publish-1-b.json"} {
		if _, err := do[publish.Built](t, index.BuildSegment, l.URL, key, 0, 0); err == nil {
			t.Fatal("no panic")
		}
	}
	for info, err := range index.Store.List(t.Context(), "staging/") {
		if err != nil {
			t.Fatal(err)
		}
		names[info.Key] = true
	}
	if len(names) != 2 {
		t.Errorf("two rounds count their panics in %v", names)
	}
}
