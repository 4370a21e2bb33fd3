package detect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// isCDXJLine reports whether l is a SURT key, a timestamp and a JSON object.
func isCDXJLine(l []byte) bool {
	_, ts, content, ok := text.CutCDXJ(l)
	return ok && isCDXTime(ts) && len(content) > 0 && content[0] == '{'
}

// isCDXLine reports whether l has at least six fields, the second a timestamp and the third a URL.
func isCDXLine(l []byte) bool {
	f := bytes.Split(l, []byte{' '})
	return len(f) >= 6 && isCDXTime(f[1]) && bytes.IndexByte(f[2], ':') > 0
}

// isZipNumLine reports whether l is a line of a ZipNum index: a key with a timestamp, then the
// name, offset and length of a block.
func isZipNumLine(l []byte) bool {
	f := bytes.Split(l, []byte{'\t'})
	_, ts, _ := bytes.Cut(f[0], []byte{' '})
	return len(f) >= 4 && isCDXTime(ts) && timestamp.AllDigits(f[2]) && timestamp.AllDigits(f[3])
}

// isCDXTime reports whether b is a time in 12 digits or more.
func isCDXTime(b []byte) bool {
	_, ok := timestamp.ParseDigits(b)
	return ok && len(b) >= 12 && timestamp.AllDigits(b)
}

// planCDX names the columns by the legend in the first line, else by the number of fields in it.
func (d *detector) planCDX() error {
	var legend string
	if text.IsCDXHeader(d.text) {
		line, _, _ := bytes.Cut(d.text, []byte{d.eol()})
		_, l, _ := strings.Cut(string(line), "CDX ")
		legend = strings.TrimSpace(l)
	} else if lines := d.lines(); len(lines) > 0 {
		n := len(bytes.Fields(lines[0]))
		var usual bool
		if legend, usual = text.CDXLegend(n); !usual {
			d.note("lines of %d fields and no legend are read by that of 11: %s", n, legend)
		}
	} else {
		legend, _ = text.CDXLegend(11)
	}
	d.plan.Columns = text.CDXColumns(legend)
	d.plan.Separator = " "
	resolve := func(want string) (raw.Column, error) {
		i := slices.Index(d.plan.Columns, want)
		if n, ok := raw.ColumnNumber(want); ok && n <= len(d.plan.Columns) {
			i = n - 1
		}
		if i < 0 {
			return raw.Column{}, d.noColumn(want, d.plan.Columns, ", or its number")
		}
		return raw.Column{Name: d.plan.Columns[i], Number: i + 1}, nil
	}
	if err := d.planNamed(resolve, resolve); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		c, err := resolve("original")
		if err != nil {
			return err
		}
		d.plan.URL = c
	}
	if d.plan.TS == nil {
		if c, err := resolve("timestamp"); err == nil {
			d.plan.TS, d.plan.TSChosen = &c, true
		}
	}
	return nil
}

// planCDXJ takes the URL from the member url, and the time from the second field, unless the
// options name others.
func (d *detector) planCDXJ() error {
	if err := d.planNamed(jsonColumn, jsonColumn); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		d.plan.URL = raw.Column{Name: "url"}
	}
	if d.opt.TSColumn == "" || d.opt.TSColumn == "timestamp" {
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "timestamp", Number: 2}, d.opt.TSColumn == ""
	}
	return nil
}
