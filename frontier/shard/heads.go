package shard

// To find the first entry of a queue is a search in each run, and that is most of what a claim
// costs. So a queue that was taken from keeps a heap with its next entry of each run. Where the
// next entries are is still what the runs' positions say. The heads of a queue are those of the
// runs that there were when it was taken from last, at its generation.

// runHead says of which run an entry is the next one of a queue, by the lower half of the run's
// number, and where the queue is in the run's directory.
type runHead struct{ run, at uint32 }

// setWaiting replaces the runs of entries that wait.
func (s *Shard) setWaiting(runs []*run) {
	changed := len(runs) != len(s.waiting)
	for _, r := range runs {
		if r.since == 0 {
			r.since, changed = s.generation+1, true
		}
	}
	if changed {
		s.generation++
	}
	s.waiting = runs
}

// runOf returns the run of a head, nil if the shard has it no more.
func (s *Shard) runOf(h runHead) *run {
	for _, r := range s.waiting {
		if uint32(r.number) == h.run {
			return r
		}
	}
	return nil
}

// refresh makes the heads of a queue those of the runs that there are now.
func (s *Shard) refresh(q *queue) error {
	if q.generation == s.generation {
		return nil
	}
	var room [maxRuns]ranked[runHead]
	old := s.heads.appendAll(room[:0], q.heads)
	s.dropHeads(q)
	for _, e := range old {
		if s.runOf(e.data) != nil {
			q.heads = s.heads.push(q.heads, e.rank, e.data)
		}
	}
	for _, r := range s.waiting {
		if r.since <= q.generation || r.entries == 0 {
			continue
		}
		if i, ok := r.find(q.id); ok {
			if err := s.pushHead(q, r, i); err != nil {
				s.dropHeads(q)
				q.generation = 0
				return err
			}
		}
	}
	q.generation = s.generation
	return nil
}

// pushHead adds to the heads of a queue its next entry in a run, if it has one.
func (s *Shard) pushHead(q *queue, r *run, i int) error {
	next, left := r.position(i)
	if left == 0 {
		return nil
	}
	k, _, err := r.head(next)
	if err != nil {
		return err
	}
	q.heads = s.heads.push(q.heads, k, runHead{uint32(r.number), uint32(i)})
	return nil
}

// popHead takes the first of a queue's heads, and returns the bytes of the entry and the file that
// they are of.
func (s *Shard) popHead(q *queue) (payload []byte, file string, err error) {
	var h runHead
	q.heads, h = s.heads.pop(q.heads)
	r, i := s.runOf(h), int(h.at)
	next, left := r.position(i)
	if payload, err = r.record(next); err != nil {
		return nil, "", err
	}
	r.setPosition(i, next+8+uint64(len(payload)), left-1)
	return payload, r.name, s.pushHead(q, r, i)
}

// dropHeads frees the heads of a queue, which has none then.
func (s *Shard) dropHeads(q *queue) {
	for q.heads != 0 {
		q.heads, _ = s.heads.pop(q.heads)
	}
}
