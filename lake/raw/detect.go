package raw

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// sampleRows is how many rows, lines or documents of the head are looked at.
	sampleRows = 1000
	// titleRows is how far down a header may stand, below titles and remarks.
	titleRows = 5
	// sampleDepth is how deep inside a JSON document a URL is looked for.
	sampleDepth = 4
)

// Detect decides how an object is to be read. head is the beginning of the decompressed
// object, HeadSize bytes or all of it; name is its key or path. It fails with a *FormatError
// for what this package does not read, and where no URL column can be told.
//
// Format Auto: JSON, CDX and CDXJ by their syntax. Of the rest, text is a table if cutting it
// at one separator (tab , ; or |) gives rows of one width and either the name says .csv or
// .tsv, or a header names a URL column, or beside the URLs a second column holds URLs or dates
// (behind a tab, anything); else it is a list. So a list of URLs with commas in them stays one.
//
// URL column: of the columns with one of the names below whose values look like URLs or
// hosts, the one with the best name, then the first one:
//
//	url, urls  >  uri, uris, iri, href, u  >  link, links, permalink, original
//	>  any name with the word url  >  … uri, href, link
//	>  website, homepage, webpage, site  >  domain, hostname, host, fqdn  >  … any of these
//
// Case, plural and separators do not matter (sourceUrl, target_url, "Post URL"). In JSON,
// members further up go before better names, down to four levels of objects. Without such a
// name it is the first column whose values look like URLs, then the first that looks like
// hosts. A header is a first row with such a name, or one whose URL cell is no URL while the
// cells below are.
//
// What was guessed among several is in Plan.Notes.
func Detect(name string, head []byte, opt Options) (Plan, error) {
	opt, err := opt.check()
	if err != nil {
		return Plan{}, err
	}
	if err := refuse(name, head); err != nil {
		return Plan{}, err
	}
	d, err := newDetector(name, head, opt)
	if err != nil {
		return Plan{}, err
	}
	if bytes.IndexByte(d.text, '\n') < 0 {
		// Line ends of old Macs; a single CR at the end is half a CRLF.
		i := bytes.IndexByte(d.text, '\r')
		d.plan.CRLines = i >= 0 && i < len(d.text)-1
	}
	if err := d.detect(); err != nil {
		return Plan{}, err
	}
	return d.plan, nil
}

// newDetector takes checked options.
func newDetector(name string, head []byte, opt Options) (*detector, error) {
	d := &detector{name: name, ext: extension(name), opt: opt, whole: len(head) < HeadSize,
		text: bytes.TrimPrefix(head, bom)}
	var err error
	if d.time, err = newTimeFormat(opt.TSFormat); err != nil {
		return nil, err
	}
	d.plan = Plan{Compression: noCompression, MaxLine: opt.MaxLine, TSFormat: opt.TSFormat,
		AllExtras: slices.Contains(opt.Extras, "*")}
	return d, nil
}

type detector struct {
	name, ext string
	opt       Options
	whole     bool
	text      []byte
	time      timeFormat
	plan      Plan
}

// extension returns the name's extension below that of a compression, in lower case.
func extension(name string) string {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, `\`, "/")))
	ext := path.Ext(name)
	switch ext {
	case ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz":
		ext = path.Ext(strings.TrimSuffix(name, ext))
	}
	return ext
}

func (d *detector) refuse(reason, advice string) error {
	return &FormatError{Name: d.name, Reason: reason, Advice: advice}
}

func (d *detector) note(format string, args ...any) {
	d.plan.Notes = append(d.plan.Notes, fmt.Sprintf(format, args...))
}

func (d *detector) detect() error {
	format := d.opt.Format
	if format == Parquet {
		return d.refuse("it is no Parquet file", "leave its format to be recognised (--format auto)")
	}
	blank := len(trimSpace(d.text)) == 0
	if blank && format == Auto {
		format = Lines
	}
	if blank && d.whole {
		// No records, whatever they would have been: no column is missing.
		d.plan.Format = format
		return nil
	}
	if format == Auto {
		var err error
		if format, err = d.sniff(); err != nil {
			return err
		}
	}
	d.plan.Format = format
	switch format {
	case Lines:
		if d.opt.URLColumn+d.opt.TSColumn+d.opt.SizeField != "" || len(d.opt.Extras) > 0 && !d.plan.AllExtras {
			return d.refuse("it is a list of URLs, which has no columns to name", "leave the column options out, or say its format (--format csv)")
		}
		return nil
	case JSONLines, JSON:
		return d.planJSON()
	case CDX:
		return d.planCDX()
	case CDXJ:
		return d.planCDXJ()
	}
	return d.planTable(format)
}

// sniff decides the format.
func (d *detector) sniff() (string, error) {
	start := bytes.TrimLeft(d.text, " \t\r\n\v\f\x1e")
	if isCDXHeader(d.text) {
		return CDX, nil
	}
	if len(start) == 0 {
		return Lines, nil // record separators (RFC 7464) and nothing between them
	}
	lines := d.lines()
	switch start[0] {
	case '<':
		return "", d.refuse("it is XML or HTML, which is not read", "extract its URLs first")
	case '{':
		return d.sniffObjects(lines), nil
	case '[':
		if next := bytes.TrimLeft(start[1:], " \t\r\n"); len(next) == 0 || strings.IndexByte(`{["]`, next[0]) >= 0 {
			return JSON, nil
		}
	case '"':
		if d.stringLines(lines) {
			return JSONLines, nil
		}
	}
	share := func(f func([]byte) bool) bool {
		n := 0
		for _, l := range lines {
			if f(l) {
				n++
			}
		}
		return n > 0 && n*10 >= len(lines)*9
	}
	switch {
	case share(isCDXJLine):
		return CDXJ, nil
	case share(isZipNumLine):
		return "", d.refuse("it is the index of a ZipNum cluster and not its URLs", "give the .cdx.gz files it points to")
	case share(isCDXLine):
		return CDX, nil
	case share(isAccessLogLine):
		return "", d.refuse("it is a web server's access log, which is not read", "write its URLs as text or JSON Lines first")
	}
	return d.sniffTable(), nil
}

// lines returns the first lines of the head that are neither blank nor comments. A last line
// that the head may have cut is left out, unless it is the only one.
func (d *detector) lines() [][]byte {
	var lines [][]byte
	in := d.sample(d.text)
	for len(lines) < sampleRows {
		line, long, err := in.readLine()
		if err != nil {
			break
		}
		if long {
			continue
		}
		if l := trimSpace(line); len(l) > 0 && l[0] != '#' {
			if in.r == in.w && !d.complete() && len(lines) > 0 {
				break
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// complete reports whether the head ends where a line ends.
func (d *detector) complete() bool {
	return d.whole || len(d.text) > 0 && d.text[len(d.text)-1] == d.eol()
}

func (d *detector) eol() byte {
	if d.plan.CRLines {
		return '\r'
	}
	return '\n'
}

// sample is an input over text.
func (d *detector) sample(text []byte) *input {
	return &input{buf: text, w: len(text), line: 1, eol: d.eol(), max: d.opt.MaxLine, err: io.EOF}
}

// sniffObjects tells JSON Lines from documents that go over lines.
func (d *detector) sniffObjects(lines [][]byte) string {
	var doc jsonDoc
	for i, l := range lines {
		if doc.parse(trimJSONLine(l)) {
			return JSONLines
		}
		if i == 0 && doc.short && len(lines) > 1 {
			return JSON
		}
	}
	return JSONLines
}

func trimJSONLine(l []byte) []byte { return trimSpace(bytes.TrimLeft(l, "\x1e")) }

// stringLines reports whether the lines are JSON strings rather than one quoted CSV column:
// a CSV has a header, or its name says so.
func (d *detector) stringLines(lines [][]byte) bool {
	if d.ext == ".csv" || d.ext == ".tsv" || d.ext == ".tab" {
		return false
	}
	var doc jsonDoc
	for i, l := range lines {
		if !doc.parse(trimJSONLine(l)) || doc.nodes[0].kind != '"' || i == 0 && !looksURL(doc.text(&doc.nodes[0])) {
			return false
		}
	}
	return true
}

func isCDXJLine(l []byte) bool {
	_, ts, text, ok := cutCDXJ(l)
	return ok && isCDXTime(ts) && len(text) > 0 && text[0] == '{'
}

func isCDXLine(l []byte) bool {
	f := bytes.Split(l, []byte{' '})
	return len(f) >= 6 && isCDXTime(f[1]) && bytes.IndexByte(f[2], ':') > 0
}

func isZipNumLine(l []byte) bool {
	f := bytes.Split(l, []byte{'\t'})
	_, ts, _ := bytes.Cut(f[0], []byte{' '})
	return len(f) >= 4 && isCDXTime(ts) && allDigits(f[2]) && allDigits(f[3])
}

func isCDXTime(b []byte) bool {
	_, ok := parseDigits(b)
	return ok && len(b) >= 12 && allDigits(b)
}

// isAccessLogLine knows the common and the combined log format.
func isAccessLogLine(l []byte) bool {
	i := bytes.Index(l, []byte(" ["))
	j := bytes.Index(l, []byte(`] "`))
	return i > 0 && j > i && bytes.Count(l[:i], []byte{' '}) <= 4 && bytes.IndexByte(l[j+3:], '"') >= 0 && bytes.IndexByte(l[i:j], ':') > 0
}

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
	text := d.text
	if !d.whole {
		// Not the row that the head cuts.
		if i := bytes.LastIndexByte(text, d.eol()); i >= 0 {
			text = text[:i+1]
		}
	}
	var counts Counts
	p := newCSVParser(d.sample(text), Plan{Format: format, Separator: sep}, fields{}, &counts)
	p.width = len(text) + 1
	t := &table{sep: sep}
	widths := make(map[int]int)
	for len(t.rows) < rows {
		reason, err := p.read()
		if err != nil {
			break
		}
		if reason == "" && p.blank() {
			continue
		}
		var row []string
		if reason == "" {
			p.scratch = p.scratch[:0]
			for i := range p.cells {
				row = append(row, string(trimSpace(p.cell(i))))
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

func (d *detector) named(ext ...string) bool { return slices.Contains(ext, d.ext) }

// sniffTable tells tables from lists.
func (d *detector) sniffTable() string {
	if d.named(".tsv", ".tab") {
		return TSV
	}
	if d.named(".csv") || d.opt.URLColumn != "" {
		if t := d.bestTable(separators, true); t != nil && t.sep == "\t" && !d.named(".csv") {
			return TSV
		}
		return CSV
	}
	if t := d.bestTable(separators, false); t != nil {
		if t.sep == "\t" {
			return TSV
		}
		return CSV
	}
	// One column below its name.
	if t := d.readTable("", CSV, titleRows); t.header > 0 && !wordClass(t.class) {
		return CSV
	}
	return Lines
}

// bestTable is the sample cut at the separator that makes the best table of it, nil if none
// does. sure is set where it is known to be a table.
func (d *detector) bestTable(seps []string, sure bool) *table {
	var best *table
	for _, sep := range seps {
		if !bytes.Contains(d.text, []byte(sep)) {
			continue // one column
		}
		format := CSV
		if sep == "\t" {
			format = TSV
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
	if format == TSV {
		t = d.readTable("\t", TSV, sampleRows)
	} else if t = d.bestTable(separators, true); t == nil {
		t = d.readTable("", CSV, sampleRows)
		t.width = 1
	} else if t.sep == "\t" {
		t = d.readTable("\t", CSV, sampleRows)
	}
	d.plan.Separator = t.sep

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
			what := "its columns are " + quoteNames(t.columnNames())
			if t.header == 0 {
				what = "its first row is " + quoteNames(t.rows[0])
			}
			return d.refuse("no column of this table looks like URLs; "+what, "name one, or give its number (--url-column)")
		}
	} else if n, ok := columnNumber(d.opt.URLColumn); ok && t.header == 0 {
		// Named by number: a first row whose cell is no URL while those below are is a header.
		t.headerAbove(n - 1)
	}
	names := t.columnNames()
	d.plan.HeaderRow, d.plan.Columns = t.header, names

	resolve := func(want string) (Column, error) {
		if n, ok := columnNumber(want); ok && n <= len(names) {
			return Column{Name: names[n-1], Number: n}, nil
		}
		i := slices.Index(names, want)
		if i < 0 {
			i = slices.IndexFunc(names, func(s string) bool { return strings.EqualFold(s, want) })
		}
		if i < 0 {
			return Column{}, d.noColumn(want, names, ", or its number")
		}
		return Column{Name: names[i], Number: i + 1}, nil
	}
	switch {
	case url >= 0:
		d.plan.URL = Column{Name: names[url], Number: url + 1}
	case d.opt.URLColumn == "":
		d.plan.URL = Column{Name: "1", Number: 1} // an empty table
	}
	if err := d.nameColumns(resolve, resolve); err != nil || d.plan.TS != nil {
		return err
	}
	if i := slices.IndexFunc(names, isTSName); i >= 0 && i+1 != d.plan.URL.Number {
		if v := t.values(i, t.header); len(v) > 0 && share(v, d.isTime) == 1 {
			d.plan.TS, d.plan.TSChosen = &Column{Name: names[i], Number: i + 1}, true
		}
	}
	return nil
}

// nameColumns plans the columns that were asked for by name, extras each once.
func (d *detector) nameColumns(column, extra func(want string) (Column, error)) error {
	if want := d.opt.URLColumn; want != "" {
		c, err := column(want)
		if err != nil {
			return err
		}
		d.plan.URL = c
	}
	for _, o := range []struct {
		want string
		to   **Column
	}{{d.opt.TSColumn, &d.plan.TS}, {d.opt.SizeField, &d.plan.Size}} {
		if o.want == "" {
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
	for _, x := range d.opt.Extras {
		c, err := extra(x)
		if err != nil {
			return err
		}
		if !slices.Contains(d.plan.Extras, c) {
			d.plan.Extras = append(d.plan.Extras, c)
		}
	}
	return nil
}

// noColumn refuses a name that none of the columns has.
func (d *detector) noColumn(want string, names []string, or string) error {
	return d.refuse(fmt.Sprintf("there is no column %q; its columns are %s", want, quoteNames(names)), "name one of them"+or)
}

// columnNumber reads a column given as a number from 1.
func columnNumber(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1
}

func quoteNames(names []string) string {
	const most = 20
	var s []string
	for _, n := range names[:min(len(names), most)] {
		s = append(s, strconv.Quote(n))
	}
	if len(names) > most {
		s = append(s, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(s, ", ")
}

// headerOf makes the first row that has one of the names the header, if names are asked for.
func (t *table) headerOf(named []string) {
	for i, row := range t.rows[:min(len(t.rows), titleRows)] {
		for _, want := range named {
			// Digits are a number, or the name that a program gave a column; a cell with digits makes no header of its row.
			if _, number := columnNumber(want); want == "" || number || i > 0 && allDigits([]byte(want)) {
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
	if !looksURL(c) && !(looksHost(c) && nameClass(c) == 0) && share(t.values(i, 1), looksURLOrHost) >= 0.9 {
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
			class := nameClass(c)
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
	d.note("the URL column is %q, which varies most of those that look like URLs; so do %s (--url-column chooses)", names[best], quoteNames(also))
	return best
}

// CDX.

func (d *detector) planCDX() error {
	legend := ""
	if isCDXHeader(d.text) {
		line, _, _ := bytes.Cut(d.text, []byte{d.eol()})
		_, l, _ := strings.Cut(string(line), "CDX ")
		legend = strings.TrimSpace(l)
	} else if lines := d.lines(); len(lines) > 0 {
		n := len(bytes.Fields(lines[0]))
		if legend = cdxLegends[n]; legend == "" {
			legend = cdxLegends[11]
			d.note("lines of %d fields and no legend are read by that of 11: %s", n, legend)
		}
	} else {
		legend = cdxLegends[11]
	}
	letters := strings.Fields(legend)
	for i, l := range letters {
		name := ""
		if len(l) == 1 {
			name = cdxNames[l[0]]
		}
		if name == "" || slices.Contains(d.plan.Columns, name) {
			name = l + strconv.Itoa(i+1)
		}
		d.plan.Columns = append(d.plan.Columns, name)
	}
	d.plan.Separator = " "
	resolve := func(want string) (Column, error) {
		i := slices.Index(d.plan.Columns, want)
		if n, ok := columnNumber(want); ok && n <= len(d.plan.Columns) {
			i = n - 1
		}
		if i < 0 {
			return Column{}, d.noColumn(want, d.plan.Columns, ", or its number")
		}
		return Column{Name: d.plan.Columns[i], Number: i + 1}, nil
	}
	if err := d.nameColumns(resolve, resolve); err != nil {
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

func (d *detector) planCDXJ() error {
	if err := d.nameColumns(jsonColumn, jsonColumn); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		d.plan.URL = Column{Name: "url"}
	}
	if d.opt.TSColumn == "" || d.opt.TSColumn == "timestamp" {
		d.plan.TS, d.plan.TSChosen = &Column{Name: "timestamp", Number: 2}, d.opt.TSColumn == ""
	}
	return nil
}

// JSON.

// jsonColumn is a column of JSON: the path as the caller gave it.
func jsonColumn(path string) (Column, error) { return Column{Name: path}, nil }

// leaf is a member of the sampled documents and what its values look like.
type leaf struct {
	path                       []string
	class                      int
	values, urls, hosts, times int
}

// noteAbsent says which of the members asked for are in none of the sampled records. They may come later, so it is no
// error; more often the name is wrong.
func (d *detector) noteAbsent(docs []*jsonDoc) {
	if len(docs) < 2 {
		return // one document may be a map of records
	}
	for _, name := range append([]string{d.opt.URLColumn, d.opt.TSColumn, d.opt.SizeField}, d.opt.Extras...) {
		if name == "" || name == "*" {
			continue
		}
		path := splitPath(name)
		if !slices.ContainsFunc(docs, func(doc *jsonDoc) bool { return len(doc.nodes) > 0 && doc.find(0, path) > 0 }) {
			d.note("no record at the beginning has the member %q", name)
		}
	}
}

func (d *detector) planJSON() error {
	if err := d.nameColumns(jsonColumn, jsonColumn); err != nil {
		return err
	}
	docs := d.documents()
	var leaves []*leaf
	strs, objects := 0, 0
	for _, doc := range docs {
		switch {
		case len(doc.nodes) == 0:
		case doc.nodes[0].kind == '"':
			strs++
		case doc.nodes[0].kind == '{':
			objects++
			leaves = d.collect(leaves, doc, 0, nil)
		}
	}
	d.noteAbsent(docs)
	d.chooseTS(leaves)
	if d.opt.URLColumn != "" {
		if path := splitPath(d.opt.URLColumn); len(docs) == 1 && objects == 1 && docs[0].find(0, path) == 0 {
			d.planMap(docs[0])
		}
		return nil
	}
	if objects == 0 && strs > 0 {
		return nil
	}
	if len(docs) == 0 {
		d.plan.URL.Name = "url"
		return nil
	}
	best, also := chooseLeaf(leaves, len(docs))
	if len(docs) == 1 && (best == nil || len(best.path) > 1) && d.planMap(docs[0]) {
		return nil
	}
	if len(docs) == 1 && isMISP(d.text) {
		return d.refuse("it is a MISP event, whose attributes are URLs, hosts and other things",
			`write the URLs as lines first (jq -r '.. | objects | select(.type? | IN("url", "uri", "domain", "hostname")) | .value')`)
	}
	if best == nil {
		return d.refuse("no member of its JSON objects looks like a URL",
			"name it by its path (--url-column attributes.url), or write its records as lines first (jq -c '.. | objects | select(.url)')")
	}
	if len(docs) == 1 && len(best.path) > 1 {
		return d.refuse("it is one JSON document with its URLs inside, not a sequence of records",
			"write its records as lines first (jq -c '.[]', or jq -c '.. | objects | select(.url)')")
	}
	d.plan.URL.Name = joinPath(best.path)
	d.noteURL(best, also)
	return nil
}

// chooseTS makes a member called ts or timestamp the time, if nobody named one and all its values are times.
func (d *detector) chooseTS(leaves []*leaf) {
	if d.opt.TSColumn != "" {
		return
	}
	d.plan.TS, d.plan.TSChosen = nil, false
	for _, l := range leaves {
		if len(l.path) == 1 && isTSName(l.path[0]) && l.values > 0 && l.times == l.values {
			d.plan.TS, d.plan.TSChosen = &Column{Name: joinPath(l.path)}, true
			return
		}
	}
}

// noteURL says which member was chosen for the URL where that is not plain.
func (d *detector) noteURL(best *leaf, also []string) {
	if best.class == 0 || len(also) > 0 || len(best.path) > 1 {
		d.note("the URL is read from %q%s (--url-column chooses)", d.plan.URL.Name, couldBe(also))
	}
}

// couldBe is the part of a note that names columns as good as the one chosen.
func couldBe(also []string) string {
	if len(also) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s could be it too", quoteNames(also))
}

// planMap makes a plan of a document that is one object around its records: whose members are records, or arrays or
// objects of records, and so on to sampleDepth. The records are at the first level where of at least
// two values nine of ten are objects, and a quarter of them have a URL under the name asked for or under one
// for URLs. That leaves scalars between the levels, which the reader rejects; and documents about one thing with
// links in it, which this does not take for a map.
func (d *detector) planMap(doc *jsonDoc) bool {
	if d.opt.Format == JSONLines || len(doc.nodes) == 0 || doc.nodes[0].kind != '{' {
		return false
	}
	level, want := []int{0}, splitPath(d.opt.URLColumn)
	for depth := 1; depth <= sampleDepth; depth++ {
		var values []int
		for _, node := range level {
			n := &doc.nodes[node]
			if n.kind != '{' && n.kind != '[' {
				continue
			}
			for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, doc.nodes[c].next {
				values = append(values, int(c))
			}
		}
		level = values
		var leaves, named []*leaf
		objects := 0
		for _, v := range values {
			if doc.nodes[v].kind == '{' {
				objects++
				leaves = d.collect(leaves, doc, v, nil)
				if at := doc.find(v, want); at > 0 {
					named = d.observe(named, doc, at, want)
				}
			}
		}
		if objects < 2 || objects*10 < len(values)*9 {
			continue
		}
		var best *leaf
		var also []string
		if want == nil {
			urls := slices.DeleteFunc(slices.Clone(leaves), func(l *leaf) bool {
				return l.urls+l.hosts == 0 || !isTSName(l.path[0]) && (len(l.path) > 1 || l.class == 0)
			})
			best, also = chooseLeaf(urls, objects)
		} else if len(named) > 0 && named[0].urls+named[0].hosts > 0 {
			best = named[0]
		}
		if best == nil || best.values*4 < objects {
			continue
		}
		d.plan.Format, d.plan.Depth = JSON, depth
		d.plan.URL.Name = joinPath(best.path)
		d.chooseTS(leaves)
		d.note("it is one JSON object around its records, at depth %d; their URL is %q%s (--url-column chooses)", depth, d.plan.URL.Name, couldBe(also))
		return true
	}
	return false
}

// isMISP knows an event of the Malware Information Sharing Platform (https://www.misp-standard.org/rfc/misp-standard-core.html).
func isMISP(text []byte) bool {
	return bytes.Contains(text, []byte(`"Event"`)) && bytes.Contains(text, []byte(`"orgc_id"`)) || bytes.Contains(text, []byte(`"Event"`)) && bytes.Contains(text, []byte(`"Attribute"`))
}

// documents parses the head's JSON values. A value that the head cuts counts with the
// members before the cut.
func (d *detector) documents() []*jsonDoc {
	var docs []*jsonDoc
	if d.plan.Format == JSONLines {
		for _, l := range d.lines() {
			doc := &jsonDoc{deep: true}
			if doc.parse(trimJSONLine(l)) || doc.short {
				docs = append(docs, doc)
			}
		}
		return docs
	}
	in := d.sample(d.text)
	in.max = len(d.text) // what is too long for a record may hold records
	p := &jsonParser{in: in}
	p.doc.deep = true
	for len(docs) < sampleRows {
		// next fills p.doc whatever it makes of the record.
		var rec Record
		var rej Reject
		p.doc = jsonDoc{deep: true}
		err := p.next(&rec, &rej)
		if err == errJSONCut {
			doc := &jsonDoc{deep: true}
			doc.parse(in.buf[in.r:in.w])
			docs = append(docs, doc)
		}
		if err != nil {
			break
		}
		if len(p.doc.nodes) > 0 && rej.Reason != BadJSON {
			doc := p.doc
			docs = append(docs, &doc)
		}
	}
	return docs
}

// collect adds the members below node to leaves, in the order they are first met.
func (d *detector) collect(leaves []*leaf, doc *jsonDoc, node int, at []string) []*leaf {
	n := doc.nodes[node]
	for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, doc.nodes[c].next {
		m := doc.nodes[c]
		p := append(slices.Clip(at), string(doc.name(&m)))
		if m.kind == '{' && len(p) < sampleDepth {
			leaves = d.collect(leaves, doc, int(c), p)
			continue
		}
		leaves = d.observe(leaves, doc, int(c), p)
	}
	return leaves
}

// observe adds a value to what leaves know of the member at path p.
func (d *detector) observe(leaves []*leaf, doc *jsonDoc, node int, p []string) []*leaf {
	m := doc.nodes[node]
	if m.kind != '"' && m.kind != '0' || m.end == 0 {
		return leaves
	}
	at := slices.IndexFunc(leaves, func(l *leaf) bool { return slices.Equal(l.path, p) })
	if at < 0 {
		if len(leaves) == maxLeaves {
			return leaves
		}
		at = len(leaves)
		leaves = append(leaves, &leaf{path: p, class: nameClass(p[len(p)-1])})
	}
	v := string(doc.text(&m))
	if m.escaped {
		v = string(appendUnescaped(nil, doc.text(&m)))
	}
	if v = strings.TrimSpace(v); v == "" {
		return leaves
	}
	l := leaves[at]
	l.values++
	if d.isTime(v) {
		l.times++
	}
	if m.kind == '"' && looksURL(v) {
		l.urls++
	} else if m.kind == '"' && looksHost(v) {
		l.hosts++
	}
	return leaves
}

// maxLeaves bounds the members compared: objects used as maps have a member a record.
const maxLeaves = 500

// chooseLeaf returns the URL member and the names of those as good.
func chooseLeaf(leaves []*leaf, docs int) (best *leaf, also []string) {
	better := func(a, b *leaf) bool {
		if len(a.path) != len(b.path) {
			return len(a.path) < len(b.path)
		}
		return a.class < b.class
	}
	choose := func(good func(*leaf) bool) bool {
		for _, l := range leaves {
			switch {
			case l.values == 0 || !good(l):
			case best == nil || better(l, best):
				best, also = l, nil
			case !better(best, l):
				also = append(also, joinPath(l.path))
			}
		}
		return best != nil
	}
	_ = choose(func(l *leaf) bool { return l.class > 0 && (l.urls+l.hosts)*2 >= l.values }) ||
		choose(func(l *leaf) bool { return l.urls*2 >= l.values && l.urls*2 >= docs }) ||
		// Nothing good under a good name: its values are rejected one by one.
		choose(func(l *leaf) bool { return l.class > 0 && l.class <= classLink && len(l.path) == 1 })
	return best, also
}

// Names and values.

// Classes of names, best first; 0 is no name for a URL.
const (
	classURL = 1 + iota
	classURI
	classLink
	classURLWord
	classURIWord
	classSite
	classHost
	classHostWord
)

// wordClass reports whether names of the class only contain the word.
func wordClass(class int) bool {
	return class == classURLWord || class == classURIWord || class == classHostWord
}

var urlNames = map[string]int{
	"url": classURL, "uri": classURI, "iri": classURI, "href": classURI, "u": classURI,
	"link": classLink, "permalink": classLink, "original": classLink,
	"website": classSite, "homepage": classSite, "webpage": classSite, "site": classSite,
	"domain": classHost, "hostname": classHost, "host": classHost, "fqdn": classHost,
}

// nameClass tells how well a column's name says that it holds URLs.
func nameClass(name string) int {
	if len(name) > 64 {
		return 0
	}
	words := splitWords(name)
	best := 0
	for _, w := range words {
		c := urlNames[strings.TrimSuffix(w, "s")]
		if c > 0 && len(words) > 1 {
			switch {
			case w == "u" || w == "original":
				continue
			case c == classURL:
				c = classURLWord
			case c <= classLink:
				c = classURIWord
			default:
				c = classHostWord
			}
		}
		if c > 0 && (best == 0 || c < best) {
			best = c
		}
	}
	return best
}

// splitWords cuts a name into lower-case words at what is no letter or digit and before a
// capital that follows a small letter.
func splitWords(name string) []string {
	var words []string
	var word []rune
	small := false
	flush := func() {
		if len(word) > 0 {
			words = append(words, string(word))
			word = word[:0]
		}
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			small = false
			continue
		}
		if unicode.IsUpper(r) && small {
			flush()
		}
		small = unicode.IsLower(r)
		word = append(word, unicode.ToLower(r))
	}
	flush()
	return words
}

func isTSName(name string) bool {
	return strings.EqualFold(name, "ts") || strings.EqualFold(name, "timestamp")
}

// isTime reports whether v is a time since there are URLs: a column called timestamp may also
// hold seconds into a film.
func (d *detector) isTime(v string) bool {
	ms, ok := d.time.parse([]byte(v))
	return ok && plausibleTime(ms)
}

func plausibleTime(ms int64) bool {
	const from, to = 631152000000, 4102444800000 // 1990 and 2100
	return from <= ms && ms < to
}

// looksURL reports whether v begins like an absolute URL with an authority.
func looksURL[T string | []byte](v T) bool {
	for i := 0; i < len(v) && i < 32; i++ {
		c := v[i]
		switch {
		case c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && (isDigit(c) || c == '+' || c == '.' || c == '-'):
		case c == ':':
			return i > 0 && len(v) > i+3 && v[i+1] == '/' && v[i+2] == '/' && v[i+3] > ' '
		default:
			return false
		}
	}
	return false
}

// looksHost reports whether v is a host name with a dot or an IPv4 address, with or without
// port and path.
func looksHost(v string) bool {
	if i := strings.IndexAny(v, "/?:"); i >= 0 {
		v = v[:i]
	}
	if len(v) > 253 || strings.ContainsAny(v, " \t@,;|\"'()<>") {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(v, "."), ".")
	if len(labels) < 2 {
		return false
	}
	numbers := 0
	for _, l := range labels {
		if l == "" || len(l) > 63 {
			return false
		}
		if allDigits([]byte(l)) {
			numbers++
		}
	}
	if numbers == len(labels) {
		return numbers == 4
	}
	last := labels[len(labels)-1]
	if strings.HasPrefix(strings.ToLower(last), "xn--") {
		return true
	}
	for _, r := range last {
		if !unicode.IsLetter(r) {
			return false
		}
	}
	return len(last) >= 2
}

func looksURLOrHost(v string) bool { return looksURL(v) || looksHost(v) }

// looksDate reports whether v is a timestamp and not just a number.
func looksDate(v string) bool {
	_, ok := ParseTime([]byte(v))
	return ok && (strings.ContainsAny(v, "-:") || len(v) == 14)
}
