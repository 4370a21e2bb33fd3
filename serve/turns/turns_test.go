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
			ctx := With(t.Context(), all)
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
		ctx := With(t.Context(), all)
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
		first := Of(With(t.Context(), all))
		if err := first.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(With(t.Context(), all))
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
		again := Of(With(t.Context(), all))
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
	if err := errors.Join(turn.Take(t.Context()), turn.Yield(t.Context()), do(t.Context(), func() error { return nil })); err != nil {
		t.Error(err)
	}
	turn.Give()
	if turn.Has() {
		t.Error("it has a turn")
	}
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
