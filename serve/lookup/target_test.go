package lookup

import (
	"testing"

	"github.com/urlake/urlake/lake/urlnorm"
)

func TestParseTarget(t *testing.T) {
	for text, domain := range map[string]string{
		"Example.COM":                 "example.com",
		"https://www.example.com/a?b": "example.com",
		"www.example.com:8080":        "example.com",
		"bücher.example":              "xn--bcher-kva.example",
		"localhost":                   "localhost",
		"10.0.0.1":                    "10.0.0.1",
		"[2001:DB8::1]":               "[2001:db8::1]",
		// Names of domains as answers contain them.
		"intranet": "intranet",
		"com":      "com",
	} {
		got, err := ParseTarget(text)
		if have := urlnorm.BuiltinSuffixes().Domain(got.Host); err != nil || have != domain {
			t.Errorf("%q: %q, %v; want %q", text, have, err, domain)
		}
	}
	for _, text := range []string{"", " ", "/", "a b", "mailto:x@y.z", "exa mple", "?"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q: accepted as %q", text, got.Host)
		}
	}
}
