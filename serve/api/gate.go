package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gate admits the requests of one kind. It bounds the memory that their answers take, from before
// they are made until they are sent, and how many are made at once. What does not fit waits in a
// queue that is bounded too, in length and in time. Clients with waiting requests take turns. No
// client has more than half of the gate, unless that is one request alone, or answers that have
// turned out larger while nobody else waits. If there is no room for a while, those are cut that
// are slow to send or to receive.
type gate struct {
	name string
	// budget is the memory in bytes, slots how many answers are made at once, queue how many
	// requests wait at most, and wait for how long.
	budget int64
	slots  int
	queue  int
	wait   time.Duration
	// waits observes how long admitted requests have waited, in seconds.
	waits prometheus.Observer
	shed  [shedReasons]atomic.Int64

	mu      sync.Mutex
	used    int64 // of budget
	working int   // of slots
	waiting int
	holders map[client]*holder
	// urgent are requests that were admitted before and need more. They go first.
	urgent []*waiter
	// turns are the clients whose requests wait, in the order of their turns.
	turns []*holder
	// moving are the tickets of requests that are being received, or whose answers are being sent.
	moving map[*ticket]*Transfer
}

// looks is how often a request that waits looks for slow clients to cut, and then gives up.
const looks = 4

// holder is a client with requests at a gate, admitted or waiting.
type holder struct {
	client   client
	used     int64
	working  int
	admitted int
	waiting  []*waiter
}

// waiter is a request that waits for bytes, for a slot, or for both.
type waiter struct {
	holder *holder
	bytes  int64
	slot   bool
	// held is what its request holds already.
	held int64
	// ready is closed when the request is admitted, or else evicted.
	ready   chan struct{}
	evicted bool
}

// The reasons to shed a request.
type shedReason int

const (
	// shedFull: no room in the queue, or none at the gate within the time.
	shedFull shedReason = iota
	// shedClient: it was the client's own requests that left no room.
	shedClient
	// shedSlow: the client was slow to send or to receive, and others waited for the memory.
	shedSlow
	shedReasons
)

func (s shedReason) String() string { return [...]string{"full", "client", "slow"}[s] }

// ticket is an admitted request. It holds bytes of the gate, and a slot while the answer is made.
type ticket struct {
	gate    *gate
	holder  *holder
	bytes   int64
	working bool
}

// shedProblem is the answer to a shed request.
func shedProblem(reason shedReason) *problem {
	if reason == shedClient {
		return newProblem(http.StatusTooManyRequests, "too-many-requests", "This client has too many requests in flight",
			"wait for answers before you ask for more, read them faster, or ask for smaller pages; retry after the time in Retry-After")
	}
	return newProblem(http.StatusServiceUnavailable, "overloaded", "The server has no room for this request now",
		"retry after the time in Retry-After; smaller pages find room sooner")
}

// acquire admits a request for an answer that takes the given memory, at once or when there is
// room. The error is a problem if there is none in time, or that of ctx.
func (g *gate) acquire(ctx context.Context, c client, bytes int64) (*ticket, error) {
	g.mu.Lock()
	h := g.holders[c]
	if h == nil {
		h = &holder{client: c}
		g.holders[c] = h
	}
	w := waiter{holder: h, bytes: bytes, slot: true}
	if len(g.turns) == 0 && len(g.urgent) == 0 && g.fits(&w) && g.fitsClient(&w) {
		g.take(h, bytes, true)
		h.admitted++
		g.mu.Unlock()
		g.waits.Observe(0)
		return &ticket{g, h, bytes, true}, nil
	}
	queued := w // so that w needs no memory of its own
	queued.ready = make(chan struct{})
	if reason, ok := g.enqueue(&queued); !ok {
		g.forget(h)
		g.mu.Unlock()
		g.shed[reason].Add(1)
		return nil, shedProblem(reason)
	}
	g.dispatch()
	g.mu.Unlock()
	started := time.Now()
	if err := g.await(ctx, &queued); err != nil {
		return nil, err
	}
	g.waits.Observe(time.Since(started).Seconds())
	return &ticket{g, h, bytes, true}, nil
}

// enqueue puts w at the end of its client's queue. If the queue of the gate is full, the client
// with the longest one loses its last request.
func (g *gate) enqueue(w *waiter) (reason shedReason, ok bool) {
	h := w.holder
	if len(h.waiting) >= max(1, g.queue/2) {
		return shedClient, false
	}
	if g.waiting >= g.queue {
		longest := h
		for _, other := range g.turns {
			if len(other.waiting) > len(longest.waiting)+1 {
				longest = other
			}
		}
		switch {
		case longest != h:
			last := longest.waiting[len(longest.waiting)-1]
			g.leave(last)
			last.evicted = true
			close(last.ready)
		case len(h.waiting) > 0:
			return shedClient, false
		default:
			return shedFull, false
		}
	}
	if len(h.waiting) == 0 {
		g.turns = append(g.turns, h)
	}
	h.waiting = append(h.waiting, w)
	g.waiting++
	return 0, true
}

// leave takes w out of the queue, and reports whether it was there.
func (g *gate) leave(w *waiter) bool {
	if i := slices.Index(g.urgent, w); i >= 0 {
		g.urgent = slices.Delete(g.urgent, i, i+1)
		return true
	}
	h := w.holder
	i := slices.Index(h.waiting, w)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	g.waiting--
	if len(h.waiting) == 0 {
		i = slices.Index(g.turns, h)
		g.turns = slices.Delete(g.turns, i, i+1)
	}
	g.forget(h)
	return true
}

// await waits until w is admitted.
func (g *gate) await(ctx context.Context, w *waiter) error {
	timer := time.NewTicker(max(1, g.wait/looks))
	defer timer.Stop()
	for look, waits := 1, true; waits; look++ {
		select {
		case <-w.ready:
			waits = false
		case <-timer.C:
			if look < looks {
				g.relieve(w)
				continue
			}
			if reason, left := g.giveUp(w); left {
				g.shed[reason].Add(1)
				return shedProblem(reason)
			}
			waits = false
		case <-ctx.Done():
			if _, left := g.giveUp(w); left {
				return context.Cause(ctx)
			}
			waits = false
		}
	}
	if w.evicted {
		g.shed[shedClient].Add(1)
		return shedProblem(shedClient)
	}
	return nil
}

// relieve cuts clients that are slower than they should be while w waits, the slowest first, until
// there will be room.
func (g *gate) relieve(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-w.ready:
		return
	default:
	}
	if !g.fitsClient(w) {
		return
	}
	short := g.used + w.bytes - g.budget
	type slow struct {
		transfer *Transfer
		speed    float64
		bytes    int64
	}
	var all []slow
	for t, x := range g.moving {
		speed, known, evicted := x.Speed()
		switch {
		case evicted:
			short -= t.bytes // soon
		case known && speed < float64(x.Fair):
			all = append(all, slow{x, speed, t.bytes})
		}
	}
	slices.SortFunc(all, func(a, b slow) int { return cmp.Compare(a.speed, b.speed) })
	for ; short > 0 && len(all) > 0; all = all[1:] {
		all[0].transfer.Evict()
		g.shed[shedSlow].Add(1)
		short -= all[0].bytes
	}
}

// giveUp takes w out of its queue, and says what was in its way. It reports false if w was not
// there any more: it was admitted or evicted.
func (g *gate) giveUp(w *waiter) (reason shedReason, left bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fits(w) {
		reason = shedClient // only its own requests
	}
	left = g.leave(w)
	g.dispatch() // it may have been in the way of others
	return reason, left
}

// fits reports whether the gate has room. One request that is larger than the gate fits alone.
func (g *gate) fits(w *waiter) bool {
	return (w.bytes == 0 || g.used == 0 || g.used+w.bytes <= g.budget) && (!w.slot || g.working < g.slots)
}

// fitsClient reports whether w is within the share of its client.
func (g *gate) fitsClient(w *waiter) bool {
	h := w.holder
	return (w.bytes == 0 || h.used == w.held || h.used+w.bytes <= g.budget/2) &&
		(!w.slot || h.working < max(1, g.slots/2))
}

// othersWait reports whether clients other than h have waiting requests.
func (g *gate) othersWait(h *holder) bool {
	return len(g.turns) > 1 || len(g.turns) == 1 && g.turns[0] != h ||
		slices.ContainsFunc(g.urgent, func(w *waiter) bool { return w.holder != h })
}

func (g *gate) take(h *holder, bytes int64, slot bool) {
	g.used += bytes
	h.used += bytes
	if slot {
		g.working++
		h.working++
	}
}

// forget removes a client that has nothing at the gate.
func (g *gate) forget(h *holder) {
	if h.admitted == 0 && len(h.waiting) == 0 {
		delete(g.holders, h.client)
	}
}

// dispatch admits the requests that fit now.
func (g *gate) dispatch() {
	for i := 0; i < len(g.urgent); {
		w := g.urgent[i]
		if !g.fitsClient(w) && g.othersWait(w.holder) {
			i++
			continue
		}
		if !g.fits(w) {
			return // nobody else may take what it waits for
		}
		g.urgent = slices.Delete(g.urgent, i, i+1)
		g.take(w.holder, w.bytes, w.slot)
		close(w.ready)
	}
	for skipped := 0; skipped < len(g.turns); {
		h := g.turns[0]
		w := h.waiting[0]
		if !g.fits(w) {
			return // a large request is not overtaken for ever by small ones
		}
		g.turns = g.turns[1:]
		if !g.fitsClient(w) {
			g.turns = append(g.turns, h)
			skipped++
			continue
		}
		skipped = 0
		h.waiting = slices.Delete(h.waiting, 0, 1)
		g.waiting--
		if len(h.waiting) > 0 {
			g.turns = append(g.turns, h)
		}
		g.take(h, w.bytes, true)
		h.admitted++
		close(w.ready)
	}
}

// grow makes the ticket hold at least the given memory. It waits like acquire.
func (t *ticket) grow(ctx context.Context, bytes int64) error {
	g := t.gate
	g.mu.Lock()
	more := bytes - t.bytes
	if more <= 0 {
		g.mu.Unlock()
		return nil
	}
	// What is larger than the gate waits until nobody else has anything.
	if bytes > g.budget {
		more = max(0, g.budget-t.bytes)
	}
	w := &waiter{holder: t.holder, bytes: more, held: t.bytes, ready: make(chan struct{})}
	g.urgent = append(g.urgent, w)
	g.dispatch()
	g.mu.Unlock()
	if err := g.await(ctx, w); err != nil {
		return err
	}
	t.bytes += more
	return nil
}

// pause gives the slot to others while the answer waits for its client.
func (t *ticket) pause() {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	t.stop()
	g.dispatch()
}

// stop ends the work on the answer. The caller holds gate.mu.
func (t *ticket) stop() {
	if t.working {
		t.working = false
		t.gate.working--
		t.holder.working--
	}
}

// resume takes a slot again, as soon as one is free.
func (t *ticket) resume(ctx context.Context) error {
	g := t.gate
	w := &waiter{holder: t.holder, slot: true, ready: make(chan struct{})}
	g.mu.Lock()
	g.urgent = append(g.urgent, w)
	g.dispatch()
	g.mu.Unlock()
	select {
	case <-w.ready:
	case <-ctx.Done():
		g.mu.Lock()
		left := g.leave(w)
		g.mu.Unlock()
		if left {
			return context.Cause(ctx)
		}
	}
	t.working = true
	return nil
}

// made ends the work on the answer, which takes the given memory until it is sent.
func (t *ticket) made(bytes int64) {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	t.stop()
	t.set(bytes)
	g.dispatch()
}

// shrink makes the ticket hold no more than the given memory.
func (t *ticket) shrink(bytes int64) {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if bytes < t.bytes {
		t.set(bytes)
		g.dispatch()
	}
}

// set changes what the ticket holds. The caller holds gate.mu.
func (t *ticket) set(bytes int64) {
	t.gate.used += bytes - t.bytes
	t.holder.used += bytes - t.bytes
	t.bytes = bytes
}

// moves tells the gate what the client sends or receives while it has the ticket.
func (t *ticket) moves(x *Transfer) {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	g.moving[t] = x
}

// release ends the request.
func (t *ticket) release() {
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	t.stop()
	t.set(0)
	delete(g.moving, t)
	t.holder.admitted--
	g.forget(t.holder)
	g.dispatch()
}

// gateStats are the state of a gate for metrics.
type gateStats struct {
	used, budget, admitted, working, waiting int64
}

func (g *gate) stats() (s gateStats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holders {
		s.admitted += int64(h.admitted)
	}
	s.used, s.budget, s.working, s.waiting = g.used, g.budget, int64(g.working), int64(g.waiting+len(g.urgent))
	return s
}
