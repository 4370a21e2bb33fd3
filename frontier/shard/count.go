package shard

import (
	"cmp"
	"slices"
)

// recount counts the URLs of each queue. A queue is named by a run or by a leased entry. If all of
// its entries were leased, and were settled since the checkpoint, the journal names it.
func (s *Shard) recount() error {
	for _, r := range slices.Concat(s.waiting, s.rest) {
		for i := range r.queues {
			s.queue(QueueID(r.id(i)), string(r.queueName(i)))
		}
	}
	for _, e := range s.resuming {
		s.queue(IDOfQueue(e.Queue), e.Queue)
	}
	if err := s.countStates(); err != nil {
		return err
	}
	var empty []*queue
	for q := range s.queues.all() {
		if q.counts() == (Counts{}) {
			empty = append(empty, q)
		}
	}
	s.forget(empty)
	return nil
}

// countedAtOnce is how many states are sorted by queue at once.
const countedAtOnce = 1 << 20

// countStates counts the states of the files for their queues. The files have them in the order of
// the URLs' hashes. To look up the queue of each would be a cache miss a URL, so they are sorted.
func (s *Shard) countStates() error {
	type tagged struct {
		tag uint64
		q   *queue
	}
	queues := make([]tagged, 0, s.queues.len())
	for q := range s.queues.all() {
		of := q.id.tag()
		queues = append(queues, tagged{of.number(), q})
	}
	slices.SortFunc(queues, func(a, b tagged) int { return cmp.Compare(a.tag, b.tag) })
	var some []uint64 // tag, and in the lowest two bits the state
	count := func() {
		slices.Sort(some)
		at := 0
		for len(some) > 0 {
			n := 1
			for n < len(some) && some[n] == some[0] {
				n++
			}
			of, state := some[0]>>2, int(some[0]&3)
			some = some[n:]
			for at < len(queues) && queues[at].tag < of {
				at++
			}
			if at < len(queues) && queues[at].tag == of {
				s.count(queues[at].q, state, n)
				continue
			}
			if s.unnamed[tagNumber(of)] == nil {
				s.unnamed[tagNumber(of)] = new(Counts)
			}
			s.unnamed[tagNumber(of)][state] += int64(n)
		}
	}
	marks := marksByTag(s.marks)
	buf := make([]uint64, 0, countedAtOnce)
	err := mergeSeen(s.seen, func(e []byte) error {
		st := elementState(e).unpack()
		of := tagOf(e[:16])
		if len(marks) > 0 && marks[of].deletes(&st) {
			s.gone++
			return nil
		}
		state := waits
		switch {
		case st.Settled:
			state = isDone
		case st.Later:
			state = isLater
		}
		if buf = append(buf, of.number()<<2|uint64(state)); len(buf) >= max(countedAtOnce, len(queues)) {
			some, buf = buf, buf[:0]
			count()
		}
		return nil
	})
	some = buf
	count()
	return err
}
