package jsondoc

import (
	"bytes"
	"encoding/binary"
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

// maxJSONDepth is the deepest nesting read; a line of opening brackets must not cost a stack.
const MaxDepth = 512

// jsonDoc is one parsed JSON text: its values in document order, children behind their
// parent. It is reused from record to record.
type Document struct {
	src   []byte
	Nodes []Node
	// deep keeps all values; without it only the root and its members are kept, the rest is
	// checked and forgotten.
	Deep bool
	// short is set when the text ended before the value did.
	Short bool

	key, Arena []byte
	Members    []Member
}

// jsonNode is a value. Spans are in src; those of strings and names are without quotes.
type Node struct {
	Kind                 byte // { [ " 0 t f n
	keyEscaped, Escaped  bool
	keyStart, keyEnd     int32
	start, End           int32
	Children, Next, last int32 // next: the sibling's index, 0 for none
}

// parse reads src as exactly one JSON text (RFC 8259). Where it returns false, nodes hold what
// came before the fault.
func (d *Document) Parse(src []byte) bool {
	d.src, d.Nodes, d.Short = src, d.Nodes[:0], false
	i, ok := d.value(d.space(0), 0, true)
	if !ok {
		return false
	}
	return d.space(i) == len(src)
}

func (d *Document) space(i int) int {
	for i < len(d.src) && (d.src[i] == ' ' || d.src[i] == '\n' || d.src[i] == '\r' || d.src[i] == '\t') {
		i++
	}
	return i
}

// value parses the value at i and returns where it ends.
func (d *Document) value(i, depth int, keep bool) (int, bool) {
	src := d.src
	if i >= len(src) {
		d.Short = true
		return i, false
	}
	if depth > MaxDepth {
		return i, false
	}
	self := len(d.Nodes)
	start, end, kind, escaped, ok := i, i, src[i], false, false
	if keep && (kind == '{' || kind == '[') {
		// A container stands before its children.
		d.Nodes = append(d.Nodes, Node{Kind: kind, start: int32(i)})
	}
	switch {
	case kind == '{', kind == '[':
		end, ok = d.container(i+1, depth, self, keep, kind)
	case kind == '"':
		end, escaped, ok = d.str(i + 1)
	case kind == '-' || timestamp.IsDigit(kind):
		kind = '0'
		end, ok = d.number(i)
	case kind == 't':
		end, ok = d.word(i, "true")
	case kind == 'f':
		end, ok = d.word(i, "false")
	case kind == 'n':
		end, ok = d.word(i, "null")
	}
	if !keep || !ok {
		return end, ok
	}
	switch kind {
	case '{', '[':
		d.Nodes[self].End = int32(end)
	case '"':
		d.Nodes = append(d.Nodes, Node{Kind: kind, Escaped: escaped, start: int32(start + 1), End: int32(end - 1)})
	default:
		d.Nodes = append(d.Nodes, Node{Kind: kind, start: int32(start), End: int32(end)})
	}
	return end, true
}

// container parses the members of an object or the elements of an array, from behind the opening
// bracket to behind the closing one. With keep, self is its node.
func (d *Document) container(i, depth, self int, keep bool, open byte) (int, bool) {
	object, closing := open == '{', open+2 // } is { and two, as ] is [
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

func (d *Document) link(parent, child int) {
	p := &d.Nodes[parent]
	if p.Children > 0 {
		d.Nodes[p.last].Next = int32(child)
	}
	p.Children++
	p.last = int32(child)
}

func (d *Document) is(i int, c byte) bool {
	if i >= len(d.src) {
		d.Short = true
		return false
	}
	return d.src[i] == c
}

// str scans a string from behind its opening quote to behind its closing one.
func (d *Document) str(i int) (end int, escaped, ok bool) {
	src := d.src
	for {
		i = PlainString(src, i)
		if i >= len(src) {
			d.Short = true
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
			d.Short = true
			return i, true, false
		}
		switch src[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(src) {
				d.Short = true
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

// plainString returns the first position from i with a quote, a backslash or a control
// character, eight bytes at a time.
func PlainString(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		q := x ^ '"'*ones
		s := x ^ '\\'*ones
		// The lowest high bit set is exact; borrows only disturb bytes behind it.
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
		d.Short = true
	}
	return i
}

func (d *Document) word(i int, w string) (int, bool) {
	if bytes.HasPrefix(d.src[i:], []byte(w)) {
		return i + len(w), true
	}
	d.Short = d.Short || strings.HasPrefix(w, string(d.src[i:]))
	return i, false
}

func (d *Document) Text(n *Node) []byte { return d.src[n.start:n.End] }

// name returns the member's name; it may be in d.key, valid until the next call.
func (d *Document) Name(n *Node) []byte {
	b := d.src[n.keyStart:n.keyEnd]
	if n.keyEscaped {
		d.key = AppendUnescaped(d.key[:0], b)
		return d.key
	}
	return b
}

// find returns the value at path below node, 0 where there is none (no member is the root).
// Of members with one name the last counts, as in other parsers.
func (d *Document) Find(node int, path []string) int {
	for _, want := range path {
		n := &d.Nodes[node]
		found := 0
		switch n.Kind {
		case '{':
			for i, c := int32(0), int32(node+1); i < n.Children; i, c = i+1, d.Nodes[c].Next {
				if string(d.Name(&d.Nodes[c])) == want {
					found = int(c)
				}
			}
		case '[':
			at, err := strconv.Atoi(want)
			for i, c := int32(0), int32(node+1); i < n.Children && err == nil; i, c = i+1, d.Nodes[c].Next {
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

// splitPath cuts a path at its dots; `\.` is a dot inside a name.
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

// joinPath is the inverse of splitPath.
func JoinPath(segs []string) string {
	r := strings.NewReplacer(".", `\.`, `\`, `\\`)
	quoted := make([]string, len(segs))
	for i, s := range segs {
		quoted[i] = r.Replace(s)
	}
	return strings.Join(quoted, ".")
}

// appendUnescaped decodes the inside of a JSON string that parse accepted. A surrogate
// without its partner becomes U+FFFD.
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

// appendJSONNumber appends a number as ECMAScript prints the double it stands for (RFC 8785,
// 3.2.2.3). An integer that would come out with other digits, and a number beyond the largest
// double, become strings of their text: RFC 8785 appendix D has it so, and identifiers must
// not change.
func AppendJSONNumber(dst, text []byte) []byte {
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
	// Go writes exponents with two digits, ECMAScript with as few as it takes.
	if i := n + bytes.IndexByte(dst[n:], 'e'); i+2 < len(dst)-1 && dst[i+2] == '0' {
		dst = append(dst[:i+2], dst[i+3:]...)
	}
	return dst
}

// member is one member of an object being put in order. node is 0 for a string that stands
// in text and is no part of the document.
type Member struct {
	Name []byte
	Node int32
	Text []byte
}

// appendCanonical appends the value in canonical form (RFC 8785) without the values in skip.
// Of members with one name the last stays.
func (d *Document) AppendCanonical(dst []byte, node int, skip []int) []byte {
	n := &d.Nodes[node]
	switch n.Kind {
	case '"':
		return d.appendString(dst, n)
	case '0':
		return AppendJSONNumber(dst, d.Text(n))
	case '[':
		dst = append(dst, '[')
		for i, c := int32(0), int32(node+1); i < n.Children; i, c = i+1, d.Nodes[c].Next {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.AppendCanonical(dst, int(c), skip)
		}
		return append(dst, ']')
	case '{':
		base := len(d.Members)
		d.PushMembers(node)
		dst = d.AppendMembers(dst, base, skip)
		d.Members = d.Members[:base]
		return dst
	}
	return append(dst, d.Text(n)...)
}

// pushMembers puts an object's members on the stack d.members.
func (d *Document) PushMembers(node int) {
	n := &d.Nodes[node]
	for i, c := int32(0), int32(node+1); i < n.Children; i, c = i+1, d.Nodes[c].Next {
		m := &d.Nodes[c]
		name := d.src[m.keyStart:m.keyEnd]
		if m.keyEscaped {
			from := len(d.Arena)
			d.Arena = AppendUnescaped(d.Arena, name)
			name = d.Arena[from:len(d.Arena):len(d.Arena)]
		}
		if !utf8.Valid(name) {
			// As it will be written, so that the order is right and doubles are found.
			name = []byte(string([]rune(string(name))))
		}
		d.Members = append(d.Members, Member{Name: name, Node: c})
	}
}

// appendMembers appends the object of the members from base on.
func (d *Document) AppendMembers(dst []byte, base int, skip []int) []byte {
	members := d.Members[base:]
	slices.SortStableFunc(members, func(a, b Member) int { return CompareUTF16(a.Name, b.Name) })
	dst = append(dst, '{')
	first := true
	for i := range members {
		// Nested objects push behind; members itself stays, though perhaps in the old array.
		m := members[i]
		if i+1 < len(members) && bytes.Equal(m.Name, members[i+1].Name) {
			continue
		}
		if m.Node > 0 && slices.Contains(skip, int(m.Node)) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = codec.AppendJSONString(dst, m.Name)
		dst = append(dst, ':')
		if m.Node > 0 {
			dst = d.AppendCanonical(dst, int(m.Node), skip)
		} else {
			dst = codec.AppendJSONString(dst, m.Text)
		}
	}
	return append(dst, '}')
}

func (d *Document) appendString(dst []byte, n *Node) []byte {
	b := d.Text(n)
	if n.Escaped {
		from := len(d.Arena)
		d.Arena = AppendUnescaped(d.Arena, b)
		b = d.Arena[from:]
		dst = codec.AppendJSONString(dst, b)
		d.Arena = d.Arena[:from]
		return dst
	}
	return codec.AppendJSONString(dst, b)
}

// compareUTF16 orders names by UTF-16 code units (RFC 8785, 3.2.3): as bytes, but characters
// beyond U+FFFF, whose surrogates begin with D8 to DB, before those from U+E000 on.
func CompareUTF16(a, b []byte) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		// F0 and above lead four bytes, EE and EF the characters from U+E000.
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
