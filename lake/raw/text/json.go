package text

import (
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// jsonParser makes a record of each of an object's Values.
type jsonParser struct {
	values *Values
	jsonFields
}

func newJSONParser(in *Input, plan raw.Plan, f Fields) *jsonParser {
	return &jsonParser{values: NewValues(in, plan.Rows), jsonFields: newJSONFields(plan, f)}
}

func (p *jsonParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		reason, err := p.values.Next(&p.doc)
		if err != nil {
			return err
		}
		if reason == "" {
			if p.noRecord() {
				continue
			}
			reason = p.fill(rec, 0, nil)
		}
		rej.Reason = reason
		return nil
	}
}

// maxOpen is how many objects and arrays may enclose a record at any depth, if each is longer than
// a record may be.
const maxOpen = 64

// jsonTreeParser reads the records inside objects and arrays, however large those are: the values
// at one depth, or at any depth the objects that have the URL.
//
// At one depth, the names that lead to a record, joined by dots, become the member key of its
// extras, unless the record has a member of that name. A scalar above that depth is a record
// without a URL. At any depth, an object that has the URL and is longer than a record may be is
// rejected, and the records in it are read.
type jsonTreeParser struct {
	Values
	jsonFields
	more  bool // behind a value
	depth int
	any   bool
	keys  bool
	open  []byte   // { or [ of each open level
	names [][]byte // of each level, the name of the current member, as escaped in the text
	key   []byte   // buffer of path
	keyed bool     // extras may have the key

	// At any depth: the value that is being looked through, and the node to look at next. Beside it
	// is the part of the text before that node, and where it ends.
	text  []byte
	node  int
	seen  int
	at    Position
	apart []int // buffer of nodes that are no extras
}

func newJSONTreeParser(in *Input, plan raw.Plan, f Fields) *jsonTreeParser {
	p := &jsonTreeParser{Values: Values{in: in, nested: true}, jsonFields: newJSONFields(plan, f),
		depth: plan.Depth, any: plan.Depth == raw.AnyDepth, keys: plan.Keys, keyed: plan.AllExtras || plan.Keys}
	p.keyName = []byte("key")
	for _, x := range p.extras {
		p.keyed = p.keyed || x.name == "key"
	}
	if p.any {
		p.depth, p.doc.Deep = maxOpen, true
	}
	return p
}

func (p *jsonTreeParser) Next(rec *raw.Record, rej *raw.Reject) error {
	in := p.in
	for {
		if p.text != nil {
			if p.nextNode(rec, rej) {
				return nil
			}
			p.text = nil
		}
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
			case c == top+2: // '}' is '{'+2, and ']' is '['+2
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
		} else if c == ',' && p.more {
			p.more = false
			in.r++
			continue
		}
		if c == ',' || c == ']' || c == '}' || c == ':' {
			return fmt.Errorf("want a JSON value, got %q", c)
		}
		container := c == '{' || c == '['
		if container && p.any {
			if container, err = p.take(rej); err != nil {
				return err
			}
			if !container {
				continue
			}
		}
		if container && len(p.open) < p.depth {
			p.open, p.more = append(p.open, c), false
			if len(p.names) < len(p.open) {
				p.names = append(p.names, nil)
			}
			p.names[len(p.open)-1] = p.names[len(p.open)-1][:0]
			in.r++
			continue
		}
		if container && p.any {
			return fmt.Errorf("its records are inside more than %d objects and arrays that are longer than a record", maxOpen)
		}
		p.more = true
		reason, err := p.value(&p.doc)
		switch {
		case err != nil:
			return err
		case p.any:
			if len(p.jsonFields.url) == 1 && p.isURLName() && p.doc.Nodes[0].Kind == '"' {
				rej.Reason = raw.TooLong
				return nil
			}
			continue
		case reason == "":
			reason = p.fill(rec, 0, p.path())
		}
		if len(p.open) < p.depth && reason == "" {
			*rec, reason = raw.Record{}, raw.NoURL
		}
		rej.Reason = reason
		return nil
	}
}

// take consumes an object or array that is as long as a record at most and well formed, so that
// nextNode finds the records in it. It reports whether the value is none such, and is to be opened.
func (p *jsonTreeParser) take(rej *raw.Reject) (open bool, err error) {
	in := p.in
	at := in.Position()
	n, ok, long, err := p.scan(&p.doc)
	if err != nil && !errors.Is(err, ErrTruncated) {
		return false, err
	}
	if !ok || long || err != nil {
		return true, nil
	}
	if url := p.jsonFields.url; len(url) > 1 && p.isURLName() && p.doc.Find(0, url[1:]) > 0 {
		in.record, rej.Reason = at, raw.TooLong
	}
	p.text, p.node, p.seen, p.at = in.buf[in.r:in.r+n], 0, 0, at
	p.consume(n)
	p.more = true
	return false, nil
}

// isURLName reports whether the current member of an open object is the first step to the URL.
func (p *jsonTreeParser) isURLName() bool {
	n := len(p.open)
	return n > 0 && p.open[n-1] == '{' && len(p.jsonFields.url) > 0 &&
		string(jsondoc.AppendUnescaped(nil, p.names[n-1])) == p.jsonFields.url[0]
}

// nextNode makes a record of the next object of a value that has a URL, and reports whether there
// is one.
func (p *jsonTreeParser) nextNode(rec *raw.Record, rej *raw.Reject) bool {
	if rej.Reason != "" {
		return true // of the object around the value
	}
	d := &p.doc
	for ; p.node < len(d.Nodes); p.node++ {
		if !p.hasURL(p.node) {
			continue
		}
		start := d.Start(p.node)
		for _, c := range p.text[p.seen:start] {
			if c == p.in.lineEnd {
				p.at.Line++
			}
		}
		p.at.Offset += int64(start - p.seen)
		p.seen, p.in.record = start, p.at
		p.apart = p.apart[:0]
		for c := range d.Children(p.node) {
			for i := c; i < d.End(c); i++ {
				if p.hasURL(i) {
					p.apart = append(p.apart, c)
					break
				}
			}
		}
		rej.Reason = p.fill(rec, p.node, nil, p.apart...)
		p.node++
		return true
	}
	return false
}

// hasURL reports whether a node is an object with a URL, or with another scalar in its place.
func (p *jsonTreeParser) hasURL(node int) bool {
	d := &p.doc
	if d.Nodes[node].Kind != '{' {
		return false
	}
	at := d.Find(node, p.jsonFields.url)
	return at > 0 && d.Nodes[at].Kind != '{' && d.Nodes[at].Kind != '['
}

// name consumes a member's name, which begins with c, and its colon. It returns the first byte of
// the value, which it does not consume.
func (p *jsonTreeParser) name(c byte) (byte, error) {
	in := p.in
	if c != '"' {
		return 0, fmt.Errorf("want the name of a member, got %q", c)
	}
	n, ok, long, err := p.scan(&p.doc)
	switch {
	case err != nil:
		return 0, err
	case long:
		return 0, fmt.Errorf("the name of a member is longer than %d bytes", in.max)
	case !ok:
		return 0, errors.New("the name of a member is no JSON string")
	}
	last := &p.names[len(p.open)-1]
	*last = append((*last)[:0], in.buf[in.r+1:in.r+n-1]...)
	p.consume(n)
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

// path returns the key of the current record, nil if extras cannot have it.
func (p *jsonTreeParser) path() []byte {
	if !p.keyed {
		return nil
	}
	p.key = p.key[:0]
	for i, top := range p.open {
		if top != '{' {
			continue
		}
		if p.keys {
			p.key = p.key[:0] // the URL is the innermost name
		}
		if len(p.key) > 0 {
			p.key = append(p.key, '.')
		}
		p.key = jsondoc.AppendUnescaped(p.key, p.names[i])
	}
	return p.key
}
