package frontier

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/ready"
	"github.com/urlake/urlake/frontier/shard"
)

// Dated is the first depth that is none: from here on it is a time, in seconds since 1970, by which
// the front of the URLFrontier protocol orders its URLs. It is the 9th of September 2001.
const Dated = 1_000_000_000

// DepthOf is the depth that clients are told who do not speak of dates.
func DepthOf(depth uint32) uint32 {
	if depth >= Dated {
		return 0
	}
	return depth
}

const (
	// queuesAtOnce and urlsAtOnce bound what ClaimQueues leases before it hands it on.
	queuesAtOnce = 1000
	urlsAtOnce   = 10_000
)

// QueueRequest says what ClaimQueues claims.
type QueueRequest struct {
	// Crawl is that of the queues, any if it is empty. Key is that of the only queue, if there is
	// one.
	Crawl, Key string
	// MaxQueues bounds the queues, PerQueue the URLs of each; 0 is no bound. A queue gives nothing
	// while PerQueue of its URLs are leased. Without PerQueue a queue gives what can be fetched,
	// with its delay in between, before the leases are over. A queue with a delay gives no more
	// than 10,000, and may give less than that if its delay is shorter than the default.
	MaxQueues, PerQueue int
	// Lease is how long the claims last.
	Lease time.Duration
}

// gathering is a running ClaimQueues.
type gathering struct {
	QueueRequest
	// visited are the queues that were asked, and how many URLs each gave; served of them gave any.
	visited map[string]int
	served  int
	// cut is the key without a delay, of the crawl cutCrawl, that has given as much as is leased at
	// once, and may give more; empty if there is none.
	cut, cutCrawl string
}

// ClaimQueues leases URLs of queues that may be fetched from, and calls yield with each. It does
// not wait. A queue that gives several URLs is put off by its delay for each. If yield fails, the
// URL that it failed for waits again, and so do those that it was not called with.
//
// The leases have no token: what came of them is told by URL, see URL.Update. What is told after
// the end of a lease counts as if it were told of the next.
func (f *Frontier) ClaimQueues(ctx context.Context, r QueueRequest, yield func(Claim) error) error {
	g := gathering{QueueRequest: r, visited: map[string]int{}}
	first := int(f.turn.Add(1))
	for i := range f.o.Shards {
		number := (first + i) % f.o.Shards
		g.cut = ""
		for more := true; more && g.goesOn(f.delay()) && !f.inactive() && ctx.Err() == nil; {
			var claims []Claim
			var err error
			claims, more, err = f.gather(ctx, number, &g)
			for i := range claims {
				if err := yield(claims[i]); err != nil {
					return errors.Join(err, f.giveBack(ctx, claims[i:]))
				}
			}
			if err != nil && !elsewhere(err) {
				return err
			}
		}
	}
	return ctx.Err()
}

// room is of how many queues more URLs may be taken now, if so many URLs may be. Delay is that of
// most queues.
func (g *gathering) room(urls int, delay time.Duration) int {
	each := 1 // what a queue without a delay does not give now it gives in the next round
	if g.PerQueue > 0 {
		each = min(g.PerQueue, urlsAtOnce)
	} else if delay > 0 {
		each = int(min(g.Lease/delay, urlsAtOnce-1)) + 1
	}
	n := min(urls/each, queuesAtOnce)
	if g.MaxQueues > 0 {
		n = min(n, g.MaxQueues-g.served)
	}
	return n
}

// goesOn says that more may be taken of a shard.
func (g *gathering) goesOn(delay time.Duration) bool {
	return g.cut != "" || g.room(urlsAtOnce, delay) > 0
}

// gather leases URLs of some queues of a shard. More says that there may be others.
func (f *Frontier) gather(ctx context.Context, number int, g *gathering) (claims []Claim, more bool, err error) {
	if err := f.expireOf(ctx, number, g); err != nil {
		return nil, false, err
	}
	s, release, err := f.use(number)
	if err != nil {
		return nil, false, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx) // the URLs that were taken are leased or wait again
	if err := s.coord.Certain(ctx); err != nil {
		return nil, false, err
	}
	if key := g.cut; key != "" {
		g.cut = ""
		claims, _, err = f.gatherOf(ctx, s, g, g.cutCrawl, 1, urlsAtOnce, key)
		return claims, true, err
	}
	var only []string
	if g.Key != "" {
		only = []string{g.Key}
	}
	for _, crawl := range s.crawlsOf(g.Crawl) {
		left := urlsAtOnce - len(claims)
		n := g.room(left, f.delay())
		if n <= 0 || g.cut != "" {
			return claims, true, nil
		}
		got, again, err := f.gatherOf(ctx, s, g, crawl, n, left, only...)
		claims, more = append(claims, got...), more || again
		if err != nil {
			return claims, false, err
		}
	}
	return claims, more, nil
}

// gatherOf leases up to so many URLs of up to n queues of a crawl, which are at most as many.
func (f *Frontier) gatherOf(
	ctx context.Context, s *owned, g *gathering, crawl string, n, urls int, only ...string,
) (claims []Claim, more bool, err error) {
	now := f.now()
	claim, _ := s.coord.Claim(crawl, now, n, f.delay(), only...)
	keys := claim.Keys
	t := f.taking(crawl, now+g.Lease.Milliseconds(), nil, len(keys))
	// Without a delay the same keys come again when there are no others.
	fresh := slices.ContainsFunc(keys, func(key string) bool {
		_, ok := g.visited[shard.QueueName(crawl, key)]
		return !ok
	})
	if err := f.takeAll(ctx, s, g, &t, claim, urls, now); err != nil {
		return nil, false, err
	}
	all := len(keys) < n && len(t.claims) < urls
	return t.claims, g.cut != "" || !all && (fresh || len(t.claims) > 0), nil
}

// expireOf returns URLs whose leases are over to the only queue that is asked for.
func (f *Frontier) expireOf(ctx context.Context, number int, g *gathering) error {
	if g.Key == "" || g.cut != "" { // it was done when the queue was asked first
		return nil
	}
	s, release, err := f.use(number)
	if err != nil {
		return err
	}
	var out int64
	for _, crawl := range s.crawlsOf(g.Crawl) {
		c, _ := s.files.Count(crawl, shard.QueueName(crawl, g.Key))
		out += c.Leased()
	}
	release()
	if out == 0 {
		return nil
	}
	return f.tickOf(ctx, number)
}

// takeAll takes and leases URLs of keys, up to so many in all.
func (f *Frontier) takeAll(ctx context.Context, s *owned, g *gathering, t *taking, claim ready.Claim, urls int, now int64) error {
	keys := claim.Keys
	if len(keys) == 0 {
		return nil
	}
	delays := make([]time.Duration, len(keys))
	if g.PerQueue != 1 {
		for i, key := range keys {
			delays[i] = s.delay(key, now, f.delay())
		}
	}
	// Keys with a delay rest from now on, so they are first, and each has its share. The others are
	// ready again in the next round.
	order, resting := make([]int, 0, len(keys)), 0
	for i := range keys {
		if delays[i] > 0 {
			order = slices.Insert(order, resting, i)
			resting++
		} else {
			order = append(order, i)
		}
	}
	rest := map[string]int64{}
	for at, i := range order {
		share := urls - len(t.claims)
		if share == 0 {
			break
		}
		if at < resting {
			share /= resting - at
		}
		taken, err := f.takeSome(s, g, t, keys[i], delays[i], share)
		if err != nil {
			return err
		}
		if taken > 1 && delays[i] > 0 {
			rest[keys[i]] = now + int64(taken)*delays[i].Milliseconds()
		}
	}
	s.coord.Rest(rest)
	return f.lease(ctx, s, t, claim)
}

// takeSome takes what a key gives, up to a share, and returns how many URLs that were.
func (f *Frontier) takeSome(s *owned, g *gathering, t *taking, key string, delay time.Duration, share int) (int, error) {
	name := shard.QueueName(t.crawl, key)
	given := g.visited[name]
	g.visited[name] = given
	n := share
	if g.PerQueue > 0 {
		counts, _ := s.files.Count(t.crawl, name)
		if counts.Leased() >= int64(g.PerQueue) {
			return 0, nil
		}
		n = g.PerQueue - given
	} else if delay > 0 {
		n = int(g.Lease/delay) + 1 - given
	}
	n = min(n, share)
	if n <= 0 {
		return 0, nil
	}
	taken, err := t.add(f, s, name, n)
	if err != nil {
		return 0, err
	}
	if taken > 0 && given == 0 {
		g.served++
	}
	g.visited[name] += taken
	if taken == share && delay == 0 && (g.PerQueue == 0 || given+taken < g.PerQueue) {
		g.cut, g.cutCrawl = key, t.crawl
	}
	return taken, nil
}

// taking are URLs of a crawl that are being leased.
type taking struct {
	crawl   string
	until   int64
	expires time.Time // until
	// fenced leases have tokens; the others have 0.
	fenced bool
	claims []Claim // the last of which are those of leases
	leases []coord.Lease
	text   strings.Builder // of the leases
	empty  []string        // keys of which nothing waits any more, or that have reached their limit
}

// taking begins to lease URLs, of which there will mostly be up to n. They are appended to claims.
func (f *Frontier) taking(crawl string, until int64, claims []Claim, n int) taking {
	return taking{crawl: crawl, until: until, expires: time.UnixMilli(until), claims: slices.Grow(claims, n), leases: make([]coord.Lease, 0, n)}
}

// add takes up to n URLs of a queue, and returns how many there were.
func (t *taking) add(f *Frontier, s *owned, queue string, n int) (int, error) {
	key := keyOf(queue)
	if s.limited(queue) {
		t.empty = append(t.empty, key)
		return 0, nil
	}
	taken, left, err := f.take(s, queue, n)
	if err != nil {
		s.doubtful.Store(true) // those that were taken have no leases
		return 0, err
	}
	for _, e := range taken {
		token := uint64(0)
		if t.fenced {
			token = rand.Uint64()
		}
		t.leases = append(t.leases, coord.AppendLease(&t.text, token, e.Seq, queue))
		t.claims = append(t.claims, Claim{
			URL: e.URL, Crawl: t.crawl, Key: key, Depth: DepthOf(e.Depth), Priority: e.Priority, Tries: e.Tries,
			Metadata: e.Metadata, Expires: t.expires,
		})
	}
	if left == 0 {
		t.empty = append(t.empty, key)
	}
	return len(taken), nil
}

// lease notes the leases of what was taken of keys. If Redis does not, the URLs wait again.
func (f *Frontier) lease(ctx context.Context, s *owned, t *taking, claim ready.Claim) error {
	formatLeases(s.number, t.leases, t.claims[len(t.claims)-len(t.leases):])
	if len(t.leases) > 0 {
		f.claimedAt.Store(int64(time.Since(begin)))
	}
	if err := s.coord.Lease(ctx, t.until, t.leases, claim); err != nil {
		_, failed := f.back(s, t.leases, false)
		return errors.Join(err, failed)
	}
	s.coord.Idle(t.crawl, t.empty)
	// What was added to a queue after it was found empty has woken it before it was taken out.
	queues, _ := queueNames(t.crawl, t.empty)
	f.wakeAgain(s, queues)
	return nil
}

// queueNames returns the names of the queues of keys, which share memory, and how long all are.
func queueNames(crawl string, keys []string) (names []string, size int) {
	for _, key := range keys {
		size += len(crawl) + 1 + len(key)
	}
	var all strings.Builder
	all.Grow(size)
	names = make([]string, len(keys))
	for i, key := range keys {
		from := all.Len()
		all.WriteString(crawl)
		all.WriteByte(0)
		all.WriteString(key)
		names[i] = all.String()[from:]
	}
	return names, size
}

// limited says that no more is handed out of a queue, since as many of its URLs are done as its
// limit says.
func (s *owned) limited(queue string) bool {
	limit, ok := s.limits.Load(queue)
	if !ok {
		return false
	}
	counts, _ := s.files.Count("", queue)
	return counts.Done() >= limit.(int64)
}

// wakeLimited wakes the queues that have a limit and have not reached it, or not any more since
// URLs were deleted.
func (f *Frontier) wakeLimited(s *owned) {
	var queues []string
	s.limits.Range(func(queue, _ any) bool {
		queues = append(queues, queue.(string))
		return true
	})
	f.wakeAgain(s, queues)
}

// crawlsOf returns a crawl, or all of which something has waited if it is empty.
func (s *owned) crawlsOf(crawl string) []string {
	if crawl != "" {
		return []string{crawl}
	}
	return s.domains.allCrawls()
}
