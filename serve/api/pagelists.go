package api

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/urlake/urlake/serve/format"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/ui"
)

// selectionForm reads the form of the page of URLs. Its fields are sent empty, which stands for
// all.
func (r *request) selectionForm(page *ui.Page) *ui.Selection {
	get := func(name string) string { return strings.TrimSpace(r.query.Get(name)) }
	s := &ui.Selection{
		Domain: page.Query, Dataset: r.query.Get("dataset"), Named: page.Named,
		Host: get("host"), Prefix: get("prefix"), From: get("from"), To: get("to"),
		Unique: get("unique") == "1",
	}
	if s.Prefix != "" && s.Prefix[0] != '/' {
		s.Prefix = "/" + s.Prefix
	}
	for _, text := range r.query["filter"] {
		if strings.TrimSpace(text) != "" {
			s.Filters = append(s.Filters, text)
		}
	}
	return s
}

// parameters are those of a path that selects the same, alternately name and value.
func parameters(s *ui.Selection) []string {
	list := []string{"host", s.Host, "prefix", s.Prefix, "from", s.From, "to", s.To}
	for _, f := range s.Filters {
		list = append(list, "filter", f)
	}
	if s.Unique {
		list = append(list, "unique", "1")
	}
	return list
}

// downloads are the forms in which a list can be saved, and the ends of the names of the files.
var downloads = []struct {
	form      format.Format
	name, end string
}{
	{format.CSV, "CSV", "csv"}, {format.NDJSON, "JSON Lines", "jsonl"}, {format.Text, "text", "txt"}, {format.Parquet, "Parquet", "parquet"},
}

// fillURLs shows a page of the selected URLs of a domain in a dataset.
func fillURLs(r *request, snap *lookup.Snapshot, target lookup.Target, page *ui.Page) error {
	form := r.selectionForm(page)
	id, err := datasetID(snap, form.Dataset)
	if err != nil {
		return err
	}
	page.Selection = form
	q := lookup.URLsQuery{
		Target: target, Dataset: id, Unique: form.Unique, Limit: lookup.DefaultLimit, Cursor: r.query.Get("cursor"),
	}
	if q.Selection, err = selectionOf(form.Host, form.Prefix, form.From, form.To, form.Filters); err != nil {
		return err
	}
	if err := r.needFilters(&q.Selection); err != nil {
		return err
	}
	answer, err := snap.URLs(r.Context(), q)
	if err != nil {
		if errors.Is(err, lookup.ErrUnknownDataset) {
			page.Selection = nil
		}
		return err
	}
	r.ofHost(answer.TakedownEpoch, snap)
	if answer.StoppedBy == "deadline" {
		r.once()
	}
	form.Domain = answer.Domain
	form.Clear = pagePath("domain", form.Domain, "dataset", form.Dataset, "version", form.Named)
	dataset, _ := snap.Dataset(id) // URLs has checked that it exists
	selected := parameters(form)
	list := "/v1/domain/" + url.PathEscape(answer.Domain) + "/datasets/" + url.PathEscape(form.Dataset) + "/urls"
	u := &ui.URLs{
		Name: answer.Domain, Dataset: dataset.Name, Total: answer.Total, Offset: answer.Offset, Counted: answer.NotCounted == "",
		Unique: form.Unique, Selected: form.Any(),
		Up: pagePath("domain", answer.Domain, "version", page.Named), In: pagePath("dataset", idText(id), "version", page.Named),
		Tree: withQuery("/tree", "domain", answer.Domain, "dataset", idText(id), "version", page.Named),
	}
	if u.Suffix, err = r.suffixPart(snap, target, page.Named); err != nil {
		return err
	}
	for _, d := range downloads {
		u.Downloads = append(u.Downloads, ui.Download{
			Form: d.name, File: answer.Domain + "-" + dataset.Name + "." + d.end,
			// All of one version: what the page shows.
			Path: withQuery(list, append([]string{"format", string(d.form), "version", answer.Version}, selected...)...),
		})
	}
	for i := range answer.Len() {
		text := string(answer.URL(i))
		ms, ok := answer.TS(i)
		item := ui.Item{URL: text, Time: ui.Time(ms, ok), Link: pagePath("url", text, "version", page.Named)}
		if form.Unique {
			item.Rows, _ = answer.Count(i)
		}
		u.Items = append(u.Items, item)
	}
	page.URLs, page.JSON = u, withQuery(list, append([]string{"version", page.Named}, selected...)...)
	if answer.Cursor != "" {
		page.Next = pagePath(append([]string{
			"domain", page.Query, "dataset", form.Dataset, "cursor", answer.Cursor, "version", answer.Version,
		}, selected...)...)
	}
	return nil
}

// selectionOf reads a selection.
func selectionOf(host, prefix, from, to string, filters []string) (lookup.Selection, error) {
	s, err := lookup.ParseSelection(host, prefix, from, to)
	if err != nil {
		return s, err
	}
	for _, text := range filters {
		if err := s.AddFilter(text); err != nil {
			return s, err
		}
	}
	return s, nil
}

// fillDataset shows one dataset. Its largest domains are left out while they are being looked for.
func fillDataset(r *request, snap *lookup.Snapshot, page *ui.Page) error {
	text := r.query.Get("dataset")
	id, err := datasetID(snap, text)
	if err != nil {
		return err
	}
	s, ok := snap.Dataset(id)
	if !ok {
		return fmt.Errorf("%w: %q", lookup.ErrUnknownDataset, text)
	}
	d := &ui.DatasetPage{
		ID: s.ID, Name: s.Name, Title: s.Title, Source: s.Source, Licence: s.Licence, Batches: s.Batches, Parts: s.Parts, Bytes: s.Bytes,
		Sums: ui.Sums{Rows: s.Rows}, Browse: browsePath("dataset", idText(id), "version", page.Named),
	}
	top, err := snap.TopOf(r.Context(), id)
	switch {
	case errors.Is(err, lookup.ErrComputing):
		r.once()
	case err != nil:
		return err
	default:
		r.of(top.TakedownEpoch, snap)
		link := func(name string) string {
			return pagePath("domain", name, "dataset", idText(id), "version", page.Named)
		}
		d.Known, d.Domains, d.Sums = true, top.Domains, sumsOf(&top.Totals)
		d.ByRows, d.BySize = domainSumsOf(top.ByRows, link), domainSumsOf(top.BySize, link)
	}
	page.Dataset, page.JSON = d, withQuery("/v1/datasets/"+url.PathEscape(text), "version", page.Named)
	return nil
}

func domainSumsOf(list []lookup.DomainSum, link func(name string) string) (all []ui.DomainSum) {
	for i := range list {
		s := &list[i]
		all = append(all, ui.DomainSum{Name: s.Domain, Datasets: s.Datasets, Sums: sumsOf(&s.Totals), Link: link(s.Domain)})
	}
	return all
}

// domainPages serves the page of domains: those that begin with prefix= and end with suffix=, of
// dataset= or of all, in the order of lookup.Snapshot.Domains. Both are sent empty by the form, and
// may be in capital letters.
func (h *handler) domainPages(r *request) error {
	d := &ui.Domains{Dataset: r.query.Get("dataset")}
	d.Prefix, d.Suffix = strings.TrimSpace(r.query.Get("prefix")), strings.TrimSpace(r.query.Get("suffix"))
	page := &ui.Page{}
	return h.pageOf(r, page, func(snap *lookup.Snapshot) (err error) {
		q := lookup.DomainsQuery{
			Prefix: strings.ToLower(d.Prefix), Suffix: strings.ToLower(d.Suffix), Limit: lookup.DefaultLimit, Cursor: r.query.Get("cursor"),
		}
		if err := lookup.ValidNamePart(q.Prefix); err != nil {
			return badParameter("prefix", err.Error())
		}
		if err := lookup.ValidNamePart(q.Suffix); err != nil {
			return badParameter("suffix", err.Error())
		}
		if d.Dataset != "" {
			q.OneDataset = true
			if q.Dataset, err = datasetID(snap, d.Dataset); err != nil {
				return err
			}
		}
		answer, err := snap.Domains(r.Context(), q)
		if err != nil {
			return err
		}
		r.due = answer.Due
		r.of(answer.TakedownEpoch, snap)
		if answer.StoppedBy == "deadline" {
			r.once()
		}
		if s, ok := snap.Dataset(q.Dataset); ok && q.OneDataset {
			d.In = ui.Link{Text: s.Name, Path: pagePath("dataset", idText(s.ID), "version", page.Named)}
		}
		d.More = answer.Cursor != ""
		d.Domains = domainSumsOf(answer.Domains, func(name string) string {
			return pagePath("domain", name, "dataset", d.Dataset, "version", page.Named)
		})
		page.Domains = d
		of := []string{"prefix", q.Prefix, "suffix", q.Suffix, "dataset", d.Dataset}
		page.JSON = withQuery("/v1/domains", append(of, "version", page.Named)...)
		if answer.Cursor != "" {
			page.Next = browsePath(append(of, "cursor", answer.Cursor, "version", answer.Version)...)
		}
		return nil
	})
}
