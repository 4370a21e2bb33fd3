package indexbuild

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// sortChunk is the unit in which a sorter's memory grows.
	sortChunk = 1 << 20

	// mergeWidth is how many runs are merged at once, each with a buffer of spoolBuffer. More are
	// merged in several passes.
	mergeWidth  = 128
	spoolBuffer = 256 << 10

	// checkEvery is how many records pass between two looks at the context.
	checkEvery = 1 << 12
)

// record is a domain's rows in some part of the lake, on its way to the index.
type record struct {
	key     []byte // what records are sorted by
	dataset uint32
	totals  segment.Totals
	tuples  []segment.Tuple
}

const (
	hasSize = 1 << iota
	hasTS
)

// appendTotals encodes totals: uvarint rows, u8 flags, [uvarint size], [varint first ts,
// uvarint last less first].
func appendTotals(out []byte, t *segment.Totals) []byte {
	out = codec.AppendUvarint(out, uint64(t.Rows))
	flags := byte(0)
	if t.HasSize {
		flags |= hasSize
	}
	if t.HasTS {
		flags |= hasTS
	}
	out = append(out, flags)
	if t.HasSize {
		out = codec.AppendUvarint(out, uint64(t.Size))
	}
	if t.HasTS {
		out = codec.AppendVarint(out, t.FirstTS)
		out = codec.AppendUvarint(out, uint64(t.LastTS)-uint64(t.FirstTS))
	}
	return out
}

func readTotals(d *codec.Decoder) segment.Totals {
	t := segment.Totals{Rows: int64(d.Uvarint())}
	flags := d.U8()
	if d.Err() == nil && flags > hasSize|hasTS {
		d.Fail("flags 0 to 3", flags)
	}
	if flags&hasSize != 0 {
		t.HasSize, t.Size = true, int64(d.Uvarint())
	}
	if flags&hasTS != 0 {
		t.HasTS, t.FirstTS = true, d.Varint()
		t.LastTS = t.FirstTS + int64(d.Uvarint())
	}
	if d.Err() == nil {
		if err := t.Validate(); err != nil {
			d.Fail("totals of rows", err)
		}
	}
	return t
}

// append encodes the record but for its key.
func (r *record) append(out []byte) []byte {
	out = codec.AppendUvarint(out, uint64(r.dataset))
	out = appendTotals(out, &r.totals)
	return segment.AppendTuples(out, r.tuples)
}

// decode reads what append made. It keeps key.
func (r *record) decode(key, data []byte, file string) error {
	d := codec.NewDecoder(data, file, "record")
	r.key = key
	r.dataset = uint32(d.Uint(math.MaxUint32))
	r.totals = readTotals(d)
	r.tuples = segment.ReadTuples(d, r.tuples[:0], r.totals.Rows)
	return d.Close()
}

// source yields records in the order of their keys. What next returns is valid until the
// call after; at the end it is nil.
type source interface {
	next() (*record, error)
}

// merger merges sources; of records with equal keys those of an earlier source come first.
type merger struct {
	heap    []head
	pending bool // the top's record was handed out
}

type head struct {
	rec   *record
	src   source
	order int
}

func newMerger(sources []source) (*merger, error) {
	m := &merger{}
	for i, s := range sources {
		r, err := s.next()
		if err != nil {
			return nil, err
		}
		if r != nil {
			m.heap = append(m.heap, head{r, s, i})
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m, nil
}

func (m *merger) less(i, j int) bool {
	a, b := &m.heap[i], &m.heap[j]
	if c := bytes.Compare(a.rec.key, b.rec.key); c != 0 {
		return c < 0
	}
	return a.order < b.order
}

func (m *merger) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(m.heap) {
			return
		}
		if c+1 < len(m.heap) && m.less(c+1, c) {
			c++
		}
		if !m.less(c, i) {
			return
		}
		m.heap[i], m.heap[c] = m.heap[c], m.heap[i]
		i = c
	}
}

func (m *merger) next() (*record, error) {
	if m.pending {
		top := &m.heap[0]
		r, err := top.src.next()
		if err != nil {
			return nil, err
		}
		if top.rec = r; r == nil {
			n := len(m.heap) - 1
			m.heap[0] = m.heap[n]
			m.heap = m.heap[:n]
		}
		m.down(0)
	}
	m.pending = len(m.heap) > 0
	if !m.pending {
		return nil, nil
	}
	return m.heap[0].rec, nil
}

// spool keeps runs of sorted records in one temporary file.
type spool struct {
	file *os.File
	size int64
}

// run is a place in a spool.
type run struct {
	spool  *spool
	off, n int64
}

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "sort-*.tmp")
	if err != nil {
		return nil, err
	}
	// Without its name the file is gone when the process dies. Where that is not allowed,
	// close removes it.
	_ = os.Remove(f.Name())
	return &spool{file: f}, nil
}

func (s *spool) close() {
	if s == nil {
		return
	}
	s.file.Close()
	_ = os.Remove(s.file.Name())
}

// write appends a run of what yield puts: u32 length of the key, u32 length of the rest, both.
func (s *spool) write(yield func(put func(key, rest []byte) error) error) (run, error) {
	w := bufio.NewWriterSize(io.NewOffsetWriter(s.file, s.size), 1<<20)
	n := int64(0)
	err := yield(func(key, rest []byte) error {
		var h [8]byte
		binary.LittleEndian.PutUint32(h[:], uint32(len(key)))
		binary.LittleEndian.PutUint32(h[4:], uint32(len(rest)))
		w.Write(h[:])
		w.Write(key)
		_, err := w.Write(rest)
		n += int64(len(h) + len(key) + len(rest))
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	r := run{s, s.size, n}
	s.size += n
	return r, err
}

// runSource reads a run.
type runSource struct {
	run run
	r   *bufio.Reader
	buf []byte
	rec record
}

func (s *runSource) next() (*record, error) {
	f := s.run.spool.file
	if s.r == nil {
		s.r = bufio.NewReaderSize(io.NewSectionReader(f, s.run.off, s.run.n), spoolBuffer)
	}
	var h [8]byte
	if _, err := io.ReadFull(s.r, h[:]); errors.Is(err, io.EOF) {
		s.r = nil
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	k, n := int(binary.LittleEndian.Uint32(h[:])), int(binary.LittleEndian.Uint32(h[4:]))
	s.buf = slices.Grow(s.buf[:0], k+n)[:k+n]
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return &s.rec, s.rec.decode(s.buf[:k], s.buf[k:], f.Name())
}

// sorter sorts records by key in bounded memory; records with equal keys stay in the order in
// which they were added. What comes out does not depend on the memory.
type sorter struct {
	dir    string
	memory int
	chunks [][]byte
	refs   []sortRef
	used   int
	spool  *spool
	runs   []run
}

// sortRef is a record in the chunks: u32 length of the rest, uvarint length of the key, both.
type sortRef struct {
	prefix     uint64 // first bytes of the key, big-endian
	chunk, off uint32
}

const sortRefBytes = 16

// newSorter keeps up to memory bytes of records before it writes a run to a file in dir.
func newSorter(dir string, memory int) *sorter {
	return &sorter{dir: dir, memory: memory}
}

func (s *sorter) close() { s.spool.close() }

func (s *sorter) add(r *record) error {
	n := len(s.chunks) - 1
	if n < 0 || len(s.chunks[n]) > sortChunk-256 {
		s.chunks = append(s.chunks, make([]byte, 0, sortChunk))
		n++
	}
	c := s.chunks[n]
	off := len(c)
	c = append(c, 0, 0, 0, 0)
	c = codec.AppendUvarint(c, uint64(len(r.key)))
	c = append(c, r.key...)
	start := len(c)
	c = r.append(c)
	binary.LittleEndian.PutUint32(c[off:], uint32(len(c)-start))
	s.chunks[n] = c
	s.refs = append(s.refs, sortRef{keyPrefix(r.key), uint32(n), uint32(off)})
	if s.used += len(c) - off + sortRefBytes; s.used >= s.memory {
		return s.spill()
	}
	return nil
}

func keyPrefix(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

func (s *sorter) at(r sortRef) (key, rest []byte) {
	c := s.chunks[r.chunk][r.off:]
	n := int(binary.LittleEndian.Uint32(c))
	k, w := binary.Uvarint(c[4:])
	c = c[4+w:]
	return c[:k], c[k : int(k)+n]
}

func (s *sorter) sortRefs() {
	slices.SortFunc(s.refs, func(a, b sortRef) int {
		if a.prefix != b.prefix {
			if a.prefix < b.prefix {
				return -1
			}
			return 1
		}
		ka, _ := s.at(a)
		kb, _ := s.at(b)
		if c := bytes.Compare(ka, kb); c != 0 {
			return c
		}
		if a.chunk != b.chunk {
			return int(a.chunk) - int(b.chunk)
		}
		return int(a.off) - int(b.off)
	})
}

// spill writes what is in memory to a run.
func (s *sorter) spill() error {
	if len(s.refs) == 0 {
		return nil
	}
	if s.spool == nil {
		var err error
		if s.spool, err = newSpool(s.dir); err != nil {
			return err
		}
	}
	s.sortRefs()
	r, err := s.spool.write(func(put func(key, rest []byte) error) error {
		for _, ref := range s.refs {
			if err := put(s.at(ref)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.runs = append(s.runs, r)
	s.chunks, s.refs, s.used = nil, s.refs[:0], 0
	return nil
}

// memorySource yields what a sorter has in memory.
type memorySource struct {
	s   *sorter
	i   int
	rec record
}

func (m *memorySource) next() (*record, error) {
	if m.i == len(m.s.refs) {
		return nil, nil
	}
	key, rest := m.s.at(m.s.refs[m.i])
	m.i++
	return &m.rec, m.rec.decode(key, rest, "sorted records")
}

// sorted ends adding and returns all records in order. They can be read until close.
func (s *sorter) sorted(ctx context.Context) (source, error) {
	if len(s.runs) == 0 {
		s.sortRefs()
		return &memorySource{s: s}, nil
	}
	if err := s.spill(); err != nil {
		return nil, err
	}
	s.refs = nil
	sources := make([]source, len(s.runs))
	for i, r := range s.runs {
		sources[i] = &runSource{run: r}
	}
	sources, err := narrow(ctx, sources, s.spool)
	if err != nil {
		return nil, err
	}
	return newMerger(sources)
}

// narrow merges neighbours among sources into runs in the spool until at most mergeWidth are
// left. The spool's space is given back when it is closed, not before.
func narrow(ctx context.Context, sources []source, sp *spool) ([]source, error) {
	for len(sources) > mergeWidth {
		var merged []source
		for group := range slices.Chunk(sources, mergeWidth) {
			m, err := newMerger(group)
			if err != nil {
				return nil, err
			}
			var rest []byte
			r, err := sp.write(func(put func(key, rest []byte) error) error {
				for n := 1; ; n++ {
					if n%checkEvery == 0 && ctx.Err() != nil {
						return ctx.Err()
					}
					rec, err := m.next()
					if rec == nil || err != nil {
						return err
					}
					rest = rec.append(rest[:0])
					if err := put(rec.key, rest); err != nil {
						return err
					}
				}
			})
			if err != nil {
				return nil, err
			}
			merged = append(merged, &runSource{run: r})
		}
		sources = merged
	}
	return sources, nil
}
