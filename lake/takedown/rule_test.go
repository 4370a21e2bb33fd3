package takedown_test

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/urlnorm"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		kind       takedown.Kind
		text, want string // "" for an error
	}{
		{takedown.Domain, "Example.COM", "example.com"},
		{takedown.Domain, "bücher.example", "xn--bcher-kva.example"},
		{takedown.Domain, "192.0.2.7", "192.0.2.7"},
		{takedown.Domain, "www.example.com", ""},
		{takedown.Domain, "co.uk", ""},
		{takedown.Domain, "*.example.com", ""},
		{takedown.Host, "*.example.com", ""},
		{takedown.Domain, "github.io", ""},
		{takedown.Domain, "example.com/", ""},
		{takedown.Domain, "http://example.com", ""},
		{takedown.Domain, "", ""},
		{takedown.Domain, " example.com\n", "example.com"},
		{takedown.Domain, "exam\nple.com", ""},
		{takedown.URL, "https://example.com/a\nhttps://example.com/b", ""},
		{takedown.Host, "WWW.example.com", "www.example.com"},
		{takedown.Host, "github.io", "github.io"},
		{takedown.Host, "[2001:DB8::1]", "[2001:db8::1]"},
		{takedown.Host, "example.com:8080", ""},
		{takedown.URL, "HTTPS://Example.com:443/a?b=2&a=1#f", "https://example.com/a?a=1&b=2"},
		{takedown.URL, "example.com/a", "example.com/a"},
		{takedown.URL, "mailto:a@example.com", ""},
		{takedown.Prefix, "https://example.com/", "https://example.com/"},
		{takedown.Prefix, "example.com/%7Eada/", "example.com/~ada/"},
		{takedown.Prefix, "example.com:8080/a", "example.com:8080/a"},
		{takedown.Prefix, "https://example.com", ""},
		{takedown.Prefix, "example.com", ""},
		{takedown.Prefix, "https://example.com/a?", ""},     // would hide /ab
		{takedown.Prefix, "https://example.com/a?b=1&", ""}, // would hide ?b=10
		{takedown.Prefix, "https://example.com/a#b", ""},
		{takedown.Prefix, "https://example.com/a/.", ""},
	} {
		got, err := takedown.ParseTarget(urlnorm.BuiltinSuffixes(), c.kind, c.text)
		var bad *takedown.TargetError
		if c.want == "" && !errors.As(err, &bad) || c.want != "" && (err != nil || got.String() != c.want) {
			t.Errorf("%s %q: %q, %v; want %q", c.kind, c.text, got.String(), err, c.want)
		}
	}
}
