package frontier

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tenure is the time during which a shard is this process', whether it serves the shard or opens
// its files yet. It is renewed by a loop that waits for no files: opening and merging them can take
// longer than a tenure.
type tenure struct {
	shard int
	// until is when the shard is another's unless it is renewed, as the time since begin: from then
	// on nothing is acknowledged.
	until atomic.Int64
	// mu is held while the tenure is renewed, or ended. Over says that it is not renewed any more.
	mu   sync.Mutex
	over bool
}

// mine says that no other process can own the shard yet.
func (t *tenure) mine() bool { return int64(time.Since(begin)) < t.until.Load() }

func (s *owned) mine() bool { return s.tenure.mine() }

// begins notes that this process owns a shard, since a time at which it had not asked yet.
func (f *Frontier) begins(number int, asked time.Duration) *tenure {
	t := &tenure{shard: number}
	t.until.Store(int64(asked + f.o.Own))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tenures[number] = t
	return t
}

// ends lets a tenure not be renewed any more.
func (f *Frontier) ends(t *tenure) {
	t.mu.Lock()
	t.over = true
	t.until.Store(0)
	t.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tenures[t.shard] == t {
		delete(f.tenures, t.shard)
	}
}

// renewAll renews all tenures, at the same time: of a cluster one node may answer late.
func (f *Frontier) renewAll(ctx context.Context) error {
	f.mu.RLock()
	all := slices.Collect(maps.Values(f.tenures))
	f.mu.RUnlock()
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, t := range all {
		calls.Go(func() { errs[i] = f.away(f.renew(ctx, t)) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

func (f *Frontier) renew(ctx context.Context, t *tenure) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return nil
	}
	asked := time.Since(begin)
	c, _, err := f.coord.Own(ctx, t.shard, f.o.Own)
	switch {
	case err != nil:
		return err
	case c == nil || c.Fresh: // another process may have owned it meanwhile
		t.over = true
		t.until.Store(0)
	default:
		t.until.Store(int64(asked + f.o.Own))
	}
	return nil
}
