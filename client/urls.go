package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"
)

// Selection says which rows of a domain a list has. The zero value selects all.
type Selection struct {
	// Host is the only host of the domain.
	Host string
	// Prefix is what the path and query begin with. It begins with a slash.
	Prefix string
	// From and To are the first time that is selected and the first one after it, to the
	// millisecond. Zero is no bound. With a bound, rows without a time are not selected.
	From, To time.Time
	// Filters are conditions on extras that all have to hold: NAME=TEXT, NAME!=TEXT, or
	// NAME~PATTERN with a regular expression. At most 16.
	Filters []string
	// Unique asks for distinct URLs in place of rows, sorted.
	Unique bool
}

// URLsOptions select rows of a list of URLs. The zero value is the whole list in pages of 100.
type URLsOptions struct {
	Query
	Selection
	// Offset is the number of rows to skip. It cannot be combined with Cursor.
	Offset int64
	// PageSize is the number of rows of a page, at most 10,000. 0 means the server's default. Of a
	// stream it is the number of rows of one answer, without an upper limit, and 0 means all.
	PageSize int64
	// Fields are the members that rows have, such as host, path, size or extras. Without any, rows
	// have url_id, url and ts, distinct URLs rows, first_ts and last_ts in place of ts.
	Fields []string
}

// path is the request for a list.
func (opt *URLsOptions) path(text, dataset string, form Format) string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("host", opt.Host)
	set("prefix", opt.Prefix)
	set("from", bound(opt.From))
	set("to", bound(opt.To))
	if len(opt.Filters) > 0 {
		v["filter"] = opt.Filters
	}
	set("unique", flag(opt.Unique, "1"))
	set("fields", strings.Join(opt.Fields, ","))
	set("offset", number(opt.Offset))
	set("cursor", opt.Cursor)
	set("limit", number(opt.PageSize))
	set("version", opt.Version)
	set("explain", opt.explain())
	set("format", string(form))
	path := "/v1/domain/" + segment(text) + "/datasets/" + segment(dataset) + "/urls"
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// bound formats an end of a range of times. Rows have whole milliseconds: of a bound within one,
// the next one is the first that is not before it.
func bound(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Add(time.Millisecond - 1).UTC().Format(timeLayout)
}

// URL is one row of a list. It has the members that URLsOptions.Fields names; others are zero.
type URL struct {
	ID ID `json:"url_id"`
	// URL is canonical.
	URL    string `json:"url"`
	Domain string `json:"domain"`
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	// Port is nil for the port of the scheme.
	Port *int `json:"port"`
	// Path is path and query.
	Path string `json:"path"`

	// Time is nil if the record had none, Size too.
	Time *Time  `json:"ts"`
	Size *int64 `json:"size"`
	// Extras are the columns that were kept at ingest, as JSON values.
	Extras map[string]json.RawMessage `json:"extras"`
	// RawURL is the URL of the input, if the batch keeps it and it differs.
	RawURL string `json:"raw_url"`
	Batch  string `json:"batch"`

	// Rows, First and Last are of distinct URLs: the selected rows with this URL, and the first and
	// last of their times, nil without one.
	Rows  int64 `json:"rows"`
	First *Time `json:"first_ts"`
	Last  *Time `json:"last_ts"`
}

// URLPage is one page of a list of URLs.
type URLPage struct {
	Answered
	Page
	DatasetID uint32 `json:"dataset_id"`
	// Host is there if a host below the domain was asked for and no Host selected. The list is of
	// the domain all the same, so TotalsOf is "domain".
	Host     string `json:"host,omitempty"`
	TotalsOf string `json:"totals_of,omitempty"`
	// PublicSuffix, DomainsBelow and DomainsBelowList are as in the answer about a domain.
	PublicSuffix     bool   `json:"public_suffix,omitempty"`
	DomainsBelow     *int64 `json:"domains_below,omitempty"`
	DomainsBelowList string `json:"domains_below_list,omitempty"`
	// Selection is nil if the list has all rows of the domain.
	Selection *Selected `json:"selection,omitempty"`
	// Total counts the rows of the whole list, or its distinct URLs, Offset those before this page.
	// Both are nil if the rows would have to be read for that; TotalUnknown says why.
	Total        *int64 `json:"total_est"`
	TotalUnknown string `json:"total_unknown,omitempty"`
	Offset       *int64 `json:"offset"`
	NextOffset   *int64 `json:"next_offset"`
	Items        []URL  `json:"items"`
	// Explain is there if it was asked for.
	Explain *Explain `json:"explain,omitempty"`
}

// Selected is a selection as the server has read it: in canonical form.
type Selected struct {
	Host    string   `json:"host"`
	Prefix  string   `json:"prefix"`
	From    *Time    `json:"from"`
	To      *Time    `json:"to"`
	Filters []string `json:"filter"`
	Unique  bool     `json:"unique"`
}

// URLs yields the URLs of a domain in a dataset, which is an id or a name. It asks for pages;
// URLRows is faster for long lists.
func (c *Client) URLs(ctx context.Context, text, dataset string, opt URLsOptions) iter.Seq2[URL, error] {
	return elements(c.URLPages(ctx, text, dataset, opt), func(p *URLPage) []URL { return p.Items })
}

// URLPages yields the pages of URLs.
func (c *Client) URLPages(ctx context.Context, text, dataset string, opt URLsOptions) iter.Seq2[*URLPage, error] {
	return pages[URLPage](ctx, c, opt.path(text, dataset, ""))
}

// URLStream returns the URLs of a domain in a dataset as the server writes them in that form, which
// is not JSON. With PageSize it may end before the list does: Stream.NextCursor says so. The caller
// closes it.
func (c *Client) URLStream(ctx context.Context, text, dataset string, form Format, opt URLsOptions) (*Stream, error) {
	return c.stream(ctx, &request{path: opt.path(text, dataset, form), accept: form.mediaType()})
}

// URLRows yields the URLs of a domain in a dataset, which it reads from a stream. With PageSize it
// asks for the next stream when one ends, of the same version, so that no answer takes very long;
// the list is the same. A stream that breaks off is the error ErrCut, after the rows that came.
func (c *Client) URLRows(ctx context.Context, text, dataset string, opt URLsOptions) iter.Seq2[URL, error] {
	return func(yield func(URL, error) bool) {
		for {
			s, err := c.URLStream(ctx, text, dataset, NDJSON, opt)
			if err != nil {
				yield(URL{}, err)
				return
			}
			more, err := each(s, func(u *URL) bool { return yield(*u, nil) })
			if err == nil && more && s.NextCursor() != "" && s.NextCursor() == opt.Cursor {
				err = fmt.Errorf("urlake: %s ends with the cursor with which it began", s.request)
			}
			if err != nil {
				yield(URL{}, err)
				return
			}
			if !more || s.NextCursor() == "" {
				return
			}
			opt.Version, opt.Cursor, opt.Offset = s.Version, s.NextCursor(), 0
		}
	}
}

// each decodes the lines of a stream and closes it. More is false if do wants no more of them.
func each[T any](s *Stream, do func(*T) bool) (more bool, err error) {
	defer s.Close()
	lines := json.NewDecoder(s)
	for n := int64(0); ; n++ {
		var v T
		err := lines.Decode(&v)
		switch {
		case err == io.EOF:
			if n != s.Rows() {
				return false, s.cut(fmt.Errorf("%d rows came, but the server sent %d", n, s.Rows()))
			}
			return true, nil
		case err != nil && s.err != nil && s.err != io.EOF: // which is clearer than what the decoder makes of it
			return false, s.err
		case err != nil:
			return false, fmt.Errorf("urlake: %s: %w", s.request, err)
		}
		if !do(&v) {
			return false, nil
		}
	}
}
