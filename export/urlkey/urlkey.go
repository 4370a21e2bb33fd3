// Package urlkey makes 63-bit database keys of URLs, bit for bit as the published scheme of the
// scrape service makes them (docs/formats/urlkey.md), and cleans URLs as that service does before
// it makes a key.
//
// A key is a hash. Two URLs can have the same one; ExpectedPairs says how many will. Whoever uses
// keys as primary keys has to compare the URLs too.
package urlkey

const (
	// HashBits is the number of low bits of a key that hash the URL.
	HashBits = 56
	// SumBits is the number of bits above them, which sum up the bytes of the host name.
	SumBits = 7

	low56 = 1<<HashBits - 1
	low7  = 1<<SumBits - 1

	// The constants of FNV-1a, 64 bits.
	offset64 = 14695981039346656037
	prime64  = 1099511628211
)

// Key is the key of a URL, whose text is taken as it is. Bits 0 to 55 are its FNV-1a 64 hash with
// the top byte XORed into the low 56 bits. Bits 56 to 62 are the low seven bits of the sum of the
// bytes of its host name (HostName). Bit 63 is zero, so that the key fits a signed BIGINT.
//
// So all URLs of a host are in one of 128 ranges, which it shares with other hosts.
func Key[T ~string | ~[]byte](url T) uint64 {
	h := uint64(offset64)
	for i := range len(url) {
		h = (h ^ uint64(url[i])) * prime64
	}
	host := HostName(url)
	sum := uint64(0)
	for i := range len(host) {
		sum += uint64(host[i])
	}
	return sum&low7<<HashBits | h&low56 ^ h>>HashBits
}

// HostName returns the host name in a URL, as it is written there, without user info, port, and the
// brackets of an IPv6 address. It is "" if the URL has no authority, as in mailto:a@example.com.
func HostName[T ~string | ~[]byte](url T) T {
	s := afterSlashes(url)
	end := 0
	for end < len(s) && s[end] != '/' && s[end] != '?' && s[end] != '#' {
		end++
	}
	s = s[:end]
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '@' {
			s = s[i+1:]
			break
		}
	}
	if len(s) > 0 && s[0] == '[' {
		for i := range len(s) {
			if s[i] == ']' {
				return s[1:i]
			}
		}
		return s[1:]
	}
	i := len(s)
	for i > 0 && '0' <= s[i-1] && s[i-1] <= '9' {
		i--
	}
	if i > 0 && s[i-1] == ':' {
		return s[:i-1]
	}
	return s
}

// afterSlashes returns what follows "//" behind the scheme, if there is one, and "" without
// slashes.
func afterSlashes[T ~string | ~[]byte](url T) T {
	i := 0
	for i < len(url) && schemeByte(url[i], i) {
		i++
	}
	if i > 0 {
		if i == len(url) || url[i] != ':' {
			return url[:0]
		}
		i++
	}
	if len(url)-i < 2 || url[i] != '/' || url[i+1] != '/' {
		return url[:0]
	}
	return url[i+2:]
}

// schemeByte reports whether c may be byte i of a scheme.
func schemeByte(c byte, i int) bool {
	switch {
	case 'a' <= c|0x20 && c|0x20 <= 'z':
		return true
	case '0' <= c && c <= '9', c == '+', c == '-', c == '.':
		return i > 0
	}
	return false
}

// ExpectedPairs is the number of pairs among n different URLs of one host sum whose keys are equal
// by chance: n(n-1)/2 pairs, each equal with a probability of one in 2^HashBits. URLs of many hosts
// have fewer, by a factor of up to 2^SumBits, which is how many sums there are.
func ExpectedPairs(n float64) float64 { return n * (n - 1) / 2 / (low56 + 1) }
