package frontier_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestClocksThatAreSet sets the clock back and forth by up to an hour while URLs are added, claimed
// and reported. Of the leases of a URL at most one settles it, and when the clock goes on as it
// should every URL is settled once; the times of visits never decrease.
func TestClocksThatAreSet(t *testing.T) {
	c := newClock()
	f := start(t, testenv.NewRedis(t), options(t, c, time.Second))
	rng := rand.New(rand.NewPCG(1, 1))
	added, settled := 0, map[string]int{}
	var held []frontier.Claim
	report := func(claims []frontier.Claim) {
		for _, cl := range claims {
			got, err := f.Settle(t.Context(), []frontier.Outcome{{Lease: cl.Lease, Status: 200}})
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Result == frontier.Settled {
				settled[cl.URL]++
			}
		}
	}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		switch rng.IntN(4) {
		case 0:
			c.pass(time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour)
		case 1:
			add(t, f, frontier.Added, frontier.URL{URL: fmt.Sprintf("https://site%d.example/%d", added%20, added)})
			added++
		case 2:
			got := claim(t, f, frontier.ClaimRequest{Max: 10})
			if rng.IntN(2) == 0 {
				held = append(held, got...)
			} else {
				report(got)
			}
		case 3:
			n := rng.IntN(len(held) + 1)
			report(held[:n])
			held = held[n:]
		}
		time.Sleep(time.Millisecond)
	}
	for end := time.Now().Add(time.Minute); len(settled) < added; time.Sleep(10 * time.Millisecond) {
		c.pass(10 * time.Minute)
		report(claim(t, f, frontier.ClaimRequest{Max: 100}))
		if time.Now().After(end) {
			t.Fatalf("%d of %d URLs are settled", len(settled), added)
		}
	}
	report(held)
	for u, n := range settled {
		if n != 1 {
			t.Errorf("%s was settled %d times", u, n)
		}
	}
	visits, back, before := 0, 0, time.Time{}
	_, _, err := f.Visited(time.Time{}, time.Time{}, "", 1_000_000, func(v frontier.Visit) bool {
		visits++
		if v.Time.Before(before) { // of the next shard, or wrong
			back++
		}
		before = v.Time
		return true
	})
	if err != nil || visits != added || back > 3 {
		t.Errorf("%d visits of %d URLs, whose times decrease %d times in 4 shards: %v", visits, added, back, err)
	}
	t.Logf("%d URLs", added)
}
