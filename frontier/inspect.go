package frontier

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/shard"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// ErrURL means that a URL has no canonical form.
var ErrURL = errors.New("no URL that can be fetched")

// ErrCursor means that a cursor is none of this frontier's.
var ErrCursor = errors.New("the cursor is none of this frontier's")

// SeenState is what the frontier knows of a URL.
type SeenState struct {
	// URL is canonical.
	URL  string
	Seen bool
	// Settled URLs do not wait any more. Status and Fetched are those of the last fetch.
	Settled bool
	Status  uint16
	Fetched time.Time
	// Owner is the process that knows, with ErrElsewhere; "" if none does at the moment.
	Owner string
}

// Seen says whether a URL was ever added to a crawl and not deleted, and what became of it. Key is
// the queue's, if it is not the domain.
func (f *Frontier) Seen(crawl, key, url string) (SeenState, error) {
	n, err := urlnorm.New(f.list, urlnorm.Options{})
	if err != nil {
		return SeenState{}, err
	}
	e, reason := f.entry(n, new(texts), &URL{URL: url, Crawl: crawl, Key: key}, nil)
	if reason != "" {
		return SeenState{}, fmt.Errorf("%w: %s", ErrURL, reason)
	}
	s, release, err := f.use(f.shardOf(keyOf(e.Queue)))
	if err != nil {
		return SeenState{Owner: f.owner(f.shardOf(keyOf(e.Queue)))}, err
	}
	defer release()
	st, ok := s.files.Seen(e.Queue, e.URL)
	got := SeenState{URL: e.URL, Seen: ok, Settled: st.Settled, Status: st.Status}
	if st.Time > 0 {
		got.Fetched = time.Unix(int64(st.Time), 0).UTC()
	}
	return got, nil
}

// Visit is the outcome of a fetch.
type Visit struct {
	URL, Crawl, Key          string
	Time                     time.Time
	Status                   uint16
	Error, Content, Redirect string
	Depth                    uint32
}

// visitsAtOnce is how many visits are read before others may use the shard.
const visitsAtOnce = 1000

// Visited calls yield for up to limit visits of this process' shards since a time and until
// another, of each shard in the order in which they came, until it returns false. That is the order
// of their times but for imported ones. It returns a cursor for those that follow; with an empty
// cursor it begins with the first. It returns the numbers of the shards of which no visits follow
// for now. A yield that takes its time stops nobody else. ErrCursor comes before the first visit.
func (f *Frontier) Visited(since, until time.Time, cursor string, limit int, yield func(Visit) bool) (next string, shards []int, err error) {
	at, err := f.parsePositions(cursor)
	if err != nil {
		return "", nil, err
	}
	from := int64(0)
	if !since.IsZero() {
		from = since.UnixMilli()
	}
	end := int64(1) << 62
	if !until.IsZero() {
		end = until.UnixMilli()
	}
	batch := make([]Visit, 0, min(limit, visitsAtOnce))
	left := true
	for number := 0; number < f.o.Shards && limit > 0 && left; {
		var more bool
		batch, more, err = f.visitsOf(number, from, end, &at[number], batch[:0], min(limit, visitsAtOnce))
		switch {
		case err == nil && !more:
			shards = append(shards, number)
		case err != nil && !errors.Is(err, ErrElsewhere):
			return "", nil, err
		}
		for i := 0; i < len(batch) && left; i++ {
			left = yield(batch[i])
		}
		limit -= len(batch)
		if !more {
			number++
		}
	}
	var b []byte
	for _, n := range at {
		b = codec.AppendUvarint(b, uint64(n))
	}
	return string(b), shards, nil
}

// parsePositions returns the positions of a cursor in all shards. ErrCursor means that one of this
// process has fewer visits.
func (f *Frontier) parsePositions(cursor string) ([]int64, error) {
	at := make([]int64, f.o.Shards)
	if cursor == "" {
		return at, nil
	}
	d := codec.NewDecoder([]byte(cursor), "cursor", "positions")
	for i := range at {
		at[i] = int64(d.Uint(math.MaxInt64))
	}
	if d.Close() != nil {
		return nil, ErrCursor
	}
	for number, n := range at {
		s, release, err := f.use(number)
		if err != nil {
			continue // another process knows
		}
		count := s.files.Stats().Visits
		release()
		if n > count {
			return nil, ErrCursor
		}
	}
	return at, nil
}

// visitsOf appends up to n visits of a shard to batch, and moves the position behind them. More
// says that there may be others. With ErrElsewhere there are none.
func (f *Frontier) visitsOf(number int, from, end int64, at *int64, batch []Visit, n int) (all []Visit, more bool, err error) {
	s, release, err := f.use(number)
	if err != nil {
		return batch, false, err
	}
	defer release()
	looked := 0
	*at, err = s.files.Visits(from, *at, func(_ int64, v shard.Visit) bool {
		if more = len(batch) == n || looked == visitsAtOnce; more {
			return false
		}
		looked++
		if v.Time < from || v.Time >= end { // imported visits are not in the order of their times
			return true
		}
		crawl, key, _ := strings.Cut(v.Queue, "\x00")
		batch = append(batch, Visit{v.URL, crawl, key, time.UnixMilli(v.Time).UTC(), v.Status, v.Error, v.Content, v.Redirect, DepthOf(v.Depth)})
		return true
	})
	if errors.Is(err, shard.ErrPosition) {
		err = ErrCursor
	}
	return batch, more, err
}

// Stats counts what the shards of this process have.
type Stats struct {
	Shards int
	shard.Stats
}

// Stats counts what the shards of this process have.
func (f *Frontier) Stats() (sum Stats) {
	for _, s := range f.all() {
		_, release, err := f.use(s.number)
		if err != nil {
			continue
		}
		st := s.files.Stats()
		release()
		sum.Shards++
		sum.Queues += st.Queues
		sum.Pending += st.Pending
		sum.Leased += st.Leased
		sum.Later += st.Later
		sum.Done += st.Done
		sum.Visits += st.Visits
		sum.Memory += st.Memory
		sum.Runs += st.Runs
		sum.SeenFiles += st.SeenFiles
	}
	return sum
}
