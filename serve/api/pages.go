package api

import (
	"bytes"
	"net/url"
	"strconv"

	"github.com/urlake/urlake/serve/lookup"
	"github.com/urlake/urlake/serve/ui"
)

// pages serves the web pages: the start page, the datasets of domain=, and with dataset= the URLs
// of the domain in that dataset. An error is a page with the status of its problem.
func (h *handler) pages(r *request) error {
	page := &ui.Page{Query: r.query.Get("domain")}
	err := r.late(h.fill(r, page))
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

// fill looks up what page shows.
func (h *handler) fill(r *request, page *ui.Page) error {
	var target lookup.Target
	if page.Query != "" {
		var err error
		if target, err = lookup.ParseTarget(page.Query); err != nil {
			return err
		}
	}
	snap, err := h.pin(r.Context(), r)
	if err != nil {
		return err
	}
	defer snap.Release()
	page.Version = snap.Version().ID
	switch {
	case page.Query == "":
		return fillStart(r, snap, page)
	case r.query.Get("dataset") == "":
		return fillDomain(r, snap, target, page)
	default:
		return fillURLs(r, snap, target, page)
	}
}

func fillStart(r *request, snap *lookup.Snapshot, page *ui.Page) error {
	answer, err := snap.Datasets(r.Context(), r.query.Get("cursor"))
	if err != nil {
		return err
	}
	r.of(answer.TakedownEpoch, snap)
	s := &ui.Start{Before: answer.Before, Total: answer.Total, Rows: answer.Rows}
	for _, d := range answer.Datasets {
		s.Datasets = append(s.Datasets, ui.Dataset{
			ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence,
			Rows: d.Rows, Batches: d.Batches,
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
func pagePath(parameters ...string) string {
	v := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			v.Set(parameters[i], parameters[i+1])
		}
	}
	return "/?" + v.Encode()
}

// named is the id of a page's version if the request names one: links on the page then name it too.
// Other links lead to what is current when they are followed.
func (r *request) named(snap *lookup.Snapshot) string {
	if r.query.Get("version") == "" {
		return ""
	}
	return snap.Version().ID
}

// jsonPath is a path of the JSON interface, for a version unless that is "".
func jsonPath(path, version string) string {
	if version == "" {
		return path
	}
	return path + "?" + url.Values{"version": {version}}.Encode()
}

func fillDomain(r *request, snap *lookup.Snapshot, target lookup.Target, page *ui.Page) error {
	answer, err := snap.Domain(r.Context(), target, r.query.Get("cursor"))
	if err != nil {
		return err
	}
	r.of(answer.TakedownEpoch, snap)
	version := r.named(snap)
	d := &ui.Domain{Name: answer.Domain, Total: answer.Total, Others: answer.OtherDomains}
	for i := range answer.Datasets {
		t := &answer.Datasets[i]
		d.Datasets = append(d.Datasets, ui.Holding{
			Name: t.Name, Rows: t.Rows, Size: t.Size, HasSize: t.HasSize, SizeOverflows: t.SizeOverflows(),
			First: ui.Day(t.FirstTS, t.HasTS), Last: ui.Day(t.LastTS, t.HasTS),
			Link: pagePath("domain", answer.Domain, "dataset", strconv.Itoa(int(t.ID)), "version", version),
		})
	}
	page.Domain, page.JSON = d, jsonPath("/v1/domain/"+url.PathEscape(answer.Domain), version)
	if answer.Cursor != "" {
		page.Next = pagePath("domain", page.Query, "cursor", answer.Cursor, "version", answer.Version)
	}
	return nil
}

func fillURLs(r *request, snap *lookup.Snapshot, target lookup.Target, page *ui.Page) error {
	text := r.query.Get("dataset")
	id, err := datasetID(snap, text)
	if err != nil {
		return err
	}
	answer, err := snap.URLs(r.Context(), lookup.URLsQuery{
		Target: target, Dataset: id, Limit: lookup.DefaultLimit, Cursor: r.query.Get("cursor"),
	})
	if err != nil {
		return err
	}
	r.of(answer.TakedownEpoch, snap)
	if answer.StoppedBy == "deadline" {
		r.once()
	}
	dataset, _ := snap.Dataset(id) // URLs has checked that it exists
	u := &ui.URLs{
		Name: answer.Domain, Dataset: dataset.Name, Total: answer.Total, Offset: answer.Offset,
		Up: pagePath("domain", answer.Domain, "version", r.named(snap)),
	}
	for i := range answer.Len() {
		ms, ok := answer.TS(i)
		u.Items = append(u.Items, ui.Item{URL: string(answer.URL(i)), Time: ui.Time(ms, ok)})
	}
	page.URLs = u
	page.JSON = jsonPath("/v1/domain/"+url.PathEscape(answer.Domain)+"/datasets/"+url.PathEscape(text)+"/urls", r.named(snap))
	if answer.Cursor != "" {
		page.Next = pagePath("domain", page.Query, "dataset", text, "cursor", answer.Cursor, "version", answer.Version)
	}
	return nil
}
