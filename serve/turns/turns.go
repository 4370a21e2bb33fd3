// Package turns divides processors between heavy and light work. The Go scheduler lets a goroutine
// run for 10 ms, and looks at the network as rarely while every processor is busy. So a few large
// answers would make each small one wait for tens of milliseconds, however little it takes. Heavy
// work therefore takes turns: while light work comes, it leaves a processor to that.
package turns

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lightFor is how long a processor is left to light work after some has come.
const lightFor = 250 * time.Millisecond

// Turns says how many goroutines may do heavy work at once. It is safe for concurrent use. Nil has
// turns for everybody.
type Turns struct {
	// all are the turns if there is only heavy work, beside those while light work comes.
	all, beside int
	began       time.Time
	// light is when light work came last, after began, plus lightFor.
	light atomic.Int64

	mu      sync.Mutex
	taken   int
	waiting []chan struct{} // in the order of their turns; each is closed with its turn
	// waits counts the turns that were waited for, waited for how long.
	waits  int64
	waited time.Duration
}

// New returns turns for the given number of processors.
func New(processors int) *Turns {
	return &Turns{all: max(1, processors), beside: max(1, processors-1), began: time.Now()}
}

// Light tells that light work has come.
func (t *Turns) Light() {
	if t == nil {
		return
	}
	t.light.Store(int64(time.Since(t.began) + lightFor))
}

// most is how many turns may be taken now.
func (t *Turns) most() int {
	if int64(time.Since(t.began)) < t.light.Load() {
		return t.beside
	}
	return t.all
}

type key struct{}

// With returns a context whose work is heavy.
func With(ctx context.Context, t *Turns) context.Context { return context.WithValue(ctx, key{}, t) }

// take waits for a turn. The error is that of ctx.
func (t *Turns) take(ctx context.Context) error {
	t.mu.Lock()
	if len(t.waiting) == 0 && t.taken < t.most() {
		t.taken++
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	t.waiting = append(t.waiting, turn)
	t.waits++
	t.mu.Unlock()
	began := time.Now()
	var err error
	select {
	case <-turn:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waited += time.Since(began)
	if err == nil {
		return nil
	}
	if i := slices.Index(t.waiting, turn); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.next() // it came meanwhile
	}
	return err
}

// next ends a turn. The caller holds t.mu.
func (t *Turns) next() {
	t.taken--
	for len(t.waiting) > 0 && t.taken < t.most() {
		close(t.waiting[0])
		t.waiting = slices.Delete(t.waiting, 0, 1)
		t.taken++
	}
}

// crowded reports whether more turns are taken than there are now, since light work has come.
func (t *Turns) crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken > t.most()
}

// Detached returns parent with the turns of ctx, and nothing else of ctx.
func Detached(parent, ctx context.Context) context.Context {
	if t, ok := ctx.Value(key{}).(*Turns); ok {
		return With(parent, t)
	}
	return parent
}

// Turn is that of one goroutine, which it has or has not. Whoever has one must not wait for
// anything else, be it the network or another turn. The zero value is of light work, which needs
// none.
type Turn struct {
	of  *Turns
	has bool
}

// Of returns the turn of a goroutine that works for ctx. It has it not yet.
func Of(ctx context.Context) Turn {
	t, _ := ctx.Value(key{}).(*Turns)
	return Turn{of: t}
}

// Take waits for the turn, unless it is there. Without an error, which is that of ctx, Give has to
// follow.
func (t *Turn) Take(ctx context.Context) error {
	if t.of == nil || t.has {
		return nil
	}
	err := t.of.take(ctx)
	t.has = err == nil
	return err
}

// Give ends the turn, if it is there.
func (t *Turn) Give() {
	if !t.has {
		return
	}
	t.has = false
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.next()
}

// Has reports whether the turn is there.
func (t Turn) Has() bool { return t.has }

// Yield is called between two pieces of work of some tens of microseconds. It lets light work run.
func (t *Turn) Yield(ctx context.Context) error {
	runtime.Gosched()
	if !t.has || !t.of.crowded() {
		return nil
	}
	t.Give()
	return t.Take(ctx)
}

// Stats are the turns that were waited for, and how long in sum.
type Stats struct {
	Waits  int64
	Waited time.Duration
}

// Stats returns what has been waited for so far.
func (t *Turns) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{t.waits, t.waited}
}
