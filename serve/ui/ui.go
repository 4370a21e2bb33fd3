// Package ui renders the server's web pages: a form, the datasets of the current version, the
// answers to the two queries, and what describes the HTTP interface and its errors. The pages work
// without scripts and on narrow screens, and follow the system's light or dark colour scheme.
// Package api fills in what they show and renders them.
package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"slices"
	"time"
)

//go:embed *.html
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"count": formatCount}).ParseFS(files, "*.html"))

// Page is the content of one page. Exactly one of Start, Domain and URLs is not nil. If Fault is
// set, all three are nil.
type Page struct {
	// Query is the domain as the user typed it, or empty.
	Query string
	// Version is the id of the version shown. It is empty before the first version is published.
	Version string
	// Fault is the title of the error, Detail its explanation. Both are empty without an error.
	Fault, Detail string
	// JSON is the path of the same answer as JSON, Next the path of the next page. Each is empty if
	// there is none.
	JSON, Next string

	Start  *Start
	Domain *Domain
	URLs   *URLs
}

// Start is the content of the start page: one page of the datasets of the version.
type Start struct {
	Datasets []Dataset
	// Before is the number of datasets on earlier pages. Total and Rows count all datasets and
	// their rows.
	Before, Total int
	Rows          int64
}

// First is the number of the page's first dataset, counted from 1.
func (s *Start) First() int { return s.Before + 1 }

// Last is the number of the page's last dataset, counted from 1.
func (s *Start) Last() int { return s.Before + len(s.Datasets) }

// Dataset is one row of the start page's table.
type Dataset struct {
	ID                           uint32
	Name, Title, Source, Licence string
	Rows                         int64
	Batches                      int
}

// Domain is the answer to which datasets contain a domain.
type Domain struct {
	Name     string
	Total    int
	Datasets []Holding
	// Others are further domains of the version that the host could belong to. See lookup.Answer.
	Others []string
}

// HasTimes reports whether any dataset has times for the domain.
func (d *Domain) HasTimes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.First != "" })
}

// HasSizes reports whether any dataset has sizes for the domain.
func (d *Domain) HasSizes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.HasSize })
}

// Holding summarizes the rows that one dataset has of a domain.
type Holding struct {
	ID            uint32
	Name          string
	Rows          int64
	Size          int64
	HasSize       bool
	SizeOverflows bool   // Size is the least that the sum can be
	First, Last   string // days, empty without times
	Link          string // to the URLs
}

// URLs is one page of the URLs of a domain in a dataset.
type URLs struct {
	Name, Dataset string
	// Total is the number of rows in the list, Offset the number of rows before this page.
	Total, Offset int64
	Items         []Item
	// Up links to the datasets of the domain.
	Up string
}

// First is the number of the page's first row in the list, counted from 1.
func (u *URLs) First() int64 { return u.Offset + 1 }

// Last is the number of the page's last row in the list, counted from 1.
func (u *URLs) Last() int64 { return u.Offset + int64(len(u.Items)) }

// HasTimes reports whether any row has a time.
func (u *URLs) HasTimes() bool {
	return slices.ContainsFunc(u.Items, func(i Item) bool { return i.Time != "" })
}

// Item is one row.
type Item struct{ URL, Time string }

// Day formats ms, milliseconds since the epoch, as a day in UTC. It is empty unless ok.
func Day(ms int64, ok bool) string { return formatTime(ms, ok, "2006-01-02") }

// Time formats ms, milliseconds since the epoch, as a day and time in UTC. It is empty unless ok.
func Time(ms int64, ok bool) string { return formatTime(ms, ok, "2006-01-02 15:04:05") }

func formatTime(ms int64, ok bool, layout string) string {
	if !ok {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(layout)
}

// formatCount formats a non-negative integer of any type, with a narrow no-break space before every
// group of three digits.
func formatCount(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// Render returns the page as HTML.
func (p *Page) Render() ([]byte, error) { return render("page.html", p) }

func render(name string, content any) ([]byte, error) {
	var buf bytes.Buffer
	if err := templates.ExecuteTemplate(&buf, name, content); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
