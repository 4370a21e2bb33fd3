package deletion

import (
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
)

// The difference of two lists of rows is that of the sets of rows.
func TestDifference(t *testing.T) {
	const rows = 9
	// Every set of rows of two row groups, as tuples that do not touch each other.
	list := func(set int) (tuples []segment.Tuple) {
		for group := range 2 {
			for row := range int64(rows / 2) {
				if set>>(group*(rows/2)+int(row))&1 == 0 {
					continue
				}
				n := len(tuples) - 1
				if n >= 0 && tuples[n].RowGroup == uint32(group) && tuples[n].FirstRow+tuples[n].Rows == row {
					tuples[n].Rows++
				} else {
					tuples = append(tuples, segment.Tuple{RowGroup: uint32(group), FirstRow: row, Rows: 1})
				}
			}
		}
		return tuples
	}
	count := func(tuples []segment.Tuple) (n int64) {
		for _, t := range tuples {
			n += t.Rows
		}
		return n
	}
	for all := range 1 << (rows - 1) {
		for dead := range 1 << (rows - 1) {
			left, taken := Difference(list(all), list(dead))
			if want := list(all &^ dead); !slices.Equal(left, want) || taken != count(list(all&dead)) {
				t.Fatalf("%b without %b: %v, %d taken, want %v", all, dead, left, taken, want)
			}
		}
	}
}
