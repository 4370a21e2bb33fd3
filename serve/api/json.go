package api

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Answers are written by appending to one buffer: a page of ten thousand URLs is mostly
// text that needs no escaping, and reflection over it would cost more than finding it.

// document appends members to a JSON object. The zero value is an empty buffer.
type document struct {
	buf []byte
	// comma: a member or element precedes the next one.
	comma bool
}

const hexDigits = "0123456789abcdef"

func (d *document) next() {
	if d.comma {
		d.buf = append(d.buf, ',')
	}
	d.comma = true
}

func (d *document) open(c byte) {
	d.buf = append(d.buf, c)
	d.comma = false
}

func (d *document) close(c byte) {
	d.buf = append(d.buf, c)
	d.comma = true
}

// key starts a member. Names are constants of this package and need no escaping.
func (d *document) key(name string) {
	d.next()
	d.buf = append(append(append(d.buf, '"'), name...), '"', ':')
	d.comma = false
}

func (d *document) text(name, value string) {
	d.key(name)
	d.buf = appendText(d.buf, value)
	d.comma = true
}

// textOrNull writes "" as null.
func (d *document) textOrNull(name, value string) {
	if value == "" {
		d.null(name)
		return
	}
	d.text(name, value)
}

func (d *document) null(name string) {
	d.key(name)
	d.buf = append(d.buf, "null"...)
	d.comma = true
}

func (d *document) number(name string, value int64) {
	d.key(name)
	d.buf = strconv.AppendInt(d.buf, value, 10)
	d.comma = true
}

func (d *document) numberOrNull(name string, value int64, ok bool) {
	if !ok {
		d.null(name)
		return
	}
	d.number(name, value)
}

func (d *document) boolean(name string, value bool) {
	d.key(name)
	d.buf = strconv.AppendBool(d.buf, value)
	d.comma = true
}

// id writes a 64-bit id as 16 hex digits: JSON numbers would lose bits.
func (d *document) id(name string, value uint64) {
	d.key(name)
	d.buf = append(d.buf, '"')
	for shift := 60; shift >= 0; shift -= 4 {
		d.buf = append(d.buf, hexDigits[value>>shift&15])
	}
	d.buf = append(d.buf, '"')
	d.comma = true
}

// timeOrNull writes milliseconds since the epoch as RFC 3339 in UTC.
func (d *document) timeOrNull(name string, ms int64, ok bool) {
	if !ok {
		d.null(name)
		return
	}
	d.key(name)
	d.buf = append(appendTime(append(d.buf, '"'), ms), '"')
	d.comma = true
}

// array starts a member that is an array; end closes it.
func (d *document) array(name string) {
	d.key(name)
	d.open('[')
}

func (d *document) object(name string) {
	d.key(name)
	d.open('{')
}

// element starts an object in an array.
func (d *document) element() {
	d.next()
	d.open('{')
}

// appendText appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD, as
// encoding/json has it.
func appendText[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\t':
				dst = append(dst, '\\', 't')
			case '\r':
				dst = append(dst, '\\', 'r')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		// At most four bytes are looked at.
		r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		if r == utf8.RuneError && size == 1 {
			dst = append(append(dst, s[start:i]...), "\ufffd"...)
			i++
			start = i
			continue
		}
		i += size
	}
	return append(append(dst, s[start:]...), '"')
}

// appendTime appends ms since the epoch as 2006-01-02T15:04:05.000Z.
func appendTime(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	}
	hour, minute, second := t.Clock()
	two := func(v int) { dst = append(dst, byte('0'+v/10), byte('0'+v%10)) }
	two(year / 100)
	two(year % 100)
	dst = append(dst, '-')
	two(int(month))
	dst = append(dst, '-')
	two(day)
	dst = append(dst, 'T')
	two(hour)
	dst = append(dst, ':')
	two(minute)
	dst = append(dst, ':')
	two(second)
	milli := t.Nanosecond() / 1e6
	dst = append(dst, '.', byte('0'+milli/100))
	two(milli % 100)
	return append(dst, 'Z')
}
