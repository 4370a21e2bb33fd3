// Package domain64 numbers hosts, and URLs if wanted, by 64 bits: top-level domain, domain below
// it, subdomain below that, and path, each by a number of its own (docs/formats/domain64.md). What
// is below a domain is a range of numbers, so that a database finds, partitions and detaches sites
// by a BIGINT.
//
// The package is arithmetic and names alone. Which number a name has, a registry decides: package
// numbers keeps one in a lake.
package domain64

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Level is the rank of a name in the tree.
type Level int

// The levels, from the top. A subdomain can have several labels. A path belongs to a host: to a
// subdomain, or to a domain or top-level domain itself.
const (
	TLD Level = iota
	Domain
	Sub
	Path
	Levels // how many there are
)

func (l Level) String() string {
	return [...]string{"top-level domain", "domain", "subdomain", "path", "level"}[min(max(l, 0), Levels)]
}

// Code is an encoded number. Its order as an unsigned number is that of the tree: a name comes
// before everything below it. The zero Code stands for no name.
type Code uint64

// Signed returns the code as a BIGINT has it: of the same 64 bits, negative from 1<<63 on.
func (c Code) Signed() int64 { return int64(c) }

// FromSigned returns the code that a BIGINT has.
func FromSigned(v int64) Code { return Code(v) }

// Numbers are the numbers of a name at each level, 0 for levels that it has not.
type Numbers [Levels]uint32

// Layout says how many bits each level has. Compare layouts with ==. The zero value is none; use
// Document, Production, Wide or ParseLayout.
type Layout struct{ bits [Levels]uint8 }

var (
	// Document is the layout of the original document, 8-24-8-24: 255 top-level domains,
	// 16,777,215 domains in each, 255 subdomains of a domain, 16,777,215 paths of a host.
	Document = Layout{[Levels]uint8{8, 24, 8, 24}}
	// Production is the layout of the search engine for which domain64 was made, 8-24-24-8. Its
	// last eight bits are reserved there.
	Production = Layout{[Levels]uint8{8, 24, 24, 8}}
	// Wide is a layout without paths, 12-28-24-0, that holds the public web: 4,095 top-level
	// domains, 268,435,455 domains in each, 16,777,215 subdomains of a domain.
	Wide = Layout{[Levels]uint8{12, 28, 24, 0}}
)

// maxBits is the most bits of a level: Numbers hold 32.
const maxBits = 32

// ParseLayout reads a layout as String writes it: four numbers of bits with hyphens between them,
// whose sum is 64, each divisible by four, since each is written as hex digits. Only the last may
// be 0, and none above 32.
func ParseLayout(s string) (Layout, error) {
	var l Layout
	fields := strings.Split(s, "-")
	sum := 0
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 8)
		if err != nil || i >= int(Levels) || n%4 != 0 || n > maxBits || n == 0 && i < int(Path) || strconv.Itoa(int(n)) != f {
			sum = 0
			break
		}
		l.bits[i] = uint8(n)
		sum += int(n)
	}
	if sum != 64 || len(fields) != int(Levels) {
		return Layout{}, fmt.Errorf("domain64 layout %q: want four numbers of bits, each divisible by 4, with the sum 64, "+
			"such as %v or %v", s, Wide, Document)
	}
	return l, nil
}

// String returns the numbers of bits, such as "8-24-8-24".
func (l Layout) String() string {
	return fmt.Sprintf("%d-%d-%d-%d", l.bits[TLD], l.bits[Domain], l.bits[Sub], l.bits[Path])
}

// Max returns the largest number of a level, which is also how many names a parent can have there.
func (l Layout) Max(at Level) uint32 { return uint32(1<<l.bits[at] - 1) }

// shift is how far a level is from the lowest bit.
func (l Layout) shift(at Level) (n uint) {
	for i := at + 1; i < Levels; i++ {
		n += uint(l.bits[i])
	}
	return n
}

// digits is how many hex digits a level has.
func (l Layout) digits(at Level) int { return int(l.bits[at]) / 4 }

// ErrNumbers is the error for numbers that no name has: too large for the layout, or of a level
// below one without a number.
var ErrNumbers = errors.New("not the numbers of a name")

// Encode returns the code of numbers. The error wraps ErrNumbers.
func (l Layout) Encode(n Numbers) (Code, error) {
	var c Code
	for i := range Levels {
		if n[i] > l.Max(i) {
			return 0, fmt.Errorf("domain64 %s: %s %d is more than %d: %w", l, i, n[i], l.Max(i), ErrNumbers)
		}
		c |= Code(n[i]) << l.shift(i)
	}
	return c, l.check(n)
}

// check returns an error if a level has a number below one that has none.
func (l Layout) check(n Numbers) error {
	for i := Domain; i < Levels; i++ {
		above := i - 1
		if i == Path {
			above = TLD // a path may belong to any of the levels above
		}
		if n[i] != 0 && n[above] == 0 {
			return fmt.Errorf("domain64 %s: %s %d of no %s: %w", l, i, n[i], above, ErrNumbers)
		}
	}
	return nil
}

// Decode returns the numbers in a code. It does not check that a name can have them, as Check does.
func (l Layout) Decode(c Code) (n Numbers) {
	for i := range Levels {
		n[i] = uint32(c>>l.shift(i)) & l.Max(i)
	}
	return n
}

// Check returns an error that wraps ErrNumbers if no name can have the code.
func (l Layout) Check(c Code) error { return l.check(l.Decode(c)) }

// Level returns the level of the name that has the code, and false for the zero code.
func (l Layout) Level(c Code) (Level, bool) {
	n := l.Decode(c)
	for i := Path; i >= TLD; i-- {
		if n[i] != 0 {
			return i, true
		}
	}
	return 0, false
}

// Parent returns the code of the name above: the host of a path, the domain of a subdomain, the
// top-level domain of a domain, and 0 for a top-level domain.
func (l Layout) Parent(c Code) Code {
	at, ok := l.Level(c)
	if !ok {
		return 0
	}
	return c &^ (Code(l.Max(at)) << l.shift(at))
}

// Child returns the code of a child of parent: its number at a level below.
func (l Layout) Child(parent Code, at Level, number uint32) Code {
	return parent | Code(number)<<l.shift(at)
}

// Host returns the code without the path.
func (l Layout) Host(c Code) Code { return c &^ Code(l.Max(Path)) }

// Format returns a code as hex digits with a colon between the levels, such as
// "01:000001:02:000002". A level of no bits is left out.
func (l Layout) Format(c Code) string {
	b := make([]byte, 0, 20)
	n := l.Decode(c)
	for i := range Levels {
		if l.bits[i] == 0 {
			continue
		}
		if i > 0 {
			b = append(b, ':')
		}
		b = l.appendHex(b, i, n[i])
	}
	return string(b)
}

// appendHex appends the number of a level as its hex digits.
func (l Layout) appendHex(b []byte, at Level, number uint32) []byte {
	const digits = "0123456789ABCDEF"
	for i := l.digits(at) - 1; i >= 0; i-- {
		b = append(b, digits[number>>(4*i)&15])
	}
	return b
}

// Parse reads a code: as Format writes it, as a decimal BIGINT, which may be negative, or as hex
// digits after 0x or #x. Hex digits count in either case. The error says what is wrong with the
// text, or wraps ErrNumbers.
func (l Layout) Parse(s string) (Code, error) {
	c, ok := l.parse(s)
	if !ok {
		return 0, fmt.Errorf("domain64 %s: %q is no code: use %s, a decimal number, or 0x and hex digits", l, s, l.Format(0))
	}
	if err := l.Check(c); err != nil {
		return 0, fmt.Errorf("%q: %w", s, err)
	}
	return c, nil
}

func (l Layout) parse(s string) (Code, bool) {
	for _, prefix := range []string{"0x", "#x"} {
		if hex, ok := strings.CutPrefix(s, prefix); ok {
			v, err := strconv.ParseUint(hex, 16, 64)
			return Code(v), err == nil
		}
	}
	if !strings.Contains(s, ":") {
		v, err := strconv.ParseInt(s, 10, 64)
		return Code(v), err == nil
	}
	var c Code
	for i := range Levels {
		if l.bits[i] == 0 {
			continue
		}
		field, rest, more := strings.Cut(s, ":")
		v, err := strconv.ParseUint(field, 16, 32)
		last := i == Path || l.shift(i) == 0
		if err != nil || len(field) != l.digits(i) || more == last {
			return 0, false
		}
		c |= Code(v) << l.shift(i)
		s = rest
	}
	return c, true
}

// Range is a half-open range of signed codes, as partitions of PostgreSQL have them: From is in it,
// To is not. If Open, there is no upper end, which PostgreSQL writes MAXVALUE.
type Range struct {
	From, To int64
	Open     bool
}

// Range returns the codes of a name and everything below it: of a top-level domain all its domains,
// of a domain all subdomains and paths, of a subdomain its paths, of a path that alone. The range
// of the zero code is everything.
func (l Layout) Range(c Code) Range {
	at, ok := l.Level(c)
	if !ok {
		return Range{From: -1 << 63, Open: true}
	}
	return span(c, c|(1<<l.shift(at)-1))
}

// HostRange returns the codes of a host and its paths, without its subdomains.
func (l Layout) HostRange(c Code) Range {
	c = l.Host(c)
	return span(c, c|Code(l.Max(Path)))
}

// span returns the range from first to last, which have the same highest bit.
func span(first, last Code) Range {
	if last == 1<<63-1 {
		return Range{From: first.Signed(), Open: true}
	}
	return Range{From: first.Signed(), To: (last + 1).Signed()}
}

// Contains reports whether a signed code is in the range.
func (r Range) Contains(v int64) bool { return v >= r.From && (r.Open || v < r.To) }

// Len is the number of codes in the range. That of everything, 1<<64, is returned as 0.
func (r Range) Len() uint64 {
	if r.Open {
		return 1<<63 - uint64(r.From)
	}
	return uint64(r.To) - uint64(r.From)
}

// Bounds returns the lower and the upper bound as PostgreSQL takes them in FOR VALUES FROM … TO …:
// a quoted number, or MAXVALUE. PostgreSQL before 16 reads no hex numbers, and the smallest BIGINT
// is one only in quotes.
func (r Range) Bounds() (from, to string) {
	from, to = "'"+strconv.FormatInt(r.From, 10)+"'", "MAXVALUE"
	if !r.Open {
		to = "'" + strconv.FormatInt(r.To, 10) + "'"
	}
	return from, to
}

// String returns the range as a partition's definition has it: FROM ('…') TO ('…').
func (r Range) String() string {
	from, to := r.Bounds()
	return "FROM (" + from + ") TO (" + to + ")"
}

// Wider returns the layout that has four more bits at a level, taken from the level with the most
// bits to spare below or above it. It is what can be advised when a table is full.
func (l Layout) Wider(at Level) (Layout, bool) {
	if l.bits[at]+4 > maxBits {
		return Layout{}, false
	}
	from := Levels
	for _, i := range []Level{Path, Domain, Sub} {
		if i != at && l.bits[i] > 4 && (from == Levels || bits.Len32(l.Max(i)) > bits.Len32(l.Max(from))) {
			from = i
		}
	}
	if from == Levels {
		return Layout{}, false
	}
	l.bits[at] += 4
	l.bits[from] -= 4
	return l, true
}
