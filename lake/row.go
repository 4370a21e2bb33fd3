package lake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/urlake/urlake/lake/codec"
)

// Row is one URL record as the lake keeps it. An empty Extras or RawURL is none.
type Row struct {
	// Domain, Host, PathQuery and Scheme are those of urlnorm.URL.
	Domain, Host, PathQuery, Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is milliseconds since the Unix epoch, where HasTS.
	TS    int64
	HasTS bool
	// Size is bytes or tokens, as the dataset counts, where HasSize.
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON.
	Extras string
	// RawURL is the URL as it stood in the input, where the caller asked for it and it differs
	// from the canonical one.
	RawURL string
}

// A row's key is its fields in the order rows are sorted by, written so that comparing
// keys as bytes compares rows field by field, what is absent first:
//
//	domain 00 host 00 path_query 00 scheme 00 port ts size extras 00 raw_url
//
// Strings end in a zero byte; none but raw_url, the last, can hold one. Port is 00 for none,
// else 01 and the number as big-endian u16. Ts and size are 00 for none, else 01 and a
// big-endian u64 with its sign bit flipped. Everything before raw_url is the record: rows with
// the same record are one row.

const keySign = 1 << 63

// MaxKey is the longest key in bytes. A canonical URL has at most 16 KiB and a raw one 64 KiB, so
// this bounds extras; eight times the longest line read by default. A merge holds one key of every run.
const MaxKey = 8 << 20

// AppendKey appends the row's key to dst. The strings but RawURL must not hold a zero byte;
// canonical URLs and JSON do not.
func (r *Row) AppendKey(dst []byte) []byte {
	dst = append(append(dst, r.Domain...), 0)
	dst = append(append(dst, r.Host...), 0)
	dst = append(append(dst, r.PathQuery...), 0)
	dst = append(append(dst, r.Scheme...), 0)
	if r.Port < 0 {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1, byte(r.Port>>8), byte(r.Port))
	}
	dst = appendOptional(dst, r.TS, r.HasTS)
	dst = appendOptional(dst, r.Size, r.HasSize)
	dst = append(append(dst, r.Extras...), 0)
	return append(dst, r.RawURL...)
}

func appendOptional(dst []byte, v int64, ok bool) []byte {
	if !ok {
		return append(dst, 0)
	}
	return binary.BigEndian.AppendUint64(append(dst, 1), uint64(v)^keySign)
}

// ParseKey fills r from a key. The strings are views into key and valid as long as its
// bytes are left alone. A key that AppendKey did not make is a *codec.CorruptError.
func ParseKey(key []byte, r *Row) error {
	p := keyParser{key: key}
	r.Domain = p.text("domain")
	r.Host = p.text("host")
	r.PathQuery = p.text("path_query")
	r.Scheme = p.text("scheme")
	r.Port = -1
	if b := p.optional("port", 2); b != nil {
		r.Port = int32(binary.BigEndian.Uint16(b))
	}
	r.TS, r.HasTS = 0, false
	if b := p.optional("ts", 8); b != nil {
		r.TS, r.HasTS = int64(binary.BigEndian.Uint64(b)^keySign), true
	}
	r.Size, r.HasSize = 0, false
	if b := p.optional("size", 8); b != nil {
		r.Size, r.HasSize = int64(binary.BigEndian.Uint64(b)^keySign), true
	}
	r.Extras = p.text("extras")
	r.RawURL = view(key[p.at:])
	return p.err
}

// RecordPrefix is the length of key without its raw URL. Of two keys the records are equal
// exactly if one starts with the other's record, since no record is a beginning of another.
// It is -1 for what is no key.
func RecordPrefix(key []byte) int {
	p := keyParser{key: key}
	for range 4 {
		p.text("")
	}
	p.optional("", 2)
	p.optional("", 8)
	p.optional("", 8)
	p.text("")
	if p.err != nil {
		return -1
	}
	return p.at
}

// keyParser walks over the fields of a key. After a failure it yields nothing.
type keyParser struct {
	key []byte
	at  int
	err error
}

func (p *keyParser) text(field string) string {
	if p.err != nil {
		return ""
	}
	n := bytes.IndexByte(p.key[p.at:], 0)
	if n < 0 {
		p.fail(field, "a zero byte after it", "none")
		return ""
	}
	s := view(p.key[p.at : p.at+n])
	p.at += n + 1
	return s
}

// optional returns the n bytes of a present field, nil for an absent one.
func (p *keyParser) optional(field string, n int) []byte {
	switch {
	case p.err != nil:
		return nil
	case p.at == len(p.key):
		p.fail(field, "a byte", "the end")
		return nil
	case p.key[p.at] == 0:
		p.at++
		return nil
	case p.key[p.at] != 1:
		p.fail(field, "0 or 1", p.key[p.at])
		return nil
	case len(p.key)-p.at-1 < n:
		p.fail(field, fmt.Sprintf("%d bytes", n), len(p.key)-p.at-1)
		return nil
	}
	b := p.key[p.at+1 : p.at+1+n]
	p.at += 1 + n
	return b
}

func (p *keyParser) fail(field string, want, got any) {
	p.err = codec.Corrupt("row key", field, int64(p.at), want, got)
}

// view is b as a string that is valid as long as b is left alone.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
