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
		if p.item > 0 {
			rej.Reason = p.fill(rec, 0, nil)
			return nil
		}
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

// jsonTreeParser reads the records inside objects and arrays of any size: the values at one depth,
// or at any depth the objects that have the URL.
//
// At one depth, the names that lead to a record, joined by dots, become the member key of its
// extras, unless the record has a member of that name. A scalar above that depth is a record
// without a URL. In a value at that depth that has no URL itself, or is longer than a record may
// be, the objects with the URL are records, as at any depth. At any depth, an object that has the
// URL and is longer than a record may be is rejected, and the records in it are read.
type jsonTreeParser struct {
	Values
	jsonFields
	more  bool // behind a value
	depth int
	any   bool
	keys  bool
	har   bool     // an HTTP archive: an object with a request or a response is a record
	open  []byte   // { or [ of each open level
	names [][]byte // of each level, the name of the current member, as escaped in the text
	key   []byte   // buffer of path
	keyed bool     // extras may have the key

	// At one depth: where the open value began that is longer than a record, and whether it had a
	// record or a reject.
	long  Position
	found bool

	// The value that is being searched, and the node to look at next. Beside it is the part of the
	// text before that node, and where it ends.
	text  []byte
	node  int
	seen  int
	at    Position
	apart []int // buffer of nodes that are no extras
	deep  bool  // all values are parsed whole
	// A value at the depth of records is a record if it has the URL; otherwise the objects in it
	// are records. yields is set if there was a record.
	element, yields bool
}

func newJSONTreeParser(in *Input, plan raw.Plan, f Fields) *jsonTreeParser {
	p := &jsonTreeParser{Values: Values{in: in, nested: true}, jsonFields: newJSONFields(plan, f),
		depth: plan.Depth, any: plan.Depth == raw.AnyDepth, keys: plan.Keys, keyed: plan.AllExtras || plan.Keys}
	p.keyName = []byte("key")
	for _, x := range p.extras {
		p.keyed = p.keyed || x.name == "key"
	}
	p.har = p.any && plan.URL.Path() == HARURL
	if p.deep = p.doc.Deep || p.any; p.any {
		p.depth = 0
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
				if n == p.depth+1 && !p.any && !p.found {
					in.record, rej.Reason = p.long, raw.TooLong
					return nil
				}
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
		inside := p.any || len(p.open) > p.depth // inside the value that is searched
		open := container && len(p.open) < p.depth
		if container && (inside || len(p.open) == p.depth && !p.keys) {
			var taken bool
			if taken, open, err = p.take(inside, rej); err != nil {
				return err
			}
			if taken {
				continue
			}
			if open && len(p.open) >= p.depth+maxOpen {
				return fmt.Errorf("its records are inside more than %d objects and arrays that are longer than a record", maxOpen)
			}
			if open && !inside {
				p.long, p.found = in.Position(), false
			}
		}
		if open {
			p.open, p.more = append(p.open, c), false
			if len(p.names) < len(p.open) {
				p.names = append(p.names, nil)
			}
			p.names[len(p.open)-1] = p.names[len(p.open)-1][:0]
			in.r++
			continue
		}
		p.more = true
		list := p.inURLList()
		reason, err := p.value(&p.doc)
		switch {
		case err != nil:
			return err
		case inside && list:
			if reason == "" {
				reason = p.fill(rec, 0, nil)
			}
		case inside && c == '"' && len(p.jsonFields.url) == 1 && p.isURLName():
			reason = raw.TooLong // of the object around it
		case inside && reason != raw.BadJSON:
			continue
		case reason == "":
			reason = p.fill(rec, 0, p.path())
		}
		if len(p.open) < p.depth && reason == "" {
			*rec, reason = raw.Record{}, raw.NoURL
		}
		p.found, rej.Reason = true, reason
		return nil
	}
}

// take consumes an object or array that is as long as a record at most and well formed, so that
// nextNode finds the records in it. It reports whether it did; and if not, whether the value is to
// be opened. At one depth, it leaves a malformed value to value.
func (p *jsonTreeParser) take(inside bool, rej *raw.Reject) (taken, open bool, err error) {
	in := p.in
	if inside && p.isURLName() && len(p.jsonFields.url) == 1 && in.buf[in.r] == '[' {
		return false, true, nil // a list of URLs
	}
	at := in.Position()
	p.doc.Deep = p.deep || inside
	n, ok, long, err := p.scan(&p.doc)
	if err != nil && !errors.Is(err, ErrTruncated) {
		return false, false, err
	}
	if !ok || long || err != nil {
		return false, p.any || long, nil
	}
	p.text, p.node, p.seen, p.at = in.buf[in.r:in.r+n], 0, 0, at
	p.element, p.yields = !inside, false
	if p.element && !p.doc.Deep && !p.hasURL(0) {
		p.doc.Deep = true
		p.doc.ParsePrefix(p.text)
	}
	if url := p.jsonFields.url; inside && len(url) > 1 && p.isURLName() && p.doc.Find(0, url[1:]) > 0 {
		in.record, rej.Reason, p.found = at, raw.TooLong, true
	}
	p.in.Consume(n)
	p.more = true
	return true, false, nil
}

// inURLList reports whether the current value is an element of an open list of URLs.
func (p *jsonTreeParser) inURLList() bool {
	n := len(p.open)
	return n > 1 && len(p.jsonFields.url) == 1 && p.open[n-1] == '[' && p.open[n-2] == '{' &&
		string(jsondoc.AppendUnescaped(nil, p.names[n-2])) == p.jsonFields.url[0]
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
	var key []byte
	if !p.any {
		key = p.path()
	}
	if p.item > 0 {
		rej.Reason = p.fill(rec, p.node-1, key, p.apart...)
		return true
	}
	for ; p.node < len(d.Nodes) && !(p.yields && p.element && p.node == 1); p.node++ {
		if !p.hasURL(p.node) && !p.lacksURL(p.node) {
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
		if (p.all || len(p.extras) > 0) && !(p.element && p.node == 0) {
			for c := range d.Children(p.node) {
				for i, end := c, d.End(c); i < end; i++ {
					if p.hasURL(i) {
						p.apart = append(p.apart, c)
						break
					}
				}
			}
		}
		rej.Reason = p.fill(rec, p.node, key, p.apart...)
		p.node++
		p.yields, p.found = true, true
		return true
	}
	if p.element && !p.yields {
		p.in.record, rej.Reason, p.yields = p.at, raw.NoURL, true
	}
	return rej.Reason != ""
}

// hasURL reports whether a node is an object with a URL or a list of URLs, or with another scalar
// in its place.
func (p *jsonTreeParser) hasURL(node int) bool {
	d := &p.doc
	if d.Nodes[node].Kind != '{' {
		return false
	}
	at := d.Find(node, p.jsonFields.url)
	if at > 0 && d.Nodes[at].Kind == '[' {
		return d.End(at) > at+1 && d.Nodes[at+1].Kind == '"'
	}
	return at > 0 && d.Nodes[at].Kind != '{'
}

// HARURL is the path of the URL in an entry of an HTTP archive.
const HARURL = "request.url"

// lacksURL reports whether a node is an entry of an HTTP archive whose URL, or what holds it, has
// another name.
func (p *jsonTreeParser) lacksURL(node int) bool {
	if !p.har || p.doc.Nodes[node].Kind != '{' {
		return false
	}
	for _, name := range []string{"request", "response"} {
		if at := p.doc.Find(node, []string{name}); at > 0 && p.doc.Nodes[at].Kind == '{' {
			return true
		}
	}
	return false
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
	p.in.Consume(n)
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
