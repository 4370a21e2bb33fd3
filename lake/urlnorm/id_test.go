package urlnorm

import "testing"

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
