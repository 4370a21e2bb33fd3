package api

import (
	"log/slog"

	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// url answers which datasets hold exactly one URL.
func (h *handler) url(r *request) error {
	text := r.query.Get("url")
	if text == "" {
		return badParameter("url", "is missing; name a URL, percent-escaped, as in url=https%3A%2F%2Fexample.com%2F")
	}
	u, err := lookup.ParseURL(text)
	if err != nil {
		return err
	}
	ctx, trace := r.explain()
	snap, err := h.pin(ctx, r)
	if err != nil {
		return err
	}
	defer snap.Release()
	page, err := snap.URLDatasets(ctx, u, r.query.Get("cursor"))
	if err != nil {
		return err
	}
	d := &r.doc
	d.open('{')
	d.text("url", page.URL)
	d.id("url_id", page.URLID)
	r.describe(snap, &page.Answer)
	if page.StoppedBy == "deadline" {
		r.once()
	}
	d.array("datasets")
	for i := range page.Datasets {
		t := &page.Datasets[i]
		d.element()
		d.number("dataset_id", int64(t.ID))
		d.text("name", t.Name)
		d.number("rows", t.Rows)
		d.timeOrNull("first_ts", t.FirstTS, t.HasTS)
		d.timeOrNull("last_ts", t.LastTS, t.HasTS)
		d.close('}')
	}
	d.close(']')
	d.number("returned", int64(len(page.Datasets)))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.textOrNull("next_cursor", page.Cursor)
	r.next(page.Cursor, page.Version, "", "url")
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged, slog.String("domain_id", urlnorm.FormatID(page.DomainID)), slog.Int("datasets", len(page.Datasets)))
	return nil
}
