package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// jsonParser reads the elements of top-level arrays, and top-level values that are no arrays,
// over any white space. An element's end is found by its brackets and quotes alone, so that a
// bad element is a reject and one that is too long is passed without being held; but what
// stands between elements must be right, for behind it nothing could be trusted.
type JSONParser struct {
	In *Input
	jsonFields
	inArray bool // behind the opening bracket of a top-level array
	more    bool // behind an element of it
}

func NewJSONParser(in *Input, plan raw.Plan, f Fields) *JSONParser {
	return &JSONParser{In: in, jsonFields: newJSONFields(plan, f)}
}

func (p *JSONParser) Next(rec *raw.Record, rej *raw.Reject) error {
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
			p.In.R++
			continue
		case p.inArray && c == ']':
			p.inArray = false
			p.In.R++
			continue
		case p.inArray && p.more:
			if c != ',' {
				return fmt.Errorf("want , or ] behind an array's element, got %q", c)
			}
			p.more = false
			p.In.R++
			continue
		case c == ',' || c == ']' || c == '}' || c == ':':
			return fmt.Errorf("want a JSON value, got %q", c)
		}
		p.more = true
		p.In.At = p.In.Here()
		n, err := p.span()
		if err != nil {
			return err
		}
		if n > p.In.Max {
			rej.Reason = raw.TooLong
			return nil
		}
		text := p.In.Buf[p.In.R : p.In.R+n]
		p.pass(n)
		rej.Reason = p.record(rec, text, nil)
		return nil
	}
}

// jsonTreeParser reads records that stand at one depth inside objects and arrays, however large those are.
// In extras the names that lead to a record, joined by dots, are its key, unless it has a member of
// that name. A scalar above that depth is a record without a URL.
type jsonTreeParser struct {
	JSONParser
	depth int
	open  []byte   // { or [ of each level that is open
	names [][]byte // the member's name in each, as it stands in the text
	key   []byte
	keyed bool // extras may have the key
}

func NewJSONTreeParser(in *Input, plan raw.Plan, f Fields) *jsonTreeParser {
	p := &jsonTreeParser{JSONParser: *NewJSONParser(in, plan, f), depth: plan.Depth, keyed: plan.AllExtras}
	p.keyName = []byte("key")
	for _, x := range p.extras {
		p.keyed = p.keyed || x.name == "key"
	}
	return p
}

func (p *jsonTreeParser) Next(rec *raw.Record, rej *raw.Reject) error {
	in := p.In
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
				in.R++
				continue
			case p.more && c != ',':
				return fmt.Errorf("want , or %q behind a value, got %q", top+2, c)
			case p.more:
				p.more = false
				in.R++
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
			in.R++
			continue
		}
		p.more = len(p.open) > 0
		in.At = in.Here()
		n, err := p.span()
		if err != nil {
			return err
		}
		if n > in.Max {
			rej.Reason = raw.TooLong
			return nil
		}
		text := in.Buf[in.R : in.R+n]
		p.pass(n)
		if rej.Reason = p.record(rec, text, p.path()); len(p.open) < p.depth && rej.Reason == "" {
			*rec, rej.Reason = raw.Record{}, raw.NoURL
		}
		return nil
	}
}

// name takes a member's name, which begins with c, and its colon, and returns the first byte of its value.
func (p *jsonTreeParser) name(c byte) (byte, error) {
	in := p.In
	if c != '"' {
		return 0, fmt.Errorf("want the name of a member, got %q", c)
	}
	n, err := p.span()
	if err != nil {
		return 0, err
	}
	if n > in.Max {
		return 0, fmt.Errorf("the name of a member is longer than %d bytes", in.Max)
	}
	name := in.Buf[in.R : in.R+n]
	if !p.Doc.Parse(name) {
		return 0, errors.New("the name of a member is no JSON string")
	}
	at := &p.names[len(p.open)-1]
	*at = append((*at)[:0], name[1:n-1]...)
	p.pass(n)
	if c, err = p.peek(); err == nil && c != ':' {
		return 0, fmt.Errorf("want : behind the name of a member, got %q", c)
	}
	if err == nil {
		in.R++
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
		p.key = jsondoc.AppendUnescaped(p.key, p.names[i])
	}
	return p.key
}

// peek passes white space and returns the byte behind it.
func (p *JSONParser) peek() (byte, error) {
	in := p.In
	for {
		for ; in.R < in.W; in.R++ {
			switch c := in.Buf[in.R]; c {
			case in.Eol:
				in.Line++
			case ' ', '\t', '\r', '\n', 0x1e:
			default:
				return c, nil
			}
		}
		if !in.Fill() {
			return 0, in.Err
		}
	}
}

// pass consumes n bytes that stand.
func (p *JSONParser) pass(n int) {
	in := p.In
	in.Line += int64(bytes.Count(in.Buf[in.R:in.R+n], []byte{in.Eol}))
	in.R += n
}

// span returns the length of the value at in.r, which then stands in the buffer. A value
// longer than max is passed; what is returned is then only larger than max.
func (p *JSONParser) span() (int, error) {
	in := p.In
	n, depth, passed := 0, 0, false
	inString, escape := false, false
	for {
		for ; in.R+n < in.W; n++ {
			c := in.Buf[in.R+n]
			switch {
			case escape:
				escape = false
			case inString:
				if c >= ' ' && c != '"' && c != '\\' {
					n = jsondoc.PlainString(in.Buf[:in.W], in.R+n) - in.R - 1
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
		if n > in.Max {
			p.pass(n)
			n, passed = 0, true
		}
		if !in.Fill() {
			if in.Err != io.EOF {
				return 0, in.Err
			}
			if depth > 0 || inString {
				return 0, ErrJSONCut
			}
			return p.spanned(n, passed), nil
		}
	}
}

// spanned ends a span of n bytes that stand.
func (p *JSONParser) spanned(n int, passed bool) int {
	if passed || n > p.In.Max {
		p.pass(n)
		return p.In.Max + 1
	}
	return n
}

var ErrJSONCut = errors.New("the object ends inside this JSON value")
