// Package frontier decides what a crawler fetches next. URLs are added to queues, one for each
// domain (or for what the client says). Workers claim URLs of queues that may be fetched from,
// under leases, and report what came of them.
//
// # Promises
//
// What Add, Settle or Extend has returned for is not lost, whichever process dies: see package
// shard. No URL has two live leases. A lease that ended, because its time was over or because it
// was settled, settles nothing any more. No queue hands out a URL sooner than its delay after the
// one before.
//
// # Parts
//
// The URLs are in files, of package shard: a frontier has a fixed number of shards, and the hash of
// its name says in which a queue is. Package coord keeps in Redis which process owns which shard,
// the time of each queue, and the leases.
package frontier

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Options say how a frontier works.
type Options struct {
	// Dir has a folder for each shard. Processes that share a frontier share it, too.
	Dir string
	// Shards is fixed when the frontier is made.
	Shards int
	// Delay is the time between two URLs of a key, unless the key has its own.
	Delay time.Duration
	// QueueBy is what URLs without a key are grouped by: ByDomain, which is the default, or ByHost.
	// It is fixed when the frontier is made.
	QueueBy string
	// MaxWaiting is how many URLs may wait in a queue whose key has no cap, 0 for any number.
	MaxWaiting int64
	// AlarmWaiting is how many URLs may wait in a queue before the log names it, 0 for any number.
	AlarmWaiting int64
	// RobotsAgent is the product token by which Crawl-delay is read from robots.txt files, empty
	// for what they ask of all crawlers. MaxRobotsDelay bounds what they ask for; 0 ignores it.
	RobotsAgent    string
	MaxRobotsDelay time.Duration
	// Exclusions, if it is set, returns what must not be fetched, the same value as before if that
	// did not change. It is called when the frontier starts, and again every Refresh.
	Exclusions func(context.Context) (Exclusions, error)
	Refresh    time.Duration
	// Lease is how long a claim lasts.
	Lease time.Duration
	// Tries is how often a URL is handed out before it is settled as failed: after an outcome that
	// is no answer, or when its lease is over.
	Tries int
	// Own is how long a process owns a shard after it was last heard of.
	Own   time.Duration
	Shard shard.Options
	// Now is the clock.
	Now func() time.Time
	Log *slog.Logger
}

// DefaultCrawl is the crawl of URLs that name none.
const DefaultCrawl = "DEFAULT"

// MaxURL bounds a canonical URL, MaxMetadata what a client stores with it, and MaxName the name of
// a crawl or of a queue within it, in bytes.
const (
	MaxURL      = 64 << 10
	MaxMetadata = 64 << 10
	MaxName     = 512
)

var (
	// ErrElsewhere means that another process owns the shard of a queue, or none does yet.
	ErrElsewhere = errors.New("another process serves this queue")
	// ErrClosed means that the frontier was closed.
	ErrClosed = errors.New("the frontier is closed")
)

// Frontier serves the shards that this process owns.
type Frontier struct {
	o     Options
	coord *coord.Frontier
	list  *urlnorm.SuffixList

	mu    sync.RWMutex
	owned map[int]*owned
	// owners are the other processes that own a shard, as coord names them.
	owners map[int]string
	held   held
	// tenures are those of shards that this process serves or opens. A lock of moves is held while
	// a shard is opened, closed or given away.
	tenures map[int]*tenure
	moves   []sync.Mutex
	// excludedKeys are those of all shards. Control is what was said of the frontier as a whole.
	excludedKeys excludedKeys
	control      atomic.Pointer[coord.Control]
	// incarnation is the Redis that was asked last. Only claimShards uses it.
	incarnation string
	succeeded   atomic.Bool // that a shard of a process that has ended was taken
	claims      together[ClaimRequest, *claimJob]
	settles     together[int, *settleJob] // by shard
	turn        atomic.Uint32             // the shard at which the next claim begins
	claimedAt   atomic.Int64              // when URLs were claimed last, as the time since begin
	seenAt      atomic.Int64              // when many URLs were looked up last
	addedAt     atomic.Int64              // when URLs were added last
	fullAt      atomic.Int64              // when full was set last, of which isFull says what it is
	full        atomic.Bool
	bulk        *bulk
	woken       chan struct{} // closed when a queue wakes, and replaced
	exclusions  exclusions
	counters    counters
	parts       parts
	wokeMu      sync.Mutex
	stop        context.CancelFunc
	loops       sync.WaitGroup
}

// begin is a time from which others are reckoned, so that a clock that is set changes nothing.
var begin = time.Now()

// owned is a shard of this process.
type owned struct {
	number int
	files  *shard.Shard
	coord  *coord.Shard
	lock   *flock.Flock
	tenure *tenure
	// doubtful says that a change may have reached Redis or not. The shard is opened again, which
	// makes its files and Redis agree.
	doubtful atomic.Bool
	// use is held while something works on the shard.
	use sync.RWMutex
	// changing is held while settings of keys are changed.
	changing sync.Mutex
	domains  domains
	robots   *robotsStore
	// robotsChanging is held while a robots.txt is replaced, before changing.
	robotsChanging sync.Mutex
	// limits are those of SetLimit, by queue.
	limits sync.Map
	// ticking is held by tickOf: who calls it finds everything done that was due before.
	ticking sync.Mutex
}

// notify wakes the claims that wait.
func (f *Frontier) notify() {
	f.wokeMu.Lock()
	defer f.wokeMu.Unlock()
	close(f.woken)
	f.woken = make(chan struct{})
}

func (f *Frontier) waiter() <-chan struct{} {
	f.wokeMu.Lock()
	defer f.wokeMu.Unlock()
	return f.woken
}

// New URLs.

// URL is a URL to be added.
type URL struct {
	// URL is in any spelling.
	URL string
	// Crawl is DefaultCrawl if empty, and Key the registrable domain.
	Crawl, Key string
	// Priority orders the URLs of a queue, the highest first.
	Priority uint16
	Depth    uint32
	// Due is when the URL may be fetched at the earliest, 0 for at once.
	Due      time.Time
	Metadata []byte
	// Update replaces what waits or is leased of the URL by this entry; a settled URL waits again.
	// A URL that is not known is added. Done, which needs Update, has the URL settled: it is not
	// fetched until it is updated again.
	Update, Done bool
	// Fetched, with Update, says that the URL was fetched, with an HTTP status, or 0 if nobody said
	// which: that is a visit if the URL is leased.
	Fetched bool
	Status  uint16
}

// AddResult is what became of a URL: Added, Known, Updated, Rejected with a reason, or Elsewhere
// with the process that serves its queue, "" if none does at the moment.
type AddResult struct {
	Result string
	Reason string
}

const (
	Added     = "added"
	Known     = "known"
	Updated   = "updated"
	Rejected  = "rejected"
	Elsewhere = "elsewhere"
)

// Add adds URLs that are not known in their queue, updates those that ask for it, and returns a
// result for each in order. After an error some of them may have been added.
func (f *Frontier) Add(ctx context.Context, urls []URL) ([]AddResult, error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	f.waitForRoom(ctx)
	out := f.excluded()
	var t texts
	results := make([]AddResult, len(urls))
	parts := f.parts.get(f.o.Shards)
	defer f.parts.put(parts)
	entries, places := parts.entries, parts.places
	f.Bulk(len(urls), func() {
		for i := range urls {
			e, reason := f.entry(n, &t, &urls[i], out)
			if reason == "" && f.ofExcluded(keyOf(e.Queue)) {
				if e.OnlyKnown = true; !urls[i].Done {
					reason = ReasonExcluded
				}
			}
			if reason != "" {
				results[i] = AddResult{Rejected, reason}
				continue
			}
			s := f.shardOf(keyOf(e.Queue))
			entries[s] = append(entries[s], e)
			parts.ids[s], places[s] = append(parts.ids[s], t.id), append(places[s], i)
		}
	})
	err = eachShard(places, func(s int) error {
		statuses, err := f.add(s, parts.ids[s], entries[s], len(urls))
		if elsewhere(err) {
			for _, i := range places[s] {
				results[i] = AddResult{Elsewhere, f.owner(s)}
			}
			return nil
		}
		if err != nil {
			return err
		}
		for i, status := range statuses {
			results[places[s][i]] = addResult(status)
		}
		return nil
	})
	return results, err
}

// entry makes an entry of a URL that is not excluded, or says why there is none.
func (f *Frontier) entry(n *urlnorm.Normalizer, t *texts, u *URL, out Exclusions) (e shard.Entry, reason string) {
	var err error
	if t.parsed, err = n.ParseString(u.URL); err != nil {
		var reject *urlnorm.RejectError
		if errors.As(err, &reject) {
			return e, string(reject.Reason)
		}
		return e, err.Error()
	}
	// A known URL may be settled although it is excluded: its lease may be older than the
	// exclusion.
	taken := out != nil && out.URL(&t.parsed, f.now())
	if taken && !u.Done {
		return e, ReasonExcluded
	}
	crawl, key := u.Crawl, u.Key
	if crawl == "" {
		crawl = DefaultCrawl
	}
	if key == "" {
		key = t.parsed.Domain
		if f.o.QueueBy == ByHost {
			key = t.parsed.Host
		}
	}
	e = shard.Entry{
		Priority: u.Priority, Depth: u.Depth, Metadata: withFound(u.Metadata, u.URL, &t.parsed),
		Update: u.Update, Settled: u.Done, OnlyKnown: taken,
	}
	if u.Update && u.Fetched {
		e.Visit = &shard.Visit{Status: u.Status}
	}
	switch {
	case u.Done && !u.Update:
		return e, "done_without_update"
	case len(crawl)+len(key) > MaxName:
		return e, "name_too_long"
	case len(u.Metadata) > MaxMetadata:
		return e, "metadata_too_long"
	}
	for _, name := range []string{crawl, key} {
		if strings.IndexByte(name, 0) >= 0 {
			return e, "name"
		}
	}
	if e.Queue, e.URL = t.name(crawl, key); len(e.URL) > MaxURL {
		return e, "too_long"
	}
	if !u.Due.IsZero() && u.Due.UnixMilli() > f.now() {
		e.Due = u.Due.UnixMilli()
	}
	return e, ""
}

// elsewhere says that an error means that another process has the shard.
func elsewhere(err error) bool {
	return errors.Is(err, ErrElsewhere) || errors.Is(err, coord.ErrFenced)
}

// add adds entries of a shard, which are some of so many in all.
func (f *Frontier) add(number int, ids []shard.ID, entries []shard.Entry, all int) (statuses []shard.AddStatus, err error) {
	var s *owned
	var release func()
	var done shard.Change
	f.Bulk(all, func() {
		if s, release, err = f.use(number); err == nil {
			statuses, done, err = s.addAllowed(ids, entries)
		}
	})
	if s == nil {
		return nil, err
	}
	defer release()
	f.addedAt.Store(int64(time.Since(begin)))
	if err == nil {
		err = s.files.Commit()
	}
	if err == nil {
		f.wake(s, done.Woken)
		s.endTokenless(done.Ended)
		if !s.mine() {
			err = ErrElsewhere
		}
	}
	return statuses, err
}

// Claims and results.

// Claim is a URL that a client has to fetch and to report of.
type Claim struct {
	Lease    string
	URL      string
	Crawl    string
	Key      string
	Depth    uint32
	Priority uint16
	Tries    uint32
	Metadata []byte
	Expires  time.Time
	// Robots is until when the frontier has the robots.txt of the URL's host, zero if it has none.
	Robots time.Time
}

// ClaimRequest says what to claim.
type ClaimRequest struct {
	Crawl string
	// Max bounds the URLs, PerQueue those of a queue. A queue that gives several is put off by its
	// delay for each.
	Max, PerQueue int
	// Wait is how long the claim waits for the first URL.
	Wait time.Duration
}

// Claim leases URLs of queues that may be fetched from. It returns none if there are none until the
// end of its wait.
func (f *Frontier) Claim(ctx context.Context, r ClaimRequest) ([]Claim, error) {
	return f.AppendClaims(ctx, nil, r)
}

// AppendClaims appends what Claim returns.
func (f *Frontier) AppendClaims(ctx context.Context, to []Claim, r ClaimRequest) ([]Claim, error) {
	if r.Crawl == "" {
		r.Crawl = DefaultCrawl
	}
	f.counters.claimed(r.Crawl)
	r.Max = max(r.Max, 1)
	r.PerQueue = min(max(r.PerQueue, 1), r.Max)
	deadline := time.Now().Add(r.Wait)
	for {
		woken := f.waiter()
		claims, next, err := f.claimTogether(ctx, to, r)
		got := claims[len(to):]
		if len(got) > 0 && ctx.Err() != nil {
			return to, f.giveBack(ctx, got) // whoever asked has left
		}
		if len(got) > 0 || err != nil {
			return claims, err
		}
		wait := time.Until(deadline)
		if next >= 0 {
			wait = min(wait, time.Duration(max(next-f.now(), 1))*time.Millisecond)
		}
		if time.Until(deadline) <= 0 {
			return to, nil
		}
		select {
		case <-ctx.Done():
			return to, nil
		case <-woken:
		case <-time.After(wait):
		}
	}
}

// giveBack ends leases that nobody has, and lets their URLs wait again.
func (f *Frontier) giveBack(ctx context.Context, claims []Claim) error {
	leases := make([]string, len(claims))
	for i := range claims {
		leases[i] = claims[i].Lease
	}
	_, err := f.Release(ctx, leases)
	return err
}

// back lets the URLs of leases wait again, and says which were leased. Those that were not given to
// anybody were not tried.
func (f *Frontier) back(s *owned, leases []coord.Lease, given bool) (leased []bool, err error) {
	leased = make([]bool, len(leases))
	var woken []string
	for i, l := range leases {
		var wake bool
		if given {
			wake, leased[i], err = s.files.Back(l.Seq(), 0)
		} else {
			wake, leased[i], err = s.files.Return(l.Seq())
		}
		if err != nil {
			s.doubtful.Store(true)
			return nil, err
		}
		if wake {
			woken = append(woken, l.Queue())
		}
	}
	if err := s.files.Commit(); err != nil {
		return nil, err
	}
	f.wake(s, woken)
	return leased, nil
}

// claim asks the shards in turn, and appends what they give. Next is when the next queue is ready,
// -1 if none will be.
func (f *Frontier) claim(ctx context.Context, to []Claim, r ClaimRequest) (claims []Claim, next int64, err error) {
	claims, next = to, -1
	if f.inactive() {
		return claims, next, nil
	}
	first := int(f.turn.Add(1))
	for i := range f.o.Shards {
		number, before := (first+i)%f.o.Shards, len(claims)
		var at int64
		claims, at, err = f.claimOf(ctx, number, claims, r, r.Max-(before-len(to)))
		switch {
		case elsewhere(err):
			continue
		case err != nil:
			return claims, next, err
		}
		if err := f.noteRobots(number, claims[before:]); err != nil {
			f.o.Log.Error(err.Error()) // the clients fetch them again
		}
		if at >= 0 && (next < 0 || at < next) {
			next = at
		}
		if len(claims)-len(to) >= r.Max {
			break
		}
	}
	return claims, next, nil
}

// claimOf appends up to n URLs of a shard.
func (f *Frontier) claimOf(ctx context.Context, number int, to []Claim, r ClaimRequest, n int) (claims []Claim, next int64, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return to, 0, err
	}
	defer release()
	ctx = context.WithoutCancel(ctx) // the URLs that were taken are leased or wait again
	if err := s.coord.Certain(ctx); err != nil {
		return to, 0, err
	}
	now := f.now()
	claim, next := s.coord.Claim(r.Crawl, now, (n+r.PerQueue-1)/r.PerQueue, f.delay())
	if len(claim.Keys) == 0 {
		return to, next, nil
	}
	keys := claim.Keys
	t := f.taking(r.Crawl, now+f.o.Lease.Milliseconds(), to, min(n, len(keys)*r.PerQueue))
	t.fenced = true
	var several []string
	var gave []int // how many URLs each of several gave
	queues, size := queueNames(r.Crawl, keys)
	s.files.Expect(queues)
	t.text.Grow(size + len(queues)*coord.LeaseHead)
	for i, key := range keys {
		taken, err := t.add(f, s, queues[i], min(r.PerQueue, n-len(t.leases)))
		if err != nil {
			return to, 0, err
		}
		if taken > 1 {
			several, gave = append(several, key), append(gave, taken)
		}
	}
	f.rest(s, several, gave, now)
	if err := f.lease(ctx, s, &t, claim); err != nil {
		return to, 0, err
	}
	if len(t.leases) == 0 {
		return to, now, nil // others may be ready
	}
	return t.claims, -1, nil
}

// wakeAgain wakes those of some queues in which something waits.
func (f *Frontier) wakeAgain(s *owned, queues []string) {
	var waiting []string
	for _, queue := range queues {
		if pending, _ := s.files.Queue(queue); pending > 0 && !s.domains.isHidden(keyOf(queue)) && !s.limited(queue) {
			waiting = append(waiting, queue)
		}
	}
	f.wake(s, waiting)
}

// formatLeases sets the leases of claims, as clients have them: the number of the shard and the
// lease, in Base64. They share one string.
func formatLeases(number int, leases []coord.Lease, claims []Claim) {
	size := 0
	for _, l := range leases {
		size += base64.RawURLEncoding.EncodedLen(2 + len(l))
	}
	var all strings.Builder
	all.Grow(size)
	var raw, text []byte
	for i, l := range leases {
		raw = append(binary.BigEndian.AppendUint16(raw[:0], uint16(number)), l...)
		text = base64.RawURLEncoding.AppendEncode(text[:0], raw)
		from := all.Len()
		all.Write(text)
		claims[i].Lease = all.String()[from:]
	}
}

// leasesByShard returns the leases of each shard, among n that clients have sent, and their places.
// The results of all become Ended. The part is to be put back.
func (f *Frontier) leasesByShard(results []SettleResult, lease func(i int) string) *part {
	p := f.parts.get(f.o.Shards)
	size := 0
	for i := range results {
		size += base64.RawURLEncoding.DecodedLen(len(lease(i)))
	}
	var all strings.Builder // the leases share it
	all.Grow(size)
	var raw []byte
	for i := range results {
		results[i].Result = Ended
		var err error
		if raw, err = base64.RawURLEncoding.AppendDecode(raw[:0], []byte(lease(i))); err != nil || len(raw) < 2 {
			continue
		}
		from := all.Len()
		all.Write(raw[2:])
		l, err := coord.ParseLease(all.String()[from:])
		number := int(binary.BigEndian.Uint16(raw))
		if err == nil && number < f.o.Shards && number == f.shardOf(keyOf(l.Queue())) {
			p.places[number], p.leases[number] = append(p.places[number], i), append(p.leases[number], l)
		}
	}
	return p
}

// Outcome is what came of a claim.
type Outcome struct {
	Lease string
	// Status is the HTTP status, 0 if there was none; then Error says why.
	Status uint16
	Error  string
	// Content and Redirect are kept with the visit.
	Content, Redirect string
	// RetryAfter is how long the server is to be left alone, 0 if nobody said.
	RetryAfter time.Duration
	// Final says that the URL is not to be fetched again, whatever came of it: robots.txt forbids
	// it, say.
	Final bool
	// Refetch is when a URL that is settled waits again, zero for never.
	Refetch time.Time
}

// SettleResult is what became of an outcome. Elsewhere comes with the process that serves the queue
// of the lease, "" if none does at the moment.
type SettleResult struct {
	Result string
	Owner  string
}

const (
	// Settled URLs are done.
	Settled = "settled"
	// Retried ones wait again: there was no answer, or one of 429 or from 500 on.
	Retried = "retried"
	// Extended leases last longer.
	Extended = "extended"
	// Ended is the lease's fault: it had ended, or never was.
	Ended = "ended"
)

// retries says that a URL with such an outcome is to be fetched again.
func (o *Outcome) retries() bool {
	return !o.Final && (o.Status == 0 || o.Status == 429 || o.Status >= 500)
}

// Settle reports what came of claims, and returns a result for each in order. After an error some
// may have been settled.
func (f *Frontier) Settle(ctx context.Context, outcomes []Outcome) ([]SettleResult, error) {
	results := make([]SettleResult, len(outcomes))
	p := f.leasesByShard(results, func(i int) string { return outcomes[i].Lease })
	defer f.parts.put(p)
	err := eachShard(p.places, func(number int) error {
		err := f.settleTogether(ctx, number, &settleJob{outcomes, results, p.places[number], p.leases[number], errInterrupted})
		if !elsewhere(err) {
			return err
		}
		for _, i := range p.places[number] {
			results[i] = SettleResult{Elsewhere, f.owner(number)}
		}
		return nil
	})
	return results, err
}

// settle settles leases of a shard, and sets their results.
func (f *Frontier) settle(ctx context.Context, number int, all *settling) error {
	s, release, err := f.use(number)
	if err != nil {
		return err
	}
	defer release()
	ctx = context.WithoutCancel(ctx)
	now := f.now()
	for _, o := range all.outcomes {
		all.reports = append(all.reports, o.report())
	}
	live, untold, err := s.coord.Report(ctx, now, all.leases, all.reports, f.backoff())
	if err != nil {
		f.o.Log.Error(err.Error())
	}
	for _, i := range untold { // they are to be reported again
		live[i], all.results[i].Result = false, Elsewhere
	}
	for i, l := range all.leases {
		if live[i] {
			all.seqs = append(all.seqs, l.Seq())
		}
	}
	s.files.ExpectEnds(all.seqs)
	var woken []string
	ended := all.leases[:0]
	for i, l := range all.leases {
		if !live[i] {
			continue
		}
		retried, wake, err := f.settleOne(s, l, all.outcomes[i], now)
		if err != nil && !errors.Is(err, errReplaced) {
			s.doubtful.Store(true)
			return err
		}
		if ended = append(ended, l); err != nil {
			continue // its result is Ended
		}
		if wake {
			woken = append(woken, l.Queue())
		}
		all.results[i].Result = Settled
		if retried {
			all.results[i].Result = Retried
		}
	}
	if err := s.files.Commit(); err != nil {
		return err
	}
	s.coord.End(ended)
	f.wake(s, woken)
	if !s.mine() {
		return ErrElsewhere
	}
	return nil
}

// wake makes queues ready in which something waits.
func (f *Frontier) wake(s *owned, queues []string) {
	if len(queues) == 0 {
		return
	}
	s.domains.note(queues)
	s.coord.Wake(f.now(), queues)
	f.notify()
}

// settleOne settles one lease in the files.
func (f *Frontier) settleOne(s *owned, l coord.Lease, o *Outcome, now int64) (retried, wake bool, err error) {
	ok := true
	if o.retries() {
		var tries uint32
		tries, ok = s.files.Leased(l.Seq())
		retried = int(tries)+1 < f.o.Tries
	}
	if !ok {
		return false, false, errReplaced
	}
	if retried {
		wake, ok, err = s.files.Back(l.Seq(), 0)
	} else {
		visit := shard.Visit{Time: now, Status: o.Status, Error: o.Error, Content: o.Content, Redirect: o.Redirect}
		again := int64(0)
		if !o.Refetch.IsZero() {
			again = max(o.Refetch.UnixMilli(), now+1)
		}
		ok, err = s.files.Done(l.Seq(), visit, again)
	}
	if err == nil && !ok {
		err = errReplaced
	}
	return retried, wake, err
}

// Extend prolongs leases by the frontier's time, and says of each whether that was done: Extended,
// Ended or Elsewhere.
func (f *Frontier) Extend(ctx context.Context, leases []string) (results []SettleResult, until time.Time, err error) {
	results = make([]SettleResult, len(leases))
	until = f.o.Now().Add(f.o.Lease)
	p := f.leasesByShard(results, func(i int) string { return leases[i] })
	defer f.parts.put(p)
	for number, part := range p.leases {
		if len(part) == 0 {
			continue
		}
		live, err := f.extend(ctx, number, until, part)
		if err != nil && !elsewhere(err) {
			return nil, until, err
		}
		for i, place := range p.places[number] {
			switch {
			case err != nil:
				results[place] = SettleResult{Elsewhere, f.owner(number)}
			case live[i]:
				results[place].Result = Extended
			}
		}
	}
	return results, until, nil
}

func (f *Frontier) extend(ctx context.Context, number int, until time.Time, leases []coord.Lease) (live []bool, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, err
	}
	defer release()
	live, err = s.coord.Extend(ctx, f.now(), until.UnixMilli(), leases)
	for i := range live {
		_, leased := s.files.Leased(leases[i].Seq())
		live[i] = live[i] && leased
	}
	return live, err
}

// tick returns the URLs of leases that have ended to their queues, and promotes what is due.
func (f *Frontier) tick(ctx context.Context) (err error) {
	err = f.Refresh(ctx)
	for _, s := range f.all() {
		err = errors.Join(err, f.tickOf(ctx, s.number))
	}
	return err
}

func (f *Frontier) tickOf(ctx context.Context, number int) error {
	s, release, err := f.use(number)
	if err != nil {
		return nil
	}
	defer release()
	s.ticking.Lock()
	defer s.ticking.Unlock()
	now := f.now()
	if err := f.promote(s, now); err != nil {
		return err
	}
	f.wakeLimited(s)
	if err := s.coord.Certain(ctx); err != nil { // which is said once, and not by each of the others
		return errors.Join(err, s.forgetRobots(now))
	}
	return errors.Join(f.expire(ctx, s, now), s.forgetRobots(now), s.coord.Forget(ctx, now))
}

// expire returns the URLs of all leases to their queues that have ended at a time.
func (f *Frontier) expire(ctx context.Context, s *owned, now int64) error {
	for {
		ended, more, redis := s.coord.Expire(ctx, now)
		if errors.Is(redis, coord.ErrForgotten) {
			s.doubtful.Store(true)
		}
		f.counters.expired.Add(int64(len(ended)))
		ended, err := f.settleTried(s, ended, now)
		if err != nil {
			s.doubtful.Store(true)
			return err
		}
		if _, err := f.back(s, ended, true); err != nil || redis != nil || !more {
			return errors.Join(err, redis)
		}
	}
}

// upkeep writes the memory of shards to files, that of the fullest first. A shard whose files
// failed, or that is doubtful, is opened again.
func (f *Frontier) upkeep(ctx context.Context) (err error) {
	for _, s := range fullestFirst(f.all(), func(s *owned) float64 { return s.files.Fullness() }) {
		if ctx.Err() != nil {
			return err
		}
		held, release, used := f.use(s.number)
		if used != nil {
			continue
		}
		failed := held.files.Upkeep()
		release()
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("shard %d: %w", held.number, failed))
		}
		if failed != nil || held.doubtful.Load() {
			err = errors.Join(err, f.reopen(ctx, held))
		}
	}
	return err
}
