package shard

import (
	"bytes"
	"math"
	"slices"
)

// ListState is what a URL does.
type ListState uint8

const (
	// Waiting URLs can be taken, Later ones when they are due, Leased ones are out, and Done ones
	// are settled.
	Waiting ListState = iota
	Leased
	Later
	Done
)

// Listed is a URL with what is known of it.
type Listed struct {
	Entry
	State ListState
	// At is the cursor with which a list continues after it.
	At Cursor
	// Fetched is when the URL was fetched last, in seconds since 1970, 0 if never, and Status what
	// came of it.
	Fetched uint32
	Status  uint16
}

// Cursor is the entry that a list has come to: entries are in the order of their queues' ids, and
// those of a queue in that of their places. The zero Cursor is before all.
type Cursor struct {
	Queue QueueID
	// Class is 0 for entries that are settled or due later, which come first, by number; the others
	// come by rank.
	Class, Seq uint64
}

func (c Cursor) place() rank { return rank{c.Class, c.Seq} }

// Crawls returns the names of the crawls that have URLs, in order.
func (s *Shard) Crawls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.crawls.byName))
	for name := range s.crawls.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Count counts the URLs and the queues of a crawl, or the URLs of one of its queues if a name is
// given.
func (s *Shard) Count(crawl, queue string) (c Counts, queues int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue != "" {
		id := IDOfQueue(queue)
		if q := s.queues.get(&id); q != nil {
			return q.counts(), 1
		}
		return c, 0
	}
	if of := s.crawls.byName[crawl]; of != nil {
		return of.counts, int64(len(of.queues))
	}
	return c, 0
}

// Queue returns how many entries of a queue wait and are leased.
func (s *Shard) Queue(name string) (waiting, leased int64) {
	c, _ := s.Count("", name)
	return c.Waiting(), c.Leased()
}

// Queues calls yield with the name of each queue of a crawl and its counts, in no order, until it
// returns false. The shard may not be used from yield. A queue that comes or goes meanwhile may
// make others be missed or come twice.
func (s *Shard) Queues(crawl string, yield func(name string, c Counts) bool) {
	for from := 0; ; from += queuesAtOnce {
		s.mu.Lock()
		of := s.crawls.byName[crawl]
		if of == nil || from >= len(of.queues) {
			s.mu.Unlock()
			return
		}
		type named struct {
			name string
			c    Counts
		}
		part := make([]named, 0, queuesAtOnce)
		for _, number := range of.queues[from:min(from+queuesAtOnce, len(of.queues))] {
			q := s.queues.at(number)
			part = append(part, named{s.queues.name(q), q.counts()})
		}
		s.mu.Unlock()
		for _, q := range part {
			if !yield(q.name, q.c) {
				return
			}
		}
	}
}

// Seen returns what is known of a URL of a queue.
func (s *Shard) Seen(queue, url string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known(s.idOf(queue, []byte(url)))
}

// SeenAll calls yield with what is known of each URL, in order, and whether it was ever added. The
// shard is locked meanwhile, for some of them at a time.
func (s *Shard) SeenAll(ids []ID, yield func(i int, st State, ok bool)) {
	var room [lookUpAtOnce]lookup
	for first := 0; first < len(ids); first += lookUpAtOnce {
		some := ids[first:min(first+lookUpAtOnce, len(ids))]
		s.seenSome(some, room[:len(some)], func(i int, st State, ok bool) { yield(first+i, st, ok) })
	}
}

func (s *Shard) seenSome(ids []ID, looked []lookup, yield func(i int, st State, ok bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ids {
		looked[i].ID = ids[i]
	}
	s.lookUp(looked)
	for i := range looked {
		st, ok := s.knownOf(&looked[i])
		yield(i, st, ok)
	}
}

// Find returns what is known of a URL of a queue, and its entry. It reads the queue until it finds
// it.
func (s *Shard) Find(queue, url string) (found Listed, ok bool, err error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	id := IDOfQueue(queue)
	for range 10 { // again, if the URL was changed meanwhile
		st, ok := s.Seen(queue, url)
		if !ok {
			return found, false, nil
		}
		some, err := s.numbered(id, queue, &st)
		if err != nil {
			return found, false, err
		}
		list, err := s.appendListed(nil, id, queue, some)
		if err != nil {
			return found, false, err
		}
		if len(list) > 0 && list[0].URL == url {
			return list[0], true, nil
		}
	}
	return found, false, nil
}

// numbered returns the entry of a queue with the number of a state, nothing if it was taken away.
func (s *Shard) numbered(id QueueID, queue string, st *State) ([]candidate, error) {
	waits := !st.Settled && !st.Later
	after := rank{0, st.Seq - 1}
	if waits {
		after = lastResting
	}
	loose, err := s.loose("", queue)
	if err != nil {
		return nil, err
	}
	sources, err := s.sources(id, loose[id], after)
	if err != nil {
		return nil, err
	}
	for _, from := range sources {
		for from.some && (waits || from.head.at.compare(rank{0, st.Seq}) <= 0) {
			if from.head.at.seq == st.Seq {
				return []candidate{from.head}, nil
			}
			if err := from.advance(); err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// List returns up to n URLs of a crawl, or of one of its queues if a name is given, that come after
// a cursor, and the cursor of the last. There are no more if it returns none. A URL that does not
// change meanwhile comes once. One that is claimed, settled, added or comes back meanwhile may be
// missed, and one that was due later may come twice.
func (s *Shard) List(crawl, queue string, after Cursor, n int) (list []Listed, next Cursor, err error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	next = after
	loose, err := s.loose(crawl, queue)
	if err != nil {
		return nil, after, err
	}
	for _, id := range s.listedQueues(crawl, queue, after) {
		name, place := queue, rank{}
		if name == "" {
			if name = s.nameOf(id); name == "" {
				continue // it was forgotten
			}
		}
		if id == after.Queue {
			place = after.place()
		}
		part, err := s.listQueue(id, name, loose[id], place, n-len(list))
		if err != nil {
			return nil, after, err
		}
		list = append(list, part...)
		if len(part) > 0 {
			next = part[len(part)-1].At
		}
		if len(list) >= n {
			break
		}
	}
	return list, next, nil
}

// listedQueues returns queues from that of a cursor on, in the order of their ids.
func (s *Shard) listedQueues(crawl, name string, after Cursor) (ids []QueueID) {
	add := func(id QueueID) {
		if bytes.Compare(id[:], after.Queue[:]) >= 0 {
			ids = append(ids, id)
		}
	}
	if name != "" {
		add(IDOfQueue(name))
		return ids
	}
	var numbers []uint32
	s.mu.Lock()
	of := s.crawls.byName[crawl]
	if of != nil {
		numbers = slices.Clone(of.queues)
	}
	s.mu.Unlock()
	for part := range slices.Chunk(numbers, queuesAtOnce) {
		s.mu.Lock()
		for _, number := range part {
			// Meanwhile another queue may have the number.
			if q := s.queues.at(number); q.crawl == of.number && s.crawls.byName[crawl] == of {
				add(q.id)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(ids, func(a, b QueueID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// nameOf returns the name of a queue, "" if it is forgotten.
func (s *Shard) nameOf(id QueueID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues.get(&id); q != nil {
		return s.queues.name(q)
	}
	return ""
}

// lastResting is the place after all entries that do not wait and are not leased.
var lastResting = rank{0, math.MaxUint64}

// placeOf returns the place of an entry that waits or is leased.
func placeOf(k rank) rank { return rank{k.class + 1, k.seq} }

// candidate is an entry that a list may have.
type candidate struct {
	at      rank // its place
	payload []byte
	file    string
}

// loose returns the entries of a queue, or of all of a crawl, that are in memory but do not wait,
// by queue. They are looked for once, and not for each queue that is listed.
func (s *Shard) loose(crawl, name string) (map[QueueID][]candidate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[QueueID][]candidate{}
	only, of := IDOfQueue(name), s.crawls.byName[crawl]
	add := func(q *queue, payload []byte, leased bool) error {
		if q.id != only && (name != "" || of == nil || q.crawl != of.number) {
			return nil
		}
		c := candidate{at: rank{0, seqOf(payload)}, payload: payload, file: "memory"}
		if leased {
			k, err := parseRank(payload, c.file)
			if err != nil {
				return err
			}
			c.at = placeOf(k)
		}
		found[q.id] = append(found[q.id], c)
		return nil
	}
	for _, b := range s.leased.All() {
		q, payload := s.parseLease(b)
		if err := add(q, payload, true); err != nil {
			return nil, err
		}
	}
	for _, e := range s.resuming {
		id := IDOfQueue(e.Queue)
		if q := s.queues.get(&id); q != nil {
			if err := add(q, e.append(nil), true); err != nil {
				return nil, err
			}
		}
	}
	batches := []*batch{s.batch}
	if s.frozen != nil {
		batches = append(batches, s.frozen.batch)
	}
	for _, b := range batches {
		for _, e := range b.done {
			if err := add(s.queues.at(e.queue), b.texts.Get(e.data), false); err != nil {
				return nil, err
			}
		}
		for _, e := range b.later {
			if err := add(s.queues.at(e.queue), b.texts.Get(e.data), false); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// candidates are the candidates of a queue in a run or in memory, in order. Head is the next one if
// there is some.
type candidates struct {
	head candidate
	some bool

	memory []candidate
	// Of a run, at and left are where the head is, and how many entries there are from it on.
	run   *run
	queue int
	at    uint64
	left  uint32
}

// set sets the head.
func (c *candidates) set() error {
	if c.run == nil {
		if c.some = len(c.memory) > 0; c.some {
			c.head = c.memory[0]
		}
		return nil
	}
	if c.some = c.left > 0; !c.some {
		return nil
	}
	k, payload, err := c.run.head(c.at)
	if c.run.suffix == waitingRun.suffix {
		k = placeOf(k)
	}
	c.head = candidate{at: k, payload: payload, file: c.run.name}
	return err
}

// advance leaves the head behind.
func (c *candidates) advance() error {
	if c.run == nil {
		c.memory = c.memory[1:]
	} else {
		c.at, c.left = c.at+8+uint64(len(c.head.payload)), c.left-1
	}
	return c.set()
}

// listedTo is where in a run a list of a queue has come to: what lies before the offset is not
// after the place. The next part of the list begins there, instead of reading all that is before
// it.
type listedTo struct {
	queue int
	place rank
	at    uint64
	left  uint32
}

// rememberFrom is how many entries of a queue in a run make it worth to note how far they were
// read.
const rememberFrom = 1000

// remember notes, of the runs that candidates are of, where a list has come to. They keep where the
// last two parts began and ended: a reader may go on within a part.
func (s *Shard) remember(sources []*candidates, place rank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range sources {
		if c.run == nil {
			continue
		}
		if _, _, count := c.run.extentOf(c.queue); count < rememberFrom {
			continue
		}
		l := &c.run.listed
		copy(l[1:], l[:])
		l[0] = listedTo{c.queue, place, c.at, c.left}
	}
}

// sources returns the candidates of a queue after a place, by where they are. Reading is held:
// files that are replaced meanwhile stay.
func (s *Shard) sources(id QueueID, loose []candidate, after rank) (all []*candidates, err error) {
	memory := func(some []candidate) {
		all = append(all, &candidates{memory: some})
	}
	if len(loose) > 0 {
		slices.SortFunc(loose, func(a, b candidate) int { return a.at.compare(b.at) })
		memory(loose)
	}
	s.mu.Lock()
	if s.failed != nil {
		defer s.mu.Unlock()
		return nil, s.failed
	}
	if q := s.queues.get(&id); q != nil {
		recent, frozen := s.inMemory(q)
		memory(s.batch.after(recent, after))
		if frozen != 0 {
			memory(s.frozen.after(frozen, after))
		}
	}
	for _, r := range slices.Concat(s.waiting, s.rest) {
		i, ok := r.find(id)
		if !ok || r.suffix == restRun.suffix && after.compare(lastResting) >= 0 {
			continue
		}
		c := &candidates{run: r, queue: i}
		c.at, c.left = r.position(i)
		for _, l := range r.listed {
			if l.left < c.left && l.queue == i && l.place.compare(after) <= 0 && l.at > 0 {
				c.at, c.left = l.at, l.left
			}
		}
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		if err := c.set(); err != nil {
			return nil, err
		}
		for c.some && c.head.at.compare(after) <= 0 {
			if err := c.advance(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// after returns the entries of a heap that come after a place, in order.
func (b *batch) after(root node, place rank) (some []candidate) {
	entries := b.waiting.appendAll(nil, root)
	sortRanked(entries)
	for _, e := range entries {
		if at := placeOf(e.rank); at.compare(place) > 0 {
			some = append(some, candidate{at: at, payload: b.texts.Get(e.data), file: "memory"})
		}
	}
	return some
}

// least leaves the first of all candidates behind, and returns it. It is false if there are none.
func least(sources []*candidates) (first candidate, ok bool, err error) {
	for _, from := range sources {
		if from.some && (!ok || from.head.at.compare(first.at) < 0) {
			first, ok = from.head, true
		}
	}
	for _, from := range sources {
		// A leased entry may lie in a run as well, or have been taken from it meanwhile.
		for from.some && from.head.at == first.at {
			if err := from.advance(); err != nil {
				return first, false, err
			}
		}
	}
	return first, ok, nil
}

// listQueue returns up to n URLs of a queue whose entries come after a place. Reading is held.
func (s *Shard) listQueue(id QueueID, name string, loose []candidate, after rank, n int) (list []Listed, err error) {
	sources, err := s.sources(id, loose, after)
	if err != nil {
		return nil, err
	}
	s.remember(sources, after)
	var some []candidate
	for more := true; more && len(list) < n; {
		for some = some[:0]; len(some) < min(keepAtOnce, n-len(list)); {
			var c candidate
			if c, more, err = least(sources); err != nil {
				return nil, err
			}
			if !more {
				break
			}
			some = append(some, c)
		}
		if list, err = s.appendListed(list, id, name, some); err != nil {
			return nil, err
		}
		if len(some) > 0 {
			after = some[len(some)-1].at
		}
	}
	s.remember(sources, after)
	return list, nil
}

// appendListed appends to a list the candidates that their URLs have, in order.
func (s *Shard) appendListed(list []Listed, id QueueID, name string, some []candidate) ([]Listed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range some {
		e, err := parseEntry(c.payload, name, c.file)
		if err != nil {
			return nil, err
		}
		st, ok := s.known(s.idOf(name, []byte(e.URL)))
		// Of an entry that was due later, the one that waits now comes at its place.
		if !ok || st.Seq != e.Seq || (st.Settled || st.Later) != (c.at.class == 0) {
			continue
		}
		if !st.Later {
			e.Due = 0 // a file may have it as it was before
		}
		l := Listed{Entry: e, State: Waiting, At: Cursor{id, c.at.class, c.at.seq}, Fetched: st.Time, Status: st.Status}
		switch {
		case st.Settled:
			l.State = Done
		case st.Later:
			l.State = Later
		case s.leased.Has(e.Seq):
			l.State = Leased
		}
		list = append(list, l)
	}
	return list, nil
}
