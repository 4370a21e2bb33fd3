package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// Values reads the elements of top-level arrays, and the top-level values that are no arrays, with
// any white space between them. It finds the end of a value by its brackets and quotes alone. So a
// malformed value costs one record, and a value that is too long is skipped without being buffered.
// What stands between two values must be well formed, because nothing behind an error there can be
// trusted.
type Values struct {
	in      *Input
	inArray bool // behind the opening bracket of a top-level array
	more    bool // behind an element of it
}

// NewValues returns the values of an object.
func NewValues(in *Input) *Values { return &Values{in: in} }

// Next consumes the next value and returns its text, which is valid until the next call and not
// known to be well formed. If the value is longer than the greatest record, long is true and the
// value is skipped. The Input's Record returns its position. At the end err is io.EOF; every error
// is final. If the object ends within a value, err is [ErrTruncated] and the Input's Buffered
// returns what there is of it, as far as its length is within that of the greatest record.
func (v *Values) Next() (value []byte, long bool, err error) {
	for {
		c, err := v.peek()
		if err == io.EOF && v.inArray {
			return nil, false, io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, false, err
		}
		switch {
		case !v.inArray && c == '[':
			v.inArray, v.more = true, false
			v.in.r++
			continue
		case v.inArray && c == ']':
			v.inArray = false
			v.in.r++
			continue
		case v.inArray && v.more:
			if c != ',' {
				return nil, false, fmt.Errorf("want , or ] behind an array's element, got %q", c)
			}
			v.more = false
			v.in.r++
			continue
		case c == ',' || c == ']' || c == '}' || c == ':':
			return nil, false, fmt.Errorf("want a JSON value, got %q", c)
		}
		v.more = true
		return v.value()
	}
}

// value consumes the value that begins with the next byte.
func (v *Values) value() (value []byte, long bool, err error) {
	in := v.in
	in.record = in.Position()
	n, err := v.span()
	if err != nil {
		return nil, false, err
	}
	if n > in.max {
		return nil, true, nil
	}
	value = in.buf[in.r : in.r+n]
	v.consume(n)
	return value, false, nil
}

// jsonParser makes a record of each of an object's Values.
type jsonParser struct {
	values *Values
	jsonFields
}

func newJSONParser(in *Input, plan raw.Plan, f Fields) *jsonParser {
	return &jsonParser{values: NewValues(in), jsonFields: newJSONFields(plan, f)}
}

func (p *jsonParser) Next(rec *raw.Record, rej *raw.Reject) error {
	value, long, err := p.values.Next()
	switch {
	case err != nil:
		return err
	case long:
		rej.Reason = raw.TooLong
	default:
		rej.Reason = p.record(rec, value, nil)
	}
	return nil
}

// jsonTreeParser reads the records at one depth inside objects and arrays, however large those are.
// The names that lead to a record, joined by dots, become the member key of its extras, unless the
// record has a member of that name. A scalar above that depth is a record without a URL.
type jsonTreeParser struct {
	Values
	jsonFields
	depth int
	open  []byte   // { or [ of each open level
	names [][]byte // of each level, the name of the current member, as escaped in the text
	key   []byte   // buffer of path
	keyed bool     // extras may have the key
}

func newJSONTreeParser(in *Input, plan raw.Plan, f Fields) *jsonTreeParser {
	p := &jsonTreeParser{Values: Values{in: in}, jsonFields: newJSONFields(plan, f),
		depth: plan.Depth, keyed: plan.AllExtras}
	p.keyName = []byte("key")
	for _, x := range p.extras {
		p.keyed = p.keyed || x.name == "key"
	}
	return p
}

func (p *jsonTreeParser) Next(rec *raw.Record, rej *raw.Reject) error {
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
		value, long, err := p.value()
		if err != nil {
			return err
		}
		if long {
			rej.Reason = raw.TooLong
			return nil
		}
		if rej.Reason = p.record(rec, value, p.path()); len(p.open) < p.depth && rej.Reason == "" {
			*rec, rej.Reason = raw.Record{}, raw.NoURL
		}
		return nil
	}
}

// name consumes a member's name, which begins with c, and its colon. It returns the first byte of
// the value, which it does not consume.
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
	if !p.doc.Parse(name) {
		return 0, errors.New("the name of a member is no JSON string")
	}
	last := &p.names[len(p.open)-1]
	*last = append((*last)[:0], name[1:n-1]...)
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
		if len(p.key) > 0 {
			p.key = append(p.key, '.')
		}
		p.key = jsondoc.AppendUnescaped(p.key, p.names[i])
	}
	return p.key
}

// peek consumes white space and returns the byte behind it without consuming it. RS (0x1e), which
// precedes the values of JSON text sequences (RFC 7464), counts as white space.
func (v *Values) peek() (byte, error) {
	in := v.in
	for {
		for ; in.r < in.w; in.r++ {
			switch c := in.buf[in.r]; c {
			case in.lineEnd:
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

// consume consumes n buffered bytes.
func (v *Values) consume(n int) {
	in := v.in
	in.line += int64(bytes.Count(in.buf[in.r:in.r+n], []byte{in.lineEnd}))
	in.r += n
}

// span returns the length of the value that begins with the next byte, and buffers the value. A
// value longer than the greatest record is consumed instead; the length returned is then some
// number above in.max.
func (v *Values) span() (int, error) {
	in := v.in
	n, depth, skipped := 0, 0, false
	inString, escape := false, false
	for {
		for ; in.r+n < in.w; n++ {
			c := in.buf[in.r+n]
			switch {
			case escape:
				escape = false
			case inString:
				if c >= ' ' && c != '"' && c != '\\' {
					n = jsondoc.SkipPlain(in.buf[:in.w], in.r+n) - in.r - 1
				} else if c == '\\' {
					escape = true
				} else if c == '"' {
					inString = false
					if depth == 0 {
						return v.endSpan(n+1, skipped), nil
					}
				}
			case c == '"':
				if depth == 0 && n > 0 {
					return v.endSpan(n, skipped), nil
				}
				inString = true
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				if depth == 0 {
					return v.endSpan(n, skipped), nil
				}
				if depth--; depth == 0 {
					return v.endSpan(n+1, skipped), nil
				}
			case depth == 0 && (c == ',' || c == ' ' || c == '\n' || c == '\r' || c == '\t'):
				return v.endSpan(n, skipped), nil
			}
		}
		if n > in.max {
			v.consume(n)
			n, skipped = 0, true
		}
		if !in.fill() {
			if in.err != io.EOF {
				return 0, in.err
			}
			if depth > 0 || inString {
				return 0, ErrTruncated
			}
			return v.endSpan(n, skipped), nil
		}
	}
}

// endSpan returns the length of a value whose last n bytes are buffered. If the value is too long
// it consumes them.
func (v *Values) endSpan(n int, skipped bool) int {
	if skipped || n > v.in.max {
		v.consume(n)
		return v.in.max + 1
	}
	return n
}

// ErrTruncated is the error of [Values.Next] for an object that ends within a value.
var ErrTruncated = errors.New("the object ends inside this JSON value")
