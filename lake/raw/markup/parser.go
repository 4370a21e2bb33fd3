package markup

import (
	"bytes"
	"fmt"
	"io"
	"net/mail"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
)

// The columns that formats have in common. docs/sources.md says what they hold in each.
const (
	columnURL       = "url"
	columnTimestamp = "timestamp"
)

// columns are the columns by format, url first.
var columns = map[string][]string{
	raw.Sitemap:   {columnURL, columnTimestamp, "changefreq", "priority"},
	raw.RSS:       {columnURL, columnTimestamp, "title", "guid", "author", "comments"},
	raw.Atom:      {columnURL, columnTimestamp, "title", "id", "published", "updated"},
	raw.OPML:      {columnURL, columnTimestamp, "title", "htmlUrl", "xmlUrl", "type"},
	raw.Bookmarks: {columnURL, columnTimestamp, "title", "last_modified", "tags"},
	raw.TimeMap:   {columnURL, columnTimestamp, "memento"},
	raw.NTriples:  {columnURL, "subject", "predicate", "object", "graph"},
}

// Columns returns the names of a format's columns, in the order of their numbers.
func Columns(format string) []string { return columns[format] }

// NewParser returns the parser of an object that is read by plan. f has its counts.
func NewParser(in *text.Input, plan raw.Plan, f text.Fields) (text.Parser, error) {
	r := newRow(plan, f)
	switch plan.Format {
	case raw.Sitemap, raw.RSS, raw.Atom, raw.OPML:
		return &elementParser{row: r, scanner: newScanner(in, plan, f.Counts)}, nil
	case raw.Bookmarks:
		s := newScanner(in, plan, f.Counts)
		s.html, s.records = true, []string{"a"}
		return &elementParser{row: r, scanner: s}, nil
	case raw.TimeMap:
		return newTimeMapParser(in, plan, r), nil
	case raw.NTriples:
		return newTripleParser(in, r), nil
	}
	return nil, fmt.Errorf("plan has format %q", plan.Format)
}

// row makes records of the values of their columns.
type row struct {
	fields        text.Fields
	names         []string // of the columns
	values        [][]byte // of the record
	url, ts, size int      // indices of values, -1 for none
	mail          bool     // times may have the format of mail
	extras        text.Extras
}

func newRow(plan raw.Plan, f text.Fields) row {
	r := row{fields: f, names: columns[plan.Format], url: plan.URL.Number - 1, ts: -1, size: -1,
		mail: plan.TSFormat == "", extras: text.NewExtras(plan.Extras)}
	r.values = make([][]byte, len(r.names))
	if plan.TS != nil {
		r.ts = plan.TS.Number - 1
	}
	if plan.Size != nil {
		r.size = plan.Size.Number - 1
	}
	return r
}

// reset empties the values.
func (r *row) reset() {
	for i := range r.values {
		r.values[i] = r.values[i][:0]
	}
}

// column returns the index of a column, -1 for none.
func (r *row) column(name string) int { return slices.Index(r.names, name) }

// set sets the value of a column that is still empty.
func (r *row) set(name string, value []byte) {
	if i := r.column(name); i >= 0 && len(r.values[i]) == 0 {
		r.values[i] = append(r.values[i], text.TrimSpace(value)...)
	}
}

// has reports whether a column has a value.
func (r *row) has(name string) bool { return len(r.values[r.column(name)]) > 0 }

// record makes a record of the values, or returns the reason of the reject.
func (r *row) record(rec *raw.Record) string {
	if rec.URL = r.values[r.url]; len(rec.URL) == 0 {
		return raw.NoURL
	}
	if r.ts >= 0 && !r.setTS(rec, r.values[r.ts]) {
		return raw.BadTS
	}
	if r.size >= 0 && !text.SetSize(rec, r.values[r.size]) {
		return raw.BadSize
	}
	rec.Extras = r.extras.Of(r.values)
	return ""
}

// setTS is [text.Fields.SetTS], also for the times of mail (RFC 5322), which feeds and TimeMaps
// have.
func (r *row) setTS(rec *raw.Record, v []byte) bool {
	if r.mail && bytes.IndexByte(v, ' ') > 0 && bytes.IndexByte(v, ':') > 0 {
		if s, ok := mailTime(string(v)); ok {
			if t, err := mail.ParseDate(s); err == nil {
				rec.TS, rec.HasTS = t.UnixMilli(), true
				return true
			}
		}
	}
	return r.fields.SetTS(rec, v)
}

// zones are the zones of RFC 822 that have names. Package mail takes most for UTC.
var zones = map[string]string{"UT": "+0000", "UTC": "+0000", "GMT": "+0000", "Z": "+0000", "EST": "-0500", "EDT": "-0400",
	"CST": "-0600", "CDT": "-0500", "MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700"}

// mailTime replaces the name of a zone by its offset, and drops a comment behind it. ok is false
// for other names: package mail would look them up in the time zone of this machine.
func mailTime(s string) (t string, ok bool) {
	s, _, _ = strings.Cut(s, "(")
	s = strings.TrimRight(s, " ")
	i := strings.LastIndexByte(s, ' ') + 1
	zone := s[i:]
	if known, ok := zones[zone]; ok {
		zone = known
	}
	return s[:i] + zone, len(zone) == len("+0000") && (zone[0] == '+' || zone[0] == '-')
}

// more buffers more of the object behind the window, which is all that in has buffered. It returns
// false at the end of the object.
func more(in *text.Input, window *[]byte) (bool, error) {
	n := len(*window)
	_, err := in.Peek(n + 1)
	*window = in.Buffered()
	if len(*window) > n {
		return true, nil
	}
	if err == io.EOF {
		err = nil
	}
	return false, err
}
