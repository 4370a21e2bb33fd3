package shard

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
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
	// Fetched is when the URL was fetched last, in seconds since 1970, 0 if never, and Status what
	// came of it.
	Fetched uint32
	Status  uint16
}

// Cursor is the entry that a list has come to: entries are in the order of their queues' ids, and
// within a queue of their numbers. The zero Cursor is before all.
type Cursor struct {
	Queue QueueID
	Seq   uint64
}

// Crawls returns the names of the crawls that have URLs, in order.
func (s *Shard) Crawls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.crawls))
	for name := range s.crawls {
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
		if q := s.queues[IDOfQueue(queue)]; q != nil {
			return q.counts(), 1
		}
		return c, 0
	}
	if of := s.crawls[crawl]; of != nil {
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
		of := s.crawls[crawl]
		if of == nil || from >= len(of.queues) {
			s.mu.Unlock()
			return
		}
		type named struct {
			name string
			c    Counts
		}
		part := make([]named, 0, queuesAtOnce)
		for _, q := range of.queues[from:min(from+queuesAtOnce, len(of.queues))] {
			part = append(part, named{q.name, q.counts()})
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
func (s *Shard) Seen(queue, url string) (State, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := IDOfQueue(queue)
	return s.known(of, s.idOf(of, &Entry{Queue: queue, URL: url}))
}

// Name names a URL: its queue, and its canonical spelling.
type Name struct{ Queue, URL string }

// SeenAll calls yield with what is known of each URL, in order, and whether it was ever added. The
// shard is locked meanwhile, for some of them at a time.
func (s *Shard) SeenAll(names []Name, yield func(i int, st State, ok bool)) {
	var room [lookUpAtOnce]lookup
	for first := 0; first < len(names); first += lookUpAtOnce {
		some := names[first:min(first+lookUpAtOnce, len(names))]
		s.seenSome(some, room[:len(some)], func(i int, st State, ok bool) { yield(first+i, st, ok) })
	}
}

func (s *Shard) seenSome(names []Name, looked []lookup, yield func(i int, st State, ok bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range names {
		looked[i].name(s, names[i].Queue, names[i].URL)
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
	for range 10 { // again, if the URL was changed meanwhile
		st, ok, err := s.Seen(queue, url)
		if !ok || err != nil {
			return found, false, err
		}
		list, err := s.listQueue(IDOfQueue(queue), queue, s.loose("", queue)[queue], st.Seq-1, 1)
		if err != nil {
			return found, false, err
		}
		if len(list) > 0 && list[0].URL == url {
			return list[0], true, nil
		}
	}
	return found, false, nil
}

// List returns up to n URLs of a crawl, or of one of its queues if a name is given, that come after
// a cursor, and the cursor of the last. There are no more if it returns none. A URL that does not
// change meanwhile comes once.
func (s *Shard) List(crawl, queue string, after Cursor, n int) (list []Listed, next Cursor, err error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	next = after
	loose := s.loose(crawl, queue)
	for _, q := range s.listedQueues(crawl, queue, after) {
		seq := uint64(0)
		if q.id == after.Queue {
			seq = after.Seq
		}
		part, err := s.listQueue(q.id, q.name, loose[q.name], seq, n-len(list))
		if err != nil {
			return nil, after, err
		}
		list = append(list, part...)
		if len(part) > 0 {
			next = Cursor{q.id, part[len(part)-1].Seq}
		}
		if len(list) >= n {
			break
		}
	}
	return list, next, nil
}

type listedQueue struct {
	id   QueueID
	name string
}

// listedQueues returns queues from that of a cursor on, in the order of their ids.
func (s *Shard) listedQueues(crawl, queue string, after Cursor) (queues []listedQueue) {
	add := func(q listedQueue) {
		if bytes.Compare(q.id[:], after.Queue[:]) >= 0 {
			queues = append(queues, q)
		}
	}
	if queue != "" {
		add(listedQueue{IDOfQueue(queue), queue})
		return queues
	}
	s.mu.Lock()
	if of := s.crawls[crawl]; of != nil {
		for _, q := range of.queues {
			add(listedQueue{IDOfQueue(q.name), q.name})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(queues, func(a, b listedQueue) int { return bytes.Compare(a.id[:], b.id[:]) })
	return queues
}

// candidate is an entry that a list may have. It has a payload or an entry.
type candidate struct {
	seq     uint64
	payload []byte
	entry   *Entry
	file    string
}

// loose returns the entries of a queue, or of all of a crawl, that are in memory but do not wait,
// by queue. They are looked for once, and not for each queue that is listed.
func (s *Shard) loose(crawl, queue string) map[string][]candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]candidate{}
	add := func(name string, c candidate) {
		if name == queue || queue == "" && crawlOf(name) == crawl {
			found[name] = append(found[name], c)
		}
	}
	for _, of := range [...]map[uint64]*Entry{s.leased, s.resuming} {
		for seq, e := range of {
			add(e.Queue, candidate{seq: seq, entry: e, file: "memory"})
		}
	}
	batches := []*batch{s.batch}
	if s.frozen != nil {
		batches = append(batches, s.frozen.batch)
	}
	for _, b := range batches {
		for i := range b.done {
			add(b.done[i].name, candidate{seq: b.done[i].seq, payload: b.done[i].data, file: "memory"})
		}
		for _, e := range b.later {
			add(e.Queue, candidate{seq: e.Seq, entry: e, file: "memory"})
		}
	}
	return found
}

// candidates are those with the lowest numbers, the highest of them first.
type candidates []candidate

func (c candidates) Len() int           { return len(c) }
func (c candidates) Less(i, j int) bool { return c[i].seq > c[j].seq }
func (c candidates) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *candidates) Push(x any)        { *c = append(*c, x.(candidate)) }
func (c *candidates) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// listQueue returns up to n URLs of a queue whose entries have numbers above one. Reading is held:
// files that are replaced meanwhile stay.
func (s *Shard) listQueue(id QueueID, name string, loose []candidate, after uint64, n int) (list []Listed, err error) {
	last := after
	for len(list) < n {
		// Some of the candidates may not be those that their URLs have.
		most := max(2*(n-len(list)), 64)
		some, err := s.candidates(id, loose, after, most)
		if err != nil || len(some) == 0 {
			return list, err
		}
		slices.SortFunc(some, func(a, b candidate) int { return cmp.Compare(a.seq, b.seq) })
		for part := range slices.Chunk(some, keepAtOnce) {
			if list, err = s.appendListed(list, id, name, part, n, &last); err != nil {
				return nil, err
			}
		}
		if len(some) < most {
			return list, nil
		}
		after = some[len(some)-1].seq
	}
	return list, nil
}

func (s *Shard) candidates(id QueueID, loose []candidate, after uint64, most int) (some candidates, err error) {
	add := func(c candidate) {
		switch {
		case c.seq <= after:
		case len(some) < most:
			heap.Push(&some, c)
		case c.seq < some[0].seq:
			some[0] = c
			heap.Fix(&some, 0)
		}
	}
	for _, c := range loose {
		add(c)
	}
	s.mu.Lock()
	if s.failed != nil {
		defer s.mu.Unlock()
		return nil, s.failed
	}
	if q := s.queues[id]; q != nil {
		recent, frozen := s.inMemory(q)
		for _, m := range [...]*memoryQueue{recent, frozen} {
			if m != nil {
				err = errors.Join(err, m.each(func(seq uint64, data []byte) error {
					add(candidate{seq: seq, payload: data, file: "memory"})
					return nil
				}))
			}
		}
	}
	waiting, rest := s.waiting, s.rest
	ends := make([]struct {
		i    int
		at   uint64
		left uint32
	}, len(waiting))
	for j, r := range waiting {
		if i, ok := r.find(id); ok {
			ends[j].at, ends[j].left = r.position(i)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for j, r := range waiting {
		err := r.eachFrom(ends[j].at, ends[j].left, func(payload []byte) error {
			k, err := parseSeq(payload, r.name)
			add(candidate{seq: k.seq, payload: payload, file: r.name})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, r := range rest {
		i, ok := r.find(id)
		if !ok {
			continue
		}
		err := r.each(i, func(payload []byte) error {
			k, err := parseSeq(payload, r.name)
			add(candidate{seq: k.seq, payload: payload, file: r.name})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return some, nil
}

// appendListed appends to a list, until it has n, the candidates that their URLs have, in order.
// Last is the number of the entry that was appended last.
func (s *Shard) appendListed(list []Listed, id QueueID, name string, some []candidate, n int, last *uint64) ([]Listed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range some {
		if len(list) == n {
			break
		}
		// A leased entry may lie in a run as well, or have been taken from it meanwhile.
		if c.seq == *last {
			continue
		}
		e := Entry{}
		if c.entry != nil {
			e = *c.entry
		} else {
			var err error
			if e, err = parseEntry(c.payload, name, c.file); err != nil {
				return nil, err
			}
		}
		st, ok, err := s.known(id, s.idOf(id, &e))
		if err != nil {
			return nil, err
		}
		if !ok || st.Seq != c.seq {
			continue
		}
		if *last = c.seq; !st.Later {
			e.Due = 0 // a file may have it as it was before
		}
		l := Listed{Entry: e, State: Waiting, Fetched: st.Time, Status: st.Status}
		switch {
		case st.Settled:
			l.State = Done
		case st.Later:
			l.State = Later
		case s.leased[e.Seq] != nil:
			l.State = Leased
		}
		list = append(list, l)
	}
	return list, nil
}
