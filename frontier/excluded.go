package frontier

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
)

// excludedKeys are the excluded keys of all shards. The exclusion of a domain holds for keys that
// are hosts below it, too, and these are in other shards, which other processes may serve. A set in
// Redis has all, and each process reads it when it has changed. The settings of a key in its shard
// say what is right.
type excludedKeys struct {
	// changing is held while they are read or changed.
	changing sync.Mutex
	// some says that there are any.
	some atomic.Bool
	mu   sync.RWMutex
	keys map[string]struct{}
	// version is that of coord.Control.
	version int64
}

func (x *excludedKeys) has(key string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, ok := x.keys[key]
	return ok
}

// set replaces the keys.
func (x *excludedKeys) set(keys map[string]struct{}, version int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.keys, x.version = keys, version
	x.some.Store(len(keys) > 0)
}

// note adds keys, or removes them. A version that is not the next one means that there were other
// changes, which are still to be read.
func (x *excludedKeys) note(excluded bool, keys []string, version int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range keys {
		if excluded {
			x.keys[key] = struct{}{}
		} else {
			delete(x.keys, key)
		}
	}
	if version == x.version+1 {
		x.version = version
	}
	x.some.Store(len(x.keys) > 0)
}

// above returns the first excluded key that a key is below, as a host is below its domain.
func (x *excludedKeys) above(key string) (above string, ok bool) {
	if !x.some.Load() {
		return "", false
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for below := true; below && !ok; {
		if _, key, below = strings.Cut(key, "."); below {
			_, ok = x.keys[key]
		}
	}
	return key, ok
}

// ofExcluded says that a key is a host below one that is excluded, and of the same domain: hosts
// below a public suffix are of others. Whether the key itself is excluded its shard knows.
func (f *Frontier) ofExcluded(key string) bool {
	above, ok := f.excludedKeys.above(key)
	if !ok {
		return false
	}
	host, err := f.robotsHost(key)
	return err == nil && host == key && f.list.Domain(key) == f.list.Domain(above)
}

// readExcluded reads the excluded keys if they are of another version.
func (f *Frontier) readExcluded(ctx context.Context, version int64) error {
	x := &f.excludedKeys
	x.changing.Lock()
	defer x.changing.Unlock()
	x.mu.RLock()
	same := x.keys != nil && x.version == version
	x.mu.RUnlock()
	if same {
		return nil
	}
	keys, err := f.coord.Excluded(ctx)
	if err != nil {
		return err
	}
	x.set(keys, version)
	f.unhideAll()
	return nil
}

// setExcluded tells all processes of keys that are excluded, or not any more.
func (f *Frontier) setExcluded(ctx context.Context, excluded bool, keys []string) error {
	x := &f.excludedKeys
	x.changing.Lock()
	defer x.changing.Unlock()
	version, err := f.coord.SetExcluded(ctx, excluded, keys)
	if err != nil {
		return err
	}
	x.note(excluded, keys, version)
	if !excluded {
		f.unhideAll()
	}
	return nil
}

// repairExcluded makes what all processes know of the excluded keys of a shard that is being opened
// what its settings say: a process may have died between one and the other, and earlier programs
// had only these.
func (f *Frontier) repairExcluded(ctx context.Context, s *owned) error {
	var missing, over []string
	for key := range s.domains.excluded {
		if !f.excludedKeys.has(key) {
			missing = append(missing, key)
		}
	}
	f.excludedKeys.mu.RLock()
	for key := range f.excludedKeys.keys {
		if _, ok := s.domains.excluded[key]; !ok && f.shardOf(key) == s.number {
			over = append(over, key)
		}
	}
	f.excludedKeys.mu.RUnlock()
	var err error
	if len(missing) > 0 {
		err = f.setExcluded(ctx, true, missing)
	}
	if len(over) > 0 {
		err = errors.Join(err, f.setExcluded(ctx, false, over))
	}
	return err
}
