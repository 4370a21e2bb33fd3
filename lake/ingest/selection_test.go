package ingest

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// FuzzPatterns compares patterns with a matcher that tries every way to match.
func FuzzPatterns(f *testing.F) {
	f.Add("a/**/b*", "a/x/y/bc/d")
	f.Add("**/a/**/b", "a/a/c/a/b")
	f.Add("*.csv", "x/y.csv")
	f.Add("_x/**", "_x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 60 || len(name) > 60 {
			return
		}
		names := strings.Split(name, "/")
		p, err := newNamePattern(pattern)
		if err != nil {
			return
		}
		got := p.match(names)
		var match func(p, n []string) bool
		match = func(p, n []string) bool {
			switch {
			case len(p) == 0:
				return true
			case p[0] == "**":
				return match(p[1:], n) || len(n) > 0 && match(p, n[1:])
			case len(n) == 0:
				return false
			}
			ok, _ := filepath.Match(p[0], n[0])
			return ok && match(p[1:], n[1:])
		}
		elements := strings.Split(strings.Trim(pattern, "/"), "/")
		want := match(elements, names)
		if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
			want = slices.ContainsFunc(names, func(n string) bool { return match(elements, []string{n}) })
		}
		if got != want {
			t.Errorf("%q on %q: %v, want %v", pattern, name, got, want)
		}
	})
}
