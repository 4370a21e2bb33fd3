package frontier

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// The key of a queue by which URLs are grouped that name none.
const (
	ByDomain = "domain"
	ByHost   = "host"
)

const (
	// longestBackoff bounds how long a key rests after failures.
	longestBackoff = time.Hour
	// longestRetryAfter bounds how long it rests because its server says so.
	longestRetryAfter = 24 * time.Hour
	// lastTime is the last time that can be written in JSON, at the end of the year 9999. Long
	// delays, each for many URLs, lead beyond it.
	lastTime = 253402300799_999
)

// Reasons of rejected URLs that have a canonical form. A URL that is rejected because of a cap can
// be added later.
const (
	ReasonExcluded = "excluded"
	ReasonCap      = "cap"
)

// excluded is the status of entries that were not added because their key is excluded.
const excluded shard.AddStatus = 255

// addResult is what an entry's status means to clients.
func addResult(status shard.AddStatus) AddResult {
	switch status {
	case shard.Added:
		return AddResult{Result: Added}
	case shard.Updated:
		return AddResult{Result: Updated}
	case shard.Full:
		return AddResult{Rejected, ReasonCap}
	case excluded, shard.Unknown:
		return AddResult{Rejected, ReasonExcluded}
	default:
		return AddResult{Result: Known}
	}
}

// domains is what the owner of a shard remembers of its keys besides what package coord does.
type domains struct {
	mu sync.RWMutex
	// crawls are those of which something was waiting since the shard was opened.
	crawls map[string]struct{}
	// excluded keys take no URLs; caps are those of keys that have their own.
	excluded map[string]struct{}
	caps     map[string]int64
	// hidden keys are excluded by the frontier's Exclusions, or are hosts below an excluded key.
	// Something waits of them.
	hidden map[string]struct{}
	// robots is where forgetting robots.txt files goes on. Only the tick uses it.
	robots []byte
}

// loadDomains looks at what holds for a shard's keys.
func (s *owned) loadDomains() {
	d := &s.domains
	d.crawls, d.excluded, d.hidden = map[string]struct{}{}, map[string]struct{}{}, map[string]struct{}{}
	d.caps = map[string]int64{}
	for key, set := range s.coord.AllSettings() {
		d.set(key, set)
	}
}

// set notes the settings of a key.
func (d *domains) set(key string, set coord.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.excluded, key)
	delete(d.caps, key)
	if set.Excluded {
		d.excluded[key] = struct{}{}
	}
	if set.HasCap {
		d.caps[key] = set.Cap
	}
}

// note remembers the crawls of queues. It comes before they are woken.
func (d *domains) note(queues []string) {
	for _, queue := range queues {
		crawl, _, _ := strings.Cut(queue, "\x00")
		d.mu.RLock()
		_, ok := d.crawls[crawl]
		d.mu.RUnlock()
		if !ok {
			d.mu.Lock()
			d.crawls[strings.Clone(crawl)] = struct{}{}
			d.mu.Unlock()
		}
	}
}

func (d *domains) allCrawls() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Sorted(maps.Keys(d.crawls))
}

// cap returns how many URLs may wait in a queue, -1 if any number may.
func (d *domains) cap(queue string, other int64) int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if len(d.caps) > 0 {
		if n, ok := d.caps[keyOf(queue)]; ok {
			return n
		}
	}
	return other
}

// keyOf returns the key of a queue.
func keyOf(queue string) string {
	_, key, _ := strings.Cut(queue, "\x00")
	return key
}

// addAllowed adds the entries whose keys are not excluded. Entries with an excluded key only settle
// URLs that are already known: their leases may be older than the exclusion.
func (s *owned) addAllowed(ids []shard.ID, entries []shard.Entry) (statuses []shard.AddStatus, done shard.Change, err error) {
	d := &s.domains
	d.mu.RLock()
	none := len(d.excluded) == 0
	d.mu.RUnlock()
	if none {
		return s.files.Add(ids, entries)
	}
	statuses = make([]shard.AddStatus, len(entries))
	allowed, allowedIDs := make([]shard.Entry, 0, len(entries)), make([]shard.ID, 0, len(entries))
	places := make([]int, 0, len(entries))
	d.mu.RLock()
	for i := range entries {
		if _, out := d.excluded[keyOf(entries[i].Queue)]; out {
			if !entries[i].Settled {
				statuses[i] = excluded
				continue
			}
			entries[i].OnlyKnown = true
		}
		allowed, allowedIDs, places = append(allowed, entries[i]), append(allowedIDs, ids[i]), append(places, i)
	}
	d.mu.RUnlock()
	got, done, err := s.files.Add(allowedIDs, allowed)
	if err != nil {
		return nil, done, err
	}
	for i, status := range got {
		statuses[places[i]] = status
	}
	return statuses, done, nil
}

// report is what an outcome says of the server. One that is final and has no status says nothing:
// nobody asked.
func (o *Outcome) report() coord.Report {
	failed := o.Status == 429 || o.Status >= 500 || o.Status == 0 && !o.Final
	return coord.Report{
		Failed: failed, Answered: o.Status != 0 && !failed, RetryAfter: min(max(o.RetryAfter, 0), longestRetryAfter),
	}
}

func (f *Frontier) backoff() coord.Backoff {
	return coord.Backoff{Delay: f.delay(), Longest: max(longestBackoff, f.delay())}
}

// DomainState is what there is of a key, which is a domain unless clients or Options.QueueBy say
// otherwise.
type DomainState struct {
	// Known says that there are URLs, settings or robots.txt files of the key.
	Known bool
	// Waiting and Leased are the sums over Crawls, which has those that have URLs of the key.
	Waiting, Leased int64
	Crawls          []CrawlState
	// Delay is the time between two URLs that holds now.
	Delay  time.Duration
	Paused bool
	// Excluded says that the key is excluded, or one that it is a host below.
	Excluded bool
	// TakenDown says that the frontier's Exclusions name the whole key.
	TakenDown bool
	// Blocked is until when the key is blocked, zero if it is not.
	Blocked time.Time
	// Cap is how many URLs may wait in each queue of the key, -1 if any number may.
	Cap int64
	// Failures counts the URLs that failed one after the other.
	Failures int
	// Next is from when on the key may be fetched from, zero if there is nothing to wait for.
	Next time.Time
	// Robots are some of the robots.txt files of its hosts, without their texts.
	Robots []RobotsFile
}

// CrawlState counts the URLs of a key in a crawl.
type CrawlState struct {
	Crawl string
	shard.Counts
}

// Domain returns what there is of a key.
func (f *Frontier) Domain(ctx context.Context, key string) (DomainState, error) {
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return DomainState{}, err
	}
	defer release()
	set := s.coord.Settings(key)
	now := f.now()
	d := DomainState{
		Delay: set.DelayAt(now, f.delay()), Paused: set.Paused, Excluded: set.Excluded || f.ofExcluded(key), Failures: set.Failures, Cap: f.maxWaiting(),
	}
	if e := f.excluded(); e != nil {
		d.TakenDown = e.Key(key)
	}
	if set.HasCap {
		d.Cap = set.Cap
	}
	if set.Blocked > now {
		d.Blocked = time.UnixMilli(min(set.Blocked, lastTime)).UTC()
	}
	if set.Next > now {
		d.Next = time.UnixMilli(min(set.Next, lastTime)).UTC()
	}
	for _, crawl := range s.files.Crawls() {
		c, _ := s.files.Count(crawl, shard.QueueName(crawl, key))
		if c.All() > 0 {
			d.Crawls = append(d.Crawls, CrawlState{crawl, c})
			d.Waiting += c.Waiting()
			d.Leased += c.Leased()
		}
	}
	d.Robots, err = f.robotsOf(s, key, now)
	d.Known = len(d.Crawls) > 0 || len(d.Robots) > 0 || set.Any()
	return d, err
}

// CanonicalKey returns the key of a domain or host in any spelling; what is neither stays as it is.
// If URLs are queued by domain and the key is a host of a larger one, that is returned, too: no URL
// is queued by the host, unless its client has given that as a key.
func (f *Frontier) CanonicalKey(text string) (key, larger string) {
	u, err := urlnorm.Parse(f.list, "http://"+text+"/")
	if err != nil || u.PathQuery != "/" || u.Port >= 0 || strings.ContainsAny(text, "/?#@\\") {
		return text, ""
	}
	if f.o.QueueBy == ByHost || u.Domain == u.Host {
		return u.Host, ""
	}
	return u.Host, u.Domain
}

// maxWaiting is how many URLs may wait in a queue whose key has no cap, -1 if any number may.
func (f *Frontier) maxWaiting() int64 {
	if f.o.MaxWaiting > 0 {
		return f.o.MaxWaiting
	}
	return -1
}

// DomainChange is what to change of a key; nil leaves it.
type DomainChange struct {
	// Delay is the time between two URLs, from the next one on; less than 0 means the frontier's.
	Delay *time.Duration
	// Block is for how long from now on there are no claims; 0 ends it.
	Block *time.Duration
	// Pause stops claims until it is taken back. Exclude does, too, and nothing is added meanwhile;
	// what waits is kept. An exclusion holds for keys that are hosts below this one, too. Other
	// processes know that after a second, or when they Refresh.
	Pause, Exclude *bool
	// Cap is how many URLs may wait in each queue of the key; less than 0 means the frontier's.
	Cap *int64
}

// ChangeDomain changes what holds for a key in all crawls, whether anything waits or not.
func (f *Frontier) ChangeDomain(ctx context.Context, key string, c DomainChange) error {
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return err
	}
	defer release()
	ctx = context.WithoutCancel(ctx)
	change := coord.Change{Delay: c.Delay, Paused: c.Pause, Excluded: c.Exclude, Cap: c.Cap}
	if c.Block != nil {
		until := int64(0)
		if *c.Block > 0 {
			until = f.now() + c.Block.Milliseconds()
		}
		change.Blocked = &until
	}
	return f.changeDomain(ctx, s, key, change)
}

func (f *Frontier) changeDomain(ctx context.Context, s *owned, key string, change coord.Change) error {
	// One change of a key after the other, so that what is remembered is what Redis has.
	s.changing.Lock()
	defer s.changing.Unlock()
	set, err := s.coord.Change(ctx, key, change)
	if err != nil {
		return err
	}
	s.domains.set(key, set)
	if change.Excluded != nil {
		if err := f.setExcluded(ctx, set.Excluded, []string{key}); err != nil {
			s.doubtful.Store(true) // opening the shard repairs it
			return err
		}
	}
	f.wakeKeys(s, []string{key})
	return nil
}

// wakeKeys wakes all queues of keys in which something waits.
func (f *Frontier) wakeKeys(s *owned, keys []string) {
	var queues []string
	for _, crawl := range s.domains.allCrawls() {
		for _, key := range keys {
			queues = append(queues, shard.QueueName(crawl, key))
		}
	}
	f.wakeAgain(s, queues)
}

// rest puts keys off by their delay for each of the URLs that they gave now.
func (f *Frontier) rest(s *owned, keys []string, gave []int, now int64) {
	until := make(map[string]int64, len(keys))
	for i, key := range keys {
		if delay := s.delay(key, now, f.delay()); delay > 0 {
			until[key] = now + int64(gave[i])*delay.Milliseconds()
		}
	}
	s.coord.Rest(until)
}

// delay is the time between two URLs of a key that holds now. Other is the frontier's.
func (s *owned) delay(key string, now int64, other time.Duration) time.Duration {
	set := s.coord.Settings(key)
	return set.DelayAt(now, other)
}
