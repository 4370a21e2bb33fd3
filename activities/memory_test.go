package activities

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

func TestRunningStepsFitIntoMemory(t *testing.T) {
	const total = 1024 << 20
	m := NewMemory(total)
	var used, peak atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		need := []int64{planMemory, normalizeMemory, mergeMemory, extractMemory, segmentMemory, smallMemory, 2 * total}[i%7]
		all.Go(func() {
			release, err := m.acquire(t.Context(), need)
			if err != nil {
				t.Error(err)
				return
			}
			held := min(need, total) // a step that is larger than total runs alone
			for now, p := used.Add(held), peak.Load(); now > p && !peak.CompareAndSwap(p, now); p = peak.Load() {
			}
			used.Add(-held)
			release()
		})
	}
	all.Wait()
	if p := peak.Load(); p > total {
		t.Errorf("steps of %d MiB ran at once in a memory of %d MiB", p>>20, total>>20)
	}
}

func TestWaitingForMemoryCanBeCancelled(t *testing.T) {
	m := NewMemory(1 << 30)
	release, err := m.acquire(t.Context(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := m.acquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	release()
	if _, err := m.acquire(t.Context(), 1<<30); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// TestBackgroundLeavesMemory holds that steps of the background pool leave memory for the largest
// step of an ingest, where there is room for both.
func TestBackgroundLeavesMemory(t *testing.T) {
	for total, room := range map[int64]int64{segmentMemory + normalizeMemory: normalizeMemory, segmentMemory + pageMemory: pageMemory, 4 << 30: pageMemory} {
		m := NewMemory(total)
		var held int64
		for held+segmentMemory <= backgroundMemory(total) {
			if _, err := m.acquireIn(t.Context(), PoolBackground, segmentMemory); err != nil {
				t.Fatal(err)
			}
			held += segmentMemory
		}
		ended, stop := context.WithCancel(t.Context())
		stop() // waiting fails
		if _, err := m.acquireIn(ended, PoolBackground, segmentMemory); !errors.Is(err, context.Canceled) {
			t.Errorf("%d MiB: one more step of the background: error %v, want that it waits", total>>20, err)
		}
		if _, err := m.acquireIn(ended, PoolNormalize, room); err != nil {
			t.Errorf("%d MiB, %d held by the background: a step of an ingest waits", total>>20, held>>20)
		}
		if n := m.Slots(PoolBackground, 100); int64(n) != held/segmentMemory {
			t.Errorf("%d MiB: %d slots, but %d steps fit", total>>20, n, held/segmentMemory)
		}
	}
	// A step that waits for memory of the background has no share of steps, for which one that runs
	// alone would wait.
	m := NewMemory(segmentMemory + normalizeMemory)
	ctx, stop := context.WithCancel(t.Context())
	if _, err := m.acquireIn(ctx, PoolBackground, segmentMemory); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := m.acquireIn(ctx, PoolBackground, segmentMemory)
		ended <- err
	}()
	for m.Usage().Waiting[PoolBackground] == 0 {
		runtime.Gosched()
	}
	if !m.steps.TryAcquire(maxSteps - 1) {
		t.Error("a step that waits for memory counts as running")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the step waited", err)
	}
	// Less memory is for one step at a time, of any pool.
	release, err := NewMemory(segmentMemory).acquireIn(t.Context(), PoolBackground, segmentMemory)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestSmallStepsDoNotWaitForOneThatRunsAlone holds that claims, looks and plans go on beside a
// suspect, and beside one that waits to be alone.
func TestSmallStepsDoNotWaitForOneThatRunsAlone(t *testing.T) {
	m := NewMemory(1 << 20)
	release, err := m.acquireAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	small, err := m.acquire(ctx, smallMemory)
	if err != nil {
		t.Fatalf("a small step waits: %v", err)
	}
	if _, err := m.acquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a large step: error %v, want that it waits", err)
	}
	release()
	if release, err = m.acquireAll(ctx); err != nil {
		t.Fatalf("a suspect waits for a small step: %v", err)
	}
	release()
	small()
}

func TestSlotsOfMemory(t *testing.T) {
	for _, c := range []struct {
		mib     int64
		pool    string
		n, want int
	}{
		{1024, PoolNormalize, 16, 2}, {1024, PoolNormalize, 1, 1}, {100, PoolNormalize, 16, 1}, {8192, PoolNormalize, 16, 16},
		{1024, PoolWrite, 16, 3}, {1024, PoolIndex, 16, 2}, {1024, PoolPublish, 16, 2}, {1024, PoolBackground, 16, 1}, {4096, PoolBackground, 16, 6}, {1, PoolControl, 16, 16},
	} {
		if got := NewMemory(c.mib<<20).Slots(c.pool, c.n); got != c.want {
			t.Errorf("%d MiB, pool %s, at most %d: got %d slots, want %d", c.mib, c.pool, c.n, got, c.want)
		}
	}
	var none *Memory
	if got := none.Slots(PoolNormalize, 16); got != 16 {
		t.Errorf("without a limit: got %d slots, want 16", got)
	}
}

// TestPlanIngestWaitsForItsMemory holds that a plan reads nothing before its memory is reserved.
func TestPlanIngestWaitsForItsMemory(t *testing.T) {
	m := NewMemory(ingest.PlanMemory)
	release, err := m.acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	store := blob.NewCounting(blob.NewMemory())
	control := &Control{Lake: Lake{Store: store, URL: "mem://lake", Memory: m}}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	stop := make(chan struct{})
	close(stop) // ends the wait
	env.SetWorkerStopChannel(stop)
	env.RegisterActivity(control.PlanIngest)
	_, err = env.ExecuteActivity(control.PlanIngest, ingest.Spec{Lake: "mem://lake", Dataset: "d", Inputs: []string{"/nowhere"}}, "run", int64(1), 0)
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.Type() != "WorkerStops" {
		t.Errorf("error %v, want that the worker stops", err)
	}
	if n := store.Reads().Requests; n != 0 {
		t.Errorf("%d requests without memory", n)
	}
}
