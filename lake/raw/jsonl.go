package raw

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/codec"
)

// jsonFields takes a record out of a parsed JSON value: an object with a URL member, or a
// string that is the URL.
type jsonFields struct {
	fields
	doc           jsonDoc
	url, ts, size []string // paths; nil: the value itself, or none
	hasTS         bool
	hasSize       bool
	all           bool
	extras        []jsonExtra
	keyName       []byte // of what record has from outside of the text
	urlBuf        []byte
	scalarBuf     []byte
	out           []byte
}

type jsonExtra struct {
	name string
	key  []byte // `"name":`
	path []string
}

func newJSONFields(plan Plan, f fields) jsonFields {
	j := jsonFields{fields: f, url: splitPath(plan.URL.Name), all: plan.AllExtras, keyName: urlKeyName}
	deep := j.all || len(plan.Extras) > 0 || len(j.url) > 1
	if plan.TS != nil && plan.TS.Number == 0 {
		j.ts, j.hasTS = splitPath(plan.TS.Name), true
		deep = deep || len(j.ts) > 1
	}
	if plan.Size != nil {
		j.size, j.hasSize = splitPath(plan.Size.Name), true
		deep = deep || len(j.size) > 1
	}
	for _, c := range sortColumns(plan.Extras) {
		j.extras = append(j.extras, jsonExtra{c.Name, append(codec.AppendJSONString(nil, c.Name), ':'), splitPath(c.Name)})
	}
	j.doc.deep = deep
	return j
}

// record parses text and fills rec, or returns the reason where it cannot. key, where not
// nil, is a member called keyName that stands outside the text.
func (j *jsonFields) record(rec *Record, text, key []byte) string {
	d := &j.doc
	if !d.parse(text) {
		return BadJSON
	}
	root := &d.nodes[0]
	if root.kind == '"' {
		rec.URL = trimSpace(j.unquote(&j.urlBuf, root))
		if len(rec.URL) == 0 {
			return NoURL
		}
		return ""
	}
	skip := [3]int{}
	if skip[0] = d.find(0, j.url); skip[0] == 0 || d.nodes[skip[0]].kind != '"' {
		return NoURL
	}
	rec.URL = trimSpace(j.unquote(&j.urlBuf, &d.nodes[skip[0]]))
	if len(rec.URL) == 0 {
		return NoURL
	}
	if j.hasTS {
		skip[1] = d.find(0, j.ts)
		if !j.setTS(rec, j.scalar(skip[1])) {
			return BadTS
		}
	}
	if j.hasSize {
		skip[2] = d.find(0, j.size)
		if !setSize(rec, j.scalar(skip[2])) {
			return BadSize
		}
	}
	if j.all || len(j.extras) > 0 {
		rec.Extras = j.object(skip[:], key)
	}
	return ""
}

func (j *jsonFields) unquote(buf *[]byte, n *jsonNode) []byte {
	b := j.doc.text(n)
	if n.escaped {
		*buf = appendUnescaped((*buf)[:0], b)
		return *buf
	}
	return b
}

// scalar returns the text of a string or number, nothing for null or an absent member, and
// for other values something that is neither a time nor a size.
func (j *jsonFields) scalar(node int) []byte {
	if node == 0 {
		return nil
	}
	switch n := &j.doc.nodes[node]; n.kind {
	case '"':
		return j.unquote(&j.scalarBuf, n)
	case '0':
		return j.doc.text(n)
	case 'n':
		return nil
	}
	return []byte("?")
}

// object builds the extras.
func (j *jsonFields) object(skip []int, key []byte) []byte {
	d := &j.doc
	d.members, d.arena = d.members[:0], d.arena[:0]
	if j.all {
		if key != nil {
			d.members = append(d.members, member{name: j.keyName, text: key})
		}
		d.pushMembers(0)
		j.out = d.appendMembers(j.out[:0], 0, skip)
	} else {
		j.out = append(j.out[:0], '{')
		for _, x := range j.extras {
			node := d.find(0, x.path)
			outside := node == 0 && key != nil && x.name == string(j.keyName)
			if node == 0 && !outside {
				continue
			}
			if len(j.out) > 1 {
				j.out = append(j.out, ',')
			}
			j.out = append(j.out, x.key...)
			if outside {
				j.out = codec.AppendJSONString(j.out, key)
			} else {
				j.out = d.appendCanonical(j.out, node, nil)
			}
		}
		j.out = append(j.out, '}')
	}
	if len(j.out) == 2 {
		return nil
	}
	return j.out
}

// jsonlParser reads one JSON value a line.
type jsonlParser struct {
	in     *input
	counts *Counts
	jsonFields
}

func newJSONLParser(in *input, plan Plan, f fields, counts *Counts) *jsonlParser {
	return &jsonlParser{in: in, counts: counts, jsonFields: newJSONFields(plan, f)}
}

func (p *jsonlParser) next(rec *Record, rej *Reject) error {
	line, err := p.in.nextLine(rej, p.text)
	if line != nil {
		rej.Reason = p.record(rec, line, nil)
	}
	return err
}

// text returns the JSON text of a line, nil if it has none.
func (p *jsonlParser) text(line []byte) []byte {
	// JSON text sequences (RFC 7464) put a record separator before each value.
	if len(line) > 0 && line[0] == 0x1e {
		line = line[1:]
	}
	line = trimSpace(line)
	if len(line) == 0 {
		p.counts.Blank++
		return nil
	}
	return line
}

// jsonParser reads the elements of top-level arrays, and top-level values that are no arrays,
// over any white space. An element's end is found by its brackets and quotes alone, so that a
// bad element is a reject and one that is too long is passed without being held; but what
// stands between elements must be right, for behind it nothing could be trusted.
type jsonParser struct {
	in *input
	jsonFields
	inArray bool // behind the opening bracket of a top-level array
	more    bool // behind an element of it
}

func newJSONParser(in *input, plan Plan, f fields) *jsonParser {
	return &jsonParser{in: in, jsonFields: newJSONFields(plan, f)}
}

func (p *jsonParser) next(rec *Record, rej *Reject) error {
	for {
		c, err := p.peek()
		if err == io.EOF && p.inArray {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		switch {
		case !p.inArray && c == '[':
			p.inArray, p.more = true, false
			p.in.r++
			continue
		case p.inArray && c == ']':
			p.inArray = false
			p.in.r++
			continue
		case p.inArray && p.more:
			if c != ',' {
				return fmt.Errorf("want , or ] behind an array's element, got %q", c)
			}
			p.more = false
			p.in.r++
			continue
		case c == ',' || c == ']' || c == '}' || c == ':':
			return fmt.Errorf("want a JSON value, got %q", c)
		}
		p.more = true
		p.in.at = p.in.here()
		n, err := p.span()
		if err != nil {
			return err
		}
		if n > p.in.max {
			rej.Reason = TooLong
			return nil
		}
		text := p.in.buf[p.in.r : p.in.r+n]
		p.pass(n)
		rej.Reason = p.record(rec, text, nil)
		return nil
	}
}

// jsonTreeParser reads records that stand at one depth inside objects and arrays, however large those are.
// In extras the names that lead to a record, joined by dots, are its key, unless it has a member of
// that name. A scalar above that depth is a record without a URL.
type jsonTreeParser struct {
	jsonParser
	depth int
	open  []byte   // { or [ of each level that is open
	names [][]byte // the member's name in each, as it stands in the text
	key   []byte
	keyed bool // extras may have the key
}

func newJSONTreeParser(in *input, plan Plan, f fields) *jsonTreeParser {
	p := &jsonTreeParser{jsonParser: *newJSONParser(in, plan, f), depth: plan.Depth, keyed: plan.AllExtras}
	p.keyName = []byte("key")
	for _, x := range p.extras {
		p.keyed = p.keyed || x.name == "key"
	}
	return p
}

func (p *jsonTreeParser) next(rec *Record, rej *Reject) error {
	in := p.in
	for {
		c, err := p.peek()
		if err == io.EOF && len(p.open) > 0 {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if n := len(p.open); n > 0 {
			top := p.open[n-1]
			switch {
			case c == top+2: // } is { and two, as ] is [
				p.open, p.more = p.open[:n-1], true
				in.r++
				continue
			case p.more && c != ',':
				return fmt.Errorf("want , or %q behind a value, got %q", top+2, c)
			case p.more:
				p.more = false
				in.r++
				continue
			case top == '{':
				if c, err = p.name(c); err != nil {
					return err
				}
			}
		}
		if c == ',' || c == ']' || c == '}' || c == ':' {
			return fmt.Errorf("want a JSON value, got %q", c)
		}
		if (c == '{' || c == '[') && len(p.open) < p.depth {
			p.open, p.more = append(p.open, c), false
			if len(p.names) < len(p.open) {
				p.names = append(p.names, nil)
			}
			p.names[len(p.open)-1] = p.names[len(p.open)-1][:0]
			in.r++
			continue
		}
		p.more = len(p.open) > 0
		in.at = in.here()
		n, err := p.span()
		if err != nil {
			return err
		}
		if n > in.max {
			rej.Reason = TooLong
			return nil
		}
		text := in.buf[in.r : in.r+n]
		p.pass(n)
		if rej.Reason = p.record(rec, text, p.path()); len(p.open) < p.depth && rej.Reason == "" {
			*rec, rej.Reason = Record{}, NoURL
		}
		return nil
	}
}

// name takes a member's name, which begins with c, and its colon, and returns the first byte of its value.
func (p *jsonTreeParser) name(c byte) (byte, error) {
	in := p.in
	if c != '"' {
		return 0, fmt.Errorf("want the name of a member, got %q", c)
	}
	n, err := p.span()
	if err != nil {
		return 0, err
	}
	if n > in.max {
		return 0, fmt.Errorf("the name of a member is longer than %d bytes", in.max)
	}
	name := in.buf[in.r : in.r+n]
	if !p.doc.parse(name) {
		return 0, errors.New("the name of a member is no JSON string")
	}
	at := &p.names[len(p.open)-1]
	*at = append((*at)[:0], name[1:n-1]...)
	p.pass(n)
	if c, err = p.peek(); err == nil && c != ':' {
		return 0, fmt.Errorf("want : behind the name of a member, got %q", c)
	}
	if err == nil {
		in.r++
		c, err = p.peek()
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return c, err
}

// path is the key of the record that stands.
func (p *jsonTreeParser) path() []byte {
	if !p.keyed {
		return nil
	}
	p.key = p.key[:0]
	for i, top := range p.open {
		if top != '{' {
			continue
		}
		if len(p.key) > 0 {
			p.key = append(p.key, '.')
		}
		p.key = appendUnescaped(p.key, p.names[i])
	}
	return p.key
}

// peek passes white space and returns the byte behind it.
func (p *jsonParser) peek() (byte, error) {
	in := p.in
	for {
		for ; in.r < in.w; in.r++ {
			switch c := in.buf[in.r]; c {
			case in.eol:
				in.line++
			case ' ', '\t', '\r', '\n', 0x1e:
			default:
				return c, nil
			}
		}
		if !in.fill() {
			return 0, in.err
		}
	}
}

// pass consumes n bytes that stand.
func (p *jsonParser) pass(n int) {
	in := p.in
	in.line += int64(bytes.Count(in.buf[in.r:in.r+n], []byte{in.eol}))
	in.r += n
}

// span returns the length of the value at in.r, which then stands in the buffer. A value
// longer than max is passed; what is returned is then only larger than max.
func (p *jsonParser) span() (int, error) {
	in := p.in
	n, depth, passed := 0, 0, false
	inString, escape := false, false
	for {
		for ; in.r+n < in.w; n++ {
			c := in.buf[in.r+n]
			switch {
			case escape:
				escape = false
			case inString:
				if c >= ' ' && c != '"' && c != '\\' {
					n = plainString(in.buf[:in.w], in.r+n) - in.r - 1
				} else if c == '\\' {
					escape = true
				} else if c == '"' {
					inString = false
					if depth == 0 {
						return p.spanned(n+1, passed), nil
					}
				}
			case c == '"':
				if depth == 0 && n > 0 {
					return p.spanned(n, passed), nil
				}
				inString = true
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth == 0 {
					return p.spanned(n, passed), nil
				}
				if depth--; depth == 0 {
					return p.spanned(n+1, passed), nil
				}
			case depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t'):
				return p.spanned(n, passed), nil
			}
		}
		if n > in.max {
			p.pass(n)
			n, passed = 0, true
		}
		if !in.fill() {
			if in.err != io.EOF {
				return 0, in.err
			}
			if depth > 0 || inString {
				return 0, errJSONCut
			}
			return p.spanned(n, passed), nil
		}
	}
}

// spanned ends a span of n bytes that stand.
func (p *jsonParser) spanned(n int, passed bool) int {
	if passed || n > p.in.max {
		p.pass(n)
		return p.in.max + 1
	}
	return n
}

var errJSONCut = errors.New("the object ends inside this JSON value")
