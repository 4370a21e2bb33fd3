package lookup

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/catalog"
)

// DatasetsPage is one page of the list of all datasets of a version.
type DatasetsPage struct {
	Version string
	// TakedownEpoch tells which takedowns the answer takes into account; see catalog.Manifest.
	TakedownEpoch uint64
	// Rows is the number of rows of the version, without those that takedowns hide.
	Rows int64
	// Total is the number of datasets in the version that the reader may read, Before that of those
	// on earlier pages. Datasets are those of this page, by id. They belong to the snapshot and
	// must not be changed.
	Total, Before int
	Datasets      []catalog.Dataset
	// Cursor is where the next page starts. It is empty on the last page.
	Cursor string
}

// Datasets lists the datasets of the version, MaxDatasets a page, starting at cursorText. An empty
// cursor starts at the beginning.
func (s *Snapshot) Datasets(ctx context.Context, cursorText string) (*DatasetsPage, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	from := uint32(0)
	if cursorText != "" {
		if from, err = s.datasetAfter(cursorText, cursorAllDatasets, ""); err != nil {
			return nil, err
		}
	}
	all := v.datasets
	first, _ := slices.BinarySearchFunc(all, from, func(d catalog.Dataset, id uint32) int {
		return cmp.Compare(d.ID, id)
	})
	end := min(first+s.server.datasets, len(all))
	page := &DatasetsPage{
		Version: s.version.ID, TakedownEpoch: v.takedowns.epoch, Rows: v.rows,
		Total: len(all), Before: first, Datasets: all[first:end:end],
	}
	if end < len(all) {
		page.Cursor = s.datasetCursor(cursorAllDatasets, "", all[end-1].ID)
	}
	return page, nil
}

// Dataset returns the dataset with this id, with the rows that it has without takedowns. One that
// the reader may not read is not there.
func (s *Snapshot) Dataset(id uint32) (*catalog.Dataset, bool) {
	i, ok := slices.BinarySearchFunc(s.every, id, func(d catalog.Dataset, id uint32) int { return cmp.Compare(d.ID, id) })
	if !ok || !s.mayRead(id) {
		return nil, false
	}
	return &s.every[i], true
}

// FindDataset returns the dataset that text names, by its id or its name, as Dataset does.
func (s *Snapshot) FindDataset(text string) (*catalog.Dataset, bool) {
	if id, ok := lake.DatasetID(text); ok {
		return s.Dataset(id)
	}
	i, ok := s.named[text]
	if !ok || !s.mayRead(s.every[i].ID) {
		return nil, false
	}
	return &s.every[i], true
}

// datasetCursor is the cursor of a list of datasets whose next page starts after dataset last.
func (s *Snapshot) datasetCursor(kind byte, domain string, last uint32) string {
	c := cursor{
		kind: kind, fingerprint: fingerprint(kind, domain, 0), version: s.version.ID,
		at: position{dataset: uint64(last)},
	}
	return c.String()
}

// datasetAfter reads a cursor of a list of datasets and returns the smallest id that the next page
// may contain.
func (s *Snapshot) datasetAfter(text string, kind byte, domain string) (uint32, error) {
	c, err := s.parseCursor(text, kind, domain, 0)
	if err != nil {
		return 0, err
	}
	if c.at.dataset >= 1<<32-1 {
		return 0, fmt.Errorf("%w: it starts after the last possible dataset", ErrBadCursor)
	}
	return uint32(c.at.dataset) + 1, nil
}
