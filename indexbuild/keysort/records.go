package keysort

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/codec"
)

// Source yields records in the order of their keys, which sort by their bytes. Keys may be there
// many times. At the end the error is io.EOF. What Next returns is valid until the next call.
type Source interface {
	Next() (key, value []byte, err error)
}

// Records collects records in memory and sorts them. Memory is kept for those that follow a Reset.
type Records struct {
	data  []byte
	index []recordRef
}

// recordRef says where a record is in the data of Records.
type recordRef struct {
	at         uint64
	key, value uint32
}

// recordBytes is what a record takes besides its key and value.
const recordBytes = 16

// Add adds a record, whose key and value are not kept.
func (r *Records) Add(key, value []byte) {
	r.index = append(r.index, recordRef{uint64(len(r.data)), uint32(len(key)), uint32(len(value))})
	r.data = append(append(r.data, key...), value...)
}

// Len is the number of records.
func (r *Records) Len() int { return len(r.index) }

// Bytes is the memory that the records take.
func (r *Records) Bytes() int { return len(r.data) + recordBytes*len(r.index) }

// Reset forgets all records.
func (r *Records) Reset() { r.data, r.index = r.data[:0], r.index[:0] }

func (r *Records) key(ref recordRef) []byte { return r.data[ref.at:][:ref.key] }

// Sorted sorts the records and returns a Source of them. It is valid until the next Add or Reset.
func (r *Records) Sorted() Source {
	slices.SortFunc(r.index, func(a, b recordRef) int { return bytes.Compare(r.key(a), r.key(b)) })
	return &sortedRecords{r: r}
}

type sortedRecords struct {
	r    *Records
	next int
}

// Next implements Source.
func (s *sortedRecords) Next() (key, value []byte, err error) {
	if s.next == len(s.r.index) {
		return nil, nil, io.EOF
	}
	ref := s.r.index[s.next]
	s.next++
	return s.r.key(ref), s.r.data[ref.at+uint64(ref.key):][:ref.value], nil
}

const (
	// runChunk is the size in bytes in which runs are written and read again. It holds a record at
	// least.
	runChunk = 64 << 10
	// mergedAtOnce is how many runs are merged at once, with a chunk of each in memory: 8 MiB.
	mergedAtOnce = 128
)

// Runs are sorted lists of records in one temporary file, with checksums. Add may be called from
// several goroutines at once, Merge and Close after all Adds.
type Runs struct {
	dir   string
	fanIn int // mergedAtOnce, fewer in tests

	mu    sync.Mutex // of what follows, while there are Adds
	spool *Spool
	runs  [][]chunk
}

// chunk is a piece of a run in the temporary file.
type chunk struct {
	at  Extent
	sum uint64 // xxh64
}

// NewRuns returns no runs yet. Their temporary file is created in dir, or in the system's folder
// for "", once there is a run.
func NewRuns(dir string) *Runs { return &Runs{dir: dir, fanIn: mergedAtOnce} }

// Len is the number of runs.
func (r *Runs) Len() int { return len(r.runs) }

// Close removes the temporary file and forgets all runs. Runs can be added again.
func (r *Runs) Close() {
	r.spool.Close()
	r.spool, r.runs = nil, nil
}

// Add writes the records of a Source as a run.
func (r *Runs) Add(records Source) error {
	w := runWriter{runs: r}
	for {
		key, value, err := records.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = w.add(key, value)
		}
		if err != nil {
			return err
		}
	}
	return w.finish()
}

// write appends a chunk to the temporary file.
func (r *Runs) write(p []byte) (c chunk, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spool == nil {
		if r.spool, err = NewSpool(r.dir); err != nil {
			return c, err
		}
	}
	c.sum = xxhash.Sum64(p)
	c.at, err = r.spool.Write(p)
	return c, err
}

// runWriter writes one run. Of a key a chunk has the bytes in which it differs from the key before.
type runWriter struct {
	runs *Runs
	all  []chunk
	buf  []byte
	last []byte
}

func (w *runWriter) add(key, value []byte) error {
	if uint64(len(key)) > math.MaxUint32 || uint64(len(value)) > math.MaxUint32 {
		return fmt.Errorf("a record of %d and %d bytes", len(key), len(value))
	}
	same := codec.CommonPrefix(w.last, key)
	w.buf = codec.AppendUvarint(w.buf, uint64(same))
	w.buf = codec.AppendUvarint(w.buf, uint64(len(key)-same))
	w.buf = append(w.buf, key[same:]...)
	w.buf = codec.AppendUvarint(w.buf, uint64(len(value)))
	w.buf = append(w.buf, value...)
	w.last = append(w.last[:same], key[same:]...)
	if len(w.buf) < runChunk {
		return nil
	}
	return w.flush()
}

func (w *runWriter) flush() error {
	c, err := w.runs.write(w.buf)
	w.all, w.buf, w.last = append(w.all, c), w.buf[:0], w.last[:0]
	return err
}

// finish ends the run, which then is one of the runs unless it has no records.
func (w *runWriter) finish() error {
	if len(w.buf) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.all) > 0 {
		w.runs.mu.Lock()
		defer w.runs.mu.Unlock()
		w.runs.runs = append(w.runs.runs, w.all)
	}
	return nil
}

// runReader is the Source of a run.
type runReader struct {
	spool *Spool
	left  []chunk
	buf   []byte
	d     *codec.Decoder
	key   []byte
}

// Next implements Source.
func (r *runReader) Next() (key, value []byte, err error) {
	for r.d == nil || r.d.Len() == 0 {
		if len(r.left) == 0 {
			return nil, nil, io.EOF
		}
		c := r.left[0]
		r.left = r.left[1:]
		if r.buf, err = r.spool.Read(c.at, r.buf); err != nil {
			return nil, nil, err
		}
		if got := xxhash.Sum64(r.buf); got != c.sum {
			return nil, nil, codec.Corrupt(r.spool.Name(), "run", c.at.Offset, fmt.Sprintf("xxh64 %016x", c.sum), fmt.Sprintf("%016x", got))
		}
		r.d, r.key = codec.NewDecoder(r.buf, r.spool.Name(), "run"), r.key[:0]
	}
	same := r.d.Uint(uint64(len(r.key)))
	rest := r.d.Bytes(int(r.d.Uint(uint64(r.d.Len()))))
	value = r.d.Bytes(int(r.d.Uint(uint64(r.d.Len()))))
	if r.d.Err() != nil {
		return nil, nil, r.d.Err()
	}
	r.key = append(r.key[:same], rest...)
	return r.key, value, nil
}

// Merge passes the records of all runs and of further sources to yield in the order of their keys.
// They are valid during the call. Of many runs it first merges some to larger ones. The runs are
// used up.
func (r *Runs) Merge(ctx context.Context, sources []Source, yield func(key, value []byte) error) error {
	for len(r.runs) > r.fanIn {
		// The oldest are the shortest: merged ones are behind them.
		some := r.readers(min(r.fanIn, len(r.runs)-r.fanIn+1))
		w := runWriter{runs: r}
		if err := merge(ctx, some, w.add); err != nil {
			return err
		}
		if err := w.finish(); err != nil {
			return err
		}
	}
	return merge(ctx, append(r.readers(len(r.runs)), sources...), yield)
}

// readers takes the first n runs and returns their sources.
func (r *Runs) readers(n int) []Source {
	all := make([]Source, n)
	for i, run := range r.runs[:n] {
		all[i] = &runReader{spool: r.spool, left: run}
	}
	r.runs = r.runs[n:]
	return all
}

// mergeRecords is the number of records between two looks at the context.
const mergeRecords = 1 << 14

// merging is a source and its next record.
type merging struct {
	Source
	key, value []byte
}

func merge(ctx context.Context, sources []Source, yield func(key, value []byte) error) error {
	heap := make([]merging, 0, len(sources))
	down := func(i int) {
		for {
			child := 2*i + 1
			if child >= len(heap) {
				return
			}
			if child+1 < len(heap) && bytes.Compare(heap[child+1].key, heap[child].key) < 0 {
				child++
			}
			if bytes.Compare(heap[i].key, heap[child].key) <= 0 {
				return
			}
			heap[i], heap[child] = heap[child], heap[i]
			i = child
		}
	}
	for _, s := range sources {
		key, value, err := s.Next()
		if err == io.EOF {
			continue
		}
		if err != nil {
			return err
		}
		heap = append(heap, merging{s, key, value})
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(i)
	}
	for n := 0; len(heap) > 0; n++ {
		if n%mergeRecords == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		top := &heap[0]
		if err := yield(top.key, top.value); err != nil {
			return err
		}
		var err error
		if top.key, top.value, err = top.Next(); err == io.EOF {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		} else if err != nil {
			return err
		}
		down(0)
	}
	return nil
}
