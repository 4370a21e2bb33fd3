package deletion

import (
	"context"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// OpenOwn opens the table that a version names of a segment, nil if there is none.
func OpenOwn(ctx context.Context, store blob.Store, s *catalog.Segment, cache segment.Cache) (*Table, error) {
	if s.Dead == nil {
		return nil, nil
	}
	return Open(ctx, store, s.Dead.Table, cache)
}

// OpenView opens the one table of a version's segment under takedowns: the takedowns' table or, if
// they have none, the version's own. It is nil if neither has one. Covered is the entry of the
// takedowns for the segment.
func OpenView(
	ctx context.Context, store blob.Store, s *catalog.Segment, covered catalog.TakedownSegment, cache segment.Cache,
) (*Table, error) {
	if covered.Table == nil {
		return OpenOwn(ctx, store, s, cache)
	}
	return Open(ctx, store, *covered.Table, cache)
}

// Hidden returns how many rows of each dataset takedowns hide of what a version has of a segment.
func Hidden(
	ctx context.Context, store blob.Store, s *catalog.Segment, covered catalog.TakedownSegment,
) (map[uint32]int64, error) {
	if covered.Table == nil {
		return nil, nil
	}
	own, err := OpenOwn(ctx, store, s, nil)
	if err != nil {
		return nil, err
	}
	table, err := Open(ctx, store, *covered.Table, nil)
	if err != nil {
		return nil, err
	}
	return table.Beyond(own), nil
}

// Beyond returns how many rows of each dataset a table takes away that own, which may be nil, does
// not.
func (t *Table) Beyond(own *Table) map[uint32]int64 {
	rows := make(map[uint32]int64, len(t.sums))
	for _, s := range t.sums {
		rows[s.Dataset] = s.Rows
	}
	if own != nil {
		for _, s := range own.sums {
			if rows[s.Dataset] -= s.Rows; rows[s.Dataset] == 0 {
				delete(rows, s.Dataset)
			}
		}
	}
	return rows
}
