package api

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/urlake/urlake/internal/testenv"
)

// testGate is a gate whose waits are long unless a test shortens them.
func testGate(budget int64, slots, queue int) *gate {
	return &gate{
		name: "test", budget: budget, slots: slots, queue: queue, wait: time.Hour,
		waits:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "waits"}),
		holders: map[client]*holder{}, moving: map[*ticket]*Transfer{},
	}
}

func clientNumber(n byte) client { return client{addr: netip.AddrFrom4([4]byte{192, 0, 2, n})} }

// until waits until f is true of the gate's state.
func (g *gate) until(t *testing.T, what string, f func(gateStats) bool) {
	t.Helper()
	testenv.Until(t, what, func() bool { return f(g.stats()) })
}

// admitted takes a ticket that must be there at once.
func (g *gate) admitted(t *testing.T, c client, bytes int64) *ticket {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits
	ticket, err := g.acquire(ctx, c, bytes)
	if err != nil {
		t.Fatalf("not admitted: %v, %+v", err, g.stats())
	}
	return ticket
}

func status(t *testing.T, err error) int {
	t.Helper()
	var p *problem
	if !errors.As(err, &p) {
		t.Fatalf("%v is no problem", err)
	}
	return p.status
}

func TestGateSheds(t *testing.T) {
	g := testGate(100, 4, 2)
	one := g.admitted(t, clientNumber(1), 50)
	two := g.admitted(t, clientNumber(2), 50)
	// Nobody waits longer than the gate allows.
	g.wait = 0
	if _, err := g.acquire(t.Context(), clientNumber(3), 1); status(t, err) != 503 {
		t.Errorf("a full gate: %v", err)
	}
	// A client that has half of the gate is told that it is its own fault.
	two.release()
	if _, err := g.acquire(t.Context(), clientNumber(1), 1); status(t, err) != 429 {
		t.Errorf("a client with half of the gate: %v", err)
	}
	g.wait = time.Hour
	two = g.admitted(t, clientNumber(2), 50)
	// The queue is full with two. A third one is shed at once, and so is a second one of a client.
	var waiting sync.WaitGroup
	for n := byte(3); n <= 4; n++ {
		waiting.Go(func() {
			ticket, err := g.acquire(t.Context(), clientNumber(n), 50)
			if err != nil {
				t.Error(err)
				return
			}
			ticket.release()
		})
	}
	g.until(t, "two wait", func(s gateStats) bool { return s.waiting == 2 })
	if _, err := g.acquire(t.Context(), clientNumber(5), 1); status(t, err) != 503 {
		t.Errorf("a full queue: %v", err)
	}
	if _, err := g.acquire(t.Context(), clientNumber(3), 1); status(t, err) != 429 {
		t.Errorf("a client with its share of the queue: %v", err)
	}
	one.release()
	two.release()
	waiting.Wait()
	// A client that goes leaves no trace.
	one = g.admitted(t, clientNumber(1), 100)
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting.Go(func() {
		if _, err := g.acquire(ctx, clientNumber(2), 50); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: %v", err)
		}
	})
	g.until(t, "one waits", func(s gateStats) bool { return s.waiting == 1 })
	cancel(nil)
	waiting.Wait()
	one.release()
	if s := g.stats(); s.used != 0 || s.admitted != 0 || s.working != 0 || s.waiting != 0 || len(g.holders) != 0 || len(g.turns) != 0 {
		t.Errorf("an empty gate holds %+v, %d clients", s, len(g.holders))
	}
	if full, own := g.shed[shedFull].Load(), g.shed[shedClient].Load(); full != 2 || own != 2 {
		t.Errorf("%d and %d were counted as shed", full, own)
	}
}

// A client with a long queue makes room for another one, whose turn comes before the rest of it.
func TestGateIsFair(t *testing.T) {
	g := testGate(100, 100, 8)
	first := g.admitted(t, clientNumber(9), 100)
	order := make(chan byte, 10)
	var done sync.WaitGroup
	ask := func(n byte) {
		before := g.stats().waiting
		done.Go(func() {
			ticket, err := g.acquire(t.Context(), clientNumber(n), 100)
			if err != nil {
				if status(t, err) != 429 {
					t.Errorf("client %d: %v", n, err)
				}
				return
			}
			order <- n
			ticket.release()
		})
		g.until(t, "it waits, in the place of another one", func(s gateStats) bool { return s.waiting == min(8, before+1) })
	}
	for range 4 {
		ask(1)
	}
	for range 4 {
		ask(2)
	}
	done.Go(func() {
		ticket, err := g.acquire(t.Context(), clientNumber(3), 100)
		if err != nil {
			t.Errorf("the only request of a client was shed: %v", err)
			return
		}
		order <- 3
		ticket.release()
	})
	g.until(t, "one request is evicted", func(gateStats) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.turns) == 3
	})
	first.release()
	done.Wait()
	close(order)
	var turns []byte
	for n := range order {
		turns = append(turns, n)
	}
	if len(turns) != 8 || turns[0] == turns[1] || turns[0] == turns[2] || turns[1] == turns[2] {
		t.Errorf("clients had their turns in the order %v", turns)
	}
	if n := g.shed[shedClient].Load(); n != 1 {
		t.Errorf("%d requests were evicted", n)
	}
}

// A request that needs more than it said goes before those that wait, and one that is larger than
// the gate is alone in it.
func TestGateGrows(t *testing.T) {
	g := testGate(100, 3, 8)
	small := g.admitted(t, clientNumber(1), 30)
	if err := small.grow(t.Context(), 60); err != nil || g.stats().used != 60 {
		t.Fatalf("%v, %+v", err, g.stats())
	}
	other := g.admitted(t, clientNumber(2), 40)
	var done sync.WaitGroup
	grown := make(chan struct{})
	done.Go(func() {
		if err := small.grow(t.Context(), 1000); err != nil {
			t.Error(err)
		}
		close(grown)
	})
	g.until(t, "it waits", func(s gateStats) bool { return s.waiting == 1 })
	done.Go(func() {
		ticket, err := g.acquire(t.Context(), clientNumber(3), 10)
		if err != nil {
			t.Error(err)
			return
		}
		ticket.release()
	})
	g.until(t, "another one waits behind it", func(s gateStats) bool { return s.waiting == 2 })
	other.release()
	<-grown
	if s := g.stats(); s.used != 100 || s.waiting != 1 {
		t.Errorf("%+v", s)
	}
	small.made(5)
	done.Wait()
	if s := g.stats(); s.used != 5 || s.working != 0 {
		t.Errorf("while the answer is sent: %+v", s)
	}
	// What finds no room in time is shed.
	g.wait = 0
	other = g.admitted(t, clientNumber(2), 95)
	if err := small.grow(t.Context(), 50); status(t, err) != 503 {
		t.Errorf("no room to grow: %v", err)
	}
	other.release()
	small.release()
}

// A stream whose client is slow leaves its slot to others, and gets it back before them.
func TestGatePauses(t *testing.T) {
	g := testGate(100, 1, 8)
	stream := g.admitted(t, clientNumber(1), 10)
	stream.pause()
	page := g.admitted(t, clientNumber(2), 10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stream.resume(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("resumed without a slot: %v", err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		if err := stream.resume(t.Context()); err != nil {
			t.Error(err)
		}
		stream.release()
	})
	g.until(t, "it waits", func(s gateStats) bool { return s.waiting == 1 })
	page.release()
	done.Wait()
	if s := g.stats(); s != (gateStats{budget: 100}) {
		t.Errorf("%+v", s)
	}
}

// Whatever requests do, the gate never holds more than it may, and in the end nothing.
func TestGateHoldsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const budget = 100
		g := testGate(budget, rapid.IntRange(1, 4).Draw(t, "slots"), rapid.IntRange(1, 6).Draw(t, "queue"))
		g.wait = time.Duration(rapid.IntRange(0, 2).Draw(t, "ms")) * time.Millisecond
		type work struct {
			client      byte
			bytes, grow int64
			pause       bool
		}
		var all []work
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			all = append(all, work{
				byte(rapid.IntRange(1, 3).Draw(t, "client")), rapid.Int64Range(1, budget).Draw(t, "bytes"),
				rapid.Int64Range(0, 2*budget).Draw(t, "grow"), rapid.Bool().Draw(t, "pause"),
			})
		}
		check := func() {
			if s := g.stats(); s.used > budget || s.working > int64(g.slots) || s.used < 0 || s.working < 0 {
				t.Errorf("the gate holds %+v", s)
			}
		}
		var done sync.WaitGroup
		for _, w := range all {
			done.Go(func() {
				ticket, err := g.acquire(context.Background(), clientNumber(w.client), w.bytes)
				if err != nil {
					return
				}
				defer ticket.release()
				check()
				if w.pause {
					ticket.pause()
					check()
					if err := ticket.resume(context.Background()); err != nil {
						t.Error(err)
					}
				}
				if ticket.grow(context.Background(), w.grow) == nil {
					check()
				}
				ticket.made(w.bytes / 2)
				check()
			})
		}
		done.Wait()
		if s := g.stats(); s != (gateStats{budget: budget}) || len(g.holders) != 0 || len(g.turns) != 0 || len(g.urgent) != 0 {
			t.Errorf("in the end the gate holds %+v, %d clients", s, len(g.holders))
		}
	})
}
