// Package shard keeps a part of a frontier's URLs in files: those that wait, in the order in which
// each queue is to be fetched; those that were ever added; and the outcome of every fetch. A folder
// holds any number of queues in a few files.
//
// What is added or settled goes to a journal first. From time to time everything in memory is
// written to files sorted by queue (runs) and by URL (seen), and a checkpoint says which files
// count, and from which segment of the journal on there is more. So Open finds what Commit has
// returned for, wherever the process died. docs/formats/frontier.md describes the files.
//
// Which entries are leased, and when a queue may be fetched from next, is not known here but in
// package coord: after Open the caller says with Resume which leases there are.
package shard

import (
	"container/heap"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/urlake/urlake/frontier/journal"
	"github.com/urlake/urlake/lake/codec"
)

// Options say how a shard is kept.
type Options struct {
	// Sync waits for the disk before anything is acknowledged.
	Sync bool
	// MemoryBytes is about how much of waiting entries stays in memory before they are written to a
	// run.
	MemoryBytes int
	// Cap is how many entries may wait in a queue, less than 0 for any number; nil is that for all.
	// It is called while the shard is locked.
	Cap func(queue string) int64
	// between is called between the steps of writing files, in tests.
	between func()
}

// AddStatus says what Add did with an entry.
type AddStatus uint8

const (
	// Added entries wait now.
	Added AddStatus = iota
	// Known URLs were added before, by whomever.
	Known
)

// Shard is an open shard. It may be used by several goroutines.
type Shard struct {
	dir string
	o   Options

	mu      sync.Mutex
	journal *journal.Journal
	queues  map[QueueID]*queue
	runs    []*run // the oldest first
	seen    seen
	visits  *visits
	// leased are the entries that Take has handed out, by number, and that are neither done nor
	// back.
	leased map[uint64]*Entry
	// resuming are those that a checkpoint has as leased, until the caller has said which are.
	resuming map[uint64]*Entry
	// skip are the numbers, and the queues, of entries that lie in runs but are done, or leased.
	skip  map[uint64]string
	later laterHeap
	// frozen are entries that are being written to a run, nil most of the time.
	frozen *frozen
	next   uint64 // the number of the next entry
	files  uint64 // the number of the last file
	// memory is about how many bytes waiting entries take in memory.
	memory  int
	scratch []byte
	// upkeep is held while files are written and replaced.
	upkeep sync.Mutex
	failed error
}

// queue has the waiting entries of a queue that are in memory, and counts all.
type queue struct {
	name string
	// pending entries wait, in memory or in runs; those that are due later do not count.
	pending int64
	// leased entries are out.
	leased int64
	memory memoryQueue
}

// laterHeap are the entries that are due later, the first one first.
type laterHeap []*Entry

func (h laterHeap) Len() int           { return len(h) }
func (h laterHeap) Less(i, j int) bool { return h[i].Due < h[j].Due }
func (h laterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *laterHeap) Push(x any)        { *h = append(*h, x.(*Entry)) }
func (h *laterHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// entryOverhead is about what an entry in memory takes besides its bytes.
const entryOverhead = 64

// Open opens a shard, or begins one in an empty folder. Torn is what it has cut from the journal's
// end, or nil.
func Open(dir string, o Options) (s *Shard, torn *journal.Torn, err error) {
	s = &Shard{
		dir: dir, o: o, queues: map[QueueID]*queue{}, leased: map[uint64]*Entry{}, resuming: map[uint64]*Entry{},
		skip: map[uint64]string{}, seen: seen{recent: map[URLID]uint64{}}, next: 1,
	}
	first, err := s.load()
	if err != nil {
		return nil, nil, errors.Join(err, s.closeFiles())
	}
	r := replay{s: s, later: map[uint64]struct{}{}}
	for _, e := range s.later {
		r.later[e.Seq] = struct{}{}
	}
	s.journal, torn, err = journal.Open(filepath.Join(dir, "journal"), journal.Options{Sync: o.Sync, First: first}, r.record)
	if err != nil {
		return nil, nil, errors.Join(err, s.closeFiles())
	}
	s.dropSkipped()
	return s, torn, nil
}

// replay applies the journal to what the checkpoint has.
type replay struct {
	s     *Shard
	later map[uint64]struct{} // numbers of entries in s.later
}

func (r *replay) record(segment uint64, record []byte) error {
	s, file := r.s, fmt.Sprintf("%s: journal segment %d", r.s.dir, segment)
	d := codec.NewDecoder(record, file, "record")
	switch kind := d.U8(); kind {
	case recordAdd:
		e, err := parseQueued(d, file)
		if err != nil {
			return err
		}
		id, buf := IDOfURL(crawlOf(e.Queue), e.URL, s.scratch)
		s.scratch = buf
		s.seen.set(id, State{})
		return r.add(&e)
	case recordDone:
		seq := d.Uvarint()
		visit, err := parseVisit(d.Rest(), file)
		if err := errors.Join(d.Err(), err); err != nil {
			return err
		}
		r.settle(seq, visit.Queue)
		s.visited(&visit)
		return nil
	case recordBack:
		seq := d.Uvarint()
		e, err := parseQueued(d, file)
		if err != nil {
			return err
		}
		r.settle(seq, e.Queue)
		return r.add(&e)
	default:
		return codec.Corrupt(file, "record", 0, "a known kind", kind)
	}
}

func (r *replay) add(e *Entry) error {
	if e.Due > 0 {
		r.later[e.Seq] = struct{}{}
	}
	r.s.next = max(r.s.next, e.Seq+1)
	r.s.place(e)
	return nil
}

// settle forgets an entry that was handed out after the checkpoint or before.
func (r *replay) settle(seq uint64, queue string) {
	s := r.s
	if _, ok := s.resuming[seq]; ok {
		delete(s.resuming, seq)
		return
	}
	s.skip[seq] = queue
	if _, ok := r.later[seq]; !ok {
		s.queue(queue).pending--
	}
}

func parseQueued(d *codec.Decoder, file string) (Entry, error) {
	queue := d.String()
	if err := d.Err(); err != nil {
		return Entry{}, err
	}
	return parseEntry(d.Rest(), queue, file)
}

// dropSkipped removes the entries in memory that the journal has settled again.
func (s *Shard) dropSkipped() {
	if len(s.skip) == 0 {
		return
	}
	gone := func(seq uint64) bool {
		_, ok := s.skip[seq]
		if ok {
			delete(s.skip, seq)
		}
		return ok
	}
	s.later = slices.DeleteFunc(s.later, func(e *Entry) bool { return gone(e.Seq) })
	heap.Init(&s.later)
	for _, q := range s.queues {
		for _, data := range q.memory.take(gone) {
			s.memory -= entryOverhead + len(data)
		}
	}
}

// queue returns a queue, which it makes if there is none.
func (s *Shard) queue(name string) *queue {
	id := IDOfQueue(name)
	q := s.queues[id]
	if q == nil {
		q = &queue{name: name}
		s.queues[id] = q
	}
	return q
}

// place puts an entry into memory.
func (s *Shard) place(e *Entry) *queue {
	if e.Due > 0 {
		heap.Push(&s.later, e)
		return nil
	}
	q := s.queue(e.Queue)
	data := e.append(make([]byte, 0, 24+len(e.URL)+len(e.Metadata)))
	q.memory.push(e.rank(), data)
	s.memory += entryOverhead + len(data)
	q.pending++
	return q
}

// journaled appends a record to the journal.
func (s *Shard) journaled(kind byte, fill func(b []byte) []byte) error {
	s.scratch = fill(append(s.scratch[:0], kind))
	if err := s.journal.Append(s.scratch); err != nil {
		s.failed = err
		return err
	}
	return nil
}

func appendQueued(b []byte, e *Entry) []byte { return e.append(codec.AppendString(b, e.Queue)) }

// Add adds entries whose URLs are not known, and gives them their numbers. Woken are the queues
// that had nothing waiting before. Nothing of it is certain before Commit has returned.
func (s *Shard) Add(entries []Entry) (statuses []AddStatus, woken []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, nil, s.failed
	}
	statuses = make([]AddStatus, len(entries))
	for i := range entries {
		e := &entries[i]
		id, buf := IDOfURL(crawlOf(e.Queue), e.URL, s.scratch)
		s.scratch = buf
		_, known, err := s.known(id)
		if err != nil {
			return nil, nil, err
		}
		if known {
			statuses[i] = Known
			continue
		}
		if s.full(e.Queue) {
			statuses[i] = Full
			continue
		}
		e.Seq = s.next
		s.next++
		if err := s.journaled(recordAdd, func(b []byte) []byte { return appendQueued(b, e) }); err != nil {
			return nil, nil, err
		}
		s.seen.set(id, State{})
		if q := s.place(e); q != nil && q.pending == 1 {
			woken = append(woken, e.Queue)
		}
	}
	return statuses, woken, nil
}

// known returns what is known of a URL.
func (s *Shard) known(id URLID) (State, bool, error) {
	if v, ok := s.seen.recent[id]; ok {
		return unpackState(v), true, nil
	}
	if s.frozen != nil {
		if v, ok := s.frozen.seen[id]; ok {
			return unpackState(v), true, nil
		}
	}
	return s.seen.inFiles(id)
}

// Commit returns when everything that was done before is certain.
func (s *Shard) Commit() error {
	err := s.journal.Commit()
	if err != nil {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
	}
	return err
}

// Take hands out up to n entries of a queue in its order. They are leased until Done or Back. Left
// is how many wait after that.
func (s *Shard) Take(name string, n int) (taken []*Entry, left int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, 0, s.failed
	}
	id := IDOfQueue(name)
	q := s.queues[id]
	if q == nil {
		return nil, 0, nil
	}
	for len(taken) < n && q.pending > 0 {
		e, err := s.pop(id, q)
		if err != nil {
			return taken, q.pending, err
		}
		if e == nil {
			return taken, q.pending, fmt.Errorf("%s: queue %q counts %d entries that are nowhere", s.dir, name, q.pending)
		}
		q.pending--
		q.leased++
		s.leased[e.Seq] = e
		taken = append(taken, e)
	}
	return taken, q.pending, nil
}

// pop returns the first entry of a queue, nil if it has none.
func (s *Shard) pop(id QueueID, q *queue) (*Entry, error) {
	for {
		var least *run
		var waits *memoryQueue
		var best rank
		var place int
		var payload []byte
		for _, r := range s.runs {
			i, ok := r.find(id)
			if !ok || r.left[i] == 0 {
				continue
			}
			k, data, err := r.head(i)
			if err != nil {
				return nil, err
			}
			if least == nil || k.compare(best) < 0 {
				least, best, place, payload = r, k, i, data
			}
		}
		for _, m := range [...]*memoryQueue{s.frozen.queue(id), &q.memory} {
			if k, ok := m.first(); ok && (least == nil && waits == nil || k.compare(best) < 0) {
				best, waits = k, m
			}
		}
		if waits != nil {
			data := waits.pop()
			if waits == &q.memory {
				s.memory -= entryOverhead + len(data)
			}
			e, err := parseEntry(data, q.name, "memory")
			return &e, err
		}
		if least == nil {
			return nil, nil
		}
		least.pop(place, len(payload))
		if _, ok := s.skip[best.seq]; ok {
			delete(s.skip, best.seq)
			continue
		}
		e, err := parseEntry(payload, q.name, least.name)
		return &e, err
	}
}

// Leased returns a leased entry.
func (s *Shard) Leased(seq uint64) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.leased[seq]; e != nil {
		return *e, true
	}
	return Entry{}, false
}

// Done settles a leased entry with the outcome of its fetch, whose queue, URL and depth it sets. It
// is false if the entry is not leased.
func (s *Shard) Done(seq uint64, visit Visit) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leased[seq]
	if e == nil || s.failed != nil {
		return false, s.failed
	}
	visit.Queue, visit.URL, visit.Depth = e.Queue, e.URL, e.Depth
	visit.Time = max(visit.Time, s.visits.last)
	err = s.journaled(recordDone, func(b []byte) []byte { return visit.append(codec.AppendUvarint(b, seq)) })
	if err != nil {
		return false, err
	}
	s.release(e)
	s.visited(&visit)
	return true, nil
}

// visited notes a visit.
func (s *Shard) visited(v *Visit) {
	id, buf := IDOfURL(crawlOf(v.Queue), v.URL, s.scratch)
	s.scratch = buf
	s.seen.set(id, State{Time: uint32(v.Time / 1000), Status: v.Status, Settled: true})
	s.visits.add(v)
}

// Back returns a leased entry to its queue, behind those of its priority and depth. It is due at a
// time in milliseconds, 0 for at once. Woken says that the queue had nothing waiting before. It is
// false if the entry is not leased.
func (s *Shard) Back(seq uint64, due int64) (woken, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.leased[seq]
	if e == nil || s.failed != nil {
		return false, false, s.failed
	}
	again := *e
	again.Seq, again.Tries, again.Due = s.next, e.Tries+1, due
	s.next++
	err = s.journaled(recordBack, func(b []byte) []byte { return appendQueued(codec.AppendUvarint(b, seq), &again) })
	if err != nil {
		return false, false, err
	}
	s.release(e)
	q := s.place(&again)
	return q != nil && q.pending == 1, true, nil
}

// release forgets that an entry is leased.
func (s *Shard) release(e *Entry) {
	delete(s.leased, e.Seq)
	if s.frozen != nil && e.Seq < s.frozen.next {
		s.frozen.settled = append(s.frozen.settled, e)
	}
	id := IDOfQueue(e.Queue)
	q := s.queues[id]
	q.leased--
	if q.leased == 0 && q.pending == 0 {
		delete(s.queues, id)
	}
}

// Promote puts entries that are due into their queues, and returns those that had nothing waiting
// before.
func (s *Shard) Promote(now int64) (woken []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What is being written has to stay as it is said to be.
	for s.frozen == nil && len(s.later) > 0 && s.later[0].Due <= now {
		e := heap.Pop(&s.later).(*Entry)
		due := *e
		due.Due = 0
		if q := s.place(&due); q.pending == 1 {
			woken = append(woken, due.Queue)
		}
	}
	return woken
}

// Resume says which entries of a queue are leased, by the leases that there are. Those that were
// due later when they were added have to be promoted first. It returns the numbers that it does not
// know: they are settled, or were never certain.
func (s *Shard) Resume(name string, seqs []uint64) (unknown []uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[uint64]struct{}{}
	for _, seq := range seqs {
		if e := s.resuming[seq]; e != nil {
			delete(s.resuming, seq)
			s.queue(name).leased++
			s.leased[seq] = e
		} else if s.leased[seq] == nil {
			wanted[seq] = struct{}{}
		}
	}
	id := IDOfQueue(name)
	if q := s.queues[id]; q != nil && len(wanted) > 0 {
		if err := s.lease(id, q, wanted); err != nil {
			return nil, err
		}
	}
	for seq := range wanted {
		unknown = append(unknown, seq)
	}
	slices.Sort(unknown)
	return unknown, nil
}

// lease moves waiting entries to the leased ones, and their numbers out of wanted.
func (s *Shard) lease(id QueueID, q *queue, wanted map[uint64]struct{}) error {
	note := func(e Entry) {
		delete(wanted, e.Seq)
		s.leased[e.Seq] = &e
		q.pending--
		q.leased++
	}
	for _, data := range q.memory.take(func(seq uint64) bool { _, ok := wanted[seq]; return ok }) {
		e, err := parseEntry(data, q.name, "memory")
		if err != nil {
			return err
		}
		s.memory -= entryOverhead + len(data)
		note(e)
	}
	for _, r := range s.runs {
		i, ok := r.find(id)
		if !ok {
			continue
		}
		at := r.next[i]
		for n := uint32(0); n < r.left[i] && len(wanted) > 0; n++ {
			payload, err := r.record(at)
			if err != nil {
				return err
			}
			at += 8 + uint64(len(payload))
			k, err := parseRank(payload, r.name)
			if err != nil {
				return err
			}
			_, want := wanted[k.seq]
			if _, gone := s.skip[k.seq]; !want || gone {
				continue
			}
			e, err := parseEntry(payload, q.name, r.name)
			if err != nil {
				return err
			}
			s.skip[k.seq] = q.name
			note(e)
		}
	}
	return nil
}

// Resumed ends the time of Resume: entries that were leased at the checkpoint, and for which there
// is no lease, wait again.
func (s *Shard) Resumed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seq, e := range s.resuming {
		delete(s.resuming, seq)
		if _, ok := s.skip[seq]; ok { // it still lies in a run
			delete(s.skip, seq)
			s.queue(e.Queue).pending++
		} else {
			s.place(e)
		}
	}
}

// Queues calls yield with the name of each queue, and how many of its entries wait and are leased,
// in no order, until it returns false.
func (s *Shard) Queues(yield func(name string, pending, leased int64) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if !yield(q.name, q.pending, q.leased) {
			return
		}
	}
}

// Queue returns how many entries of a queue wait and are leased.
func (s *Shard) Queue(name string) (pending, leased int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[IDOfQueue(name)]; q != nil {
		return q.pending, q.leased
	}
	return 0, 0
}

// Seen returns what is known of a URL within a crawl.
func (s *Shard) Seen(crawl, url string) (State, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, buf := IDOfURL(crawl, url, s.scratch)
	s.scratch = buf
	return s.known(id)
}

// Visits calls yield for each visit from the first at or after since on, in milliseconds, or from
// number from on if that is later, until it returns false. It returns the number of the next.
func (s *Shard) Visits(since, from int64, yield func(n int64, visit Visit) bool) (next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.visits.read(since, from, yield)
}

// Stats counts what a shard has.
type Stats struct {
	Queues, Pending, Leased, Later, Visits int64
	// Memory is about how many bytes of entries are in memory.
	Memory int64
	// Runs and SeenFiles count files.
	Runs, SeenFiles int64
}

// Stats counts what the shard has.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Queues: int64(len(s.queues)), Leased: int64(len(s.leased)), Later: int64(len(s.later)), Visits: s.visits.count,
		Memory: int64(s.memory), Runs: int64(len(s.runs)), SeenFiles: int64(len(s.seen.files)),
	}
	for _, q := range s.queues {
		st.Pending += q.pending
	}
	return st
}

func (s *Shard) closeFiles() (err error) {
	for _, r := range s.runs {
		err = errors.Join(err, r.close())
	}
	for _, f := range s.seen.files {
		err = errors.Join(err, f.close())
	}
	if s.visits != nil {
		err = errors.Join(err, s.visits.close())
	}
	return err
}

// Close commits and closes the shard.
func (s *Shard) Close() error {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.journal.Close()
	s.failed = errors.New("the shard is closed")
	return errors.Join(err, s.closeFiles())
}
