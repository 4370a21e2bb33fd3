package api

import (
	"bytes"
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/ui"
)

// pageParameters are the parameters of the web pages at /, sorted.
var pageParameters = []string{
	"cursor", "dataset", "domain", "filter", "from", "host", "prefix", "to", "unique", "url", "version",
}

// pages serves the web pages: the start page, the datasets of domain=, with dataset= the URLs of
// the domain in that dataset, of dataset= alone the dataset, and who holds url=. An error is a page
// with the status of its problem.
func (h *handler) pages(r *request) error {
	page := &ui.Page{Query: r.query.Get("domain")}
	return h.pageOf(r, page, func(snap *lookup.Snapshot) error {
		dataset := r.query.Get("dataset")
		switch {
		case r.query.Get("url") != "":
			return fillExact(r, snap, page)
		case page.Query == "" && dataset == "":
			return fillStart(r, snap, page)
		case page.Query == "":
			return fillDataset(r, snap, page)
		}
		target, err := lookup.ParseTarget(page.Query)
		if err != nil {
			return err
		}
		if dataset == "" {
			return fillDomain(r, snap, target, page)
		}
		return fillURLs(r, snap, target, page)
	})
}

// pageOf answers with page, which fill completes from the version that the request is about.
func (h *handler) pageOf(r *request, page *ui.Page, fill func(*lookup.Snapshot) error) error {
	err := r.late(func() error {
		snap, err := h.pin(r.Context(), r)
		if err != nil {
			return err
		}
		defer snap.Release()
		page.Version, page.Named = snap.Version().ID, r.named(snap)
		return fill(snap)
	}())
	if err != nil {
		r.once()
		p := r.fail(err)
		page.Fault, page.Detail = p.title, p.detail
	}
	return r.page(page)
}

// page answers with a web page. Browsers load nothing else for it and run no scripts.
func (r *request) page(content interface{ Render() ([]byte, error) }) error {
	html, err := content.Render()
	if err != nil {
		return err
	}
	r.header.Set("Content-Type", "text/html; charset=utf-8")
	r.header.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	r.header.Set("Referrer-Policy", "no-referrer")
	// The page repeats what was asked for, which can be any bytes.
	r.doc.buf = append(r.doc.buf, bytes.ToValidUTF8(html, []byte("\uFFFD"))...)
	return nil
}

func fillStart(r *request, snap *lookup.Snapshot, page *ui.Page) error {
	answer, err := snap.Datasets(r.Context(), r.query.Get("cursor"))
	if err != nil {
		return err
	}
	r.of(answer.TakedownEpoch, snap)
	s := &ui.Start{
		Before: answer.Before, Total: answer.Total, Rows: answer.Rows, Browse: browsePath("version", page.Named),
	}
	for _, d := range answer.Datasets {
		s.Datasets = append(s.Datasets, ui.Dataset{
			ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence,
			Rows: d.Rows, Batches: d.Batches, Link: pagePath("dataset", idText(d.ID), "version", page.Named),
		})
	}
	page.Start = s
	if answer.Cursor != "" {
		page.Next = pagePath("cursor", answer.Cursor, "version", answer.Version)
	}
	return nil
}

// pagePath returns the path of a web page with the given parameters, alternately name and value.
// Parameters with an empty value are left out.
func pagePath(parameters ...string) string { return withQuery("/", parameters...) }

// browsePath is pagePath for the page of domains by name.
func browsePath(parameters ...string) string { return withQuery("/domains", parameters...) }

// withQuery adds parameters to a path. The start page keeps its question mark without any.
func withQuery(path string, parameters ...string) string {
	v := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			v.Add(parameters[i], parameters[i+1])
		}
	}
	if len(v) == 0 && path != "/" {
		return path
	}
	return path + "?" + v.Encode()
}

func idText(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// named is the id of a page's version if the request names one: links on the page then name it too.
// Other links lead to what is current when they are followed.
func (r *request) named(snap *lookup.Snapshot) string {
	if r.query.Get("version") == "" {
		return ""
	}
	return snap.Version().ID
}

// sumsOf are totals as pages show them.
func sumsOf(t *segment.Totals) ui.Sums {
	return ui.Sums{
		Rows: t.Rows, Size: t.Size, HasSize: t.HasSize, SizeOverflows: t.SizeOverflows(),
		First: ui.Day(t.FirstTS, t.HasTS), Last: ui.Day(t.LastTS, t.HasTS),
	}
}

func fillDomain(r *request, snap *lookup.Snapshot, target lookup.Target, page *ui.Page) error {
	answer, err := snap.Domain(r.Context(), target, r.query.Get("cursor"))
	if err != nil {
		return err
	}
	r.ofHost(answer.TakedownEpoch, snap)
	version := page.Named
	d := &ui.Domain{Name: answer.Domain, Total: answer.Total}
	for _, name := range answer.OtherDomains {
		d.Others = append(d.Others, ui.Link{Text: name, Path: pagePath("domain", name, "version", version)})
	}
	if target.Host != answer.Domain {
		d.Host, d.Whole = target.Host, pagePath("domain", answer.Domain, "version", version)
	}
	if u, err := lookup.ParseURL(page.Query); err == nil && strings.Contains(page.Query, "/") {
		d.Exact = ui.Link{Text: u.String(), Path: pagePath("url", u.String(), "version", version)}
	}
	if d.Suffix, err = r.suffixPart(snap, target, version); err != nil {
		return err
	}
	if answer.Total == 0 && d.Suffix == nil {
		d.Browse = browsePath("prefix", answer.Domain[:min(len(answer.Domain), similarPrefix)], "version", version)
	}
	for i := range answer.Datasets {
		t := &answer.Datasets[i]
		d.Datasets = append(d.Datasets, ui.Holding{
			Name: t.Name, Sums: sumsOf(&t.Totals),
			Link: pagePath("domain", answer.Domain, "dataset", idText(t.ID), "host", d.Host, "version", version),
		})
	}
	page.Domain = d
	d.Tree = withQuery("/tree", "domain", cmp.Or(d.Host, answer.Domain), "version", version)
	page.JSON = withQuery("/v1/domain/"+url.PathEscape(cmp.Or(d.Host, answer.Domain)), "version", version)
	if answer.Cursor != "" {
		page.Next = pagePath("domain", page.Query, "cursor", answer.Cursor, "version", answer.Version)
	}
	return nil
}

// suffixPart is what a page tells of a public suffix, nil for other targets.
func (r *request) suffixPart(snap *lookup.Snapshot, target lookup.Target, version string) (*ui.Suffix, error) {
	s, err := suffixOf(r.Context(), snap, target)
	if s == nil || err != nil {
		return nil, err
	}
	if !s.counted {
		r.once() // they are being counted
	}
	return &ui.Suffix{Below: s.below, Counted: s.counted, List: browsePath("suffix", "."+s.host, "version", version)}, nil
}

// similarPrefix is how many bytes of a name that no dataset has begin the names that its page leads
// to.
const similarPrefix = 4

// fillExact looks up who holds exactly one URL.
func fillExact(r *request, snap *lookup.Snapshot, page *ui.Page) error {
	u, err := lookup.ParseURL(r.query.Get("url"))
	if err != nil {
		return err
	}
	cursor := r.query.Get("cursor")
	answer, err := snap.URLDatasets(r.Context(), u, cursor)
	if err != nil {
		return err
	}
	r.ofHost(answer.TakedownEpoch, snap)
	if answer.StoppedBy == "deadline" {
		r.once()
	}
	e := &ui.Exact{
		URL: answer.URL, More: answer.Cursor != "", Later: cursor != "",
		Domain: ui.Link{Text: answer.Domain, Path: pagePath("domain", answer.Domain, "version", page.Named)},
	}
	for i := range answer.Datasets {
		t := &answer.Datasets[i]
		e.Datasets = append(e.Datasets, ui.Holding{
			Name: t.Name,
			Sums: ui.Sums{Rows: t.Rows, First: ui.Day(t.FirstTS, t.HasTS), Last: ui.Day(t.LastTS, t.HasTS)},
			Link: pagePath("domain", answer.Domain, "dataset", idText(t.ID), "host", u.Host, "prefix", u.PathQuery, "version", page.Named),
		})
	}
	page.Query = answer.URL
	page.Exact, page.JSON = e, withQuery("/v1/url", "url", answer.URL, "version", page.Named)
	if answer.Cursor != "" {
		page.Next = pagePath("url", answer.URL, "cursor", answer.Cursor, "version", answer.Version)
	}
	return nil
}
