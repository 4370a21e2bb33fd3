package api

import (
	"fmt"
	"log/slog"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/serve/lookup"
)

func (h *handler) datasets(r *request) error {
	snap, err := h.pin(r.Context(), r)
	if err != nil {
		return err
	}
	defer snap.Release()
	page, err := snap.Datasets(r.Context(), r.query.Get("cursor"))
	if err != nil {
		return err
	}
	d := &r.doc
	r.of(page.TakedownEpoch, snap)
	d.open('{')
	d.text("version", page.Version)
	d.number("takedown_epoch", int64(page.TakedownEpoch))
	d.number("total_datasets", int64(page.Total))
	d.number("rows", page.Rows)
	d.array("datasets")
	for i := range page.Datasets {
		s := &page.Datasets[i]
		d.element()
		d.number("dataset_id", int64(s.ID))
		d.text("name", s.Name)
		d.textOrNull("title", s.Title)
		d.textOrNull("source", s.Source)
		d.textOrNull("licence", s.Licence)
		d.number("rows", s.Rows)
		d.number("batches", int64(s.Batches))
		d.number("parts", s.Parts)
		d.number("bytes", s.Bytes)
		d.close('}')
	}
	d.close(']')
	r.end(len(page.Datasets), page.Cursor, page.Version)
	d.close('}')
	r.logged = append(r.logged, slog.Int("datasets", len(page.Datasets)), slog.Int("total", page.Total))
	return nil
}

// datasetID returns the id of the dataset of the version that text names, by its id or its name.
func datasetID(snap *lookup.Snapshot, text string) (uint32, error) {
	d, ok := snap.FindDataset(text)
	if !ok {
		if id, byID := lake.DatasetID(text); byID {
			return 0, fmt.Errorf("%w: %d", lookup.ErrUnknownDataset, id)
		}
		return 0, fmt.Errorf("%w: %q", lookup.ErrUnknownDataset, text)
	}
	return d.ID, nil
}
