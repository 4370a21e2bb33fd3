package detect

import (
	"strings"
	"testing"
)

func TestNameClasses(t *testing.T) {
	best := []string{"URL", "uri", "Link", "Post URL", "source_link", "website", "Domain name", "hosting cost"}
	for i := 1; i < len(best); i++ {
		a, b := nameClass(best[i-1]), nameClass(best[i])
		if a == 0 || b != 0 && a >= b {
			t.Errorf("%q has class %d and %q %d, want the first better", best[i-1], a, best[i], b)
		}
	}
	for _, name := range []string{"", "title", "curl", "count", "original language", strings.Repeat("url ", 30)} {
		if c := nameClass(name); c != 0 {
			t.Errorf("%q has class %d, want none", name, c)
		}
	}
	for _, name := range []string{"sourceUrl", "target_urls", "og:url", "Page URLs", "URLPath-url"} {
		if c := nameClass(name); c != classURLWord {
			t.Errorf("%q has class %d, want %d", name, c, classURLWord)
		}
	}
}
