package shard

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// expectAtOnce is how many queues are searched for in runs at a time.
const expectAtOnce = 32

// Expect says of which queues entries are taken next. It loads what Take looks at first, for all of
// them: these loads do not wait for each other, as they do when one queue after the other is taken
// from. With millions of queues each is a cache miss.
func (s *Shard) Expect(names []string) {
	ids := make([]QueueID, len(names))
	for i, name := range names {
		ids[i] = IDOfQueue(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil { // files may be closed
		return
	}
	sum := uint64(0)
	for i := range ids {
		sum += s.queues.touch(&ids[i])
	}
	queues := make([]*queue, 0, len(ids))
	for i := range ids {
		if q := s.queues.get(&ids[i]); q != nil {
			queues = append(queues, q)
		}
	}
	for _, q := range queues {
		if root := q.memory[s.batch.side]; root != 0 {
			sum += s.leased.Touch(s.batch.waiting.at(root).seq)
		}
		if q.heads != 0 {
			sum += s.leased.Touch(s.heads.at(q.heads).seq)
		}
	}
	for _, q := range queues {
		if root := q.memory[s.batch.side]; root != 0 {
			sum += uint64(s.batch.texts.Get(s.batch.waiting.at(root).data)[0])
		}
	}
	s.touched += sum
	for some := range slices.Chunk(queues, expectAtOnce) {
		s.expectRuns(some)
	}
	s.expectHeads(queues)
}

// ExpectEnds says which entries are settled or return next. It loads what Done and Back look at
// first, as Expect does.
func (s *Shard) ExpectEnds(seqs []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := uint64(0)
	for _, seq := range seqs {
		sum += s.leased.Touch(seq)
	}
	for _, seq := range seqs {
		if b, ok := s.leased.Get(seq); ok {
			sum += uint64(b[0])
		}
	}
	for _, seq := range seqs {
		if b, ok := s.leased.Get(seq); ok {
			q, _ := s.parseLease(b)
			if name := s.queues.names.Get(q.name); len(name) > 0 {
				sum += uint64(name[0])
			}
		}
	}
	s.touched += sum
}

// expectHeads loads the first entries of queues in runs, as far as their heads are known.
func (s *Shard) expectHeads(queues []*queue) {
	type place struct {
		run *run
		at  uint64
	}
	places, sum := make([]place, 0, len(queues)), uint64(0)
	for _, q := range queues {
		if q.heads == 0 {
			continue
		}
		h := s.heads.at(q.heads).data
		if r := s.runOf(h); r != nil {
			at, _ := r.position(int(h.at))
			places = append(places, place{r, at})
		}
	}
	for _, p := range places {
		if p.at < uint64(len(p.run.extent)) {
			sum += uint64(p.run.extent[p.at])
		}
	}
	s.touched += sum
}

// expectation is a queue that is searched for in a run as findID does it, but in steps: when each
// of many has loaded the element that it compares next, they do not wait for each other.
type expectation struct {
	span
	run  *run
	id   *QueueID
	want uint64
	step int
	mid  int // the element that is compared next, or the queue's if it was found
	next uint64
}

// load loads the element that is compared next. What it returns has no meaning.
func (e *expectation) load() uint64 {
	e.mid = e.guess(e.want, e.step)
	return uint64(e.run.id(e.mid)[0])
}

// compare compares it, and says whether the search goes on.
func (e *expectation) compare() bool {
	got := e.run.id(e.mid)
	c := bytes.Compare(got, e.id[:])
	if c == 0 {
		e.next, _ = e.run.position(e.mid)
		return false
	}
	e.span = e.beside(e.mid, c < 0, binary.BigEndian.Uint64(got), e.want)
	e.step++
	return e.lo < e.hi
}

// expectRuns searches for queues in the runs that they do not know yet, and loads their next
// entries there.
func (s *Shard) expectRuns(queues []*queue) {
	all, sum := s.expected[:0], uint64(0)
	for _, r := range s.waiting {
		if r.entries == 0 {
			continue
		}
		for _, q := range queues {
			if r.since > q.generation {
				all = append(all, expectation{
					span: span{hi: r.queues, last: ^uint64(0)}, run: r, id: &q.id, want: binary.BigEndian.Uint64(q.id[:]),
				})
			}
		}
	}
	for left := all; len(left) > 0; {
		for i := range left {
			sum += left[i].load()
		}
		for i := 0; i < len(left); {
			if left[i].compare() {
				i++
				continue
			}
			last := len(left) - 1
			left[i], left[last] = left[last], left[i]
			left = left[:last]
		}
	}
	for i := range all {
		if e := &all[i]; e.next < uint64(len(e.run.extent)) {
			sum += uint64(e.run.extent[e.next])
		}
	}
	s.touched += sum
	clear(all) // runs are closed some time
	s.expected = all[:0]
}
