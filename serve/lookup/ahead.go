package lookup

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// DefaultWarm is how many of the domains that are asked for most a server has in its caches
	// before it serves a new version.
	DefaultWarm = 1000
	// warmTimeout is how long a new version waits for that, and warmParallel how many domains are
	// read at once.
	warmTimeout  = 2 * time.Second
	warmParallel = 8
	// aheadAtOnce is how many pages are read ahead at once. What is beyond is not.
	aheadAtOnce = 4
)

// ahead reads what will be asked for.
type ahead struct {
	// names counts domains, and domains with a dataset, as they are asked for.
	names *hotCounter

	room    *semaphore.Weighted // one for each page that is read ahead
	ctx     context.Context     // ends when the server is closed
	stop    context.CancelFunc
	running sync.WaitGroup

	stats struct{ warmed, late, time, pages, skipped, cancelled atomic.Int64 }
}

// AheadStats count what a server has read before it was asked for.
type AheadStats struct {
	// Warmed are domains, and domains of a dataset, that were read before a version was served.
	// Late are those for which there was no time, or that could not be read. WarmTime is how long
	// versions waited for them.
	Warmed, Late int64
	WarmTime     time.Duration
	// Pages were read ahead, Skipped were not because others were being read, and Cancelled were
	// given up because nobody waits for them any more, or failed.
	Pages, Skipped, Cancelled int64
	// Hot is how many names are counted.
	Hot int64
}

func newAhead(warm int) *ahead {
	a := &ahead{names: newHot(warm), room: semaphore.NewWeighted(aheadAtOnce)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

func (a *ahead) close() {
	a.stop()
	a.running.Wait()
}

func (a *ahead) counts() AheadStats {
	st := &a.stats
	return AheadStats{
		Warmed: st.warmed.Load(), Late: st.late.Load(), WarmTime: time.Duration(st.time.Load()),
		Pages: st.pages.Load(), Skipped: st.skipped.Load(), Cancelled: st.cancelled.Load(), Hot: int64(a.names.Len()),
	}
}

// Turns are those of heavy work at the processors.
func (s *Server) Turns() *turns.Turns { return s.turns }

// Asked counts that a domain, or a list by its ListName, was asked for, without being looked up.
func (s *Server) Asked(name string) { s.ahead.names.Note(name) }

// ListName is how the list of a domain in a dataset is counted. Domains have no zero byte.
func ListName(domain string, dataset uint32) string {
	return domain + "\x00" + strconv.FormatUint(uint64(dataset), 10)
}

// warm reads what is asked for most, as the new version has it: the totals of domains, and the
// first pages of lists. What it cannot read now, requests read later.
func (s *Server) warm(ctx context.Context, open *openVersion) {
	names := s.ahead.names.Top()
	if len(names) == 0 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	next := make(chan string)
	var workers sync.WaitGroup
	for range warmParallel {
		workers.Go(func() {
			ctx, turn := turns.With(ctx, s.turns)
			defer turn.Give()
			for name := range next {
				turn.Give() // a list takes turns of its own
				if err := contain(func() error { return open.warm(ctx, name) }); err == nil {
					s.ahead.stats.warmed.Add(1)
				} else {
					s.ahead.stats.late.Add(1)
				}
			}
		})
	}
	for i, name := range names {
		if ctx.Err() != nil {
			s.ahead.stats.late.Add(int64(len(names) - i))
			break
		}
		next <- name
	}
	close(next)
	workers.Wait()
	s.ahead.stats.time.Add(int64(time.Since(began)))
}

// warm reads what one name stands for.
func (s *openVersion) warm(ctx context.Context, name string) error {
	v, err := s.view(ctx)
	if err != nil {
		return err
	}
	snap := v.whole
	domain, dataset, isList := strings.Cut(name, "\x00")
	if !isList {
		if err := turns.Own(ctx).Yield(ctx); err != nil {
			return err
		}
		_, err := snap.domainPage(ctx, v, resolved{domain: domain, key: segment.KeyOf(domain)}, 0)
		return err
	}
	id, err := strconv.ParseUint(dataset, 10, 32)
	if err != nil {
		return err
	}
	if _, ok := snap.Dataset(uint32(id)); !ok {
		return nil
	}
	l := &List{
		s: snap, v: v, r: resolved{domain: domain, key: segment.KeyOf(domain)},
		q: URLsQuery{Dataset: uint32(id), Limit: DefaultLimit},
	}
	_, err = l.next(ctx, DefaultLimit)
	return err
}

// readAhead reads the rows of the next page of a list into the cache, while the page before is
// being sent. It gives up when the context until ends, and does nothing if others are being read
// ahead.
func (l *List) readAhead(ctx, until context.Context, limit int) {
	a := l.s.server.ahead
	if l.done || l.cursor == nil || l.q.Unique || !l.q.Selection.All() {
		return
	}
	if !a.room.TryAcquire(1) {
		a.stats.skipped.Add(1)
		return
	}
	if a.ctx.Err() != nil || !l.s.retain() {
		a.room.Release(1)
		return
	}
	s, v, q, at := l.s, l.v, l.q, *l.cursor
	q.Limit = limit
	key := l.r.key
	ctx, cancel := context.WithTimeout(turns.Detached(a.ctx, ctx), s.server.opt.Deadline)
	stop := context.AfterFunc(until, cancel)
	a.running.Go(func() {
		defer a.room.Release(1)
		defer s.Release()
		defer cancel()
		defer stop()
		err := contain(func() error {
			p, err := s.plan(ctx, v, key, q, &at)
			if err != nil {
				return err
			}
			runs, _, err := s.runs(ctx, p.pieces, q.Columns)
			if err != nil {
				return err
			}
			group, ctx := newGroup(ctx)
			for i := range runs {
				group.Go(func() error { return s.load(ctx, &runs[i]) })
			}
			return group.Wait()
		})
		if err == nil {
			a.stats.pages.Add(1)
		} else {
			a.stats.cancelled.Add(1) // the request for the page finds out why
		}
	})
}
