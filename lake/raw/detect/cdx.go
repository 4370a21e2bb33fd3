package detect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

func isCDXJLine(l []byte) bool {
	_, ts, content, ok := text.CutCDXJ(l)
	return ok && isCDXTime(ts) && len(content) > 0 && content[0] == '{'
}

func isCDXLine(l []byte) bool {
	f := bytes.Split(l, []byte{' '})
	return len(f) >= 6 && isCDXTime(f[1]) && bytes.IndexByte(f[2], ':') > 0
}

func isZipNumLine(l []byte) bool {
	f := bytes.Split(l, []byte{'\t'})
	_, ts, _ := bytes.Cut(f[0], []byte{' '})
	return len(f) >= 4 && isCDXTime(ts) && timestamp.AllDigits(f[2]) && timestamp.AllDigits(f[3])
}

func isCDXTime(b []byte) bool {
	_, ok := timestamp.ParseDigits(b)
	return ok && len(b) >= 12 && timestamp.AllDigits(b)
}

// CDX.

func (d *detector) planCDX() error {
	legend := ""
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
	d.Plan.Columns = text.CDXColumns(legend)
	d.Plan.Separator = " "
	resolve := func(want string) (raw.Column, error) {
		i := slices.Index(d.Plan.Columns, want)
		if n, ok := raw.ColumnNumber(want); ok && n <= len(d.Plan.Columns) {
			i = n - 1
		}
		if i < 0 {
			return raw.Column{}, d.noColumn(want, d.Plan.Columns, ", or its number")
		}
		return raw.Column{Name: d.Plan.Columns[i], Number: i + 1}, nil
	}
	if err := d.nameColumns(resolve, resolve); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		c, err := resolve("original")
		if err != nil {
			return err
		}
		d.Plan.URL = c
	}
	if d.Plan.TS == nil {
		if c, err := resolve("timestamp"); err == nil {
			d.Plan.TS, d.Plan.TSChosen = &c, true
		}
	}
	return nil
}

func (d *detector) planCDXJ() error {
	if err := d.nameColumns(jsonColumn, jsonColumn); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		d.Plan.URL = raw.Column{Name: "url"}
	}
	if d.opt.TSColumn == "" || d.opt.TSColumn == "timestamp" {
		d.Plan.TS, d.Plan.TSChosen = &raw.Column{Name: "timestamp", Number: 2}, d.opt.TSColumn == ""
	}
	return nil
}
