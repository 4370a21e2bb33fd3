package lookup

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// perName is how many names are counted for each one that Top is to find.
	perName = 4
	// maxName is the length of the longest name that is counted, in bytes.
	maxName = 300
	// halfLife is after how long half of a count is forgotten.
	halfLife = 10 * time.Minute
)

// hotCounter counts names. It is safe for concurrent use. Nil counts nothing.
//
// The counts are those of Misra and Gries: when there is no room for a new name, all counts are
// halved, and names that are left with none make room. A name that is asked for as often as a name
// in perName of those to be found stays. Counts are also halved once each halfLife.
type hotCounter struct {
	top, most int
	now       func() time.Time

	mu     sync.Mutex
	counts map[string]uint32
	// halved is up to when halves were forgotten for their age.
	halved time.Time
}

// newHot returns a counter for the n names that are asked for most, nil if n is 0.
func newHot(n int) *hotCounter {
	if n <= 0 {
		return nil
	}
	return &hotCounter{top: n, most: perName * n, now: time.Now, counts: map[string]uint32{}, halved: time.Now()}
}

// Note counts a name.
func (c *hotCounter) Note(name string) {
	if c == nil || len(name) > maxName {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age()
	n, ok := c.counts[name]
	if !ok {
		name = strings.Clone(name) // callers' names are parts of longer texts
		if len(c.counts) >= c.most {
			c.forget(1)
		}
		if len(c.counts) >= c.most {
			return // all others were asked for more than once
		}
	}
	c.counts[name] = min(n+1, 1<<30)
}

// age halves all counts for each halfLife that has passed since it last did. The caller holds c.mu.
func (c *hotCounter) age() {
	if passed := c.now().Sub(c.halved); passed >= halfLife {
		c.halved = c.halved.Add(passed.Truncate(halfLife))
		c.forget(int(passed / halfLife))
	}
}

// forget halves all counts so many times. The caller holds c.mu.
func (c *hotCounter) forget(times int) {
	for name, n := range c.counts {
		if n >>= min(times, 31); n == 0 {
			delete(c.counts, name)
		} else {
			c.counts[name] = n
		}
	}
}

// Top returns the names that were asked for most, the first one most often.
func (c *hotCounter) Top() []string {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age()
	type counted struct {
		name string
		n    uint32
	}
	all := make([]counted, 0, len(c.counts))
	for name, n := range c.counts {
		all = append(all, counted{name, n})
	}
	slices.SortFunc(all, func(a, b counted) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
	names := make([]string, 0, c.top)
	for _, x := range all[:min(len(all), c.top)] {
		names = append(names, x.name)
	}
	return names
}

// Len is how many names are counted now.
func (c *hotCounter) Len() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.counts)
}
