package api

import (
	"context"
	"log/slog"
	"slices"
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
)

// itemBytes is the length of an item in JSON without its URL and further fields, if nothing in the
// URL is escaped.
const itemBytes = len(`,{"url_id":"0123456789abcdef","url":"","ts":"2024-06-14T00:00:00.000Z"}`)

// yieldRows is how many rows are written between two chances for other requests.
const yieldRows = 256

// urlsParameters are the parameters of lists of URLs, sorted. A link to the next page keeps those
// in selecting.
var (
	urlsParameters = []string{
		"cursor", "explain", "fields", "filter", "format", "from", "host", "limit", "offset", "prefix", "to", "unique", "version",
	}
	selecting = []string{"fields", "filter", "format", "from", "host", "prefix", "to", "unique"}
	// searching are those for which many more rows may be read than the list has.
	searching = []string{"filter", "from", "to", "unique"}
)

// urlsQuery reads the parameters of a list of URLs, except the dataset. Limit is 0 if there is
// none.
func (r *request) urlsQuery() (q lookup.URLsQuery, limit int64, err error) {
	if q.Target, err = lookup.ParseTarget(r.PathValue("d")); err != nil {
		return q, 0, err
	}
	if q.Offset, err = r.number("offset", 0, 0); err != nil {
		return q, 0, err
	}
	if q.Cursor = r.query.Get("cursor"); q.Cursor != "" && r.query.Has("offset") {
		return q, 0, badParameter("offset", "cannot be combined with cursor; leave one out")
	}
	if limit, err = r.number("limit", 0, 1); err != nil {
		return q, 0, err
	}
	for _, name := range selecting {
		if name != "unique" && r.query.Has(name) && r.query.Get(name) == "" {
			return q, 0, badParameter(name, "is empty; give it a value, or leave it out")
		}
	}
	switch v := r.query.Get("unique"); v {
	case "1", "true":
		q.Unique = true
	case "", "0", "false":
	default:
		return q, 0, badParameter("unique", "is 1 or 0")
	}
	get := r.query.Get
	q.Selection, err = selectionOf(get("host"), get("prefix"), get("from"), get("to"), r.query["filter"])
	return q, limit, err
}

// format reads which format and which fields the client asks for.
func (r *request) format(unique bool) (f format.Format, fields format.Fields, err error) {
	if name := r.query.Get("format"); name == "" {
		f = format.Accepted(r.Header.Get("Accept"))
	} else if f, err = format.Parse(name); err != nil {
		return "", nil, badParameter("format", err.Error())
	}
	if f == format.Text && r.query.Has("fields") {
		return "", nil, badParameter("fields", "is not for text, which has a URL a line; use csv or ndjson")
	}
	if fields, err = format.ParseFields(r.query.Get("fields"), unique); err != nil {
		return "", nil, badParameter("fields", err.Error())
	}
	return f, fields, nil
}

func (h *handler) urls(r *request) error {
	q, limit, err := r.urlsQuery()
	if err != nil {
		return err
	}
	form, fields, err := r.format(q.Unique)
	if err != nil {
		return err
	}
	if form != format.Text {
		q.Columns = fields.Columns()
	}
	ctx, trace := r.explain()
	if trace != nil && form != format.JSON {
		return badParameter("explain", "is for format=json, whose answer says what was read")
	}
	snap, err := h.pin(ctx, r)
	if err != nil {
		return err
	}
	defer snap.Release()
	if q.Dataset, err = datasetID(snap, r.PathValue("id")); err != nil {
		return err
	}
	if err := r.needFilters(&q.Selection); err != nil {
		return err
	}
	if form != format.JSON {
		return h.streamURLs(ctx, r, snap, q, limit, form, fields)
	}
	if limit == 0 {
		limit = lookup.DefaultLimit
	}
	q.Limit = r.shorten(min(limit, lookup.MaxLimit))
	page, err := snap.URLs(ctx, q)
	if err != nil {
		return err
	}
	suffix, err := suffixOf(ctx, snap, q.Target)
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
	if err := r.need(2*int64(size) + q.Selection.Filters.Memory()); err != nil {
		return err
	}
	if page.Total > 0 {
		r.hot = lookup.ListName(page.Domain, q.Dataset)
	}
	// The page is found, and may be kept for others. So its turn is waited for beyond the deadline,
	// and whether the client waits or not.
	late := context.WithoutCancel(r.Context())
	if err := r.turn.Take(late); err != nil {
		return err
	}
	d := &r.doc
	d.buf = slices.Grow(d.buf, size)
	d.open('{')
	r.describe(snap, &page.Answer)
	if page.StoppedBy == "deadline" {
		r.once()
	}
	if page.Host != "" {
		d.text("host", page.Host)
		d.text("totals_of", "domain")
	}
	r.suffix(suffix, page.Version)
	d.number("dataset_id", int64(page.DatasetID))
	r.selection(&q)
	counted := page.NotCounted == ""
	d.numberOrNull("total_est", page.Total, counted)
	if !counted {
		d.text("total_unknown", page.NotCounted)
	}
	d.numberOrNull("offset", page.Offset, counted)
	d.array("items")
	for i := range n {
		if i%yieldRows == yieldRows-1 {
			if err := r.turn.Yield(late); err != nil { // a lookup takes less than these rows
				return err
			}
		}
		d.next()
		d.buf = format.Append(d.buf, form, fields, page, i)
	}
	d.close(']')
	d.number("returned", int64(n))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.numberOrNull("next_offset", page.Offset+int64(n), counted && page.Cursor != "")
	d.textOrNull("next_cursor", page.Cursor)
	r.next(page.Cursor, page.Version, strconv.Itoa(q.Limit), selecting...)
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged,
		slog.String("domain_id", urlnorm.FormatID(page.DomainID)), slog.Uint64("dataset_id", uint64(q.Dataset)), slog.Int("rows", n),
		slog.Int64("offset", page.Offset), slog.Int64("total", page.Total))
	return nil
}

// needFilters waits until the gate has room for the compiled filters of a list, besides what its
// rows are taken to need.
func (r *request) needFilters(s *lookup.Selection) error {
	if n := s.Filters.Memory(); n > 0 && r.ticket != nil {
		return r.need(r.ticket.bytes + n)
	}
	return nil
}

// selection writes what the list has of the domain. It writes nothing if that is all rows.
func (r *request) selection(q *lookup.URLsQuery) {
	s := &q.Selection
	if s.All() && !q.Unique {
		return
	}
	timeOrNull := func(name string, ms *int64) {
		if ms == nil {
			r.doc.null(name)
			return
		}
		r.doc.timeOrNull(name, *ms, true)
	}
	d := &r.doc
	d.object("selection")
	d.textOrNull("host", s.Host)
	d.textOrNull("prefix", s.Prefix)
	timeOrNull("from", s.From)
	timeOrNull("to", s.To)
	d.array("filter")
	for _, text := range s.Filters.Texts() {
		d.next()
		d.buf = codec.AppendJSONString(d.buf, text)
	}
	d.close(']')
	d.boolean("unique", q.Unique)
	d.close('}')
}

// streamURLs writes the rows of a list, at most limit, unless that is 0.
func (h *handler) streamURLs(
	ctx context.Context, r *request, snap *lookup.Snapshot, q lookup.URLsQuery, limit int64, form format.Format, fields format.Fields,
) error {
	list, err := snap.List(ctx, q)
	if err != nil {
		return err
	}
	rows := int64(0)
	size := func() int {
		if limit == 0 {
			return lookup.MaxLimit
		}
		return int(min(limit-rows, lookup.MaxLimit))
	}
	page, err := list.Next(ctx, size())
	if err != nil {
		return err
	}
	if err := r.holds(page.Bytes()); err != nil {
		return err
	}
	domainID := page.DomainID
	r.ofHost(page.TakedownEpoch, snap)
	r.header.Set("Urlake-Version", page.Version)
	if page.NotCounted == "" {
		r.header.Set("Urlake-Total", strconv.FormatInt(page.Total, 10))
	}
	out, err := h.begin(r, form.ContentType())
	if err != nil {
		r.header.Del("Urlake-Version")
		r.header.Del("Urlake-Total")
		return err
	}
	encoder, buf := format.NewStream(form, fields)
	for err == nil && r.Method != "HEAD" {
		if err = r.turn.Take(r.Context()); err != nil {
			break
		}
		for i := 0; i < page.Len() && err == nil; i++ {
			if i%yieldRows == yieldRows-1 {
				if err = r.turn.Yield(r.Context()); err != nil {
					break
				}
			}
			if buf, err = encoder.Append(buf, page, i); err == nil && len(buf) >= streamPiece {
				err = out.writeAll(buf)
				buf = buf[:0]
			}
		}
		r.turn.Give()
		rows += int64(page.Len())
		out.cursor = page.Cursor
		if err != nil || page.Cursor == "" || limit > 0 && rows == limit {
			break
		}
		if page, err = list.Next(ctx, size()); err == nil {
			err = r.holds(page.Bytes())
		}
	}
	if err == nil {
		if buf, err = encoder.End(buf); err == nil {
			err = out.end(buf, rows)
		}
	}
	r.logged = append(r.logged, slog.String("domain_id", urlnorm.FormatID(domainID)), slog.Uint64("dataset_id", uint64(q.Dataset)),
		slog.String("format", string(form)), slog.Int64("rows", rows))
	return err
}

// wantedForm is the format that the client asks for, as far as that is known without looking at the
// other parameters.
func (r *request) wantedForm() format.Format {
	if name := r.query.Get("format"); name != "" {
		return format.Format(name)
	}
	return format.Accepted(r.Header.Get("Accept"))
}

// streamsURLs reports whether the answer will be a stream.
func streamsURLs(r *request) bool { return r.wantedForm() != format.JSON }

// urlsRows is the weight of a list of URLs: of a page, or of what a stream has in memory.
func urlsRows(r *request) int64 {
	if streamsURLs(r) {
		return rows(lookup.MaxLimit, lookup.MaxLimit)(r)
	}
	return heavyWith(rows(lookup.DefaultLimit, lookup.MaxLimit), searching...)(r)
}
