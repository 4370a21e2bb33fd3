package text

import (
	"bytes"
	"io"
	"slices"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// jsonFields makes a record of a JSON value: an object with a URL member, or a string that is the
// URL.
type jsonFields struct {
	Fields
	doc           jsondoc.Document
	url, ts, size []string // paths; nil: the value itself, or none
	hasTS         bool
	hasSize       bool
	all           bool
	surt          bool   // the key that record is given is a SURT key and stands for the URL
	keyIsURL      bool   // the key that record is given is the URL
	rows          bool   // records are arrays
	skip          int    // rows still to skip: titles and header
	cdxServer     bool   // rows are from a CDX server
	first         string // the name of the first column
	extras        []jsonExtra
	keyName       []byte // name in extras of the key that record is given
	// aliases are other names of members that hold capture fields.
	aliases map[string][]string
	// item is the element of a list of URLs that is the next record, 0 for none.
	item      int
	urlBuf    []byte
	scalarBuf []byte
	out       []byte
}

type jsonExtra struct {
	name    string
	key     []byte // `"name":`
	path    []string
	capture bool // name is that of a capture field
}

func newJSONFields(plan raw.Plan, f Fields) jsonFields {
	j := jsonFields{Fields: f, url: jsondoc.SplitPath(plan.URL.Path()), all: plan.AllExtras, keyName: urlKeyName,
		surt: plan.SURT, keyIsURL: plan.Keys, rows: plan.Rows, skip: plan.HeaderRow, cdxServer: plan.Rows && IsCDXServerRow(plan.Columns)}
	j.time.CDX = j.time.CDX || j.cdxServer
	deep := j.all || len(plan.Extras) > 0 || len(j.url) > 1 || j.rows
	if plan.TS != nil && plan.TS.Number == 0 {
		j.ts, j.hasTS = jsondoc.SplitPath(plan.TS.Path()), true
		deep = deep || len(j.ts) > 1
	}
	if plan.Size != nil {
		j.size, j.hasSize = jsondoc.SplitPath(plan.Size.Path()), true
		deep = deep || len(j.size) > 1
	}
	for _, c := range SortColumns(plan.Extras) {
		key := append(codec.AppendJSONString(nil, c.Name), ':')
		j.extras = append(j.extras, jsonExtra{c.Name, key, jsondoc.SplitPath(c.Path()), c.Capture})
	}
	if len(plan.Columns) > 0 {
		j.first = plan.Columns[0]
	}
	// Most plans want top-level members only.
	j.doc.Deep = deep
	return j
}

// fill makes a record of a value of the document that is parsed, or returns the reason of the
// reject. key, if not nil, is added to the extras under keyName, unless the value has a member of
// that name. The nodes in apart are no extras. If the URL is a list, each of its elements is a
// record, with the other members of the value: item is not 0 while fill is to be called again.
func (j *jsonFields) fill(rec *raw.Record, node int, key []byte, apart ...int) string {
	d := &j.doc
	root := &d.Nodes[node]
	if root.Kind == '"' && !j.keyIsURL {
		rec.URL = TrimSpace(j.unquote(&j.urlBuf, root))
		if len(rec.URL) == 0 {
			return raw.NoURL
		}
		return ""
	}
	skip := [3]int{} // the nodes that are no extras: URL, timestamp and size
	switch {
	case j.surt && key != nil:
		j.urlBuf = AppendSURTURL(j.urlBuf[:0], TrimSpace(key))
		rec.URL = j.urlBuf
	case j.keyIsURL:
		if rec.URL = TrimSpace(key); !bytes.Contains(rec.URL, []byte("://")) {
			return raw.NoURL
		}
	default:
		skip[0] = d.Find(node, j.url)
		if at := skip[0]; at > 0 && d.Nodes[at].Kind == '[' && !d.Deep {
			d.Deep = true
			d.ParsePrefix(d.Text(root)) // again, with the elements: all indexes are others
			root, skip[0] = &d.Nodes[node], d.Find(node, j.url)
		}
		at := skip[0]
		if at > 0 && d.Nodes[at].Kind == '[' {
			at = j.nextItem(at)
		}
		if at == 0 || d.Nodes[at].Kind != '"' {
			return raw.NoURL
		}
		rec.URL = TrimSpace(j.unquote(&j.urlBuf, &d.Nodes[at]))
		if j.surt {
			j.urlBuf = AppendSURTURL(nil, rec.URL)
			rec.URL = j.urlBuf
		}
	}
	if len(rec.URL) == 0 {
		return raw.NoURL
	}
	if j.hasTS {
		skip[1] = d.Find(node, j.ts)
		if !j.SetTS(rec, j.scalar(skip[1])) {
			return raw.BadTS
		}
	}
	if j.hasSize {
		skip[2] = d.Find(node, j.size)
		if !SetSize(rec, j.scalar(skip[2])) {
			return raw.BadSize
		}
	}
	if (j.all || len(j.extras) > 0) && (root.Kind == '{' || root.Kind == '[') {
		no := skip[:]
		if len(apart) > 0 {
			no = append(apart, no...)
		}
		slices.Sort(no)
		rec.Extras = j.object(node, no, key)
	}
	return ""
}

// nextItem returns the next element of a list, 0 if the list is empty.
func (j *jsonFields) nextItem(list int) int {
	item, end := max(j.item, list+1), j.doc.End(list)
	if j.item = 0; item >= end {
		return 0
	}
	if next := j.doc.End(item); next < end {
		j.item = next
	}
	return item
}

// aliasesOf returns the other names of a capture field whose own member is not there.
func (j *jsonFields) aliasesOf(x *jsonExtra, node int) []string {
	if node > 0 || !x.capture {
		return nil
	}
	return j.aliases[x.name]
}

// noRecord reports whether the parsed value is a row that is no record: a row up to the header or
// an empty row. From a CDX server, it may also be the header of a further answer, or the key that
// resumes the query, which is alone in the last row.
func (j *jsonFields) noRecord() bool {
	if !j.rows || j.doc.Nodes[0].Kind != '[' {
		return false
	}
	n := j.doc.End(0)
	switch {
	case n == 1:
		j.Counts.Blank++
	case j.skip > 0:
		j.skip--
	case j.cdxServer && (n == 2 || string(j.doc.Text(&j.doc.Nodes[1])) == j.first):
		j.Counts.Comments++
	default:
		return false
	}
	return true
}

// IsCDXServerRow reports whether names are fields of a CDX server: a row of its answer in JSON, an
// array of arrays, has them, and the first row the names
// (https://github.com/internetarchive/wayback/tree/master/wayback-cdx-server).
func IsCDXServerRow(names []string) bool {
	return slices.Contains(names, "timestamp") &&
		(slices.Contains(names, "original") || slices.Contains(names, "urlkey"))
}

// unquote returns the text of a string without its escapes. It is in the document or in buf.
func (j *jsonFields) unquote(buf *[]byte, n *jsondoc.Node) []byte {
	b := j.doc.Text(n)
	if n.Escaped {
		*buf = jsondoc.AppendUnescaped((*buf)[:0], b)
		return *buf
	}
	return b
}

// scalar returns the text of a string or number, and nil for null or an absent member. For any
// other value it returns a text that is neither a timestamp nor a size.
func (j *jsonFields) scalar(node int) []byte {
	if node == 0 {
		return nil
	}
	switch n := &j.doc.Nodes[node]; n.Kind {
	case '"':
		return j.unquote(&j.scalarBuf, n)
	case '0':
		return j.doc.Text(n)
	case 'n':
		return nil
	}
	return []byte("?")
}

// object returns the extras, nil if there are none.
func (j *jsonFields) object(root int, skip []int, key []byte) []byte {
	d := &j.doc
	if j.all {
		name := j.keyName
		if key == nil || j.keyIsURL {
			name = nil
		}
		j.out = d.AppendObject(j.out[:0], root, skip, name, key)
	} else {
		j.out = append(j.out[:0], '{')
		for _, x := range j.extras {
			node := d.Find(root, x.path)
			for _, alias := range j.aliasesOf(&x, node) {
				if node = d.Find(root, []string{alias}); node > 0 && !slices.Contains(skip, node) {
					break
				}
				node = 0
			}
			if j.rows && (node == 0 || len(d.Text(&d.Nodes[node])) == 0) {
				continue // as empty cells of tables
			}
			isKey := node == 0 && key != nil && !j.keyIsURL && x.name == string(j.keyName)
			if node == 0 && !isKey {
				continue
			}
			var value []byte // of a capture field, as text
			if kind := d.Nodes[node].Kind; x.capture && !isKey {
				if kind == '"' || kind == '0' || kind == 'n' {
					value = CaptureValue(x.name, j.scalar(node))
				}
				if len(value) == 0 || len(value) == 1 && value[0] == '-' {
					continue
				}
			}
			if len(j.out) > 1 {
				j.out = append(j.out, ',')
			}
			j.out = append(j.out, x.key...)
			switch {
			case isKey:
				j.out = codec.AppendJSONString(j.out, key)
			case x.capture:
				j.out = codec.AppendJSONString(j.out, value)
			default:
				j.out = d.AppendCanonical(j.out, node, nil)
			}
		}
		j.out = append(j.out, '}')
	}
	if len(j.out) == 2 {
		return nil
	}
	return j.out
}

// jsonLinesParser reads one JSON value a line. A malformed line, or one with several values, is
// read by Values. Damage affects no other line.
type jsonLinesParser struct {
	in *Input
	jsonFields
	values *Values // of the current line, nil unless it is read so
	some   bool    // it had a value
}

func newJSONLinesParser(in *Input, plan raw.Plan, f Fields) *jsonLinesParser {
	return &jsonLinesParser{in: in, jsonFields: newJSONFields(plan, f)}
}

func (p *jsonLinesParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		if p.item > 0 {
			rej.Reason = p.fill(rec, 0, nil)
			return nil
		}
		if p.values != nil {
			if ok := p.nextOfLine(rec, rej); ok {
				return nil
			}
			continue
		}
		line, err := p.in.nextLine(rej, p.text)
		switch {
		case line == nil:
			return err
		case !p.doc.Parse(line) || p.isList():
			p.readValues(line)
		case !p.noRecord():
			rej.Reason = p.fill(rec, 0, nil)
			return nil
		}
	}
}

// isList reports whether the parsed line is an array of records and not a record.
func (p *jsonLinesParser) isList() bool {
	d := &p.doc
	return d.Nodes[0].Kind == '[' && (!p.rows || len(d.Nodes) > 1 && d.Nodes[1].Kind == '[')
}

// readValues makes the parser read the values of a line next.
func (p *jsonLinesParser) readValues(line []byte) {
	in := NewBytesInput(line, p.in.lineEnd, p.in.max)
	in.line = p.in.record.Line
	in.base = p.in.base + int64(cap(p.in.buf)-cap(line)) // line is a part of buf
	p.values, p.some = &Values{in: in, rows: p.rows, line: true}, false
}

// nextOfLine reads the next value of a line, and reports whether there is one.
func (p *jsonLinesParser) nextOfLine(rec *raw.Record, rej *raw.Reject) bool {
	reason, err := p.values.Next(&p.doc)
	p.in.record = p.values.in.record
	switch {
	case err == io.EOF:
		if p.values = nil; !p.some {
			p.Counts.Blank++
		}
		return false
	case err != nil:
		p.in.record = p.values.in.Position()
		p.values, reason = nil, raw.BadJSON
	}
	p.some = true
	if reason == "" {
		if p.noRecord() {
			return false
		}
		reason = p.fill(rec, 0, nil)
	}
	rej.Reason = reason
	return true
}

// text returns the JSON text of a line, nil if it has none.
func (p *jsonLinesParser) text(line []byte) []byte {
	// JSON text sequences (RFC 7464) put a record separator before each value.
	if len(line) > 0 && line[0] == 0x1e {
		line = line[1:]
	}
	line = TrimSpace(line)
	if len(line) == 0 {
		p.Counts.Blank++
		return nil
	}
	return line
}
