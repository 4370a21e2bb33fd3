package shard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/edsrzf/mmap-go"

	"github.com/urlake/urlake/lake/codec"
)

// A run is a file of entries, sorted by queue and within a queue by rank. It never changes.
// docs/formats/frontier.md describes the file. Which of its entries still count is known by the
// states of their URLs.
const (
	runMagic   = "UFRN"
	runVersion = 2
	// An element of the directory: the queue's id, where its extent begins, how long it is, how
	// many entries it has, where its name is.
	dirSize     = 16 + 8 + 8 + 4 + 4
	trailerSize = 8 + 8 + 4 + 8 + 4 + 4 + 4
	runHeader   = len(runMagic) + 4
)

// kind is what the entries of a run are, and how they are ranked.
type kind struct {
	suffix string
	rank   func(payload []byte, file string) (rank, error)
}

var (
	// waitingRun has entries that wait.
	waitingRun = kind{".run", parseRank}
	// restRun has entries that do not: they are settled or due later. It is read to list them.
	restRun = kind{".rest", parseSeq}
	// dueRun has those that are due later once more, all in one queue without a name, by the time
	// at which they are due.
	dueRun = kind{".due", parseDue}
)

// run is an open run.
type run struct {
	kind
	number uint64
	name   string
	data   mmap.MMap
	extent []byte // what lies before the names
	names  []byte
	dir    []byte
	queues int
	total  int64
	// taken says how far queues were taken from, for each positionsAtOnce of them; nil if nothing
	// was taken of these. A restRun is not taken from.
	taken []*positions
	// entries is how many are left.
	entries int64
	// since is the generation of the shard's runs from which on it is one of them.
	since uint32
	// synced says that the file is on the disk.
	synced bool
	// listed is where the last lists have come to.
	listed [4]listedTo
}

// positionsAtOnce is how many queues share a piece of run.taken.
const positionsAtOnce = 256

// positions are, of some queues of a run, where the next entry of each begins and how many it has.
type positions struct {
	next [positionsAtOnce]uint64
	left [positionsAtOnce]uint32
}

// runWriter writes a run: its queues in the order of their ids, and the entries of each by rank.
type runWriter struct {
	file  *os.File
	w     *bufio.Writer
	at    uint64
	names []byte
	dir   []byte
	total uint64
	buf   []byte
	pacer *pacer
}

func newRunWriter(name string, pacer *pacer) (*runWriter, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	w := &runWriter{file: f, pacer: pacer, w: bufio.NewWriterSize(pacer.Writer(f), writeAtOnce)}
	head := codec.AppendMagic(nil, runMagic, runVersion)
	w.at = uint64(len(head))
	_, err = w.w.Write(head)
	return w, err
}

func (w *runWriter) queue(id QueueID, name []byte) error {
	w.closeQueue()
	if uint64(len(w.names)) > math.MaxUint32-uint64(len(name)) {
		return fmt.Errorf("%s: the names of its queues are more than %d bytes", w.file.Name(), uint32(math.MaxUint32))
	}
	w.dir = append(w.dir, id[:]...)
	w.dir = codec.AppendU64(w.dir, w.at)
	w.dir = append(w.dir, make([]byte, 12)...)
	w.dir = codec.AppendU32(w.dir, uint32(len(w.names)))
	w.names = append(w.names, name...)
	return nil
}

// closeQueue completes the element of the queue that was written last.
func (w *runWriter) closeQueue() {
	if len(w.dir) == 0 {
		return
	}
	last := w.dir[len(w.dir)-dirSize:]
	binary.LittleEndian.PutUint64(last[24:], w.at-binary.LittleEndian.Uint64(last[16:]))
}

func (w *runWriter) entry(payload []byte) error {
	count := w.dir[len(w.dir)-8:]
	n := binary.LittleEndian.Uint32(count)
	if n == math.MaxUint32 {
		return fmt.Errorf("%s: a queue has more than %d entries", w.file.Name(), uint32(math.MaxUint32))
	}
	binary.LittleEndian.PutUint32(count, n+1)
	w.total++
	w.buf = binary.LittleEndian.AppendUint32(w.buf[:0], uint32(len(payload)))
	w.buf = codec.AppendU32(w.buf, codec.CRC32C(payload))
	w.buf = append(w.buf, payload...)
	w.at += uint64(len(w.buf))
	_, err := w.w.Write(w.buf)
	return err
}

// close ends the file.
func (w *runWriter) close() error {
	w.closeQueue()
	_, err := w.w.Write(w.names)
	if err == nil {
		_, err = w.w.Write(w.dir)
	}
	tail := codec.AppendU64(nil, w.at)
	tail = codec.AppendU64(tail, w.at+uint64(len(w.names)))
	tail = codec.AppendU32(tail, uint32(len(w.dir)/dirSize))
	tail = codec.AppendU64(tail, w.total)
	tail = codec.AppendU32(tail, codec.CRC32C(w.names))
	tail = codec.AppendU32(tail, codec.CRC32C(w.dir))
	tail = codec.AppendCRC32C(tail)
	if err == nil {
		_, err = w.w.Write(tail)
	}
	if err == nil {
		err = w.w.Flush()
	}
	return errors.Join(err, w.file.Close())
}

func openRun(name string, number uint64, k kind, pacer *pacer) (*run, error) {
	data, err := mapFile(name)
	if err != nil {
		return nil, err
	}
	r := &run{kind: k, number: number, name: name, data: data}
	if err := r.parse(pacer); err != nil {
		return nil, errors.Join(err, data.Unmap())
	}
	return r, nil
}

func (r *run) parse(pacer *pacer) error {
	if len(r.data) < runHeader+trailerSize {
		return codec.Corrupt(r.name, "file", 0, "a header and a trailer", fmt.Sprintf("%d bytes", len(r.data)))
	}
	d := codec.NewDecoder(r.data[:runHeader], r.name, "header")
	d.Magic(runMagic, runVersion)
	if err := d.Err(); err != nil {
		return err
	}
	tail, err := codec.CheckCRC32C(r.data[len(r.data)-trailerSize:], r.name, "trailer")
	if err != nil {
		return err
	}
	d = codec.NewDecoder(tail, r.name, "trailer")
	names, at, queues, total, nameSum, sum := d.U64(), d.U64(), d.U32(), d.U64(), d.U32(), d.U32()
	if err := d.Close(); err != nil {
		return err
	}
	end := uint64(len(r.data) - trailerSize)
	if names < uint64(runHeader) || names > at || at > end || end-at != uint64(queues)*dirSize {
		return codec.Corrupt(r.name, "directory", int64(at), "its place and size", fmt.Sprintf("%d queues", queues))
	}
	r.extent, r.names, r.dir = r.data[:names], r.data[names:at], r.data[at:end]
	r.queues, r.total, r.entries = int(queues), int64(total), int64(total)
	for _, part := range []struct {
		section string
		data    []byte
		sum     uint32
	}{{"names", r.names, nameSum}, {"directory", r.dir, sum}} {
		if got := codec.CRC32C(part.data); got != part.sum {
			return codec.Corrupt(r.name, part.section, int64(at), fmt.Sprintf("checksum %08x", part.sum), fmt.Sprintf("%08x", got))
		}
	}
	r.taken = make([]*positions, (queues+positionsAtOnce-1)/positionsAtOnce)
	name := uint32(0)
	for i := range r.queues {
		pacer.Step()
		begin, size, _ := r.extentOf(i)
		if begin < uint64(runHeader) || begin > names || size > names-begin {
			return codec.Corrupt(r.name, "directory", int64(at), "extents before it", fmt.Sprintf("%d+%d", begin, size))
		}
		if n := r.nameAt(i); n < name || int(n) > len(r.names) {
			return codec.Corrupt(r.name, "directory", int64(at), "names in order", fmt.Sprintf("%d after %d", n, name))
		}
		name = r.nameAt(i)
	}
	return nil
}

func (r *run) id(i int) []byte { return r.dir[i*dirSize : i*dirSize+16] }

func (r *run) extentOf(i int) (begin, size uint64, count uint32) {
	e := r.dir[i*dirSize+16:]
	return binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint32(e[16:])
}

func (r *run) nameAt(i int) uint32 { return binary.LittleEndian.Uint32(r.dir[i*dirSize+36:]) }

// queueName returns the name of the ith queue, which is no copy.
func (r *run) queueName(i int) []byte {
	end := uint32(len(r.names))
	if i+1 < r.queues {
		end = r.nameAt(i + 1)
	}
	return r.names[r.nameAt(i):end]
}

// record returns the record at an offset.
func (r *run) record(at uint64) ([]byte, error) {
	rest := r.extent
	if at+8 > uint64(len(rest)) || uint64(binary.LittleEndian.Uint32(rest[at:])) > uint64(len(rest))-at-8 {
		return nil, codec.Corrupt(r.name, "record", int64(at), "a record", "the directory")
	}
	n := uint64(binary.LittleEndian.Uint32(rest[at:]))
	payload := rest[at+8 : at+8+n]
	if want, got := binary.LittleEndian.Uint32(rest[at+4:]), codec.CRC32C(payload); want != got {
		return nil, codec.Corrupt(r.name, "record", int64(at), fmt.Sprintf("checksum %08x", want), fmt.Sprintf("%08x", got))
	}
	return payload, nil
}

// find returns the position of a queue in the directory.
func (r *run) find(id QueueID) (i int, ok bool) { return findID(r.dir, dirSize, id) }

// position returns where the next entry of the ith queue begins, and how many it has.
func (r *run) position(i int) (next uint64, left uint32) {
	if p := r.taken[i/positionsAtOnce]; p != nil {
		return p.next[i%positionsAtOnce], p.left[i%positionsAtOnce]
	}
	next, _, left = r.extentOf(i)
	return next, left
}

// setPosition sets the position of the ith queue.
func (r *run) setPosition(i int, next uint64, left uint32) {
	p := r.taken[i/positionsAtOnce]
	if p == nil {
		p = new(positions)
		first := i - i%positionsAtOnce
		for j := first; j < min(first+positionsAtOnce, r.queues); j++ {
			p.next[j-first], _, p.left[j-first] = r.extentOf(j)
		}
		r.taken[i/positionsAtOnce] = p
	}
	r.entries -= int64(p.left[i%positionsAtOnce]) - int64(left)
	p.next[i%positionsAtOnce], p.left[i%positionsAtOnce] = next, left
}

// head returns the rank and the bytes of an entry.
func (r *run) head(at uint64) (rank, []byte, error) {
	payload, err := r.record(at)
	if err != nil {
		return rank{}, nil, err
	}
	k, err := r.rank(payload, r.name)
	return k, payload, err
}

// pop leaves the next entry of the ith queue, of so many bytes, behind.
func (r *run) pop(i, size int) {
	next, left := r.position(i)
	r.setPosition(i, next+8+uint64(size), left-1)
}

// each calls yield with the entries of the ith queue that are left.
func (r *run) each(i int, yield func(payload []byte) error) error {
	at, left := r.position(i)
	for range left {
		payload, err := r.record(at)
		if err != nil {
			return err
		}
		at += 8 + uint64(len(payload))
		if err := yield(payload); err != nil {
			return err
		}
	}
	return nil
}

// setTaken sets how far queues were taken from, as a checkpoint has it.
func (r *run) setTaken(b []byte, file string) error {
	d := codec.NewDecoder(b, file, "taken")
	for d.Len() > 0 {
		i, next, left := d.U32(), d.U64(), d.U32()
		if d.Err() != nil {
			return d.Err()
		}
		if int(i) >= r.queues {
			return codec.Corrupt(file, "taken", int64(d.Offset()), "a queue of "+r.name, fmt.Sprint(i))
		}
		if _, count := r.position(int(i)); left > count {
			return codec.Corrupt(file, "taken", int64(d.Offset()), fmt.Sprintf("up to %d entries left of queue %d of %s", count, i, r.name), left)
		}
		r.setPosition(int(i), next, left)
	}
	return d.Err()
}

func (r *run) close() error { return r.data.Unmap() }

// source is a run that is merged, or a part of it: what is left of its queues.
type source struct {
	r    *run
	next []uint64
	left []uint32
	at   int // the position of the next queue
}

// take returns the next entry of the source's queue, and leaves it behind.
func (s *source) take() (rank, []byte, error) {
	payload, err := s.r.record(s.next[s.at])
	if err != nil {
		return rank{}, nil, err
	}
	s.next[s.at] += 8 + uint64(len(payload))
	s.left[s.at]--
	k, err := s.r.rank(payload, s.r.name)
	return k, payload, err
}

// keepAtOnce is how many entries are looked up in one go.
const keepAtOnce = 128

// keeper removes the entries of a queue that do not count any more from a list.
type keeper func(id QueueID, queue []byte, payloads [][]byte) ([][]byte, error)

// merger merges runs. Its lists are those of one queue, and their memory is used for the next.
type merger struct {
	w        *runWriter
	sources  []*source
	keep     keeper
	heads    []head // the first entries of the sources that have some, the least one last
	payloads [][]byte
}

type head struct {
	from    *source
	rank    rank
	payload []byte
}

// mergeRuns writes what is left of several runs into one. It reads no more entries than the sources
// say, so the runs may be taken from meanwhile. It is false if nothing is left, and then there is
// no file.
func mergeRuns(name string, pacer *pacer, sources []*source, keep keeper) (some bool, err error) {
	w, err := newRunWriter(name, pacer)
	if err != nil {
		return false, err
	}
	m := merger{w: w, sources: sources, keep: keep}
	if err = errors.Join(m.all(), w.close()); err == nil && w.total == 0 {
		return false, os.Remove(name)
	}
	return true, err
}

func (m *merger) all() error {
	for {
		var least []byte
		var from *source
		for _, s := range m.sources {
			for s.at < s.r.queues && s.left[s.at] == 0 {
				s.at++
				m.w.pacer.Step()
			}
			if s.at < s.r.queues && (least == nil || bytes.Compare(s.r.id(s.at), least) < 0) {
				least, from = s.r.id(s.at), s
			}
		}
		if least == nil {
			return nil
		}
		if err := m.queue(QueueID(least), from.r.queueName(from.at)); err != nil {
			return err
		}
	}
}

// read reads the next entry of a source's queue.
func (m *merger) read(s *source) error {
	if s.left[s.at] == 0 {
		return nil
	}
	m.w.pacer.Step()
	k, payload, err := s.take()
	if err != nil {
		return err
	}
	i := len(m.heads)
	for i > 0 && m.heads[i-1].rank.compare(k) < 0 {
		i--
	}
	m.heads = slices.Insert(m.heads, i, head{s, k, payload})
	return nil
}

// queue merges the entries of one queue.
func (m *merger) queue(id QueueID, name []byte) error {
	for _, s := range m.sources {
		if s.at < s.r.queues && bytes.Equal(s.r.id(s.at), id[:]) {
			if err := m.read(s); err != nil {
				return err
			}
		}
	}
	named := false
	flush := func() error {
		left, err := m.keep(id, name, m.payloads)
		if err != nil {
			return err
		}
		m.payloads = m.payloads[:0]
		for _, p := range left {
			if !named {
				named = true
				if err := m.w.queue(id, name); err != nil {
					return err
				}
			}
			if err := m.w.entry(p); err != nil {
				return err
			}
		}
		return nil
	}
	var last rank
	for first := true; len(m.heads) > 0; first = false {
		h := m.heads[len(m.heads)-1]
		m.heads = m.heads[:len(m.heads)-1]
		if first || h.rank != last { // an entry can lie in two runs
			m.payloads = append(m.payloads, h.payload)
		}
		last = h.rank
		if len(m.payloads) == keepAtOnce {
			if err := flush(); err != nil {
				return err
			}
		}
		if err := m.read(h.from); err != nil {
			return err
		}
	}
	return flush()
}
