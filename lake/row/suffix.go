package row

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/urlake/urlake/lake/codec"
)

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

	SuffixBits = 2 // a kind has this many bits in buffers and shuffle files
)

var (
	// UsualSuffixes are the suffixes of the kinds below OwnSuffix. Rows share them by address.
	UsualSuffixes = [OwnSuffix]Suffix{
		HTTPSSuffix: {Scheme: "https", Port: -1},
		HTTPSuffix:  {Scheme: "http", Port: -1},
	}

	// UsualSuffixKeys are what AppendKey appends for UsualSuffixes.
	UsualSuffixKeys = [OwnSuffix][]byte{
		HTTPSSuffix: UsualSuffixes[HTTPSSuffix].AppendKey(nil),
		HTTPSuffix:  UsualSuffixes[HTTPSuffix].AppendKey(nil),
	}
)

// Kind returns the suffix's kind.
func (s *Suffix) Kind() int {
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

// AppendKey appends the part of a row's key after the path_query; see Row.AppendKey.
func (s *Suffix) AppendKey(dst []byte) []byte {
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

// KeySize returns the number of bytes that AppendKey appends.
func (s *Suffix) KeySize() int {
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

// splitExtras splits the text of a key from extras to batch.
func splitExtras(text string) (extras, batch string) {
	if len(text) > 0 {
		extras, batch, _ = strings.Cut(text, string(rune(batchMark)))
	}
	return extras, batch
}

// Parse sets s to the suffix of which AppendKey makes key. The strings of s are views into key.
// Other bytes are a *codec.CorruptError.
func (s *Suffix) Parse(key []byte) error {
	bad := func(at int, field string, want, got any) error {
		*s = Suffix{}
		return codec.Corrupt("row", field, int64(at), want, got)
	}
	at := 0
	text := func() (string, bool) {
		n := bytes.IndexByte(key[at:], 0)
		if n < 0 {
			return "", false
		}
		v := View(key[at : at+n])
		at += n + 1
		return v, true
	}
	var ok bool
	if s.Scheme, ok = text(); !ok {
		return bad(at, "scheme", "a zero byte after it", "none")
	}
	number := func(width int) (v uint64, has, ok bool) {
		switch {
		case at < len(key) && key[at] == 0:
			at++
			return 0, false, true
		case at < len(key) && key[at] == 1 && len(key)-at-1 >= width:
			for _, c := range key[at+1 : at+1+width] {
				v = v<<8 | uint64(c)
			}
			at += 1 + width
			return v, true, true
		}
		return 0, false, false
	}
	port, has, ok := number(2)
	if !ok {
		return bad(at, "port", "0, or 1 and two bytes", fmt.Sprintf("% x", key[at:min(at+3, len(key))]))
	}
	if s.Port = -1; has {
		s.Port = int32(port)
	}
	var v uint64
	if v, s.HasTS, ok = number(8); !ok {
		return bad(at, "ts", "0, or 1 and eight bytes", fmt.Sprintf("% x", key[at:min(at+9, len(key))]))
	}
	if s.TS = 0; s.HasTS {
		s.TS = int64(v ^ keySign)
	}
	if v, s.HasSize, ok = number(8); !ok {
		return bad(at, "size", "0, or 1 and eight bytes", fmt.Sprintf("% x", key[at:min(at+9, len(key))]))
	}
	if s.Size = 0; s.HasSize {
		s.Size = int64(v ^ keySign)
	}
	extras, ok := text()
	if !ok {
		return bad(at, "extras", "a zero byte after it", "none")
	}
	s.Extras, s.Batch = splitExtras(extras)
	s.RawURL = View(key[at:])
	return nil
}
