package shard

import (
	"container/heap"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// promoteAtOnce bounds the entries that Promote puts into their queues at once, so that others may
// use the shard after a millisecond or two.
const promoteAtOnce = 200

// Promote puts entries that are due into their queues, until entries take so many times
// Options.MemoryBytes, and returns the queues that had nothing waiting before. More says that there
// are more, now or when the memory is written to files.
func (s *Shard) Promote(now int64, times int) (woken []string, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, false, s.failed
	}
	n := 0
	promote := func(e Entry) {
		n++
		id := s.idOf(e.Queue, []byte(e.URL))
		st, ok := s.known(id)
		if !ok || st.Seq != e.Seq || !st.Later {
			return
		}
		st.Later = false
		s.batch.seen.Set(&id.url, st.pack())
		e.Due = 0
		q := s.queue(id.queue, e.Queue)
		s.count(q, isLater, -1)
		s.count(q, waits, 1)
		s.place(q, e.rank(), e.append(nil))
		if q.has(waits) == 1 {
			woken = append(woken, e.Queue)
		}
	}
	// While a batch is written, what is due later has to stay as the checkpoint will say.
	for s.frozen == nil {
		if n >= promoteAtOnce || s.memory > times*s.o.MemoryBytes {
			return woken, true, nil
		}
		if l := s.batch.later; len(l) > 0 && l[0].due <= now {
			l := heap.Pop(&s.batch.later).(laterEntry)
			s.memory -= entryOverhead
			e, err := parseEntry(s.batch.texts.Get(l.data), s.queues.name(s.queues.at(l.queue)), "memory")
			if err != nil {
				return woken, false, err
			}
			promote(e)
			continue
		}
		var from *run
		var payload []byte
		for _, r := range s.due {
			if r.entries == 0 {
				continue
			}
			var k rank
			at, _ := r.position(0)
			if k, payload, err = r.head(at); err != nil {
				return woken, false, err
			}
			if int64(k.class) <= now {
				from = r
				break
			}
		}
		if from == nil {
			return woken, false, nil
		}
		e, err := parseQueued(codec.NewDecoder(payload, from.name, "entry"), from.name)
		if err != nil {
			return woken, false, err
		}
		from.pop(0, len(payload))
		promote(e)
	}
	return woken, true, nil
}

// Resume says which entries of a queue are leased, by the leases that there are. Those that were
// due later when they were added have to be promoted first. It returns the numbers that it does not
// know: they are settled, or were never certain.
func (s *Shard) Resume(name string, seqs []uint64) (unknown []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := IDOfQueue(name)
	q := s.queues.get(&id)
	if q == nil {
		return slices.Sorted(slices.Values(seqs)), nil
	}
	wanted := map[uint64]struct{}{}
	for _, seq := range seqs {
		if !s.leased.Has(seq) {
			wanted[seq] = struct{}{}
		}
	}
	lease := func(file string) func(payload []byte) error {
		return func(payload []byte) error {
			seq, _, err := parseURL(payload, file)
			if _, want := wanted[seq]; !want || err != nil {
				return err
			}
			ok, err := s.stands(&waitingRun, id, []byte(name), payload)
			if !ok || err != nil {
				return err
			}
			delete(wanted, seq)
			q.setSuspect(true) // the entry stays where it is
			s.lease(q, payload)
			s.count(q, waits, -1)
			s.count(q, isLeased, 1)
			return nil
		}
	}
	for seq := range wanted {
		if e := s.resuming[seq]; e != nil {
			delete(s.resuming, seq)
			if err := lease(s.dir)(e.append(nil)); err != nil {
				return nil, err
			}
		}
	}
	if len(wanted) > 0 {
		for _, e := range s.batch.waiting.appendAll(nil, q.memory[s.batch.side]) {
			if err := lease(s.dir)(s.batch.texts.Get(e.data)); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range s.waiting {
		if i, ok := r.find(id); ok && len(wanted) > 0 {
			if err := r.each(i, lease(r.name)); err != nil {
				return nil, err
			}
		}
	}
	for seq := range wanted {
		unknown = append(unknown, seq)
	}
	slices.Sort(unknown)
	return unknown, nil
}

// Skip lets no entry have a number up to this one from now on. Numbers of entries that were never
// certain may be known elsewhere.
func (s *Shard) Skip(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = max(s.next, seq+1)
}

// Resumed ends the time of Resume: entries that were leased at the checkpoint, and for which there
// is no lease, wait again.
func (s *Shard) Resumed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, e := range s.resuming {
		delete(s.resuming, seq)
		id := IDOfQueue(e.Queue)
		ok, err := s.stands(&waitingRun, id, []byte(e.Queue), e.append(nil))
		if err != nil {
			return err
		}
		if ok { // it is counted, and may lie in a run as well
			q := s.queue(id, e.Queue)
			q.setSuspect(true)
			s.place(q, e.rank(), e.append(nil))
		}
	}
	return nil
}
