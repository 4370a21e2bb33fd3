package urlnorm

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the pinned files of testdata")

// canonical returns a result of Parse as strings, to compare it.
func canonical(u URL, err error) (string, Reason) {
	var rej *RejectError
	switch {
	case err == nil:
		return u.String(), ""
	case errors.As(err, &rej):
		return "", rej.Reason
	}
	return "", Reason("not a RejectError: " + err.Error())
}

func parseString(raw string) (string, Reason) { return canonical(Parse(BuiltinSuffixes(), raw)) }

// tableLine is one line of testdata/canonical.txt.
type tableLine struct {
	line   int
	input  string
	want   string
	reject Reason
	domain string // "" if the line does not tell
}

func readTable(tb testing.TB) []tableLine {
	tb.Helper()
	b, err := os.ReadFile("testdata/canonical.txt")
	if err != nil {
		tb.Fatal(err)
	}
	var table []tableLine
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		input, err := strconv.Unquote(f[0])
		if err != nil || len(f) < 2 || len(f) > 3 {
			tb.Fatalf("testdata/canonical.txt:%d: malformed: %s", i+1, line)
		}
		l := tableLine{line: i + 1, input: input, want: f[1]}
		if r, ok := strings.CutPrefix(f[1], "!"); ok {
			l.want, l.reject = "", Reason(r)
		}
		if len(f) == 3 {
			l.domain = f[2]
		}
		table = append(table, l)
	}
	if len(table) < 200 {
		tb.Fatalf("testdata/canonical.txt has %d lines", len(table))
	}
	return table
}

func TestEveryRuleOfTheForm(t *testing.T) {
	for _, l := range readTable(t) {
		u, err := Parse(BuiltinSuffixes(), l.input)
		got, reason := canonical(u, err)
		if got != l.want || reason != l.reject {
			t.Errorf("canonical.txt:%d: Parse(%q) = %q, %q; want %q, %q", l.line, l.input, got, reason, l.want, l.reject)
		}
		if l.domain != "" && u.Domain != l.domain {
			t.Errorf("canonical.txt:%d: domain of %q is %q, want %q", l.line, l.input, u.Domain, l.domain)
		}
		if ref, refReason := reference(l.input); ref != l.want || refReason != l.reject {
			t.Errorf("canonical.txt:%d: reference(%q) = %q, %q", l.line, l.input, ref, refReason)
		}
		checkInvariants(t, l.input)
	}
}

func TestLengthLimits(t *testing.T) {
	prefix := "http://example.com/"
	for _, tc := range []struct {
		name string
		raw  string
		want Reason
	}{
		{"canonical form at the limit", prefix + strings.Repeat("a", maxCanonical-len(prefix)), ""},
		{"canonical form one over", prefix + strings.Repeat("a", maxCanonical-len(prefix)+1), RejectTooLong},
		{"slash makes it one over", "http://example.com?" + strings.Repeat("a", maxCanonical-len(prefix)), RejectTooLong},
		{"escapes make it too long", prefix + strings.Repeat(" ", maxCanonical/3) + "a", RejectTooLong},
		{"escapes in fit", prefix + strings.Repeat("%41", maxCanonical/2), ""},
		{"input at the limit", prefix + "#" + strings.Repeat("a", maxInput-len(prefix)-1), ""},
		{"input one over, though only spaces", prefix + strings.Repeat(" ", maxInput-len(prefix)+1), RejectTooLong},
		{"input over the limit is not parsed", strings.Repeat("a", maxInput+1), RejectTooLong},
		{"padded label at the limit", "http://a" + strings.Repeat("\u00ad", 251) + ".com/", ""},
		{"padded label one over", "http://a" + strings.Repeat("\u00ad", 252) + ".com/", RejectHost},
		{"padded name at the limit", "http://" + strings.Repeat("a"+strings.Repeat("\u00ad", 250)+".", 4) + "com\u00ad/", ""},
		{"padded name one over", "http://" + strings.Repeat("a"+strings.Repeat("\u00ad", 250)+".", 4) + "com\u00ad\u00ad/", RejectHost},
		{"no_host comes before the canonical form's length", strings.Repeat("a", maxInput), RejectNoHost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, got := parseString(tc.raw); got != tc.want {
				t.Errorf("reason %q, want %q", got, tc.want)
			}
			checkInvariants(t, tc.raw)
		})
	}
}

// Punycode takes time quadratic in the number of different characters.
func TestHugeHostsAreRejectedFast(t *testing.T) {
	var host strings.Builder
	for r := rune(0x4E00); host.Len() < maxInput-100; r++ {
		host.WriteRune(r)
	}
	soft := "example" + strings.Repeat("\u00ad", 20000) + ".com"
	for _, raw := range []string{"http://" + host.String() + ".com/", "http://" + soft, "xn--" + host.String() + ".com"} {
		start := time.Now()
		if _, reason := parseString(raw); reason != RejectHost {
			t.Errorf("a host of %d bytes: reason %q, want %q", len(raw), reason, RejectHost)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("a host of %d bytes takes %v", len(raw), took)
		}
	}
}

// checkInvariants checks for raw what holds for every input.
func checkInvariants(tb testing.TB, raw string) {
	tb.Helper()
	n := normalizers.Get().(*Normalizer)
	defer normalizers.Put(n)
	u, err := n.Parse([]byte(raw))
	got, reason := canonical(u, err)
	if ref, refReason := reference(raw); got != ref || reason != refReason {
		tb.Fatalf("Parse(%q)\n got %q %q\nwant %q %q", raw, got, reason, ref, refReason)
	}
	if n.parsePlain([]byte(raw), new(URL)) {
		slow, rej := n.parse([]byte(raw))
		if rej != nil || slow.String() != got {
			tb.Fatalf("Parse(%q): %q by parsePlain, %q, %v by parse", raw, got, slow.String(), rej)
		}
	}
	if err != nil {
		var rej *RejectError
		if !errors.As(err, &rej) || rej.Detail == "" {
			tb.Fatalf("Parse(%q): error without detail: %#v", raw, err)
		}
		return
	}
	u, _ = n.Parse([]byte(raw))
	if got := u.String(); len(got) > maxCanonical {
		tb.Fatalf("Parse(%q): canonical form of %d bytes", raw, len(got))
	}
	if !strings.HasPrefix(u.PathQuery, "/") || u.Host == "" || u.Domain != BuiltinSuffixes().Domain(u.Host) || !strings.HasSuffix(u.Host, u.Domain) {
		tb.Fatalf("Parse(%q) = %+v", raw, u)
	}
	u = u.Clone()
	again, err := n.Parse([]byte(got))
	if err != nil || again != u {
		tb.Fatalf("Parse(%q) = %+v, parsed again %+v, %v", raw, u, again, err)
	}
	clean := WithoutUserInfo(nil, []byte(raw))
	if c, r := parseString(string(clean)); c != got || r != "" {
		tb.Fatalf("Parse(%q) = %q, without user info %q = %q %q", raw, got, clean, c, r)
	}
}

func TestWithoutUserInfo(t *testing.T) {
	for _, tc := range [][2]string{
		{"http://u:p@example.com/a@b", "http://example.com/a@b"},
		{" http://u:p@x@example.com", " http://example.com"},
		{"http:\\\\u@example.com\\a", "http:\\\\example.com\\a"},
		{"ht\ttp://u\n:p@\rexample.com/\ta#x@y", "ht\ttp://\rexample.com/\ta#x@y"},
		{"u@example.com", "@example.com"},
		{"m.ex@mple.app:", "@mple.app:"},
		{"//u@example.com", "//example.com"},
		{"http://example.com/", "http://example.com/"},
		{"http://example.com?u@x", "http://example.com?u@x"},
		{"HTTP://EXAMPLE.com/%7e\xff ", "HTTP://EXAMPLE.com/%7e\xff "},
		{"mailto:u@example.com", "mailto:u@example.com"},
		{"", ""},
	} {
		if got := string(WithoutUserInfo(nil, []byte(tc[0]))); got != tc[1] {
			t.Errorf("WithoutUserInfo(%q) = %q, want %q", tc[0], got, tc[1])
		}
	}
	if got := string(WithoutUserInfo([]byte("x"), []byte("http://u@h/"))); got != "xhttp://h/" {
		t.Errorf("WithoutUserInfo does not append: %q", got)
	}
}

func TestStripParams(t *testing.T) {
	n, err := New(BuiltinSuffixes(), Options{StripParams: []string{"utm_*", "gclid", "ü", "a b*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range [][2]string{
		{"http://example.com/?utm_source=x&b=1&gclid=2", "http://example.com/?b=1"},
		{"http://example.com/?utm_=x", "http://example.com/"},
		{"http://example.com/?gclid", "http://example.com/"},
		{"http://example.com/?gclid2=1&utm=1&GCLID=1", "http://example.com/?GCLID=1&gclid2=1&utm=1"},
		{"http://example.com/?%75tm_x=1&a=2", "http://example.com/?a=2"},
		{"http://example.com/?%C3%BC=1&a=2", "http://example.com/?a=2"},
		{"http://example.com/?ü=1", "http://example.com/"},
		{"http://example.com/?a%20bc=1&a=1", "http://example.com/?a=1"},
		{"http://example.com/?a=utm_x", "http://example.com/?a=utm_x"},
		{"http://example.com/utm_x?a", "http://example.com/utm_x?a"},
	} {
		if got, reason := canonical(n.Parse([]byte(tc[0]))); got != tc[1] {
			t.Errorf("Parse(%q) = %q %q, want %q", tc[0], got, reason, tc[1])
		}
	}
	for _, bad := range []string{"", "*", "a=b", "a&b", "u*m", "**", "a#", "a?b"} {
		if _, err := New(BuiltinSuffixes(), Options{StripParams: []string{"ok", bad}}); err == nil {
			t.Errorf("New took %q as a parameter to strip", bad)
		}
	}
}

func TestDetailNeverHoldsMoreThanHostOrPort(t *testing.T) {
	secret := "s3cr3t"
	for _, raw := range []string{
		"http://u:s3cr3t@exa mple.com/s3cr3t?s3cr3t",
		"http://u:s3cr3t@example.com:99999/s3cr3t",
		"http://u:s3cr3t@/s3cr3t",
		"http://u:s3cr3t@[::x]/s3cr3t",
		"http://u:s3cr3t@[::1]x/s3cr3t",
		"s3cr3t:s3cr3t@example.com/",
		"/s3cr3t", "?s3cr3t", "http://a..b/s3cr3t", "http://1.2.3.4.5/s3cr3t",
		"http://xn--a/s3cr3t", "word/s3cr3t",
		"http://example.com/" + strings.Repeat(secret, 4000),
	} {
		_, err := Parse(BuiltinSuffixes(), raw)
		var rej *RejectError
		if !errors.As(err, &rej) {
			t.Fatalf("Parse(%q): %v", raw, err)
		}
		if strings.Contains(rej.Error(), secret) {
			t.Errorf("Parse(%q): %v", raw, err)
		}
	}
	_, err := Parse(BuiltinSuffixes(), "http://"+strings.Repeat("é", 30000)+"/")
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("error about a huge host has %d bytes", len(fmt.Sprint(err)))
	}
}

func TestURLString(t *testing.T) {
	u := URL{Scheme: "https", Host: "[::1]", Port: 8443, PathQuery: "/a?b", Domain: "[::1]"}
	if got, want := u.String(), "https://[::1]:8443/a?b"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := string(u.AppendTo([]byte("x"))), "xhttps://[::1]:8443/a?b"; got != want {
		t.Errorf("AppendTo = %q, want %q", got, want)
	}
	u.Port = 0
	if got, want := u.String(), "https://[::1]:0/a?b"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func TestParseDoesNotChangeItsInput(t *testing.T) {
	n, err := New(BuiltinSuffixes(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"http://example.com/a?b", "HTTP://EXAMPLE.com/a?b", "http://example.com", "http://example.com/%7e//?b&a#c\n"} {
		raw := []byte(s)
		u, err := n.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != s {
			t.Errorf("Parse changed %q to %q", s, raw)
		}
		want := u.String()
		u = u.Clone()
		for i := range raw {
			raw[i] = 'x'
		}
		if _, err := n.Parse([]byte("http://another.example/%7ea/b/c?c&b&a")); err != nil {
			t.Fatal(err)
		}
		if got := u.String(); got != want {
			t.Errorf("the clone of %q became %q", want, got)
		}
	}
}

func TestCanonicalInputAllocatesNothing(t *testing.T) {
	n, err := New(BuiltinSuffixes(), Options{StripParams: []string{"utm_*", "gclid"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		"http://example.com",
		"https://www.example.co.uk:8443/a/b.html?a=1&b=%20#top\r\n",
		"http://192.0.2.1/",
		"http://example.com/b/../c?z=1&a=2&utm_source=x",
	} {
		raw := []byte(s)
		if got := testing.AllocsPerRun(100, func() {
			if _, err := n.Parse(raw); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("Parse(%q) makes %v allocations", s, got)
		}
	}
}

// A Normalizer recognizes the start of the last input. Whatever that was, each input has its own
// URL.
func TestInputsAreIndependent(t *testing.T) {
	inputs := []string{
		"http://example.com/a", "https://example.com/a", "http://example.com", "http://example.com:81/a", "http://example.com?a",
		"http://example.com.au/a", "http://example.co/a", "http://www.example.com/a", "http://example.com#/", "http://example.com/#",
		"http://example.com/ ", "http://example.com\\a", "http://Example.com/a", "http://example.com/a//b?z&a", "http://example.com/%",
		"example.com/a", "example.com", "example.com/", "example.com:80/a", "example.com/../a", "a.example.co.uk/a", "co.uk/a",
		"https://user@example.com/a", "http://1.2.3.4/a", "1.2.3.4/a", "http://a_b.example.com/a", "http://localhost/a", "localhost/a",
		"http:///example.com/a", "http://example.com/" + strings.Repeat("a", maxCanonical), "word/a", "", "/", "http://x/a", "http://x",
		"t.co/abcd", "t.co/a", "t.co/", "t.co", "t.co/?", "t.co/#",
	}
	n, err := New(BuiltinSuffixes(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range inputs {
		for _, input := range inputs {
			n.Parse([]byte(before))
			got, err := n.Parse([]byte(input))
			want, wantErr := Parse(BuiltinSuffixes(), input)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%q after %q is %+v, %v, want %+v, %v", input, before, got, err, want, wantErr)
			}
		}
	}
}

// lines splits text at newlines, which the last line may lack.
func lines(b []byte) []string {
	var out []string
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		out = append(out, sc.Text())
	}
	return out
}
