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
		before := byte(0)
		slash := uint64(0)
		if i > 0 {
			if before = s[i-1]; before == '/' {
				slash = 0x80
			}
		}
		path, next := pathStops(w, slash)
		query, text := queryStops(w), textStops(w)
		for k := range wordSize {
			c := byte(0)
			if i+k < len(s) {
				c = s[i+k]
			}
			// What comes after a byte from 0x80 on need not be right: no scan gets there.
			maybePair := before&0x7f == '/' && (c&0x7f == '/' || c&0x7f == '.')
			pair := before == '/' && maybePair && c < 0x80
			must := classes[c]&escaped != 0 || c == '%'
			may := must || strings.IndexByte("!$=?@[]~#", c) >= 0
			for _, f := range []struct {
				name      string
				stops     uint64
				must, may bool
			}{
				{"pathStops", path, must || pair || c == '?' || c == '#', may || maybePair},
				{"queryStops", query, must || c == '&' || c == '=' || c == '#', may || c == '&'},
				{"textStops", text, must, may && c != '='},
			} {
				if got := f.stops>>(8*k)&0xff == 0x80; got && !f.may || !got && f.must || f.stops&^tops != 0 {
					tb.Fatalf("%s(%q) = %016x", f.name, s[i:min(i+wordSize, len(s))], f.stops)
				}
			}
			before = c
		}
		if got := next == 0x80; got != (before&0x7f == '/') || next&^0x80 != 0 {
			tb.Fatalf("pathStops(%q): %x for the next word", s[i:min(i+wordSize, len(s))], next)
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
