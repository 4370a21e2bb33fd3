package row

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/urlake/urlake/lake/codec"
)

// Tail is what a row has behind its path.
type Suffix struct {
	Scheme string
	// Port is -1 for the scheme's default.
	Port int32
	// TS is milliseconds since the Unix epoch, where HasTS; Size is bytes or tokens, where HasSize.
	TS      int64
	HasTS   bool
	Size    int64
	HasSize bool
	// Extras is RFC 8785 JSON, RawURL the URL as it stood in the input; empty is none.
	Extras, RawURL string
}

// The kinds of tails that a RowBuffer tells apart. All but ownTail have neither port nor ts, size, extras or raw URL.
const (
	HTTPSSuffix = iota
	HTTPSuffix
	OwnSuffix
	SuffixBits = 2
)

// usualTails are the tails of the kinds before ownTail, and usualKeys their bytes in a key.
var (
	UsualSuffixes   = [OwnSuffix]Suffix{HTTPSSuffix: {Scheme: "https", Port: -1}, HTTPSuffix: {Scheme: "http", Port: -1}}
	UsualSuffixKeys = [OwnSuffix][]byte{UsualSuffixes[HTTPSSuffix].AppendKey(nil), UsualSuffixes[HTTPSuffix].AppendKey(nil)}
)

func (t *Suffix) Kind() int {
	if t.Port < 0 && !t.HasTS && !t.HasSize && t.Extras == "" && t.RawURL == "" {
		switch t.Scheme {
		case "https":
			return HTTPSSuffix
		case "http":
			return HTTPSuffix
		}
	}
	return OwnSuffix
}

// appendKey appends what a row's key has behind its path_query; see Row.AppendKey.
func (t *Suffix) AppendKey(dst []byte) []byte {
	dst = append(append(dst, t.Scheme...), 0)
	if t.Port < 0 {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1, byte(t.Port>>8), byte(t.Port))
	}
	dst = appendOptional(dst, t.TS, t.HasTS)
	dst = appendOptional(dst, t.Size, t.HasSize)
	dst = append(append(dst, t.Extras...), 0)
	return append(dst, t.RawURL...)
}

func appendOptional(dst []byte, v int64, ok bool) []byte {
	if !ok {
		return append(dst, 0)
	}
	return binary.BigEndian.AppendUint64(append(dst, 1), uint64(v)^keySign)
}

// keySize is the number of bytes that appendKey appends.
func (t *Suffix) KeySize() int {
	n := len(t.Scheme) + 1 + 1 + 1 + 1 + len(t.Extras) + 1 + len(t.RawURL)
	if t.Port >= 0 {
		n += 2
	}
	if t.HasTS {
		n += 8
	}
	if t.HasSize {
		n += 8
	}
	return n
}

// parse sets t to what appendKey appended, with views into key, and returns where its raw URL begins. Anything else is a *codec.CorruptError.
func (t *Suffix) Parse(key []byte) (record int, err error) {
	bad := func(at int, field string, want, got any) (int, error) {
		*t = Suffix{}
		return 0, codec.Corrupt("row", field, int64(at), want, got)
	}
	at := 0
	text := func() (string, bool) {
		n := bytes.IndexByte(key[at:], 0)
		if n < 0 {
			return "", false
		}
		s := View(key[at : at+n])
		at += n + 1
		return s, true
	}
	ok := true
	if t.Scheme, ok = text(); !ok {
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
	if t.Port = -1; has {
		t.Port = int32(port)
	}
	var v uint64
	if v, t.HasTS, ok = number(8); !ok {
		return bad(at, "ts", "0, or 1 and eight bytes", fmt.Sprintf("% x", key[at:min(at+9, len(key))]))
	}
	if t.TS = 0; t.HasTS {
		t.TS = int64(v ^ keySign)
	}
	if v, t.HasSize, ok = number(8); !ok {
		return bad(at, "size", "0, or 1 and eight bytes", fmt.Sprintf("% x", key[at:min(at+9, len(key))]))
	}
	if t.Size = 0; t.HasSize {
		t.Size = int64(v ^ keySign)
	}
	if t.Extras, ok = text(); !ok {
		return bad(at, "extras", "a zero byte after it", "none")
	}
	t.RawURL = View(key[at:])
	return at, nil
}
