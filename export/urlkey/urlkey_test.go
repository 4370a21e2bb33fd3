package urlkey_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/urlake/urlake/export/urlkey"
)

// reference is the scheme written with the standard library, as its publisher does.
func reference(s, hostname string) uint64 {
	var sum uint8
	for _, b := range []byte(hostname) {
		sum += b
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	hash := h.Sum64()
	return uint64(sum)<<56&(127<<56) | hash>>56 ^ hash&0xffffffffffffff
}

func TestKeyIsTheGoldenOne(t *testing.T) {
	for u, want := range map[string]uint64{
		"https://example.com/":      6452323252155173144,
		"http://www.bbc.co.uk/news": 5210240299213479234,
		"http://localhost:8080/x":   5295972549808063885,
	} {
		if got := urlkey.Key(u); got != want {
			t.Errorf("Key(%q) = %d, want %d", u, got, want)
		}
	}
	// The sum of a host of one byte 0xff is all ones.
	if got := urlkey.Key("http://\xff/foo/bar") >> 56; got != 0x7f {
		t.Errorf("sum of the host 0xff: %#x, want 0x7f", got)
	}
}

var odd = []string{
	"", "example.com", "/path", "//example.com/a", "://example.com/", "mailto:a@example.com", "a://", "1http://example.com/",
	"http:/example.com/", "mailto:x?y=http://example.com/", "x/http://example.com/",
	"http://example.com", "http://example.com/", "http://example.com:8080/a?b#c", "https://example.com?a", "http://example.com#a",
	"http://user:pw@example.com/a@b:c", "http://a@b@example.com/", "http://[2001:db8::1]:8080/a", "http://[::1]", "HTTP://EXAMPLE.COM/",
	"http://" + strings.Repeat("z", 60) + "." + strings.Repeat("z", 60) + "/", "s3+x-y.z://bucket/key", "http://example.com:/",
}

// checkKey compares with net/url, where that reads the text as a URL.
func checkKey(t *testing.T, s string) {
	t.Helper()
	got := urlkey.Key(s)
	if got>>63 != 0 {
		t.Fatalf("Key(%q) = %#x has bit 63", s, got)
	}
	u, err := url.Parse(s)
	if err != nil || strings.Contains(u.Host, "%") || strings.Contains(s, "%") {
		return // net/url decodes escapes in hosts
	}
	if host := urlkey.HostName(s); host != u.Hostname() {
		t.Fatalf("HostName(%q) = %q, want %q", s, host, u.Hostname())
	}
	if want := reference(s, u.Hostname()); got != want {
		t.Fatalf("Key(%q) = %#x, want %#x", s, got, want)
	}
}

func TestKeyFollowsTheScheme(t *testing.T) {
	for _, s := range odd {
		checkKey(t, s)
	}
}

func FuzzKey(f *testing.F) {
	for _, s := range odd {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkKey(t, s) })
}

// published is CleanURL as its publisher has it.
func published(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", err
	}
	v := u.Query()
	for _, p := range []string{"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_brand"} {
		v.Del(p)
	}
	u.RawQuery, u.Fragment = v.Encode(), ""
	return u.String(), nil
}

func checkClean(t *testing.T, s string) {
	t.Helper()
	got, err := urlkey.CleanURL(s)
	want, wantErr := published(s)
	if (err == nil) != (wantErr == nil) || got != want {
		t.Fatalf("CleanURL(%q) = %q, %v; want %q, %v", s, got, err, want, wantErr)
	}
	if err != nil {
		return
	}
	if again, err := urlkey.CleanURL(got); err != nil || again != got {
		// net/url itself does not read everything that it writes.
		if want, wantErr := published(got); (err == nil) != (wantErr == nil) || again != want {
			t.Fatalf("CleanURL(%q) = %q, %v", got, again, err)
		}
	}
}

func TestCleanURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://example.com":                                            "https://example.com",
		"https://example.com?utm_source=foo":                             "https://example.com",
		"https://example.com?utm_brand=foo":                              "https://example.com",
		"https://example.com/?utm_source=a&utm_medium=b&utm_campaign=c":  "https://example.com/",
		"https://example.com/?utm_term=a&utm_content=b&foo=bar&baz=quux": "https://example.com/?baz=quux&foo=bar",
		"https://example.com/?foo=bar#fragment":                          "https://example.com/?foo=bar",
		"https://example.com/?utm_id=7&utm_social=x":                     "https://example.com/?utm_id=7&utm_social=x",
		"https://example.com/?b=1&a=%20x&a=y&c":                          "https://example.com/?a=+x&a=y&b=1&c=",
		"https://example.com/?a=1;b=2&c=3&d=%zz":                         "https://example.com/?c=3",
		"https://example.com/a#b":                                        "https://example.com/a",
	} {
		if got, err := urlkey.CleanURL(in); err != nil || got != want {
			t.Errorf("CleanURL(%q) = %q, %v; want %q", in, got, err, want)
		}
		checkClean(t, in)
	}
	for _, s := range odd {
		checkClean(t, s)
	}
	if _, err := urlkey.CleanURL("http://example.com:port/"); err == nil {
		t.Error("a port of letters is no error")
	}
}

func FuzzCleanURL(f *testing.F) {
	for _, s := range odd {
		f.Add(s)
	}
	f.Add("https://example.com/a?utm_source=x&b=c d#e")
	f.Fuzz(func(t *testing.T, s string) { checkClean(t, s) })
}

// The figures of the documents, and a count of real collisions of shortened hashes.
func TestExpectedPairs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/formats/urlkey.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		urls  float64
		row   string
		pairs float64
	}{{1e6, "| 10⁶ | 0.000007 |", 7e-6}, {1e8, "| 10⁸ | 0.07 |", 0.07}, {1e10, "| 10¹⁰ | 694 |", 694}} {
		if got := urlkey.ExpectedPairs(tc.urls); math.Abs(got/tc.pairs-1) > 0.02 {
			t.Errorf("ExpectedPairs(%g) = %g, want about %g", tc.urls, got, tc.pairs)
		}
		if !strings.Contains(string(doc), tc.row) {
			t.Errorf("docs/formats/urlkey.md has no row %q", tc.row)
		}
	}
	// 24 of the 56 bits: 2^17 URLs of one host have 512 equal pairs, ±4 standard deviations.
	const bits, n = 24, 1 << 17
	want := urlkey.ExpectedPairs(n) * math.Exp2(urlkey.HashBits-bits)
	seen, pairs := map[uint64]float64{}, 0.0
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		k := urlkey.Key(fmt.Sprintf("https://example.com/%d/%x", i, r.Uint64())) & (1<<bits - 1)
		pairs += seen[k]
		seen[k]++
	}
	if math.Abs(pairs-want) > 4*math.Sqrt(want) {
		t.Errorf("%g equal pairs of %d bits among %d URLs, want about %g", pairs, bits, n, want)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, u := range []string{"https://example.com/a/b.html", "http://user@[::1]:80/?x#y"} {
		if n := testing.AllocsPerRun(100, func() { _ = urlkey.Key(u) }); n != 0 {
			t.Errorf("Key(%q): %v allocations", u, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = urlkey.CleanURL("https://example.com/a/b.html") }); n != 0 {
		t.Errorf("CleanURL of a clean URL: %v allocations", n)
	}
}

func BenchmarkKey(b *testing.B) {
	const u = "https://www.example.com/2024/05/article.html?id=1234&page=2"
	b.SetBytes(int64(len(u)))
	for b.Loop() {
		urlkey.Key(u)
	}
}

func BenchmarkCleanURL(b *testing.B) {
	for _, u := range []string{"https://www.example.com/2024/05/article.html", "https://www.example.com/a?utm_source=x&b=c"} {
		b.Run(fmt.Sprintf("%d", len(u)), func(b *testing.B) {
			for b.Loop() {
				if _, err := urlkey.CleanURL(u); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
