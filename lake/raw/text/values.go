package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// Values reads JSON values one after another: the elements of top-level arrays, and the top-level
// values that are no arrays. Between them is white space, a comma, both or nothing.
//
// A value that is too long for a record is skipped without being buffered. A malformed value costs
// one reject, and reading goes on at one of these places, the first that can be trusted:
//
//   - behind the value, if its brackets and quotes match and another value or a closing bracket
//     follows;
//   - where a well-formed value begins as the first one of the object did (`{"url":`), at the
//     beginning of a line, or between the closing and the opening bracket of two values;
//   - at the next line.
//
// If there is none, where the next value begins is unknown and the error is final.
type Values struct {
	in      *Input
	rows    bool // a top-level array is a value, unless arrays are its elements
	line    bool // the input is a line of JSON Lines, behind which reading can go on
	nested  bool // values are members of objects, which only brackets can tell from their members
	inArray bool // behind the opening bracket of a top-level array

	opening []byte // how the first value began, nil before it
	tried   int64  // bytes that were looked at in search of a value behind a malformed one
	trial   jsondoc.Document
}

// NewValues returns the values of an object. rows means that arrays are the rows of a table.
func NewValues(in *Input, rows bool) *Values { return &Values{in: in, rows: rows} }

// ErrTruncated is the error of [Values.Next] for an object that ends within a value.
var ErrTruncated = errors.New("the object ends inside this JSON value")

var errBroken = errors.New("this is no JSON value, and where the next one begins cannot be told")

// Next consumes the next value and parses it into doc, which refers to it until the next call. If
// the value cannot be read, Next returns the reason of its reject. The Input's Record returns its
// position. At the end err is io.EOF; every error is final. If the object ends within a value, err
// is [ErrTruncated] and the Input's Buffered returns what there is of it.
func (v *Values) Next(doc *jsondoc.Document) (reason string, err error) {
	for {
		c, err := v.peek()
		if err == io.EOF && v.inArray {
			return "", io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
		switch {
		case c == ',':
		case c == '[' && !v.inArray && !(v.rows && v.isRow()):
			v.inArray = true
		case c == ']' && v.inArray:
			v.inArray = false
		default:
			return v.value(doc)
		}
		v.in.r++
	}
}

// isRow reports whether the first element of the array that begins with the next byte is no array.
func (v *Values) isRow() bool {
	for i := 1; i <= v.in.max; i++ {
		if c, ok := v.at(i); !ok || !isJSONSpace(c) {
			return c != '['
		}
	}
	return true
}

// value is Next for the value that begins with the next byte.
func (v *Values) value(doc *jsondoc.Document) (reason string, err error) {
	in := v.in
	in.record = in.Position()
	n, ok, long, err := v.scan(doc)
	switch {
	case err != nil:
		return "", err
	case long && ok && bytes.IndexByte([]byte(`{["`), in.buf[in.r]) >= 0:
		v.in.Consume(n)
		return raw.TooLong, nil
	case long:
		return v.skip()
	case !ok || !v.ends(doc.Nodes[0].Kind, n):
		return v.recover(n)
	}
	if v.opening == nil {
		v.opening = openingOf(in.buf[in.r : in.r+n])
	}
	v.in.Consume(n)
	return "", nil
}

// scan buffers and parses the value that begins with the next byte. n is its length, or the offset
// of an error in it if ok is false. long means that it is longer than a record may be; if ok is
// false too, only its beginning was parsed.
func (v *Values) scan(doc *jsondoc.Document) (n int, ok, long bool, err error) {
	in := v.in
	for {
		b := in.buf[in.r:in.w]
		n, ok = doc.ParsePrefix(b)
		if n < len(b) && !doc.Truncated {
			return n, ok, n > in.max, nil
		}
		if len(b) > in.max {
			return n, ok, true, nil
		}
		for in.w-in.r < min(2*len(b), in.max+1) && in.fill() {
		}
		switch {
		case in.w-in.r > len(b):
		case in.err != io.EOF:
			return 0, false, false, in.err
		case ok || v.line:
			return n, ok, false, nil
		default:
			return n, false, false, ErrTruncated
		}
	}
}

// ends reports whether a value of n bytes ends where it seems to. A quote too many makes a string
// of other text, with a word, a colon or a quote behind it.
func (v *Values) ends(kind byte, n int) bool {
	if kind == '{' || kind == '[' {
		return true
	}
	c, ok := v.at(n)
	return !ok || isJSONSpace(c) || c == ',' || c == ']' || c == '}'
}

// recover consumes a malformed value with an error at the offset bad from its beginning.
func (v *Values) recover(bad int) (reason string, err error) {
	n := 0
	if v.tried += int64(bad); v.exhausted(2) {
		return "", errBroken // every line begins many values
	}
	if v.nested || !v.exhausted(1) {
		n = v.bracketed()
	}
	if n == 0 && v.nested {
		return "", errBroken
	}
	if n == 0 {
		n = v.another(bad)
	}
	if n == 0 {
		if v.in.err != nil && v.in.err != io.EOF {
			return "", v.in.err
		}
		return "", errBroken
	}
	v.in.Consume(n)
	return raw.BadJSON, nil
}

// bracketed returns the length of a malformed value whose brackets and quotes match, 0 if they do
// not or what follows is neither a value nor a closing bracket.
func (v *Values) bracketed() int {
	n := v.matching()
	if n == 0 {
		return 0
	}
	c, _ := v.at(n - 1)
	apart := c == '}' || c == ']'
	for i := n; i <= v.in.max; i++ {
		switch c, ok := v.at(i); {
		case !ok:
			return n
		case isJSONSpace(c) || c == ',':
			apart = true
		case c == '}' || c == ']' || apart && (c == '{' || c == '[' || c == '"'):
			return n
		default:
			return 0
		}
	}
	return 0
}

// matching returns the length of a malformed value by its brackets and quotes. It is 0 if these do
// not match, if a line ends within a string, if something is outside of strings that is only found
// within them, or if an object begins within another one where none can.
func (v *Values) matching() int {
	var open []byte
	last := byte(':') // the character before, without white space
	for i := 0; i <= v.in.max; i++ {
		c, ok := v.at(i)
		switch {
		case !ok:
			return 0
		case c == '"':
			if i = v.stringEnd(i); i == 0 {
				return 0
			}
		case c == '{' && last != ':' && len(open) > 0 && open[len(open)-1] == '{' && !v.nested:
			return 0 // the one before was not closed
		case c == '{' || c == '[':
			open = append(open, c)
		case c == '}' || c == ']':
			if len(open) == 0 && i == 0 {
				return 1
			}
			if len(open) == 0 || open[len(open)-1]+2 != c { // '}' is '{'+2, and ']' is '['+2
				return 0
			}
			open = open[:len(open)-1]
		case len(open) == 0:
			for ok && !isJSONSpace(c) && bytes.IndexByte([]byte(`,:{}[]"`), c) < 0 && i <= v.in.max {
				i++
				c, ok = v.at(i)
			}
			return i
		case !isJSONSpace(c) && bytes.IndexByte([]byte(",:0123456789+-.EtrueflasnNIityd"), c) < 0:
			return 0
		}
		if len(open) == 0 {
			return i + 1
		}
		if !isJSONSpace(c) {
			last = c
		}
	}
	return 0
}

// stringEnd returns the offset of the quote that ends the string at i, 0 if its line ends before.
func (v *Values) stringEnd(i int) int {
	for i++; i <= v.in.max; i++ {
		c, ok := v.at(i)
		switch {
		case !ok || c == '\n' || c == '\r':
			return 0
		case c == '\\':
			i++
		case c == '"':
			return i
		}
	}
	return 0
}

// another returns the offset at which reading goes on behind a malformed value with an error at the
// offset bad: at the next value, else at the next line. It is 0 if there is neither.
func (v *Values) another(bad int) int {
	in := v.in
	opening := v.opening
	if c, _ := v.at(0); opening == nil && c == '{' {
		opening = openingOf(in.buf[in.r:in.w])
	}
	kind := byte('{')
	if len(opening) > 0 {
		kind = opening[0]
	}
	closing := kind + 2
	if kind == '"' {
		closing = kind
	}
	line, last, apart := 0, byte(0), false
	for i := v.tokenBefore(bad); i <= in.max; i++ {
		c, ok := v.at(i)
		between := apart && last == closing || line > 0 && in.buf[in.r+i-1] == in.lineEnd
		switch {
		case !ok && v.line:
			return in.w - in.r
		case !ok:
			return line
		case c == in.lineEnd:
			if apart = true; line == 0 {
				line = i + 1
			}
			if v.exhausted(1) {
				return line
			}
			continue
		case c == ',':
			apart = true
			continue
		case isJSONSpace(c):
			continue
		case c == kind && (between || v.begins(i, opening)) && v.isValue(i):
			return i
		}
		last, apart = c, false
	}
	return line
}

// tokenBefore returns the offset behind the beginning of the last string that begins before the
// error at the offset bad: a quote too many or too few turns the text behind it into a string.
func (v *Values) tokenBefore(bad int) int {
	from := 1
	for i := 0; i < bad; i++ {
		switch c, _ := v.at(i); c {
		case '"':
			from = i + 1
			if i = v.stringEnd(i); i == 0 {
				return from
			}
		}
	}
	return from
}

// minOpening is how long a beginning of values has to be to tell where one begins.
const minOpening = 5

// begins reports whether the text at the offset i begins with opening.
func (v *Values) begins(i int, opening []byte) bool {
	if len(opening) < minOpening {
		return false
	}
	_, ok := v.at(i + len(opening) - 1)
	return ok && bytes.HasPrefix(v.in.buf[v.in.r+i:v.in.w], opening)
}

// triedOften is how many times the bytes of an object may be looked at in search of values behind
// malformed ones. Text that is made so can make every search long.
const triedOften = 64

// exhausted reports whether searches have become so many times too long. Once they have, reading
// goes on at the next line.
func (v *Values) exhausted(times int64) bool {
	return v.tried > times*triedOften*(v.in.Offset()+int64(v.in.max))
}

// isValue reports whether a well-formed value begins at the offset i.
func (v *Values) isValue(i int) bool {
	in := v.in
	if v.exhausted(1) {
		return false
	}
	for {
		b := in.buf[in.r+i : in.w]
		n, ok := v.trial.ParsePrefix(b)
		if (v.trial.Truncated || n == len(b)) && len(b) <= in.max {
			for in.w-in.r-i < min(2*len(b), in.max+1) && in.fill() {
			}
			if in.w-in.r-i > len(b) {
				continue
			}
		}
		v.tried += int64(min(n, in.max))
		return ok && n <= in.max && v.ends(v.trial.Nodes[0].Kind, i+n)
	}
}

// maxOpening is the longest beginning of a value that is compared.
const maxOpening = 128

// openingOf returns how a value begins: an object up to the colon behind the name of its first
// member, a URL up to the colon behind its scheme, any other value with its first byte.
func openingOf(value []byte) []byte {
	n := min(1, len(value))
	if n > 0 && value[0] != '[' {
		if i := bytes.IndexByte(value[:min(len(value), maxOpening)], ':'); i > 0 {
			n = i + 1
		}
	}
	return bytes.Clone(value[:n])
}

// skip consumes a value that is longer than a record may be, without buffering it. If its brackets
// do not match, or a line ends within a string, reading goes on at the next line.
func (v *Values) skip() (reason string, err error) {
	in, begin := v.in, v.in.record
	var open []byte
	inString, escape := false, false
	scalar := bytes.IndexByte([]byte(`{}[]"`), in.buf[in.r]) < 0
	for {
		for i := in.r; i < in.w; i++ {
			c := in.buf[i]
			ended, broken := false, false
			switch {
			case scalar:
				if ended = isJSONSpace(c) || bytes.IndexByte([]byte(`,:{}[]"`), c) >= 0; ended {
					i--
				}
			case escape:
				escape = false
			case inString && c == '\\':
				escape = true
			case inString && c == '"':
				inString, ended = false, len(open) == 0
			case inString:
				broken = c == '\n' || c == '\r'
			case c == '"':
				inString = true
			case c == '{' || c == '[':
				open = append(open, c)
				broken = len(open) > in.max
			case c == '}' || c == ']':
				if broken = len(open) == 0 || open[len(open)-1]+2 != c; !broken {
					open = open[:len(open)-1]
					ended = len(open) == 0
				}
			}
			switch {
			case broken && v.nested:
				return "", fmt.Errorf("%w (it begins at line %d, byte %d)", errBroken, begin.Line, begin.Offset)
			case broken:
				v.in.Consume(i - in.r)
				in.skipLine()
				return raw.TooLong, nil
			case ended:
				v.in.Consume(i + 1 - in.r)
				return raw.TooLong, nil
			}
		}
		v.in.Consume(in.w - in.r)
		if !in.fill() {
			if in.err != io.EOF {
				return "", in.err
			}
			if len(open) > 0 || inString {
				return "", fmt.Errorf("%w (it begins at line %d, byte %d)", ErrTruncated, begin.Line, begin.Offset)
			}
			return raw.TooLong, nil
		}
	}
}

// peek consumes white space and byte order marks, and returns the byte behind them without
// consuming it.
func (v *Values) peek() (byte, error) {
	in := v.in
	for {
		for ; in.r < in.w; in.r++ {
			switch c := in.buf[in.r]; {
			case c == in.lineEnd:
				in.line++
			case isJSONSpace(c):
			case c == bom[0] && v.isBOM():
				in.r += len(bom) - 1
			default:
				return c, nil
			}
		}
		if !in.fill() {
			return 0, in.err
		}
	}
}

// isBOM reports whether a byte order mark follows, as it does where files were joined.
func (v *Values) isBOM() bool {
	_, ok := v.at(len(bom) - 1)
	return ok && bytes.HasPrefix(v.in.Buffered(), []byte(bom))
}

// isJSONSpace reports whether c is white space in JSON, or RS (0x1e), which precedes the values of
// JSON text sequences (RFC 7464).
func isJSONSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == 0x1e }

// at buffers and returns the byte at the offset i, false at the end of the input.
func (v *Values) at(i int) (byte, bool) {
	in := v.in
	v.tried++
	for i >= in.w-in.r {
		if !in.fill() {
			return 0, false
		}
	}
	return in.buf[in.r+i], true
}
