// Package ui is the server's pages for people: a form, the datasets of the current version, and the answers to the two
// queries. They work without scripts, on narrow screens, and in the colours that the reader's system prefers.
package ui

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"time"
)

//go:embed page.html
var text string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"count": count}).Parse(text))

// MaxDatasets is how many datasets the start page lists. /v1/datasets lists all of them, page by page.
const MaxDatasets = 500

// Page is what is shown. Of Start, Domain and URLs one is not nil, or none above a Fault.
type Page struct {
	// Query is the domain as it was typed, "" for none.
	Query string
	// Version is the one that is shown, "" before the first was published.
	Version string
	// Fault is what went wrong, Detail more of it.
	Fault, Detail string
	// JSON is the path of the same answer for programs, Next that of the next page; "" for none.
	JSON, Next string

	Start  *Start
	Domain *Domain
	URLs   *URLs
}

// Start is the start page: what the version has.
type Start struct {
	// Datasets are the first MaxDatasets of Total. Rows counts those of all.
	Datasets []Dataset
	Total    int
	Rows     int64
}

// Dataset is one line of the start page's table.
type Dataset struct {
	ID                           uint32
	Name, Title, Source, Licence string
	Rows                         int64
	Batches                      int
}

// Domain answers which datasets contain a domain.
type Domain struct {
	Name     string
	Total    int
	Datasets []Holding
	// Others are further domains that the host asked for could be filed under.
	Others []string
}

// HasTimes tells whether any dataset has times of the domain, HasSizes whether any has sizes.
func (d *Domain) HasTimes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.First != "" })
}
func (d *Domain) HasSizes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.HasSize })
}

// Holding is what one dataset has of a domain.
type Holding struct {
	ID          uint32
	Name        string
	Rows        int64
	Size        int64
	HasSize     bool
	First, Last string // days, "" without times
	Link        string
}

// URLs is one page of the URLs of a domain in a dataset.
type URLs struct {
	Name, Dataset string
	// Total is the number of rows in the list, Offset the number of those before the first one here.
	Total, Offset int64
	Items         []Item
	// Up leads to the datasets of the domain.
	Up string
}

// First and Last number the rows of the page from 1 on.
func (u *URLs) First() int64 { return u.Offset + 1 }
func (u *URLs) Last() int64  { return u.Offset + int64(len(u.Items)) }

// HasTimes tells whether any row has a time.
func (u *URLs) HasTimes() bool {
	return slices.ContainsFunc(u.Items, func(i Item) bool { return i.Time != "" })
}

// Item is one row.
type Item struct{ URL, Time string }

// Day and Time write milliseconds since the epoch for people, "" where there are none.
func Day(ms int64, ok bool) string  { return format(ms, ok, "2006-01-02") }
func Time(ms int64, ok bool) string { return format(ms, ok, "2006-01-02 15:04:05") }

func format(ms int64, ok bool, layout string) string {
	if !ok {
		return ""
	}
	return time.UnixMilli(ms).UTC().Format(layout)
}

// count writes a whole number of any type, with a narrow space before every three digits.
func count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// Render writes the page as HTML.
func (p *Page) Render() ([]byte, error) {
	var buf bytes.Buffer
	if err := page.Execute(&buf, p); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
