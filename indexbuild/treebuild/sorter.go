package treebuild

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
)

// sorter sorts records by their keys, in bounded memory: what does not fit goes to a temporary file
// in sorted runs. A record is a key and a value; equal keys may be there many times. It is for one
// goroutine until runs, and its runs are independent afterwards.
type sorter struct {
	dir    string
	budget int // bytes of memory
	data   []byte
	index  []record
	file   *os.File // of the runs, nil if there are none
	spans  []span
	end    int64
}

// record says where a record is in the data of a sorter.
type record struct {
	at, key, value uint32
}

// span is a run in the file of a sorter.
type span struct{ from, to int64 }

const (
	recordBytes = 12
	headBytes   = 8 // of a record in a file
	// maxBudget is the most memory of a sorter, whose offsets have 32 bits.
	maxBudget = 1 << 31
	// runBuffer is how much of a run is read at once.
	runBuffer = 64 << 10
)

func newSorter(dir string, budget int) *sorter {
	return &sorter{dir: dir, budget: min(budget, maxBudget)}
}

// add adds a record, whose key and value are not kept.
func (s *sorter) add(key, value []byte) error {
	if need := len(key) + len(value); len(s.index) > 0 && len(s.data)+need+(len(s.index)+1)*recordBytes > s.budget {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.index = append(s.index, record{uint32(len(s.data)), uint32(len(key)), uint32(len(value))})
	s.data = append(append(s.data, key...), value...)
	return nil
}

func (s *sorter) key(r record) []byte { return s.data[r.at : r.at+r.key] }

func (s *sorter) value(r record) []byte {
	return s.data[r.at+r.key : r.at+r.key+r.value]
}

func (s *sorter) sort() {
	slices.SortFunc(s.index, func(a, b record) int { return bytes.Compare(s.key(a), s.key(b)) })
}

// spill writes what is in memory as a run.
func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "trees-*"); err != nil {
			return err
		}
		_ = os.Remove(s.file.Name()) // so that it is gone with the process, where a system lets an open file go
	}
	s.sort()
	w := bufio.NewWriterSize(s.file, 1<<20)
	var head [headBytes]byte
	from := s.end
	for _, r := range s.index {
		binary.LittleEndian.PutUint32(head[:4], r.key)
		binary.LittleEndian.PutUint32(head[4:], r.value)
		_, err1 := w.Write(head[:])
		_, err2 := w.Write(s.data[r.at : r.at+r.key+r.value])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		s.end += headBytes + int64(r.key) + int64(r.value)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.spans = append(s.spans, span{from, s.end})
	s.data, s.index = s.data[:0], s.index[:0]
	return nil
}

// reset forgets all records, and keeps the memory.
func (s *sorter) reset() error {
	s.data, s.index, s.spans, s.end = s.data[:0], s.index[:0], s.spans[:0], 0
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	_ = os.Remove(s.file.Name())
	s.file = nil
	return err
}

// close drops the sorter's file.
func (s *sorter) close() { _ = s.reset() }

// cursor reads the records of a run in order. Key and value are those of the record that it is at,
// and valid until the next call of next. At the end done is set.
type cursor struct {
	key, value []byte
	done       bool
	next       func(c *cursor) error
}

// cursors returns a cursor for each run, at its first record.
func (s *sorter) cursors() (list []*cursor, err error) {
	s.sort()
	at := 0
	list = append(list, &cursor{next: func(c *cursor) error {
		if c.done = at == len(s.index); !c.done {
			c.key, c.value = s.key(s.index[at]), s.value(s.index[at])
			at++
		}
		return nil
	}})
	for _, sp := range s.spans {
		in := bufio.NewReaderSize(io.NewSectionReader(s.file, sp.from, sp.to-sp.from), runBuffer)
		var buf []byte
		list = append(list, &cursor{next: func(c *cursor) error {
			var head [headBytes]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				if c.done = err == io.EOF; c.done {
					return nil
				}
				return err
			}
			k, v := int(binary.LittleEndian.Uint32(head[:4])), int(binary.LittleEndian.Uint32(head[4:]))
			buf = slices.Grow(buf[:0], k+v)[:k+v]
			c.key, c.value = buf[:k], buf[k:]
			_, err := io.ReadFull(in, buf)
			return err
		}})
	}
	for _, c := range list {
		if err := c.next(c); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// merge calls f for the records of all sorters, in the order of their keys.
func merge(sorters []*sorter, f func(key, value []byte) error) error {
	var h cursorHeap
	for _, s := range sorters {
		list, err := s.cursors()
		if err != nil {
			return err
		}
		for _, c := range list {
			if !c.done {
				h = append(h, c)
			}
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		c := h[0]
		if err := f(c.key, c.value); err != nil {
			return err
		}
		if err := c.next(c); err != nil {
			return err
		}
		if c.done {
			heap.Pop(&h)
		} else if len(h) > 1 {
			heap.Fix(&h, 0)
		}
	}
	return nil
}

type cursorHeap []*cursor

func (h cursorHeap) Len() int           { return len(h) }
func (h cursorHeap) Less(i, j int) bool { return bytes.Compare(h[i].key, h[j].key) < 0 }
func (h cursorHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *cursorHeap) Push(x any)        { *h = append(*h, x.(*cursor)) }
func (h *cursorHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}
