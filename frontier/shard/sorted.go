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

// findID returns the position of an id among elements of a size that begin with their ids and are
// sorted by them. Ids are hashes, so the place is guessed from the id, and found a few elements
// beside that.
func findID(elements []byte, size int, id [16]byte) (i int, ok bool) {
	lo, hi := 0, len(elements)/size // the id is in [lo, hi)
	want := binary.BigEndian.Uint64(id[:])
	first, last := uint64(0), ^uint64(0)
	for step := 0; lo < hi; step++ {
		mid := lo + (hi-lo)/2
		if step < 8 && hi-lo > 8 && last > first {
			mid = lo + int(float64(want-first)/float64(last-first)*float64(hi-lo-1))
			mid = min(max(mid, lo), hi-1)
		}
		got := elements[mid*size : mid*size+16]
		switch c := bytes.Compare(got, id[:]); {
		case c == 0:
			return mid, true
		case c < 0:
			lo, first = mid+1, binary.BigEndian.Uint64(got)
		default:
			hi, last = mid, binary.BigEndian.Uint64(got)
		}
		if want < first || want > last {
			return 0, false
		}
	}
	return 0, false
}
