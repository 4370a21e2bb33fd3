package frontier

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTogetherWorksOnEachOnce lets many goroutines come with jobs of several kinds. Each job is
// worked on once, with others of its kind, never more than togetherMax at once unless it is larger
// itself, and not by more goroutines at a time than there are turns.
func TestTogetherWorksOnEachOnce(t *testing.T) {
	type job struct{ kind, size, worked int }
	g := together[int, *job]{turns: 2}
	var running [3]atomic.Int32
	var shared atomic.Int32
	work := func(jobs []*job) {
		kind := jobs[0].kind
		if n := running[kind].Add(1); n > 2 {
			t.Errorf("%d goroutines work on kind %d", n, kind)
		}
		size := 0
		for _, j := range jobs {
			j.worked++
			size += j.size
			if j.kind != kind {
				t.Errorf("kinds %d and %d are worked on together", j.kind, kind)
			}
		}
		if len(jobs) > 1 {
			shared.Add(1)
			if size > togetherMax {
				t.Errorf("%d jobs of %d URLs are worked on together", len(jobs), size)
			}
		}
		for range rand.IntN(20) {
			runtime.Gosched()
		}
		running[kind].Add(-1)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 200 {
				j := &job{kind: rand.IntN(3), size: 1 + rand.IntN(2*togetherMax/3)}
				g.do(j.kind, j.size, j, work)
				if j.worked != 1 {
					t.Errorf("a job was worked on %d times", j.worked)
				}
			}
		})
	}
	all.Wait()
	if shared.Load() == 0 {
		t.Error("no jobs were worked on together")
	}
	// Who has worked on the last jobs of a kind says so, and forgets the kind after that.
	left := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.kinds)
	}
	for end := time.Now().Add(20 * time.Second); left() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d kinds are left", left())
		}
	}
}

// TestTogetherGoesOnAfterAPanic lets the work of one job panic: others still get theirs done.
func TestTogetherGoesOnAfterAPanic(t *testing.T) {
	g := together[int, *int]{turns: 1}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was lost")
			}
		}()
		g.do(0, 1, new(int), func([]*int) { panic("work") })
	}()
	worked := false
	g.do(0, 1, new(int), func([]*int) { worked = true })
	if !worked {
		t.Error("the next job was not worked on")
	}
}
