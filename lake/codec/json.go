package codec

import "github.com/go-json-experiment/json/jsontext"

// AppendJSONString appends s as a JSON string in its canonical form (RFC 8785, 3.2.2.2): only
// characters that must be escaped are. Bytes that are not UTF-8 become U+FFFD, one each, as in
// encoding/json. S must not overlap the memory of dst.
func AppendJSONString[T string | []byte](dst []byte, s T) []byte {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is that s is not UTF-8
	return dst
}

// isPlain reports whether s is ASCII without anything to be escaped, as nearly all strings are. It
// looks at eight bytes at a time.
func isPlain[T string | []byte](s T) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		quote, backslash := w^each*'"', w^each*'\\'
		// The high bit of a byte is set if the byte is above ASCII, below a space, " or \. A borrow
		// sets others too, but only beside such a byte.
		if (w|(w-each*' ')|(quote-each)&^quote|(backslash-each)&^backslash)&high != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
