package text

import (
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
	surt          bool // the key that record is given is a SURT key and stands for the URL
	extras        []jsonExtra
	keyName       []byte // name in extras of the key that record is given
	// aliases are other names of members that hold capture fields.
	aliases   map[string][]string
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
	j := jsonFields{Fields: f, url: jsondoc.SplitPath(plan.URL.Path()), all: plan.AllExtras, keyName: urlKeyName}
	deep := j.all || len(plan.Extras) > 0 || len(j.url) > 1
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
	// Most plans want top-level members only.
	j.doc.Deep = deep
	return j
}

// record parses text and fills rec, or returns the reason of the reject. key, if not nil, is added
// to the extras under keyName, unless the text has a member of that name.
func (j *jsonFields) record(rec *raw.Record, text, key []byte) string {
	d := &j.doc
	if !d.Parse(text) {
		return raw.BadJSON
	}
	root := &d.Nodes[0]
	if root.Kind == '"' {
		rec.URL = TrimSpace(j.unquote(&j.urlBuf, root))
		if len(rec.URL) == 0 {
			return raw.NoURL
		}
		return ""
	}
	skip := [3]int{} // the nodes that are no extras: URL, timestamp and size
	if j.surt {
		j.urlBuf = AppendSURTURL(j.urlBuf[:0], TrimSpace(key))
		rec.URL = j.urlBuf
	} else {
		if skip[0] = d.Find(0, j.url); skip[0] == 0 || d.Nodes[skip[0]].Kind != '"' {
			return raw.NoURL
		}
		rec.URL = TrimSpace(j.unquote(&j.urlBuf, &d.Nodes[skip[0]]))
	}
	if len(rec.URL) == 0 {
		return raw.NoURL
	}
	if j.hasTS {
		skip[1] = d.Find(0, j.ts)
		if !j.SetTS(rec, j.scalar(skip[1])) {
			return raw.BadTS
		}
	}
	if j.hasSize {
		skip[2] = d.Find(0, j.size)
		if !SetSize(rec, j.scalar(skip[2])) {
			return raw.BadSize
		}
	}
	if j.all || len(j.extras) > 0 {
		rec.Extras = j.object(skip[:], key)
	}
	return ""
}

// aliasesOf returns the other names of a capture field whose own member is not there.
func (j *jsonFields) aliasesOf(x *jsonExtra, node int) []string {
	if node > 0 || !x.capture {
		return nil
	}
	return j.aliases[x.name]
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
func (j *jsonFields) object(skip []int, key []byte) []byte {
	d := &j.doc
	if j.all {
		name := j.keyName
		if key == nil {
			name = nil
		}
		j.out = d.AppendObject(j.out[:0], 0, skip, name, key)
	} else {
		j.out = append(j.out[:0], '{')
		for _, x := range j.extras {
			node := d.Find(0, x.path)
			for _, alias := range j.aliasesOf(&x, node) {
				if node = d.Find(0, []string{alias}); node > 0 && !slices.Contains(skip, node) {
					break
				}
				node = 0
			}
			isKey := node == 0 && key != nil && x.name == string(j.keyName)
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

// jsonLinesParser reads one JSON value a line.
type jsonLinesParser struct {
	in *Input
	jsonFields
}

func newJSONLinesParser(in *Input, plan raw.Plan, f Fields) *jsonLinesParser {
	return &jsonLinesParser{in: in, jsonFields: newJSONFields(plan, f)}
}

func (p *jsonLinesParser) Next(rec *raw.Record, rej *raw.Reject) error {
	line, err := p.in.nextLine(rej, p.text)
	if line != nil {
		rej.Reason = p.record(rec, line, nil)
	}
	return err
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
