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
	for i := range ids {
		s.touched += s.queues.touch(&ids[i])
	}
	roots := make([]node, 0, len(ids))
	for i := range ids {
		if q := s.queues.get(&ids[i]); q != nil && q.memory[s.batch.side] != 0 {
			roots = append(roots, q.memory[s.batch.side])
		}
	}
	for _, root := range roots {
		s.touched += s.batch.waiting.at(root).seq
	}
	for _, root := range roots {
		s.touched += uint64(s.batch.texts.Get(s.batch.waiting.at(root).data)[0])
	}
	for some := range slices.Chunk(ids, expectAtOnce) {
		s.expectRuns(some)
	}
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

// expectRuns searches for queues in the runs, and loads their next entries there.
func (s *Shard) expectRuns(ids []QueueID) {
	all, sum := s.expected[:0], uint64(0)
	for _, r := range s.waiting {
		if r.entries == 0 {
			continue
		}
		for i := range ids {
			all = append(all, expectation{
				span: span{hi: r.queues, last: ^uint64(0)}, run: r, id: &ids[i], want: binary.BigEndian.Uint64(ids[i][:]),
			})
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
