package flight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd has callers ask for one key at once. Work takes a second; call i of it returns errs[i], or
// the number of the call. It returns what each caller got and how often work was called.
func crowd(t *testing.T, callers int, errs []error, of func(i int) context.Context) (values []int, failed []error, calls int) {
	t.Helper()
	var g Group[string, int]
	var mu sync.Mutex
	now, most := 0, 0
	var all sync.WaitGroup
	values, failed = make([]int, callers), make([]error, callers)
	for i := range callers {
		all.Go(func() {
			ctx := of(i)
			values[i], failed[i] = g.Do(ctx, "key", func() (int, error) {
				mu.Lock()
				n := calls
				calls++
				now++
				most = max(most, now)
				mu.Unlock()
				defer func() { mu.Lock(); now--; mu.Unlock() }()
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return 0, ctx.Err()
				}
				if n < len(errs) && errs[n] != nil {
					return 0, errs[n]
				}
				return n, nil
			})
		})
		synctest.Wait() // the first one leads
	}
	all.Wait()
	if most > 1 {
		t.Errorf("%d calls of work at once", most)
	}
	if len(g.calls) != 0 {
		t.Errorf("%d calls are left over", len(g.calls))
	}
	return values, failed, calls
}

func TestOneOfManyCallersWorks(t *testing.T) {
	broken, again := errors.New("broken"), errors.New("broken again")
	for name, c := range map[string]struct {
		errs  []error
		calls int
		want  error // of those who waited
		value int
	}{
		"work succeeds":                    {nil, 1, nil, 0},
		"the first fails":                  {[]error{broken}, 2, nil, 1},
		"it fails for whoever comes later": {[]error{broken, again}, 2, again, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			values, failed, calls := crowd(t, 20, c.errs, func(int) context.Context { return t.Context() })
			if calls != c.calls {
				t.Errorf("%s: %d calls, want %d", name, calls, c.calls)
			}
			for i := 1; i < 20; i++ {
				if !errors.Is(failed[i], c.want) || values[i] != c.value {
					t.Errorf("%s: caller %d got %d, %v", name, i, values[i], failed[i])
				}
			}
			if c.errs != nil && !errors.Is(failed[0], broken) {
				t.Errorf("%s: the first caller got %v", name, failed[0])
			}
		})
	}
}

// TestNextLeaderIsElectedWhenOneLeaves ends the contexts of the first three callers, one after the
// other, in the middle of the work of each.
func TestNextLeaderIsElectedWhenOneLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, failed, calls := crowd(t, 20, nil, func(i int) context.Context {
			if i >= 3 {
				return t.Context()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(5+2*i)*time.Second/10)
			t.Cleanup(cancel)
			return ctx
		})
		for i, err := range failed {
			if want := i < 3; errors.Is(err, context.DeadlineExceeded) != want || !want && err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		// Nobody but the first three can have led before the last of them left.
		if calls < 2 || calls > 4 || time.Since(began) > 3*time.Second {
			t.Errorf("%d calls within %s", calls, time.Since(began))
		}
	})
}

// TestPanicOfALeaderIsItsOwn has the first caller panic while others wait.
func TestPanicOfALeaderIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int, string]
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is lost")
				}
			}()
			_, _ = g.Do(t.Context(), 1, func() (string, error) {
				time.Sleep(time.Second)
				panic("broken")
			})
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				if v, err := g.Do(t.Context(), 1, func() (string, error) { return "ok", nil }); v != "ok" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			})
		}
		all.Wait()
	})
}
