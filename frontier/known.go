package frontier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// errReplaced means that the entry of a lease is not the URL's any more: it was updated or deleted.
var errReplaced = errors.New("the entry of this lease was replaced")

// errDeletedLost is not ErrElsewhere: the process that has the shard now would count no URLs.
var errDeletedLost = errors.New("the shard was lost when its URLs were deleted")

// The states of known URLs.
const (
	StateWaiting = "waiting"
	StateLater   = "later"
	StateLeased  = "leased"
	StateDone    = "done"
)

// KnownURL is a URL that was added, with what became of it.
type KnownURL struct {
	URL, Crawl, Key string
	// State is StateWaiting, StateLater, StateLeased or StateDone.
	State    string
	Priority uint16
	Depth    uint32
	Tries    uint32
	Metadata []byte
	// Created is when the URL was added, Due from when on it may be fetched, zero if it is settled
	// or could be fetched already. Fetched and Status are those of the last fetch, zero if there
	// was none.
	Created, Due, Fetched time.Time
	Status                uint16
}

// QueueCounts counts the URLs of a queue.
type QueueCounts struct {
	Crawl, Key string
	shard.Counts
}

// CrawlStats counts the URLs and queues of a crawl, or the URLs of a queue.
type CrawlStats struct {
	shard.Counts
	Queues int64
}

// listAtOnce is how many URLs are read of a shard in one go.
const listAtOnce = 5000

// What the following return of several shards is about those of this process. A shard may be
// another's from one moment to the next, so they return the numbers of those that they have
// covered, in order.

// Crawls returns the crawls that have URLs in this process' shards, in order.
func (f *Frontier) Crawls() (all []string, shards []int) {
	for number := range f.o.Shards {
		if s, release, err := f.use(number); err == nil {
			all, shards = append(all, s.files.Crawls()...), append(shards, number)
			release()
		}
	}
	slices.Sort(all)
	return slices.Compact(all), shards
}

// CrawlStats counts what this process' shards have of a crawl, DefaultCrawl if empty, or of one of
// its queues if there is a key.
func (f *Frontier) CrawlStats(crawl, key string) (sum CrawlStats, shards []int) {
	crawl, queue := names(crawl, key)
	for number := range f.o.Shards {
		if queue != "" && f.shardOf(key) != number {
			continue
		}
		if s, release, err := f.use(number); err == nil {
			c, n := s.files.Count(crawl, queue)
			release()
			sum.Counts, sum.Queues = sum.Plus(c), sum.Queues+n
			shards = append(shards, number)
		}
	}
	return sum, shards
}

// Queues calls yield for each queue of a crawl of this process' shards, in no order, until it
// returns false. Those whose URLs are all settled come only if inactive ones are asked for.
func (f *Frontier) Queues(crawl string, inactive bool, yield func(QueueCounts) bool) (shards []int) {
	crawl, _ = names(crawl, "")
	for number, more := 0, true; number < f.o.Shards && more; number++ {
		s, release, err := f.use(number)
		if err != nil {
			continue
		}
		s.files.Queues(crawl, func(name string, c shard.Counts) bool {
			if inactive || c.All() > c.Done() {
				more = yield(QueueCounts{crawl, name[len(crawl)+1:], c})
			}
			return more
		})
		release()
		if more {
			shards = append(shards, number)
		}
	}
	return shards
}

// names returns the crawl, and the name of the queue of a key, "" without one.
func names(crawl, key string) (of, queue string) {
	if crawl == "" {
		crawl = DefaultCrawl
	}
	if key == "" {
		return crawl, ""
	}
	return crawl, shard.QueueName(crawl, key)
}

// URLs calls yield for each URL of a crawl, or of one of its queues if there is a key, until it
// returns false: shard by shard, in the order of their numbers, whoever serves them. It returns a
// cursor for those that follow, "" after the last; with an empty cursor it begins with the first.
// At a shard that another process serves it stops with ErrElsewhere: that of ListOwner goes on with
// the cursor. A URL that does not change meanwhile comes once. One that is claimed, settled, added
// or comes back may be missed, and one that was due later may come twice.
func (f *Frontier) URLs(crawl, key, cursor string, yield func(KnownURL) bool) (next string, err error) {
	crawl, queue := names(crawl, key)
	number, after, err := f.parseListCursor(key, cursor)
	if err != nil {
		return "", err
	}
	for ; number < f.o.Shards; number, after = number+1, (shard.Cursor{}) {
		var more bool
		if after, more, err = f.urlsOf(number, crawl, queue, after, yield); more {
			return listCursor(number, after), err
		}
		if key != "" {
			break
		}
	}
	return "", nil
}

// ListOwner returns the name of the process that serves the shard at which a list goes on, "" if
// this one does, or none is known.
func (f *Frontier) ListOwner(key, cursor string) (string, error) {
	number, _, err := f.parseListCursor(key, cursor)
	return f.owner(number), err
}

// OwnURLs calls yield for each URL of a crawl, or of one of its queues if there is a key, of this
// process' shards, until it returns false.
func (f *Frontier) OwnURLs(crawl, key string, yield func(KnownURL) bool) (shards []int, err error) {
	crawl, queue := names(crawl, key)
	for number := range f.o.Shards {
		if queue != "" && f.shardOf(key) != number {
			continue
		}
		_, more, err := f.urlsOf(number, crawl, queue, shard.Cursor{}, yield)
		switch {
		case errors.Is(err, ErrElsewhere) && queue == "":
		case err != nil || more:
			return shards, err
		default:
			shards = append(shards, number)
		}
	}
	return shards, nil
}

// urlsOf calls yield for the URLs of a shard that follow a cursor, until it returns false. It
// returns the cursor of the last, and whether there may be more; with an error there may.
func (f *Frontier) urlsOf(number int, crawl, queue string, after shard.Cursor, yield func(KnownURL) bool) (last shard.Cursor, more bool, err error) {
	for {
		s, release, err := f.use(number)
		if err != nil {
			return after, true, err
		}
		list, next, err := s.files.List(crawl, queue, after, listAtOnce)
		release()
		if err != nil {
			return after, true, err
		}
		for i := range list {
			if e := &list[i]; !yield(known(e)) {
				return e.At, true, nil
			}
		}
		if after = next; len(list) == 0 {
			return after, false, nil
		}
	}
}

func listCursor(number int, c shard.Cursor) string {
	b := codec.AppendUvarint(nil, uint64(number))
	return string(codec.AppendUvarint(codec.AppendUvarint(append(b, c.Queue[:]...), c.Class), c.Seq))
}

// parseListCursor returns where a list goes on: an empty cursor is at the first shard, or at that
// of the key.
func (f *Frontier) parseListCursor(key, s string) (number int, c shard.Cursor, err error) {
	if key != "" {
		number = f.shardOf(key)
	}
	if s == "" {
		return number, c, nil
	}
	d := codec.NewDecoder([]byte(s), "cursor", "place")
	at := int(d.Uint(uint64(f.o.Shards - 1)))
	copy(c.Queue[:], d.Bytes(len(c.Queue)))
	c.Class, c.Seq = d.Uvarint(), d.Uvarint()
	if d.Close() != nil || key != "" && at != number {
		return 0, c, ErrCursor
	}
	return at, c, nil
}

func known(e *shard.Listed) KnownURL {
	crawl, key, _ := strings.Cut(e.Queue, "\x00")
	k := KnownURL{
		URL: e.URL, Crawl: crawl, Key: key, Priority: e.Priority, Depth: e.Depth, Tries: e.Tries, Metadata: e.Metadata,
		Created: time.Unix(int64(e.Created), 0).UTC(), Status: e.Status,
	}
	k.State = [...]string{shard.Waiting: StateWaiting, shard.Leased: StateLeased, shard.Later: StateLater, shard.Done: StateDone}[e.State]
	if e.Due > 0 {
		k.Due = time.UnixMilli(e.Due).UTC()
	}
	if e.Fetched > 0 {
		k.Fetched = time.Unix(int64(e.Fetched), 0).UTC()
	}
	return k
}

// Find returns what is known of a URL, in any spelling. Key is the queue's, the domain if empty.
// With ErrElsewhere, Owner says which process knows.
func (f *Frontier) Find(crawl, key, url string) (k KnownURL, ok bool, err error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return k, false, err
	}
	e, reason := f.entry(n, new(texts), &URL{URL: url, Crawl: crawl, Key: key}, nil)
	if reason != "" {
		return k, false, fmt.Errorf("%w: %s", ErrURL, reason)
	}
	s, release, err := f.use(f.shardOf(keyOf(e.Queue)))
	if err != nil {
		return k, false, err
	}
	defer release()
	found, ok, err := s.files.Find(e.Queue, e.URL)
	if !ok || err != nil {
		return k, false, err
	}
	return known(&found), true, nil
}

// DeleteQueue forgets all URLs of a queue, if this process serves it, and returns how many there
// were, settled ones too. They can be added again. Leases of them end. No queue has an empty key.
func (f *Frontier) DeleteQueue(ctx context.Context, crawl, key string) (int64, error) {
	if key == "" { // which would be all queues of the crawl for Purge
		return 0, nil
	}
	n, _, err := f.Purge(ctx, crawl, key, time.Time{})
	return n, err
}

// DeleteCrawl forgets all URLs of a crawl in this process' shards, and returns how many there were.
func (f *Frontier) DeleteCrawl(ctx context.Context, crawl string) (n int64, shards []int, err error) {
	return f.Purge(ctx, crawl, "", time.Time{})
}

// Purge forgets the URLs of a crawl, or of one of its queues if there is a key, that were added
// before a time, to the second; all if it is zero. It returns how many there were in this process'
// shards, settled ones too. After an error some may have been forgotten.
func (f *Frontier) Purge(ctx context.Context, crawl, key string, before time.Time) (n int64, shards []int, err error) {
	crawl, queue := names(crawl, key)
	seconds := uint32(0)
	if !before.IsZero() {
		seconds = uint32(min(max(before.Unix(), 1), math.MaxUint32))
	}
	for number := range f.o.Shards {
		if queue != "" && f.shardOf(key) != number {
			continue
		}
		got, failed := f.purge(number, crawl, queue, seconds)
		n += got
		switch {
		case failed == nil:
			shards = append(shards, number)
		case queue != "" || !elsewhere(failed):
			err = errors.Join(err, failed)
		}
	}
	return n, shards, err
}

func (f *Frontier) purge(number int, crawl, queue string, before uint32) (int64, error) {
	s, release, err := f.use(number)
	if err != nil {
		return 0, err
	}
	defer release()
	done, err := s.files.Delete(crawl, queue, before)
	if err == nil {
		err = s.files.Commit()
	}
	if err == nil {
		f.deleted(s, crawl, &done)
	}
	switch {
	case err != nil || s.mine():
	case done.URLs > 0:
		err = errDeletedLost
	default:
		err = ErrElsewhere
	}
	return done.URLs, err
}

// deleted ends the leases of deleted entries, and lets queues rest in which nothing waits.
func (f *Frontier) deleted(s *owned, crawl string, done *shard.Deleted) {
	gone := make([]uint64, len(done.Ended))
	for i, e := range done.Ended {
		gone[i] = e.Seq
	}
	s.coord.EndEntries(gone)
	keys := make([]string, len(done.Idle))
	for i, name := range done.Idle {
		keys[i] = keyOf(name)
	}
	s.coord.Idle(crawl, keys)
	// What was added in between has woken its queue before it was taken out.
	f.wakeAgain(s, done.Idle)
}

// endTokenless ends the leases of replaced entries that have no token. The others end when they are
// reported, or in time.
func (s *owned) endTokenless(ended []*shard.Entry) {
	leases := make([]coord.Lease, len(ended))
	for i, e := range ended {
		leases[i] = coord.NewLease(0, e.Seq, e.Queue)
	}
	s.coord.End(leases)
}

// promote puts what is due into its queues, until there is no more or memory is full.
func (f *Frontier) promote(s *owned, now int64) error {
	for range 1000 {
		woken, more, err := s.files.Promote(now, veryMuch)
		if f.wake(s, woken); err != nil || !more {
			return err
		}
	}
	return nil
}
