package urlnorm

import (
	"hash/fnv"
	"net/url"
	"strings"
	"testing"
)

// The values for "", "a" and "abc" are those that xxHash's own documentation and other
// implementations give; the others pin what lakes already hold.
func TestIDsArePinned(t *testing.T) {
	for _, tc := range []struct {
		text  string
		id    string
		check uint32
	}{
		{"", "2d06800538d394c2", 0x99aa06d3},
		{"a", "e6c632b61e964e1f", 0xa96faf70},
		{"abc", "78af5f94892f3950", 0x06b05ab6},
		{"example.com", "8b66107e8045bb73", 0xc481d730},
		{"example.co.uk", "efc1755c313df86b", 0xf3d9894a},
		{"localhost", "1613c5534ea9f563", 0x06db4335},
		{"[2001:db8::1]", "7f2fbff6ac15cb1e", 0xa5af0573},
		{"xn--bcher-kva.example", "67519d0e20d524a6", 0x22f2b4fc},
		{"http://example.com/", "b97a010e03af1e2b", 0x42663426},
		{"https://www.example.com/2024/05/article.html?id=1234&page=2", "e4560457c6b5afa0", 0x5cfbf8e0},
	} {
		if got := FormatID(DomainID(tc.text)); got != tc.id {
			t.Errorf("DomainID(%q) = %s, want %s", tc.text, got, tc.id)
		}
		if got := FormatID(URLID([]byte(tc.text))); got != tc.id {
			t.Errorf("URLID(%q) = %s, want %s", tc.text, got, tc.id)
		}
		if got := CheckBits(tc.text); got != tc.check {
			t.Errorf("CheckBits(%q) = %#08x, want %#08x", tc.text, got, tc.check)
		}
	}
}

func TestFormatID(t *testing.T) {
	for id, want := range map[uint64]string{
		0: "0000000000000000", 1: "0000000000000001", 0xfedcba9876543210: "fedcba9876543210", 1<<64 - 1: "ffffffffffffffff",
	} {
		if got := FormatID(id); got != want {
			t.Errorf("FormatID(%d) = %q, want %q", id, got, want)
		}
	}
}

// wantKey is Key written by its specification, with the standard library.
func wantKey(t *testing.T, s string) uint64 {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	var sum byte
	for _, c := range []byte(u.Hostname()) {
		sum += c
	}
	return uint64(sum%128)<<56 | h.Sum64()%(1<<56) ^ h.Sum64()>>56
}

func TestKeyFollowsItsSpecification(t *testing.T) {
	for _, s := range []string{
		"", "example.com", "/path", "mailto:a@example.com",
		"http://example.com", "http://example.com/", "http://example.com:8080/a?b#c", "https://example.com?a", "http://example.com#a",
		"http://user:pw@example.com/a@b:c", "http://[2001:db8::1]:8080/a", "http://[::1]", "HTTP://EXAMPLE.COM/",
		"http://" + strings.Repeat("z", 60) + "." + strings.Repeat("z", 60) + "/",
	} {
		got := Key(s)
		if want := wantKey(t, s); got != want {
			t.Errorf("Key(%q) = %#x, want %#x", s, got, want)
		}
		if got>>63 != 0 {
			t.Errorf("Key(%q) = %#x has bit 63", s, got)
		}
	}
	// Every byte of the host counts, whatever it is.
	if Key("http://\xff/foo/bar")>>56 != 0x7f {
		t.Errorf("Key of a host of one byte 0xff is %#x", Key("http://\xff/foo/bar"))
	}
	for _, l := range readTable(t) {
		if l.reject == "" && !strings.ContainsAny(l.want, "\"`{}$&'()*+,;=!~") {
			if got, want := Key(l.want), wantKey(t, l.want); got != want {
				t.Errorf("Key(%q) = %#x, want %#x", l.want, got, want)
			}
		}
	}
}

func TestKeysOfOneHostShareTheirTopBits(t *testing.T) {
	a, b := Key("http://example.com/a"), Key("https://example.com:8443/b?c")
	if a == b || a>>56 != b>>56 {
		t.Errorf("keys %#x and %#x", a, b)
	}
}
