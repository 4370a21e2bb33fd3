package frontier

import (
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// warnOfHeldEvery is the time between two lines of the log about shards that are held.
const warnOfHeldEvery = time.Minute

// held are shards that Redis gives to this process and whose files another process has open: one
// that is stopped, or hangs. It may write when it goes on, so its files are not taken before it
// ends or lets go of them.
type held struct {
	mu     sync.Mutex
	since  map[int]time.Time
	had    map[int]string // the process that served a shard before, "" if that is not known
	grown  bool           // since the last line of the log
	logged time.Time
}

// holds notes that a shard is held. Nobody is asked for what is in it.
func (f *Frontier) holds(n int) {
	f.held.mu.Lock()
	defer f.held.mu.Unlock()
	if _, known := f.held.since[n]; !known {
		f.held.since[n], f.held.grown = time.Now(), true
	}
	if owner := f.owner(n); owner != "" {
		f.held.had[n] = owner
		f.setOwner(n, "")
	}
}

// holdsNoMore notes that a shard has an owner again.
func (f *Frontier) holdsNoMore(n int) {
	f.held.mu.Lock()
	defer f.held.mu.Unlock()
	delete(f.held.since, n)
	delete(f.held.had, n)
}

// Held counts the shards that this process would serve if another one did not have their files
// open, which Redis has not heard of for Options.Own.
func (f *Frontier) Held() int {
	f.held.mu.Lock()
	defer f.held.mu.Unlock()
	return len(f.held.since)
}

// warnOfHeld logs which shards are held: at once, and then every minute.
func (f *Frontier) warnOfHeld() {
	h := &f.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.since) == 0 || !h.grown && time.Since(h.logged) < warnOfHeldEvery {
		return
	}
	h.grown, h.logged = false, time.Now()
	shards := slices.Sorted(maps.Keys(h.since))
	since := slices.MinFunc(slices.Collect(maps.Values(h.since)), time.Time.Compare)
	processes := slices.Sorted(maps.Values(h.had))
	f.o.Log.Warn("shards are not served: a process that Redis has not heard of for --own has their files open, and may write if it goes on. End it (kill -9), or let it go on (kill -CONT)",
		"shards", shards, "lock", filepath.Join(f.o.Dir, lockName(shards[0])), "since", since.UTC().Format(time.RFC3339), "processes", slices.Compact(processes))
}
