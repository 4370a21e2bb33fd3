package urlnorm

import (
	"strings"

	"github.com/zeebo/xxh3"
)

// DomainID is the public, stable id of a domain: XXH3-64 of its text.
func DomainID(domain string) uint64 { return weakID(xxh3.HashString(domain)) }

// CheckBits are 32 bits of the other half of a domain's XXH3-128, independent of DomainID. Internal
// keys have them so that two domains made to share an id are not mixed. A piece of the id itself,
// such as the 16 bits of the original specification, would tell apart nothing.
func CheckBits(domain string) uint32 { return uint32(xxh3.HashString128(domain).Hi >> 32) }

// DomainHashes returns DomainID and CheckBits of a domain.
func DomainHashes(domain []byte) (id uint64, check uint32) {
	return weakID(xxh3.Hash(domain)), uint32(xxh3.Hash128(domain).Hi >> 32)
}

// URLID is the public, stable id of a URL: XXH3-64 of its canonical form.
func URLID(canonical []byte) uint64 { return xxh3.Hash(canonical) }

// FormatID is how ids are printed: 16 lower-case hexadecimal digits.
func FormatID(id uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = digits[id&15]
		id >>= 4
	}
	return string(b[:])
}

// Key is the 63-bit database key of a URL string, canonical or not. Bits 0 to 55 are its FNV-1a 64
// hash with the top byte XORed into the low 56 bits. Bits 56 to 62 are the low seven bits of the
// sum of the bytes of its host name, without user info, port, and the brackets of an IPv6 address.
// Bit 63 is zero, so the key fits a signed BIGINT. Keys of one host share a prefix.
func Key(url string) uint64 {
	const (
		offset64 = 14695981039346656037
		prime64  = 1099511628211
		low56    = 1<<56 - 1
	)
	h := uint64(offset64)
	for i := range len(url) {
		h = (h ^ uint64(url[i])) * prime64
	}
	sum := uint64(0)
	host := hostName(url)
	for i := range len(host) {
		sum += uint64(host[i])
	}
	return sum&0x7f<<56 | h&low56 ^ h>>56
}

// hostName returns the host name in a URL, "" if it has no authority.
func hostName(url string) string {
	_, s, ok := strings.Cut(url, "://")
	if !ok {
		return ""
	}
	if end := strings.IndexAny(s, "/?#"); end >= 0 {
		s = s[:end]
	}
	s = s[strings.LastIndexByte(s, '@')+1:]
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, _, _ := strings.Cut(rest, "]")
		return host
	}
	host, _, _ := strings.Cut(s, ":")
	return host
}
