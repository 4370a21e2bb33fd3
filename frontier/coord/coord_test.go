//go:build unix

package coord_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
)

// begin opens a frontier of one shard in a Redis of its own.
func begin(t *testing.T) (*coord.Frontier, *redis.Client) {
	t.Helper()
	opt, err := redis.ParseURL(testenv.NewRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	f, err := coord.Open(t.Context(), client, "f", "node", 1)
	if err != nil {
		t.Fatal(err)
	}
	return f, client
}

// own takes the shard of a frontier.
func own(t *testing.T, f *coord.Frontier) *coord.Shard {
	t.Helper()
	s, _, err := f.Own(t.Context(), 0, time.Hour)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// modelKey is what a model knows of a key.
type modelKey struct {
	next, blocked int64
	paused        bool
	delay         int64 // less than 0: that of the frontier
	failures      int64
	waits         map[string]bool // whether something waits, by crawl
}

// TestScripts compares the scripts with a model: claims of three crawls, leases that succeed and
// fail, delays, blocks and pauses, in any order.
func TestScripts(t *testing.T) {
	f, _ := begin(t)
	s := own(t, f)
	const frontierDelay, longest = 50, 1000
	rng := rand.New(rand.NewPCG(5, 6))
	now := int64(1_000_000)
	keys := map[string]*modelKey{}
	for i := range 12 {
		keys[fmt.Sprintf("k%d", i)] = &modelKey{delay: -1, waits: map[string]bool{}}
	}
	crawls := []string{"a", "b", "c"}
	anyKey := func() string { return fmt.Sprintf("k%d", rng.IntN(12)) }
	delayOf := func(k *modelKey) int64 {
		if k.delay >= 0 {
			return k.delay
		}
		return frontierDelay
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(key string, c coord.Change) {
		t.Helper()
		_, err := s.Change(t.Context(), key, c)
		check(err)
	}
	wakeAll := func(key string) { // as the frontier does after a change
		for crawl, waits := range keys[key].waits {
			if waits && !keys[key].paused {
				s.Wake(now, []string{crawl + "\x00" + key})
			}
		}
	}
	backoff := coord.Backoff{Delay: frontierDelay * time.Millisecond, Longest: longest * time.Millisecond}
	var out []coord.Lease
	token, claims, opened := uint64(0), 0, 0
	for range 6000 {
		now += rng.Int64N(8)
		crawl := crawls[rng.IntN(3)]
		switch key := anyKey(); rng.IntN(10) {
		case 0, 1: // something waits
			s.Wake(now, []string{crawl + "\x00" + key})
			keys[key].waits[crawl] = true
		case 2, 3, 4, 5:
			n := 1 + rng.IntN(4)
			claimed, next := s.Claim(crawl, now, n, frontierDelay*time.Millisecond)
			got := claimed.Keys
			var can []string
			soonest := int64(-1)
			for name, k := range keys {
				at := max(k.next, k.blocked)
				switch {
				case !k.waits[crawl] || k.paused:
				case at <= now:
					can = append(can, name)
				case soonest < 0 || at < soonest:
					soonest = at
				}
			}
			if len(got) != min(n, len(can)) {
				t.Fatalf("%d: claim of %d in %s: %v, of %v", now, n, crawl, got, can)
			}
			// The time of the next may be too early, never too late.
			if len(got) == 0 && (next > soonest && soonest >= 0 || next < 0 && soonest >= 0) {
				t.Fatalf("%d: the next of %s is at %d, want %d", now, crawl, next, soonest)
			}
			for _, name := range got {
				k := keys[name]
				if !slices.Contains(can, name) {
					t.Fatalf("%d: %s is claimed in %s: %+v", now, name, crawl, *k)
				}
				if d := delayOf(k); d > 0 {
					k.next = now + d
				}
				token++
				out = append(out, coord.NewLease(token<<40, token, crawl+"\x00"+name))
				claims++
			}
			if len(got) > 0 {
				empty := got[:rng.IntN(len(got)+1)]
				check(s.Lease(t.Context(), now+200, out[len(out)-len(got):], claimed))
				s.Idle(crawl, empty)
				for _, name := range empty {
					keys[name].waits[crawl] = false
				}
			}
		case 6, 7:
			n := rng.IntN(min(len(out), 3) + 1)
			batch := out[:n]
			out = out[n:]
			reports := make([]coord.Report, n)
			for i := range reports {
				switch rng.IntN(4) {
				case 0:
					reports[i].Failed = true
				case 1:
					reports[i] = coord.Report{Failed: true, RetryAfter: time.Duration(rng.IntN(300)) * time.Millisecond}
				case 2:
					reports[i].Answered = true
				}
			}
			live, _, err := s.Report(t.Context(), now, batch, reports, backoff)
			check(err)
			s.End(batch)
			for i, l := range batch {
				if !live[i] {
					continue // its time was over
				}
				k := keys[l.Queue()[2:]]
				if reports[i].Answered {
					k.failures = 0
				}
				if reports[i].Failed {
					k.failures++
					rest := reports[i].RetryAfter.Milliseconds()
					if rest == 0 {
						rest = min(delayOf(k)<<min(k.failures, 20), longest)
					}
					k.next = max(k.next, now+rest)
				}
			}
		case 8:
			k := keys[key]
			k.paused = !k.paused
			change(key, coord.Change{Paused: &k.paused})
			wakeAll(key)
		default:
			k := keys[key]
			k.delay, k.blocked = rng.Int64N(90)-10, now+rng.Int64N(2)*rng.Int64N(900)
			d := time.Duration(k.delay) * time.Millisecond
			change(key, coord.Change{Delay: &d, Blocked: &k.blocked})
			wakeAll(key)
		}
		if rng.IntN(50) == 0 {
			check(s.Forget(t.Context(), now))
		}
		if rng.IntN(100) == 0 { // as another process does
			s = own(t, f)
			for key := range keys {
				wakeAll(key)
			}
			opened++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		set := s.Settings(name)
		k := keys[name]
		if int64(set.Failures) != k.failures || set.Paused != k.paused || max(set.Next, now) != max(k.next, k.blocked, now) {
			t.Errorf("%s: %+v, want %+v", name, set, *k)
		}
	}
	if claims < 500 || opened < 30 {
		t.Errorf("only %d claims, and the shard was opened %d times", claims, opened)
	}
}

// TestACrawlBehindAnother holds that a crawl finds what is ready although another one has asked
// thousands of its domains since.
func TestACrawlBehindAnother(t *testing.T) {
	f, _ := begin(t)
	s := own(t, f)
	const domains = 50_000
	var a, b []string
	for i := range domains {
		a, b = append(a, fmt.Sprintf("a\x00k%05d", i)), append(b, fmt.Sprintf("b\x00k%05d", i))
	}
	now := int64(1_000_000)
	s.Wake(now, append(a, append(b, "b\x00z")...))
	for n := 0; n < domains; {
		got, _ := s.Claim("a", now, 1000, time.Hour)
		if len(got.Keys) == 0 {
			t.Fatal(n)
		}
		n += len(got.Keys)
	}
	for n := 1; ; n++ {
		got, next := s.Claim("b", now, 1, time.Hour)
		if len(got.Keys) == 1 && got.Keys[0] == "z" {
			break
		}
		if len(got.Keys) > 0 || next > now || n > 10 {
			t.Fatalf("claim %d: %v, the next is at %d", n, got, next)
		}
	}
	for n := 1; ; n++ {
		got, next := s.Claim("b", now, 1, time.Hour)
		if len(got.Keys) > 0 || n > 10 {
			t.Fatal(got, next)
		}
		if next == now+time.Hour.Milliseconds() {
			break
		}
	}
}
