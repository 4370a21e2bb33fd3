//go:build !amd64

package part

import "github.com/urlake/urlake/lake/row"

// pathRows is empty, because addUsualRows does nothing.
type pathRows struct{}

// addUsualRows adds no rows.
func (w *Writer) addUsualRows([]row.SortedRow) (done, added int, err error) { return 0, 0, nil }
