package api

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/urlake/urlake/serve/lru"
)

// TestCacheKeepsWhatIsUsed uses hot keys beside keys that are asked for once, and compares each
// answer with the one that was added.
func TestCacheKeepsWhatIsUsed(t *testing.T) {
	const limit = 64 << 10
	c := newAnswers(limit)
	rng := rand.New(rand.NewPCG(1, 2))
	hot, cold := 0, 0
	ask := func(name string) (hit bool) {
		if a := c.Get(name); a != nil {
			if string(a.Body) != "answer to "+name {
				t.Fatalf("%s has the answer %q", name, a.Body)
			}
			return true
		}
		if body := []byte("answer to " + name); c.Wants(name, len(body)) {
			c.Add(name, &cachedAnswer{Body: body})
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
	c := newAnswers(100 << 10)
	for i := range 1000 {
		c.Add(fmt.Sprint(i), &cachedAnswer{Body: make([]byte, i*20)})
		if s := c.Stats(); s.Bytes > 100<<10 {
			t.Fatalf("%+v", s)
		}
	}
	if c.Get("999") == nil || c.Get("1") != nil {
		t.Error("the oldest answer was kept, or the newest was not")
	}
	c.Add("huge", &cachedAnswer{Body: make([]byte, 200<<10)})
	if c.Get("huge") != nil || c.Get("999") == nil {
		t.Error("what is larger than the cache took the place of others")
	}
	for range 2 { // from the second time on a key is wanted
		if c.Wants("a", maxBody+1) {
			t.Error("a body that is too large is wanted")
		}
		if c.Wants(strings.Repeat("k", maxKey+1), 1) {
			t.Error("a key that is too long is wanted")
		}
	}
	none := newAnswers(0)
	none.Add("a", &cachedAnswer{})
	if none.Get("a") != nil || none.Wants("a", 1) || none.Stats() != (lru.Stats{}) {
		t.Error("a cache of no bytes keeps something")
	}
}

// TestSizeIsTheMemoryOfAnAnswer compares the bytes that a cache counts with those that its answers
// take in fact, whatever part of them is large.
func TestSizeIsTheMemoryOfAnAnswer(t *testing.T) {
	const n = 2000
	text := func(n int) string { return strings.Repeat("x", n) }
	for name, one := range map[string]func() *cachedAnswer{
		"body": func() *cachedAnswer { return &cachedAnswer{Body: []byte(text(2000))} },
		"link": func() *cachedAnswer { return &cachedAnswer{Body: []byte("x"), Link: []string{text(2000)}} },
		"logged": func() *cachedAnswer {
			logged := []slog.Attr{slog.String("a", text(700))}
			for range 23 {
				logged = append(logged, slog.Int("b", 1))
			}
			return &cachedAnswer{Body: []byte("x"), Logged: logged}
		},
	} {
		c := newAnswers(64 << 20)
		memory := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := memory()
		for i := range n {
			c.Add(fmt.Sprintf("%08d", i), one())
		}
		took, counted := memory()-before, c.Stats().Bytes
		if c.Stats().Entries != n || counted < took*9/10 || counted > took*3/2 {
			t.Errorf("%s: %d answers take %d bytes, counted as %d", name, n, took, counted)
		}
		runtime.KeepAlive(c)
	}
}
