package detect

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
)

// sniffArrays returns JSONLines if the lines are rows, JSON if start, the beginning of the text,
// begins an array or several that are no rows, and "" if the text is no JSON.
func (d *detector) sniffArrays(start []byte, lines [][]byte) string {
	lines = lines[:min(len(lines), sniffedLines)]
	var rows []*jsondoc.Document
	for _, l := range lines {
		row := &jsondoc.Document{Deep: true}
		if l = trimJSONLine(l); l[0] == '[' && row.Parse(l) {
			rows = append(rows, row)
		}
	}
	if len(rows) > 1 && len(rows)*2 > len(lines) && isRows(rows) {
		return raw.JSONLines
	}
	next := bytes.TrimLeft(start[1:], " \t\r\n")
	if len(next) == 0 || strings.IndexByte(`{["]`, next[0]) >= 0 || bytes.Contains(next, []byte(`","`)) {
		return raw.JSON
	}
	return ""
}

// isRows reports whether all but few arrays have no arrays or objects as their first elements, and
// not all of their elements are URLs, or all hosts: these are lists.
func isRows(arrays []*jsondoc.Document) bool {
	rows, urls, hosts, values := 0, 0, 0, 0
	for _, a := range arrays {
		if len(a.Nodes) == 1 || a.Nodes[1].Kind != '{' && a.Nodes[1].Kind != '[' {
			rows++
		}
		for _, v := range cells(a) {
			switch {
			case v == "":
				continue
			case looksURL(v):
				urls++
			case looksHost(v):
				hosts++
			}
			values++
		}
	}
	return few(len(arrays)-rows, len(arrays)) && urls < values && hosts < values
}

// cells returns the elements of an array as the cells of a row. Those that are no scalars are
// empty.
func cells(array *jsondoc.Document) []string {
	var row []string
	for c := range array.Children(0) {
		n := &array.Nodes[c]
		v := ""
		switch n.Kind {
		case '"':
			v = string(text.TrimSpace(jsondoc.AppendUnescaped(nil, array.Text(n))))
		case '0', 't', 'f':
			v = string(array.Text(n))
		}
		row = append(row, v)
	}
	return row
}

// planArrays plans arrays: the rows of a table, or lists of URLs, whose elements are the records.
func (d *detector) planArrays(arrays []*jsondoc.Document) error {
	if d.opt.URLColumn == "" && !isRows(arrays) {
		if d.plan.Format == raw.JSON {
			d.plan.Depth = 2
		}
		return nil
	}
	t := &table{}
	for _, a := range arrays {
		if len(a.Nodes) > 1 {
			t.rows = append(t.rows, cells(a))
		}
	}
	t.measure()
	d.plan.Rows = true
	d.plan.TS, d.plan.Size, d.plan.Extras = nil, nil, nil
	if len(t.rows) > 0 && text.IsCDXServerRow(t.rows[0]) {
		return d.planCDXServer(t)
	}
	if err := d.planColumns(t); err != nil {
		return err
	}
	d.keepColumns(false)
	d.placeColumns()
	return nil
}

// placeColumns replaces the numbers of columns by the paths of an array's elements.
func (d *detector) placeColumns() {
	place := func(c *raw.Column) {
		if c != nil && c.Number > 0 {
			c.From, c.Number = strconv.Itoa(c.Number-1), 0
		}
	}
	place(&d.plan.URL)
	place(d.plan.TS)
	place(d.plan.Size)
	for i := range d.plan.Extras {
		place(&d.plan.Extras[i])
	}
}

// planCDXServer plans the answer of a CDX server in JSON, whose first row names its fields.
func (d *detector) planCDXServer(t *table) error {
	t.header = 1
	fields := slices.Clone(t.rows[0])
	for i, name := range fields {
		if field := text.CDXServerNames[name]; field != "" {
			fields[i] = field
		}
	}
	d.plan.HeaderRow, d.plan.Columns = 1, fields
	if err := d.planNamed(d.cdxColumn, d.cdxColumn); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		i := slices.Index(fields, "original")
		if i < 0 {
			i = slices.Index(fields, "urlkey")
			d.plan.SURT = true
			d.noteKeys()
		}
		d.plan.URL = raw.Column{Name: fields[i], Number: i + 1}
	}
	if d.plan.TS == nil && !d.noTime {
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "timestamp", Number: slices.Index(fields, "timestamp") + 1}, true
	}
	d.keepColumns(true)
	d.placeColumns()
	return nil
}
