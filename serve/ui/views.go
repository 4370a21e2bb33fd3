package ui

import (
	"fmt"
	"slices"
)

// Domain is the answer to which datasets contain a domain.
type Domain struct {
	Name     string
	Total    int
	Datasets []Holding
	// Others are further domains of the version that the host could belong to. See lookup.Answer.
	Others []Link
	// Host is the host that was asked for, if it is not the domain. The links of Datasets then lead
	// to its URLs, and Whole to the page of the domain.
	Host  string
	Whole string
	// Exact leads to who holds exactly the URL that was asked for. Its path is empty unless that
	// was a URL.
	Exact Link
	// Suffix is not nil if names below this one are domains of their own.
	Suffix *Suffix
	// Browse leads to the list of the domains whose names begin like this one. It is empty unless
	// no dataset has the domain.
	Browse string
	// Tree leads to the hosts and directories of the domain, or of the host.
	Tree string
}

// Suffix is a public suffix.
type Suffix struct {
	// Below is the number of domains below it, if Counted, and List their list.
	Below   int64
	Counted bool
	List    string
}

// Link is a text that leads to a path.
type Link struct{ Text, Path string }

// HasTimes reports whether any dataset has times for the domain.
func (d *Domain) HasTimes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.First != "" })
}

// HasSizes reports whether any dataset has sizes for the domain.
func (d *Domain) HasSizes() bool {
	return slices.ContainsFunc(d.Datasets, func(h Holding) bool { return h.Shown() })
}

// Sums are the totals of some rows.
type Sums struct {
	Rows          int64
	Size          int64
	HasSize       bool
	SizeOverflows bool   // Size is the least that the sum can be
	First, Last   string // days, empty without times
}

// Shown reports whether a size is shown.
func (s Sums) Shown() bool { return s.HasSize || s.SizeOverflows }

// Holding summarizes the rows that one dataset has of a domain, or of a URL.
type Holding struct {
	Name string
	Sums
	Link string // to the URLs
}

// Exact is the answer to which datasets hold exactly one URL.
type Exact struct {
	// URL is canonical.
	URL      string
	Datasets []Holding
	// Domain leads to the page of its domain.
	Domain Link
	// More tells that the search goes on, on the next page, and Later that this is not the first.
	More, Later bool
}

// HasTimes reports whether any dataset has times for the URL.
func (e *Exact) HasTimes() bool {
	return slices.ContainsFunc(e.Datasets, func(h Holding) bool { return h.First != "" })
}

// URLs is one page of the URLs of a domain in a dataset.
type URLs struct {
	Name, Dataset string
	// Total is the number of items in the list, Offset the number of rows before this page. They
	// are known if Counted.
	Total, Offset int64
	Counted       bool
	// Unique tells that items are distinct URLs, Selected that they are not all rows of the domain.
	Unique, Selected bool
	Items            []Item
	// Up links to the datasets of the domain, In to the page of the dataset, Tree to the hosts and
	// directories of the domain in it.
	Up, In, Tree string
	// Suffix is not nil if names below this one are domains of their own.
	Suffix *Suffix
	// Downloads lead to the whole list as a file, by the name of the form.
	Downloads []Download
}

// Download is a file that the server makes.
type Download struct{ Form, Path, File string }

// First is the number of the page's first row in the list, counted from 1.
func (u *URLs) First() int64 { return u.Offset + 1 }

// Last is the number of the page's last row in the list, counted from 1.
func (u *URLs) Last() int64 { return u.Offset + int64(len(u.Items)) }

// Kind is what n items are called.
func (u *URLs) Kind(n any) string {
	name := "row"
	if u.Unique {
		name = "distinct URL"
	}
	if fmt.Sprint(n) != "1" {
		name += "s"
	}
	return name
}

// HasTimes reports whether any row has a time.
func (u *URLs) HasTimes() bool {
	return slices.ContainsFunc(u.Items, func(i Item) bool { return i.Time != "" })
}

// Item is one row, or one distinct URL with the number of its rows. Link leads to who holds the
// URL.
type Item struct {
	URL, Time, Link string
	Rows            int64
}

// Selection is a form. Its texts are as the user typed them.
type Selection struct {
	Domain, Dataset, Named string // what the list is of
	Host, Prefix, From, To string
	Filters                []string
	Unique                 bool
	// Clear leads to the list without a selection.
	Clear string
}

// Any reports whether anything is selected.
func (s *Selection) Any() bool {
	return s.Host != "" || s.Prefix != "" || s.From != "" || s.To != "" || len(s.Filters) > 0 || s.Unique
}

// DatasetPage is one dataset, with its largest domains.
type DatasetPage struct {
	ID                           uint32
	Name, Title, Source, Licence string
	Batches                      int
	Parts, Bytes                 int64
	// Known tells that Domains, Sums, ByRows and BySize are. Otherwise they are being computed, and
	// Rows are those of the dataset without takedowns.
	Known   bool
	Domains int64
	Sums
	ByRows, BySize []DomainSum
	// Browse leads to the domains of the dataset by name.
	Browse string
}

// DomainSum is a domain with its totals.
type DomainSum struct {
	Name string
	// Datasets is the number of datasets that contain it, in a list of all.
	Datasets int
	Sums
	Link string
}

// Domains is one page of the domains of a version, or of one dataset, by name.
type Domains struct {
	// Prefix and Suffix are what the names begin and end with, as the user typed them.
	Prefix, Suffix string
	// Dataset is the only dataset that counts, as the request names it, and In its page with its
	// name. Both are empty for all datasets.
	Dataset string
	In      Link
	Domains []DomainSum
	// More tells that the list goes on, on the next page.
	More bool
}

// HasTimes reports whether any domain has times.
func (d *Domains) HasTimes() bool {
	return slices.ContainsFunc(d.Domains, func(s DomainSum) bool { return s.First != "" })
}

// HasSizes reports whether any domain has sizes.
func (d *Domains) HasSizes() bool {
	return slices.ContainsFunc(d.Domains, func(s DomainSum) bool { return s.Shown() })
}

// Tree is one page of what is below a host or a directory of a domain, or below the domain.
type Tree struct {
	// Domain is the domain, Path the host and the directory, "" for all of the domain. TreeNode has
	// the sums there.
	Domain, Path string
	TreeNode
	// Up leads to the nodes from the domain down to this one.
	Up []Link
	// Choices are the datasets that can count alone, Dataset the value of the one that does, or
	// empty. Sort is the order of Nodes: rows, size or name.
	Choices       []Choice
	Dataset, Sort string
	// Matching is the number of children on all pages, and Later tells that this is not the first.
	Matching int
	Later    bool
	Nodes    []TreeNode
	// Whole is the number of rows of which those of Nodes are shares.
	Whole int64
	// URLs leads to the list of the URLs at and below the node, and is empty unless one dataset
	// counts. Datasets leads to the page of the domain.
	URLs, Datasets string
}

// Choice is an option of a form.
type Choice struct{ Value, Text string }

// TreeNode is a host or a directory with what is at and below it.
type TreeNode struct {
	Name string
	Sums
	// Direct are the rows at the node itself, Children its children.
	Direct   int64
	Children int
	Link     string // to the page of the node
}

// Share is the part that a node has of all rows, in percent.
func (t *Tree) Share(n *TreeNode) string {
	switch p := 100 * float64(n.Rows) / float64(max(1, t.Whole)); {
	case p < 1:
		return "<1 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

// Below is what a child of the node is called.
func (t *Tree) Below() string {
	if t.Path == "" {
		return "host"
	}
	return "directory"
}

// HasSizes reports whether any node has a size.
func (t *Tree) HasSizes() bool {
	return slices.ContainsFunc(t.Nodes, func(n TreeNode) bool { return n.Shown() })
}
