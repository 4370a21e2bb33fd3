package detect

import (
	"bytes"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// isCDXJLine reports whether l is a SURT key, a timestamp and a JSON object.
func (d *detector) isCDXJLine(l []byte) bool {
	_, ts, content, ok := text.CutCDXJ(l)
	return ok && len(content) > 0 && content[0] == '{' &&
		(isCDXTime(ts) || looksDate(string(ts)))
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

// cdxLegends are the legends of CDX lines without a header, the usual ones first. The lines of an
// index are read by the first whose fields fit.
var cdxLegends = []string{
	"N b a m s k r M S V g",
	"N b a m s k r M V g",
	"N b a m s k r V g",
	"N b a m s k S",   // the Wayback Machine's CDX server
	"A e b m n g v c", // NetarchiveSuite, with a checksum
	"A e b m n g v",   // NetarchiveSuite
}

// cdxLayout is how the lines of a CDX index are cut, and the names of their columns.
type cdxLayout struct {
	separator string
	columns   []string
	usual     bool // a legend of 9, 10 or 11 fields
}

// cdxLines cuts the sampled lines at a separator. It returns nil unless most have the same number
// of fields, at least two, and nine of ten have no fewer. The table has the rows with this number.
func (d *detector) cdxLines(separator byte) *table {
	t := &table{sep: string(separator)}
	widths := map[int]int{}
	lines := 0
	for _, l := range d.lines() {
		if text.IsCDXHeader(l) || l[0] == '!' {
			continue
		}
		lines++
		var row []string
		for _, f := range bytes.Split(l, []byte{separator}) {
			if len(f) == 1 && f[0] == '-' {
				f = nil
			}
			row = append(row, string(f))
		}
		t.rows = append(t.rows, row)
		widths[len(row)]++
	}
	for w, n := range widths {
		if n*2 > lines {
			t.width = w
		}
	}
	fewer := 0
	for w, n := range widths {
		if w < t.width {
			fewer += n
		}
	}
	if t.width < 2 || fewer*10 > lines {
		return nil
	}
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool { return len(row) != t.width })
	return t
}

// firstLines reports whether f is true of at least half of the first lines. It is asked before a
// closer look, so that planning a list stays fast.
func (d *detector) firstLines(f func(line []byte) bool) bool {
	lines := d.lines()
	lines = lines[:min(len(lines), 20)]
	n := 0
	for _, l := range lines {
		if f(l) {
			n++
		}
	}
	return n*2 >= len(lines)
}

// findCDX returns the layout of a CDX index without a header, nil if the text is none.
func (d *detector) findCDX() *cdxLayout {
	for _, separator := range []byte{' ', '\t'} {
		if !d.firstLines(func(l []byte) bool {
			return slices.ContainsFunc(bytes.Split(l, []byte{separator}), isCDXTime)
		}) {
			continue
		}
		t := d.cdxLines(separator)
		if t == nil || t.width < 4 {
			continue
		}
		var kinds []string // of each column, what its values can be
		for i := range t.width {
			kinds = append(kinds, cdxKinds(t.values(i, 0)))
		}
		for i, legend := range cdxLegends {
			letters := strings.Fields(legend)
			fits := len(letters) == t.width
			for k := 0; fits && k < t.width; k++ {
				fits = strings.Contains(kinds[k], letters[k]) || !strings.Contains(checkedLetters, letters[k]) ||
					kinds[k] == "" && letters[k] != "a" && letters[k] != "b"
			}
			if fits && (letters[0] == "N" || strings.Contains(kinds[0], "a")) {
				return &cdxLayout{t.sep, cdxColumns(legend), i < 3}
			}
		}
		if n := t.width; n >= 9 && n <= 11 && strings.Contains(kinds[1], "b") && strings.Contains(kinds[2], "a") {
			return &cdxLayout{t.sep, cdxColumns(cdxLegends[11-n]), true} // media types may be anything
		}
		if legend := inferLegend(kinds); legend != "" && len(t.rows)*10 >= len(d.lines())*9 {
			return &cdxLayout{t.sep, cdxColumns(legend), false}
		}
	}
	return nil
}

// checkedLetters are the letters of a legend whose values are recognisable.
const checkedLetters = "abmskcegSVnv"

// cdxKinds returns the letters of a legend that a column with these values can have; it is empty if
// there are no values.
func cdxKinds(values []string) string {
	if len(values) == 0 {
		return ""
	}
	kinds := " "
	for _, k := range []struct {
		letters string
		is      func(string) bool
	}{
		{"b", func(v string) bool { return isCDXTime([]byte(v)) }},
		{"a", hasScheme},
		{"m", isMIME},
		{"s", isStatus},
		{"kc", isDigest},
		{"e", isIP},
		{"SVnv", func(v string) bool { return timestamp.AllDigits([]byte(v)) }},
		{"g", isArchiveName},
	} {
		if mostly(values, 90, k.is) {
			kinds += k.letters
		}
	}
	return kinds
}

// inferLegend returns the legend of columns with these kinds, "" unless they have a time, a URL or
// a SURT key, and what only a capture has. ? stands for an unknown column.
func inferLegend(kinds []string) string {
	legend := slices.Repeat([]string{"?"}, len(kinds))
	find := func(letter string, from int) int {
		for i := from; i < len(kinds); i++ {
			if legend[i] == "?" && strings.Contains(kinds[i], letter) {
				return i
			}
		}
		return -1
	}
	set := func(letter string) int {
		i := find(letter, 0)
		if i >= 0 {
			legend[i] = letter
		}
		return i
	}
	ts := set("b")
	if ts < 0 {
		return ""
	}
	url := find("a", ts) // behind a key and a time, or before the time
	if url < 0 {
		url = find("a", 0)
	}
	if url >= 0 {
		legend[url] = "a"
	}
	if ts > 0 && url != 0 {
		legend[0] = "N"
	}
	if url < 0 && ts == 0 {
		return ""
	}
	set("e")
	mime, digest, file := set("m"), set("k"), set("g")
	if mime < 0 && digest < 0 && file < 0 {
		return ""
	}
	if mime >= 0 && mime+1 < len(kinds) && legend[mime+1] == "?" && strings.Contains(kinds[mime+1], "s") &&
		!(file > 0 && mime+1 == file-1) {
		legend[mime+1] = "s"
	}
	number := func(i int, letter string) bool {
		if i < 0 || i >= len(kinds) || legend[i] != "?" || !strings.Contains(kinds[i], "V") {
			return false
		}
		legend[i] = letter
		return true
	}
	switch {
	case file < 0:
		if i := find("V", 0); i >= 0 {
			number(i, "S")
		}
	case number(file+1, "V"):
		number(file-1, "S")
	case number(file-1, "V"):
		number(file-2, "S")
	}
	return strings.Join(legend, " ")
}

// cdxColumns returns the column names of a legend, with those of the capture fields.
func cdxColumns(legend string) []string {
	columns := text.CDXColumns(legend)
	letters := strings.Fields(legend)
	for _, f := range []struct{ field, letters string }{
		{raw.MIME, "m"}, {raw.Status, "s"}, {raw.Digest, "kc"}, {raw.Filename, "g"}, {raw.Offset, "Vv"}, {raw.Length, "Sn"},
	} {
		for _, letter := range strings.Split(f.letters, "") {
			if i := slices.Index(letters, letter); i >= 0 {
				columns[i] = f.field
				break
			}
		}
	}
	return columns
}

// hasScheme reports whether v begins with a scheme and something behind it: http://a, dns:a.
func hasScheme(v string) bool {
	scheme, rest, ok := strings.Cut(v, ":")
	if !ok || rest == "" || len(scheme) < 2 || len(scheme) > 32 || timestamp.IsDigit(scheme[0]) {
		return false
	}
	for i := range len(scheme) {
		c := scheme[i]
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || timestamp.IsDigit(c) || c == '+' || c == '-') {
			return false
		}
	}
	return !timestamp.AllDigits([]byte(rest)) // a host and a port
}

func isMIME(v string) bool {
	if v == "unk" || v == "no-type" || v == "unknown" {
		return true
	}
	a, b, ok := strings.Cut(v, "/")
	return ok && a != "" && b != "" && !strings.ContainsAny(v, ":?&=)") && strings.Count(v, "/") == 1
}

func isStatus(v string) bool {
	return len(v) == 3 && v[0] >= '0' && v[0] <= '9' && timestamp.AllDigits([]byte(v))
}

// isDigest reports whether v is a digest: SHA-1 in base 32 or hexadecimal digits, or with a prefix.
func isDigest(v string) bool {
	for _, prefix := range []string{"sha1:", "sha-1:", "sha256:", "sha-256:", "md5:"} {
		if len(v) > len(prefix) && strings.EqualFold(v[:len(prefix)], prefix) {
			return true
		}
	}
	hex := strings.Trim(v, "0123456789abcdefABCDEF") == ""
	return len(v) == 32 && (hex || strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "") ||
		hex && (len(v) == 40 || len(v) == 64)
}

// isIP reports whether v is an IPv4 address or looks like one of IPv6.
func isIP(v string) bool {
	return looksHost(v) && strings.Trim(v, "0123456789.") == "" ||
		strings.Count(v, ":") >= 2 && strings.Trim(v, "0123456789abcdefABCDEF:.") == ""
}

// isArchiveName reports whether v is the name of an ARC or WARC file.
func isArchiveName(v string) bool {
	v = strings.ToLower(v)
	for _, ext := range []string{".gz", ".zst", ".open"} {
		v = strings.TrimSuffix(v, ext)
	}
	return strings.HasSuffix(v, ".arc") || strings.HasSuffix(v, ".warc")
}

// planCDX names the columns by the header, else by what they hold.
func (d *detector) planCDX() error {
	var layout *cdxLayout
	if sep, legend, ok := text.CDXHeader(d.firstLine()); ok {
		layout = &cdxLayout{string(sep), cdxColumns(legend), true}
	} else if layout = d.findCDX(); layout == nil && len(d.lines()) > 0 {
		return d.reject("its fields are not those of a CDX index",
			`put its legend before the first line (" CDX N b a m s k r M S V g")`)
	} else if layout == nil {
		layout = &cdxLayout{" ", cdxColumns(cdxLegends[0]), true}
	}
	d.plan.Separator, d.plan.Columns = layout.separator, layout.columns
	d.plan.Fields = len(layout.columns)
	if !layout.usual {
		d.note("it is a CDX index without a legend; by what they hold, its fields are %s", raw.QuoteNames(layout.columns))
	}
	resolve := func(want string) (raw.Column, error) { return d.cdxColumn(want) }
	if err := d.planNamed(resolve, resolve); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		if err := d.chooseCDXURL(); err != nil {
			return err
		}
	}
	if d.plan.TS == nil && !d.noTime {
		if c, err := resolve("timestamp"); err == nil {
			d.plan.TS, d.plan.TSChosen = &c, true
		}
	}
	d.keepColumns()
	return nil
}

// chooseCDXURL makes the original URL the URL. An index without it has it in its keys, but for the
// scheme, a leading www and the case of letters.
func (d *detector) chooseCDXURL() error {
	c, err := d.cdxColumn("original")
	for _, key := range []string{"canonized_url", "urlkey"} {
		if err == nil {
			break
		}
		if c, err = d.cdxColumn(key); err == nil && !d.holdsURLs(c) {
			d.plan.SURT = true
			d.noteKeys()
		}
	}
	d.plan.URL = c
	return err
}

// holdsURLs reports whether the values of a CDX column begin with a scheme and are no SURT keys.
func (d *detector) holdsURLs(c raw.Column) bool {
	t := d.cdxLines(d.plan.Separator[0])
	return t != nil && mostly(t.values(c.Number-1, 0), 90, func(v string) bool {
		return hasScheme(v) && !strings.Contains(v, "://(")
	})
}

func (d *detector) noteKeys() {
	d.note("it has no original URLs; they are made of its keys, which lack the scheme and, mostly, www")
}

// cdxColumn resolves the name or number of a CDX column. A capture field may also have the name
// that the CDX server gives it.
func (d *detector) cdxColumn(want string) (raw.Column, error) {
	columns := d.plan.Columns
	i := slices.Index(columns, want)
	if n, ok := raw.ColumnNumber(want); ok && n <= len(columns) {
		i = n - 1
		want = columns[i]
	}
	if i < 0 {
		if field := cdxServerNames[want]; field != "" {
			if i = slices.Index(columns, field); i >= 0 {
				return raw.Column{Name: want, Number: i + 1}, nil
			}
		}
	}
	if i < 0 {
		return raw.Column{}, d.noColumn(want, columns, ", or its number")
	}
	return raw.Column{Name: want, Number: i + 1, Capture: slices.Contains(raw.CaptureFields, want)}, nil
}

// cdxServerNames are the capture fields by the names of the CDX server, where these differ.
var cdxServerNames = map[string]string{"mimetype": raw.MIME, "statuscode": raw.Status,
	"digest_old": raw.Digest, "document_length": raw.Length}

// keepColumns plans the extras of an index or log whose columns are known: all of them, or the
// capture fields if the options name none.
func (d *detector) keepColumns() {
	_, defaults := d.opt.WantsExtras()
	if !defaults && !d.plan.AllExtras {
		return
	}
	used := []int{d.plan.URL.Number}
	for _, c := range []*raw.Column{d.plan.TS, d.plan.Size} {
		if c != nil {
			used = append(used, c.Number)
		}
	}
	for i, name := range d.plan.Columns {
		capture := slices.Contains(raw.CaptureFields, name)
		if slices.Contains(used, i+1) || !capture && !d.plan.AllExtras {
			continue
		}
		d.plan.Extras = append(d.plan.Extras, raw.Column{Name: name, Number: i + 1, Capture: capture})
	}
	d.plan.AllExtras = false
}

// planCrawlLog plans a crawl log of Heritrix.
func (d *detector) planCrawlLog() error {
	d.plan.Columns = text.CrawlLogColumns
	if err := d.planNamed(d.cdxColumn, d.cdxColumn); err != nil {
		return err
	}
	column := func(n int) raw.Column { return raw.Column{Name: d.plan.Columns[n-1], Number: n} }
	if d.opt.URLColumn == "" {
		d.plan.URL = column(text.CrawlLogURL)
	}
	if d.plan.TS == nil && !d.noTime {
		c := column(text.CrawlLogTimestamp)
		d.plan.TS, d.plan.TSChosen = &c, true
	}
	if d.plan.Size == nil {
		c := column(text.CrawlLogSize)
		d.plan.Size = &c
	}
	d.keepColumns()
	return nil
}

// cdxjNames are the members of the dialects of CDXJ by what they hold.
var cdxjNames = map[string][]string{
	"url":        {"url", "uri", "original"},
	raw.Status:   {"status", "statuscode", "hsc"},
	raw.MIME:     {"mime", "mimetype", "mct"},
	raw.Digest:   {"digest", "sha"},
	raw.Filename: {"filename"},
	raw.Offset:   {"offset"},
	raw.Length:   {"length", "rle"},
}

// planCDXJ takes the URL from the member url, and the time from the second field, unless the
// options name others.
func (d *detector) planCDXJ() error {
	var docs []*jsondoc.Document
	for _, l := range d.lines() {
		doc := new(jsondoc.Document)
		if _, _, object, ok := text.CutCDXJ(l); ok && doc.Parse(object) {
			docs = append(docs, doc)
		}
	}
	// member returns the name by which this dialect calls something, and whether any line has it.
	member := func(name string) (string, bool) {
		for _, alias := range cdxjNames[name] {
			if slices.ContainsFunc(docs, func(doc *jsondoc.Document) bool { return doc.Find(0, []string{alias}) > 0 }) {
				return alias, true
			}
		}
		return name, false
	}
	capture := func(field string) raw.Column {
		c := raw.Column{Name: field, Capture: true}
		if from, _ := member(field); from != field {
			c.From = from
		}
		return c
	}
	err := d.planNamed(jsonColumn, func(want string) (raw.Column, error) {
		if cdxjNames[want] != nil && want != "url" {
			return capture(want), nil
		}
		return jsonColumn(want)
	})
	if err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		url, has := member("url")
		d.plan.URL = raw.Column{Name: url}
		if len(docs) > 0 && !has {
			d.plan.SURT = true
			d.noteKeys()
		}
	}
	if d.opt.TSColumn == "" || d.opt.TSColumn == "timestamp" {
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "timestamp", Number: 2}, d.opt.TSColumn == ""
	}
	if _, defaults := d.opt.WantsExtras(); defaults {
		for _, field := range raw.CaptureFields {
			c := capture(field)
			if cdxjNames[field] != nil && (d.plan.Size == nil || d.plan.Size.Name != c.Path()) && d.plan.URL.Name != c.Path() {
				d.plan.Extras = append(d.plan.Extras, c)
			}
		}
	}
	return nil
}
