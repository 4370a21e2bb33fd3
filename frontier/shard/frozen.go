package shard

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/urlake/urlake/frontier/arena"
)

// writeFrozen writes what was frozen to files.
func (s *Shard) writeFrozen(f *frozen, w *freshFiles) (err error) {
	var waiting []uint32
	s.eachFrozen(f, func(q *queue) { waiting = append(waiting, q.number) })
	rest := append(make([]settledEntry, 0, len(f.done)+len(f.later)), f.done...)
	for i := range f.later {
		rest = append(rest, f.later[i].settledEntry)
	}
	for i, of := range []struct {
		k     kind
		some  bool
		write func(w *runWriter) error
	}{
		{waitingRun, len(waiting) > 0, func(w *runWriter) error { return s.writeWaiting(f, w, waiting) }},
		{restRun, len(rest) > 0, func(w *runWriter) error { return f.writeRest(w, rest) }},
		{dueRun, len(f.later) > 0, f.writeDue},
	} {
		if !of.some {
			continue
		}
		number := s.newFile()
		name := s.file(number, of.k.suffix)
		out, err := newRunWriter(name, s.pacer)
		if err != nil {
			return err
		}
		if err := errors.Join(of.write(out), out.close()); err != nil {
			return err
		}
		if w.runs[i], err = openRun(name, number, of.k, s.pacer); err != nil {
			return err
		}
	}
	if f.seen.Len() == 0 {
		return nil
	}
	number := s.newFile()
	name := s.file(number, seenSuffix)
	drop := func(*URLID, state) bool { return false }
	if len(f.fresh) > 0 {
		marks := marksByTag(f.marks)
		drop = func(id *URLID, p state) bool {
			st := packed(p).unpack()
			return marks[tagOf(id[:])].deletes(&st)
		}
	}
	sorted := f.seen.Sorted(drop, s.pacer.Step)
	if err := writeSeen(name, s.pacer, func(yield func([]byte) error) error { return yield(sorted) }); err != nil {
		return err
	}
	w.seen, err = openSeen(name, number, s.pacer)
	return err
}

// heapsAtOnce is how many heaps of a frozen batch are read before others may use the shard.
const heapsAtOnce = 256

// writeWaiting writes the entries that wait of queues with some numbers. It leaves out those that
// were taken since the batch was frozen, if it can: they are leased, or the journal has what became
// of them.
func (s *Shard) writeWaiting(f *frozen, w *runWriter, queues []uint32) error {
	f.sortByID(queues, w.pacer)
	var entries []ranked[arena.Place]
	var ends [heapsAtOnce]int
	for part := range slices.Chunk(queues, heapsAtOnce) {
		entries = s.readHeaps(f, part, entries[:0], ends[:])
		first := 0
		for i, number := range part {
			q := f.queues.at(number)
			some := entries[first:ends[i]]
			if first = ends[i]; len(some) == 0 {
				continue
			}
			slices.SortFunc(some, compare(w.pacer, func(a, b ranked[arena.Place]) int { return a.compare(b.rank) }))
			if err := w.queue(q.id, f.queues.names.Get(q.name)); err != nil {
				return err
			}
			for _, e := range some {
				data := f.texts.Get(e.data)
				if err := f.write(w, q.id, data, data); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sortByID sorts the numbers of queues by the queues' ids.
func (f *frozen) sortByID(queues []uint32, pacer *pacer) {
	type queueNumber struct {
		upper  uint64 // half of the id, so that most comparisons look at no queue
		number uint32
	}
	all := make([]queueNumber, len(queues))
	for i, number := range queues {
		all[i] = queueNumber{binary.BigEndian.Uint64(f.queues.at(number).id[:]), number}
	}
	slices.SortFunc(all, compare(pacer, func(a, b queueNumber) int {
		if a.upper != b.upper {
			return cmp.Compare(a.upper, b.upper)
		}
		return bytes.Compare(f.queues.at(a.number).id[:], f.queues.at(b.number).id[:])
	}))
	for i := range all {
		queues[i] = all[i].number
	}
}

// readHeaps appends the entries in heaps of a frozen batch of some queues, and sets where those of
// each end. It loads what it looks at for all of them, one thing after the other, as Expect does.
func (s *Shard) readHeaps(f *frozen, queues []uint32, entries []ranked[arena.Place], ends []int) []ranked[arena.Place] {
	var roots [heapsAtOnce]node
	sum := uint64(0)
	s.mu.Lock()
	for i, number := range queues {
		roots[i] = f.queues.at(number).memory[f.side]
	}
	for _, root := range roots[:len(queues)] {
		if root != 0 {
			sum += f.waiting.at(root).seq
		}
	}
	for i, root := range roots[:len(queues)] {
		entries = f.waiting.appendAll(entries, root)
		ends[i] = len(entries)
	}
	s.touched += sum
	s.mu.Unlock()
	for _, e := range entries {
		f.touched += uint64(f.texts.Get(e.data)[0])
	}
	return entries
}

// write writes the payload of an entry to a run, unless it was deleted.
func (f *frozen) write(w *runWriter, id QueueID, entry, payload []byte) error {
	if dead, err := f.dead(id, entry); dead || err != nil {
		return err
	}
	return w.entry(payload)
}

func (f *frozen) writeRest(w *runWriter, entries []settledEntry) error {
	type settled struct {
		id   QueueID
		seq  uint64
		data arena.Place
		name arena.Place
	}
	all := make([]settled, len(entries))
	for i, e := range entries {
		w.pacer.Step()
		q := f.queues.at(e.queue)
		all[i] = settled{q.id, seqOf(f.texts.Get(e.data)), e.data, q.name}
	}
	slices.SortFunc(all, compare(w.pacer, func(a, b settled) int {
		return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.seq, b.seq))
	}))
	var last QueueID
	for i := range all {
		e := &all[i]
		data := f.texts.Get(e.data)
		if dead, err := f.dead(e.id, data); dead || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if len(w.dir) == 0 || e.id != last {
			last = e.id
			if err := w.queue(e.id, f.queues.names.Get(e.name)); err != nil {
				return err
			}
		}
		if err := w.entry(data); err != nil {
			return err
		}
	}
	return nil
}

func (f *frozen) writeDue(w *runWriter) error {
	type due struct {
		laterEntry
		seq uint64
	}
	all := make([]due, len(f.later))
	for i, e := range f.later {
		w.pacer.Step()
		all[i] = due{e, seqOf(f.texts.Get(e.data))}
	}
	slices.SortFunc(all, compare(w.pacer, func(a, b due) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) }))
	if err := w.queue(QueueID{}, nil); err != nil {
		return err
	}
	var b []byte
	for i := range all {
		q := f.queues.at(all[i].queue)
		name, data := f.queues.names.Get(q.name), f.texts.Get(all[i].data)
		b = appendQueued(b[:0], name, data)
		if err := f.write(w, q.id, data, b); err != nil {
			return err
		}
	}
	return nil
}
