package api

import (
	"log/slog"
	"net/url"
	"strconv"

	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/lookup"
)

// versions lists the published versions, newest first.
func (h *handler) versions(r *request) error {
	asked, err := r.number("limit", lookup.DefaultVersions, 1)
	if err != nil {
		return err
	}
	limit := int(min(asked, lookup.MaxVersions))
	page, err := h.server.Versions(r.Context(), limit, r.query.Get("cursor"))
	if err != nil {
		return err
	}
	d := &r.doc
	d.open('{')
	d.text("current_version", page.Current)
	d.number("total_versions", int64(page.Total))
	d.array("versions")
	for i := range page.Versions {
		v := &page.Versions[i]
		d.element()
		d.text("version", v.ID)
		d.boolean("current", v.Current)
		d.array("tags")
		for _, tag := range v.Tags {
			d.next()
			d.buf = codec.AppendJSONString(d.buf, tag)
		}
		d.close(']')
		d.text("created", v.Created)
		d.text("built_by", v.BuiltBy)
		d.textOrNull("parent", v.Parent)
		d.text("commit", v.Commit)
		d.text("canonical_form", v.CanonicalForm)
		d.text("public_suffix_list", v.PublicSuffix)
		c, counted := &v.Counts, !page.Uncounted
		d.numberOrNull("datasets", int64(c.Datasets), counted)
		d.numberOrNull("batches", int64(c.Batches), counted)
		d.numberOrNull("parts", c.Parts, counted)
		d.numberOrNull("rows", c.Rows, counted)
		d.numberOrNull("part_bytes", c.PartBytes, counted)
		d.numberOrNull("segments", int64(c.Segments), counted)
		d.numberOrNull("index_bytes", c.IndexBytes, counted)
		if c, counted = v.Change, v.Change != nil; !counted {
			c = new(catalog.Counts)
		}
		d.numberOrNull("datasets_added", int64(c.Datasets), counted)
		d.numberOrNull("batches_added", int64(c.Batches), counted)
		d.numberOrNull("rows_added", c.Rows, counted)
		d.close('}')
	}
	d.close(']')
	d.number("returned", int64(len(page.Versions)))
	d.boolean("complete", page.Cursor == "")
	stopped, next := "", ""
	if page.Cursor != "" {
		next = r.URL.EscapedPath() + "?" + url.Values{"cursor": {page.Cursor}, "limit": {strconv.Itoa(limit)}}.Encode()
		if asked > lookup.MaxVersions {
			stopped = "limit"
		}
	}
	d.textOrNull("stopped_by", stopped)
	d.textOrNull("next_cursor", page.Cursor)
	if next == "" {
		d.null("next")
	} else {
		r.nextLink(next)
	}
	d.close('}')
	r.ofContent()
	r.logged = append(r.logged, slog.Int("versions", len(page.Versions)), slog.Int("total", page.Total))
	return nil
}
