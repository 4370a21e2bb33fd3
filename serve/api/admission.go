package api

import (
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/urlake/urlake/internal/spans"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/turns"
)

const (
	// DefaultAnswerBytes is the memory of answers without AnswerBytes.
	DefaultAnswerBytes = 48 << 20
	// heavyRows is the number of rows from which a request is heavy.
	heavyRows = 500
	// baseBytes and rowBytes are what an answer is taken to need before it is made: for itself, and
	// for each row, once as it is found and once as it is sent. What it takes in fact is counted
	// when the rows are known.
	baseBytes = 16 << 10
	rowBytes  = 512
	// queueWait is how long a request waits at a gate. Who waits longer asks again better.
	queueWait = time.Second
	// lightSlots is how many light answers are made at once. They are many, because those that
	// are not cached wait for the store.
	lightSlots = 256
	// lightQueue and heavyQueue are how many requests wait at each gate.
	lightQueue = 1024
	heavyQueue = 64
	// listWait is how long a list waits before it is read: long enough for slow clients to be found
	// out.
	listWait = 10 * time.Second
	// streamBytes is what a stream has in memory besides its rows, encoderBytes what its encoder
	// has.
	streamBytes  = 128 << 10
	encoderBytes = 1 << 20
	// openQueue is how many requests wait for a turn to open an old version.
	openQueue = 16
)

// gates are the gates of a handler. Requests at one do not wait for those at another.
type gates struct {
	// light is for what takes little: one domain, pages of few rows, the lists of datasets and of
	// versions. Heavy is for large pages, streams, lists of domains, trees and diffs, and for what
	// searches many rows or names.
	light, heavy *gate
	// lists is for the lists that clients send, until they are answered. They are read before there
	// is work at the gate heavy.
	lists *gate
	// opening is for requests whose version is not open. It counts versions, not bytes.
	opening *gate
}

// newGates divides the memory for answers: a fifth is for light ones, and a fifth for lists. The
// deadline bounds how long a request waits for its turn to open a version.
func newGates(answerBytes int64, deadline time.Duration, m *Metrics) gates {
	procs := runtime.GOMAXPROCS(0)
	return gates{
		light:   m.gate(&gate{name: "light", budget: answerBytes / 5, slots: lightSlots, queue: lightQueue, wait: queueWait}),
		lists:   m.gate(&gate{name: "lists", budget: answerBytes / 5, slots: lightSlots, queue: heavyQueue, wait: listWait}),
		heavy:   m.gate(&gate{name: "heavy", budget: answerBytes / 5 * 3, slots: max(4, 2*procs), queue: heavyQueue, wait: queueWait}),
		opening: m.gate(&gate{name: "opening", slots: lookup.MaxOpenings, queue: openQueue, wait: deadline}),
	}
}

// client is whom a request is from, as far as the gates tell clients apart: a principal, or else an
// address. An IPv6 client is a network of 64 bits, because that is what one client gets.
type client struct {
	principal string
	addr      netip.Addr
}

// client finds out whom the request is from: the principal, its peer, or whom a trusted proxy
// names.
func (h *handler) client(r *request) client {
	if r.principal != "" {
		return client{principal: r.principal}
	}
	addr, ok := r.peer()
	if !ok {
		return client{}
	}
	if h.trusts(addr) {
		// Each proxy has appended its peer. Names before the first one that is no trusted proxy may
		// be invented.
		list := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
		for i := len(list) - 1; i >= 0 && h.trusts(addr); i-- {
			before, err := netip.ParseAddr(strings.TrimSpace(list[i]))
			if err != nil {
				break
			}
			addr = before.Unmap().WithZone("")
		}
	}
	if addr.Is6() {
		network, _ := addr.Prefix(64) // an IPv6 address has that many bits
		addr = network.Addr()
	}
	return client{addr: addr}
}

// peer is the other end of the request's connection.
func (r *request) peer() (addr netip.Addr, ok bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone(""), err == nil
}

func (h *handler) trusts(addr netip.Addr) bool {
	for _, p := range h.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// rows is the weight of a route whose answers have up to limit= rows, def without it, and at most
// highest.
func rows(def, highest int64) func(*request) int64 {
	return func(r *request) int64 {
		// A limit that is no number is an error soon.
		limit, err := r.number("limit", def, 1)
		if err != nil {
			return 0
		}
		return min(limit, highest)
	}
}

// always is the weight of a route whose answers have up to so many rows.
func always(n int64) func(*request) int64 { return func(*request) int64 { return n } }

// heavyWith is a weight that makes requests heavy that give one of some parameters a value: they
// may read much for a short answer.
func heavyWith(weight func(*request) int64, names ...string) func(*request) int64 {
	return func(r *request) int64 {
		n := weight(r)
		for _, name := range names {
			if slices.ContainsFunc(r.query[name], func(v string) bool { return v != "" && v != "0" }) {
				n = max(n, heavyRows)
			}
		}
		return n
	}
}

// heavyIfFiltered is a weight that makes lists of domains heavy that give both a prefix and a
// suffix: all names with one of them are read for those that have the other.
func heavyIfFiltered(weight func(*request) int64) func(*request) int64 {
	return func(r *request) int64 {
		n := weight(r)
		if strings.TrimSpace(r.query.Get("prefix")) != "" && strings.TrimSpace(r.query.Get("suffix")) != "" {
			n = max(n, heavyRows)
		}
		return n
	}
}

// enter waits at the gate for a request whose answer has up to so many rows.
func (h *handler) enter(r *request, rows int64) (err error) {
	g := h.gates.light
	if rows >= heavyRows {
		g = h.gates.heavy
	}
	// Most answers are smaller than their estimate, so a few are made at once whatever that is.
	ctx, step := spans.Start(r.Context(), "wait")
	if step.Recording() {
		step.Set(attribute.String("urlake.gate", g.name))
	}
	r.ticket, err = g.acquire(ctx, h.client(r), min(baseBytes+rows*rowBytes, g.budget/4))
	step.End(err)
	return err
}

// work waits at the gate with a request whose answer has up to so many rows.
func (h *handler) work(r *request, rows int64) error {
	if err := h.enter(r, rows); err != nil {
		return err
	}
	if rows < heavyRows {
		h.turns.Light()
	} else {
		r.ctx, r.turn = turns.With(r.ctx, h.turns)
	}
	return nil
}

// need waits until the gate has room for an answer that takes so many bytes of memory, now that
// this is known. It must be called before these are allocated. The request has no turn at the
// processors afterwards: others may need one before they can give room.
func (r *request) need(bytes int64) error {
	if r.ticket == nil {
		return nil
	}
	r.turn.Give()
	return r.ticket.grow(r.Context(), bytes)
}

// holds says how much memory the rows of a stream take that are made and sent next. It waits like
// need if that is more than was reserved.
func (r *request) holds(rows int64) error {
	bytes := streamBytes + rows
	if r.coding != "" {
		bytes += encoderBytes
	}
	if err := r.need(bytes); err != nil || r.ticket == nil {
		return err
	}
	r.ticket.shrink(bytes)
	return nil
}
