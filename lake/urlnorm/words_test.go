package urlnorm

import (
	"strings"
	"testing"
)

// naiveName is scanName byte by byte.
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

func checkWords(tb testing.TB, s []byte) {
	tb.Helper()
	if len(s) < wordSize {
		return
	}
	for i := range s {
		end, dots, hyphens := scanName(s, i)
		if e, d, h := naiveName(s, i); end != e || dots != d || hyphens != h {
			tb.Fatalf("scanName(%q, %d) = %d %x %x, want %d %x %x", s, i, end, dots, hyphens, e, d, h)
		}
		w := wordAt(s, i)
		query, text := queryStops(w), textStops(w)
		for k := range wordSize {
			c := byte(0)
			if i+k < len(s) {
				c = s[i+k]
			}
			must := classes[c]&escaped != 0 || c == '%'
			may := must || strings.IndexByte("!$=?@[]~#", c) >= 0
			for _, f := range []struct {
				name      string
				stops     uint64
				must, may bool
			}{
				{"queryStops", query, must || c == '&' || c == '=' || c == '#', may || c == '&'},
				{"textStops", text, must, may && c != '='},
			} {
				if got := f.stops>>(8*k)&0xff == 0x80; got && !f.may || !got && f.must || f.stops&^tops != 0 {
					tb.Fatalf("%s(%q) = %016x", f.name, s[i:min(i+wordSize, len(s))], f.stops)
				}
			}
		}
		checkPathScan(tb, s, i)
	}
}

// checkPathScan holds that scanPath passes nothing that matters and stops seldom.
func checkPathScan(tb testing.TB, s []byte, start int) {
	if start == 0 {
		return
	}
	got := scanPath(s, start)
	if got < start || got > len(s) {
		tb.Fatalf("scanPath(%q, %d) = %d", s, start, got)
	}
	for i := start; i <= got && i < len(s); i++ {
		c := s[i]
		pair := c == '/' || c == '.'
		must := classes[c]&escaped != 0 || c == '%' || c == '?' || c == '#' || s[i-1] == '/' && pair
		if must && i < got {
			tb.Fatalf("scanPath(%q, %d) = %d, %q at %d may have to be changed", s, start, got, c, i)
		}
		may := must || strings.IndexByte("!$=@[]~", c) >= 0 || s[i-1] == '.' && pair
		if i == got && i > start && !may {
			tb.Fatalf("scanPath(%q, %d) = %d, a %q", s, start, got, c)
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
