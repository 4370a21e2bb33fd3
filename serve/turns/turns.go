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

// With returns a context whose work is heavy, and the turn of the goroutine that does it. Nil turns
// are those of light work: then the context is ctx, and the turn is nil.
func With(ctx context.Context, t *Turns) (context.Context, *Turn) {
	if t == nil {
		return ctx, nil
	}
	own := &Turn{of: t}
	return context.WithValue(ctx, key{}, own), own
}

// Own returns the turn that With made for ctx, nil if the work of ctx is light.
func Own(ctx context.Context) *Turn {
	own, _ := ctx.Value(key{}).(*Turn)
	return own
}

// Of returns a turn for another goroutine that works for ctx, nil if that work is light.
func Of(ctx context.Context) *Turn {
	if own := Own(ctx); own != nil {
		return &Turn{of: own.of}
	}
	return nil
}

// Detached returns parent with heavy work if that of ctx is heavy, and nothing else of ctx.
func Detached(parent, ctx context.Context) context.Context {
	if own := Own(ctx); own != nil {
		parent, _ = With(parent, own.of)
	}
	return parent
}

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

// Turn is that of one goroutine, which it has or has not. Whoever has one must not wait for
// anything else, be it the network or another turn. So a read of the store first gives the turn
// that its context has (Own), and the next Yield takes it again. Nil is the turn of light work,
// which needs none.
type Turn struct {
	of  *Turns
	has atomic.Bool
}

// Take waits for the turn, unless it is there. Without an error, which is that of ctx, Give has to
// follow. Only the goroutine whose turn it is may take it.
func (t *Turn) Take(ctx context.Context) error {
	if t == nil || t.has.Load() {
		return nil
	}
	err := t.of.take(ctx)
	t.has.Store(err == nil)
	return err
}

// Give ends the turn, if it is there. Any goroutine may do so that the one with the turn waits for.
func (t *Turn) Give() {
	if t == nil || !t.has.CompareAndSwap(true, false) {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.next()
}

// Has reports whether the turn is there.
func (t *Turn) Has() bool { return t != nil && t.has.Load() }

// Yield is called between two pieces of work of some tens of microseconds. It lets light work run,
// and takes the turn if it is not there.
func (t *Turn) Yield(ctx context.Context) error {
	runtime.Gosched()
	if t == nil {
		return nil
	}
	if t.has.Load() && t.of.crowded() {
		t.Give()
	}
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
