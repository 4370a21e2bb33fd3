//go:build unix

package frontier_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	"github.com/urlake/urlake/internal/testenv"
)

// TestMemoryOfRequests lets clients claim and report at the same time, with results that are told
// apart: each keeps what it was told, and its results come in the order of its outcomes, although
// requests are worked on together in memory that later ones use again.
func TestMemoryOfRequests(t *testing.T) {
	f := start(t, testenv.NewRedis(t), options(t, newClock(), 0))
	const clients, rounds, each = 8, 20, 10
	urls := make([]frontier.URL, clients*rounds*each)
	for i := range urls {
		urls[i].URL = fmt.Sprintf("https://site%d.example/%d", i%97, i)
	}
	add(t, f, frontier.Added, urls...)
	var mu sync.Mutex
	handedOut := map[string]bool{}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			var claims []frontier.Claim
			var told []string // what AppendClaims said of each
			for range rounds {
				before := len(claims)
				var err error
				claims, err = f.AppendClaims(t.Context(), claims, frontier.ClaimRequest{Max: each})
				if err != nil {
					t.Error(err)
					return
				}
				outcomes := []frontier.Outcome{{Lease: "none"}}
				want := []string{frontier.Ended}
				for i, c := range claims[before:] {
					told = append(told, fmt.Sprint(c))
					o, result := frontier.Outcome{Lease: c.Lease, Status: 200}, frontier.Settled
					if i%3 == 0 && c.Tries == 0 {
						o.Status, result = 500, frontier.Retried
					}
					outcomes, want = append(outcomes, o), append(want, result)
				}
				got, err := f.Settle(t.Context(), outcomes)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range got {
					if c := outcomes[i]; r.Result != want[i] {
						t.Errorf("outcome %d of %d, status %d: %s, want %s", i, len(got), c.Status, r.Result, want[i])
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for i, c := range claims {
				if fmt.Sprint(c) != told[i] {
					t.Errorf("a claim was %s and became %+v", told[i], c)
				}
				if handedOut[c.Lease] {
					t.Errorf("two clients have the lease %s", c.Lease)
				}
				handedOut[c.Lease] = true
			}
		})
	}
	all.Wait()
	if len(handedOut) < len(urls)/2 {
		t.Errorf("only %d URLs were handed out", len(handedOut))
	}
	// With nothing left, what there was stays.
	f2 := start(t, testenv.NewRedis(t), options(t, newClock(), time.Hour))
	one := []frontier.Claim{{URL: "https://a.example/"}}
	if got, err := f2.AppendClaims(t.Context(), one, frontier.ClaimRequest{Max: 1}); err != nil || len(got) != 1 || got[0].URL != one[0].URL {
		t.Error(got, err)
	}
}
