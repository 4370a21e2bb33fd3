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
		e, d, h := naiveName(s, i)
		if end, dots, hyphens := scanName(s, i); end != e || dots != d || hyphens != h {
			tb.Fatalf("scanName(%q, %d) = %d %x %x, want %d %x %x", s, i, end, dots, hyphens, e, d, h)
		}
		text := textStops(wordAt(s, i))
		for k := range wordSize {
			c := byte(0)
			if i+k < len(s) {
				c = s[i+k]
			}
			must := classes[c]&escaped != 0 || c == '%'
			may := must || strings.IndexByte("!$?@[]~#", c) >= 0
			if got := text>>(8*k)&0xff == 0x80; got && !may || !got && must || text&^tops != 0 {
				tb.Fatalf("textStops(%q) = %016x", s[i:min(i+wordSize, len(s))], text)
			}
		}
		checkQueryScan(tb, s, i)
		checkPathScan(tb, s, i)
	}
}

func checkQueryScan(tb testing.TB, s []byte, from int) {
	tb.Helper()
	var ends, equals, must, may uint64
	for i, c := range s[from:min(len(s), from+64)] {
		switch {
		case c == '&':
			ends |= 1 << i
		case c == '=':
			equals |= 1 << i
		case classes[c]&escaped != 0 || c == '%' || c == '#':
			must |= 1 << i
		case strings.IndexByte("!$?@[]~", c) >= 0:
			may |= 1 << i
		}
	}
	if n := len(s) - from; n < 64 {
		ends |= 1 << n
	}
	if e, q, o := scanQuery(s, from); e != ends || q != equals || o&must != must || o&^(must|may) != 0 {
		tb.Fatalf("scanQuery(%q, %d) = %x %x %x, want %x %x %x", s, from, e, q, o, ends, equals, must)
	}
}

// checkPathScan checks that scanPath stops at every byte that may need a change, and seldom
// elsewhere.
func checkPathScan(tb testing.TB, s []byte, start int) {
	if start == 0 {
		return
	}
	want := start
	for ; want < len(s); want++ {
		c := s[want]
		if classes[c]&escaped != 0 || c == '%' || c == '?' || c == '#' || s[want-1] == '/' && (c == '/' || c == '.') {
			break
		}
	}
	got := scanPath(s, start)
	if got < start || got > want {
		tb.Fatalf("scanPath(%q, %d) = %d, want %d", s, start, got, want)
	}
	if got < want && got > start && strings.IndexByte("!$=@[]~", s[got]) < 0 && (s[got-1] != '.' || s[got] != '.' && s[got] != '/') {
		tb.Fatalf("scanPath(%q, %d) = %d, a %q", s, start, got, s[got])
	}
}

// Every byte is at every offset of a word, beside bytes of a similar value.
func TestWordScansEqualByteScans(t *testing.T) {
	for c := range 256 {
		for _, around := range []string{"a", "/", ".", "-", string([]byte{byte(c + 1)}), string([]byte{byte(c - 1)}), "\x7f", "\x80", "\xff", "\x00", "z"} {
			for at := range 20 {
				s := []byte(strings.Repeat(around, 20))
				s[at] = byte(c)
				checkWords(t, s)
			}
			// Longer texts take several steps of 32 bytes, the last of which may overlap the one
			// before.
			for _, size := range []int{33, 50, 70, 97} {
				s := []byte(strings.Repeat(around, 97)[:size])
				for at := range size {
					was := s[at]
					s[at] = byte(c)
					checkPathScan(t, s, 1)
					checkPathScan(t, s, 9)
					checkPathScan(t, s, max(1, at))
					checkPathScan(t, s, at+1)
					s[at] = was
				}
			}
		}
	}
	for n := range 140 {
		checkQueryScan(t, []byte(strings.Repeat("a=b&", 40)[:n+8]), n+8)
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
