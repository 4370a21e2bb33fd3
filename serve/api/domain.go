package api

import (
	"context"
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
	suffix, err := suffixOf(ctx, snap, target)
	if err != nil {
		return err
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
	r.suffix(suffix, page.Version)
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

// publicSuffix is what is said of a host below which names are domains of their own.
type publicSuffix struct {
	host    string
	below   int64 // domains, if counted
	counted bool
}

// suffixOf is nil unless the target is a public suffix.
func suffixOf(ctx context.Context, snap *lookup.Snapshot, target lookup.Target) (*publicSuffix, error) {
	if !snap.IsPublicSuffix(target) {
		return nil, nil
	}
	below, err := snap.DomainsBelow(ctx, target.Host)
	if err != nil && !errors.Is(err, lookup.ErrComputing) {
		return nil, err
	}
	return &publicSuffix{target.Host, below, err == nil}, nil
}

// suffix writes the members that tell of a public suffix. It writes nothing if s is nil.
func (r *request) suffix(s *publicSuffix, version string) {
	if s == nil {
		return
	}
	if !s.counted {
		r.once() // they are being counted
	}
	d := &r.doc
	d.boolean("public_suffix", true)
	d.numberOrNull("domains_below", s.below, s.counted)
	v := url.Values{"suffix": {"." + s.host}, "version": {version}}
	d.text("domains_below_list", "/v1/domains?"+v.Encode())
}
