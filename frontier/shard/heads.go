package shard

// To find the first entry of a queue would be a search in each run, and most of what a claim costs.
// So a queue has a heap with its next entry of each run, its heads. Where these entries are is what
// the runs' positions say. The heads of a queue are right for the runs that there were at its
// generation; before it is taken from they are made those of now.

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
	s.keepHeads(q)
	for _, r := range s.waiting {
		if r.since <= q.generation || r.entries == 0 {
			continue
		}
		if i, ok := r.find(q.id); ok {
			if err := s.pushHead(q, r, i); err != nil {
				return err
			}
		}
	}
	q.generation = s.generation
	return nil
}

// keepHeads drops the heads of a queue that are of runs that are gone, or newer than its generation.
func (s *Shard) keepHeads(q *queue) {
	var room [maxRuns]ranked[runHead]
	all := s.heads.appendAll(room[:0], q.heads)
	s.dropHeads(q)
	for _, e := range all {
		if r := s.runOf(e.data); r != nil && r.since <= q.generation {
			q.heads = s.heads.push(q.heads, e.rank, e.data)
		}
	}
}

// headsAtOnce is how many queues get heads before others may use the shard.
const headsAtOnce = 256

// knowHeads gives queues the heads of the runs that have just come, in the order of the files: a
// search for each would cost several times as much. Gone says that others are not there any more.
// Queues that were behind before stay so.
func (s *Shard) knowHeads(gone bool) error {
	for _, r := range s.waiting { // only who writes files changes them
		if r.since < s.generation {
			continue
		}
		for first := 0; first < r.queues; first += headsAtOnce {
			if err := s.knowSome(r, first, min(first+headsAtOnce, r.queues)); err != nil {
				return err
			}
			s.pacer.Look()
		}
	}
	s.pause()
	for first, more := 0, true; more; first += queuesAtOnce {
		s.mu.Lock()
		for i := first; i < min(first+queuesAtOnce, s.queues.used); i++ {
			if q := s.queues.at(uint32(i)); q.generation == s.generation-1 {
				if q.generation++; gone {
					s.keepHeads(q)
				}
			}
		}
		more = first+queuesAtOnce < s.queues.used
		s.mu.Unlock()
		s.pacer.Look()
	}
	return nil
}

// knowSome gives queues at positions of a new run their heads of it.
func (s *Shard) knowSome(r *run, first, end int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var queues [headsAtOnce]*queue
	for i := first; i < end; i++ {
		s.touched += s.queues.touch((*QueueID)(r.id(i)))
	}
	for i := first; i < end; i++ {
		queues[i-first] = s.queues.get((*QueueID)(r.id(i)))
	}
	for i := first; i < end; i++ {
		if q := queues[i-first]; q != nil && q.generation == s.generation-1 {
			if err := s.pushHead(q, r, i); err != nil {
				return err
			}
		}
	}
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
