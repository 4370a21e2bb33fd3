//go:build !amd64

package partwriter

import "github.com/urlake/urlake/lake/row"

// pathRows and namePairs have nothing where addUsual and followHost do nothing.
type (
	pathRows  struct{}
	namePairs struct{}
)

// addUsual adds no rows.
func (w *Writer) addUsual(rows []row.SortedRow) (looked, added int, err error) { return 0, 0, nil }

// askEnds asks for nothing.
func askEnds([]row.SortedRow) {}

// followHost follows no host.
func (w *Writer) followHost(*row.SortedHost) bool { return false }

// byteDiffs is byteDiffsPlain.
func byteDiffs(out []byte, last int32, values []int32) (equal, fit bool) {
	return byteDiffsPlain(out, last, values)
}
