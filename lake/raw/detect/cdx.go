package detect

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// isCDXJLine reports whether l is a SURT key, a timestamp and a JSON object, or has only one of the
// first two.
func isCDXJLine(l []byte) bool {
	key, ts, _, ok := text.CutCDXJ(l)
	if !ok {
		return false
	}
	if ts == nil {
		return bytes.IndexByte(key, ')') > 0 && bytes.IndexByte(key, ',') > 0
	}
	return isIndexTime(ts) || looksDate(string(ts))
}

// isZipNumLine reports whether l is a line of a ZipNum index: a key with a timestamp, then the
// name, offset and length of a block.
func isZipNumLine(l []byte) bool {
	if bytes.Count(l, []byte{'\t'}) < 3 {
		return false
	}
	f := bytes.Split(l, []byte{'\t'})
	_, ts, _ := bytes.Cut(f[0], []byte{' '})
	return text.IsIndexTime(ts) && timestamp.AllDigits(f[2]) && timestamp.AllDigits(f[3])
}

// cdxLines cuts the sampled lines at a separator. It returns nil unless most have the same number
// of fields, at least two, and all but few have no fewer. The table has the rows with this number.
func (d *detector) cdxLines(separator byte) *table {
	t := &table{sep: string(separator)}
	widths := map[int]int{}
	lines := 0
	for _, l := range d.lines() {
		if text.IsIndexComment(l) {
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
	if t.width < 2 || !few(fewer, lines) {
		return nil
	}
	t.rows = slices.DeleteFunc(t.rows, func(row []string) bool { return len(row) != t.width })
	return t
}

// firstLines reports whether f is true of at least half of the first lines. It is asked before a
// closer look, so that planning a list stays fast.
func (d *detector) firstLines(f func(line []byte) bool) bool {
	lines := d.lines()
	n, of := 0, 0
	for _, l := range lines[:min(len(lines), 20)] {
		switch {
		case text.IsIndexComment(l):
			continue
		case f(l):
			n++
		}
		of++
	}
	return n > 0 && n*2 >= of
}

// findCDX returns the legend of a CDX index that does not begin with one, nil if the text is none.
// usual is set if the lines have a usual number of fields.
func (d *detector) findCDX() (legend *text.CDXLegend, usual bool) {
	for _, separator := range []byte{' ', '\t'} {
		if !d.firstLines(func(l []byte) bool {
			return slices.ContainsFunc(bytes.Split(l, []byte{separator}), isIndexTime)
		}) {
			continue
		}
		if letters, usual := d.cdxLetters(separator); letters != "" {
			return &text.CDXLegend{Separator: separator, Letters: letters}, usual
		}
		if legend := d.firstUsual(separator); legend != nil {
			return legend, true
		}
	}
	return nil, false
}

func (d *detector) isCDX() bool {
	legend, _ := d.cdx()
	return legend != nil
}

// cdxLetters returns the letters of lines that mostly have the same number of fields, "" if they
// are of no CDX index.
func (d *detector) cdxLetters(separator byte) (letters string, usual bool) {
	t := d.cdxLines(separator)
	if t == nil || t.width < 4 {
		return "", false
	}
	var kinds []string // of each column, what its values can be
	for i := range t.width {
		kinds = append(kinds, cdxKinds(t.values(i, 0)))
	}
	if !slices.ContainsFunc(kinds, func(k string) bool { return strings.Contains(k, "b") }) && mostly(t.values(0, 0), isSURT) {
		for i, k := range kinds {
			kinds[i] = strings.ReplaceAll(k, shortTime, "b")
		}
	}
	for i, legend := range text.UsualLegends {
		letters := strings.Fields(legend)
		fits := len(letters) == t.width
		for k := 0; fits && k < t.width; k++ {
			fits = strings.Contains(kinds[k], letters[k]) || !strings.Contains(checkedLetters, letters[k]) ||
				kinds[k] == "" && letters[k] != "a" && letters[k] != "b"
		}
		if fits && (letters[0] == "N" || strings.Contains(kinds[0], "a")) {
			return legend, i < 3
		}
	}
	if n := t.width; n >= 9 && n <= 11 && strings.Contains(kinds[1], "b") && strings.Contains(kinds[2], "a") {
		return text.UsualLegends[11-n], true // media types may be anything
	}
	if legend := inferLegend(kinds); legend != "" && few(len(d.lines())-len(t.rows), len(d.lines())) {
		return legend, false
	}
	return "", false
}

// firstUsual returns the usual legend of the first line that one fits, if one fits half of the
// lines: lines of nothing else have their time and their URL there.
func (d *detector) firstUsual(separator byte) (first *text.CDXLegend) {
	lines, fit := 0, 0
	for _, l := range d.lines() {
		if text.IsIndexComment(l) {
			continue
		}
		lines++
		for _, letters := range text.UsualLegends {
			if legend := (text.CDXLegend{Separator: separator, Letters: letters}); legend.Fits(l, false) {
				if fit++; first == nil {
					first = &legend
				}
				break
			}
		}
	}
	if fit*2 < lines {
		return nil
	}
	return first
}

// shortTime is the letter of times that end with the year, month, day or hour. Numbers may look
// like them, so they count only behind SURT keys, and if no column has longer times.
const shortTime = "t"

// isIndexTime reports whether b is a time of an index: of 12 digits or more, or a short one from
// 1990 to 2100.
func isIndexTime(b []byte) bool { return text.IsIndexTime(b) || isShortTime(string(b)) }

func isShortTime(v string) bool {
	if len(v) < 4 || len(v) > 10 || v[0] != '1' && v[0] != '2' || !timestamp.AllDigits([]byte(v)) {
		return false
	}
	ms, ok := timestamp.ParseDigits([]byte(v))
	return ok && plausibleTime(ms)
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
		{"b", func(v string) bool { return text.IsIndexTime([]byte(v)) }},
		{shortTime, isShortTime},
		{"a", text.HasScheme[string]},
		{"m", isMIME},
		{"s", isStatus},
		{"kc", isDigest},
		{"e", isIP},
		{"SVnv", func(v string) bool { return timestamp.AllDigits([]byte(v)) }},
		{"g", isArchiveName},
	} {
		if mostly(values, k.is) {
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

func isMIME(v string) bool {
	if v == "unk" || v == "no-type" || v == "unknown" {
		return true
	}
	a, b, ok := strings.Cut(v, "/")
	return ok && a != "" && b != "" && !strings.ContainsAny(v, ":?&=)") && strings.Count(v, "/") == 1
}

func isStatus(v string) bool { return len(v) == 3 && timestamp.AllDigits([]byte(v)) }

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

// beginsWithLegend reports whether the first line is the legend of a CDX index, comments left out.
func (d *detector) beginsWithLegend() bool {
	for rest := d.text; len(rest) > 0; {
		line, more, _ := bytes.Cut(rest, []byte{d.eol()})
		if rest = more; text.IsCDXLegend(line) {
			return true
		}
		if len(text.TrimSpace(line)) > 0 && !text.IsIndexComment(line) {
			break
		}
	}
	return false
}

// legends returns the first legend in the head, and all legends in the order of their last
// occurrences. Occurrences that change nothing do not count.
func (d *detector) legends() (first text.CDXLegend, all []text.CDXLegend) {
	for rest := d.text; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte{d.eol()})
		if rest = more; !ended && !d.whole {
			break // the line may go on behind the head
		}
		legend, ok := text.ParseCDXLegend(bytes.TrimRight(line, "\r"))
		if !ok {
			continue
		}
		if len(all) == 0 {
			first = legend
		}
		last := len(all) - 1
		for last >= 0 && (all[last].Separator != legend.Separator || len(all[last].Columns()) != len(legend.Columns())) {
			last--
		}
		if last < 0 || all[last] != legend {
			all = append(slices.DeleteFunc(all, func(l text.CDXLegend) bool { return l == legend }), legend)
		}
		if len(all) > maxLegends {
			break
		}
	}
	return first, all
}

// maxLegends is how many legends the beginning of an index may have.
const maxLegends = 100

// planCDX names the columns by the legends, else by what they hold.
func (d *detector) planCDX() error {
	main, legends := d.legends()
	usual := true
	if !d.beginsWithLegend() {
		var found *text.CDXLegend
		found, usual = d.cdx()
		switch {
		case found != nil:
			main = *found
		case len(legends) == 0 && len(d.lines()) > 0:
			return d.reject("its fields are not those of a CDX index",
				`put its legend before the first line (" CDX N b a m s k r M S V g")`)
		case len(legends) == 0:
			main, usual = text.CDXLegend{Separator: ' ', Letters: text.UsualLegends[0]}, true
		}
	}
	legends = append([]text.CDXLegend{main}, legends...)
	if len(legends) > maxLegends+1 {
		return d.reject(fmt.Sprintf("it has more than %d different legends", maxLegends), "cut it at its legends and give the parts")
	}
	d.plan.Columns = main.Columns()
	for _, l := range legends {
		d.plan.Legends = append(d.plan.Legends, l.Line())
	}
	if !usual {
		d.note("it is a CDX index without a legend; by what they hold, its fields are %s", raw.QuoteNames(d.plan.Columns))
	}
	resolve := func(want string) (raw.Column, error) {
		c, err := d.cdxColumn(want)
		for _, l := range legends[1:] {
			if columns := l.Columns(); err != nil && (slices.Contains(columns, want) || slices.Contains(columns, text.CDXServerNames[want])) {
				return raw.Column{Name: want, Capture: slices.Contains(raw.CaptureFields, want)}, nil
			}
		}
		return c, err
	}
	if err := d.planNamed(resolve, resolve); err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		if err := d.chooseCDXURL(main.Separator); err != nil {
			return err
		}
	}
	if d.plan.TS == nil && !d.noTime {
		if c, err := resolve("timestamp"); err == nil {
			d.plan.TS, d.plan.TSChosen = &c, true
		}
	}
	if _, defaults := d.opt.WantsExtras(); !defaults {
		return nil
	}
	// Lines with another legend may have fields that lines of the first legend lack.
	for _, name := range raw.CaptureFields {
		c, err := d.cdxColumn(name)
		if err != nil {
			c = raw.Column{Name: name, Capture: true}
		}
		used := func(o *raw.Column) bool { return o != nil && (o.Name == name || o.Number > 0 && o.Number == c.Number) }
		if name != raw.Via && !used(&d.plan.URL) && !used(d.plan.TS) && !used(d.plan.Size) {
			d.plan.Extras = append(d.plan.Extras, c)
		}
	}
	return nil
}

// chooseCDXURL makes the original URL the URL. An index without it has it in its keys, but for the
// scheme, a leading www and the case of letters.
func (d *detector) chooseCDXURL(separator byte) error {
	c, err := d.cdxColumn(text.CDXURLColumns[0])
	for _, key := range text.CDXURLColumns[1:] {
		if err == nil {
			break
		}
		if c, err = d.cdxColumn(key); err == nil && !d.holdsURLs(c, separator) {
			d.plan.SURT = true
			d.noteKeys()
		}
	}
	d.plan.URL = c
	return err
}

// holdsURLs reports whether the values of a CDX column begin with a scheme and are no SURT keys.
func (d *detector) holdsURLs(c raw.Column, separator byte) bool {
	t := d.cdxLines(separator)
	return t != nil && mostly(t.values(c.Number-1, 0), func(v string) bool {
		return text.HasScheme(v) && !strings.Contains(v, "://(")
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
		if field := text.CDXServerNames[want]; field != "" {
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

// keepColumns plans the extras of an object whose columns are known: all of them if the options say
// so, or, if the options name none, those of an index or log that are capture fields.
func (d *detector) keepColumns(index bool) {
	_, defaults := d.opt.WantsExtras()
	for i, name := range d.plan.Columns {
		capture := index && slices.Contains(raw.CaptureFields, name)
		if d.isUsed(i+1) || !d.plan.AllExtras && !(defaults && capture) {
			continue
		}
		d.plan.Extras = append(d.plan.Extras, raw.Column{Name: name, Number: i + 1, Capture: capture})
	}
	d.plan.AllExtras = false
}

// isUsed reports whether the column with this number is the URL, the time or the size.
func (d *detector) isUsed(number int) bool {
	return d.plan.URL.Number == number || d.plan.TS != nil && d.plan.TS.Number == number ||
		d.plan.Size != nil && d.plan.Size.Number == number
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
	d.keepColumns(true)
	return nil
}

// planCDXJ takes the URL from the member url or one like it, and the time from the line's second
// field, unless the options name others. A line without such a member has its URL in its key.
func (d *detector) planCDXJ() error {
	var docs []*jsondoc.Document
	var keys [][]byte
	timed := false
	for _, l := range d.lines() {
		doc := &jsondoc.Document{Deep: true}
		if text.IsIndexComment(l) {
			continue
		}
		if key, ts, object, ok := text.CutCDXJ(l); ok && doc.Parse(object) {
			docs, keys = append(docs, doc), append(keys, key)
			timed = timed || ts != nil
		}
	}
	err := d.planNamed(jsonColumn, func(want string) (raw.Column, error) {
		return raw.Column{Name: want, Capture: want != "url" && text.CDXJNames[want] != nil}, nil
	})
	if err != nil {
		return err
	}
	if d.opt.URLColumn == "" {
		d.chooseCDXJURL(docs, keys)
	}
	switch {
	case !timed && d.opt.TSColumn == "" && len(docs) > 0:
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "timestamp"}, true
	case d.opt.TSColumn == "" || d.opt.TSColumn == "timestamp":
		d.plan.TS, d.plan.TSChosen = &raw.Column{Name: "timestamp", Number: 2}, d.opt.TSColumn == ""
	}
	if _, defaults := d.opt.WantsExtras(); defaults {
		for _, field := range raw.CaptureFields {
			if text.CDXJNames[field] != nil && (d.plan.Size == nil || d.plan.Size.Name != field) && d.plan.URL.Name != field {
				d.plan.Extras = append(d.plan.Extras, raw.Column{Name: field, Capture: true})
			}
		}
	}
	return nil
}

// chooseCDXJURL takes the URL from the first member with a usual name, else from one whose values
// are URLs of the hosts in the keys.
func (d *detector) chooseCDXJURL(docs []*jsondoc.Document, keys [][]byte) {
	d.plan.URL, d.plan.SURT = raw.Column{Name: "url"}, true
	var leaves []*leaf
	blocks := 0
	for i, doc := range docs {
		for _, name := range text.CDXJNames["url"] {
			if n := doc.Find(0, []string{name}); n > 0 && doc.Nodes[n].Kind == '"' {
				d.plan.URL.Name = name
				return
			}
		}
		if text.IsCDXJBlock(doc) {
			blocks++
			continue
		}
		for c := range doc.Children(0) {
			if n := doc.Nodes[c]; n.Kind == '"' && sameHost(string(doc.Text(&n)), keys[i]) {
				leaves = d.observe(leaves, doc, c, []string{string(doc.Name(&n))})
			}
		}
	}
	if best, also := chooseLeaf(leaves, len(docs)-blocks); best != nil && best.urls*10 >= (len(docs)-blocks)*9 {
		d.plan.URL.Name = jsondoc.JoinPath(best.path)
		d.noteURL(best, also)
		return
	}
	switch {
	case len(docs) == 0:
	case blocks == len(docs):
		d.note("it is the index of a compressed index: it has no captures, which are in the .cdx.gz files that it points to")
	default:
		d.noteKeys()
	}
}

// sameHost reports whether v is a URL with the same host as a SURT key, apart from www and the
// port. Without a key, any host will do.
func sameHost(v string, key []byte) bool {
	host := func(u string) string {
		_, u, _ = strings.Cut(strings.ToLower(u), "://")
		if i := strings.IndexAny(u, "/?#:"); i >= 0 {
			u = u[:i]
		}
		return strings.TrimPrefix(u, "www.")
	}
	return looksURL(v) && (len(key) == 0 || host(v) == host(string(text.AppendSURTURL(nil, key))))
}
