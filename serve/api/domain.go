package api

import (
	"log/slog"

	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

func (h *handler) domain(r *request) error {
	target, err := lookup.ParseTarget(r.PathValue("d"))
	if err != nil {
		return err
	}
	ctx, trace := r.explain()
	snap, err := h.pin(ctx, r)
	if err != nil {
		return err
	}
	defer snap.Release()
	page, err := snap.Domain(ctx, target, r.query.Get("cursor"))
	if err != nil {
		return err
	}
	d := &r.doc
	d.open('{')
	r.describe(snap, &page.Answer)
	d.number("total_datasets", int64(page.Total))
	d.array("datasets")
	for i := range page.Datasets {
		t := &page.Datasets[i]
		d.element()
		d.number("dataset_id", int64(t.ID))
		d.text("name", t.Name)
		r.sums(&t.Totals)
		d.close('}')
	}
	d.close(']')
	r.end(len(page.Datasets), page.Cursor, page.Version)
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged, slog.String("domain_id", urlnorm.FormatID(page.DomainID)),
		slog.Int("datasets", len(page.Datasets)), slog.Int("total", page.Total))
	return nil
}
