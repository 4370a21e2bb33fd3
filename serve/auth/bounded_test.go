package auth

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestVerifiedTokensAreBounded holds that any number of tokens, of several requests at once, take
// no more memory than the limit, that a token in use stays, and that each keeps its own name.
func TestVerifiedTokensAreBounded(t *testing.T) {
	var v verified
	now := time.Unix(1_800_000_000, 0)
	later := now.Add(time.Hour)
	often := hashed("often")
	v.add(often, claim{"often", later})
	const clients = 4
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range 5 * maxVerified / clients {
				name := fmt.Sprintf("u%d-%d", c, i)
				v.add(hashed(name), claim{name, later})
				if got, ok := v.find(hashed(name), now); ok && got != name { // others may have displaced it
					t.Errorf("%q, want %q", got, name)
					return
				}
				if got, ok := v.find(hashed("often"), now); got != "often" || !ok {
					t.Errorf("%q, %v; want the token in use", got, ok)
					return
				}
			}
		})
	}
	all.Wait()
	if n := len(v.young) + len(v.old); n > 2*maxVerified || n < maxVerified {
		t.Errorf("%d tokens are remembered, the limit is %d", n, 2*maxVerified)
	}
	if _, ok := v.find(hashed("u0-0"), now); ok {
		t.Error("a token that was not used since is remembered")
	}
}
