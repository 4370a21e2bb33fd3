package frontier

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/urlake/urlake/frontier/coord"
)

const (
	// togetherMax bounds the URLs of requests that are worked on together.
	togetherMax = 1000
	// claimTurns is how many claims of a kind there are at the same time: while one waits for Redis
	// another one reads files. Results are settled shard by shard, so these take turns.
	claimTurns  = 2
	settleTurns = 1
)

// together lets requests of a kind that come at the same time share calls to Redis and writes of
// the journal, which cost more than the URLs of one request do. A request that comes alone waits
// for nothing.
type together[K comparable, J any] struct {
	turns int
	mu    sync.Mutex
	kinds map[K]*togetherQueue[J]
	// left is how many URLs requests were about that still waited when some were begun last.
	left atomic.Int64
	// crowded says that several requests were worked on together last.
	crowded atomic.Bool
}

// behind is for how many more turns requests wait than for the next.
func (g *together[K, J]) behind() float64 { return float64(g.left.Load()) / togetherMax }

// togetherQueue are the requests of a kind that wait, the first one first, and how many goroutines
// work on some.
type togetherQueue[J any] struct {
	waiting []*turn[J]
	running int
}

// turn is a request that waits until done is closed. Size is how many URLs it is about.
type turn[J any] struct {
	job  J
	size int
	done chan struct{}
}

// do returns when work was called with the request, and perhaps others.
func (g *together[K, J]) do(kind K, size int, job J, work func(jobs []J)) {
	t := &turn[J]{job, size, make(chan struct{})}
	g.mu.Lock()
	if g.kinds == nil {
		g.kinds = map[K]*togetherQueue[J]{}
	}
	q := g.kinds[kind]
	if q == nil {
		q = &togetherQueue[J]{}
		g.kinds[kind] = q
	}
	q.waiting = append(q.waiting, t)
	lead := q.running < g.turns
	if lead {
		q.running++
	}
	g.mu.Unlock()
	if lead {
		g.lead(kind, q, work)
	}
	<-t.done
}

// lead works on the first requests that wait, and lets another goroutine do so with the next.
func (g *together[K, J]) lead(kind K, q *togetherQueue[J], work func(jobs []J)) {
	if g.crowded.Load() {
		runtime.Gosched() // requests that are read, and wait for a processor, come along
	}
	g.mu.Lock()
	n, size := 0, 0
	var jobs []J
	for n < len(q.waiting) && (n == 0 || size+q.waiting[n].size <= togetherMax) {
		size += q.waiting[n].size
		jobs = append(jobs, q.waiting[n].job)
		n++
	}
	turns := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	left := 0
	for _, t := range q.waiting {
		left += t.size
	}
	g.left.Store(int64(left))
	g.crowded.Store(n > 1)
	g.mu.Unlock()
	defer func() { // also if work panics
		for _, t := range turns {
			close(t.done)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(q.waiting) > 0 {
			go g.lead(kind, q, work)
			return
		}
		if q.running--; q.running == 0 {
			delete(g.kinds, kind)
		}
	}()
	if n > 0 {
		work(jobs)
	}
}

// claimJob is a request that claims up to max URLs, and its answer, which is appended to claims.
type claimJob struct {
	max    int
	claims []Claim
	next   int64
	err    error
}

// claimed keeps the memory of claims that were divided among requests.
var claimed = sync.Pool{New: func() any { return new([]Claim) }}

// claimTogether does what claim does.
func (f *Frontier) claimTogether(ctx context.Context, to []Claim, r ClaimRequest) ([]Claim, int64, error) {
	job := &claimJob{max: r.Max, claims: to, err: errInterrupted}
	kind := r // what requests have to share
	kind.Max, kind.Wait = 0, 0
	ctx = context.WithoutCancel(ctx)
	f.claims.do(kind, r.Max, job, func(jobs []*claimJob) {
		r := kind
		for _, j := range jobs {
			r.Max += j.max
		}
		list := claimed.Get().(*[]Claim)
		all, next, err := f.claim(ctx, *list, r)
		left := all
		for _, j := range jobs {
			n := min(j.max, len(left))
			j.claims, left = append(j.claims, left[:n]...), left[n:]
			j.next, j.err = next, nil
			if n == 0 {
				j.err = err
			}
		}
		clear(all) // so that the texts are free
		*list = all[:0]
		claimed.Put(list)
	})
	return job.claims, job.next, job.err
}

// errInterrupted is the error of requests whose work has panicked.
var errInterrupted = errors.New("the request was not worked on; send it again")

// settleJob is what a request reports of leases of a shard. Places are those of their outcomes and
// results in the request.
type settleJob struct {
	outcomes []Outcome
	results  []SettleResult
	places   []int
	leases   []coord.Lease
	err      error
}

// settling are leases of a shard that are settled together, each with its outcome, what that says
// of the server, and where the result goes.
type settling struct {
	leases   []coord.Lease
	outcomes []*Outcome
	reports  []coord.Report
	results  []*SettleResult
	seqs     []uint64 // of the leases that had not ended
}

// settlings keeps the memory of what was settled for what is settled next.
var settlings = sync.Pool{New: func() any { return new(settling) }}

func (s *settling) done() {
	clear(s.leases) // so that the texts are free
	clear(s.outcomes)
	clear(s.results)
	*s = settling{s.leases[:0], s.outcomes[:0], s.reports[:0], s.results[:0], s.seqs[:0]}
	settlings.Put(s)
}

// settleTogether settles leases of a shard.
func (f *Frontier) settleTogether(ctx context.Context, number int, job *settleJob) error {
	ctx = context.WithoutCancel(ctx)
	f.settles.do(number, len(job.places), job, func(jobs []*settleJob) {
		all := settlings.Get().(*settling)
		for _, j := range jobs {
			all.leases = append(all.leases, j.leases...)
			for _, i := range j.places {
				all.outcomes, all.results = append(all.outcomes, &j.outcomes[i]), append(all.results, &j.results[i])
			}
		}
		err := f.settle(ctx, number, all)
		for _, j := range jobs {
			j.err = err
		}
		all.done()
	})
	return job.err
}
