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

// table is the sample of an object, cut at one separator into cells.
type table struct {
	sep string
	// backslash is as raw.Plan.Backslash.
	backslash bool
	rows      [][]string
	width     int     // the most frequent number of cells in a row
	share     float64 // the share of the rows that have width cells
	// header is the row of the header, from 1; 0 for none. class is that of its best name.
	header, class int
}

// separators are the separators between the cells of a table.
var separators = []string{"\t", ",", ";", "|"}

// readTable reads up to rows rows as a table. An empty sep means a single column. Backslashes
// escape if fewer rows are malformed then or have another width than most, or if no more are and a
// field is \N.
func (d *detector) readTable(sep, format string, rows int) *table {
	cut := tableCut{sep, format, rows}
	if d.tables[cut] == nil {
		d.tables[cut] = d.findTable(cut)
	}
	return d.tables[cut]
}

// tableCut is how the sample is cut into a table.
type tableCut struct {
	sep, format string
	rows        int
}

// findTable is readTable for a table that was not read before.
func (d *detector) findTable(cut tableCut) *table {
	t, sep := d.cutTable(cut, false), cut.sep
	escapes := func(s string) bool { return bytes.Contains(d.text, []byte(`\`+s)) }
	if cut.format == raw.Spaced || !escapes("") || !slices.ContainsFunc([]string{`"`, sep, "\n", "\r", "N"}, escapes) {
		return t
	}
	e := d.cutTable(cut, true)
	null := slices.ContainsFunc(t.rows, func(row []string) bool { return slices.Contains(row, `\N`) })
	if e.odd() < t.odd() || null && e.odd() == t.odd() {
		return e
	}
	return t
}

// odd returns how many rows are malformed or have another width than most, comments above the table
// left out.
func (t *table) odd() int {
	n := 0
	for i, row := range t.rows {
		comment := i < titleRows && len(row) == 1 && strings.HasPrefix(row[0], "#")
		if row == nil || len(row) != t.width && !comment {
			n++
		}
	}
	return n
}

// cutTable is readTable with or without backslashes that escape.
func (d *detector) cutTable(cut tableCut, backslash bool) *table {
	content := d.text
	if !d.whole {
		// The last row may continue past the head.
		if i := bytes.LastIndexByte(content, d.eol()); i >= 0 {
			content = content[:i+1]
		}
	}
	var r interface {
		Next() (cells [][]byte, reason string, err error)
	} = text.NewRows(d.input(content), cut.format, cut.sep, backslash)
	if cut.format == raw.Spaced {
		r = text.NewSpacedRows(d.input(content))
	}
	t := &table{sep: cut.sep, backslash: backslash}
	for len(t.rows) < cut.rows {
		cells, reason, err := r.Next()
		if err != nil {
			break
		}
		var row []string
		if reason == "" {
			row = make([]string, len(cells))
			for i, cell := range cells {
				row[i] = string(text.TrimSpace(cell))
			}
		}
		// A row that cannot be read counts, because the reader counts it for Plan.HeaderRow.
		t.rows = append(t.rows, row)
	}
	t.measure()
	return t
}

// measure finds the width and the header of the rows.
func (t *table) measure() {
	widths := make(map[int]int)
	for _, row := range t.rows {
		if row != nil {
			widths[len(row)]++
		}
	}
	for w, n := range widths {
		if share := float64(n) / float64(len(t.rows)); share > t.share || share == t.share && w > t.width {
			t.width, t.share = w, share
		}
	}
	t.findHeader()
}

// findHeader looks for a row with a name for URLs before the first row with a URL. Of several it
// takes the one with the most cells filled: a title above the header has fewer.
func (t *table) findHeader() {
	most := 0
	for i, row := range t.rows[:min(len(t.rows), titleRows)] {
		for _, c := range row {
			if looksURL(c) || looksHost(c) && nameClass(c) == 0 {
				return
			}
		}
		filled, best := 0, 0
		for _, c := range row {
			if c != "" {
				filled++
			}
			if class := nameClass(c); class > 0 && (best == 0 || class < best) {
				best = class
			}
		}
		if best > 0 && (filled > most || filled == most && best < t.class) {
			t.header, t.class, most = i+1, best, filled
		}
	}
}

// onlyHeader reports whether the table has no rows but its header, and makes a single row of names
// that.
func (t *table) onlyHeader() bool {
	if t.header == 0 && len(t.rows) == 1 && len(t.rows[0]) > 1 && !slices.ContainsFunc(t.rows[0], isNoName) {
		t.header = 1
	}
	return t.header > 0 && t.header == len(t.rows)
}

// isNoName reports whether a cell cannot be the name of a column.
func isNoName(c string) bool {
	return c == "" || len(c) > 64 || c[0]|0x20 < 'a' || c[0]|0x20 > 'z' || strings.ContainsAny(c, "./:@")
}

// columnNames returns the cells of the header. A column whose cell is empty, or the same as an
// earlier one, is named by its number.
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

// values returns the cells of column i that are not empty, without those in the first skip rows.
func (t *table) values(i, skip int) []string {
	var v []string
	for _, row := range t.rows[min(skip, len(t.rows)):] {
		if i < len(row) && row[i] != "" {
			v = append(v, row[i])
		}
	}
	return v
}

// few reports whether so many of values may be exceptions: one in ten or, among few values, the two
// that a stray line break makes of one record.
func few(exceptions, values int) bool {
	return exceptions*10 <= values || exceptions <= min(2, values/4)
}

// mostly reports whether f is true of the values with few exceptions. Without values it is false.
func mostly[T any](values []T, f func(T) bool) bool {
	missed := 0
	for _, v := range values {
		if f(v) {
			continue
		}
		if missed++; !few(missed, len(values)) {
			return false
		}
	}
	return len(values) > 0
}

// half reports whether f is true of at least half of the values. Without values it is false.
func half(values []string, f func(string) bool) bool {
	n := 0
	for _, v := range values {
		if f(v) {
			n++
		}
	}
	return n > 0 && n*2 >= len(values)
}

// sniffTable returns TSV or CSV for a table, else Lines.
func (d *detector) sniffTable() string {
	if d.hasExt(".tsv", ".tab") {
		return raw.TSV
	}
	if d.hasExt(".csv") || d.opt.URLColumn != "" {
		t := d.bestTable(true)
		switch {
		case t != nil && t.sep == "\t" && !d.hasExt(".csv"):
			return raw.TSV
		case t == nil && !d.hasExt(".csv") && d.isSpaced(true):
			return raw.Spaced
		}
		return raw.CSV
	}
	if t := d.bestTable(false); t != nil {
		if t.sep == "\t" {
			return raw.TSV
		}
		return raw.CSV
	}
	// A single column with a header.
	if t := d.readTable("", raw.CSV, titleRows); t.header > 0 && !isWordClass(t.class) {
		return raw.CSV
	}
	if d.isSpaced(false) || d.hasWords() {
		return raw.Spaced
	}
	return raw.Lines
}

// isSpaced reports whether the lines are the rows of a table between blanks and not URLs with
// blanks inside. All but few have the same number of fields, and URLs in the same one; and the
// header names it, or a field stands before the URL, or the others hold nothing that could continue
// a URL. If the columns are aligned, one such field is enough. sure means that the object is known
// to be a table.
func (d *detector) isSpaced(sure bool) bool {
	if !d.firstLines(func(l []byte) bool {
		return bytes.ContainsAny(text.TrimSpace(l), " \t")
	}) {
		return false
	}
	t := d.readTable(" ", raw.Spaced, sampleRows)
	if t.width < 2 || !few(t.odd(), len(t.rows)) || t.header > 0 && len(t.rows[t.header-1]) != t.width {
		return false
	}
	if sure {
		return true
	}
	url := -1
	for i := range t.width {
		if v := t.values(i, t.header); mostly(v, looksURL) && few(len(t.rows)-t.header-len(v), len(t.rows)) {
			url = i
			break
		}
	}
	hosts := url < 0
	for i := 0; i < t.width && url < 0; i++ {
		if v := t.values(i, t.header); mostly(v, looksName) || areReversed(v) {
			url = i
		}
	}
	if url < 0 {
		return false
	}
	if !hosts && url > 0 || t.header > 0 {
		return true
	}
	typed, links := 0, 0
	for i := range t.width {
		v := t.values(i, 0)
		if mostly(v, looksURL) {
			links++
		}
		if i != url && mostly(v, looksTyped) && few(len(t.rows)-len(v), len(t.rows)) {
			typed++
		}
	}
	return len(t.rows) > 1 && links < t.width && (typed == t.width-1 || typed > 0 && d.aligned())
}

// hasWords reports whether all but few lines begin with a URL, and most have words behind it.
func (d *detector) hasWords() bool {
	if !slices.ContainsFunc(d.lines(), func(l []byte) bool {
		l = text.TrimSpace(l)
		return bytes.IndexByte(l, ' ') > 0 || bytes.IndexByte(l, '\t') > 0
	}) {
		return false
	}
	urls, words := 0, 0
	for _, l := range d.lines() {
		l = text.TrimSpace(l)
		url := l
		if i := bytes.IndexAny(l, " \t"); i >= 0 {
			url = l[:i]
		}
		if looksURL(url) && strings.IndexByte(",;|", url[len(url)-1]) < 0 {
			urls++
			if text.HasWords(l) {
				words++
			}
		}
	}
	return urls > 0 && few(len(d.lines())-urls, len(d.lines())) && words*2 > urls
}

// aligned reports whether half of the lines have two blanks in a row, or a tab.
func (d *detector) aligned() bool {
	lines, n := d.lines(), 0
	for _, l := range lines {
		if l = text.TrimSpace(l); bytes.Contains(l, []byte("  ")) || bytes.IndexByte(l, '\t') >= 0 {
			n++
		}
	}
	return n*2 >= len(lines)
}

// looksTyped reports whether v is something that does not continue a URL: a number, a time, an
// address, a URL or a media type.
func looksTyped(v string) bool {
	_, err := strconv.ParseFloat(v, 64)
	return err == nil || v == "-" || looksDate(v) || looksURL(v) || isIP(v) || isMIME(v)
}

// bestTable cuts the sample at the separator that makes the best table of it. It returns nil if no
// separator makes one. sure means that the object is known to be a table.
func (d *detector) bestTable(sure bool) *table {
	var best *table
	for _, sep := range separators {
		if !bytes.Contains(d.text, []byte(sep)) {
			continue
		}
		format := raw.CSV
		if sep == "\t" {
			format = raw.TSV
		}
		t := d.readTable(sep, format, sampleRows)
		// Without a header, only rows of one width show that the text is a table.
		if t.width < 2 || t.share < 0.5 || t.header == 0 && !few(t.odd(), len(t.rows)) {
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

// typed reports whether a table without a header has a URL column and a second column of URLs or
// dates. Columns of nothing but URLs are a list with several URLs in a line. A column of numbers
// does not count: it may be the end of URLs that contain commas. URLs contain no tabs, so that with
// these any second column counts. Hosts contain no separators, so that beside these any column
// counts that has none.
func (t *table) typed() bool {
	if len(t.rows) < 2 && t.sep != "\t" {
		return false
	}
	links, urls, names, others := 0, 0, 0, 0
	for i := range t.width {
		v := t.values(i, 0)
		switch {
		case len(v) == 0:
			others++ // a separator ends the lines
		case len(v)*2 < len(t.rows):
		case mostly(v, looksURL):
			links++
			urls++
		case t.sep == "\t" && mostly(v, looksURLOrHost):
			urls++
		case mostly(v, looksName), areReversed(v):
			names++
		case t.sep == "\t" || mostly(v, looksDate):
			others++
		}
	}
	return links < t.width && (urls > 0 && urls+names+others > 1 || urls == 0 && names == 1)
}

// planTable plans a CSV or TSV table.
func (d *detector) planTable(format string) error {
	var t *table
	if format == raw.TSV {
		t = d.readTable("\t", raw.TSV, sampleRows)
	} else if format == raw.Spaced {
		t = d.readTable(" ", raw.Spaced, sampleRows)
	} else if t = d.bestTable(true); t == nil {
		t = d.readTable("", raw.CSV, sampleRows)
		t.width = 1
	} else if t.sep == "\t" {
		t = d.readTable("\t", raw.CSV, sampleRows)
	}
	d.plan.Separator, d.plan.Backslash = t.sep, t.backslash
	d.plan.LongRow = d.longRow()
	if err := d.planColumns(t); err != nil {
		return err
	}
	if t.sep == "" || format == raw.Spaced {
		return nil
	}
	d.plan.MaxCells = t.maxCells(len(d.plan.Columns))
	if t.sep == "\t" {
		return nil // no URL has one
	}
	if d.plan.URL.Number == len(d.plan.Columns) {
		d.plan.MaxCells = len(d.plan.Columns)
	}
	if t.header > 0 && d.opt.URLColumn == "" && len(t.rows[t.header-1]) == d.plan.URL.Number &&
		len(t.values(d.plan.URL.Number, t.header))*2 > len(t.rows)-t.header {
		return d.reject(fmt.Sprintf("its header ends with %q and its rows go on, perhaps with more of the URL, behind the separator %q",
			d.plan.URL.Name, t.sep), "complete the header, quote the URLs, or name their column (--url-column)")
	}
	return nil
}

// maxCells returns the number of columns, or how many cells the widest row has if more than few
// rows have more cells than columns.
func (t *table) maxCells(columns int) int {
	widest, wider := columns, 0
	for _, row := range t.rows {
		n := len(row)
		for n > columns && row[n-1] == "" {
			n--
		}
		if n > columns {
			widest = max(widest, n)
			wider++
		}
	}
	if few(wider, len(t.rows)) {
		return columns
	}
	return widest
}

// longRow returns five quarters of the usual length of a line: two rows in a line are mostly
// longer, and few others are looked at.
func (d *detector) longRow() int {
	var lengths []int
	for _, l := range d.lines() {
		lengths = append(lengths, len(l))
	}
	if len(lengths) == 0 {
		return 0
	}
	slices.Sort(lengths)
	return lengths[len(lengths)/2] * 5 / 4
}

// planColumns chooses the columns of a table.
func (d *detector) planColumns(t *table) error {
	named := []string{d.opt.URLColumn, d.opt.TSColumn, d.opt.SizeField}
	wanted, _ := d.opt.WantsExtras()
	for _, x := range wanted {
		if x != "*" {
			named = append(named, x)
		}
	}
	t.findHeaderWith(named)
	url := -1
	if d.opt.URLColumn == "" {
		url = d.chooseColumn(t)
		if url < 0 && d.whole && t.onlyHeader() {
			d.note("it has a header and no rows")
			url = max(0, slices.IndexFunc(t.rows[t.header-1], func(c string) bool { return nameClass(c) > 0 }))
		}
		if url < 0 && len(t.rows) > 0 {
			what := "its columns are " + raw.QuoteNames(t.columnNames())
			if t.header == 0 {
				what = "its first row is " + raw.QuoteNames(t.rows[0])
			}
			return d.reject("no column of this table looks like URLs; "+what,
				"name one, or give its number (--url-column)")
		}
	} else if n, ok := raw.ColumnNumber(d.opt.URLColumn); ok && t.header == 0 {
		t.takeFirstRow(n - 1)
	}
	names := t.columnNames()
	d.plan.HeaderRow, d.plan.Columns = t.header, names

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
		d.plan.URL = raw.Column{Name: names[url], Number: url + 1}
		if err := d.checkHosts(t.values(url, t.header), t.header > 0 && isHostClass(nameClass(names[url]))); err != nil {
			return err
		}
	case d.opt.URLColumn == "":
		d.plan.URL = raw.Column{Name: "1", Number: 1} // an empty table
	}
	if err := d.planNamed(resolve, resolve); err != nil {
		return err
	}
	var candidates []*timeColumn
	for i, name := range names {
		if i+1 != d.plan.URL.Number {
			c := d.newTimeColumn(raw.Column{Name: name, Number: i + 1}, name)
			for _, v := range t.values(i, t.header) {
				c.observe(d, v)
			}
			candidates = append(candidates, c)
		}
	}
	d.chooseTime(candidates)
	return nil
}

// planNamed plans the columns that the options name. column resolves the name of a column, extra
// that of an extra. An extra that is named twice is planned once.
func (d *detector) planNamed(column, extra func(want string) (raw.Column, error)) error {
	if want := d.opt.URLColumn; want != "" {
		c, err := column(want)
		if err != nil {
			return err
		}
		d.plan.URL = c
	}
	for _, o := range []struct {
		want string
		to   **raw.Column
	}{{d.opt.TSColumn, &d.plan.TS}, {d.opt.SizeField, &d.plan.Size}} {
		if o.want == "" {
			continue
		}
		if o.want == raw.None && o.to == &d.plan.TS {
			d.noTime = true
			continue
		}
		c, err := column(o.want)
		if err != nil {
			return err
		}
		*o.to = &c
	}
	if d.plan.AllExtras {
		return nil
	}
	wanted, _ := d.opt.WantsExtras()
	for _, x := range wanted {
		c, err := extra(x)
		if err != nil && slices.Contains(raw.CaptureFields, x) && slices.Contains(raw.CaptureFormats, d.plan.Format) {
			continue // other formats have it
		}
		if err != nil {
			return err
		}
		if !slices.Contains(d.plan.Extras, c) {
			d.plan.Extras = append(d.plan.Extras, c)
		}
	}
	return nil
}

// noColumn returns the error that rejects a name which no column has. or is added to its advice.
func (d *detector) noColumn(want string, names []string, or string) error {
	reason := fmt.Sprintf("there is no column %q; its columns are %s", want, raw.QuoteNames(names))
	return d.reject(reason, "name one of them"+or)
}

// findHeaderWith makes the first row that has one of the given names the header.
func (t *table) findHeaderWith(named []string) {
	for i, row := range t.rows[:min(len(t.rows), titleRows)] {
		for _, want := range named {
			// Digits are the number of a column. In the first row they may also be its name;
			// further down a cell with digits makes no header.
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

// takeFirstRow makes the first row the header if its cell i is no URL while those below are.
func (t *table) takeFirstRow(i int) {
	if len(t.rows) < 2 || i >= len(t.rows[0]) || t.rows[0][i] == "" || slices.ContainsFunc(t.rows[0], isIP) {
		return
	}
	if t.firstIsData(i) {
		return
	}
	c := t.rows[0][i]
	if !looksURL(c) && !(looksHost(c) && nameClass(c) == 0) && mostly(t.values(i, 1), looksURLOrHost) {
		t.header = 1
	}
}

// firstIsData reports whether the first row, whose cell i is no URL, has what no name of a column
// has: a URL or a part of one, or, if cell i is no number, a number or a date where the rows below
// have them. Years may be names.
func (t *table) firstIsData(i int) bool {
	for k, c := range t.rows[0] {
		if strings.Contains(c, "://") || strings.Contains(c, ".") && strings.Contains(c, "/") && !strings.Contains(c, " ") {
			return true
		}
		for _, is := range []func(string) bool{isNumber, looksDate} {
			if k != i && !isNumber(t.rows[0][i]) && is(c) && !isShortTime(c) && mostly(t.values(k, 1), is) {
				return true
			}
		}
	}
	return false
}

func isNumber(c string) bool { return c != "" && timestamp.AllDigits([]byte(c)) }

// chooseColumn returns the index of the URL column, -1 for none.
func (d *detector) chooseColumn(t *table) int {
	unproven := -1 // has a good name and no values that look like URLs
	if t.header > 0 {
		header := t.rows[t.header-1]
		best, bestClass := -1, 0
		var also []string
		for i, c := range header {
			class := nameClass(c)
			if class == 0 {
				continue
			}
			v := t.values(i, t.header)
			if !half(v, looksURLOrHost) {
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
	skip := max(t.header, min(1, len(t.rows)-1)) // the first row may be a header without a known name
	for i := range t.width {
		if v := t.values(i, skip); half(v, looksURL) && len(v)*2 >= len(t.rows)-1 {
			urls = append(urls, i)
		}
	}
	for _, is := range []func(string) bool{looksName, looksHost} { // names before addresses
		for i := 0; i < t.width && len(urls) == 0; i++ {
			if v := t.values(i, skip); areReversed(v) || unproven < 0 && mostly(v, is) {
				urls = append(urls, i)
			}
		}
	}
	if len(urls) == 0 && unproven >= 0 {
		return unproven
	}
	if len(urls) == 0 {
		// A single column is the URL. The reader rejects the values that are none.
		if t.width == 1 {
			return 0
		}
		return -1
	}
	if t.header == 0 {
		t.takeFirstRow(urls[0])
	}
	names := t.columnNames()
	if len(urls) == 1 {
		if t.width > 1 {
			d.note("the URL column is %q, by its values", names[urls[0]])
		}
		return urls[0]
	}
	// Of several, choose the one with the most different values: pages and not the sitemap they are
	// in.
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
	d.note("the URL column is %q, which varies most of those that look like URLs; so do %s (--url-column chooses)",
		names[best], raw.QuoteNames(also))
	return best
}
