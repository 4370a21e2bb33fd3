package shard

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/edsrzf/mmap-go"

	"github.com/urlake/urlake/lake/codec"
)

// A run is a file of entries, sorted by queue and rank. It never changes; what was taken from it is
// in memory and in the shard's checkpoint. docs/formats/frontier.md describes the file.
const (
	runMagic   = "UFRN"
	runVersion = 1
	// An element of the directory: the queue's id, where its extent begins, how long it is, how
	// many entries it has.
	dirSize     = 16 + 8 + 8 + 4
	trailerSize = 8 + 4 + 8 + 4 + 4
	runHeader   = len(runMagic) + 4
)

// run is an open run.
type run struct {
	number uint64
	name   string
	data   mmap.MMap
	dir    []byte
	queues int
	// next is where the next entry of each queue begins, left how many it has.
	next []uint64
	left []uint32
	// entries is the sum of left.
	entries int64
}

// runWriter writes a run: its queues in the order of their ids, and the entries of each by rank.
type runWriter struct {
	file  *os.File
	w     *bufio.Writer
	at    uint64
	dir   []byte
	total uint64
	buf   []byte
}

func newRunWriter(name string) (*runWriter, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return nil, err
	}
	w := &runWriter{file: f, w: bufio.NewWriterSize(f, 256<<10)}
	head := codec.AppendMagic(nil, runMagic, runVersion)
	w.at = uint64(len(head))
	_, err = w.w.Write(head)
	return w, err
}

func (w *runWriter) queue(id QueueID, name string) error {
	w.closeQueue()
	w.dir = append(w.dir, id[:]...)
	w.dir = codec.AppendU64(w.dir, w.at)
	w.dir = append(w.dir, make([]byte, 12)...)
	return w.record([]byte(name))
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
	count := w.dir[len(w.dir)-4:]
	binary.LittleEndian.PutUint32(count, binary.LittleEndian.Uint32(count)+1)
	w.total++
	return w.record(payload)
}

func (w *runWriter) record(payload []byte) error {
	w.buf = binary.LittleEndian.AppendUint32(w.buf[:0], uint32(len(payload)))
	w.buf = codec.AppendU32(w.buf, codec.CRC32C(payload))
	w.buf = append(w.buf, payload...)
	w.at += uint64(len(w.buf))
	_, err := w.w.Write(w.buf)
	return err
}

// close ends the file. Sync says whether it waits until the file is on the disk.
func (w *runWriter) close() error {
	w.closeQueue()
	_, err := w.w.Write(w.dir)
	tail := codec.AppendU64(nil, w.at)
	tail = codec.AppendU32(tail, uint32(len(w.dir)/dirSize))
	tail = codec.AppendU64(tail, w.total)
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

func openRun(name string, number uint64) (*run, error) {
	data, err := mapFile(name)
	if err != nil {
		return nil, err
	}
	r := &run{number: number, name: name, data: data}
	if err := r.parse(); err != nil {
		return nil, errors.Join(err, data.Unmap())
	}
	return r, nil
}

func (r *run) parse() error {
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
	at, queues, total, sum := d.U64(), d.U32(), d.U64(), d.U32()
	if err := d.Close(); err != nil {
		return err
	}
	end := uint64(len(r.data) - trailerSize)
	if at < uint64(runHeader) || at > end || end-at != uint64(queues)*dirSize {
		return codec.Corrupt(r.name, "directory", int64(at), "its place and size", fmt.Sprintf("%d queues", queues))
	}
	r.dir, r.queues = r.data[at:end], int(queues)
	if got := codec.CRC32C(r.dir); got != sum {
		return codec.Corrupt(r.name, "directory", int64(at), fmt.Sprintf("checksum %08x", sum), fmt.Sprintf("%08x", got))
	}
	r.next, r.left = make([]uint64, queues), make([]uint32, queues)
	for i := range r.next {
		begin, size, count := r.extent(i)
		if begin < uint64(runHeader) || begin > at || size > at-begin {
			return codec.Corrupt(r.name, "directory", int64(at), "extents before it", fmt.Sprintf("%d+%d", begin, size))
		}
		name, err := r.record(begin)
		if err != nil {
			return err
		}
		r.next[i] = begin + 8 + uint64(len(name))
		r.left[i] = count
	}
	r.entries = int64(total)
	return nil
}

func (r *run) id(i int) []byte { return r.dir[i*dirSize : i*dirSize+16] }

func (r *run) extent(i int) (begin, size uint64, count uint32) {
	e := r.dir[i*dirSize+16:]
	return binary.LittleEndian.Uint64(e), binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint32(e[16:])
}

// queueName returns the name of the ith queue.
func (r *run) queueName(i int) (string, error) {
	begin, _, _ := r.extent(i)
	name, err := r.record(begin)
	return string(name), err
}

// record returns the record at a place.
func (r *run) record(at uint64) ([]byte, error) {
	rest := r.data[:len(r.data)-trailerSize-len(r.dir)]
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

// head returns the rank and the bytes of the next entry of the ith queue, which has one.
func (r *run) head(i int) (rank, []byte, error) {
	payload, err := r.record(r.next[i])
	if err != nil {
		return rank{}, nil, err
	}
	k, err := parseRank(payload, r.name)
	return k, payload, err
}

// pop leaves the next entry of the ith queue, of so many bytes, behind.
func (r *run) pop(i, size int) {
	r.next[i] += 8 + uint64(size)
	r.left[i]--
	r.entries--
}

// taken is the part of a checkpoint about a run: for each queue of which something was taken its
// position, the next entry's place and how many are left.
func (r *run) taken() []byte {
	var b []byte
	for i, left := range r.left {
		if _, _, count := r.extent(i); left != count {
			b = codec.AppendU32(b, uint32(i))
			b = codec.AppendU64(b, r.next[i])
			b = codec.AppendU32(b, left)
		}
	}
	return b
}

func (r *run) setTaken(b []byte, file string) error {
	d := codec.NewDecoder(b, file, "taken")
	for d.Len() > 0 {
		i, next, left := d.U32(), d.U64(), d.U32()
		if d.Err() != nil {
			return d.Err()
		}
		if int(i) >= r.queues || left > r.left[i] {
			return codec.Corrupt(file, "taken", int64(d.Offset()), "a queue of "+r.name, fmt.Sprint(i))
		}
		r.entries -= int64(r.left[i] - left)
		r.next[i], r.left[i] = next, left
	}
	return d.Err()
}

func (r *run) close() error { return r.data.Unmap() }

// mergeRuns writes what is left of several runs into one. It reads no more entries of a queue than
// left says, so it may run while entries are taken: that changes next and left of the shard's runs,
// of which it gets copies.
func mergeRuns(name string, runs []*run, next [][]uint64, left [][]uint32) error {
	w, err := newRunWriter(name)
	if err != nil {
		return err
	}
	err = func() error {
		at := make([]int, len(runs))
		for {
			var least []byte
			for i, r := range runs {
				for at[i] < r.queues && left[i][at[i]] == 0 {
					at[i]++
				}
				if at[i] < r.queues && (least == nil || bytes.Compare(r.id(at[i]), least) < 0) {
					least = r.id(at[i])
				}
			}
			if least == nil {
				return nil
			}
			if err := mergeQueue(w, QueueID(least), runs, at, next, left); err != nil {
				return err
			}
		}
	}()
	return errors.Join(err, w.close())
}

// mergeQueue merges the entries of one queue.
func mergeQueue(w *runWriter, id QueueID, runs []*run, at []int, next [][]uint64, left [][]uint32) error {
	type head struct {
		run     int
		rank    rank
		payload []byte
	}
	var heads []head
	read := func(i int) error {
		p := at[i]
		if left[i][p] == 0 {
			at[i]++
			return nil
		}
		payload, err := runs[i].record(next[i][p])
		if err != nil {
			return err
		}
		k, err := parseRank(payload, runs[i].name)
		if err != nil {
			return err
		}
		next[i][p] += 8 + uint64(len(payload))
		left[i][p]--
		h := head{i, k, payload}
		place, _ := slices.BinarySearchFunc(heads, h, func(a, b head) int { return a.rank.compare(b.rank) })
		heads = slices.Insert(heads, place, h)
		return nil
	}
	named := false
	for i, r := range runs {
		if at[i] == r.queues || !bytes.Equal(r.id(at[i]), id[:]) {
			continue
		}
		if !named {
			name, err := r.queueName(at[i])
			if err != nil {
				return err
			}
			if err := w.queue(id, name); err != nil {
				return err
			}
			named = true
		}
		if err := read(i); err != nil {
			return err
		}
	}
	for len(heads) > 0 {
		h := heads[0]
		heads = heads[1:]
		if err := w.entry(h.payload); err != nil {
			return err
		}
		if err := read(h.run); err != nil {
			return err
		}
	}
	return nil
}
