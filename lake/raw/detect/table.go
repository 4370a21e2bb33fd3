package detect

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// Tables.

// table is the sample of an object cut at one separator.
type table struct {
	sep   string
	rows  [][]string
	width int // the commonest number of cells
	share float64
	// Of the header that has a URL name: its row from 1, 0 for none, and the name's class.
	header, class int
}

var separators = []string{"\t", ",", ";", "|"}

// readTable reads up to rows rows of the head as a table. sep is "" for a single column.
func (d *detector) readTable(sep, format string, rows int) *table {
	content := d.text
	if !d.whole {
		// Not the row that the head cuts.
		if i := bytes.LastIndexByte(content, d.eol()); i >= 0 {
			content = content[:i+1]
		}
	}
	r := text.NewRows(d.sample(content), format, sep)
	t := &table{sep: sep}
	widths := make(map[int]int)
	for len(t.rows) < rows {
		cells, reason, err := r.Next()
		if err != nil {
			break
		}
		var row []string
		if reason == "" {
			for _, cell := range cells {
				row = append(row, string(text.TrimSpace(cell)))
			}
			widths[len(row)]++
		}
		// A row that cannot be read still counts as one: the reader counts it too.
		t.rows = append(t.rows, row)
	}
	for w, n := range widths {
		if share := float64(n) / float64(len(t.rows)); share > t.share || share == t.share && w > t.width {
			t.width, t.share = w, share
		}
	}
	t.findHeader()
	return t
}

// findHeader looks for URL names among the rows before the first with a value. A title above
// the header has fewer cells filled.
func (t *table) findHeader() {
	most := 0
	for i, row := range t.rows[:min(len(t.rows), titleRows)] {
		for _, c := range row {
			if looksURL(c) || looksHost(c) && NameClass(c) == 0 {
				return
			}
		}
		filled, best := 0, 0
		for _, c := range row {
			if c != "" {
				filled++
			}
			if class := NameClass(c); class > 0 && (best == 0 || class < best) {
				best = class
			}
		}
		if best > 0 && (filled > most || filled == most && best < t.class) {
			t.header, t.class, most = i+1, best, filled
		}
	}
}

// columnNames are the header's words, and numbers where it has none or one twice.
func (t *table) columnNames() []string {
	width := t.width
	var header []string
	if t.header > 0 {
		header = t.rows[t.header-1]
		width = max(width, len(header))
	}
	names := make([]string, width)
	seen := make(map[string]bool)
	for i := range names {
		if i < len(header) && header[i] != "" && !seen[header[i]] {
			names[i] = strings.ToValidUTF8(header[i], "\ufffd")
			seen[names[i]] = true
		}
	}
	for i := range names {
		if names[i] == "" {
			n := strconv.Itoa(i + 1)
			for seen[n] {
				n += "_"
			}
			names[i] = n
			seen[n] = true
		}
	}
	return names
}

// values are the non-empty cells of column i below row from.
func (t *table) values(i, from int) []string {
	var v []string
	for _, row := range t.rows[min(from, len(t.rows)):] {
		if i < len(row) && row[i] != "" {
			v = append(v, row[i])
		}
	}
	return v
}

// share is the part of values for which f holds; 0 of none.
func share(values []string, f func(string) bool) float64 {
	if len(values) == 0 {
		return 0
	}
	n := 0
	for _, v := range values {
		if f(v) {
			n++
		}
	}
	return float64(n) / float64(len(values))
}

// sniffTable tells tables from lists.
func (d *detector) sniffTable() string {
	if d.named(".tsv", ".tab") {
		return raw.TSV
	}
	if d.named(".csv") || d.opt.URLColumn != "" {
		if t := d.bestTable(separators, true); t != nil && t.sep == "\t" && !d.named(".csv") {
			return raw.TSV
		}
		return raw.CSV
	}
	if t := d.bestTable(separators, false); t != nil {
		if t.sep == "\t" {
			return raw.TSV
		}
		return raw.CSV
	}
	// One column below its name.
	if t := d.readTable("", raw.CSV, titleRows); t.header > 0 && !wordClass(t.class) {
		return raw.CSV
	}
	return raw.Lines
}

// bestTable is the sample cut at the separator that makes the best table of it, nil if none
// does. sure is set where it is known to be a table.
func (d *detector) bestTable(seps []string, sure bool) *table {
	var best *table
	for _, sep := range seps {
		if !bytes.Contains(d.text, []byte(sep)) {
			continue // one column
		}
		format := raw.CSV
		if sep == "\t" {
			format = raw.TSV
		}
		t := d.readTable(sep, format, sampleRows)
		// In a table with a header rows may be ragged; without one the width is all there is.
		if t.width < 2 || t.share < 0.5 || t.header == 0 && t.share < 0.9 {
			continue
		}
		if t.header > 0 && len(t.rows[t.header-1]) < 2 {
			continue
		}
		if !sure && t.header == 0 && !t.typed() {
			continue
		}
		if best == nil || (t.header > 0) != (best.header > 0) && t.header > 0 ||
			(t.header > 0) == (best.header > 0) && t.share > best.share {
			best = t
		}
	}
	return best
}

// typed reports whether a table without a header has a URL column and beside it one of URLs or
// dates: mere numbers would make tables of lists of URLs with commas. Tabs do not stand in
// URLs, so that behind one anything is a column.
func (t *table) typed() bool {
	if len(t.rows) < 2 && t.sep != "\t" {
		return false
	}
	urls, others := 0, 0
	for i := range t.width {
		v := t.values(i, 0)
		switch {
		case len(v)*2 < len(t.rows):
		case share(v, looksURL) >= 0.9, t.sep == "\t" && share(v, looksURLOrHost) >= 0.9:
			urls++
		case t.sep == "\t" || share(v, looksDate) >= 0.9:
			others++
		}
	}
	return urls > 0 && urls+others > 1
}

func (d *detector) planTable(format string) error {
	var t *table
	if format == raw.TSV {
		t = d.readTable("\t", raw.TSV, sampleRows)
	} else if t = d.bestTable(separators, true); t == nil {
		t = d.readTable("", raw.CSV, sampleRows)
		t.width = 1
	} else if t.sep == "\t" {
		t = d.readTable("\t", raw.CSV, sampleRows)
	}
	d.Plan.Separator = t.sep

	named := []string{d.opt.URLColumn, d.opt.TSColumn, d.opt.SizeField}
	for _, x := range d.opt.Extras {
		if x != "*" {
			named = append(named, x)
		}
	}
	t.headerOf(named)
	url := -1
	if d.opt.URLColumn == "" {
		if url = d.chooseColumn(t); url < 0 && len(t.rows) > 0 {
			what := "its columns are " + raw.QuoteNames(t.columnNames())
			if t.header == 0 {
				what = "its first row is " + raw.QuoteNames(t.rows[0])
			}
			return d.refuse("no column of this table looks like URLs; "+what, "name one, or give its number (--url-column)")
		}
	} else if n, ok := raw.ColumnNumber(d.opt.URLColumn); ok && t.header == 0 {
		// Named by number: a first row whose cell is no URL while those below are is a header.
		t.headerAbove(n - 1)
	}
	names := t.columnNames()
	d.Plan.HeaderRow, d.Plan.Columns = t.header, names

	resolve := func(want string) (raw.Column, error) {
		if n, ok := raw.ColumnNumber(want); ok && n <= len(names) {
			return raw.Column{Name: names[n-1], Number: n}, nil
		}
		i := slices.Index(names, want)
		if i < 0 {
			i = slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(s, want) })
		}
		if i < 0 {
			return raw.Column{}, d.noColumn(want, names, ", or its number")
		}
		return raw.Column{Name: names[i], Number: i + 1}, nil
	}
	switch {
	case url >= 0:
		d.Plan.URL = raw.Column{Name: names[url], Number: url + 1}
	case d.opt.URLColumn == "":
		d.Plan.URL = raw.Column{Name: "1", Number: 1} // an empty table
	}
	if err := d.nameColumns(resolve, resolve); err != nil || d.Plan.TS != nil {
		return err
	}
	if i := slices.IndexFunc(names, isTSName); i >= 0 && i+1 != d.Plan.URL.Number {
		if v := t.values(i, t.header); len(v) > 0 && share(v, d.isTime) == 1 {
			d.Plan.TS, d.Plan.TSChosen = &raw.Column{Name: names[i], Number: i + 1}, true
		}
	}
	return nil
}

// nameColumns plans the columns that were asked for by name, extras each once.
func (d *detector) nameColumns(column, extra func(want string) (raw.Column, error)) error {
	if want := d.opt.URLColumn; want != "" {
		c, err := column(want)
		if err != nil {
			return err
		}
		d.Plan.URL = c
	}
	for _, o := range []struct {
		want string
		to   **raw.Column
	}{{d.opt.TSColumn, &d.Plan.TS}, {d.opt.SizeField, &d.Plan.Size}} {
		if o.want == "" {
			continue
		}
		c, err := column(o.want)
		if err != nil {
			return err
		}
		*o.to = &c
	}
	if d.Plan.AllExtras {
		return nil
	}
	for _, x := range d.opt.Extras {
		c, err := extra(x)
		if err != nil {
			return err
		}
		if !slices.Contains(d.Plan.Extras, c) {
			d.Plan.Extras = append(d.Plan.Extras, c)
		}
	}
	return nil
}

// noColumn refuses a name that none of the columns has.
func (d *detector) noColumn(want string, names []string, or string) error {
	return d.refuse(fmt.Sprintf("there is no column %q; its columns are %s", want, raw.QuoteNames(names)), "name one of them"+or)
}

// headerOf makes the first row that has one of the names the header, if names are asked for.
func (t *table) headerOf(named []string) {
	for i, row := range t.rows[:min(len(t.rows), titleRows)] {
		for _, want := range named {
			// Digits are a number, or the name that a program gave a column; a cell with digits makes no header of its row.
			if _, number := raw.ColumnNumber(want); want == "" || number || i > 0 && timestamp.AllDigits([]byte(want)) {
				continue
			}
			if slices.ContainsFunc(row, func(c string) bool { return strings.EqualFold(c, want) }) {
				t.header = i + 1
				return
			}
		}
	}
}

// headerAbove makes row 1 a header if its cell i is no URL while those below are.
func (t *table) headerAbove(i int) {
	if len(t.rows) < 2 || i >= len(t.rows[0]) || t.rows[0][i] == "" {
		return
	}
	c := t.rows[0][i]
	if !looksURL(c) && !(looksHost(c) && NameClass(c) == 0) && share(t.values(i, 1), looksURLOrHost) >= 0.9 {
		t.header = 1
	}
}

// chooseColumn returns the URL column, -1 for none.
func (d *detector) chooseColumn(t *table) int {
	unproven := -1
	if t.header > 0 {
		header := t.rows[t.header-1]
		best, bestClass := -1, 0
		var also []string
		for i, c := range header {
			class := NameClass(c)
			if class == 0 {
				continue
			}
			v := t.values(i, t.header)
			if share(v, looksURLOrHost) < 0.5 {
				// Nothing in it, or nothing good: the name alone has to do if no other will.
				if class <= classLink && unproven < 0 {
					unproven = i
				}
				continue
			}
			switch {
			case best < 0 || class < bestClass:
				best, bestClass, also = i, class, nil
			case class == bestClass:
				also = append(also, c)
			}
		}
		if best >= 0 {
			if len(also) > 0 {
				d.note("the URL column is %q%s (--url-column chooses)", header[best], couldBe(also))
			}
			return best
		}
	}
	var urls []int
	for i := range t.width {
		// Row 1 may be a header without a name that is known.
		if v := t.values(i, max(t.header, min(1, len(t.rows)-1))); share(v, looksURL) >= 0.5 && len(v)*2 >= len(t.rows)-1 {
			urls = append(urls, i)
		}
	}
	if len(urls) == 0 && unproven >= 0 {
		return unproven
	}
	if len(urls) == 0 {
		for i := range t.width {
			if share(t.values(i, max(t.header, min(1, len(t.rows)-1))), looksHost) >= 0.9 {
				urls = append(urls, i)
				break
			}
		}
	}
	if len(urls) == 0 {
		// One column is the URL, whatever it looks like: what is none gets rejected by line.
		if t.width == 1 {
			return 0
		}
		return -1
	}
	if t.header == 0 {
		t.headerAbove(urls[0])
	}
	names := t.columnNames()
	if len(urls) == 1 {
		if t.width > 1 {
			d.note("the URL column is %q, by its values", names[urls[0]])
		}
		return urls[0]
	}
	// Of several, the one that varies most: a page beside the sitemap it stands in, not the sitemap.
	best, most := -1, 0
	for _, i := range urls {
		distinct := map[string]bool{}
		for _, v := range t.values(i, t.header) {
			distinct[v] = true
		}
		if len(distinct) > most {
			best, most = i, len(distinct)
		}
	}
	var also []string
	for _, i := range urls {
		if i != best {
			also = append(also, names[i])
		}
	}
	d.note("the URL column is %q, which varies most of those that look like URLs; so do %s (--url-column chooses)", names[best], raw.QuoteNames(also))
	return best
}
