package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/serve/lookup"
)

// diff answers which domains of which datasets have other totals in one version than in another.
func (h *handler) diff(r *request) error {
	q := lookup.DiffQuery{Cursor: r.query.Get("cursor")}
	limit, err := r.number("limit", lookup.DefaultLimit, 1)
	if err != nil {
		return err
	}
	q.Limit = r.shorten(min(limit, lookup.MaxLimit))
	ctx, trace := r.explain()
	before, after, err := h.pinPair(ctx, r)
	if err != nil {
		return err
	}
	defer before.Release()
	defer after.Release()
	if r.query.Has("dataset") {
		q.OneDataset = true
		if q.Dataset, err = datasetID(after, r.query.Get("dataset")); errors.Is(err, lookup.ErrUnknownDataset) {
			q.Dataset, err = datasetID(before, r.query.Get("dataset")) // it may be gone since
		}
		if err != nil {
			return err
		}
	}
	page, err := after.Diff(ctx, before, q)
	if err != nil {
		return err
	}
	if limit > lookup.MaxLimit && page.Cursor != "" && page.StoppedBy == "" {
		page.StoppedBy = "limit"
	}
	d := &r.doc
	r.of(page.TakedownEpoch, before, after)
	if page.StoppedBy == "deadline" {
		r.once()
	}
	d.open('{')
	d.text("from", page.Before)
	d.text("to", page.After)
	d.number("takedown_epoch", int64(page.TakedownEpoch))
	d.array("changes")
	for i := range page.Changes {
		c := &page.Changes[i]
		d.element()
		d.text("change", c.Kind())
		d.text("domain", c.Domain)
		d.id("domain_id", c.DomainID)
		d.number("dataset_id", int64(c.Dataset))
		d.text("name", c.Name)
		r.totals("before", &c.Before)
		r.totals("after", &c.After)
		d.close('}')
	}
	d.close(']')
	d.number("returned", int64(len(page.Changes)))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.textOrNull("next_cursor", page.Cursor)
	if page.Cursor == "" {
		d.null("next")
	} else {
		v := url.Values{"cursor": {page.Cursor}, "from": {page.Before}, "to": {page.After}, "limit": {strconv.Itoa(q.Limit)}}
		if q.OneDataset {
			v.Set("dataset", r.query.Get("dataset"))
		}
		r.nextLink(r.URL.EscapedPath() + "?" + v.Encode())
	}
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged, slog.Int("changes", len(page.Changes)))
	return nil
}

// pinPair acquires the versions to compare: from= and to=, by default the current version and the
// one that it followed. A cursor names the later one.
func (h *handler) pinPair(ctx context.Context, r *request) (before, after *lookup.Snapshot, err error) {
	to, err := r.version("to")
	if err != nil {
		return nil, nil, err
	}
	from, err := r.version("from")
	if err != nil {
		return nil, nil, err
	}
	if c := r.query.Get("cursor"); c != "" && to == "" {
		if to, err = lookup.CursorVersion(c); err != nil {
			return nil, nil, err
		}
	}
	if after, err = h.acquire(ctx, r, to); err != nil {
		return nil, nil, err
	}
	if from == "" {
		from = after.Version().Parent
	}
	if from == "" {
		err = badParameter("from", fmt.Sprintf("is missing, and version %s is the first", after.Version().ID))
	} else {
		before, err = h.acquire(ctx, r, from)
	}
	if err != nil {
		after.Release()
		return nil, nil, err
	}
	return before, after, nil
}

// totals writes the totals of one version, null if the version has no rows.
func (r *request) totals(name string, t *segment.Totals) {
	d := &r.doc
	if t.Rows == 0 {
		d.null(name)
		return
	}
	d.object(name)
	r.sums(t)
	d.close('}')
}

// sums writes the members of totals.
func (r *request) sums(t *segment.Totals) {
	d := &r.doc
	d.number("url_count_est", t.Rows)
	d.numberOrNull("size", t.Size, t.HasSize && !t.SizeOverflows())
	if t.SizeOverflows() {
		d.boolean("size_overflow", true)
	}
	d.timeOrNull("first_ts", t.FirstTS, t.HasTS)
	d.timeOrNull("last_ts", t.LastTS, t.HasTS)
}
