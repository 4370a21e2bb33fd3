package text

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// AppendSURTURL appends the URL of a SURT key, the sort-friendly form of a URL in archive indexes:
// com,example,www:8080)/path is http://www.example.com:8080/path. Keys have no scheme unless they
// are in the form http://(com,example,)/path. What is no SURT key is appended as it is.
func AppendSURTURL(b, key []byte) []byte {
	scheme, rest := "http", key
	if i := bytes.Index(key, []byte("://(")); i > 0 {
		scheme, rest = string(key[:i]), key[i+4:]
	} else if len(key) > 0 && key[0] == '(' {
		rest = key[1:]
	}
	end := bytes.IndexByte(rest, ')')
	if end <= 0 || bytes.ContainsAny(rest[:end], "/?#@ ") {
		return append(b, key...)
	}
	host, path := rest[:end], rest[end+1:]
	var port []byte
	if i := bytes.IndexByte(host, ':'); i >= 0 {
		host, port = host[:i], host[i:]
	}
	b = append(append(b, scheme...), "://"...)
	labels := bytes.Split(bytes.TrimSuffix(host, []byte{','}), []byte{','})
	for i := len(labels) - 1; i >= 0; i-- {
		b = append(b, labels[i]...)
		if i > 0 {
			b = append(b, '.')
		}
	}
	return append(append(b, port...), path...)
}

// urlKeyName is the name in extras of the SURT key that begins a CDXJ line.
var urlKeyName = []byte("urlkey")

// cdxParser reads CDX lines: fields between single separators, - for an empty one. Each line is
// read by the last legend above it with as many fields, so that files joined end to end, or merged
// in order, are read too. A line that no legend of the file fits is read by one of UsualLegends.
// Two lines without a line break between them are two records, or a record behind a line that was
// cut; the field in which they meet is empty.
type cdxParser struct {
	in      *Input
	plan    raw.Plan
	fields  Fields
	main    *cdxLayout   // by the plan's first legend
	layouts []*cdxLayout // by the legends of the file, the last first
	usual   []*cdxLayout // by UsualLegends, made for the first line that needs one
	err     error        // of a legend
	two     []byte       // copy of a line that meets another one
}

// cdxLayout reads lines by one legend.
type cdxLayout struct {
	csvParser
	legend CDXLegend
	shared bool // another layout of the file has as many
}

func newCDXParser(in *Input, plan raw.Plan, f Fields) *cdxParser {
	f.time.CDX = true
	p := &cdxParser{in: in, plan: plan, fields: f}
	for _, line := range plan.Legends {
		legend, _ := ParseCDXLegend([]byte(line))
		l := p.newLayout(legend)
		p.use(l)
		if p.main == nil {
			p.main = l
		}
	}
	if p.main != nil && in.Offset() < raw.HeadSize {
		p.use(p.main) // the other legends are still to come
	}
	return p
}

// newLayout returns the layout by a legend. Its columns are the plan's columns, found by name, but
// the URL may be in another column.
func (p *cdxParser) newLayout(legend CDXLegend) *cdxLayout {
	columns := legend.Columns()
	place := func(c *raw.Column) *raw.Column {
		if c == nil {
			return nil
		}
		placed := *c
		placed.Number = max(slices.Index(columns, c.Name), slices.Index(columns, CDXServerNames[c.Name])) + 1
		return &placed
	}
	plan := p.plan
	plan.Columns = columns
	plan.Separator = string(legend.Separator)
	plan.URL, plan.TS, plan.Size = *place(&plan.URL), place(plan.TS), place(plan.Size)
	if plan.URL.Number == 0 && slices.Contains(CDXURLColumns, plan.URL.Name) {
		for i, name := range CDXURLColumns {
			if plan.URL = *place(&raw.Column{Name: name}); plan.URL.Number > 0 {
				plan.SURT = i > 0
				break
			}
		}
	}
	plan.Extras = slices.Clone(plan.Extras)
	for i := range plan.Extras {
		plan.Extras[i] = *place(&plan.Extras[i])
	}
	l := &cdxLayout{*newCSVParser(p.in, plan, p.fields), legend, false}
	l.dash = true
	return l
}

// use makes a layout the first, and removes one with the same legend.
func (p *cdxParser) use(l *cdxLayout) {
	p.layouts = slices.DeleteFunc(p.layouts, func(o *cdxLayout) bool { return o.legend == l.legend })
	p.layouts = slices.Insert(p.layouts, 0, l)
	for _, a := range p.layouts {
		a.shared = slices.ContainsFunc(p.layouts, func(b *cdxLayout) bool { return a != b && a.cutsLike(b) })
	}
}

// cutsLike reports whether lines of o can be mistaken for lines of l.
func (l *cdxLayout) cutsLike(o *cdxLayout) bool {
	return l.legend.Separator == o.legend.Separator && l.columns == o.columns
}

func (p *cdxParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, p.content)
	if p.err != nil {
		return p.err
	}
	if line == nil {
		return err
	}
	if p.in.second && isBlank(line[0]) {
		p.two = append(append(p.two[:0], '-'), line...)
		line = p.two
	}
	l := p.layoutOf(line)
	if l == nil && !p.in.second {
		if first := p.cutTwo(line); first != nil {
			line, l = first, p.layoutOf(first)
		}
	}
	if l == nil {
		rej.Reason = raw.BadCDX
		return nil
	}
	l.row, l.cells = l.legend.trim(line), l.cells[:0]
	l.split()
	rej.Reason = l.record(rec)
	return nil
}

// content returns a line with a capture, or with a legend that cannot be followed, nil for others.
func (p *cdxParser) content(line []byte) []byte {
	if capture := indexLine(line, p.fields.Counts); capture != nil {
		return capture
	}
	if legend, ok := ParseCDXLegend(line); ok {
		if p.err = p.meet(legend); p.err != nil {
			return line
		}
	}
	return nil
}

// maxLayouts is how many different legends an index may have. Lines are held against all of them.
const maxLayouts = 200

var errLegend = errors.New("the legend here gives the lines below it other fields than those before it have, in an " +
	"object that is read in ranges; cut it at its legends (csplit) and give the parts")

// meet has the lines below read by a legend. All ranges have to read a line alike: they know the
// plan's legends and the usual ones. In a range, any other legend is an error.
func (p *cdxParser) meet(legend CDXLegend) error {
	l := p.newLayout(legend)
	for _, known := range p.layouts {
		if known.cutsLike(l) {
			if known.legend == legend {
				return nil
			}
			l.shared = true
			break
		}
	}
	if !l.shared && slices.Contains(UsualLegends, legend.Letters) {
		return nil
	}
	if p.in.stop != 0 && p.in.Offset() > raw.HeadSize {
		return errLegend
	}
	if len(p.layouts) > maxLayouts {
		return fmt.Errorf("it has more than %d different legends; cut it at its legends and give the parts", maxLayouts)
	}
	p.use(l)
	return nil
}

// layoutOf returns the layout to read a line by, nil if there is none.
func (p *cdxParser) layoutOf(line []byte) *cdxLayout {
	for _, l := range p.layouts {
		if l.legend.fields(line) == l.columns && (!l.shared || l.legend.Fits(line, false)) {
			return l
		}
	}
	if p.usual == nil {
		for _, letters := range UsualLegends {
			for _, sep := range []byte{' ', '\t'} {
				p.usual = append(p.usual, p.newLayout(CDXLegend{sep, letters}))
			}
		}
	}
	for _, l := range p.usual {
		if l.legend.fields(line) == l.columns && l.legend.Fits(line, false) {
			return l
		}
	}
	if p.main != nil && p.main.legend.Fits(line, true) {
		return p.main
	}
	return nil
}

// cutTwo cuts off the end of a line that is a line by itself, which is read next. It returns the
// text before it, nil if there is no such end or no time before it: then it is one line with blanks
// in its key.
func (p *cdxParser) cutTwo(line []byte) []byte {
	for _, l := range p.layouts {
		sep := l.legend.Separator
		row := l.legend.trim(line)
		at := len(row)
		for n := l.columns; n > 0 && at > 0; n-- {
			at = bytes.LastIndexByte(row[:at], sep)
		}
		if at <= 0 {
			continue
		}
		first, second, whole := row[:at], row[at+1:], row[at+1:]
		meet := l.legend.fields(first) != l.columns
		if meet { // in the first field of the second
			second = second[max(0, bytes.IndexByte(second, sep)):]
			p.two = append(append(p.two[:0], '-'), second...)
			whole = p.two
		}
		if l.legend.Fits(whole, false) && slices.ContainsFunc(bytes.Split(first, []byte{sep}), IsIndexTime) {
			p.in.unread(second)
			if meet {
				first = append(append(p.two[:0], first...), sep, '-')
				p.two = first
			}
			return first
		}
	}
	return nil
}

// CDXJNames are the names of members in the dialects of CDXJ by their meaning, the usual ones
// first.
var CDXJNames = map[string][]string{
	"url":        {"url", "uri", "original", "original_uri", "original_url", "originalUrl", "target_uri", "target"},
	raw.Status:   {"status", "statuscode", "status_code", "statusCode", "http_status", "hsc"},
	raw.MIME:     {"mime", "mimetype", "mime_type", "mimeType", "content_type", "mct"},
	raw.Digest:   {"digest", "payload_digest", "sha"},
	raw.Filename: {"filename", "file_name", "warc_filename", "file"},
	raw.Offset:   {"offset", "record_offset"},
	raw.Length:   {"length", "record_length", "rle"},
}

// cdxjParser reads CDXJ lines: SURT key, timestamp, JSON object.
type cdxjParser struct {
	in *Input
	jsonFields
	lineTS bool       // the timestamp is the line's second field, not a member of the object
	chosen bool       // no caller named the URL's member, so that a line may have another
	urls   [][]string // the paths of CDXJNames["url"]
}

func newCDXJParser(in *Input, plan raw.Plan, f Fields) *cdxjParser {
	f.time.CDX = true
	p := &cdxjParser{in: in, jsonFields: newJSONFields(plan, f),
		lineTS: plan.TS != nil && plan.TS.Number > 0, chosen: plan.SURT}
	p.aliases, p.surt = CDXJNames, false
	for _, name := range CDXJNames["url"] {
		p.urls = append(p.urls, []string{name})
	}
	return p
}

func (p *cdxjParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		line, err := p.in.nextLine(rej, func(line []byte) []byte { return indexLine(line, p.Counts) })
		if line == nil {
			return err
		}
		key, ts, object, ok := CutCDXJ(line)
		if !ok {
			rej.Reason = raw.BadCDX
			return nil
		}
		if len(key) == 0 {
			key = nil
		}
		ok = p.parse(object)
		switch {
		case p.lineTS && !p.SetTS(rec, ts):
			rej.Reason = raw.BadTS
		case !ok:
			rej.Reason = raw.BadJSON
		default:
			rej.Reason = p.record(rec, key)
		}
		if rej.Reason == raw.NoURL && p.chosen {
			if IsCDXJBlock(&p.doc) {
				rej.Reason, *rec = "", raw.Record{}
				p.Counts.Comments++
				continue
			}
			rej.Reason = p.otherURL(rec, key)
		}
		return nil
	}
}

// parse parses the object of a line and reports whether it is well formed. Another line behind it
// is read next, even if the object is cut off before its end; the key in which they meet is then
// left out.
func (p *cdxjParser) parse(object []byte) bool {
	end, ok := p.doc.ParsePrefix(object)
	rest := object[1:]
	if ok {
		if rest = TrimSpace(object[end:]); len(rest) == 0 {
			return true
		}
	}
	_, ts, second, two := CutCDXJ(rest)
	if !two || ts == nil {
		return false
	}
	if !ok {
		if n, whole := p.doc.ParsePrefix(second); !whole || len(TrimSpace(second[n:])) > 0 {
			return false
		}
		rest = rest[cap(rest)-cap(ts):] // ts is a part of rest
	}
	p.in.unread(rest)
	return ok
}

// record makes a record of the object.
func (p *cdxjParser) record(rec *raw.Record, key []byte) string {
	reason := p.fill(rec, 0, key)
	if p.item > 0 {
		p.item = 0
		return raw.NoURL // a line of an index has one URL
	}
	return reason
}

// otherURL makes a record of an object without the member that the plan has as the URL: by another
// name for URLs, else by the key.
func (p *cdxjParser) otherURL(rec *raw.Record, key []byte) string {
	url := p.url
	p.url, p.surt = nil, true
	for _, path := range p.urls {
		if n := p.doc.Find(0, path); n > 0 && len(TrimSpace(p.scalar(n))) > 0 {
			p.url, p.surt = path, false
			break
		}
	}
	reason := p.record(rec, key)
	p.url, p.surt = url, false
	return reason
}

// IsCDXJBlock reports whether the object of a CDXJ line locates lines in a compressed index
// (https://specs.webrecorder.net/cdxj/0.1.0/) and is no capture: it has nothing but an offset, a
// length, a digest, and the name of an index.
func IsCDXJBlock(doc *jsondoc.Document) bool {
	if doc.Find(0, []string{"offset"}) == 0 || doc.Find(0, []string{"length"}) == 0 {
		return false
	}
	for c := range doc.Children(0) {
		n := &doc.Nodes[c]
		switch string(doc.Name(n)) {
		case "offset", "length", "digest", "recordDigest", "count", "lines":
		case "filename":
			name := strings.TrimSuffix(string(doc.Text(n)), ".gz")
			if !strings.HasSuffix(name, ".cdx") && !strings.HasSuffix(name, ".cdxj") {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// CutCDXJ cuts a CDXJ line into its SURT key, its timestamp and its JSON object. The key may have
// blanks. Some dialects have no key, or no timestamp, or the type of the record between timestamp
// and object. ok is false if the line has no object, or neither key nor timestamp.
func CutCDXJ(line []byte) (key, ts, object []byte, ok bool) {
	line = TrimSpace(line)
	key, rest, _ := bytes.Cut(line, []byte{' '})
	ts, object, _ = bytes.Cut(rest, []byte{' '})
	if len(object) > 0 && object[0] == '{' && isCDXJTime(ts) {
		return key, ts, object, true
	}
	// The object begins with the first brace that a timestamp precedes, or at most a word between.
	first := 0
	for at := 1; at < len(line); at++ {
		if line[at] != '{' || !isBlank(line[at-1]) {
			continue
		}
		if first == 0 {
			first = at
		}
		head, last := cutLastField(line[:at])
		if isCDXJTime(last) {
			return head, last, line[at:], true
		}
		if head, last = cutLastField(head); isCDXJTime(last) {
			return head, last, line[at:], true
		}
	}
	if first == 0 {
		return nil, nil, nil, false
	}
	if key, ts = cutLastField(line[:first]); len(key) == 0 {
		key, ts = ts, nil
	}
	return key, ts, line[first:], true
}

// cutLastField cuts the last field between blanks off a text. rest has no blanks around it.
func cutLastField(b []byte) (rest, last []byte) {
	b = TrimSpace(b)
	i := bytes.LastIndexAny(b, " \t") + 1
	return TrimSpace(b[:i]), b[i:]
}

// isCDXJTime reports whether b is a timestamp of a CDXJ line: of 12 digits or more, or in RFC 3339.
func isCDXJTime(b []byte) bool {
	if len(b) >= 12 && timestamp.AllDigits(b) {
		return IsIndexTime(b)
	}
	if len(b) < 10 || b[4] != '-' {
		return false
	}
	_, ok := timestamp.Parse(b)
	return ok
}

// indexLine returns a line of an index, nil if it is blank, a comment, or about other lines: the
// header of CDXJ (!meta, @meta), an alias of a URL (@alias, of OutbackCDX and pywb).
func indexLine(line []byte, counts *raw.Counts) []byte {
	switch {
	case len(TrimSpace(line)) == 0:
		counts.Blank++
		return nil
	case IsIndexComment(line):
		counts.Comments++
		return nil
	}
	return line
}

// IsIndexComment reports whether a line of an index is about other lines.
func IsIndexComment(line []byte) bool {
	return len(line) > 0 && (line[0] == '!' || line[0] == '#' || line[0] == '@') || IsCDXLegend(line)
}
