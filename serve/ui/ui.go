// Package ui is the server's start page: a form for each of the two queries, and the
// datasets of the current version. It works without scripts.
package ui

import (
	"bytes"
	_ "embed"
	"html/template"
)

//go:embed start.html
var startText string

var start = template.Must(template.New("start").Parse(startText))

// MaxDatasets is how many datasets the page lists; /v1/datasets has all of them.
const MaxDatasets = 500

// Dataset is one line of the page's table.
type Dataset struct {
	ID          uint32
	Name, Title string
	Source      string
	Licence     string
	Rows        int64
	Batches     int
}

// Data is what the page shows.
type Data struct {
	// Version is the current one, "" before the first was published.
	Version  string
	Datasets []Dataset
	// Total counts the datasets, Rows all rows of the version.
	Total int
	Rows  int64
	// Notice is shown above everything else where it is not empty.
	Notice string
}

// Start renders the page.
func Start(d Data) ([]byte, error) {
	if len(d.Datasets) > MaxDatasets {
		d.Datasets = d.Datasets[:MaxDatasets]
	}
	var buf bytes.Buffer
	if err := start.Execute(&buf, d); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
