package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urlake/urlake/frontier/journal"
	"github.com/urlake/urlake/lake/codec"
)

const (
	checkpointName    = "checkpoint"
	checkpointMagic   = "UFCP"
	checkpointVersion = 1
	runSuffix         = ".run"
	seenSuffix        = ".seen"
	// maxRuns is how many runs a shard has before some are merged: each costs a search whenever an
	// entry is taken.
	maxRuns = 6
	// mergeFactor says when a file is merged with newer ones: if these are together at least its
	// size divided by the factor.
	mergeFactor = 4
)

func (s *Shard) file(number uint64, suffix string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%016x%s", number, suffix))
}

// load opens the files of the checkpoint, and deletes those of a later one that was not completed.
// It returns the first segment of the journal that counts.
func (s *Shard) load() (segment uint64, err error) {
	if err := journal.MakeDir(s.dir); err != nil {
		return 0, err
	}
	name := filepath.Join(s.dir, checkpointName)
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	count := int64(0)
	if err == nil {
		if segment, count, err = s.parse(data, name); err != nil {
			return 0, err
		}
	}
	if err := s.deleteOthers(); err != nil {
		return 0, err
	}
	s.visits, err = openVisits(s.dir, count)
	return segment, err
}

func (s *Shard) parse(data []byte, name string) (segment uint64, visits int64, err error) {
	data, err = codec.CheckCRC32C(data, name, "checkpoint")
	if err != nil {
		return 0, 0, err
	}
	d := codec.NewDecoder(data, name, "checkpoint")
	d.Magic(checkpointMagic, checkpointVersion)
	s.next, s.files, segment, visits = d.U64(), d.U64(), d.U64(), int64(d.U64())
	for range d.U32() {
		number, size := d.U64(), d.U64()
		taken := d.Bytes(int(min(size, uint64(d.Len()))))
		if d.Err() != nil {
			return 0, 0, d.Err()
		}
		r, err := openRun(s.file(number, runSuffix), number)
		if err != nil {
			return 0, 0, err
		}
		s.runs = append(s.runs, r)
		if err := r.setTaken(taken, name); err != nil {
			return 0, 0, err
		}
		for i, left := range r.left {
			if left > 0 {
				queue, err := r.queueName(i)
				if err != nil {
					return 0, 0, err
				}
				s.queue(queue).pending += int64(left)
			}
		}
	}
	for range d.U32() {
		number := d.U64()
		if d.Err() != nil {
			return 0, 0, d.Err()
		}
		f, err := openSeen(s.file(number, seenSuffix), number)
		if err != nil {
			return 0, 0, err
		}
		s.seen.files = append(s.seen.files, f)
	}
	entries := func(each func(*Entry)) error {
		for range d.U32() {
			size := d.U32()
			part := codec.NewDecoder(d.Bytes(int(min(size, uint32(d.Len())))), name, "entry")
			e, err := parseQueued(part, name)
			if err := errors.Join(d.Err(), err); err != nil {
				return err
			}
			each(&e)
		}
		return nil
	}
	if err := entries(func(e *Entry) { s.resuming[e.Seq] = e }); err != nil {
		return 0, 0, err
	}
	if err := entries(func(e *Entry) { s.place(e) }); err != nil {
		return 0, 0, err
	}
	for range d.U32() {
		queue, seq := d.String(), d.U64()
		if d.Err() != nil {
			return 0, 0, d.Err()
		}
		s.skip[seq] = queue
		s.queue(queue).pending--
	}
	return segment, visits, d.Close()
}

// checkpoint encodes the state of when the entries in memory were frozen, and what was taken since.
// The journal has what was added and settled since.
func (s *Shard) checkpoint(f *frozen) []byte {
	b := codec.AppendMagic(nil, checkpointMagic, checkpointVersion)
	for _, v := range [...]uint64{f.next, s.files, f.segment, uint64(f.visits)} {
		b = codec.AppendU64(b, v)
	}
	b = codec.AppendU32(b, uint32(len(s.runs)))
	for _, r := range s.runs {
		taken := r.taken()
		b = codec.AppendU64(codec.AppendU64(b, r.number), uint64(len(taken)))
		b = append(b, taken...)
	}
	b = codec.AppendU32(b, uint32(len(s.seen.files)))
	for _, f := range s.seen.files {
		b = codec.AppendU64(b, f.number)
	}
	entry := func(e *Entry) {
		s.scratch = appendQueued(s.scratch[:0], e)
		b = append(codec.AppendU32(b, uint32(len(s.scratch))), s.scratch...)
	}
	leased := slices.Clone(f.settled)
	for _, of := range [...]map[uint64]*Entry{s.leased, s.resuming} {
		for seq, e := range of {
			if seq < f.next {
				leased = append(leased, e)
			}
		}
	}
	b = codec.AppendU32(b, uint32(len(leased)))
	for _, e := range leased {
		entry(e)
	}
	later := slices.DeleteFunc(slices.Clone(s.later), func(e *Entry) bool { return e.Seq >= f.next })
	b = codec.AppendU32(b, uint32(len(later)))
	for _, e := range later {
		entry(e)
	}
	b = codec.AppendU32(b, uint32(len(s.skip)))
	for seq, queue := range s.skip {
		b = codec.AppendU64(codec.AppendString(b, queue), seq)
	}
	return codec.AppendCRC32C(b)
}

// deleteOthers deletes runs and files of seen URLs that the shard does not have.
func (s *Shard) deleteOthers() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		mine := func(name string) bool { return name == path }
		if strings.HasSuffix(path, runSuffix) && !slices.ContainsFunc(s.runs, func(r *run) bool { return mine(r.name) }) ||
			strings.HasSuffix(path, seenSuffix) && !slices.ContainsFunc(s.seen.files, func(f *seenFile) bool { return mine(f.name) }) ||
			strings.HasSuffix(path, ".tmp") {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// Upkeep writes what is in memory to files if that is much, merges small files, and deletes what
// these replace. The caller calls it again and again.
func (s *Shard) Upkeep() error {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	s.mu.Lock()
	err := s.failed
	full := s.memory > s.o.MemoryBytes || len(s.seen.recent)*2*seenElement > s.o.MemoryBytes ||
		s.journal.Size() > int64(4*s.o.MemoryBytes)
	s.mu.Unlock()
	if err != nil || !full {
		return err
	}
	return s.write()
}

// Flush writes everything in memory to files.
func (s *Shard) Flush() error {
	s.upkeep.Lock()
	defer s.upkeep.Unlock()
	return s.write()
}

// write merges files that are due, writes what is in memory to new ones, and then the checkpoint.
// Entries are added, taken and settled meanwhile.
func (s *Shard) write() error {
	merge, err := s.mergeRuns()
	if err != nil {
		return err
	}
	united, err := s.mergeSeen()
	if err != nil {
		return err
	}
	f, err := s.freeze()
	if err != nil {
		return err
	}
	s.pause()
	fresh, err := s.writeFrozen(f)
	s.pause()
	var checkpoint []byte
	var old []string
	names := []string{filepath.Join(s.dir, visitsName), filepath.Join(s.dir, indexName)}
	s.mu.Lock()
	if err == nil {
		err = s.failed
	}
	if err == nil {
		old, err = s.replace(f, fresh, merge, united)
	}
	if err == nil {
		checkpoint = s.checkpoint(f)
		for _, r := range s.runs {
			names = append(names, r.name)
		}
		for _, file := range s.seen.files {
			names = append(names, file.name)
		}
	} else if s.failed == nil {
		s.failed = err
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := syncFile(name); err != nil {
			return err
		}
	}
	s.pause()
	if err := writeFile(filepath.Join(s.dir, checkpointName), checkpoint); err != nil {
		return err
	}
	s.pause()
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return s.journal.Drop(f.segment)
}

func (s *Shard) pause() {
	if s.o.between != nil {
		s.o.between()
	}
}

// freeze begins a segment of the journal, and sets what is in memory aside.
func (s *Shard) freeze() (f *frozen, err error) {
	if err := s.Commit(); err != nil { // so that little is left to write with the lock
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	f = &frozen{queues: map[QueueID]*memoryQueue{}, next: s.next, visits: s.visits.count, seen: s.seen.recent}
	if f.segment, err = s.journal.Rotate(); err != nil {
		s.failed = err
		return nil, err
	}
	for id, q := range s.queues {
		if n := q.memory.len(); n > 0 {
			of := q.memory
			f.queues[id] = &of
			f.written = append(f.written, frozenQueue{id, q.name, slices.Clone(of.classes), n})
			q.memory = memoryQueue{}
		}
	}
	s.memory, s.frozen = 0, f
	s.seen.recent = map[URLID]uint64{}
	return f, nil
}

// writtenFiles are a run and a file of seen URLs, nil if there was nothing for them.
type writtenFiles struct {
	run  *run
	seen *seenFile
}

// writeFrozen writes what was frozen to files.
func (s *Shard) writeFrozen(f *frozen) (w writtenFiles, err error) {
	if len(f.written) > 0 {
		if w.run, err = s.writeRun(f.written); err != nil {
			return w, err
		}
	}
	if len(f.seen) == 0 {
		return w, nil
	}
	number := s.newFile()
	name, sorted := s.file(number, seenSuffix), sortSeen(f.seen)
	if err := writeSeen(name, func(yield func([]byte) error) error { return yield(sorted) }); err != nil {
		return w, err
	}
	w.seen, err = openSeen(name, number)
	return w, err
}

func (s *Shard) newFile() (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files++
	return s.files
}

// replace takes new files instead of what they were made of, and returns the names of the files
// that are not needed any more.
func (s *Shard) replace(f *frozen, fresh writtenFiles, merge *merged, united *unitedSeen) (old []string, err error) {
	if merge != nil {
		if err := merge.catchUp(); err != nil {
			return nil, err
		}
		for _, r := range merge.from {
			old = append(old, r.name)
			if err := r.close(); err != nil {
				return nil, err
			}
		}
		s.runs = append(slices.Clone(s.runs[:merge.first]), append([]*run{merge.into}, s.runs[merge.first+len(merge.from):]...)...)
	}
	if fresh.run != nil {
		if err := fresh.run.catchUp(f); err != nil {
			return nil, err
		}
		s.runs = append(s.runs, fresh.run)
	}
	s.runs = slices.DeleteFunc(s.runs, func(r *run) bool {
		if r.entries > 0 {
			return false
		}
		old = append(old, r.name)
		err = errors.Join(err, r.close())
		return true
	})
	if err != nil {
		return nil, err
	}
	if united != nil {
		for _, file := range united.from {
			old = append(old, file.name)
			if err := file.close(); err != nil {
				return nil, err
			}
		}
		first := len(s.seen.files) - len(united.from)
		s.seen.files = append(s.seen.files[:first:first], united.into)
	}
	if fresh.seen != nil {
		s.seen.files = append(s.seen.files, fresh.seen)
	}
	s.frozen = nil
	return old, s.visits.flush()
}

// writeRun writes a run of frozen queues.
func (s *Shard) writeRun(queues []frozenQueue) (*run, error) {
	slices.SortFunc(queues, func(a, b frozenQueue) int { return bytes.Compare(a.id[:], b.id[:]) })
	number := s.newFile()
	name := s.file(number, runSuffix)
	w, err := newRunWriter(name)
	if err != nil {
		return nil, err
	}
	err = func() error {
		for i := range queues {
			if err := w.queue(queues[i].id, queues[i].name); err != nil {
				return err
			}
			for _, c := range queues[i].classes {
				for _, e := range c.entries[c.head:] {
					if err := w.entry(e.data); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}()
	if err := errors.Join(err, w.close()); err != nil {
		return nil, err
	}
	return openRun(name, number)
}

// catchUp leaves behind in the run of frozen entries what was taken while it was written.
func (r *run) catchUp(f *frozen) error {
	for i := range f.written { // in the order of the run
		if err := r.skipTaken(i, uint32(f.written[i].count-f.queues[f.written[i].id].len())); err != nil {
			return err
		}
	}
	return nil
}

// skipTaken leaves the next entries of the ith queue behind.
func (r *run) skipTaken(i int, n uint32) error {
	for range n {
		payload, err := r.record(r.next[i])
		if err != nil {
			return err
		}
		r.pop(i, len(payload))
	}
	return nil
}

// merged is a run made of several neighbours, of which entries may have been taken meanwhile.
type merged struct {
	first int // the position of the first of from
	from  []*run
	left  [][]uint32 // of from, when the merge began
	into  *run
}

// mergeRuns merges the newest runs, if there are many.
func (s *Shard) mergeRuns() (*merged, error) {
	s.mu.Lock()
	m := &merged{first: len(s.runs)}
	size := int64(0)
	if len(s.runs) >= maxRuns {
		for m.first > 0 && (len(s.runs)-m.first < 2 || s.runs[m.first-1].entries <= mergeFactor*size) {
			m.first--
			size += s.runs[m.first].entries
		}
	}
	m.from = slices.Clone(s.runs[m.first:])
	next := make([][]uint64, len(m.from))
	left := make([][]uint32, len(m.from))
	for i, r := range m.from {
		next[i], left[i] = slices.Clone(r.next), slices.Clone(r.left)
		m.left = append(m.left, slices.Clone(r.left))
	}
	s.files++
	number := s.files
	s.mu.Unlock()
	if len(m.from) < 2 || size == 0 {
		return nil, nil
	}
	name := s.file(number, runSuffix)
	if err := mergeRuns(name, m.from, next, left); err != nil {
		return nil, err
	}
	var err error
	m.into, err = openRun(name, number)
	return m, err
}

// catchUp leaves behind in the merged run what was taken since the merge began. Entries are taken
// by rank, so of each queue these are its first.
func (m *merged) catchUp() error {
	for i, r := range m.from {
		for q, before := range m.left[i] {
			taken := before - r.left[q]
			if taken == 0 {
				continue
			}
			place, ok := m.into.find(QueueID(r.id(q)))
			if !ok {
				return codec.Corrupt(m.into.name, "directory", 0, "all queues of "+r.name, "not all")
			}
			if err := m.into.skipTaken(place, taken); err != nil {
				return err
			}
		}
	}
	return nil
}

// unitedSeen is a file made of the newest files.
type unitedSeen struct {
	from []*seenFile
	into *seenFile
}

func (s *Shard) mergeSeen() (*unitedSeen, error) {
	s.mu.Lock()
	files := s.seen.files
	first, size := len(files), len(s.seen.recent)
	for first > 0 && files[first-1].len() <= mergeFactor*size {
		first--
		size += files[first].len()
	}
	u := &unitedSeen{from: slices.Clone(files[first:])}
	s.files++
	number := s.files
	s.mu.Unlock()
	if len(u.from) < 2 {
		return nil, nil
	}
	name := s.file(number, seenSuffix)
	err := writeSeen(name, func(yield func([]byte) error) error { return mergeSeen(u.from, yield) })
	if err != nil {
		return nil, err
	}
	u.into, err = openSeen(name, number)
	return u, err
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// writeFile replaces a file as a whole.
func writeFile(name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(name))
}
