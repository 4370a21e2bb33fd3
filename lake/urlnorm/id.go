package urlnorm

import "github.com/zeebo/xxh3"

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
