package command

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/testsuite"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/blob"
)

// fakePoller counts how many run. Stop takes a while.
type fakePoller struct {
	running *atomic.Int32
	err     error
	started func()
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
	time.Sleep(stopTimeout) // in the time of synctest
	f.running.Add(-1)
}

// TestPoolsStopAtOnce holds that six queues stop in the time of one, also if a seventh cannot
// start.
func TestPoolsStopAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		var all []queue
		for range 6 {
			all = append(all, queue{"write", &fakePoller{running: &running}})
		}
		if err := start(all); err != nil || running.Load() != 6 {
			t.Fatalf("%v, %d run", err, running.Load())
		}
		began := time.Now()
		stop(all)
		if took := time.Since(began); took != stopTimeout || running.Load() != 0 {
			t.Errorf("stopped after %s, %d run", took, running.Load())
		}
		all = append(all, queue{"index", &fakePoller{running: &running, err: errors.New("no such namespace")}})
		if err := start(all); err == nil || !strings.Contains(err.Error(), "pool index: no such namespace") || running.Load() != 0 {
			t.Errorf("%v, %d run", err, running.Load())
		}
	})
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
	var all []queue
	slots := limit(memory, activities.Pools, 8)
	for _, pool := range activities.Pools {
		if slots[pool] < 1 || slots[pool] > 8 {
			t.Errorf("pool %s has %d slots", pool, slots[pool])
		}
		all = append(all, queue{pool, &fakePoller{running: &running, started: func() { steps.Go(step) }}})
	}
	if err := start(all); err != nil {
		t.Fatal(err)
	}
	steps.Wait()
}
