package frontier

import (
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/urlnorm"
)

// TestFound holds that a spelling that robots.txt may be about is kept, and that the metadata comes
// back as it was given.
func TestFound(t *testing.T) {
	n, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		kept bool
	}{
		{"https://a.example/b?c=1", false},
		{"https://a.example", false},
		{"HTTPS://A.example:443/b", false},
		{"https://a.example/b#c//d", false},
		{"a.example/b", false},
		{"https://a.example/x//y", true},
		{"a.example/x//y", true},
		{"https://a.example/p?b=1&a=2", true},
		{"https://a.example/x/../b", true},
		{`https://a.example\b`, true},
		{"https://a.example/%7Ejoe", true},
		{"https://a.example/p?b=\"1\"&a=\u00e4\\", true},
	} {
		for _, metadata := range []string{"", `{"from":"https://b.example/"}`, ` { "a" : {"b": 1} } `, `[1]`, `"text"`, "7", "null"} {
			u, err := n.ParseString(c.url)
			if err != nil {
				t.Fatal(err)
			}
			want, kept := "", c.kept && (metadata == "" || strings.Contains(metadata, "{"))
			if kept {
				want = c.url
			}
			got, rest := Found(withFound([]byte(metadata), c.url, &u))
			squeezed := strings.NewReplacer(" ", "").Replace
			if got != want || squeezed(string(rest)) != squeezed(metadata) {
				t.Errorf("%s, %s: %q, %s", c.url, metadata, got, rest)
			}
		}
	}
	for _, metadata := range []string{foundStart, foundStart + `"`, foundStart + `"x"`, foundStart + "1}"} {
		if found, rest := Found([]byte(metadata)); found != "" || string(rest) != metadata {
			t.Errorf("%s: %q, %s", metadata, found, rest)
		}
	}
}
