package api

import (
	"log/slog"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

func (h *handler) urls(r *request) error {
	target, err := lookup.ParseTarget(r.PathValue("d"))
	if err != nil {
		return err
	}
	q := lookup.URLsQuery{Target: target, Cursor: r.query.Get("cursor")}
	if q.Offset, err = r.number("offset", 0, 0); err != nil {
		return err
	}
	if q.Cursor != "" && r.query.Has("offset") {
		return badParameter("offset", "cannot be combined with cursor; leave one out")
	}
	limit, err := r.number("limit", lookup.DefaultLimit, 1)
	if err != nil {
		return err
	}
	q.Limit = int(min(limit, lookup.MaxLimit))
	ctx, trace := r.explain()
	snap, err := h.pin(ctx, r)
	if err != nil {
		return err
	}
	defer snap.Release()
	if q.Dataset, err = datasetID(snap, r.PathValue("id")); err != nil {
		return err
	}
	page, err := snap.URLs(ctx, q)
	if err != nil {
		return err
	}
	if limit > lookup.MaxLimit && page.Cursor != "" && page.StoppedBy == "" {
		page.StoppedBy = "limit"
	}
	d := &r.doc
	d.open('{')
	r.describe(snap, &page.Answer)
	d.number("dataset_id", int64(page.DatasetID))
	d.number("total_est", page.Total)
	d.number("offset", page.Offset)
	d.array("items")
	n := page.Len()
	for i := range n {
		d.element()
		d.id("url_id", page.ID(i))
		d.key("url")
		d.buf = codec.AppendJSONString(d.buf, page.URL(i))
		d.comma = true
		ms, ok := page.TS(i)
		d.timeOrNull("ts", ms, ok)
		d.close('}')
	}
	d.close(']')
	d.number("returned", int64(n))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.numberOrNull("next_offset", page.Offset+int64(n), page.Cursor != "")
	d.textOrNull("next_cursor", page.Cursor)
	r.next(page.Cursor, page.Version, strconv.Itoa(q.Limit))
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged,
		slog.String("domain_id", urlnorm.FormatID(page.DomainID)), slog.Uint64("dataset_id", uint64(q.Dataset)), slog.Int("rows", n),
		slog.Int64("offset", page.Offset), slog.Int64("total", page.Total))
	return nil
}
