package codec

import "github.com/go-json-experiment/json/jsontext"

// AppendJSONString appends s as a JSON string in its canonical form (RFC 8785, 3.2.2.2): only
// characters that must be escaped are. Bytes that are not UTF-8 become U+FFFD, one each, as in
// encoding/json. S must not overlap the memory of dst.
func AppendJSONString[T string | []byte](dst []byte, s T) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // its only error is that s is not UTF-8
	return dst
}
