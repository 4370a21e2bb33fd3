package api

import (
	"errors"
	"log/slog"
	"net/url"

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
	below, counted := int64(0), false
	suffix := snap.IsPublicSuffix(target)
	if suffix {
		below, err = snap.DomainsBelow(ctx, target.Host)
		if counted = err == nil; err != nil && !errors.Is(err, lookup.ErrComputing) {
			return err
		}
	}
	d := &r.doc
	d.open('{')
	r.describe(snap, &page.Answer)
	if page.Total > 0 {
		r.hot = page.Domain
	}
	if target.Host != page.Answer.Domain {
		d.text("host", target.Host)
		d.text("totals_of", "domain")
	}
	if suffix && !counted {
		r.once() // they are being counted
	}
	if suffix {
		d.boolean("public_suffix", true)
		d.numberOrNull("domains_below", below, counted)
		v := url.Values{"suffix": {"." + target.Host}, "version": {page.Version}}
		d.text("domains_below_list", "/v1/domains?"+v.Encode())
	}
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
