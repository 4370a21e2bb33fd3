// Package ui renders the server's web pages: the datasets of a version, each dataset, the domains
// by name, the datasets that contain a domain or hold one URL, the URLs of a domain in a dataset,
// the tree of its hosts and directories, and what describes the HTTP interface and its errors. The
// pages work without scripts, by keyboard and on narrow screens, and follow the system's light or
// dark colour scheme. Package api fills in what they show and renders them.
package ui

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"time"
)

//go:embed *.html
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"count": formatCount}).ParseFS(files, "*.html"))

// Page is the content of one page. Exactly one of the views, Start to Tree, is not nil. If Fault
// is set, all of them are nil.
type Page struct {
	// Query is the domain as the user typed it, or empty.
	Query string
	// Version is the id of the version shown. It is empty before the first version is published.
	Version string
	// Named is the version that the request names, which the page's forms name too, or empty.
	Named string
	// Fault is the title of the error, Detail its explanation. Both are empty without an error.
	Fault, Detail string
	// JSON is the path of the same answer as JSON, Next the path of the next page. Each is empty if
	// there is none.
	JSON, Next string
	// Selection is the form that selects rows of a list of URLs. It is nil on other pages. The page
	// of an error in it has it too.
	Selection *Selection

	Start   *Start
	Domain  *Domain
	URLs    *URLs
	Dataset *DatasetPage
	Exact   *Exact
	Domains *Domains
	Tree    *Tree
}

// Title is what the browser shows of the page, without the name of the program.
func (p *Page) Title() string {
	switch {
	case p.Fault != "":
		return p.Fault
	case p.Domain != nil:
		return p.Domain.Name
	case p.URLs != nil:
		return p.URLs.Name + " in " + p.URLs.Dataset
	case p.Dataset != nil:
		return p.Dataset.Name
	case p.Exact != nil:
		return p.Exact.URL
	case p.Domains != nil:
		return "Domains"
	case p.Tree != nil:
		return "Tree of " + cmp.Or(p.Tree.Path, p.Tree.Domain)
	}
	return ""
}

// Start is the content of the start page: one page of the datasets of the version.
type Start struct {
	Datasets []Dataset
	// Before is the number of datasets on earlier pages. Total and Rows count all datasets and
	// their rows.
	Before, Total int
	Rows          int64
	// Browse leads to the domains by name.
	Browse string
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
	Link                         string // to the page of the dataset
}

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
