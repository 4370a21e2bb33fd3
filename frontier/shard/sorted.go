package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/edsrzf/mmap-go"
)

// mapFile maps a file that never changes.
func mapFile(name string) (data mmap.MMap, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if data, err = mmap.Map(f, mmap.RDONLY, 0); err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return data, errors.Join(err, f.Close())
}

// span is where among sorted elements an id may be: in [lo, hi), whose ids have upper halves
// between first and last.
type span struct {
	lo, hi      int
	first, last uint64
}

// guess returns the element to compare next. Ids are hashes, so the place of the one whose upper
// half is wanted is guessed from that, and found a few elements beside it.
func (s span) guess(want uint64, step int) int {
	if step < 8 && s.hi-s.lo > 8 && s.last > s.first {
		return min(s.lo+int(float64(want-s.first)/float64(s.last-s.first)*float64(s.hi-s.lo-1)), s.hi-1)
	}
	return s.lo + (s.hi-s.lo)/2
}

// beside returns what is left once an element, with an upper half, was less than the wanted one or
// not. It is empty if no element can be the one.
func (s span) beside(mid int, less bool, upper, want uint64) span {
	if less {
		s.lo, s.first = mid+1, upper
	} else {
		s.hi, s.last = mid, upper
	}
	if want < s.first || want > s.last {
		s.hi = s.lo
	}
	return s
}

// findID returns the position of an id among elements of a size that begin with their ids and are
// sorted by them.
func findID(elements []byte, size int, id [16]byte) (i int, ok bool) {
	want := binary.BigEndian.Uint64(id[:])
	s := span{hi: len(elements) / size, last: ^uint64(0)}
	for step := 0; s.lo < s.hi; step++ {
		mid := s.guess(want, step)
		got := elements[mid*size : mid*size+16]
		c := bytes.Compare(got, id[:])
		if c == 0 {
			return mid, true
		}
		s = s.beside(mid, c < 0, binary.BigEndian.Uint64(got), want)
	}
	return 0, false
}
