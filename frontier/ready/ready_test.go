package ready_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/frontier/ready"
)

// model is what simple rules say of a key.
type model struct {
	next, blocked, delay int64
	held                 bool
	at                   map[string]int64 // by crawl in which something waits, when it is looked at
}

// TestTable does anything at random and compares with simple rules: what is claimed may be claimed,
// as much is claimed as may be, and none is forgotten.
func TestTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := ready.New()
	keys := map[string]*model{}
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("site%d.example", i))
		keys[names[i]] = &model{at: map[string]int64{}}
	}
	rule := func(name []byte) ready.Rule {
		k := keys[string(name)]
		return ready.Rule{Held: k.held, Blocked: k.blocked, Delay: k.delay}
	}
	crawls := []string{"a", "b", "c"}
	now, claimed, alone := int64(1000), 0, 0
	// look does what a claim does with keys that are to be looked at, in turn.
	look := func(crawl string, got []string, asked []string, n int) {
		t.Helper()
		can := 0
		for _, name := range asked {
			k := keys[name]
			at, waits := k.at[crawl]
			if !waits || at > now {
				continue
			}
			may := !k.held && max(k.next, k.blocked) <= now
			is := slices.Contains(got, name)
			switch {
			case is && !may:
				t.Fatalf("%d: %s of %s was claimed: %+v", now, name, crawl, *k)
			case may:
				can++
			}
		}
		if len(got) != min(n, can) {
			t.Fatalf("%d: %d of %s were claimed, %d wanted, %d could be", now, len(got), crawl, n, can)
		}
		if slices.Sort(got); len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("%d: claimed twice: %v", now, got)
		}
		for _, name := range got {
			k := keys[name]
			if k.delay > 0 {
				k.next = now + k.delay
			}
			k.at[crawl] = now + k.delay
		}
		// The table has corrected times that it has met. That a key is looked at too early is no
		// fault, so the model corrects all.
		for name, k := range keys {
			at, waits := k.at[crawl]
			switch {
			case !waits || at > now || slices.Contains(got, name) || !slices.Contains(asked, name):
			case k.held && len(got) < n:
				delete(k.at, crawl)
			}
		}
	}
	for range 60_000 {
		now += rng.Int64N(3)
		name, crawl := names[rng.IntN(len(names))], crawls[rng.IntN(3)]
		k := keys[name]
		switch rng.IntN(8) {
		case 0, 1:
			at := max(now, k.next, k.blocked)
			if before, ok := k.at[crawl]; !k.held && (!ok || at < before) {
				k.at[crawl] = at
			}
			if !k.held {
				table.Wake(crawl, name, at)
			}
		case 2:
			delete(k.at, crawl)
			table.Idle(crawl, name)
		case 3:
			until := now + rng.Int64N(300)
			k.next = max(k.next, until)
			table.Rest(name, until)
		case 4: // as settings change: the key is woken then
			k.held, k.blocked, k.delay = rng.IntN(4) == 0, now+rng.Int64N(200)-100, max(0, rng.Int64N(400)-100)
			for _, crawl := range crawls {
				if k.held {
					delete(k.at, crawl)
					table.Idle(crawl, name)
				} else if _, ok := k.at[crawl]; ok {
					table.Wake(crawl, name, max(now, k.next, k.blocked))
					k.at[crawl] = min(k.at[crawl], max(now, k.next, k.blocked))
				}
			}
		case 5:
			some := []string{name}
			if other := names[rng.IntN(len(names))]; other != name {
				some = append(some, other)
			}
			n := 1 + rng.IntN(2)
			got, next := table.ClaimOnly(crawl, now, n, rule, some)
			alone += len(got.Keys)
			look(crawl, slices.Clone(got.Keys), some, n)
			if len(got.Keys) == 0 && next >= 0 && next <= now {
				t.Fatalf("%d: nothing of %v, and next is %d", now, some, next)
			}
		default:
			n := 1 + rng.IntN(20)
			got, next := table.Claim(crawl, now, n, rule)
			look(crawl, slices.Clone(got.Keys), names, n)
			claimed += len(got.Keys)
			rests := map[string]int64{}
			table.Rests(got, func(key *string, until int64) { rests[*key] = until })
			for _, name := range got.Keys {
				if at := table.Next(name); at != keys[name].next || rests[name] != at && (at > now || rests[name] != 0) {
					t.Fatalf("%d: %s is next at %d and %d, want %d", now, name, at, rests[name], keys[name].next)
				}
			}
			first := int64(-1)
			for _, k := range keys {
				if at, waits := k.at[crawl]; waits && (first < 0 || max(at, k.next, k.blocked) < first) {
					first = max(at, k.next, k.blocked)
				}
			}
			if len(got.Keys) == 0 && (next > first || (next < 0) != (first < 0)) {
				t.Fatalf("%d: the next of %s is at %d, want %d", now, crawl, next, first)
			}
			can, all := table.Count(crawl, now)
			waits := 0
			for _, k := range keys {
				if _, ok := k.at[crawl]; ok {
					waits++
				}
			}
			if all < waits || can > all {
				t.Fatalf("%d: %d of %d keys of %s, %d wait", now, can, all, crawl, waits)
			}
		}
	}
	if claimed < 10_000 || alone < 1000 {
		t.Errorf("%d keys were claimed, %d alone", claimed, alone)
	}
}

// TestOrder holds that keys are claimed in the order of their times, with a delay and without: each
// has its turn.
func TestOrder(t *testing.T) {
	for _, delay := range []int64{0, 700} {
		rng := rand.New(rand.NewPCG(3, 4))
		table := ready.New()
		next := map[string]int64{}
		for _, i := range rng.Perm(1000) {
			name := fmt.Sprint("k", i)
			next[name] = int64(i)
			table.Wake("c", name, int64(i))
		}
		now := int64(1000)
		for range 5000 {
			got, _ := table.Claim("c", now, 1+rng.IntN(9), func([]byte) ready.Rule { return ready.Rule{Delay: delay} })
			last := int64(0)
			for _, name := range got.Keys {
				if next[name] < last {
					t.Fatalf("%s of %d comes after another one of %d", name, next[name], last)
				}
				last, next[name] = next[name], now+delay
			}
			for name, at := range next {
				if len(got.Keys) > 0 && at < last {
					t.Fatalf("%s of %d does not come, and one of %d does", name, at, last)
				}
			}
			now++
		}
	}
}

// TestEntries holds that keys that are woken again and again, for earlier times or after they had
// nothing, take no more memory, and that none is lost when entries are dropped.
func TestEntries(t *testing.T) {
	table := ready.New()
	const n = 10
	table.Wake("c", "k0", 1)
	table.Wake("c", "still", 100)
	table.Idle("c", "still")
	table.Wake("c", "still", 9000)
	for i := range int64(5000) {
		for key := range n {
			name, at := fmt.Sprint("k", key), 10_000-i
			if key%2 == 0 {
				table.Idle("c", name)
				at = 5000 + i
			}
			table.Wake("c", name, at)
		}
		if entries := table.Entries("c"); entries > 2*(n+1)+65 {
			t.Fatalf("%d entries of %d keys", entries, n)
		}
	}
	got, _ := table.Claim("c", 10_000, 2*n, func([]byte) ready.Rule { return ready.Rule{Delay: 1} })
	if slices.Sort(got.Keys); len(slices.Compact(got.Keys)) != n+1 {
		t.Errorf("%v were claimed", got.Keys)
	}
}

// TestCompact holds that keys of which nothing waits any more take no memory for long, that others
// stay as they are, and that a claim knows the times of its keys afterwards.
func TestCompact(t *testing.T) {
	table := ready.New()
	rule := func([]byte) ready.Rule { return ready.Rule{Delay: 5} }
	for _, crawl := range []string{"a", "b"} {
		for i := range 50 {
			table.Wake(crawl, fmt.Sprint("stays", i), int64(i))
		}
	}
	table.Rest("rests", 1_000_000)
	for now := range int64(100) {
		for i := range 100 {
			table.Wake("a", fmt.Sprint("goes", now, "-", i), now)
		}
		claim, _ := table.Claim("a", now, 1000, rule)
		for _, key := range claim.Keys {
			if key[:4] == "goes" {
				table.Idle("a", key)
			}
		}
		table = table.Compact(now)
		rests := 0
		table.Rests(claim, func(key *string, until int64) {
			if rests++; until != now+5 {
				t.Fatalf("%d: %s is next at %d", now, *key, until)
			}
		})
		if rests != len(claim.Keys) {
			t.Fatalf("%d: %d of %d keys rest", now, rests, len(claim.Keys))
		}
		if keys := table.Keys(); keys > 2300 {
			t.Fatalf("%d: %d keys", now, keys)
		}
	}
	for _, crawl := range []string{"a", "b"} {
		if ready, all := table.Count(crawl, 0); all != 50 || crawl == "b" && ready != 1 {
			t.Errorf("%d of %d keys of %s", ready, all, crawl)
		}
		if claim, _ := table.Claim(crawl, 1000, 100, rule); len(claim.Keys) != 50 && crawl == "a" {
			t.Errorf("%d keys of %s are claimed", len(claim.Keys), crawl)
		}
	}
	if at := table.Next("rests"); at != 1_000_000 {
		t.Errorf("what rests is next at %d", at)
	}
}

// Names that have the same hash, or what might be taken for another, are different keys.
func TestNames(t *testing.T) {
	table := ready.New()
	for i := range 200_000 {
		table.Rest(fmt.Sprint("k", i), int64(i))
	}
	for i := range 200_000 {
		if at := table.Next(fmt.Sprint("k", i)); at != int64(i) {
			t.Fatalf("k%d is next at %d", i, at)
		}
	}
	if at := table.Next("k200000"); at != 0 {
		t.Errorf("a key that there is not is next at %d", at)
	}
}

// BenchmarkClaim claims 20 of a million keys at a time, without a delay and with one.
func BenchmarkClaim(b *testing.B) {
	const n = 1_000_000
	for _, delay := range []int64{0, 70_000} {
		b.Run(fmt.Sprint(delay), func(b *testing.B) {
			table := ready.New()
			for i := range n {
				table.Wake("c", fmt.Sprintf("site%d.example", i), int64(i))
			}
			rule := func([]byte) ready.Rule { return ready.Rule{Delay: delay} }
			now := int64(n)
			claimed := 0
			for b.Loop() {
				got, _ := table.Claim("c", now, 20, rule)
				claimed += len(got.Keys)
				if now++; len(got.Keys) == 0 {
					now += delay
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(claimed), "ns/key")
		})
	}
}
