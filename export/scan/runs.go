package scan

import (
	"context"
	"errors"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
)

var errStopped = errors.New("the caller needs no more rows")

// run reads the rows of one run, at most batchRows at a time.
func (s *Slice) run(
	ctx context.Context, t *Task, blocks []*part.PageIndexBlock, r run, columns []part.Column, each func(*part.Columns) bool,
) error {
	first, left := r.first, r.rows
	for _, b := range blocks {
		if b.RowGroup != int(r.group) || b.FirstRow+b.Rows() <= first {
			continue
		}
		for left > 0 && first < b.FirstRow+b.Rows() {
			n := min(left, batchRows, b.FirstRow+b.Rows()-first)
			c, err := partreader.ReadColumns(ctx, s.store, t.Key, b, first, n, columns...)
			if err != nil {
				return err
			}
			if !each(c) {
				return errStopped
			}
			first, left = first+n, left-n
		}
	}
	if left > 0 {
		return codec.Corrupt(t.object.Key, "page index of "+t.Key, -1, "all rows that the index names", left)
	}
	return nil
}
