package shard

import "slices"

const (
	// addAtOnce is how many entries are added before others may use the shard, and lookUpAtOnce how
	// many are looked up at a time.
	addAtOnce    = 4 * lookUpAtOnce
	lookUpAtOnce = 64
)

// Change is what Add has done besides.
type Change struct {
	// Woken are the queues that had nothing waiting before.
	Woken []string
	// Ended are leased entries that were replaced: their leases are void.
	Ended []*Entry
}

// Add adds entries whose URLs are not known, replaces with those whose Update is set what there is
// of their URLs, and gives them their numbers. Ids are those of the entries' URLs. Nothing of it is
// certain before Commit has returned.
func (s *Shard) Add(ids []ID, entries []Entry) (statuses []AddStatus, done Change, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, done, s.failed
	}
	statuses = make([]AddStatus, len(entries))
	now := uint32(s.o.Now().Unix())
	var room [lookUpAtOnce]lookup
	for first := 0; first < len(entries); first += lookUpAtOnce {
		if first > 0 && first%addAtOnce == 0 {
			s.mu.Unlock()
			s.mu.Lock()
			if s.failed != nil {
				return nil, done, s.failed
			}
		}
		some := entries[first:min(first+lookUpAtOnce, len(entries))]
		looked := room[:len(some)]
		for i := range some {
			looked[i].ID = ids[first+i]
		}
		s.lookUp(looked)
		s.lookUpQueues(looked)
		for i := range some {
			if statuses[first+i], err = s.add(&some[i], &looked[i], now, &done); err != nil {
				return nil, done, err
			}
		}
	}
	return statuses, done, nil
}

// add adds an entry that was looked up.
func (s *Shard) add(e *Entry, l *lookup, now uint32, done *Change) (AddStatus, error) {
	old, known := s.knownOf(l)
	status := Added
	var visit *Visit
	if e.Created = now; known {
		if !e.Update {
			return Known, nil
		}
		status, e.Created = Updated, old.Created
		leased, err := s.leasedEntry(old.Seq)
		if err != nil {
			return status, err
		}
		if leased != nil {
			done.Ended, visit = append(done.Ended, leased), e.Visit
		}
	}
	if !known && e.OnlyKnown {
		return Unknown, nil
	}
	if !known && s.full(l.ID.queue, e.Queue) {
		return Full, nil
	}
	if err := s.number(e); err != nil {
		return status, err
	}
	c := change{entry: e, id: l.ID, queue: l.queue, old: old, known: known, settled: e.Update && e.Settled, visit: visit}
	if c.settled {
		e.Due = 0
	}
	if visit != nil {
		visit.Time = max(s.o.Now().UnixMilli(), s.visits.Last())
	}
	if err := s.record(&c); err != nil {
		return status, err
	}
	if s.apply(&c); c.nowWaiting {
		done.Woken = append(done.Woken, e.Queue)
	}
	return status, nil
}

// lookup is a URL that is looked up together with others. Each needs memory at several places that
// no cache has, which takes far longer than everything else: so they are asked for first.
type lookup struct {
	ID
	// files has a bit for each file of states that may have the URL, the newest first. The last bit
	// is that of all the others.
	files uint64
	queue *queue // nil if there is none yet
}

// filesBit is the bit of the nth newest file.
func filesBit(n int) uint64 { return 1 << min(n, 63) }

// lookUp finds out what knownOf needs. The shard stays locked in between.
func (s *Shard) lookUp(looked []lookup) {
	// No load of these loops depends on another, so that their cache misses overlap.
	sum := uint64(0)
	for i := range looked {
		looked[i].files = 0
		sum += s.batch.seen.Touch(&looked[i].url)
	}
	if s.frozen != nil {
		for i := range looked {
			sum += s.frozen.seen.Touch(&looked[i].url)
		}
	}
	s.touched = sum
	n := 0
	for _, f := range slices.Backward(s.seen) {
		for i := range looked {
			if f.mayHave(&looked[i].url) {
				looked[i].files |= filesBit(n)
			}
		}
		n++
	}
}

// lookUpQueues finds the queues, and what of them apply will need.
func (s *Shard) lookUpQueues(looked []lookup) {
	sum := uint64(0)
	for i := range looked {
		sum += s.queues.touch(&looked[i].ID.queue)
	}
	for i := range looked {
		looked[i].queue = s.queues.get(&looked[i].ID.queue)
	}
	for i := range looked {
		if q := looked[i].queue; q != nil {
			if root := q.memory[s.batch.side]; root != 0 {
				sum += s.batch.waiting.at(root).seq
			}
		}
	}
	s.touched = sum
}

// known returns what is known of a URL.
func (s *Shard) known(id ID) (State, bool) {
	l := [1]lookup{{ID: id}}
	s.lookUp(l[:])
	return s.knownOf(&l[0])
}

// knownOf is known for what was looked up.
func (s *Shard) knownOf(l *lookup) (State, bool) {
	st, ok := s.find(l)
	if ok && len(s.marks) > 0 && s.marks[l.ID.queue].deletes(&st) {
		return State{}, false
	}
	return st, ok
}

// find is knownOf for URLs that may have been deleted.
func (s *Shard) find(l *lookup) (State, bool) {
	if p, ok := s.batch.seen.Get(&l.url); ok {
		return packed(p).unpack(), true
	}
	if s.frozen != nil {
		if p, ok := s.frozen.seen.Get(&l.url); ok {
			return packed(p).unpack(), true
		}
	}
	if l.files == 0 {
		return State{}, false
	}
	n := 0
	for _, f := range slices.Backward(s.seen) {
		if l.files&filesBit(n) != 0 {
			if p, ok := f.get(l.url); ok {
				return p.unpack(), true
			}
		}
		n++
	}
	return State{}, false
}
