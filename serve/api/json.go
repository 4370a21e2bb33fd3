package api

import (
	"strconv"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/format"
)

// document is a JSON document under construction. Its methods append to buf, and the caller pairs
// open with close. The zero value is empty.
//
// encoding/json is not used for answers: a page of 10,000 URLs is mostly text without escapes, and
// encoding it by reflection would take longer than finding it.
type document struct {
	buf   []byte
	comma bool // the next member or element needs a comma before it
}

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

// key starts a member. Names are constants of this package that need no escaping.
func (d *document) key(name string) {
	d.next()
	d.buf = append(append(append(d.buf, '"'), name...), '"', ':')
	d.comma = false
}

func (d *document) text(name, value string) {
	d.key(name)
	d.buf = codec.AppendJSONString(d.buf, value)
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

// id writes a 64-bit id as a string of 16 hex digits, because JSON numbers lose bits.
func (d *document) id(name string, value uint64) {
	const hexDigits = "0123456789abcdef"
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
	d.buf = append(format.AppendTime(append(d.buf, '"'), ms), '"')
	d.comma = true
}

// array starts a member that is an array. The caller closes it.
func (d *document) array(name string) {
	d.key(name)
	d.open('[')
}

// object starts a member that is an object. The caller closes it.
func (d *document) object(name string) {
	d.key(name)
	d.open('{')
}

// element starts an object in an array. The caller closes it.
func (d *document) element() {
	d.next()
	d.open('{')
}
