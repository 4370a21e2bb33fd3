package command

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/blob"
)

// fakePoller counts the running pollers. Stop returns when all pollers that stopping counts are
// stopping.
type fakePoller struct {
	running  *atomic.Int32
	stopping *sync.WaitGroup
	err      error
	started  func()
}

func (f *fakePoller) Start() error {
	if f.err == nil {
		f.running.Add(1)
		if f.started != nil {
			f.started()
		}
	}
	return f.err
}

func (f *fakePoller) Stop() {
	f.stopping.Done()
	f.stopping.Wait()
	f.running.Add(-1)
}

// TestPoolsStopAtOnce stops six queues, also if a seventh cannot start. No Stop returns before all
// queues are stopping: if one waited for another, all would wait for ever, which synctest sees.
func TestPoolsStopAtOnce(t *testing.T) {
	for _, last := range []error{nil, errors.New("no such namespace")} {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int32
			var stopping sync.WaitGroup
			var all []queue
			stopping.Add(6)
			for range 6 {
				all = append(all, queue{"write", &fakePoller{running: &running, stopping: &stopping}})
			}
			if last != nil {
				all = append(all, queue{"index", &fakePoller{running: &running, err: last}})
			}
			err := start(all)
			switch {
			case last != nil && (err == nil || !strings.Contains(err.Error(), "pool index: "+last.Error())):
				t.Error(err)
			case last == nil && (err != nil || running.Load() != 6):
				t.Errorf("%v, %d run", err, running.Load())
			case last == nil:
				stop(all)
			}
			if running.Load() != 0 {
				t.Errorf("%d run", running.Load())
			}
		})
	}
}

// TestLimitsAreSetBeforeAPoolStarts runs steps of all pools as soon as the first starts. The race
// detector sees a limit that is set later.
func TestLimitsAreSetBeforeAPoolStarts(t *testing.T) {
	memory := activities.NewMemory(1 << 30)
	lake := activities.Lake{Store: blob.NewMemory(), URL: "mem://lake", Memory: memory}
	var steps sync.WaitGroup
	step := func() {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		write := &activities.Write{Lake: lake}
		env.RegisterActivity(write)
		if _, err := env.ExecuteActivity(write.MergePartitions, lake.URL, "run", 0, 0); err == nil {
			t.Error("a step of no run succeeded")
		}
	}
	var running atomic.Int32
	all, err := startPools(memory, activities.Pools, 8, func(pool string, slots int) poller {
		if slots < 1 || slots > 8 {
			t.Errorf("pool %s has %d slots", pool, slots)
		}
		return &fakePoller{running: &running, started: func() { steps.Go(step) }}
	})
	if err != nil || len(all) != len(activities.Pools) || int(running.Load()) != len(all) {
		t.Fatalf("%d queues of %d run: %v", running.Load(), len(all), err)
	}
	steps.Wait()
}
