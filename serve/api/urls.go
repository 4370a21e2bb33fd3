package api

import (
	"log/slog"
	"runtime"
	"slices"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/lookup"
)

// itemBytes is the length of an item in JSON without its URL, if nothing in the URL is escaped.
const itemBytes = len(`,{"url_id":"0123456789abcdef","url":"","ts":"2024-06-14T00:00:00.000Z"}`)

// yieldRows is how many rows are written between two chances for other requests.
const yieldRows = 256

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
	q.Limit = r.shorten(min(limit, lookup.MaxLimit))
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
	n := page.Len()
	size := 0
	for i := range n {
		size += len(page.URL(i)) + itemBytes
	}
	// The rows themselves take about as much as the answer that has them.
	if err := r.need(2 * int64(size)); err != nil {
		return err
	}
	d := &r.doc
	d.buf = slices.Grow(d.buf, size)
	d.open('{')
	r.describe(snap, &page.Answer)
	if page.StoppedBy == "deadline" {
		r.once()
	}
	d.number("dataset_id", int64(page.DatasetID))
	d.number("total_est", page.Total)
	d.number("offset", page.Offset)
	d.array("items")
	for i := range n {
		if i%yieldRows == yieldRows-1 {
			runtime.Gosched() // a lookup that waits for a processor takes less than these rows
		}
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
