package catalog_test

import (
	"errors"
	"testing"

	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		kind       catalog.TargetKind
		text, want string // "" for an error
	}{
		{catalog.DomainTarget, "Example.COM", "example.com"},
		{catalog.DomainTarget, "bücher.example", "xn--bcher-kva.example"},
		{catalog.DomainTarget, "192.0.2.7", "192.0.2.7"},
		{catalog.DomainTarget, "www.example.com", ""},
		{catalog.DomainTarget, "co.uk", ""},
		{catalog.DomainTarget, "*.example.com", ""},
		{catalog.HostTarget, "*.example.com", ""},
		{catalog.DomainTarget, "github.io", ""},
		{catalog.DomainTarget, "example.com/", ""},
		{catalog.DomainTarget, "http://example.com", ""},
		{catalog.DomainTarget, "", ""},
		{catalog.DomainTarget, " example.com\n", "example.com"},
		{catalog.DomainTarget, "exam\nple.com", ""},
		{catalog.URLTarget, "https://example.com/a\nhttps://example.com/b", ""},
		{catalog.HostTarget, "WWW.example.com", "www.example.com"},
		{catalog.HostTarget, "github.io", "github.io"},
		{catalog.HostTarget, "[2001:DB8::1]", "[2001:db8::1]"},
		{catalog.HostTarget, "example.com:8080", ""},
		{catalog.URLTarget, "HTTPS://Example.com:443/a?b=2&a=1#f", "https://example.com/a?a=1&b=2"},
		{catalog.URLTarget, "example.com/a", "example.com/a"},
		{catalog.URLTarget, "mailto:a@example.com", ""},
		{catalog.PrefixTarget, "https://example.com/", "https://example.com/"},
		{catalog.PrefixTarget, "example.com/%7Eada/", "example.com/~ada/"},
		{catalog.PrefixTarget, "example.com:8080/a", "example.com:8080/a"},
		{catalog.PrefixTarget, "https://example.com", ""},
		{catalog.PrefixTarget, "example.com", ""},
		{catalog.PrefixTarget, "https://example.com/a?", ""},     // would hide /ab
		{catalog.PrefixTarget, "https://example.com/a?b=1&", ""}, // would hide ?b=10
		{catalog.PrefixTarget, "https://example.com/a#b", ""},
		{catalog.PrefixTarget, "https://example.com/a/.", ""},
	} {
		got, err := catalog.ParseTarget(urlnorm.BuiltinSuffixes(), c.kind, c.text)
		var bad *catalog.TargetError
		if c.want == "" && !errors.As(err, &bad) || c.want != "" && (err != nil || got.String() != c.want) {
			t.Errorf("%s %q: %q, %v; want %q", c.kind, c.text, got.String(), err, c.want)
		}
	}
}
