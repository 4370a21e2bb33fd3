package lookup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/urlake/urlake/serve/turns"
)

// ErrComputing means that an answer takes a scan of the version that is not done yet. It goes on,
// so that the question can be asked again.
var ErrComputing = errors.New("the answer is being computed")

const (
	// maxResults is how many results a version keeps, each of a few KB at most.
	maxResults = 512
	// scansAtOnce is how many scans are under way on a server, and scansWaiting how many wait.
	scansAtOnce  = 1
	scansWaiting = 8
	// scanTimeout bounds a scan.
	scanTimeout = 30 * time.Minute
)

// results are what scans of one version have found out.
type results struct {
	mu    sync.Mutex
	all   map[string]*result
	order []string // oldest first
}

// result is what a scan finds out, or has. It counts as long as the takedowns are those.
type result struct {
	takedowns *takedowns
	done      chan struct{} // closed once value or err is set
	value     any
	err       error
}

// compute returns what work returns for the version. Equal questions share one call of work, whose
// result is kept. The error is ErrComputing if it takes longer than the deadline, or if too many
// scans wait. A paced result is given when Options.Pace says.
func compute[T any](ctx context.Context, s *Snapshot, key string, paced bool, work func(ctx context.Context) (T, error)) (none T, err error) {
	v, err := s.view(ctx)
	if err != nil {
		return none, err
	}
	c := &s.results
	c.mu.Lock()
	r := c.all[key]
	if r == nil || r.takedowns != v.takedowns {
		if r = s.start(ctx, key, paced, v.takedowns, func(ctx context.Context) (any, error) { return work(ctx) }); r == nil {
			c.mu.Unlock()
			return none, ErrComputing
		}
	}
	c.mu.Unlock()
	turns.Own(ctx).Give() // the scan needs one
	timer := time.NewTimer(s.server.opt.Deadline)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timer.C:
		return none, ErrComputing
	}
	if r.err != nil {
		return none, r.err
	}
	return r.value.(T), nil
}

// start begins a scan, unless too many wait: then it returns nil. The caller holds s.results.mu and
// has the snapshot pinned.
func (s *Snapshot) start(ctx context.Context, key string, paced bool, t *takedowns, work func(ctx context.Context) (any, error)) *result {
	if !s.server.scansWaiting.TryAcquire(1) {
		return nil
	}
	if !s.retain() {
		s.server.scansWaiting.Release(1)
		return nil
	}
	c := &s.results
	r := &result{takedowns: t, done: make(chan struct{})}
	if c.all == nil {
		c.all = map[string]*result{}
	}
	if c.all[key] == nil {
		c.order = append(c.order, key)
	}
	c.all[key] = r
	if len(c.order) > maxResults {
		delete(c.all, c.order[0]) // who waits for it has it
		c.order = c.order[1:]
	}
	begun := time.Now()
	go func() {
		defer s.Release()
		// Other requests may wait for the scan, so it does not end with this one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), scanTimeout)
		defer cancel()
		r.err = contain(func() (err error) {
			defer s.server.scansWaiting.Release(1)
			if err := s.server.scans.Acquire(ctx, 1); err != nil {
				return err
			}
			defer s.server.scans.Release(1)
			ctx, turn := turns.With(ctx, s.server.turns)
			defer turn.Give()
			r.value, err = work(ctx)
			return err
		})
		if r.err != nil {
			c.mu.Lock()
			if c.all[key] == r { // the next request tries again
				delete(c.all, key)
				for i, k := range c.order {
					if k == key {
						c.order = append(c.order[:i:i], c.order[i+1:]...)
						break
					}
				}
			}
			c.mu.Unlock()
		}
		if paced {
			time.Sleep(time.Until(s.due(begun)))
		}
		close(r.done)
	}()
	return r
}
