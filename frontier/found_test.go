package frontier

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

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
		kept string
	}{
		{"https://a.example/b?c=1", ""},
		{"https://a.example", ""},
		{"HTTPS://A.example:443/b", ""},
		{"https://a.example/b#c//d", ""},
		{"a.example/b", ""},
		{"https://a.example/x//y", "https://a.example/x//y"},
		{"a.example/x//y", "http://a.example/x//y"},
		{"//a.example/x//y", "http://a.example/x//y"},
		{"HTTP://user@A.example:80/x//y#f", "http://a.example/x//y"},
		{"http://a.example:8080?b=1&a=2", "http://a.example:8080/?b=1&a=2"},
		{"https://a.example/x//\xff", ""},
		{"https://a.example/p?b=1&a=2", "https://a.example/p?b=1&a=2"},
		{"https://a.example/x/../b", "https://a.example/x/../b"},
		{`https://a.example\b`, `https://a.example/\b`},
		{"https://a.example/%7Ejoe", "https://a.example/%7Ejoe"},
		{"https://a.example/p?b=\"1\"&a=\u00e4\\", "https://a.example/p?b=\"1\"&a=\u00e4\\"},
	} {
		for _, metadata := range []string{"", `{"from":"https://b.example/"}`, ` { "a" : {"b": 1} } `, `[1]`, `"text"`, "7", "null", "{}", "{ }", "{\n}\n"} {
			u, err := n.ParseString(c.url)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if metadata == "" || strings.Contains(metadata, "{") {
				want = c.kept
			}
			if again, err := n.ParseString(want); want != "" && (err != nil || again.String() != u.String()) {
				t.Errorf("%s and %s differ: %v", c.url, want, err)
			}
			with := withFound([]byte(metadata), c.url, &u)
			got, rest := Found(with)
			squeezed := strings.NewReplacer(" ", "", "\n", "").Replace
			if want, rest := strings.TrimSuffix(squeezed(metadata), "{}"), strings.TrimSuffix(squeezed(string(rest)), "{}"); rest != want {
				t.Errorf("%s, %s: %s is left", c.url, metadata, rest)
			}
			if got != want || len(with) > 0 && !jsontext.Value(with).IsValid() {
				t.Errorf("%s, %s: %q, %s", c.url, metadata, got, with)
			}
		}
	}
	for _, metadata := range []string{foundStart, foundStart + `"`, foundStart + `"x"`, foundStart + "1}"} {
		if found, rest := Found([]byte(metadata)); found != "" || string(rest) != metadata {
			t.Errorf("%s: %q, %s", metadata, found, rest)
		}
	}
}
