package prefixtree

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/lake/codec"
)

// runChunk is the size in bytes in which sorted rows are written and read again. The merge holds a
// chunk of each run.
const runChunk = 64 << 10

// chunk is a piece of a run in the temporary file.
type chunk struct {
	at  keysort.Extent
	sum uint64 // xxh64
}

// run is a sorted list of rows in the temporary file.
type run struct {
	chunks []chunk
	rows   uint64
	tiers  uint32 // a bit for each tier that they have
}

// appendRow appends a row to a chunk. Of the folder it holds what differs from the one before.
func appendRow(p, before, folder []byte, tier Tier, sum Sum) []byte {
	same := codec.CommonPrefix(before, folder)
	p = binary.AppendUvarint(p, uint64(same))
	p = binary.AppendUvarint(p, uint64(len(folder)-same))
	p = append(p, folder[same:]...)
	p = append(p, byte(tier))
	p = binary.AppendUvarint(p, sum.Objects)
	return binary.AppendUvarint(p, sum.Bytes)
}

// writeRun writes the sorted rows of a Collector to the temporary file.
func (b *Builder) writeRun(c *Collector) error {
	r := run{rows: uint64(len(c.rows)), tiers: c.tiers()}
	buf := make([]byte, 0, runChunk+MaxKey+64)
	var before []byte
	write := func() error {
		e, err := b.spoolWrite(buf)
		r.chunks = append(r.chunks, chunk{e, xxhash.Sum64(buf)})
		buf, before = buf[:0], nil
		return err
	}
	for i := range c.rows {
		folder := c.folder(&c.rows[i])
		buf = appendRow(buf, before, folder, c.rows[i].tier, c.rows[i].sum)
		before = folder
		if len(buf) >= runChunk {
			if err := write(); err != nil {
				return err
			}
		}
	}
	if len(buf) > 0 {
		if err := write(); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, r)
	return nil
}

// spoolWrite appends p to the temporary file, which it creates if there is none.
func (b *Builder) spoolWrite(p []byte) (keysort.Extent, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spool == nil {
		var err error
		if b.spool, err = keysort.NewSpool(b.opt.Dir); err != nil {
			return keysort.Extent{}, err
		}
	}
	return b.spool.Write(p)
}

// rowSource yields rows in order. folder, tier and sum are those of the current row.
type rowSource struct {
	folder []byte
	tier   Tier
	sum    Sum

	// The rows of a Collector from index next.
	collector *Collector
	next      int

	// Or those of a run.
	spool  *keysort.Spool
	run    []chunk
	buf    []byte
	left   *codec.Decoder
	inside bool // buf has been read
}

// advance moves to the next row. It returns false after the last one.
func (s *rowSource) advance() (bool, error) {
	if c := s.collector; c != nil {
		if s.next == len(c.rows) {
			return false, nil
		}
		r := &c.rows[s.next]
		s.folder, s.tier, s.sum = c.folder(r), r.tier, r.sum
		s.next++
		return true, nil
	}
	for !s.inside || s.left.Len() == 0 {
		if len(s.run) == 0 {
			return false, nil
		}
		c := s.run[0]
		s.run = s.run[1:]
		var err error
		if s.buf, err = s.spool.Read(c.at, s.buf); err != nil {
			return false, err
		}
		if got := xxhash.Sum64(s.buf); got != c.sum {
			return false, codec.Corrupt(s.spool.Name(), "rows", c.at.Offset, fmt.Sprintf("xxh64 %016x", c.sum), fmt.Sprintf("%016x", got))
		}
		s.left, s.inside, s.folder = codec.NewDecoder(s.buf, s.spool.Name(), "rows"), true, s.folder[:0]
	}
	d := s.left
	same := int(d.Uint(uint64(len(s.folder))))
	rest := d.Bytes(int(d.Uint(MaxKey)))
	s.folder = append(s.folder[:same], rest...)
	s.tier = Tier(d.U8())
	s.sum = Sum{Objects: d.Uvarint(), Bytes: d.Uvarint()}
	return d.Err() == nil, d.Err()
}

func (s *rowSource) compare(o *rowSource) int {
	return cmp.Or(bytes.Compare(s.folder, o.folder), cmp.Compare(s.tier, o.tier))
}

// merge passes the rows of all sources to yield in order, rows of the same folder and tier as one.
// The folder is valid during the call.
func merge(sources []*rowSource, yield func(folder []byte, tier Tier, sum Sum) error) error {
	var heap []*rowSource
	down := func(i int) {
		for {
			child := 2*i + 1
			if child >= len(heap) {
				return
			}
			if child+1 < len(heap) && heap[child+1].compare(heap[child]) < 0 {
				child++
			}
			if heap[i].compare(heap[child]) <= 0 {
				return
			}
			heap[i], heap[child] = heap[child], heap[i]
			i = child
		}
	}
	for _, s := range sources {
		ok, err := s.advance()
		if err != nil {
			return err
		}
		if ok {
			heap = append(heap, s)
		}
	}
	for i := len(heap) / 2; i >= 0; i-- {
		down(i)
	}
	var folder []byte
	for len(heap) > 0 {
		folder = append(folder[:0], heap[0].folder...)
		tier, sum := heap[0].tier, Sum{}
		for len(heap) > 0 && heap[0].tier == tier && bytes.Equal(heap[0].folder, folder) {
			if err := sum.add(heap[0].sum); err != nil {
				return err
			}
			ok, err := heap[0].advance()
			if err != nil {
				return err
			}
			if !ok {
				heap[0] = heap[len(heap)-1]
				heap = heap[:len(heap)-1]
			}
			down(0)
		}
		if err := yield(folder, tier, sum); err != nil {
			return err
		}
	}
	return nil
}
