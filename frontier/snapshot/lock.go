package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	lockName = "lock.json"
	// lockTTL is how long a lock lasts after it was written, and maxSkew how far apart clocks may
	// be: a lock whose holder was killed ends after both.
	lockTTL = 90 * time.Second
	maxSkew = 30 * time.Second
)

// lock keeps others from deleting objects of which a manifest is about to be written.
type lock struct {
	store  blob.Store
	holder string
	stop   func()
	loop   sync.WaitGroup
	etag   string
}

type lockDocument struct {
	Format  int       `json:"format"`
	Holder  string    `json:"holder"`
	Expires time.Time `json:"expires"`
}

// acquire takes the lock of a store. The context that it returns ends when the lock is lost.
func acquire(ctx context.Context, store blob.Store) (*lock, context.Context, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	l := &lock{store: store, holder: host + "-" + rand.Text()[:8]}
	cond := blob.Condition{IfAbsent: true}
	data, info, err := store.Get(ctx, lockName)
	switch {
	case errors.Is(err, blob.ErrNotExist):
	case err != nil:
		return nil, nil, err
	default:
		var d lockDocument
		if err := codec.Unseal(data, lockName, 1, &d); err != nil {
			return nil, nil, fmt.Errorf("%w; delete %s in %s if no snapshot is being made", err, lockName, store.URL())
		}
		if time.Now().Before(d.Expires.Add(maxSkew)) {
			return nil, nil, fmt.Errorf("%s: another snapshot is being made, by %s; its lock ends by %s", store.URL(), d.Holder, d.Expires.Add(maxSkew).Format(time.RFC3339))
		}
		cond = blob.Condition{IfMatch: info.ETag}
	}
	if err := l.write(ctx, cond); err != nil {
		return nil, nil, err
	}
	held, lost := context.WithCancelCause(ctx)
	stopped, stop := context.WithCancel(ctx)
	l.stop = stop
	l.loop.Go(func() {
		for {
			select {
			case <-stopped.Done():
				return
			case <-time.After(lockTTL / 3):
			}
			if err := l.write(stopped, blob.Condition{IfMatch: l.etag}); err != nil && stopped.Err() == nil {
				lost(fmt.Errorf("the lock of %s was lost: %w", store.URL(), err))
				return
			}
		}
	})
	return l, held, nil
}

func (l *lock) write(ctx context.Context, cond blob.Condition) error {
	data, err := codec.Seal(lockDocument{1, l.holder, time.Now().Add(lockTTL).UTC()})
	if err != nil {
		return err
	}
	info, err := l.store.Put(ctx, lockName, data, cond)
	if errors.Is(err, blob.ErrPrecondition) {
		return fmt.Errorf("%s: another snapshot is being made", l.store.URL())
	}
	if err == nil {
		l.etag = info.ETag
	}
	return err
}

// release gives the lock back, unless somebody else has it by now.
func (l *lock) release() error {
	l.stop()
	l.loop.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	info, err := l.store.Stat(ctx, lockName)
	if errors.Is(err, blob.ErrNotExist) || err == nil && info.ETag != l.etag {
		return nil
	}
	if err != nil {
		return err
	}
	return l.store.Delete(ctx, lockName)
}
