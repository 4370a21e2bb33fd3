package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/frontier/journal"
	"github.com/urlake/urlake/lake/codec"
)

const (
	checkpointName    = "checkpoint"
	checkpointMagic   = "UFCP"
	checkpointVersion = 2
	seenSuffix        = ".seen"
	// maxRuns is how many runs of a kind a shard has before some are merged: each costs a queue
	// that has entries in it 32 bytes, and a search when it is listed or its heads are not known.
	maxRuns = 6
	// mergeFactor says when a run is merged with newer ones: if these are together at least its
	// size divided by the factor.
	mergeFactor = 4
	// seenFactor is the same for files of states. It is lower: one more file costs a URL a bit of a
	// filter, and a merge that is put off writes nothing twice.
	seenFactor = 1
	// queuesAtOnce is how many queues are looked at before others may use the shard.
	queuesAtOnce = 4096
	// leasedAtOnce is the same of leased entries.
	leasedAtOnce = 1024
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
	if s.visits, err = openVisitLog(s.dir, count); err != nil {
		return 0, err
	}
	return segment, s.deleteOthers()
}

func (s *Shard) parse(data []byte, name string) (segment uint64, visits int64, err error) {
	data, err = codec.CheckCRC32C(data, name, "checkpoint")
	if err != nil {
		return 0, 0, err
	}
	d := codec.NewDecoder(data, name, "checkpoint")
	d.Magic(checkpointMagic, checkpointVersion)
	s.next, s.files, segment, visits = d.U64(), d.U64(), d.U64(), int64(d.U64())
	for _, of := range []struct {
		kind kind
		runs *[]*run
	}{{waitingRun, &s.waiting}, {restRun, &s.rest}, {dueRun, &s.due}} {
		for range d.U32() {
			number, size := d.U64(), d.U64()
			taken := d.Bytes(int(min(size, uint64(d.Len()))))
			if d.Err() != nil {
				return 0, 0, d.Err()
			}
			r, err := openRun(s.file(number, of.kind.suffix), number, of.kind, nil)
			if err != nil {
				return 0, 0, err
			}
			*of.runs = append(*of.runs, r)
			if err := r.setTaken(taken, name); err != nil {
				return 0, 0, err
			}
		}
	}
	s.setWaiting(s.waiting)
	for range d.U32() {
		number := d.U64()
		if d.Err() != nil {
			return 0, 0, d.Err()
		}
		f, err := openSeen(s.file(number, seenSuffix), number, nil)
		if err != nil {
			return 0, 0, err
		}
		s.seen = append(s.seen, f)
	}
	for range d.U32() {
		size := d.U32()
		part := codec.NewDecoder(d.Bytes(int(min(size, uint32(d.Len())))), name, "entry")
		e, err := parseQueued(part, name)
		if err := errors.Join(d.Err(), err); err != nil {
			return 0, 0, err
		}
		s.resuming[e.Seq] = &e
	}
	for range d.U32() {
		id, m := QueueID(d.Bytes(16)), &mark{all: d.U64()}
		for range d.U32() {
			m.purges = append(m.purges, purge{before: d.U32(), seq: d.U64()})
			if d.Err() != nil {
				return 0, 0, d.Err()
			}
		}
		m.last = s.files
		s.marks[id] = m
	}
	if err := d.Close(); err != nil {
		return 0, 0, err
	}
	return segment, visits, s.recount()
}

// saved is what a checkpoint says besides what was frozen.
type saved struct {
	waiting, rest, due []*run
	taken, takenDue    [][]byte
	seen               []*seenFile
	files              uint64
	leased             leasedPart
}

// leasedPart is the part of a checkpoint about leased entries.
type leasedPart struct {
	n       uint32
	entries []byte // each with its length
}

// add appends an entry, of which it has the bytes.
func (p *leasedPart) add(queue, encoded []byte) {
	n := len(p.entries)
	p.entries = codec.AppendU32(p.entries, 0)
	p.entries = appendQueued(p.entries, queue, encoded)
	binary.LittleEndian.PutUint32(p.entries[n:], uint32(len(p.entries)-n-4))
	p.n++
}

// encode encodes a checkpoint: the state of when a batch was frozen. The journal has what was done
// since. What was taken since is leased, or the journal has what became of it.
func (f *frozen) encode(v *saved) []byte {
	b := codec.AppendMagic(nil, checkpointMagic, checkpointVersion)
	for _, n := range [...]uint64{f.next, v.files, f.segment, uint64(f.visits)} {
		b = codec.AppendU64(b, n)
	}
	runs := func(runs []*run, taken [][]byte) {
		b = codec.AppendU32(b, uint32(len(runs)))
		for i, r := range runs {
			var of []byte
			if taken != nil {
				of = taken[i]
			}
			b = codec.AppendU64(codec.AppendU64(b, r.number), uint64(len(of)))
			b = append(b, of...)
		}
	}
	runs(v.waiting, v.taken)
	runs(v.rest, nil)
	runs(v.due, v.takenDue)
	b = codec.AppendU32(b, uint32(len(v.seen)))
	for _, f := range v.seen {
		b = codec.AppendU64(b, f.number)
	}
	b = append(codec.AppendU32(b, v.leased.n), v.leased.entries...)
	b = codec.AppendU32(b, uint32(len(f.marks)))
	for id, m := range f.marks {
		b = codec.AppendU32(codec.AppendU64(append(b, id[:]...), m.all), uint32(len(m.purges)))
		for _, p := range m.purges {
			b = codec.AppendU64(codec.AppendU32(b, p.before), p.seq)
		}
	}
	return codec.AppendCRC32C(b)
}

// deleteOthers deletes runs and files of seen URLs that the shard does not have.
func (s *Shard) deleteOthers() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, r := range s.runs() {
		mine[r.name] = true
	}
	for _, f := range s.seen {
		mine[f.name] = true
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch filepath.Ext(path) {
		case waitingRun.suffix, restRun.suffix, dueRun.suffix, seenSuffix, ".tmp":
			if !mine[path] {
				if err := os.Remove(path); err != nil {
					return err
				}
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
	full := s.fullness() > 1 || s.sweeps()
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
// Entries are added, taken and settled meanwhile: the lock is held for steps that do not depend on
// how much there is.
func (s *Shard) write() (err error) {
	s.pacer = newPace(s.o.Rests)
	s.setMerging(true)
	defer s.setMerging(false)
	var fresh freshFiles
	defer func() {
		if err != nil {
			err = errors.Join(err, fresh.close())
		}
	}()
	s.mu.Lock()
	sweep := s.sweeps()
	if sweep {
		s.gone = 0
	}
	s.mu.Unlock()
	for _, of := range []struct {
		k    kind
		runs []*run
		into **merged
	}{{waitingRun, s.waiting, &fresh.waiting}, {restRun, s.rest, &fresh.rest}, {dueRun, s.due, &fresh.due}} {
		if *of.into, err = s.mergeRuns(of.k, of.runs, sweep); err != nil {
			return err
		}
	}
	if fresh.united, err = s.mergeSeen(sweep); err != nil {
		return err
	}
	if err := s.journal.Prepare(); err != nil {
		return err
	}
	f, err := s.freeze()
	if err != nil {
		return err
	}
	s.pause()
	err = s.writeFrozen(f, &fresh)
	s.pause()
	var v *saved
	var old []closer
	var gone bool
	s.mu.Lock()
	before := s.generation
	if err == nil {
		err = s.failed
	}
	if err == nil {
		v, old, gone = s.replace(&fresh)
	}
	if err != nil && s.failed == nil {
		s.failed = err
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	fresh = freshFiles{}
	s.pause()
	s.letGo(f)
	if s.generation != before {
		if err := s.knowHeads(gone); err != nil {
			return err
		}
	}
	if err := s.save(f, v); err != nil {
		return err
	}
	s.pause()
	s.reading.Lock() // whoever lists begins with the new files
	for _, file := range old {
		err = errors.Join(err, file.close())
	}
	s.reading.Unlock()
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file.path()); err != nil {
			return err
		}
	}
	return s.journal.Drop(f.segment)
}

func (s *Shard) setMerging(merging bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.merging = merging
}

func (s *Shard) pause() {
	if s.o.between != nil {
		s.o.between()
	}
}

// freeze begins a segment of the journal, and sets what is in memory aside.
func (s *Shard) freeze() (f *frozen, err error) {
	if err := s.journal.Sync(); err != nil { // so that little is left for the commit that ends the segment
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	f = &frozen{batch: s.batch, next: s.next, visits: s.visits.Count(), marks: s.marks, queues: s.queues}
	if f.segment, err = s.journal.Rotate(); err != nil {
		s.failed = err
		return nil, err
	}
	for _, r := range s.runs() {
		if r.entries == 0 {
			f.empty = append(f.empty, r)
		}
	}
	f.fresh, s.fresh = s.fresh, nil
	s.batch, s.frozen, s.memory, s.marksShared, s.deleted = newBatch(1-f.side), f, 0, true, nil
	return f, nil
}

// letGo frees the memory of a batch that is in files.
func (s *Shard) letGo(f *frozen) {
	s.eachFrozen(f, func(q *queue) { q.memory[f.side] = 0 })
	for part := range slices.Chunk(f.forgotten, queuesAtOnce) {
		s.mu.Lock()
		s.queues.release(part)
		s.mu.Unlock()
		s.pacer.Look()
	}
}

// eachFrozen calls do with each queue that has a heap in a frozen batch. The shard is locked
// meanwhile, for some of them at a time.
func (s *Shard) eachFrozen(f *frozen, do func(q *queue)) {
	for first := 0; first < f.queues.used; first += queuesAtOnce {
		s.mu.Lock()
		for i := first; i < min(first+queuesAtOnce, f.queues.used); i++ {
			if q := s.queues.at(uint32(i)); q.memory[f.side] != 0 {
				do(q)
			}
		}
		s.mu.Unlock()
		s.pacer.Look()
	}
}

// save writes the checkpoint for files that the shard has already.
func (s *Shard) save(f *frozen, v *saved) error {
	// How far runs were taken from comes first, and then what is leased: an entry that is taken in
	// between is in both, and dropped when it is met.
	for _, r := range v.waiting {
		v.taken = append(v.taken, s.takenOf(r))
	}
	var err error
	if v.leased, err = s.leasedBefore(f.next); err != nil {
		return err
	}
	err = s.visits.Flush()
	// What became of an entry that was taken is only in the journal.
	if err := errors.Join(err, s.journal.Sync()); err != nil {
		return err
	}
	names := []string{filepath.Join(s.dir, name), filepath.Join(s.dir, indexName)}
	for _, r := range slices.Concat(v.waiting, v.rest, v.due) {
		if !r.synced {
			names = append(names, r.name)
		}
	}
	for _, file := range v.seen {
		if !file.synced {
			names = append(names, file.name)
		}
	}
	for _, name := range names {
		if err := journal.SyncFile(name); err != nil {
			return err
		}
	}
	for _, r := range slices.Concat(v.waiting, v.rest, v.due) {
		r.synced = true
	}
	for _, file := range v.seen {
		file.synced = true
	}
	s.pause()
	return writeFile(filepath.Join(s.dir, checkpointName), f.encode(v))
}

// leasedBefore is about the entries with numbers before next that were leased when it was called,
// perhaps without those that are not any more.
func (s *Shard) leasedBefore(next uint64) (part leasedPart, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	others := func() {
		if n++; n%leasedAtOnce == 0 {
			s.mu.Unlock()
			s.pacer.Look()
			s.mu.Lock()
		}
	}
	for seq, b := range s.leased.All() {
		if q, encoded := s.parseLease(b); seq < next {
			part.add(s.queues.names.Get(q.name), encoded)
		}
		others()
	}
	add := func(e *Entry) {
		if e.Seq < next {
			part.add([]byte(e.Queue), e.append(nil))
		}
	}
	for _, e := range s.resuming {
		add(e)
		others()
	}
	for _, e := range s.deleted {
		add(e)
	}
	return part, s.failed
}

// takenOf is the part of a checkpoint about a run: for each queue of which something was taken its
// position, the next entry's offset and how many are left.
func (s *Shard) takenOf(r *run) (b []byte) {
	for first := range r.taken {
		s.mu.Lock()
		b = r.appendTaken(b, first)
		s.mu.Unlock()
		s.pacer.Look()
	}
	return b
}

func (r *run) appendTaken(b []byte, part int) []byte {
	p := r.taken[part]
	if p == nil {
		return b
	}
	for j := range min(positionsAtOnce, r.queues-part*positionsAtOnce) {
		i := part*positionsAtOnce + j
		if _, _, count := r.extentOf(i); p.left[j] != count {
			b = codec.AppendU32(b, uint32(i))
			b = codec.AppendU64(b, p.next[j])
			b = codec.AppendU32(b, p.left[j])
		}
	}
	return b
}

// closer is a file that is not needed any more.
type closer interface {
	close() error
	path() string
}

func (r *run) path() string      { return r.name }
func (f *seenFile) path() string { return f.name }

// freshFiles are files that the shard does not have yet: merged ones, and those of a frozen batch.
// What there was nothing for is nil.
type freshFiles struct {
	waiting, rest, due *merged
	united             *unitedSeen
	runs               [3]*run // waiting, rest, due
	seen               *seenFile
}

func (w *freshFiles) close() (err error) {
	for _, m := range [...]*merged{w.waiting, w.rest, w.due} {
		if m != nil && m.into != nil {
			err = errors.Join(err, m.into.close())
		}
	}
	for _, r := range w.runs {
		if r != nil {
			err = errors.Join(err, r.close())
		}
	}
	if w.united != nil {
		err = errors.Join(err, w.united.into.close())
	}
	if w.seen != nil {
		err = errors.Join(err, w.seen.close())
	}
	return err
}

func (s *Shard) newFile() (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files++
	return s.files
}

// replace takes new files instead of what they were made of, and returns what a checkpoint says of
// them, and the files that are not needed any more. Gone says that runs of entries that wait are
// among these.
func (s *Shard) replace(fresh *freshFiles) (v *saved, old []closer, gone bool) {
	for i, of := range []struct {
		runs   *[]*run
		merged *merged
	}{{&s.waiting, fresh.waiting}, {&s.rest, fresh.rest}, {&s.due, fresh.due}} {
		runs := slices.Clone(*of.runs)
		if m := of.merged; m != nil {
			for _, r := range m.from {
				old = append(old, r)
			}
			var into []*run
			if m.into != nil {
				into = append(into, m.into)
			}
			runs = slices.Replace(runs, m.first, m.first+len(m.from), into...)
		}
		if fresh.runs[i] != nil {
			runs = append(runs, fresh.runs[i])
		}
		runs = slices.DeleteFunc(runs, func(r *run) bool {
			if !slices.Contains(s.frozen.empty, r) {
				return false // it may be the only one that names a queue of before
			}
			if !slices.Contains(old, closer(r)) {
				old = append(old, r)
			}
			return true
		})
		if of.runs == &s.waiting {
			gone = s.setWaiting(runs)
		} else {
			*of.runs = runs
		}
	}
	if u := fresh.united; u != nil {
		for _, file := range u.from {
			old = append(old, file)
		}
		first := len(s.seen) - len(u.from)
		s.seen = append(s.seen[:first:first], u.into)
	}
	if fresh.seen != nil {
		s.seen = append(slices.Clip(s.seen), fresh.seen)
	}
	v = &saved{waiting: s.waiting, rest: s.rest, due: s.due, seen: s.seen, files: s.files}
	for _, r := range s.due { // nothing was promoted since the batch was frozen
		v.takenDue = append(v.takenDue, r.appendTaken(nil, 0))
	}
	s.retire()
	s.frozen = nil
	return v, old, gone
}

// merged is a run made of several neighbours; nil if nothing of them was left.
type merged struct {
	first int // the position of the first of from
	from  []*run
	into  *run
}

// mergeRuns merges the newest runs of a kind, if there are many, or all. Entries that are taken
// meanwhile are in the merged run once more.
func (s *Shard) mergeRuns(k kind, runs []*run, all bool) (*merged, error) {
	m := &merged{first: len(runs)}
	size := int64(0)
	s.mu.Lock()
	if len(runs) >= maxRuns {
		for m.first > 0 && (len(runs)-m.first < 2 || runs[m.first-1].entries <= mergeFactor*size) {
			m.first--
			size += runs[m.first].entries
		}
	}
	s.mu.Unlock()
	if all {
		m.first = 0
	}
	m.from = slices.Clone(runs[m.first:])
	if !all && (len(m.from) < 2 || size == 0) || len(m.from) == 0 {
		return nil, nil
	}
	sources := make([]*source, len(m.from))
	for i, r := range m.from {
		sources[i] = s.source(r)
	}
	number := s.newFile()
	name := s.file(number, k.suffix)
	some, err := mergeRuns(name, s.pacer, sources, func(id QueueID, queue []byte, payloads [][]byte) ([][]byte, error) {
		return s.standing(&k, id, queue, payloads)
	})
	if err != nil || !some {
		return m, err
	}
	m.into, err = openRun(name, number, k, s.pacer)
	return m, err
}

// source returns what is left of a run.
func (s *Shard) source(r *run) *source {
	src := &source{r: r, next: make([]uint64, r.queues), left: make([]uint32, r.queues)}
	for i := 0; i < r.queues; i += positionsAtOnce {
		s.mu.Lock()
		for j := i; j < min(i+positionsAtOnce, r.queues); j++ {
			src.next[j], src.left[j] = r.position(j)
		}
		s.mu.Unlock()
		s.pacer.Look()
	}
	return src
}

// standing removes the entries that their URLs do not have any more.
func (s *Shard) standing(k *kind, id QueueID, queue []byte, payloads [][]byte) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.suffix == waitingRun.suffix {
		if q := s.queues.get(&id); q == nil || !q.isSuspect() {
			if q == nil {
				payloads = nil
			}
			return payloads, nil
		}
	}
	left := payloads[:0]
	for _, p := range payloads {
		entry := p
		if k.suffix == dueRun.suffix {
			d := codec.NewDecoder(p, s.dir, "entry")
			queue = d.Bytes(int(d.Uint(uint64(d.Len()))))
			id, entry = xxh3.Hash128(queue).Bytes(), d.Rest()
		}
		ok, err := s.stands(k, id, queue, entry)
		if err != nil {
			return nil, err
		}
		if ok {
			left = append(left, p)
		}
	}
	return left, nil
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
