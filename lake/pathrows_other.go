//go:build !amd64

package lake

// pathRows and namePairs have nothing where addUsual and followHost do nothing.
type (
	pathRows  struct{}
	namePairs struct{}
)

// addUsual adds no rows.
func (w *PartWriter) addUsual(rows []SortedRow) (looked, added int, err error) { return 0, 0, nil }

// askEnds asks for nothing.
func askEnds([]SortedRow) {}

// followHost follows no host.
func (w *PartWriter) followHost(*SortedHost) bool { return false }

// byteDiffs is byteDiffsPlain.
func byteDiffs(out []byte, last int32, values []int32) (equal, fit bool) {
	return byteDiffsPlain(out, last, values)
}
