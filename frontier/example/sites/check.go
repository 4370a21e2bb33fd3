package sites

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Crawl is what is to be known of a crawl in order to judge it.
type Crawl struct {
	// Delay is the frontier's, Tries how often it hands out a URL.
	Delay time.Duration
	Tries int
	// Killed are the times at which the crawler was killed. What it had in hand is fetched again.
	Killed []time.Time
}

// Verdict is what a crawl did right, in numbers, and what it did wrong.
type Verdict struct {
	Requests, Pages, Robots int
	// Again are pages that were fetched again because the crawler was killed.
	Again []string
	// Closest has for each domain the shortest time between two requests.
	Closest map[string]time.Duration
	Wrong   []string
}

// Domains are the domains of Closest, sorted.
func (v *Verdict) Domains() []string { return slices.Sorted(maps.Keys(v.Closest)) }

// Check compares the requests with what a polite crawler does: each page that can be reached and is
// allowed is fetched as often as it has to, nothing else is fetched, robots.txt comes before the
// first page of a host, and no domain is asked sooner than its delay.
func (w *Web) Check(c Crawl) Verdict {
	hits := w.Hits()
	v := Verdict{Requests: len(hits), Closest: map[string]time.Duration{}}
	wrong := func(format string, args ...any) { v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...)) }
	times := map[string][]time.Time{}
	last := map[string]Hit{}
	for _, h := range hits {
		at := h.Host + h.Path
		if len(times[h.Host+"/robots.txt"]) == 0 && h.Path != "/robots.txt" && h.Host != "robots.far.test" {
			wrong("%s was fetched before the robots.txt of its host", at)
		}
		times[at] = append(times[at], h.Time)
		domain := domainOf(h.Host)
		if before, ok := last[domain]; ok {
			gap := h.Time.Sub(before.Time)
			if closest, ok := v.Closest[domain]; !ok || gap < closest {
				v.Closest[domain] = gap
			}
			if gap < w.delayOf(domain, c, before) {
				wrong("%s was asked %v after %s", at, gap, before.Host+before.Path)
			}
		}
		last[domain] = h
	}
	for _, at := range slices.Sorted(maps.Keys(times)) {
		if w.pages[at] == nil {
			wrong("%s was fetched, to which nothing leads", at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(w.pages)) {
		want := int(w.pages[at].times)
		if want == int(UntilTries) {
			want = c.Tries
		}
		got := times[at]
		switch {
		case strings.HasSuffix(at, "/robots.txt") || strings.HasPrefix(at, "robots.far.test"):
			v.Robots += len(got)
			most := max(want, 1) + len(c.Killed)
			if len(got) == 0 || len(got) > most {
				wrong("%s was fetched %d times, want 1 to %d", at, len(got), most)
			}
			continue
		case len(got) > 0:
			v.Pages++
		}
		again := 0
		for _, killed := range c.Killed {
			if len(got) > want && got[0].Before(killed) && got[len(got)-1].After(killed) {
				again++
			}
		}
		if again > 0 {
			v.Again = append(v.Again, at)
		}
		least := want
		if w.pages[at].times == UntilTries {
			least -= min(len(c.Killed), want-1) // a lease that ends without a result is a try
		}
		if len(got) < least || len(got) > want+again {
			wrong("%s was fetched %d times, want %d", at, len(got), want)
		}
	}
	return v
}

// delayOf is the time that a domain has to be left alone after a request. A Crawl-delay holds from
// the robots.txt on that has it.
func (w *Web) delayOf(domain string, c Crawl, before Hit) time.Duration {
	if before.Host+before.Path == "busy.test/limited" && w.first(before) {
		return max(c.Delay, time.Second) // as its Retry-After says
	}
	return max(c.Delay, w.delays[domain])
}

// first says whether a request is the first for its URL.
func (w *Web) first(h Hit) bool {
	for _, other := range w.hits {
		if other.URL() == h.URL() {
			return other.Time.Equal(h.Time)
		}
	}
	return false
}

// domainOf is the registrable domain of one of these hosts.
func domainOf(host string) string {
	labels := strings.Split(host, ".")
	return strings.Join(labels[max(len(labels)-2, 0):], ".")
}
