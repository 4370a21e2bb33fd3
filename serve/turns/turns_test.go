package turns

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurnsLeaveAProcessorToLightWork counts the goroutines that have a turn at once.
func TestTurnsLeaveAProcessorToLightWork(t *testing.T) {
	for _, c := range []struct {
		processors int
		light      bool
		want       int64
	}{{1, false, 1}, {1, true, 1}, {2, false, 2}, {2, true, 1}, {8, true, 7}} {
		synctest.Test(t, func(t *testing.T) {
			all := New(c.processors)
			ctx, _ := With(t.Context(), all)
			if c.light {
				all.Light()
			}
			var now, most atomic.Int64
			var done sync.WaitGroup
			for range 40 {
				done.Go(func() {
					err := do(ctx, func() error {
						if n := now.Add(1); n > most.Load() {
							most.Store(n)
						}
						time.Sleep(time.Millisecond)
						now.Add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			done.Wait()
			if most.Load() != c.want {
				t.Errorf("%+v: %d at once", c, most.Load())
			}
			if s := all.Stats(); s.Waits == 0 || s.Waited == 0 {
				t.Errorf("%+v: nobody waited: %+v", c, s)
			}
		})
	}
}

// TestYieldGivesUpATurn has two goroutines with turns when light work comes: one of them waits
// until the other one ends, and both are done.
func TestYieldGivesUpATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := New(2)
		ctx, _ := With(t.Context(), all)
		var have atomic.Int64
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				turn := Of(ctx)
				if err := turn.Take(ctx); err != nil {
					t.Error(err)
				}
				have.Add(1)
				for range 10 {
					time.Sleep(time.Millisecond)
					have.Add(-1)
					if err := turn.Yield(ctx); err != nil {
						t.Error(err)
					}
					have.Add(1)
				}
				have.Add(-1)
				turn.Give()
			})
		}
		time.Sleep(2500 * time.Microsecond)
		if have.Load() != 2 {
			t.Errorf("%d have a turn before light work", have.Load())
		}
		all.Light()
		time.Sleep(3 * time.Millisecond)
		if have.Load() != 1 {
			t.Errorf("%d have a turn beside light work", have.Load())
		}
		done.Wait()
		if all.taken != 0 || len(all.waiting) != 0 {
			t.Errorf("%d turns are left over, %d wait", all.taken, len(all.waiting))
		}
	})
}

// TestTurnThatNobodyWaitsForAnyMore ends the contexts of waiting goroutines.
func TestTurnThatNobodyWaitsForAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := New(1)
		_, first := With(t.Context(), all)
		if err := first.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		heavy, _ := With(t.Context(), all)
		ctx, cancel := context.WithCancelCause(heavy)
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				if err := do(ctx, func() error { return nil }); !errors.Is(err, gone) {
					t.Errorf("%v, want the cause of the context", err)
				}
			})
		}
		synctest.Wait()
		cancel(gone)
		done.Wait()
		first.Give()
		first.Give() // it has none any more
		again := Of(heavy)
		if err := again.Take(t.Context()); err != nil {
			t.Error(err)
		}
		again.Give()
		if all.taken != 0 || len(all.waiting) != 0 {
			t.Errorf("%d turns are taken, %d wait", all.taken, len(all.waiting))
		}
	})
}

// TestLightWorkNeedsNoTurn uses a context without turns.
func TestLightWorkNeedsNoTurn(t *testing.T) {
	turn := Of(t.Context())
	if ctx, own := With(t.Context(), nil); own != nil || ctx != t.Context() || Detached(ctx, ctx) != ctx {
		t.Error("nil turns make work heavy")
	}
	if err := errors.Join(turn.Take(t.Context()), turn.Yield(t.Context()), do(t.Context(), func() error { return nil })); err != nil {
		t.Error(err)
	}
	turn.Give()
	if turn.Has() {
		t.Error("it has a turn")
	}
}

// TestYieldTakesTheTurnThatAReadHasGiven has one turn for two goroutines, of which each waits for
// the other one in the middle of its work. It gives its turn for that time, so both are done.
func TestYieldTakesTheTurnThatAReadHasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := New(1)
		meet := make(chan struct{})
		var have atomic.Int64
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				ctx, turn := With(t.Context(), all)
				defer turn.Give()
				for range 3 {
					if err := turn.Yield(ctx); err != nil || !turn.Has() {
						t.Errorf("no turn after Yield: %v", err)
					}
					if have.Add(1) != 1 {
						t.Error("two have the turn")
					}
					have.Add(-1)
					reader := Detached(ctx, ctx)
					if Own(reader) == turn || Of(reader).Has() || Own(ctx) != turn {
						t.Error("the turn is that of another goroutine too")
					}
					Own(ctx).Give() // as a read of the store does
					select {
					case meet <- struct{}{}:
					case <-meet:
					}
				}
			})
		}
		done.Wait()
		if all.taken != 0 || len(all.waiting) != 0 {
			t.Errorf("%d turns are left over, %d wait", all.taken, len(all.waiting))
		}
	})
}

// do runs f in a turn of ctx.
func do(ctx context.Context, f func() error) error {
	t := Of(ctx)
	if err := t.Take(ctx); err != nil {
		return err
	}
	defer t.Give()
	return f()
}
