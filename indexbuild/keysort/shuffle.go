package keysort

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/urlake/urlake/indexbuild/segment"
)

// Shuffle partitions values as a Sorter does, and leaves it to its caller where they are kept until
// they are sorted: other processes may then sort the partitions, with values of several Shuffles.
// It is for one goroutine.
type Shuffle struct{ sorter *Sorter }

// NewShuffle returns a Shuffle with 1<<bits partitions. Whenever it holds memory bytes (0 is 128
// MiB), and at the end, it passes all its values to emit: for each partition that has some, in
// ascending order, the values in the order in which they were added. emit does not keep them.
func NewShuffle(memory, bits int, emit func(partition int, values []byte) error) *Shuffle {
	if memory <= 0 {
		memory = defaultMemory
	}
	s := newSorter("", memory, 0, uint(bits))
	s.emit = emit
	return &Shuffle{s}
}

// Add adds a copy of val under k.
func (s *Shuffle) Add(k segment.Key, val []byte) error { return s.sorter.Add(k, val) }

// Flush emits the values that are left.
func (s *Shuffle) Flush() error { return s.sorter.spill() }

// Rewrite appends values, as a Shuffle has emitted them, to out, each as rewrite appends it. It
// fails if values does not end with a whole value.
func Rewrite(out, values []byte, rewrite func(out, val []byte) ([]byte, error)) ([]byte, error) {
	for len(values) > 0 {
		if len(values) < valueHeader {
			return nil, fmt.Errorf("%d bytes after the last value", len(values))
		}
		n := int64(binary.LittleEndian.Uint32(values[12:]))
		if n > int64(len(values)-valueHeader) {
			return nil, fmt.Errorf("a value of %d bytes where %d are left", n, len(values)-valueHeader)
		}
		at := len(out)
		out = append(out, values[:valueHeader]...)
		var err error
		if out, err = rewrite(out, values[valueHeader:valueHeader+n]); err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint32(out[at+12:], uint32(len(out)-at-valueHeader))
		values = values[valueHeader+n:]
	}
	return out, nil
}

// SortPartition sorts the values of one of 1<<bits partitions, which have size bytes with their
// headers, and passes them to yield as Sorter.Each does. dir and memory are those of New. A
// partition that is too large to be sorted at once is read chunk by chunk; the chunks of any other
// must stay valid until SortPartition returns.
func SortPartition(
	ctx context.Context, dir string, memory, bits int, size int64, chunks iter.Seq2[[]byte, error], yield func(*Values) error,
) error {
	if memory <= 0 {
		memory = defaultMemory
	}
	s := Sorter{dir: dir, memory: memory, limit: sortLimit(memory), bits: uint(bits)}
	if size > s.limit {
		return s.split(ctx, chunks, yield)
	}
	v := valuesPool.Get().(*Values)
	defer valuesPool.Put(v)
	v.chunks = v.chunks[:0]
	for c, err := range chunks {
		if err != nil {
			return err
		}
		v.chunks = append(v.chunks, c)
	}
	return v.each(s.bits, yield)
}
