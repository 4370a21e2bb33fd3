package answers

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/urlake/urlake/serve/lru"
)

// TestCacheKeepsWhatIsUsed uses hot keys beside keys that are asked for once, and compares each
// answer with the one that was added.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	const limit = 64 << 10
	c := New(limit)
	rng := rand.New(rand.NewPCG(1, 2))
	hot, cold := 0, 0
	ask := func(name string) (hit bool) {
		key := []byte(name)
		if a := c.Get(key); a != nil {
			if string(a.Body) != "answer to "+name {
				t.Fatalf("%s has the answer %q", name, a.Body)
			}
			return true
		}
		if body := []byte("answer to " + name); c.Wants(key, len(body)) {
			c.Add(key, &Answer{Body: body})
		}
		if s := c.Stats(); s.Bytes > limit || s.Bytes < 0 || s.Entries*overhead > s.Bytes {
			t.Fatalf("%+v", s)
		}
		return false
	}
	for i := range 20_000 {
		if ask(fmt.Sprintf("hot%d", rng.IntN(50))) {
			hot++
		}
		if ask(fmt.Sprintf("cold%d", i)) {
			cold++
		}
	}
	if cold != 0 || hot < 19_000 {
		t.Errorf("%d of 20,000 hot answers were kept, and %d that were asked for once", hot, cold)
	}
	if s := c.Stats(); s.Hits != int64(hot) || s.Hits+s.Misses != 40_000 || s.Entries > 50 {
		t.Errorf("%+v", s)
	}
}

// TestCacheIsBounded adds more than there is room for.
func TestCacheIsBounded(t *testing.T) {
	c := New(100 << 10)
	for i := range 1000 {
		c.Add(fmt.Appendf(nil, "%d", i), &Answer{Body: make([]byte, i*20)})
		if s := c.Stats(); s.Bytes > 100<<10 {
			t.Fatalf("%+v", s)
		}
	}
	if c.Get([]byte("999")) == nil || c.Get([]byte("1")) != nil {
		t.Error("the oldest answer was kept, or the newest was not")
	}
	c.Add([]byte("huge"), &Answer{Body: make([]byte, 200<<10)})
	if c.Get([]byte("huge")) != nil || c.Get([]byte("999")) == nil {
		t.Error("what is larger than the cache took the place of others")
	}
	for range 2 { // from the second time on a key is wanted
		if c.Wants([]byte("a"), MaxBody+1) {
			t.Error("a body that is too large is wanted")
		}
		if c.Wants(make([]byte, MaxKey+1), 1) {
			t.Error("a key that is too long is wanted")
		}
	}
	none := New(0)
	none.Add([]byte("a"), &Answer{})
	if none.Get([]byte("a")) != nil || none.Wants([]byte("a"), 1) || none.Stats() != (lru.Stats{}) {
		t.Error("a cache of no bytes keeps something")
	}
}
