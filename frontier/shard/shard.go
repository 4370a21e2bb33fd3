// Package shard keeps a part of a frontier's URLs in files: those that wait, in the order in which
// each queue is to be fetched; those that were ever added; and the outcome of every fetch. A folder
// holds any number of queues in a few files.
//
// What is added or settled goes to a journal first. From time to time everything in memory is
// written to files sorted by queue (runs) and by URL (seen), and a checkpoint says which files
// count, and from which segment of the journal on there is more. So Open finds what Commit has
// returned for, wherever the process died. docs/formats/frontier.md describes the files.
//
// Every URL has one entry, which waits, is leased, is due later or is settled. The state of a URL
// has the number of that entry and says which of these it is (but for leases). A file or a list in
// memory may have older entries, and entries twice: they are dropped when they are met. So a URL is
// updated or deleted without a search for its entry.
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
	"time"

	"github.com/urlake/urlake/frontier/arena"
	"github.com/urlake/urlake/frontier/journal"
	"github.com/urlake/urlake/lake/codec"
)

// Options say how a shard is kept.
type Options struct {
	// Sync waits for the disk before anything is acknowledged.
	Sync bool
	// MemoryBytes is about how much of entries stays in memory before they are written to files.
	MemoryBytes int
	// Now is the clock that entries have their creation times from; time.Now if nil.
	Now func() time.Time
	// Cap is how many entries may wait in a queue, less than 0 for any number; nil is that for all.
	// It is called while the shard is locked.
	Cap func(queue string) int64
	// Rests, if it is set, says how many times as long as a piece of work on files the rest after
	// it is, 0 if there is none: requests may want the processor.
	Rests func() int
	// sweep is how many deleted URLs are worth that files are written anew; 0 is sweepLeast.
	sweep int64
	// between is called between the steps of writing files, in tests.
	between func()
}

// AddStatus says what Add did with an entry.
type AddStatus uint8

const (
	// Added entries are of URLs that were not known.
	Added AddStatus = iota
	// Known URLs were added before, by whomever.
	Known
	// Updated entries have replaced those that their URLs had.
	Updated
)

// Shard is an open shard. It may be used by several goroutines.
type Shard struct {
	dir string
	o   Options

	mu      sync.Mutex
	journal *journal.Journal
	queues  queueTable
	crawls  crawls
	counts  Counts
	visits  *log
	// waiting, rest and due are the runs of each kind, and seen the files of states; the oldest
	// first.
	waiting, rest, due []*run
	seen               []*seenFile
	// generation counts the changes of waiting from 1 on, and heads has the next entries of queues
	// in these runs.
	generation uint32
	heads      heaps[runHead]
	// batch is what is in memory and goes into the next files, frozen what is being written; that
	// is nil most of the time.
	batch  *batch
	frozen *frozen
	// leased are the entries that Take has handed out, by number, and that are neither done nor
	// back: the number of the queue and the bytes of each.
	leased *arena.Map
	// resuming are those that a checkpoint has as leased, until the caller has said which are.
	resuming map[uint64]*Entry
	// marks say what was deleted of queues. Once a batch was frozen it has the same map.
	marks       map[QueueID]*mark
	marksShared bool
	// fresh are the queues whose marks were set since a batch was frozen.
	fresh []QueueID
	// gone is how many deleted URLs the files still have, about, and firstFile the lowest number of
	// a file.
	gone      int64
	firstFile uint64
	// merging says that runs are being merged, or written.
	merging bool
	// deleted are entries that were leased and were deleted since a batch was frozen.
	deleted []*Entry
	// opening says that the shard is being opened. Unnamed then counts the URLs of queues whose
	// names come in the journal.
	opening bool
	unnamed map[tag]*Counts
	next    uint64 // the number of the next entry
	files   uint64 // the number of the last file
	// memory is about how many bytes entries take in the batch.
	memory int
	// scratch has the last record, and text what was hashed last.
	scratch, text []byte
	touched       uint64        // so that the compiler keeps loads whose values do not matter
	expected      []expectation // memory of Expect
	// upkeep is held while files are written and replaced, which the pacer divides. Reading is held
	// to read files without the lock, and by who closes them. The order is upkeep, reading, mu.
	upkeep  sync.Mutex
	pacer   *pacer
	reading sync.RWMutex
	failed  error
}

// The states of an entry.
const (
	waits = iota
	isLeased
	isLater
	isDone
	states
)

// Counts are numbers of URLs by what they do.
type Counts [states]int64

// Waiting is how many URLs wait and are due, Leased how many are being fetched, Later how many wait
// for a time, and Done how many are settled.
func (c Counts) Waiting() int64 { return c[waits] }
func (c Counts) Leased() int64  { return c[isLeased] }
func (c Counts) Later() int64   { return c[isLater] }
func (c Counts) Done() int64    { return c[isDone] }

// All is how many URLs there are.
func (c Counts) All() int64 { return c[waits] + c[isLeased] + c[isLater] + c[isDone] }

// Plus returns a sum.
func (c Counts) Plus(d Counts) Counts {
	for i := range c {
		c[i] += d[i]
	}
	return c
}

// entryOverhead is about what an entry in memory takes besides its bytes.
const entryOverhead = 32

// Open opens a shard, or begins one in an empty folder. Torn is what it has cut from the journal's
// end, or nil.
func Open(dir string, o Options) (s *Shard, torn *journal.Torn, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.sweep == 0 {
		o.sweep = sweepLeast
	}
	s = &Shard{
		dir: dir, o: o, queues: newQueueTable(), crawls: crawls{byName: map[string]*crawl{}}, leased: arena.NewMap(),
		resuming: map[uint64]*Entry{}, marks: map[QueueID]*mark{}, unnamed: map[tag]*Counts{}, batch: newBatch(0), next: 1, generation: 1, opening: true,
	}
	folder := filepath.Join(dir, "journal")
	if err := journal.CheckFormat(folder); err != nil { // before anything is changed
		return nil, nil, err
	}
	first, err := s.load()
	if err != nil {
		return nil, nil, errors.Join(err, s.closeFiles())
	}
	s.journal, torn, err = journal.Open(folder, journal.Options{Sync: o.Sync, First: first}, s.replay)
	if err != nil {
		return nil, nil, errors.Join(err, s.closeFiles())
	}
	for of := range s.unnamed {
		err := codec.Corrupt(dir, "seen URLs", 0, "the name of the queue of each", fmt.Sprintf("none for %x", of))
		return nil, nil, errors.Join(err, s.Close())
	}
	s.opening = false
	return s, torn, nil
}

// replay applies a record of the journal.
func (s *Shard) replay(segment uint64, record []byte) error {
	file := fmt.Sprintf("%s: journal segment %d", s.dir, segment)
	d := codec.NewDecoder(record, file, "record")
	c := change{}
	switch kind := d.U8(); kind {
	case recordDelete:
		x, err := parseDeletion(d)
		if err != nil {
			return err
		}
		_, err = s.delete(&x)
		return err
	case recordWait:
	case recordSettled:
		c.settled = true
	case recordDone, recordAgain:
		v, err := parseOutcome(d)
		if err != nil {
			return err
		}
		c.visit, c.settled = &v, kind == recordDone
	default:
		return codec.Corrupt(file, "record", 0, "a known kind", kind)
	}
	queue := d.String()
	encoded := d.Rest()
	e, err := parseEntry(encoded, queue, file)
	if err := errors.Join(d.Err(), err); err != nil {
		return err
	}
	s.next = max(s.next, e.Seq+1)
	c.entry, c.encoded = &e, encoded
	c.id = s.idOf(e.Queue, []byte(e.URL))
	c.old, c.known = s.known(c.id)
	s.apply(&c)
	return nil
}

// change is what happens to a URL: it gets another entry, which waits unless it is settled.
type change struct {
	entry      *Entry
	id         ID     // of its URL
	queue      *queue // nil if it was not looked up
	encoded    []byte // the entry as append writes it, until the next record
	old        State  // if known
	known      bool
	settled    bool
	visit      *Visit // or nil
	nowWaiting bool   // set by apply if the entry is the only one of its queue that waits
}

// kind is that of the record of a change.
func (c *change) kind() byte {
	switch {
	case c.visit != nil && c.settled:
		return recordDone
	case c.visit != nil:
		return recordAgain
	case c.settled:
		return recordSettled
	}
	return recordWait
}

// apply changes the state of a URL, and puts its entry where it belongs.
func (s *Shard) apply(c *change) {
	e := c.entry
	q := c.queue
	if q == nil {
		q = s.queue(c.id.queue, e.Queue)
	}
	st := State{Seq: e.Seq, Created: e.Created, Settled: c.settled, Later: !c.settled && e.Due > 0}
	if c.known {
		s.leave(q, c.old)
		st.Time, st.Status = c.old.Time, c.old.Status
	}
	if c.visit != nil {
		st.Time, st.Status = uint32(c.visit.Time/1000), c.visit.Status
		c.visit.Queue, c.visit.URL, c.visit.Depth = e.Queue, e.URL, e.Depth
		s.visits.Add(c.visit)
	}
	s.batch.seen.Set(&c.id.url, st.pack())
	switch {
	case st.Settled:
		s.count(q, isDone, 1)
		s.batch.done = append(s.batch.done, s.settle(q, c.encoded))
	case st.Later:
		s.count(q, isLater, 1)
		heap.Push(&s.batch.later, laterEntry{e.Due, s.settle(q, c.encoded)})
	default:
		s.count(q, waits, 1)
		s.place(q, e.rank(), c.encoded)
		c.nowWaiting = q.has(waits) == 1
	}
}

// settle keeps an entry that does not wait, of which it has the bytes.
func (s *Shard) settle(q *queue, encoded []byte) settledEntry {
	s.memory += entryOverhead + len(encoded)
	return settledEntry{q.number, s.batch.texts.Keep(encoded)}
}

// leave takes an entry of a queue out of the count of its state. It is dropped when it is met.
func (s *Shard) leave(q *queue, st State) {
	switch {
	case st.Settled:
		s.count(q, isDone, -1)
	case st.Later:
		s.count(q, isLater, -1)
	case s.leased.Has(st.Seq):
		s.count(q, isLeased, -1)
		s.leased.Remove(st.Seq)
	default:
		s.count(q, waits, -1)
		q.setSuspect(true)
	}
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

// record appends the record of a change to the journal. It keeps the bytes of the entry.
func (s *Shard) record(c *change) error {
	from := 0
	err := s.journaled(c.kind(), func(b []byte) []byte {
		if c.visit != nil {
			b = c.visit.AppendOutcome(b)
		}
		b = codec.AppendString(b, c.entry.Queue)
		from = len(b)
		return c.entry.append(b)
	})
	c.encoded = s.scratch[from:]
	return err
}

// number gives an entry the next number.
func (s *Shard) number(e *Entry) error {
	if s.next > maxSeq {
		return fmt.Errorf("%s: the shard has given out all %d numbers of entries; begin another frontier", s.dir, uint64(maxSeq))
	}
	e.Seq = s.next
	s.next++
	return nil
}

// Commit returns when everything that was done before is certain.
func (s *Shard) Commit() error {
	err := errors.Join(s.journal.Commit(), s.visits.FlushMuch())
	if err != nil {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
	}
	return err
}

// Take hands out up to n entries of a queue in its order. They are leased until Done, Back or an
// update. Left is how many wait after that.
func (s *Shard) Take(name string, n int) (taken []Entry, left int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, 0, s.failed
	}
	id := IDOfQueue(name)
	q := s.queues.get(&id)
	if q == nil {
		return nil, 0, nil
	}
	for len(taken) < n && q.has(waits) > 0 {
		payload, file, err := s.pop(q)
		if err != nil {
			return taken, q.has(waits), err
		}
		if payload == nil {
			return taken, q.has(waits), fmt.Errorf("%s: queue %q counts %d entries that are nowhere", s.dir, name, q.has(waits))
		}
		e, err := parseEntry(payload, name, file)
		if err != nil {
			return taken, q.has(waits), err
		}
		s.count(q, waits, -1)
		s.count(q, isLeased, 1)
		s.lease(q, payload)
		if taken == nil {
			taken = make([]Entry, 0, min(int64(n), 1+q.has(waits)))
		}
		taken = append(taken, e)
	}
	return taken, q.has(waits), nil
}

// pop returns the bytes of the first entry of a queue that counts, nil if it has none, and the file
// that they are of.
func (s *Shard) pop(q *queue) (payload []byte, file string, err error) {
	for {
		if err := s.refresh(q); err != nil {
			return nil, "", err
		}
		var best rank
		recent, frozen := s.inMemory(q)
		from := 0
		if q.heads != 0 {
			best, from = s.heads.at(q.heads).rank(), 1
		}
		if frozen != 0 {
			if k := s.frozen.waiting.at(frozen).rank(); from == 0 || k.compare(best) < 0 {
				best, from = k, 2
			}
		}
		if recent != 0 {
			if k := s.batch.waiting.at(recent).rank(); from == 0 || k.compare(best) < 0 {
				best, from = k, 3
			}
		}
		switch from {
		case 0:
			q.setSuspect(q.isSuspect() && s.merging)
			return nil, "", nil
		case 1:
			if payload, file, err = s.popHead(q); err != nil {
				return nil, "", err
			}
		case 2:
			payload, file = s.frozen.popFrom(q), "memory"
		case 3:
			payload, file = s.batch.popFrom(q), "memory"
			s.memory -= entryOverhead // the bytes stay until the batch is written
		}
		if q.isSuspect() {
			ok, err := s.stands(&waitingRun, q.id, s.queues.names.Get(q.name), payload)
			if err != nil {
				return nil, "", err
			}
			if !ok || s.leased.Has(best.seq) {
				continue
			}
		}
		// What is written meanwhile will have the entry still.
		q.setSuspect(q.isSuspect() || s.merging)
		return payload, file, nil
	}
}

// stands says whether the bytes of an entry are those of the entry that its URL has.
func (s *Shard) stands(k *kind, of QueueID, queue, payload []byte) (bool, error) {
	seq, url, err := parseURL(payload, s.dir)
	if err != nil {
		return false, err
	}
	st, ok := s.known(s.urlID(of, queue, url))
	if !ok || st.Seq != seq {
		return false, nil
	}
	switch k.suffix {
	case waitingRun.suffix:
		return !st.Settled && !st.Later, nil
	case restRun.suffix:
		return st.Settled || st.Later, nil
	default:
		return st.Later, nil
	}
}

// Done settles a leased entry with the outcome of its fetch, whose queue, URL and depth it sets. If
// again is not 0 the URL waits from that time on, in milliseconds. It is false if the entry is not
// leased.
func (s *Shard) Done(seq uint64, visit Visit, again int64) (ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e Entry
	c, ok, err := s.endLease(seq, &e)
	if !ok || err != nil {
		return false, err
	}
	visit.Time = max(visit.Time, s.visits.Last())
	// Of the old state nothing is kept: to look it up would be a search in files.
	e.Tries, e.Due = 0, max(again, 0)
	c.settled, c.visit = again <= 0, &visit
	if err := s.record(&c); err != nil {
		return false, err
	}
	s.apply(&c)
	return true, nil
}

// Back returns a leased entry to its queue, behind those of its priority and depth. It is due at a
// time in milliseconds, 0 for at once. Woken says that the queue had nothing waiting before. It is
// false if the entry is not leased.
func (s *Shard) Back(seq uint64, due int64) (woken, ok bool, err error) {
	return s.back(seq, 1, due)
}

// Return is Back of an entry that nobody was given.
func (s *Shard) Return(seq uint64) (woken, ok bool, err error) { return s.back(seq, 0, 0) }

func (s *Shard) back(seq uint64, tries uint32, due int64) (woken, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var e Entry
	c, ok, err := s.endLease(seq, &e)
	if !ok || err != nil {
		return false, false, err
	}
	c.old, c.known = s.known(c.id) // when it was fetched before is kept
	e.Tries, e.Due = e.Tries+tries, due
	if err := s.record(&c); err != nil {
		return false, false, err
	}
	s.apply(&c)
	return c.nowWaiting, true, nil
}

// Visit is the outcome of a fetch.
type Visit = visit

// ErrPosition means that there are fewer visits than those after which a reader wants to go on.
var ErrPosition = errPosition

// Stats counts what a shard has.
type Stats struct {
	Queues, Pending, Leased, Later, Done, Visits int64
	// Memory is about how many bytes of entries are in memory.
	Memory int64
	// Runs and SeenFiles count files.
	Runs, SeenFiles int64
}

// Stats counts what the shard has.
func (s *Shard) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{
		Queues: int64(s.queues.len()), Pending: s.counts[waits], Leased: s.counts[isLeased], Later: s.counts[isLater],
		Done: s.counts[isDone], Visits: s.visits.Count(), Memory: int64(s.memory),
		Runs: int64(len(s.waiting) + len(s.rest) + len(s.due)), SeenFiles: int64(len(s.seen)),
	}
}

// Visits calls yield for each visit from the first on whose time in the index is at or after since,
// in milliseconds, or from number from on if that is later, until it returns false. It returns the
// number of the next. What is told is certain, so the number stays that of the visit. With a number
// that no visit can have, the error is ErrPosition.
func (s *Shard) Visits(since, from int64, yield func(n int64, visit Visit) bool) (next int64, err error) {
	s.reading.RLock()
	defer s.reading.RUnlock()
	s.mu.Lock()
	count, failed := s.visits.Count(), s.failed
	s.mu.Unlock()
	if failed == nil {
		failed = s.Commit()
	}
	if failed != nil {
		return from, failed
	}
	return s.visits.Read(since, from, count, yield)
}

func (s *Shard) runs() []*run { return slices.Concat(s.waiting, s.rest, s.due) }

func (s *Shard) closeFiles() (err error) {
	for _, r := range s.runs() {
		err = errors.Join(err, r.close())
	}
	for _, f := range s.seen {
		err = errors.Join(err, f.close())
	}
	if s.visits != nil {
		err = errors.Join(err, s.visits.Close())
	}
	return err
}

// Close commits and closes the shard.
func (s *Shard) Close() error {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.journal.Close()
	s.failed = errors.New("the shard is closed")
	return errors.Join(err, s.closeFiles())
}
