package lookup

import (
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
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

// TestSeveralTargets holds that a list of domains is told so, whether or not its names have dots.
func TestSeveralTargets(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://example.com/"}, {URL: "http://intranet/"}})
	testlake.Publish(t, store)
	server := NewServer(store, Options{CacheDir: t.TempDir()})
	defer server.Close()
	if err := server.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := server.Acquire(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	for text, several := range map[string]bool{"x,y": true, "a.com,b.com": true, "x;y": true, "nowhere": false, "intra net": true} {
		target, err := ParseTarget(text)
		if err == nil {
			_, err = snap.Domain(t.Context(), target, "")
		}
		var reject *urlnorm.RejectError
		if !errors.As(err, &reject) || strings.Contains(reject.Detail, oneAtATime) != several {
			t.Errorf("%q: %v", text, err)
		}
	}
}
