package segment

import "math/bits"

// denseFiles is how many file ids fileNumbers holds in slices.
const denseFiles = 1 << 20

// fileNumbers maps the files of one block to numbers. Most segments have so few files that slices
// hold all of them; these are emptied by starting a new round.
type fileNumbers struct {
	round  uint32
	stamp  []uint32 // by file id: the round in which value was set
	value  []uint32 // by file id
	sparse map[uint32]uint32
}

// reset empties the table.
func (t *fileNumbers) reset() {
	if t.round++; t.round == 0 {
		clear(t.stamp)
		t.round = 1
	}
	clear(t.sparse)
}

// number returns the number of a file. A file that has none gets next, and added is true.
func (t *fileNumbers) number(file, next uint32) (_ uint32, added bool) {
	if file < uint32(len(t.stamp)) {
		if t.stamp[file] == t.round {
			return t.value[file], false
		}
		t.stamp[file], t.value[file] = t.round, next
		return next, true
	}
	return t.numberSparse(file, next)
}

// numberSparse is number for files beyond the slices, which it extends for ids below denseFiles.
func (t *fileNumbers) numberSparse(file, next uint32) (_ uint32, added bool) {
	if file < denseFiles {
		n := 1 << bits.Len32(max(file, 1023))
		t.stamp = append(t.stamp, make([]uint32, n-len(t.stamp))...)
		t.value = append(t.value, make([]uint32, n-len(t.value))...)
		return t.number(file, next)
	}
	if v, ok := t.sparse[file]; ok {
		return v, false
	}
	if t.sparse == nil {
		t.sparse = map[uint32]uint32{}
	}
	t.sparse[file] = next
	return next, true
}
