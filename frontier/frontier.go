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
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
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
	// Delay is the time between two URLs of a queue, unless the queue has its own.
	Delay time.Duration
	// Lease is how long a claim lasts.
	Lease time.Duration
	// Tries is how often a URL is handed out before it is settled as failed.
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

	mu     sync.RWMutex
	owned  map[int]*owned
	turn   atomic.Uint32 // the shard at which the next claim begins
	woken  chan struct{} // closed when a queue wakes, and replaced
	wokeMu sync.Mutex
	stop   context.CancelFunc
	loops  sync.WaitGroup
}

// owned is a shard of this process.
type owned struct {
	number int
	files  *shard.Shard
	coord  *coord.Shard
	lock   *flock.Flock
	// until is when the shard is another's unless it is taken again: then nothing is acknowledged.
	until   atomic.Int64
	counter atomic.Uint32
	// use is held while requests work on the shard.
	use sync.RWMutex
	// failures counts for each queue the URLs that failed one after the other.
	failures sync.Map
}

// New starts to serve the shards of a frontier that no other process owns.
func New(ctx context.Context, c *coord.Frontier, o Options) (*Frontier, error) {
	f := &Frontier{o: o, coord: c, list: urlnorm.BuiltinSuffixes(), owned: map[int]*owned{}, woken: make(chan struct{})}
	if err := f.claimShards(ctx); err != nil {
		return nil, errors.Join(err, f.giveUp(ctx))
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.loop(run, o.Own/3, f.claimShards)
	f.loop(run, time.Second, f.tick)
	f.loop(run, 100*time.Millisecond, f.upkeep)
	return f, nil
}

// loop calls do again and again until the frontier is closed.
func (f *Frontier) loop(ctx context.Context, every time.Duration, do func(context.Context) error) {
	f.loops.Go(func() {
		for {
			// Processes that began together drift apart.
			wait := every/2 + rand.N(every)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			if err := do(ctx); err != nil && ctx.Err() == nil {
				f.o.Log.Error(err.Error())
			}
		}
	})
}

// Close gives the shards back.
func (f *Frontier) Close(ctx context.Context) error {
	f.stop()
	f.loops.Wait()
	return f.giveUp(ctx)
}

func (f *Frontier) giveUp(ctx context.Context) (err error) {
	for _, s := range f.all() {
		err = errors.Join(err, f.drop(s), s.coord.Disown(ctx))
	}
	return err
}

func (f *Frontier) all() []*owned {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Values(f.owned))
}

// drop closes a shard.
func (f *Frontier) drop(s *owned) error {
	f.mu.Lock()
	delete(f.owned, s.number)
	f.mu.Unlock()
	s.use.Lock()
	defer s.use.Unlock()
	return errors.Join(s.files.Close(), s.lock.Unlock())
}

// claimShards keeps what this process owns, and takes what nobody does.
func (f *Frontier) claimShards(ctx context.Context) (err error) {
	for n := range f.o.Shards {
		err = errors.Join(err, f.claimShard(ctx, n))
	}
	return err
}

func (f *Frontier) claimShard(ctx context.Context, n int) error {
	f.mu.RLock()
	s := f.owned[n]
	f.mu.RUnlock()
	asked := time.Now()
	c, _, err := f.coord.Own(ctx, n, f.o.Own)
	switch {
	case err != nil && s != nil && asked.UnixMilli() > s.until.Load(), err == nil && s != nil && (c == nil || c.Epoch != s.coord.Epoch):
		f.o.Log.Warn("lost a shard", "shard", n)
		return errors.Join(err, f.drop(s))
	case err != nil || c == nil:
		return err
	case s != nil:
		s.until.Store(asked.Add(f.o.Own).UnixMilli())
		return nil
	}
	s, err = f.open(ctx, n, c)
	if err != nil {
		return errors.Join(fmt.Errorf("shard %d: %w", n, err), c.Disown(ctx))
	}
	if s == nil {
		return c.Disown(ctx)
	}
	s.until.Store(asked.Add(f.o.Own).UnixMilli())
	f.mu.Lock()
	f.owned[n] = s
	f.mu.Unlock()
	f.notify()
	return nil
}

// open opens the files of a shard, and makes them and Redis agree. It is nil if the process that
// had the shard before has the files still open.
func (f *Frontier) open(ctx context.Context, n int, c *coord.Shard) (s *owned, err error) {
	dir := filepath.Join(f.o.Dir, fmt.Sprintf("shard-%03d", n))
	lock := flock.New(dir + ".lock")
	if ok, err := lock.TryLock(); err != nil || !ok {
		return nil, err
	}
	files, torn, err := shard.Open(dir, f.o.Shard)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	if torn != nil {
		f.o.Log.Warn("cut the end of a journal that was not written whole; nothing of it was acknowledged", "where", torn.String())
	}
	s = &owned{number: n, files: files, coord: c, lock: lock}
	if err := f.resume(ctx, s); err != nil {
		return nil, errors.Join(err, files.Close(), lock.Unlock())
	}
	return s, nil
}

// resume tells the files which leases there are, and Redis which queues have something waiting.
func (f *Frontier) resume(ctx context.Context, s *owned) error {
	s.files.Promote(f.now())
	leases, err := s.coord.Leases(ctx)
	if err != nil {
		return err
	}
	byQueue := map[string][]coord.Lease{}
	for _, l := range leases {
		byQueue[l.Queue] = append(byQueue[l.Queue], l)
	}
	var stale []coord.Lease
	for queue, leases := range byQueue {
		bySeq := map[uint64]coord.Lease{}
		for _, l := range leases {
			bySeq[l.Seq] = l
		}
		unknown, err := s.files.Resume(queue, slices.Collect(maps.Keys(bySeq)))
		if err != nil {
			return err
		}
		for _, seq := range unknown {
			stale = append(stale, bySeq[seq])
		}
	}
	if _, err := s.coord.Settle(ctx, 0, stale); err != nil {
		return err
	}
	s.files.Resumed()
	var waiting []string
	s.files.Queues(func(name string, pending, _ int64) bool {
		if pending > 0 {
			waiting = append(waiting, name)
		}
		return true
	})
	return s.coord.Wake(ctx, f.now(), waiting)
}

func (f *Frontier) now() int64 { return f.o.Now().UnixMilli() }

// use returns the owned shard of a number, held until release is called.
func (f *Frontier) use(n int) (s *owned, release func(), err error) {
	f.mu.RLock()
	s = f.owned[n]
	f.mu.RUnlock()
	if s == nil {
		return nil, nil, ErrElsewhere
	}
	s.use.RLock()
	if !s.mine() {
		s.use.RUnlock()
		return nil, nil, ErrElsewhere
	}
	return s, s.use.RUnlock, nil
}

// mine says that no other process can own the shard yet.
func (s *owned) mine() bool { return time.Now().UnixMilli() < s.until.Load() }

func (f *Frontier) shardOf(queue string) int {
	id := shard.IDOfQueue(queue)
	// The files of a shard are sorted by the first bytes; these are the last.
	return int(binary.LittleEndian.Uint32(id[12:]) % uint32(f.o.Shards))
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
}

// AddResult is what became of a URL: Added, Known, or Rejected with a reason.
type AddResult struct {
	Result string
	Reason string
}

const (
	Added    = "added"
	Known    = "known"
	Rejected = "rejected"
)

// Add adds URLs that are not known in their crawl, and returns a result for each in order. After an
// error some of them may have been added.
func (f *Frontier) Add(ctx context.Context, urls []URL) ([]AddResult, error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return nil, err
	}
	results := make([]AddResult, len(urls))
	entries := make([][]shard.Entry, f.o.Shards)
	places := make([][]int, f.o.Shards)
	for i := range urls {
		e, reason := f.entry(n, &urls[i])
		if reason != "" {
			results[i] = AddResult{Rejected, reason}
			continue
		}
		s := f.shardOf(e.Queue)
		entries[s] = append(entries[s], e)
		places[s] = append(places[s], i)
	}
	var errs []error
	for s, part := range entries {
		if len(part) == 0 {
			continue
		}
		statuses, err := f.add(ctx, s, part)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for i, status := range statuses {
			results[places[s][i]].Result = Added
			if status == shard.Known {
				results[places[s][i]].Result = Known
			}
		}
	}
	return results, errors.Join(errs...)
}

// entry makes an entry of a URL, or says why there is none.
func (f *Frontier) entry(n *urlnorm.Normalizer, u *URL) (e shard.Entry, reason string) {
	parsed, err := n.Parse([]byte(u.URL))
	if err != nil {
		var reject *urlnorm.RejectError
		if errors.As(err, &reject) {
			return e, string(reject.Reason)
		}
		return e, err.Error()
	}
	crawl, key := u.Crawl, u.Key
	if crawl == "" {
		crawl = DefaultCrawl
	}
	if key == "" {
		key = parsed.Domain
	}
	e = shard.Entry{URL: parsed.String(), Priority: u.Priority, Depth: u.Depth, Metadata: u.Metadata}
	switch {
	case len(crawl)+len(key) > MaxName:
		return e, "name_too_long"
	case len(e.URL) > MaxURL:
		return e, "too_long"
	case len(u.Metadata) > MaxMetadata:
		return e, "metadata_too_long"
	}
	for _, name := range []string{crawl, key} {
		if slices.Contains([]byte(name), 0) {
			return e, "name"
		}
	}
	e.Queue = shard.QueueName(crawl, key)
	if !u.Due.IsZero() && u.Due.UnixMilli() > f.now() {
		e.Due = u.Due.UnixMilli()
	}
	return e, ""
}

func (f *Frontier) add(ctx context.Context, number int, entries []shard.Entry) ([]shard.AddStatus, error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, err
	}
	defer release()
	statuses, woken, err := s.files.Add(entries)
	if err == nil {
		err = s.files.Commit()
	}
	if err == nil && len(woken) > 0 {
		err = s.coord.Wake(ctx, f.now(), woken)
	}
	if err == nil && !s.mine() {
		err = ErrElsewhere
	}
	if len(woken) > 0 {
		f.notify()
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
	if r.Crawl == "" {
		r.Crawl = DefaultCrawl
	}
	r.Max, r.PerQueue = max(r.Max, 1), max(r.PerQueue, 1)
	deadline := time.Now().Add(r.Wait)
	for {
		woken := f.waiter()
		claims, next, err := f.claim(ctx, r)
		if len(claims) > 0 || err != nil {
			return claims, err
		}
		wait := time.Until(deadline)
		if next >= 0 {
			wait = min(wait, time.Duration(max(next-f.now(), 1))*time.Millisecond)
		}
		if time.Until(deadline) <= 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-woken:
		case <-time.After(wait):
		}
	}
}

// claim asks the shards in turn. Next is when the next queue is ready, -1 if none will be.
func (f *Frontier) claim(ctx context.Context, r ClaimRequest) (claims []Claim, next int64, err error) {
	next = -1
	first := int(f.turn.Add(1))
	for i := range f.o.Shards {
		got, at, err := f.claimOf(ctx, (first+i)%f.o.Shards, r, r.Max-len(claims))
		switch {
		case errors.Is(err, ErrElsewhere), errors.Is(err, coord.ErrFenced):
			continue
		case err != nil:
			return claims, next, err
		}
		claims = append(claims, got...)
		if at >= 0 && (next < 0 || at < next) {
			next = at
		}
		if len(claims) >= r.Max {
			break
		}
	}
	return claims, next, nil
}

func (f *Frontier) claimOf(ctx context.Context, number int, r ClaimRequest, n int) (claims []Claim, next int64, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return nil, 0, err
	}
	defer release()
	now := f.now()
	queues, next, err := s.coord.Claim(ctx, r.Crawl, now, (n+r.PerQueue-1)/r.PerQueue, r.PerQueue, f.o.Delay)
	if err != nil || len(queues) == 0 {
		return nil, next, err
	}
	until := now + f.o.Lease.Milliseconds()
	var leases []coord.Lease
	var empty []string
	for _, queue := range queues {
		taken, left, err := s.files.Take(queue, min(r.PerQueue, n-len(claims)))
		if err != nil {
			return nil, 0, err
		}
		for _, e := range taken {
			l := coord.Lease{Token: uint64(s.coord.Epoch)<<32 | uint64(s.counter.Add(1)), Seq: e.Seq, Queue: queue}
			leases = append(leases, l)
			claims = append(claims, Claim{
				Lease: formatLease(number, l), URL: e.URL, Crawl: r.Crawl, Key: queue[len(r.Crawl)+1:], Depth: e.Depth,
				Priority: e.Priority, Tries: e.Tries, Metadata: e.Metadata, Expires: time.UnixMilli(until),
			})
		}
		if left == 0 {
			empty = append(empty, queue)
		}
	}
	if err := s.coord.Lease(ctx, r.Crawl, now, until, leases, empty); err != nil {
		// Whether Redis has the leases is not known. They end, and nobody else gets the URLs
		// before.
		return nil, 0, err
	}
	// What was added to a queue after it was found empty has woken it before it was taken out.
	if err := f.wakeAgain(ctx, s, empty); err != nil {
		return nil, 0, err
	}
	return claims, -1, nil
}

// wakeAgain wakes those of some queues in which something waits.
func (f *Frontier) wakeAgain(ctx context.Context, s *owned, queues []string) error {
	var waiting []string
	for _, queue := range queues {
		if pending, _ := s.files.Queue(queue); pending > 0 {
			waiting = append(waiting, queue)
		}
	}
	return s.coord.Wake(ctx, f.now(), waiting)
}

// A lease as clients have it: shard, token, sequence number and queue.
func formatLease(number int, l coord.Lease) string {
	b := binary.BigEndian.AppendUint16(nil, uint16(number))
	b = binary.BigEndian.AppendUint64(b, l.Token)
	b = append(binary.BigEndian.AppendUint64(b, l.Seq), l.Queue...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func (f *Frontier) parseLease(s string) (number int, l coord.Lease, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 18 {
		return 0, l, false
	}
	number = int(binary.BigEndian.Uint16(b))
	l = coord.Lease{Token: binary.BigEndian.Uint64(b[2:]), Seq: binary.BigEndian.Uint64(b[10:]), Queue: string(b[18:])}
	return number, l, number < f.o.Shards && number == f.shardOf(l.Queue)
}

// Outcome is what came of a claim.
type Outcome struct {
	Lease string
	// Status is the HTTP status, 0 if there was none; then Error says why.
	Status uint16
	Error  string
	// Content and Redirect are kept with the visit.
	Content, Redirect string
	// RetryAfter is how long the server wants to be left alone, 0 if it did not say.
	RetryAfter time.Duration
}

// SettleResult is what became of an outcome.
type SettleResult string

const (
	// Settled URLs are done.
	Settled SettleResult = "settled"
	// Retried ones wait again: there was no answer, or one of 429 or from 500 on.
	Retried SettleResult = "retried"
	// Ended is the lease's fault: it had ended, or never was.
	Ended SettleResult = "ended"
)

// retries says that a URL with such an outcome is to be fetched again.
func (o *Outcome) retries() bool { return o.Status == 0 || o.Status == 429 || o.Status >= 500 }

// Settle reports what came of claims, and returns a result for each in order. After an error some
// may have been settled.
func (f *Frontier) Settle(ctx context.Context, outcomes []Outcome) ([]SettleResult, error) {
	results := make([]SettleResult, len(outcomes))
	places := make([][]int, f.o.Shards)
	leases := make([][]coord.Lease, f.o.Shards)
	for i := range outcomes {
		results[i] = Ended
		if number, l, ok := f.parseLease(outcomes[i].Lease); ok {
			places[number] = append(places[number], i)
			leases[number] = append(leases[number], l)
		}
	}
	var errs []error
	for number := range places {
		if len(places[number]) > 0 {
			errs = append(errs, f.settle(ctx, number, outcomes, places[number], leases[number], results))
		}
	}
	return results, errors.Join(errs...)
}

func (f *Frontier) settle(ctx context.Context, number int, outcomes []Outcome, places []int, leases []coord.Lease, results []SettleResult) error {
	s, release, err := f.use(number)
	if err != nil {
		return err
	}
	defer release()
	now := f.now()
	live, err := s.coord.Settle(ctx, now, leases)
	if err != nil {
		return err
	}
	var woken []string
	off := map[string]int64{}
	for i, l := range leases {
		if !live[i] {
			continue
		}
		o := &outcomes[places[i]]
		retried, wake, err := f.settleOne(s, l, o, now, off)
		if err != nil {
			return err
		}
		if wake {
			woken = append(woken, l.Queue)
		}
		results[places[i]] = Settled
		if retried {
			results[places[i]] = Retried
		}
	}
	if err := s.files.Commit(); err != nil {
		return err
	}
	if err := s.coord.PutOff(ctx, off); err != nil {
		return err
	}
	if err := s.coord.Wake(ctx, now, woken); err != nil {
		return err
	}
	if !s.mine() {
		return ErrElsewhere
	}
	if len(woken) > 0 {
		f.notify()
	}
	return nil
}

// settleOne settles one lease in the files. Off gets when its queue may be fetched from again.
func (f *Frontier) settleOne(s *owned, l coord.Lease, o *Outcome, now int64, off map[string]int64) (retried, wake bool, err error) {
	e, ok := s.files.Leased(l.Seq)
	if !ok {
		return false, false, fmt.Errorf("shard %d: entry %d has a lease but is not leased", s.number, l.Seq)
	}
	retried = o.retries() && int(e.Tries)+1 < f.o.Tries
	failures := 0
	if o.retries() {
		v, _ := s.failures.LoadOrStore(l.Queue, new(atomic.Int32))
		failures = int(v.(*atomic.Int32).Add(1))
	} else {
		s.failures.Delete(l.Queue)
	}
	wait := o.RetryAfter
	if wait == 0 && failures > 0 {
		wait = min(f.o.Delay<<min(failures, 10), time.Hour)
	}
	if wait > 0 {
		off[l.Queue] = max(off[l.Queue], now+wait.Milliseconds())
	}
	if retried {
		wake, ok, err = s.files.Back(l.Seq, 0)
	} else {
		ok, err = s.files.Done(l.Seq, shard.Visit{Time: now, Status: o.Status, Error: o.Error, Content: o.Content, Redirect: o.Redirect})
	}
	if err == nil && !ok {
		err = fmt.Errorf("shard %d: entry %d is not leased any more", s.number, l.Seq)
	}
	return retried, wake, err
}

// Extend prolongs leases by the frontier's time, and says which had not ended before.
func (f *Frontier) Extend(ctx context.Context, leases []string) (live []bool, until time.Time, err error) {
	live = make([]bool, len(leases))
	until = f.o.Now().Add(f.o.Lease)
	places := make([][]int, f.o.Shards)
	byShard := make([][]coord.Lease, f.o.Shards)
	for i, s := range leases {
		if number, l, ok := f.parseLease(s); ok {
			places[number] = append(places[number], i)
			byShard[number] = append(byShard[number], l)
		}
	}
	for number, part := range byShard {
		if len(part) == 0 {
			continue
		}
		s, release, err := f.use(number)
		if err != nil {
			return live, until, err
		}
		got, err := s.coord.Extend(ctx, f.now(), until.UnixMilli(), part)
		release()
		if err != nil {
			return live, until, err
		}
		for i, ok := range got {
			live[places[number][i]] = ok
		}
	}
	return live, until, nil
}

// tick returns the URLs of leases that have ended to their queues, and promotes what is due.
func (f *Frontier) tick(ctx context.Context) (err error) {
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
	now := f.now()
	woken := s.files.Promote(now)
	ended, err := s.coord.Expire(ctx, now)
	if err != nil {
		return err
	}
	for _, l := range ended {
		wake, _, err := s.files.Back(l.Seq, 0)
		if err != nil {
			return err
		}
		if wake {
			woken = append(woken, l.Queue)
		}
	}
	if err := s.files.Commit(); err != nil {
		return err
	}
	if err := s.coord.Wake(ctx, now, woken); err != nil {
		return err
	}
	if len(woken) > 0 {
		f.notify()
	}
	return s.coord.Forget(ctx, now)
}

// upkeep writes the memory of shards to files. A shard whose files failed is opened again.
func (f *Frontier) upkeep(ctx context.Context) (err error) {
	for _, s := range f.all() {
		func() {
			_, release, used := f.use(s.number)
			if used != nil {
				return
			}
			failed := s.files.Upkeep()
			release()
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("shard %d: %w", s.number, failed), f.drop(s), s.coord.Disown(ctx))
			}
		}()
	}
	return err
}
