package command

import (
	"context"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// hidden returns how many rows takedowns hide in a version, by dataset. The version may be nil.
func hidden(ctx context.Context, store blob.Store, m *catalog.Manifest, v *catalog.Version) (map[uint32]int64, error) {
	if m == nil || v == nil || m.Takedowns == nil {
		return nil, nil
	}
	doc, err := catalog.ReadTakedowns(ctx, store, m.Takedowns)
	if err != nil {
		return nil, err
	}
	hidden := map[uint32]int64{}
	for i := range v.Segments {
		s, _ := doc.Find(v.Segments[i].View())
		rows, err := deletion.Hidden(ctx, store, &v.Segments[i], s)
		if err != nil {
			return nil, err
		}
		for dataset, n := range rows {
			hidden[dataset] += n
		}
	}
	return hidden, nil
}

// subtract takes the rows that takedowns hide out of the counts of a version.
func subtract(ctx context.Context, store blob.Store, m *catalog.Manifest, v *catalog.Version) error {
	hidden, err := hidden(ctx, store, m, v)
	for _, rows := range hidden {
		v.Counts.Rows -= rows
	}
	return err
}
