package shard

import (
	"maps"
	"slices"

	"github.com/urlake/urlake/lake/codec"
)

// sweepLeast is how many deleted URLs are worth that files are written anew, if it is half as many
// as there are others.
const sweepLeast = 10_000

// mark says what was deleted of a queue. Neither all nor purges ever change.
type mark struct {
	// all entries with lower numbers are deleted,
	all uint64
	// and so are those of URLs that were created before a time.
	purges []purge
	// last is the last file that may have what was deleted, 0 if that is not known yet. Files that
	// are written later have nothing of it.
	last uint64
}

type purge struct {
	before uint32 // in seconds since 1970
	seq    uint64
}

// deletes says that a URL with a state was deleted.
func (m *mark) deletes(st *State) bool {
	if m == nil {
		return false
	}
	return st.Seq < m.all || slices.ContainsFunc(m.purges, func(p purge) bool { return st.Created < p.before && st.Seq < p.seq })
}

// marksByTag returns marks by the tags of their queues.
func marksByTag(marks map[QueueID]*mark) map[tag]*mark {
	byTag := make(map[tag]*mark, len(marks))
	for id, m := range marks {
		byTag[id.tag()] = m
	}
	return byTag
}

// deletion is what is deleted at once: a queue, or the queues of a crawl; of these all URLs, or
// those that were created before a time. Entries with numbers from seq on are not meant.
type deletion struct {
	crawl string
	queue string // its name; "" for all of the crawl
	// before is in seconds since 1970, 0 for all URLs.
	before uint32
	seq    uint64
}

func (x *deletion) append(b []byte) []byte {
	b = codec.AppendString(codec.AppendString(b, x.crawl), x.queue)
	return codec.AppendUvarint(codec.AppendUvarint(b, uint64(x.before)), x.seq)
}

func parseDeletion(d *codec.Decoder) (deletion, error) {
	x := deletion{crawl: d.String(), queue: d.String(), before: uint32(d.Uint(1<<32 - 1)), seq: d.Uvarint()}
	return x, d.Close()
}

// Deleted is what was deleted.
type Deleted struct {
	// URLs is how many, with those that were settled.
	URLs int64
	// Idle are the queues in which nothing waits since. Their leases and those of Ended are void.
	Idle []string
	// Ended are the entries that were leased.
	Ended []*Entry
}

// Delete forgets the URLs of a crawl, or of one of its queues if a name is given: all, or those
// that were created before a time in seconds since 1970. They can be added again. It is certain
// when Commit has returned. Memory and files give their space back when they are merged next.
func (s *Shard) Delete(crawl, queue string, before uint32) (Deleted, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return Deleted{}, s.failed
	}
	x := deletion{crawl, queue, before, s.next}
	if err := s.journaled(recordDelete, x.append); err != nil {
		return Deleted{}, err
	}
	done, err := s.delete(&x)
	if err != nil {
		s.failed = err
	}
	return done, err
}

func (s *Shard) delete(x *deletion) (done Deleted, err error) {
	var queues []*queue
	if x.queue != "" {
		id := IDOfQueue(x.queue)
		if q := s.queues.get(&id); q != nil {
			queues = append(queues, q)
		} else if s.unnamed[id.tag()] != nil {
			queues = append(queues, s.queue(id, x.queue))
		}
	} else if c := s.crawls.byName[x.crawl]; c != nil {
		for _, number := range c.queues {
			queues = append(queues, s.queues.at(number))
		}
	}
	if len(queues) == 0 {
		return done, nil
	}
	if x.before == 0 {
		err = s.deleteAll(x, queues, &done)
	} else {
		err = s.purge(x, queues, &done)
	}
	if err != nil {
		return done, err
	}
	s.deleted = append(s.deleted, done.Ended...)
	s.gone += done.URLs
	return done, nil
}

// sweeps says that so much was deleted that all files are to be merged.
func (s *Shard) sweeps() bool { return s.gone >= s.o.sweep && s.gone >= s.counts.All()/2 }

// retire drops marks of which no file has anything. It is called when a batch is in files.
func (s *Shard) retire() {
	for _, id := range s.fresh { // deleted while files were written
		if m := s.marks[id]; m != nil && m.last == 0 {
			m.last = s.files
		}
	}
	first := s.files + 1
	for _, r := range s.runs() {
		first = min(first, r.number)
	}
	for _, file := range s.seen {
		first = min(first, file.number)
	}
	if first == s.firstFile {
		return
	}
	s.firstFile = first
	for id, m := range s.marks {
		if m.last != 0 && m.last < first {
			s.ownMarks()
			delete(s.marks, id)
		}
	}
}

// ownMarks makes sure that the marks are not those of a frozen batch as well.
func (s *Shard) ownMarks() {
	if s.marksShared {
		s.marks, s.marksShared = maps.Clone(s.marks), false
	}
}

// deleteAll forgets all URLs of queues.
func (s *Shard) deleteAll(x *deletion, queues []*queue, done *Deleted) error {
	deleted := make(map[uint32]struct{}, len(queues))
	for _, q := range queues {
		deleted[q.number] = struct{}{}
	}
	for seq, b := range s.leased.All() {
		q, _ := s.parseLease(b)
		if _, ok := deleted[q.number]; !ok {
			continue
		}
		e, err := s.leasedEntry(seq)
		if err != nil {
			return err
		}
		done.Ended = append(done.Ended, e)
		s.leased.Remove(seq)
	}
	for _, q := range queues {
		for state, n := range q.counts() {
			s.count(q, state, -int(n))
			done.URLs += n
		}
		done.Idle = append(done.Idle, s.queues.name(q))
		s.mark(q.id, &mark{all: x.seq})
		s.drop(q)
	}
	s.forget(queues)
	return nil
}

// drop frees what is in the batch of a queue that will be forgotten.
func (s *Shard) drop(q *queue) {
	root := &q.memory[s.batch.side]
	s.memory -= entryOverhead * len(s.batch.waiting.appendAll(nil, *root))
	*root = 0
}

// purge forgets the URLs of queues that were created before a time. It looks at the state of every
// URL of the shard: some ten nanoseconds each.
func (s *Shard) purge(x *deletion, queues []*queue, done *Deleted) error {
	type found struct {
		q *queue
		n int64
	}
	byTag := make(map[tag]*found, len(queues))
	for _, q := range queues {
		byTag[q.id.tag()] = &found{q: q}
	}
	err := s.eachState(func(id []byte, p packed) error {
		st := p.unpack()
		if st.Created >= x.before || st.Seq >= x.seq {
			return nil
		}
		f := byTag[tagOf(id)]
		if f == nil || s.marks[f.q.id].deletes(&st) {
			return nil
		}
		f.n++
		e, err := s.leasedEntry(st.Seq)
		if err != nil {
			return err
		}
		if e != nil {
			done.Ended = append(done.Ended, e)
		}
		s.leave(f.q, st)
		return nil
	})
	if err != nil {
		return err
	}
	var empty []*queue
	for _, f := range byTag {
		if f.n == 0 {
			continue
		}
		done.URLs += f.n
		m := &mark{purges: []purge{{x.before, x.seq}}}
		if old := s.marks[f.q.id]; old != nil {
			m.all = old.all
			for _, p := range old.purges {
				if p.before > x.before { // the others are within this one
					m.purges = append(m.purges, p)
				}
			}
		}
		s.mark(f.q.id, m)
		f.q.setSuspect(true)
		if f.q.has(waits) == 0 {
			done.Idle = append(done.Idle, s.queues.name(f.q))
		}
		if f.q.counts() == (Counts{}) {
			s.drop(f.q)
			empty = append(empty, f.q)
		}
	}
	s.forget(empty)
	return nil
}

// mark sets the mark of a queue.
func (s *Shard) mark(id QueueID, m *mark) {
	s.ownMarks()
	if s.frozen == nil {
		m.last = s.files
	}
	s.marks[id] = m
	s.fresh = append(s.fresh, id)
}

// dead says that an entry of a frozen batch was deleted before.
func (f *frozen) dead(id QueueID, payload []byte) (bool, error) {
	m := f.marks[id]
	if len(f.fresh) == 0 || m == nil {
		return false, nil
	}
	e, err := parseEntry(payload, "", "memory")
	return m.deletes(&State{Seq: e.Seq, Created: e.Created}), err
}

// eachState calls yield with the id and the state of every URL, deleted ones too.
func (s *Shard) eachState(yield func(id []byte, p packed) error) error {
	for id, p := range s.batch.seen.All() {
		if err := yield(id[:], p); err != nil {
			return err
		}
	}
	if s.frozen != nil {
		for id, p := range s.frozen.seen.All() {
			if _, newer := s.batch.seen.Get(id); !newer {
				if err := yield(id[:], p); err != nil {
					return err
				}
			}
		}
	}
	return mergeSeen(s.seen, func(e []byte) error {
		id := URLID(e[:16])
		if _, newer := s.batch.seen.Get(&id); newer {
			return nil
		}
		if s.frozen != nil {
			if _, newer := s.frozen.seen.Get(&id); newer {
				return nil
			}
		}
		return yield(e[:16], elementState(e))
	})
}
