package row

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unsafe"

	"github.com/urlake/urlake/lake/codec"
)

// Row is one URL record as the lake keeps it. An empty Extras or RawURL means that there is none.
type Row struct {
	// Domain, Host, PathQuery and Scheme are those of urlnorm.URL.
	Domain, Host, PathQuery, Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is in milliseconds since the Unix epoch, if HasTS.
	TS    int64
	HasTS bool
	// Size is in bytes or tokens, as the dataset counts, if HasSize.
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON.
	Extras string
	// RawURL is the URL as it is in the input, if the batch keeps raw URLs and this one differs
	// from the canonical URL.
	RawURL string
}

// AppendKey appends the row's key to dst. No string but RawURL may contain a zero byte; canonical
// URLs and JSON contain none.
func (r *Row) AppendKey(dst []byte) []byte {
	dst = append(append(dst, r.Domain...), 0)
	dst = append(append(dst, r.Host...), 0)
	dst = append(append(dst, r.PathQuery...), 0)
	s := Suffix{
		Scheme: r.Scheme, Port: r.Port, TS: r.TS, HasTS: r.HasTS, Size: r.Size, HasSize: r.HasSize,
		Extras: r.Extras, RawURL: r.RawURL,
	}
	return s.appendKey(dst)
}

// View returns b as a string without copying it. The string is valid until b is written to.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Suffix has the fields of a row after its path. They mean what they do in Row.
type Suffix struct {
	Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is in milliseconds since the Unix epoch, if HasTS; Size is in bytes or tokens, if HasSize.
	TS      int64
	HasTS   bool
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON, RawURL the URL as it is in the input; empty means none.
	Extras, RawURL string
	// Batch is the row's batch if rows of several batches are sorted together, else empty. It is
	// part of the record: equal rows of two batches stay two rows.
	Batch string
}

// batchMark is the byte between extras and batch in a key. JSON does not contain it, and it is less
// than all bytes that JSON has.
const batchMark = 1

// Kinds of suffixes. Most rows of URL lists have a suffix of the first two kinds, with a scheme and
// nothing else, so it takes no memory of its own.
const (
	HTTPSSuffix = iota // https and no other field
	HTTPSuffix         // http and no other field
	OwnSuffix          // any other suffix; its bytes are stored with the row

	suffixBits = 2 // a kind has this many bits in buffers and shuffle files
)

var (
	// UsualSuffixes are the suffixes of the kinds below OwnSuffix. Rows share them by address.
	UsualSuffixes = [OwnSuffix]Suffix{
		HTTPSSuffix: {Scheme: "https", Port: -1},
		HTTPSuffix:  {Scheme: "http", Port: -1},
	}

	// usualSuffixKeys are what appendKey appends for UsualSuffixes.
	usualSuffixKeys = [OwnSuffix][]byte{
		HTTPSSuffix: UsualSuffixes[HTTPSSuffix].appendKey(nil),
		HTTPSuffix:  UsualSuffixes[HTTPSuffix].appendKey(nil),
	}
)

// kind returns the suffix's kind.
func (s *Suffix) kind() int {
	if s.Port < 0 && !s.HasTS && !s.HasSize && s.Extras == "" && s.RawURL == "" && s.Batch == "" {
		switch s.Scheme {
		case "https":
			return HTTPSSuffix
		case "http":
			return HTTPSuffix
		}
	}
	return OwnSuffix
}

// hasZeroByte reports whether a string of the record has a zero byte, so that its key would be
// ambiguous.
func (s *Suffix) hasZeroByte() bool {
	return strings.IndexByte(s.Scheme, 0) >= 0 || strings.IndexByte(s.Extras, 0) >= 0
}

// appendKey appends the part of a row's key after the path_query; see Row.AppendKey.
func (s *Suffix) appendKey(dst []byte) []byte {
	dst = append(append(dst, s.Scheme...), 0)
	if s.Port < 0 {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1, byte(s.Port>>8), byte(s.Port))
	}
	dst = appendOptional(dst, s.TS, s.HasTS)
	dst = appendOptional(dst, s.Size, s.HasSize)
	dst = append(dst, s.Extras...)
	if s.Batch != "" {
		dst = append(append(dst, batchMark), s.Batch...)
	}
	return append(append(dst, 0), s.RawURL...)
}

func appendOptional(dst []byte, v int64, ok bool) []byte {
	if !ok {
		return append(dst, 0)
	}
	return binary.BigEndian.AppendUint64(append(dst, 1), uint64(v)^keySign)
}

// keySize returns the number of bytes that appendKey appends.
func (s *Suffix) keySize() int {
	n := len(s.Scheme) + 1 + 1 + 1 + 1 + len(s.Extras) + 1 + len(s.RawURL)
	if s.Port >= 0 {
		n += 2
	}
	if s.HasTS {
		n += 8
	}
	if s.HasSize {
		n += 8
	}
	if s.Batch != "" {
		n += 1 + len(s.Batch)
	}
	return n
}

// parse sets s to the suffix that begins at an offset of a key. The strings of s are views into
// key. Bytes that appendKey does not append are a *codec.CorruptError.
func (s *Suffix) parse(key []byte, at int) error {
	var field string // that is parsed
	var wrong error
	bad := func(want, got any) {
		if wrong == nil {
			wrong = codec.Corrupt("row key", field, int64(at), want, got)
		}
	}
	text := func(name string) string {
		field = name
		n := bytes.IndexByte(key[at:], 0)
		if n < 0 {
			bad("a zero byte after it", "none")
			return ""
		}
		v := View(key[at : at+n])
		at += n + 1
		return v
	}
	number := func(name string, width int) (v uint64, has bool) {
		field = name
		switch {
		case at == len(key):
			bad("a byte", "the end")
		case key[at] == 0:
			at++
		case key[at] != 1:
			bad("0 or 1", key[at])
		case len(key)-at-1 < width:
			bad(fmt.Sprintf("%d bytes", width), len(key)-at-1)
		default:
			for _, c := range key[at+1 : at+1+width] {
				v = v<<8 | uint64(c)
			}
			at += 1 + width
			return v, true
		}
		return keySign, false
	}
	s.Scheme = text("scheme")
	s.Port = -1
	if port, has := number("port", 2); has {
		s.Port = int32(port)
	}
	var v uint64
	v, s.HasTS = number("ts", 8)
	s.TS = int64(v ^ keySign)
	v, s.HasSize = number("size", 8)
	s.Size = int64(v ^ keySign)
	s.Extras, s.Batch = text("extras"), ""
	if s.Extras != "" {
		s.Extras, s.Batch, _ = strings.Cut(s.Extras, string(rune(batchMark)))
	}
	s.RawURL = View(key[at:])
	if wrong != nil {
		*s = Suffix{}
	}
	return wrong
}
