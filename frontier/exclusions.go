package frontier

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Exclusions say which URLs must not be fetched, such as those that takedowns of a lake name. They
// do not change.
type Exclusions interface {
	// Len is how many rules there are.
	Len() int
	// URL says whether a URL must not be fetched at a time in milliseconds since 1970.
	URL(u *urlnorm.URL, now int64) bool
	// Key says whether nothing of a domain or host may be fetched, at any time.
	Key(key string) bool
}

// ErrorExcluded is the error of a visit that was none: the URL was excluded while it waited.
const ErrorExcluded = "excluded"

// dropsAtOnce bounds how many excluded URLs of a queue a claim settles.
const dropsAtOnce = 1000

// exclusions are those that hold, and what is known of them.
type exclusions struct {
	current atomic.Pointer[Exclusions]
	// read is when they were read last, as milliseconds since 1970; failures counts the times that
	// this failed since.
	read, failures atomic.Int64
	// dropped counts the URLs that waited and were settled as excluded.
	dropped atomic.Int64
}

func (f *Frontier) excluded() Exclusions {
	if e := f.exclusions.current.Load(); e != nil && (*e).Len() > 0 {
		return *e
	}
	return nil
}

// readExclusions reads what is excluded. What is not any more is woken.
func (f *Frontier) readExclusions(ctx context.Context) error {
	e, err := f.o.Exclusions(ctx)
	if err != nil {
		f.exclusions.failures.Add(1)
		return fmt.Errorf("exclusions; those of before still hold: %w", err)
	}
	f.exclusions.read.Store(f.now())
	f.exclusions.failures.Store(0)
	if before := f.exclusions.current.Swap(&e); before == nil || *before == e {
		return nil
	}
	f.unhideAll()
	return nil
}

// keptBack says that nothing of a key is handed out: exclusions name it, or it is a host below an
// excluded key.
func (f *Frontier) keptBack(e Exclusions, key string) bool {
	return e != nil && e.Key(key) || f.ofExcluded(key)
}

// unhideAll wakes the keys of all shards that were excluded and are not any more.
func (f *Frontier) unhideAll() {
	for _, s := range f.all() {
		f.unhide(s.number)
	}
}

// unhide wakes the keys of a shard that were excluded and are not any more.
func (f *Frontier) unhide(number int) {
	s, release, err := f.use(number)
	if err != nil {
		return // whoever opens it wakes them
	}
	defer release()
	e := f.excluded()
	d := &s.domains
	var woken []string
	d.mu.Lock()
	for key := range d.hidden {
		if !f.keptBack(e, key) {
			delete(d.hidden, key)
			woken = append(woken, key)
		}
	}
	d.mu.Unlock()
	f.wakeKeys(s, woken)
}

// hide remembers that a key is excluded. It is false if it is not excluded any more.
func (f *Frontier) hide(s *owned, key string) bool {
	d := &s.domains
	d.mu.Lock()
	defer d.mu.Unlock()
	// Exclusions that were read meanwhile have looked, or look after this, at what is hidden.
	if !f.keptBack(f.excluded(), key) {
		return false
	}
	d.hidden[key] = struct{}{}
	return true
}

func (d *domains) isHidden(key string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	_, ok := d.hidden[key]
	return ok
}

// take hands out up to n entries of a queue that are not excluded. Those that are it settles. Left
// is how many wait after that, 0 if the whole key is excluded.
func (f *Frontier) take(s *owned, queue string, n int) (taken []shard.Entry, left int64, err error) {
	e := f.excluded()
	for key := keyOf(queue); f.keptBack(e, key); e = f.excluded() {
		if f.hide(s, key) {
			return nil, 0, nil
		}
	}
	if e == nil {
		return s.files.Take(queue, n)
	}
	now := f.now()
	norm, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return nil, 0, err
	}
	for dropped := 0; ; {
		var got []shard.Entry
		got, left, err = s.files.Take(queue, n-len(taken))
		if err != nil {
			return nil, 0, err
		}
		before := dropped
		for _, entry := range got {
			u, err := norm.Parse([]byte(entry.URL))
			if err != nil || !e.URL(&u, now) {
				taken = append(taken, entry)
				continue
			}
			if _, err := s.files.Done(entry.Seq, shard.Visit{Time: now, Error: ErrorExcluded}, 0); err != nil {
				return nil, 0, err
			}
			dropped++
			f.exclusions.dropped.Add(1)
		}
		if dropped == before || left == 0 || dropped >= dropsAtOnce {
			return taken, left, nil
		}
	}
}

// ExclusionStats tell about exclusions.
type ExclusionStats struct {
	// Rules is how many there are, Hidden how many keys with waiting URLs they keep back, and
	// Dropped how many URLs that waited were settled as excluded since the process began.
	Rules, Hidden, Dropped int64
	// Read is when they were read last, zero if there are none to be read; Failures counts the
	// times that this failed since.
	Read     time.Time
	Failures int64
}

// ExclusionStats tells about exclusions.
func (f *Frontier) ExclusionStats() (s ExclusionStats) {
	if e := f.excluded(); e != nil {
		s.Rules = int64(e.Len())
	}
	s.Dropped, s.Failures = f.exclusions.dropped.Load(), f.exclusions.failures.Load()
	if ms := f.exclusions.read.Load(); ms > 0 {
		s.Read = time.UnixMilli(ms).UTC()
	}
	for _, o := range f.all() {
		o.domains.mu.RLock()
		s.Hidden += int64(len(o.domains.hidden))
		o.domains.mu.RUnlock()
	}
	return s
}
