// Package jsondoc parses JSON texts into a flat list of values and writes values in canonical form
// (RFC 8785).
//
// It accepts what RFC 8259 does, up to a bound on nesting, in memory proportional to the text, and
// as null the values NaN, Infinity, -Infinity and undefined, which programs write though they are
// not JSON. Strings need not be valid UTF-8 or UTF-16: invalid parts become U+FFFD in the canonical
// form. Packages lake/raw/text, lake/raw/parquetin and lake/raw/detect find URLs and build extras
// with it.
package jsondoc

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// maxDepth is the deepest nesting that is parsed. Parsing is recursive, and a line of opening
// brackets must not exhaust the stack.
const maxDepth = 512

// Document is one parsed JSON text. It can be used again for another text; that invalidates
// everything it returned.
type Document struct {
	// Deep is to be set before Parse if values below the root's members are needed. Without it
	// Nodes has only the root and, if that is an object, its members; the rest is only checked.
	Deep bool

	// Nodes are the values in document order: the root is Nodes[0], children follow their parent.
	// A value is known by its index.
	Nodes []Node
	// Truncated is set by Parse if the text ended before the value did.
	Truncated bool

	src     []byte
	key     []byte // returned by Name
	arena   []byte // unescaped names and strings that are being put in order
	members []member
}

// Node is a value of a Document.
type Node struct {
	// Kind is the value's first byte: one of { [ " t f n, and 0 for every number. NaN, the
	// infinities and undefined are n.
	Kind byte
	// Escaped is set if Text of a string has escapes, which [AppendUnescaped] decodes.
	Escaped bool

	// The ranges of the member's name and of the value in src, those of strings without quotes.
	keyEscaped       bool
	keyStart, keyEnd int32
	start, end       int32

	children   int32 // how many
	next, last int32 // indexes of the next sibling, 0 for none, and of the last child
}

// Parse parses src, which must be exactly one JSON text. It returns false if src is not, or is
// nested more than 512 deep; Nodes then has the values before the error. The Document refers to src
// until the next Parse.
func (d *Document) Parse(src []byte) bool {
	n, ok := d.ParsePrefix(src)
	return ok && d.space(n) == len(src)
}

// ParsePrefix is Parse for a src in which anything may follow the JSON text. n is where the text
// ends, or the offset of the error. A number at the end of src may go on behind it.
func (d *Document) ParsePrefix(src []byte) (n int, ok bool) {
	d.src, d.Nodes, d.Truncated = src, d.Nodes[:0], false
	d.arena, d.members = d.arena[:0], d.members[:0]
	return d.value(d.space(0), 0, true)
}

// space returns the offset of the first byte from i on that is no white space.
func (d *Document) space(i int) int {
	for i < len(d.src) && (d.src[i] == ' ' || d.src[i] == '\n' || d.src[i] == '\r' || d.src[i] == '\t') {
		i++
	}
	return i
}

// value parses the value at i and returns its end. With keep it appends the value to Nodes.
func (d *Document) value(i, depth int, keep bool) (int, bool) {
	src := d.src
	if i >= len(src) {
		d.Truncated = true
		return i, false
	}
	if depth > maxDepth {
		return i, false
	}
	self := len(d.Nodes)
	start, kind := i, src[i]
	var end int
	var escaped, ok bool
	if keep && (kind == '{' || kind == '[') {
		// A container precedes its children.
		d.Nodes = append(d.Nodes, Node{Kind: kind, start: int32(i)})
	}
	switch kind {
	case '{', '[':
		end, ok = d.container(i+1, depth, self, keep, kind)
	case '"':
		end, escaped, ok = d.str(i + 1)
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		kind = '0'
		end, ok = d.number(i)
	default:
		kind, end, ok = d.literal(i)
	}
	if !keep || !ok {
		return end, ok
	}
	switch kind {
	case '{', '[':
		d.Nodes[self].end = int32(end)
	case '"':
		d.Nodes = append(d.Nodes, Node{Kind: kind, Escaped: escaped, start: int32(start + 1), end: int32(end - 1)})
	default:
		d.Nodes = append(d.Nodes, Node{Kind: kind, start: int32(start), end: int32(end)})
	}
	return end, true
}

// literal parses a negative number, or a value that is a word. Words that stand for no value are
// null.
func (d *Document) literal(i int) (kind byte, end int, ok bool) {
	var word string
	switch kind = d.src[i]; kind {
	case '-':
		if i+1 >= len(d.src) || d.src[i+1] != 'I' {
			end, ok = d.number(i)
			return '0', end, ok
		}
		kind, word = 'n', "-Infinity"
	case 't':
		word = "true"
	case 'f':
		word = "false"
	case 'n':
		word = "null"
	case 'N':
		kind, word = 'n', "NaN"
	case 'I':
		kind, word = 'n', "Infinity"
	case 'u':
		kind, word = 'n', "undefined"
	default:
		return kind, i, false
	}
	end, ok = d.word(i, word)
	return kind, end, ok
}

// container parses the members of an object or the elements of an array, from behind the opening
// bracket to behind the closing one. With keep, self is the container's node.
func (d *Document) container(i, depth, self int, keep bool, open byte) (int, bool) {
	object, closing := open == '{', open+2 // '}' is '{'+2, and ']' is '['+2
	keep = keep && (d.Deep || depth == 0 && object)
	i = d.space(i)
	if d.is(i, closing) {
		return i + 1, true
	}
	for {
		var keyStart, keyEnd int
		var keyEscaped, ok bool
		if object {
			if !d.is(i, '"') {
				return i, false
			}
			keyStart = i + 1
			if keyEnd, keyEscaped, ok = d.str(keyStart); !ok {
				return i, false
			}
			if i = d.space(keyEnd); !d.is(i, ':') {
				return i, false
			}
			i = d.space(i + 1)
		}
		child := len(d.Nodes)
		i, ok = d.value(i, depth+1, keep)
		if len(d.Nodes) > child {
			if object {
				c := &d.Nodes[child]
				c.keyStart, c.keyEnd, c.keyEscaped = int32(keyStart), int32(keyEnd-1), keyEscaped
			}
			d.link(self, child)
		}
		if !ok {
			return i, false
		}
		i = d.space(i)
		if d.is(i, ',') {
			i = d.space(i + 1)
			continue
		}
		return i + 1, d.is(i, closing)
	}
}

// link appends child to the children of parent.
func (d *Document) link(parent, child int) {
	p := &d.Nodes[parent]
	if p.children > 0 {
		d.Nodes[p.last].next = int32(child)
	}
	p.children++
	p.last = int32(child)
}

// is reports whether the byte at i is c.
func (d *Document) is(i int, c byte) bool {
	if i >= len(d.src) {
		d.Truncated = true
		return false
	}
	return d.src[i] == c
}

// str scans a string from behind its opening quote to behind its closing one.
func (d *Document) str(i int) (end int, escaped, ok bool) {
	src := d.src
	for {
		i = SkipPlain(src, i)
		if i >= len(src) {
			d.Truncated = true
			return i, escaped, false
		}
		switch c := src[i]; {
		case c == '"':
			return i + 1, escaped, true
		case c < ' ':
			return i, escaped, false
		}
		escaped = true
		if i+1 >= len(src) {
			d.Truncated = true
			return i, true, false
		}
		switch src[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(src) {
				d.Truncated = true
				return i, true, false
			}
			if _, ok := hex4(src[i+2 : i+6]); !ok {
				return i, true, false
			}
			i += 6
		default:
			return i, true, false
		}
	}
}

// SkipPlain returns the offset of the first quote, backslash or control character in b from i on,
// or len(b). It looks at eight bytes at a time.
func SkipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		q := x ^ '"'*ones
		s := x ^ '\\'*ones
		// The lowest set bit is exact: borrows only change the bytes above it.
		m := ((q-ones)&^q | (s-ones)&^s | (x-' '*ones)&^x) & highs
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' && b[i] >= ' ' {
		i++
	}
	return i
}

func hex4(b []byte) (rune, bool) {
	var r rune
	for _, c := range b[:4] {
		switch {
		case timestamp.IsDigit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func (d *Document) number(i int) (int, bool) {
	if d.src[i] == '-' {
		i++
	}
	if d.is(i, '0') {
		i++
	} else if j := d.digits(i); j > i {
		i = j
	} else {
		return i, false
	}
	if i < len(d.src) && d.src[i] == '.' {
		j := d.digits(i + 1)
		if j == i+1 {
			return j, false
		}
		i = j
	}
	if i < len(d.src) && d.src[i]|0x20 == 'e' {
		i++
		if i < len(d.src) && (d.src[i] == '+' || d.src[i] == '-') {
			i++
		}
		j := d.digits(i)
		if j == i {
			return j, false
		}
		i = j
	}
	return i, true
}

func (d *Document) digits(i int) int {
	for i < len(d.src) && timestamp.IsDigit(d.src[i]) {
		i++
	}
	if i == len(d.src) {
		d.Truncated = true
	}
	return i
}

func (d *Document) word(i int, w string) (int, bool) {
	if bytes.HasPrefix(d.src[i:], []byte(w)) {
		return i + len(w), true
	}
	d.Truncated = d.Truncated || strings.HasPrefix(w, string(d.src[i:]))
	return i, false
}

// Start returns the offset in src of an object or array.
func (d *Document) Start(node int) int { return int(d.Nodes[node].start) }

// End returns the index behind the last of the values in an object or array.
func (d *Document) End(node int) int {
	for d.Nodes[node].children > 0 {
		node = int(d.Nodes[node].last)
	}
	return node + 1
}

// Text returns the text of a value in src: a string without its quotes and with its escapes, any
// other value as it is. n must be a node of d.
func (d *Document) Text(n *Node) []byte { return d.src[n.start:n.end] }

// Name returns the name of the member that n is, without escapes. It is valid until the next call.
func (d *Document) Name(n *Node) []byte {
	b := d.src[n.keyStart:n.keyEnd]
	if n.keyEscaped {
		d.key = AppendUnescaped(d.key[:0], b)
		return d.key
	}
	return b
}

// Children returns the indexes of the members or elements of the node with index node, in document
// order.
func (d *Document) Children(node int) iter.Seq[int] {
	return func(yield func(int) bool) {
		n := &d.Nodes[node]
		for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, d.Nodes[c].next {
			if !yield(int(c)) {
				return
			}
		}
	}
}

// Find returns the index of the value at path below node, 0 if there is none: the root is nobody's
// child. Each step of path is a member's name or an element's index. Of members with the same name
// the last counts, as in other parsers. An empty path is node itself.
func (d *Document) Find(node int, path []string) int {
	for _, want := range path {
		n := &d.Nodes[node]
		found := 0
		switch n.Kind {
		case '{':
			for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, d.Nodes[c].next {
				// Most names have another length, unless escapes hide it.
				m := &d.Nodes[c]
				if (m.keyEscaped || int(m.keyEnd-m.keyStart) == len(want)) && string(d.Name(m)) == want {
					found = int(c)
				}
			}
		case '[':
			at, err := strconv.Atoi(want)
			for i, c := int32(0), int32(node+1); i < n.children && err == nil; i, c = i+1, d.Nodes[c].next {
				if int(i) == at {
					found = int(c)
				}
			}
		}
		if found == 0 {
			return 0
		}
		node = found
	}
	return node
}

// SplitPath cuts a path at its dots. In a name `\.` is a dot and `\\` a backslash.
func SplitPath(path string) []string {
	if path == "" {
		return nil
	}
	var segs []string
	var seg []byte
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '\\' && i+1 < len(path) && (path[i+1] == '.' || path[i+1] == '\\'):
			i++
			seg = append(seg, path[i])
		case path[i] == '.':
			segs = append(segs, string(seg))
			seg = seg[:0]
		default:
			seg = append(seg, path[i])
		}
	}
	return append(segs, string(seg))
}

// JoinPath is the inverse of SplitPath.
func JoinPath(segs []string) string {
	if len(segs) == 1 {
		return pathQuoter.Replace(segs[0])
	}
	quoted := make([]string, len(segs))
	for i, s := range segs {
		quoted[i] = pathQuoter.Replace(s)
	}
	return strings.Join(quoted, ".")
}

var pathQuoter = strings.NewReplacer(".", `\.`, `\`, `\\`)

// AppendUnescaped appends the text of a string that Parse accepted, with its escapes decoded. A
// surrogate without its partner becomes U+FFFD.
func AppendUnescaped(dst, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				low := rune(0)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					low, _ = hex4(s[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					s = s[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

// AppendNumber appends a number in canonical form: as ECMAScript prints the nearest double (RFC
// 8785, 3.2.2.3). text is a JSON number and must not be empty. An integer whose digits would
// change, and a number beyond the largest double, become strings of their text, as RFC 8785,
// appendix D, advises: identifiers must not change.
func AppendNumber(dst, text []byte) []byte {
	if len(text) <= 15 && timestamp.AllDigits(text) {
		return append(dst, text...)
	}
	s := unsafe.String(&text[0], len(text))
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return codec.AppendJSONString(dst, text)
	}
	if f == 0 {
		return append(dst, '0')
	}
	if math.Abs(f) >= 1<<53 && !strings.ContainsAny(s, ".eE") {
		var buf [64]byte
		if !bytes.Equal(strconv.AppendFloat(buf[:0], f, 'f', -1, 64), text) {
			return codec.AppendJSONString(dst, text)
		}
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	n := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go writes exponents with at least two digits, ECMAScript without leading zeros.
	if i := n + bytes.IndexByte(dst[n:], 'e'); i+2 < len(dst)-1 && dst[i+2] == '0' {
		dst = append(dst[:i+2], dst[i+3:]...)
	}
	return dst
}

// member is a member of an object that is being put in order. If node is 0, the value is the string
// text, which is not part of the document.
type member struct {
	name []byte
	node int32
	text []byte
}

// AppendCanonical appends the value with index node in canonical form (RFC 8785), without the
// values whose indexes are in skip, which is sorted. Of members with the same name the last is
// kept. The Document must be Deep.
func (d *Document) AppendCanonical(dst []byte, node int, skip []int) []byte {
	n := &d.Nodes[node]
	switch n.Kind {
	case '"':
		return d.appendString(dst, n)
	case '0':
		return AppendNumber(dst, d.Text(n))
	case '[':
		dst = append(dst, '[')
		for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, d.Nodes[c].next {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.AppendCanonical(dst, int(c), skip)
		}
		return append(dst, ']')
	case '{':
		return d.AppendObject(dst, node, skip, nil, nil)
	case 'n':
		return append(dst, "null"...)
	}
	return append(dst, d.Text(n)...)
}

// AppendObject appends an object in canonical form as AppendCanonical does. If name is not nil, the
// object gets a member of that name whose value is the string text, unless it has one already.
func (d *Document) AppendObject(dst []byte, node int, skip []int, name, text []byte) []byte {
	base := len(d.members)
	if name != nil {
		d.members = append(d.members, member{name: name, text: text})
	}
	d.pushMembers(node)
	dst = d.appendMembers(dst, base, skip)
	d.members = d.members[:base]
	return dst
}

// pushMembers appends the members of an object to d.members.
func (d *Document) pushMembers(node int) {
	n := &d.Nodes[node]
	for i, c := int32(0), int32(node+1); i < n.children; i, c = i+1, d.Nodes[c].next {
		m := &d.Nodes[c]
		name := d.src[m.keyStart:m.keyEnd]
		if m.keyEscaped {
			from := len(d.arena)
			d.arena = AppendUnescaped(d.arena, name)
			name = d.arena[from:len(d.arena):len(d.arena)]
		}
		if !utf8.Valid(name) {
			// As it will be written: order and duplicates are decided by that.
			name = []byte(string([]rune(string(name))))
		}
		d.members = append(d.members, member{name: name, node: c})
	}
}

// appendMembers sorts d.members[base:] and appends the object of them.
func (d *Document) appendMembers(dst []byte, base int, skip []int) []byte {
	members := d.members[base:]
	slices.SortStableFunc(members, func(a, b member) int { return CompareUTF16(a.name, b.name) })
	dst = append(dst, '{')
	first := true
	for i := range members {
		// Nested objects append to d.members, which may move it; members keeps its elements.
		m := members[i]
		if i+1 < len(members) && bytes.Equal(m.name, members[i+1].name) {
			continue
		}
		if _, skipped := slices.BinarySearch(skip, int(m.node)); skipped && m.node > 0 {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = codec.AppendJSONString(dst, m.name)
		dst = append(dst, ':')
		if m.node > 0 {
			dst = d.AppendCanonical(dst, int(m.node), skip)
		} else {
			dst = codec.AppendJSONString(dst, m.text)
		}
	}
	return append(dst, '}')
}

func (d *Document) appendString(dst []byte, n *Node) []byte {
	b := d.Text(n)
	if n.Escaped {
		from := len(d.arena)
		d.arena = AppendUnescaped(d.arena, b)
		b = d.arena[from:]
		dst = codec.AppendJSONString(dst, b)
		d.arena = d.arena[:from]
		return dst
	}
	return codec.AppendJSONString(dst, b)
}

// CompareUTF16 compares names by their UTF-16 code units (RFC 8785, 3.2.3). That is the order of
// the bytes of UTF-8, except that characters beyond U+FFFF, whose surrogates begin with D8 to DB,
// precede those from U+E000 to U+FFFF.
func CompareUTF16(a, b []byte) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		// F0 and above begin four bytes, EE and EF the characters from U+E000.
		if x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0) {
			if x >= 0xf0 {
				return -1
			}
			return 1
		}
		if x < y {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}
