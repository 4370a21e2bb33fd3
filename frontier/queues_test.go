//go:build unix

package frontier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// gathered returns how many URLs of each key ClaimQueues gives, and sees to it that no more than
// 10,000 are leased that it has not given yet.
func gathered(t *testing.T, c *clock, f *frontier.Frontier, r frontier.QueueRequest) map[string]int {
	t.Helper()
	before, n, keys := f.Stats().Leased, int64(0), map[string]int{}
	err := f.ClaimQueues(t.Context(), r, func(cl frontier.Claim) error {
		if n%1000 == 0 {
			c.pass(time.Millisecond)
			if held := f.Stats().Leased - before - n; held > 10_000 {
				return fmt.Errorf("%d URLs are held", held)
			}
		}
		n++
		keys[cl.Key]++
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return keys
}

// TestManyURLsInRounds holds that a call takes few URLs at once, and all that it may take in the
// end.
func TestManyURLsInRounds(t *testing.T) {
	const n = 25_000
	for _, test := range []struct {
		r    frontier.QueueRequest
		a, b int
	}{
		{frontier.QueueRequest{}, n, n},
		{frontier.QueueRequest{Key: "a.example", MaxQueues: 1, PerQueue: 20_000}, 20_000, 0},
		{frontier.QueueRequest{PerQueue: 1 << 31}, n, n},
	} {
		c := newClock()
		o := options(t, c, 0)
		o.Shards, o.Shard.MemoryBytes = 1, 32<<20
		f := start(t, testenv.NewRedis(t), o)
		addAll(t, f, append(pages("a.example", n), pages("b.example", n)...))
		test.r.Lease = time.Hour
		if got := gathered(t, c, f, test.r); got["a.example"] != test.a || got["b.example"] != test.b {
			t.Errorf("%+v gives %v", test.r, got)
		}
	}
}

// TestManyQueuesInRounds holds that each of many queues gives what can be fetched before the leases
// are over, and that those with a delay of their own go before those that have none.
func TestManyQueuesInRounds(t *testing.T) {
	c := newClock()
	o := options(t, c, time.Second)
	o.Shards, o.Shard.MemoryBytes = 1, 32<<20
	f := start(t, testenv.NewRedis(t), o)
	want, none := map[string]int{}, time.Duration(0)
	for i := range 150 {
		key := fmt.Sprintf("site%d.example", i)
		addAll(t, f, pages(key, 120))
		if want[key] = 101; i%50 == 0 {
			want[key] = 120
			if err := f.ChangeDomain(t.Context(), key, frontier.DomainChange{Delay: &none}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := gathered(t, c, f, frontier.QueueRequest{Lease: 100 * time.Second})
	for key, n := range want {
		if got[key] != n {
			t.Errorf("%s gives %d URLs, want %d", key, got[key], n)
		}
	}
}
