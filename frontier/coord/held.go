package coord

import "sync"

// held are the leases of a shard as its owner remembers them. Only the owner changes them, so it
// need not ask Redis which ones hold. They have no pointers: there may be millions.
type held struct {
	mu    sync.Mutex
	known bool // they were read from Redis
	bySeq map[uint64]terms
	asked uint64 // how often live was called
}

// terms are those of a lease: its token, when it ends, and by which call of live it was asked for
// last.
type terms struct {
	token uint64
	until int64
	asked uint64
}

// note adds leases.
func (h *held) note(leases []Lease, until int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bySeq == nil {
		h.bySeq = map[uint64]terms{}
	}
	for _, l := range leases {
		h.bySeq[l.Seq()] = terms{token: l.token(), until: until}
	}
}

// end removes leases.
func (h *held) end(leases []Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range leases {
		if t, ok := h.bySeq[l.Seq()]; ok && t.token == l.token() {
			delete(h.bySeq, l.Seq())
		}
	}
}

// live says which leases have not ended. Of one that is there twice it says so once.
func (h *held) live(now int64, leases []Lease) []bool {
	live := make([]bool, len(leases))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	for i, l := range leases {
		t, ok := h.bySeq[l.Seq()]
		if ok && t.token == l.token() && t.until > now && t.asked != h.asked {
			t.asked, live[i] = h.asked, true
			h.bySeq[l.Seq()] = t
		}
	}
	return live
}

// extend prolongs some leases.
func (h *held) extend(leases []Lease, some []bool, until int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, l := range leases {
		if t, ok := h.bySeq[l.Seq()]; ok && some[i] && t.token == l.token() {
			t.until = until
			h.bySeq[l.Seq()] = t
		}
	}
}
