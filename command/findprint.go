package command

import (
	"bufio"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/urlnorm"
	shared "github.com/urlake/urlake/starter/command"
)

// printer prints the answers of find.
type printer interface {
	print(answers []answer) error
	end() error
}

func (o *find) printer(w *bufio.Writer) printer {
	switch {
	case o.json:
		return &jsonPrinter{find: o, w: w}
	case o.csv:
		return &csvPrinter{find: o, w: csv.NewWriter(w)}
	}
	return &tablePrinter{find: o, w: w}
}

// moment formats a time exactly, in milliseconds as far as there are some.
func moment(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00") }

// tablePrinter prints tables for people. A column in which nothing would stand is left out.
type tablePrinter struct {
	*find
	w       io.Writer
	printed bool
}

func (p *tablePrinter) end() error { return nil }

func (p *tablePrinter) print(answers []answer) error {
	if p.urls != "" {
		return p.printURLs(answers)
	}
	if p.printed {
		// Another table, as columns may differ in width.
		if _, err := io.WriteString(p.w, "\n"); err != nil {
			return err
		}
	}
	p.printed = true
	rows := make([]shared.Row, 0, len(answers))
	for i := range answers {
		a := &answers[i]
		r := shared.Row{Asked: a.text, Domain: a.Domain, Datasets: a.datasets}
		if a.problem != "" {
			r.Problem = "(invalid)"
		}
		rows = append(rows, r)
	}
	return shared.Table(p.w, rows, false)
}

// printURLs prints a URL a line, after its time if any of them has one.
func (p *tablePrinter) printURLs(answers []answer) error {
	for _, a := range answers {
		times := slices.ContainsFunc(a.urls, func(u foundURL) bool { return u.hasTS })
		for _, u := range a.urls {
			at := ""
			if u.hasTS {
				at = time.UnixMilli(u.ts).UTC().Format(time.DateTime)
			}
			if times {
				cli.Fprintf(p.w, "%-19s  ", at)
			}
			cli.Fprintf(p.w, "%s\n", u.url)
		}
	}
	return nil
}

// csvPrinter prints CSV with a header.
type csvPrinter struct {
	*find
	w      *csv.Writer
	header bool
}

func (p *csvPrinter) end() error {
	p.w.Flush()
	return p.w.Error()
}

func (p *csvPrinter) print(answers []answer) error {
	var all [][]string
	if !p.header {
		p.header = true
		if p.urls != "" {
			all = append(all, []string{"asked", "domain", "url", "url_id", "ts"})
		} else {
			all = append(all, []string{"asked", "domain", "dataset_id", "dataset", "rows", "size", "first", "last", "note"})
		}
	}
	for _, a := range answers {
		if p.urls != "" {
			for _, u := range a.urls {
				ts := ""
				if u.hasTS {
					ts = moment(u.ts)
				}
				all = append(all, []string{a.text, a.Domain, u.url, urlnorm.FormatID(u.id), ts})
			}
			continue
		}
		for _, d := range a.datasets {
			row := []string{a.text, a.Domain, strconv.FormatUint(uint64(d.ID), 10), d.Name, strconv.FormatInt(d.Rows, 10), "", "", "", ""}
			if d.HasSize {
				row[5] = strconv.FormatInt(d.Size, 10)
			}
			if d.HasTS {
				row[6], row[7] = moment(d.FirstTS), moment(d.LastTS)
			}
			if a.suffix {
				row[8] = noteSuffix
			}
			all = append(all, row)
		}
		if len(a.datasets) == 0 {
			note := a.problem
			if note == "" && a.suffix {
				note = noteSuffix
			}
			rows := "0"
			if a.problem != "" {
				rows = ""
			}
			all = append(all, []string{a.text, a.Domain, "", "", rows, "", "", "", note})
		}
	}
	return p.w.WriteAll(all)
}

// noteSuffix is the note in CSV on a public suffix.
const noteSuffix = "public suffix"

// jsonPrinter prints one array with an object for each question.
type jsonPrinter struct {
	*find
	w     *bufio.Writer
	begun bool
}

type jsonAnswer struct {
	Asked        string        `json:"asked"`
	Domain       string        `json:"domain,omitempty"`
	DomainID     string        `json:"domain_id,omitempty"`
	Version      string        `json:"version,omitempty"`
	PublicSuffix bool          `json:"public_suffix,omitempty"`
	Problem      string        `json:"problem,omitempty"`
	Datasets     []jsonDataset `json:"datasets"`
	URLs         []jsonURL     `json:"urls,omitempty"`
	// Total is the number of URLs that the dataset of --urls has of the domain.
	Total int64 `json:"total,omitempty"`
}

type jsonDataset struct {
	ID    uint32  `json:"dataset_id"`
	Name  string  `json:"name"`
	Rows  int64   `json:"rows"`
	Size  *int64  `json:"size"`
	First *string `json:"first_ts"`
	Last  *string `json:"last_ts"`
}

type jsonURL struct {
	URL string  `json:"url"`
	ID  string  `json:"url_id"`
	TS  *string `json:"ts"`
}

func (p *jsonPrinter) print(answers []answer) error {
	for _, a := range answers {
		j := jsonAnswer{Asked: a.text, PublicSuffix: a.suffix, Problem: a.problem, Datasets: []jsonDataset{}, Total: a.total}
		if a.problem == "" {
			j.Domain, j.DomainID, j.Version = a.Domain, urlnorm.FormatID(a.DomainID), a.Version
		}
		for _, d := range a.datasets {
			t := jsonDataset{ID: d.ID, Name: d.Name, Rows: d.Rows}
			if d.HasSize {
				t.Size = &d.Size
			}
			if d.HasTS {
				first, last := moment(d.FirstTS), moment(d.LastTS)
				t.First, t.Last = &first, &last
			}
			j.Datasets = append(j.Datasets, t)
		}
		for _, u := range a.urls {
			t := jsonURL{URL: u.url, ID: urlnorm.FormatID(u.id)}
			if u.hasTS {
				ts := moment(u.ts)
				t.TS = &ts
			}
			j.URLs = append(j.URLs, t)
		}
		before := ","
		if !p.begun {
			before, p.begun = "[", true
		}
		if _, err := p.w.WriteString(before); err != nil {
			return err
		}
		if err := cli.WriteJSON(p.w, j, false); err != nil {
			return err
		}
	}
	return nil
}

func (p *jsonPrinter) end() error {
	_, err := p.w.WriteString("]\n")
	return err
}
