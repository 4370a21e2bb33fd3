package api

import (
	"log/slog"
	"net/url"
	"strconv"

	"github.com/urlake/urlake/serve/lookup"
)

// domains lists the domains of a version.
func (h *handler) domains(r *request) error {
	q := lookup.DomainsQuery{Prefix: r.query.Get("prefix"), Suffix: r.query.Get("suffix"), Cursor: r.query.Get("cursor")}
	for _, name := range []string{"prefix", "suffix"} {
		if err := lookup.ValidNamePart(r.query.Get(name)); err != nil {
			return badParameter(name, err.Error())
		}
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
	if r.query.Has("dataset") {
		q.OneDataset = true
		if q.Dataset, err = datasetID(snap, r.query.Get("dataset")); err != nil {
			return err
		}
	}
	page, err := snap.Domains(ctx, q)
	if err != nil {
		return err
	}
	r.due = page.Due
	if limit > lookup.MaxLimit && page.Cursor != "" && page.StoppedBy == "" {
		page.StoppedBy = "limit"
	}
	d := &r.doc
	r.of(page.TakedownEpoch, snap)
	if page.StoppedBy == "deadline" {
		r.once()
	}
	d.open('{')
	d.text("version", page.Version)
	d.number("takedown_epoch", int64(page.TakedownEpoch))
	r.domainSums("domains", page.Domains, true)
	d.number("returned", int64(len(page.Domains)))
	d.boolean("complete", page.Cursor == "")
	d.textOrNull("stopped_by", page.StoppedBy)
	d.textOrNull("next_cursor", page.Cursor)
	if page.Cursor == "" {
		d.null("next")
	} else {
		v := url.Values{"cursor": {page.Cursor}, "version": {page.Version}, "limit": {strconv.Itoa(q.Limit)}}
		for _, name := range []string{"prefix", "suffix", "dataset"} {
			if r.query.Has(name) {
				v.Set(name, r.query.Get(name))
			}
		}
		r.nextLink(r.URL.EscapedPath() + "?" + v.Encode())
	}
	r.trace(trace)
	d.close('}')
	r.logged = append(r.logged, slog.Int("domains", len(page.Domains)))
	return nil
}

// domainSums writes domains with their totals, and with their numbers of datasets if counted is
// set.
func (r *request) domainSums(name string, list []lookup.DomainSum, counted bool) {
	d := &r.doc
	d.array(name)
	for i := range list {
		s := &list[i]
		d.element()
		d.text("domain", s.Domain)
		d.id("domain_id", s.DomainID)
		if counted {
			d.number("total_datasets", int64(s.Datasets))
		}
		r.sums(&s.Totals)
		d.close('}')
	}
	d.close(']')
}

// dataset describes one dataset, with its largest domains.
func (h *handler) dataset(r *request) error {
	snap, err := h.pin(r.Context(), r)
	if err != nil {
		return err
	}
	defer snap.Release()
	id, err := datasetID(snap, r.PathValue("id"))
	if err != nil {
		return err
	}
	top, err := snap.TopOf(r.Context(), id)
	if err != nil {
		return err
	}
	s, _ := snap.Dataset(id) // TopOf has found it
	d := &r.doc
	r.of(top.TakedownEpoch, snap)
	d.open('{')
	d.text("version", snap.Version().ID)
	d.number("takedown_epoch", int64(top.TakedownEpoch))
	d.number("dataset_id", int64(s.ID))
	d.text("name", s.Name)
	d.textOrNull("title", s.Title)
	d.textOrNull("source", s.Source)
	d.textOrNull("licence", s.Licence)
	d.number("batches", int64(s.Batches))
	d.number("parts", s.Parts)
	d.number("bytes", s.Bytes)
	d.number("total_domains", top.Domains)
	r.sums(&top.Totals)
	r.domainSums("top_by_rows", top.ByRows, false)
	r.domainSums("top_by_size", top.BySize, false)
	d.close('}')
	r.logged = append(r.logged, slog.Uint64("dataset_id", uint64(id)), slog.Int64("domains", top.Domains))
	return nil
}
