// Package example is a small crawler, to show how a worker uses a frontier over HTTP. It can be
// read in one sitting and does what a polite crawler has to do: it obeys robots.txt (RFC 9309) and
// Retry-After, keeps the delay of each domain, names itself, bounds what it reads, and asks no
// private address. It keeps nothing itself but the pages: whatever is not reported when it dies is
// handed out again.
//
// A claim is a task (crawler.go). It waits for the turn of its domain and for robots.txt
// (domain.go), fetches the page (fetch.go), adds the links that it finds (links.go), and is
// reported. Package client has the requests to the frontier.
package example

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"
	"github.com/go-json-experiment/json"

	"github.com/urlake/urlake/frontier/client"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Options say how a crawler works.
type Options struct {
	// Frontier is the URL of a frontierd, Crawl the crawl whose URLs are fetched, and Worker how
	// the crawler names itself to it.
	Frontier, Crawl, Worker string
	// UserAgent is the header of requests. Its first word is what robots.txt calls the crawler.
	UserAgent string
	// Pages is the folder for bodies, "" to keep none. Types are the content types that are read.
	Pages string
	Types []string
	// AtOnce bounds the URLs that are in work, most of which wait for their domain.
	AtOnce int
	// MaxBytes bounds a body, Timeout a request, MaxDepth the links from a seed to a page.
	MaxBytes int64
	Timeout  time.Duration
	MaxDepth uint32
	// AnyDomain follows links to other registrable domains, too.
	AnyDomain bool
	// AllowPrivate allows addresses that are not public.
	AllowPrivate bool
	// Resolve has addresses (host:port) to connect to instead of that of a host. *.example.com is
	// for all hosts below example.com.
	Resolve map[string]string
	// Idle ends the crawl when there was nothing to do for so long; 0 never does.
	Idle time.Duration
	// Grace is how long pages that are being fetched may take when the crawler stops.
	Grace time.Duration
	Log   *slog.Logger
}

// Counts is what a crawler has done.
type Counts struct {
	// Fetched are answers of any status, Failed requests without one.
	Fetched, Failed, Redirects, Errors, Forbidden, Added, Bytes, InWork int64
	// Silent is for how long the frontier has not answered.
	Silent time.Duration
}

// Crawler fetches what a frontier hands out.
type Crawler struct {
	o        Options
	frontier *client.Client
	web      *http.Client
	names    *urlnorm.Normalizer
	domains  domains
	reports  chan client.Outcome
	started  time.Time

	mu    sync.Mutex
	tasks map[string]*task // by lease
	// freed is signalled when a task ends.
	freed chan struct{}

	fetched, failed, redirects, errors, forbidden, added, bytes atomic.Int64
	// heard is when the frontier has answered last, in seconds since 1970.
	heard atomic.Int64
}

// task is a claim in work. Wait ends when the crawler stops, fetch only after its grace; both end
// when the lease is over.
type task struct {
	client.Claim
	wait, fetch context.Context
	end         context.CancelCauseFunc
}

var (
	errStopped = errors.New("the crawler stops")
	errLease   = errors.New("the lease is over")
)

const (
	// patience is how long a frontier may be away. The leases are over by then.
	patience = time.Hour
	// batch bounds the leases and results of a request.
	batch = 1000
)

// New returns a crawler.
func New(o Options) (*Crawler, error) {
	f, err := client.New(o.Frontier, client.Options{Patience: patience})
	if err != nil {
		return nil, err
	}
	n, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	return &Crawler{
		o: o, names: n, web: newClient(&o), domains: domains{all: map[string]*domain{}}, tasks: map[string]*task{},
		frontier: f, reports: make(chan client.Outcome), freed: make(chan struct{}, 1), started: time.Now(),
	}, nil
}

// Run crawls until ctx ends, or until nothing is left for as long as Idle. It then gives back what
// it has not begun to fetch.
func (c *Crawler) Run(ctx context.Context) error {
	if err := c.hello(ctx); err != nil {
		return err
	}
	hard, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(c.o.Grace, func() { cut(errStopped) }) })
	defer unhook()
	var helpers, work sync.WaitGroup
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		c.report(hard)
	}()
	extending, stopExtending := context.WithCancel(hard)
	helpers.Go(func() { c.extend(extending) })
	err := c.claimAll(ctx, hard, &work)
	work.Wait()
	stopExtending()
	helpers.Wait()
	close(c.reports)
	<-reported
	return errors.Join(err, c.release(context.WithoutCancel(ctx)))
}

// hello asks the frontier for nothing. One that is not there at the beginning has another address.
func (c *Crawler) hello(ctx context.Context) error {
	f, err := client.New(c.o.Frontier, client.Options{Patience: 5 * time.Second})
	if err == nil {
		_, _, err = f.Extend(ctx, nil)
	}
	return err
}

// claimAll claims URLs as there is room for them.
func (c *Crawler) claimAll(ctx, hard context.Context, work *sync.WaitGroup) error {
	busy := time.Now()
	for ctx.Err() == nil {
		room := c.o.AtOnce - c.inWork()
		if room <= 0 {
			busy = time.Now()
			c.heard.Store(busy.Unix())
			select {
			case <-c.freed:
			case <-ctx.Done():
			}
			continue
		}
		// Not with ctx: claims whose answer nobody reads would be lost until their leases end.
		claims, err := c.frontier.Claim(hard, client.ClaimRequest{Max: min(room, batch), WaitMS: 1000, Worker: c.o.Worker, Crawl: c.o.Crawl})
		if err != nil && ctx.Err() == nil {
			return err
		}
		c.heard.Store(time.Now().Unix())
		for i := range claims {
			t := c.begin(ctx, hard, claims[i])
			work.Go(func() { c.work(t) })
		}
		if c.inWork() > 0 {
			busy = time.Now()
		} else if c.o.Idle > 0 && time.Since(busy) > c.o.Idle {
			return nil
		}
	}
	return nil
}

func (c *Crawler) inWork() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tasks)
}

func (c *Crawler) begin(ctx, hard context.Context, cl client.Claim) *task {
	t := &task{Claim: cl}
	t.fetch, t.end = context.WithCancelCause(hard)
	wait, endWait := context.WithCancelCause(t.fetch)
	unhook := context.AfterFunc(ctx, func() { endWait(errStopped) })
	t.wait = wait
	c.mu.Lock()
	c.tasks[cl.Lease] = t
	c.mu.Unlock()
	context.AfterFunc(t.fetch, func() { unhook() })
	return t
}

// work does a task. What cannot be done because the crawler stops or the lease is over stays among
// the tasks, and is given back or is somebody else's.
func (c *Crawler) work(t *task) {
	r, err := c.visit(t)
	switch {
	case err != nil && errors.Is(context.Cause(t.wait), errStopped):
		return
	case err != nil && t.fetch.Err() == nil:
		c.o.Log.Error("a URL is left to the end of its lease", "url", t.URL, "error", err)
	case err == nil:
		r.Lease = t.Lease
		c.reports <- r
	}
	c.end(t)
}

// end forgets a task.
func (c *Crawler) end(t *task) {
	c.mu.Lock()
	delete(c.tasks, t.Lease)
	c.mu.Unlock()
	t.end(errLease)
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// visit fetches the page of a task and adds its links. An error means that there is nothing to
// report.
func (c *Crawler) visit(t *task) (client.Outcome, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return client.Outcome{Error: "only http and https are fetched", Final: true}, nil
	}
	d, err := c.enter(t)
	if err != nil {
		return client.Outcome{}, err
	}
	defer c.leave(d, true)
	rules, err := c.rules(t, d, u.Host)
	switch {
	case err != nil:
		return client.Outcome{}, err
	case rules == nil:
		c.failed.Add(1)
		return client.Outcome{Error: "robots.txt cannot be had"}, nil
	case !rules.Allowed(t.URL, t.Found):
		c.forbidden.Add(1)
		return client.Outcome{Error: "robots.txt forbids it", Final: true}, nil
	}
	p, err := c.ask(t, d, t.URL, c.o.Types, c.o.MaxBytes)
	switch {
	case err != nil && t.wait.Err() != nil:
		return client.Outcome{}, err
	case err != nil:
		c.failed.Add(1)
		return client.Outcome{Error: err.Error(), Final: errors.Is(err, ssrf.ErrProhibitedIP)}, nil
	}
	c.count(p)
	r := client.Outcome{Status: p.status, Redirect: p.redirect, RetryAfter: p.retryAfter.Seconds()}
	if p.status < 500 && p.status != http.StatusTooManyRequests {
		// The delay counts from now on. After a failure the frontier knows better.
		r.RetryAfter = max(d.delay, p.retryAfter).Seconds()
	}
	if p.cut {
		r.Error = fmt.Sprintf("cut off after %d bytes", c.o.MaxBytes)
	}
	if p.status >= 200 && p.status < 300 && c.o.Pages != "" && len(p.body) > 0 {
		if r.Content, err = store(c.o.Pages, p.body); err != nil {
			return client.Outcome{}, err
		}
	}
	return r, c.addLinks(t, u, p)
}

func (c *Crawler) count(p *page) {
	c.fetched.Add(1)
	c.bytes.Add(int64(len(p.body)))
	switch {
	case p.status >= 400:
		c.errors.Add(1)
	case p.status >= 300:
		c.redirects.Add(1)
	}
}

// addLinks adds what a page leads to, before the page is reported: a crawler that dies in between
// fetches the page again.
func (c *Crawler) addLinks(t *task, u *url.URL, p *page) error {
	found := []string{p.redirect}
	if p.redirect == "" {
		found = nil
		if p.status >= 200 && p.status < 300 {
			found = links(u, p.header, p.body)
		}
	}
	if t.Depth >= c.o.MaxDepth {
		return nil
	}
	home := c.domainOf(t.URL)
	from, err := json.Marshal(map[string]string{"from": t.URL})
	var add []client.URL
	for _, to := range found {
		if c.o.AnyDomain || c.domainOf(to) == home {
			add = append(add, client.URL{URL: to, Crawl: c.o.Crawl, Priority: t.Priority, Depth: t.Depth + 1, Metadata: from})
		}
	}
	if len(add) == 0 || err != nil {
		return err
	}
	results, err := c.frontier.Add(t.fetch, add)
	for _, r := range results {
		if r.Result == client.Added {
			c.added.Add(1)
		}
	}
	return err
}

// domainOf returns the registrable domain of a URL, "" if it has none.
func (c *Crawler) domainOf(address string) string {
	c.mu.Lock() // a Normalizer is for one at a time
	defer c.mu.Unlock()
	u, err := c.names.Parse([]byte(address))
	if err != nil {
		return ""
	}
	return u.Domain
}

// report sends the outcomes that have come while those before were sent.
func (c *Crawler) report(ctx context.Context) {
	for r := range c.reports {
		all := []client.Outcome{r}
		for more := true; more && len(all) < batch; {
			select {
			case r, ok := <-c.reports:
				if more = ok; ok {
					all = append(all, r)
				}
			default:
				more = false
			}
		}
		if _, err := c.frontier.Report(ctx, all); err != nil {
			c.o.Log.Error("not reported; their URLs will be handed out again", "outcomes", len(all), "error", err)
		}
	}
}

// extend keeps the leases of tasks from ending. A task whose lease is over ends.
func (c *Crawler) extend(ctx context.Context) {
	for sleep(ctx, c.untilExtend()) {
		c.mu.Lock()
		leases := slices.Collect(maps.Keys(c.tasks))
		c.mu.Unlock()
		for part := range slices.Chunk(leases, batch) {
			live, until, err := c.frontier.Extend(ctx, part)
			if err != nil {
				continue // ctx has ended
			}
			c.mu.Lock()
			for i, l := range part {
				if t := c.tasks[l]; t != nil && live[i] {
					t.Expires = until
				} else if t != nil {
					t.end(errLease)
				}
			}
			c.mu.Unlock()
		}
	}
}

// untilExtend is a third of what the leases last, as far as is known.
func (c *Crawler) untilExtend() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := 10 * time.Second
	for _, t := range c.tasks {
		wait = min(wait, time.Until(t.Expires)/3)
	}
	return max(wait, 500*time.Millisecond)
}

// release gives back what the crawler still has.
func (c *Crawler) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c.mu.Lock()
	leases := slices.Collect(maps.Keys(c.tasks))
	c.mu.Unlock()
	for part := range slices.Chunk(leases, batch) {
		if _, err := c.frontier.Release(ctx, part); err != nil {
			return fmt.Errorf("%d URLs are handed out again when their leases end: %w", len(leases), err)
		}
	}
	return nil
}

// Counts returns what was done until now.
func (c *Crawler) Counts() Counts {
	return Counts{
		c.fetched.Load(), c.failed.Load(), c.redirects.Load(), c.errors.Load(), c.forbidden.Load(), c.added.Load(), c.bytes.Load(),
		int64(c.inWork()), time.Since(time.Unix(max(c.heard.Load(), c.started.Unix()), 0)).Truncate(time.Second),
	}
}

// sleep is false if ctx has ended before the time was over.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
