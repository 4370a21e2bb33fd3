package lookup

import (
	"errors"
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

// TestSeveralTargets holds that a list of domains is told so by every query, with the first
// character that no host has and its place, and that nothing of it is dropped to make one name.
// Only the exact name of a domain of the lake is answered.
func TestSeveralTargets(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{
		{URL: "https://b.com/"}, {URL: "http://intranet/"}, {URL: "https://x,y.com/"},
	})
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
	bulk, err := snap.Bulk(t.Context(), BulkQuery{})
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]func(text string) error{
		"domain": func(text string) error {
			target, err := ParseTarget(text)
			if err == nil {
				_, err = snap.Domain(t.Context(), target, "")
			}
			return err
		},
		"urls": func(text string) error {
			target, err := ParseTarget(text)
			if err == nil {
				_, err = snap.URLs(t.Context(), URLsQuery{Target: target, Dataset: 1, Limit: 1})
			}
			return err
		},
		"holdings": func(text string) error {
			target, err := ParseTarget(text)
			if err == nil {
				_, err = snap.Holdings(t.Context(), target, nil)
			}
			return err
		},
		"bulk": func(text string) (err error) {
			return errors.Join(bulk.Lookup(t.Context(), [][]byte{[]byte(text)}, func(_ int, a *BulkAnswer) error {
				if a.Reject != nil {
					err = a.Reject
				}
				return nil
			}), err)
		},
	}
	for name, query := range queries {
		for text, detail := range map[string]string{
			"x,y":                           "character ','; ask for one domain at a time",
			"a.com,b.com":                   "character ','; ask for one domain at a time",
			"a.com,www.b.com":               "character ','; ask for one domain at a time", // of the domain b.com
			"www.x,y.com":                   "character ','; ask for one domain at a time",
			"a.com\nb.com":                  "character 6 is a line break; ask for one domain at a time",
			"a.com\r\nb.com":                "character 6 is a line break; ask for one domain at a time",
			"a.com\tb.com":                  "character 6 is a tab; ask for one domain at a time",
			" bücher.de b.com":              "character 11 is a space; ask for one domain at a time",
			"a.com\x00b.com":                `character 6 is '\x00'; ask for one domain at a time`,
			"a.com\x7fb.com":                `character 6 is '\x7f'; ask for one domain at a time`,
			"https://a.com/\nhttps://b.com": "character 15 is a line break; ask for one domain at a time",
			"x;y":                           "character ';'; ask for one domain at a time",
			"a.com%2Cb.com":                 "character ','",
			"nowhere":                       `"nowhere" has no dot`,
		} {
			var reject *urlnorm.RejectError
			if err := query(text); !errors.As(err, &reject) || reject.Detail != detail {
				t.Errorf("%s of %q: %v, want %s", name, text, err, detail)
			}
		}
		for _, text := range []string{
			"b.com", " b.com\r\n", "https://b.com/a b,c?d, e", "b.com/a b", "intranet", "uk", "nowhere.test", "my_host.nowhere.test",
		} {
			if err := query(text); err != nil {
				t.Errorf("%s of %q: %v", name, text, err)
			}
		}
	}
	if _, err := ParseURL("https://a.com/\nhttps://b.com/"); err == nil {
		t.Error("two URLs are taken for one")
	}
	if u, err := ParseURL("https://a.com/x, y\n"); err != nil || u.String() != "https://a.com/x,%20y" {
		t.Errorf("%s, %v", u.String(), err)
	}
}

// TestWildcardSuffixes asks for a public suffix that only a wildcard makes one.
func TestWildcardSuffixes(t *testing.T) {
	store := blob.NewMemory()
	testlake.Ingest(t, store, "alpha", "b1", []testlake.Record{{URL: "https://www.gov.np/"}})
	testlake.Publish(t, store)
	snap := acquire(t, serve(t, store, Options{}), "")
	np := target(t, "np")
	page, err := snap.Domain(t.Context(), np, "")
	if err != nil || page.Total != 0 || page.Domain != "np" || !snap.IsPublicSuffix(np) {
		t.Errorf("%+v, %v", page, err)
	}
	if n, err := snap.DomainsBelow(t.Context(), "np"); err != nil || n != 1 {
		t.Errorf("%d domains below, %v", n, err)
	}
}
