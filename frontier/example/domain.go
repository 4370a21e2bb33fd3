package example

import (
	"net/url"
	"sync"
	"time"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/frontier/robots"
)

const (
	// robotsRetry is how long a robots.txt that could not be had is not asked for again.
	robotsRetry = time.Minute
	// maxDomains is how many domains are remembered. More of them forget those that are at rest.
	maxDomains = 100_000
)

// domain is one at a time, and rests between two requests. The frontier hands out its URLs that far
// apart; that is from one claim to the next, and for one URL. What the crawler adds: robots.txt
// takes a turn of its own, and the delay counts from the end of an answer.
type domain struct {
	name string
	turn chan struct{} // holds a token if nobody has the turn
	// waiting counts those who have the turn or wait for it; the mutex of domains guards it. What
	// follows is whoever's has the turn.
	waiting int
	delay   time.Duration
	known   bool // delay was asked for
	next    time.Time
	robots  map[string]*robotsFile // by host and port
}

// robotsFile is what the robots.txt of a host says until a time. Without rules nothing may be
// fetched, for now.
type robotsFile struct {
	rules *robots.Rules
	until time.Time
}

// domains are those that the crawler knows.
type domains struct {
	mu  sync.Mutex
	all map[string]*domain
}

// enter waits for the turn of a domain. While others wait for it, too, the frontier is told to
// leave the domain alone, twice as long for each, so that they do not become many.
func (c *Crawler) enter(t *task) (*domain, error) {
	c.domains.mu.Lock()
	d := c.domains.all[t.Domain]
	if d == nil {
		d = &domain{name: t.Domain, turn: make(chan struct{}, 1), robots: map[string]*robotsFile{}}
		d.turn <- struct{}{}
		c.domains.all[t.Domain] = d
	}
	others := d.waiting
	d.waiting++
	c.domains.mu.Unlock()
	if others > 0 {
		if err := c.block(t, time.Second<<min(others, 8)/4); err != nil {
			c.leave(d, false)
			return nil, err
		}
	}
	select {
	case <-d.turn:
	case <-t.wait.Done():
		c.leave(d, false)
		return nil, t.wait.Err()
	}
	if !d.known {
		state, err := c.frontier.Domain(t.wait, t.Domain)
		if err != nil {
			c.leave(d, true)
			return nil, err
		}
		d.delay, d.known = seconds(state.Delay), true
		d.next = c.started.Add(d.delay) // what a crawler before this one asked is not known
	}
	return d, nil
}

// block keeps the frontier from handing out URLs of a task's domain for a time.
func (c *Crawler) block(t *task, d time.Duration) error {
	block := d.Seconds()
	_, err := c.frontier.ChangeDomain(t.wait, t.Domain, client.DomainChange{Block: &block})
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// leave gives the turn back, if it was had.
func (c *Crawler) leave(d *domain, had bool) {
	c.domains.mu.Lock()
	defer c.domains.mu.Unlock()
	d.waiting--
	if had {
		d.turn <- struct{}{}
	}
	if len(c.domains.all) > maxDomains {
		now := time.Now()
		for name, other := range c.domains.all {
			if other.waiting == 0 && now.After(other.next) {
				delete(c.domains.all, name)
			}
		}
	}
}

// ask fetches a URL as soon as its domain may be asked. If that is later than the claim, so is the
// next claim of other workers.
func (c *Crawler) ask(t *task, d *domain, address string, types []string, limit int64) (*page, error) {
	if wait := time.Until(d.next); wait > 0 {
		if err := c.block(t, wait+d.delay); err != nil {
			return nil, err
		}
	}
	if !sleep(t.wait, time.Until(d.next)) {
		return nil, t.wait.Err()
	}
	p, err := c.get(t.fetch, address, types, limit)
	d.next = time.Now().Add(d.delay)
	if err == nil && p.retryAfter > d.delay {
		d.next = time.Now().Add(p.retryAfter)
	}
	return p, err
}

// rules returns what the robots.txt for a URL says, nil if it cannot be had, so that nothing may be
// fetched for now. It is fetched unless this crawler or the frontier has it, and then the frontier
// gets it, for the other workers and for its Crawl-delay.
func (c *Crawler) rules(t *task, d *domain, host string) (*robots.Rules, error) {
	if f := d.robots[host]; f != nil && time.Now().Before(f.until) {
		return f.rules, nil
	}
	if time.Now().Before(t.RobotsUntil) {
		file, ok, err := c.frontier.Robots(t.wait, d.name, host)
		if err != nil {
			return nil, err
		}
		if ok {
			r := robots.Parse(file.Text, c.o.UserAgent)
			d.robots[host] = &robotsFile{&r, file.Expires}
			return &r, nil
		}
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	text, ok, err := c.fetchRobots(t, d, u.Scheme+"://"+host+"/robots.txt")
	if err != nil {
		return nil, err
	}
	if !ok {
		d.robots[host] = &robotsFile{nil, time.Now().Add(robotsRetry)}
		return nil, nil
	}
	until := time.Now().Add(robots.MaxAge)
	state, err := c.frontier.ChangeDomain(t.fetch, d.name, client.DomainChange{Robots: &client.Robots{Host: host, Text: text, Expires: until}})
	if err != nil {
		return nil, err
	}
	delay := seconds(state.Delay)
	d.next, d.delay = d.next.Add(max(delay-d.delay, 0)), delay
	r := robots.Parse(text, c.o.UserAgent)
	d.robots[host] = &robotsFile{&r, until}
	return &r, nil
}

// fetchRobots fetches a robots.txt. The text is empty if there is none. It is not ok if there may
// be one that cannot be had now.
func (c *Crawler) fetchRobots(t *task, d *domain, address string) (text string, ok bool, err error) {
	for range robots.MaxRedirects + 1 {
		// Whoever else asks the domain waits for this request and for the one after it.
		if err := c.block(t, max(time.Until(d.next), 0)+2*d.delay); err != nil {
			return "", false, err
		}
		p, err := c.ask(t, d, address, nil, robots.MaxBytes)
		switch {
		case t.wait.Err() != nil && err != nil:
			return "", false, t.wait.Err()
		case err != nil:
			c.o.Log.Info("robots.txt cannot be had", "url", address, "error", err)
			return "", false, nil
		case p.redirect != "":
			address = p.redirect
			continue
		}
		read, known := robots.OfStatus(p.status)
		if read {
			return robots.Text(string(p.body)), true, nil
		}
		if !known {
			c.o.Log.Info("robots.txt cannot be had", "url", address, "status", p.status)
		}
		return "", known, nil
	}
	return "", true, nil // RFC 9309, 2.3.1.2: too many redirects are no robots.txt
}
