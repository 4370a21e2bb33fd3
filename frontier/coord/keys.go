package coord

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/frontier/ready"
)

// failuresAge is how long failures are remembered of a key that is not fetched from any more.
const failuresAge = 24 * time.Hour

// forgetAtOnce is how many settings Forget looks at.
const forgetAtOnce = 500

// keys is what the owner of a shard remembers of its keys. It alone changes what Redis has of them,
// so it decides by what it remembers, and Redis is told before anybody relies on it: of the times
// of keys with the leases of what was claimed, and of settings when they are changed.
type keys struct {
	mu       sync.Mutex // not held while Redis is asked
	ready    *ready.Table
	settings map[string]Settings // of keys that have any
	// changing is held from when new settings are made of what there is until they are there.
	// Untold are keys of which Redis may have other settings than these, since it did not answer.
	changing sync.Mutex
	untold   map[string]struct{}
}

// rule is what holds for a key that is claimed. Other is the frontier's delay. Mu is held.
func (k *keys) rule(now int64, other time.Duration) func(name []byte) ready.Rule {
	usual := ready.Rule{Delay: other.Milliseconds()}
	if len(k.settings) == 0 {
		return func([]byte) ready.Rule { return usual }
	}
	return func(name []byte) ready.Rule {
		set, ok := k.settings[string(name)]
		if !ok {
			return usual
		}
		return ready.Rule{Held: set.held(), Blocked: set.Blocked, Delay: set.DelayAt(now, other).Milliseconds()}
	}
}

// loadKeys reads the settings of keys, and their times.
func (s *Shard) loadKeys(ctx context.Context) error {
	k := &s.keys
	k.ready, k.settings, k.untold = ready.New(), map[string]Settings{}, map[string]struct{}{}
	for cursor := uint64(0); ; {
		got, next, err := s.f.redis.HScan(ctx, s.prefix+settingsKey, cursor, "", batch).Result()
		if err != nil {
			return failed(err)
		}
		for ; len(got) > 1; got = got[2:] {
			if k.settings[got[0]], err = parseSettings(got[1]); err != nil {
				return fmt.Errorf("key %q: %w", got[0], err)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for from := int64(0); ; from += batch {
		members, err := s.f.redis.ZRangeWithScores(ctx, s.prefix+timesKey, from, from+batch-1).Result()
		if err != nil {
			return failed(err)
		}
		for _, m := range members {
			k.ready.Rest(m.Member.(string), int64(m.Score))
		}
		if len(members) < batch {
			return nil
		}
	}
}

// Wake makes the keys of queues ready in which something waits, unless they are held.
func (s *Shard) Wake(now int64, queues []string) {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, queue := range queues {
		crawl, key, _ := strings.Cut(queue, "\x00")
		set, ok := k.settings[key]
		if ok && set.held() {
			continue
		}
		k.ready.Wake(crawl, key, max(now, k.ready.Next(key), set.Blocked))
	}
}

// Idle notes that nothing waits of keys in a crawl.
func (s *Shard) Idle(crawl string, keys []string) {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.ready.Idle(crawl, key)
	}
}

// Claim returns up to n keys, and no more than a thousand, of which something waits in a crawl and
// that may be fetched from now, and puts each off by its delay, whichever crawl asks next. Delay is
// that of keys that have none of their own. If only is given, other keys are left alone. If there
// is none it returns when to ask again, -1 if nothing waits. Redis is told by Lease.
func (s *Shard) Claim(crawl string, now int64, n int, delay time.Duration, only ...string) (claim ready.Claim, next int64) {
	n, only = min(n, batch), only[:min(len(only), batch)]
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(only) > 0 {
		return k.ready.ClaimOnly(crawl, now, n, k.rule(now, delay), only)
	}
	return k.ready.Claim(crawl, now, n, k.rule(now, delay))
}

// Ready counts the keys of which something waits in a crawl: those that may be fetched from now,
// and all. Of the former some may have been claimed for another crawl meanwhile.
func (s *Shard) Ready(crawl string, now int64) (ready, all int) {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	return s.keys.ready.Count(crawl, now)
}

// Rest keeps keys from being claimed from before a time each. It never comes nearer by this. Redis
// is told by Lease, if they have been claimed.
func (s *Shard) Rest(until map[string]int64) {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, at := range until {
		k.ready.Rest(key, at)
	}
}

// Settings returns what holds for a key.
func (s *Shard) Settings(key string) Settings {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	set := k.settings[key]
	set.Next = max(k.ready.Next(key), set.Blocked)
	return set
}

// AllSettings returns the settings of all keys that have any.
func (s *Shard) AllSettings() map[string]Settings {
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	return maps.Clone(s.keys.settings)
}

// Change changes settings of a key, and returns them. What waits of a key that is no longer paused,
// excluded or blocked is to be woken afterwards.
func (s *Shard) Change(ctx context.Context, key string, c Change) (Settings, error) {
	k := &s.keys
	k.changing.Lock()
	defer k.changing.Unlock()
	set := s.Settings(key)
	c.apply(&set)
	return set, s.put(ctx, map[string]Settings{key: set}, nil)
}

// put gives keys other settings, and puts keys off. Changing is held.
func (s *Shard) put(ctx context.Context, settings map[string]Settings, rests map[string]int64) error {
	if err := s.Certain(ctx); err != nil {
		return err
	}
	s.keys.mu.Lock()
	for key := range s.keys.untold {
		if _, ok := settings[key]; !ok && len(settings) < 2*batch {
			settings[key] = s.keys.settings[key]
		}
	}
	s.keys.mu.Unlock()
	c := s.call(putScript, settingsKey, timesKey)
	c.add(len(settings))
	for key, set := range settings {
		c.add(key, set.format())
	}
	for key, at := range rests {
		c.add(at, key)
	}
	if _, err := c.run(ctx); err != nil {
		for key := range settings {
			s.keys.untold[strings.Clone(key)] = struct{}{}
		}
		return err
	}
	s.Rest(rests)
	s.keys.mu.Lock()
	defer s.keys.mu.Unlock()
	for key, set := range settings {
		delete(s.keys.untold, key)
		if set.Next = 0; set.Any() {
			s.keys.settings[strings.Clone(key)] = set
		} else {
			delete(s.keys.settings, key)
		}
	}
	return nil
}

// Forget drops times and settings that are over, of which it looks at some.
func (s *Shard) Forget(ctx context.Context, now int64) error {
	k := &s.keys
	k.changing.Lock()
	defer k.changing.Unlock()
	over := map[string]Settings{}
	looked := 0
	k.mu.Lock()
	for key, set := range k.settings { // which begins anywhere
		if looked++; looked > forgetAtOnce {
			break
		}
		if set.forget(now) {
			over[key] = set
		}
	}
	k.ready = k.ready.Compact(now)
	k.mu.Unlock()
	if len(over) > 0 || len(k.untold) > 0 {
		if err := s.put(ctx, over, nil); err != nil {
			return err
		}
	}
	if err := s.Certain(ctx); err != nil {
		return err
	}
	c := s.call(forgetScript, timesKey)
	c.add(now)
	_, err := c.run(ctx)
	return err
}

// Report is what the end of a lease says of the server.
type Report struct {
	// Failed says that there was no answer, or one that asks for rest. Answered says that there was
	// one, so that failures before it count no more. With neither it says nothing.
	Failed, Answered bool
	// RetryAfter is how long the server wants to be left alone, 0 if it did not say.
	RetryAfter time.Duration
}

// Backoff says how long a key rests after failures: for its delay, or Delay if it has none of its
// own, twice, then four times, and so on, but no longer than Longest.
type Backoff struct{ Delay, Longest time.Duration }

// after is for how long a key rests after so many failures.
func (b Backoff) after(failures int, delay time.Duration) time.Duration {
	for range min(failures, 20) {
		delay = min(2*delay, b.Longest)
	}
	return min(delay, b.Longest)
}

// Report says which leases have not ended, and notes in Redis what is said of their servers.
// Reports has one for each, or is nil. The leases last until End: a process that dies in between
// has lost nothing. With an error, untold are the places of those of which Redis was to be told
// something and was not; the others are as if they had been reported alone.
func (s *Shard) Report(
	ctx context.Context, now int64, leases []Lease, reports []Report, b Backoff,
) (live []bool, untold []int, err error) {
	live = s.grants.live(now, leases)
	var telling []int // the places of live leases of which something is said
	for i := range reports {
		if live[i] && reports[i] != (Report{}) {
			telling = append(telling, i)
		}
	}
	for some := range slices.Chunk(telling, batch) {
		told, failed := s.tell(ctx, now, some, leases, reports, b)
		if failed != nil {
			untold, err = append(untold, told...), failed
		}
	}
	return live, untold, err
}

// tell notes what is said of the servers of leases at some places, and returns those that say
// something: that a server answers which did not fail before is nothing to note.
func (s *Shard) tell(
	ctx context.Context, now int64, places []int, leases []Lease, reports []Report, b Backoff,
) (told []int, err error) {
	k := &s.keys
	k.changing.Lock()
	defer k.changing.Unlock()
	settings, rests := map[string]Settings{}, map[string]int64{}
	k.mu.Lock()
	for _, place := range places {
		r := &reports[place]
		_, key, _ := strings.Cut(leases[place].Queue(), "\x00")
		set, ok := settings[key]
		if !ok {
			set = k.settings[key]
		}
		rest := r.RetryAfter
		says := rest > 0 || r.Failed
		switch {
		case r.Failed:
			set.Failures++
			if set.Failed = now; rest == 0 {
				rest = b.after(set.Failures, set.DelayAt(now, b.Delay))
			}
			settings[key] = set
		case r.Answered && set.Failures > 0:
			set.Failures, set.Failed = 0, 0
			settings[key], says = set, true
		}
		if says {
			told = append(told, place)
		}
		if rest > 0 {
			rests[key] = max(rests[key], now+rest.Milliseconds())
		}
	}
	k.mu.Unlock()
	if len(told) == 0 {
		return nil, nil
	}
	return told, s.put(ctx, settings, rests)
}
