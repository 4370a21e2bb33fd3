// Package flight does work once that many need at once.
package flight

import (
	"context"
	"sync"
)

// Group is a set of calls under way, by what they are for. The zero value is ready. It is safe for
// concurrent use.
type Group[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]*call[V]
}

type call[V any] struct {
	done  chan struct{} // closed once the rest is set
	value V
	err   error
	// left tells that the context of the caller had ended, so err says nothing to others.
	left bool
}

// Do calls work, or waits for the call that another caller has made for the key, and returns its
// result. If that call fails, one of those who wait makes the next one, and the others wait for it.
// An error is that of a call which began after Do, or else that of ctx: nobody gets the error of a
// caller whose context has ended.
func (g *Group[K, V]) Do(ctx context.Context, key K, work func() (V, error)) (V, error) {
	for waited := false; ; waited = true {
		g.mu.Lock()
		c := g.calls[key]
		if c == nil {
			c = &call[V]{done: make(chan struct{}), left: true}
			if g.calls == nil {
				g.calls = map[K]*call[V]{}
			}
			g.calls[key] = c
			g.mu.Unlock()
			return g.lead(ctx, key, c, work)
		}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		case <-c.done:
		}
		if !c.left && (c.err == nil || waited) {
			return c.value, c.err
		}
	}
}

// lead makes a call for all who wait. If work panics, they do without it.
func (g *Group[K, V]) lead(ctx context.Context, key K, c *call[V], work func() (V, error)) (V, error) {
	defer func() {
		g.mu.Lock()
		delete(g.calls, key)
		g.mu.Unlock()
		close(c.done)
	}()
	c.value, c.err = work()
	c.left = c.err != nil && ctx.Err() != nil
	return c.value, c.err
}
