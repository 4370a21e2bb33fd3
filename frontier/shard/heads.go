package shard

// To find the first entry of a queue would be a search in each run, and most of what a claim costs.
// So a queue has a heap with its next entry of each run, its heads. Where these entries are is what
// the runs' positions say. The heads of a queue are right for the runs that there were at its
// generation; refresh brings them up to date before an entry is taken. Generation 0 is before all:
// nothing is known of the queue.

// runHead says of which run an entry is the next one of a queue, by the lower half of the run's
// number, and where the queue is in the run's directory.
type runHead struct{ run, at uint32 }

// setWaiting replaces the runs of entries that wait, and says whether some of them are gone.
func (s *Shard) setWaiting(runs []*run) (gone bool) {
	kept, changed := 0, false
	for _, r := range runs {
		if r.since > 0 {
			kept++
			continue
		}
		r.since, changed = s.generation+1, true
	}
	if gone = kept < len(s.waiting); gone || changed {
		s.generation++
	}
	s.waiting = runs
	return gone
}

// runOf returns the run of a head, nil if the shard does not have it any more.
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
	s.dropOtherHeads(q)
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

// headsMost is how many heads a queue has at most: of the runs before a write, of one that some of
// them were merged into, and of a new one.
const headsMost = maxRuns + 2

// dropOtherHeads drops the heads of a queue that are of runs that are gone, or newer than its
// generation.
func (s *Shard) dropOtherHeads(q *queue) {
	var room [headsMost]ranked[runHead]
	all := s.heads.appendAll(room[:0], q.heads)
	kept := all[:0]
	for _, e := range all {
		if r := s.runOf(e.data); r != nil && r.since <= q.generation {
			kept = append(kept, e)
		}
	}
	if len(kept) == len(all) {
		return
	}
	s.dropHeads(q)
	for _, e := range kept {
		q.heads = s.heads.push(q.heads, e.rank, e.data)
	}
}

// headsAtOnce is how many queues get or lose heads before others may use the shard.
const headsAtOnce = 256

// knowHeads brings the heads of queues up to date after runs have changed, in the order of the
// files: a search for each queue would cost several times as much. Gone says that there are runs no
// more. Queues that were behind before stay so.
func (s *Shard) knowHeads(gone bool) error {
	if gone { // first, so that their memory is there for the new ones
		s.eachBehind(headsAtOnce, s.dropOtherHeads)
	}
	for _, r := range s.waiting { // only who writes files changes them
		if r.since < s.generation {
			continue
		}
		for first := 0; first < r.queues; first += headsAtOnce {
			if err := s.pushHeads(r, first, min(first+headsAtOnce, r.queues)); err != nil {
				return err
			}
			s.pacer.Look()
		}
	}
	s.pause()
	s.eachBehind(queuesAtOnce, func(q *queue) { q.generation++ })
	return nil
}

// eachBehind calls do with each queue that knows the runs of one generation before, for some at a
// time.
func (s *Shard) eachBehind(atOnce int, do func(q *queue)) {
	for first, more := 0, true; more; first += atOnce {
		s.mu.Lock()
		for i := first; i < min(first+atOnce, s.queues.used); i++ {
			if q := s.queues.at(uint32(i)); q.generation == s.generation-1 {
				do(q)
			}
		}
		more = first+atOnce < s.queues.used
		s.mu.Unlock()
		s.pacer.Look()
	}
}

// pushHeads gives the queues at some positions of a new run their heads of it.
func (s *Shard) pushHeads(r *run, first, end int) error {
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
// they are of. After an error nothing was taken.
func (s *Shard) popHead(q *queue) (payload []byte, file string, err error) {
	h := s.heads.at(q.heads).data
	r, i := s.runOf(h), int(h.at)
	next, _ := r.position(i)
	if payload, err = r.record(next); err != nil {
		return nil, "", err
	}
	r.pop(i, len(payload))
	q.heads, _ = s.heads.pop(q.heads)
	if err := s.pushHead(q, r, i); err != nil {
		q.generation = 0 // whoever takes the next entry gets the error
	}
	return payload, r.name, nil
}

// dropHeads frees the heads of a queue, which has none then.
func (s *Shard) dropHeads(q *queue) {
	for q.heads != 0 {
		q.heads, _ = s.heads.pop(q.heads)
	}
}
