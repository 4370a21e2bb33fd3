package urlnorm

import (
	"strings"
	"testing"
)

// naive is what the functions of words.go are to find, byte by byte.
func naiveName(s []byte, start int) (end int, dots, hyphens uint64) {
	end = start
	for ; end < len(s) && end < start+64 && s[end] != '_' && classes[s[end]]&hostPlain != 0; end++ {
		switch s[end] {
		case '.':
			dots |= 1 << (end - start)
		case '-':
			hyphens |= 1 << (end - start)
		}
	}
	return end, dots, hyphens
}

// naiveSkip is the least place at which a scan may stop and the one at which it has to: bytes that are neither
// special nor certainly plain may be looked at.
func naiveSkip(s []byte, i int, special string, afterSlash bool) (may, must int) {
	may = -1
	for ; i < len(s); i++ {
		c := s[i]
		pair := afterSlash && s[i-1] == '/' && (c == '/' || c == '.')
		switch {
		case classes[c]&escaped != 0, strings.IndexByte(special, c) >= 0, pair:
			if may < 0 {
				may = i
			}
			return may, i
		case strings.IndexByte("!$%&'=?@[]~#", c) >= 0 && may < 0:
			may = i
		}
	}
	if may < 0 {
		may = i
	}
	return may, i
}

func checkWords(tb testing.TB, s []byte) {
	tb.Helper()
	if len(s) < wordSize {
		if got := skipText(s, 0); got != 0 {
			tb.Fatalf("skipText(%q) = %d", s, got)
		}
		return
	}
	for i := range s {
		end, dots, hyphens := scanName(s, i)
		if e, d, h := naiveName(s, i); end != e || dots != d || hyphens != h {
			tb.Fatalf("scanName(%q, %d) = %d %x %x, want %d %x %x", s, i, end, dots, hyphens, e, d, h)
		}
		for _, skip := range []struct {
			name    string
			f       func([]byte, int) int
			special string
			slash   bool
		}{
			{"skipPath", skipPath, "%?#", true},
			{"skipQuery", skipQuery, "%&=#", false},
			{"skipText", skipText, "%", false},
		} {
			if skip.slash && i == 0 {
				continue
			}
			got := skip.f(s, i)
			if may, must := naiveSkip(s, i, skip.special, skip.slash); got < may || got > must {
				tb.Fatalf("%s(%q, %d) = %d, want %d to %d", skip.name, s, i, got, may, must)
			}
		}
	}
}

// Every byte is met at every place of a word, beside bytes that are near it in value.
func TestWordsAreScannedAsBytesAre(t *testing.T) {
	for c := range 256 {
		for _, around := range []string{"a", "/", ".", "-", string([]byte{byte(c + 1)}), string([]byte{byte(c - 1)}), "\x7f", "\x80", "\xff", "\x00", "z"} {
			for at := range 20 {
				s := []byte(strings.Repeat(around, 20))
				s[at] = byte(c)
				checkWords(t, s)
			}
		}
	}
	for n := range 140 {
		checkWords(t, []byte(strings.Repeat("a-b.", 40)[:n]))
		checkWords(t, []byte(strings.Repeat("a", n)+"."))
	}
}

func FuzzWords(f *testing.F) {
	f.Add([]byte("https://www.example-site.co.uk/a//b/../c.html?a=1&b=%20#top"))
	f.Fuzz(func(t *testing.T, s []byte) {
		if len(s) < 1<<10 {
			checkWords(t, s)
		}
	})
}
