package lookup

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTopOfAZipfMix compares the counter with exact counts, over many more names than it counts.
func TestTopOfAZipfMix(t *testing.T) {
	const n = 100
	c := newHot(n)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.3, 1, 100_000)
	exact := map[string]int{}
	for range 300_000 {
		name := fmt.Sprintf("site%d.test", zipf.Uint64())
		exact[name]++
		c.Note(name)
		if c.Len() > perName*n {
			t.Fatalf("%d names are counted", c.Len())
		}
	}
	names := make([]string, 0, len(exact))
	for name := range exact {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return exact[b] - exact[a] })
	top := c.Top()
	if len(top) != n || top[0] != names[0] {
		t.Fatalf("%d names, the first is %s, want %s", len(top), top[0], names[0])
	}
	for _, name := range names[:n/4] {
		if !slices.Contains(top, name) {
			t.Errorf("%s, asked for %d times, is not among them", name, exact[name])
		}
	}
}

func TestOldNamesAreForgotten(t *testing.T) {
	c := newHot(2)
	now := time.Now()
	c.now = func() time.Time { return now }
	for range 10 {
		c.Note("old.test")
	}
	for range 8 {
		now = now.Add(halfLife)
		c.Top()
	}
	c.Note("new.test")
	if top := c.Top(); !slices.Equal(top, []string{"new.test"}) {
		t.Errorf("%q", top)
	}
	// Time passes between two calls of Top as well. What is new then counts in full.
	for range 100 {
		c.Note("old.test")
	}
	now = now.Add(6*halfLife + halfLife/2)
	for range 3 {
		c.Note("now.test")
	}
	if top := c.Top(); !slices.Equal(top, []string{"now.test", "old.test"}) {
		t.Errorf("after 65 minutes: %q", top)
	}
	now = now.Add(halfLife / 2)
	if top := c.Top(); !slices.Equal(top, []string{"now.test"}) {
		t.Errorf("after 70 minutes: %q", top)
	}
	now = now.Add(1000 * halfLife)
	c.Note("new.test")
	if top := c.Top(); !slices.Equal(top, []string{"new.test"}) {
		t.Errorf("after a week: %q", top)
	}
	c.Note(strings.Repeat("x", maxName+1))
	if c.Len() != 1 {
		t.Errorf("%d names", c.Len())
	}
	none := newHot(0)
	none.Note("a")
	if none.Top() != nil || none.Len() != 0 {
		t.Error("a counter of nothing counts")
	}
}
