package lookup

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sampleCursors() []*cursor {
	const version = "20261120T101112.123Z-0f3c9a71"
	return []*cursor{
		{kind: cursorURLs, fingerprint: fingerprint(cursorURLs, "example.com", 17), version: version,
			at: position{segment: 3, file: 70000, rowGroup: 2, row: 1 << 40}},
		{kind: cursorDatasets, fingerprint: fingerprint(cursorDatasets, "example.com", 0), version: version,
			at: position{dataset: 1<<32 - 1}},
		{kind: cursorAllDatasets, fingerprint: fingerprint(cursorAllDatasets, "", 0), version: version,
			at: position{dataset: 1000}},
		{kind: cursorDomains, fingerprint: fingerprint(cursorDomains, "prefix", 0), version: version,
			at: position{name: strings.Repeat("a", 255) + "\x00"}},
		{kind: cursorVersions, fingerprint: fingerprint(cursorVersions, "", 0), version: version},
	}
}

func TestCursorRoundTrips(t *testing.T) {
	for _, c := range sampleCursors() {
		got, err := parseCursor(c.String(), c.kind)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, got, cmp.AllowUnexported(cursor{}, position{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestAlteredCursorIsRejected(t *testing.T) {
	for _, c := range sampleCursors() {
		text := []byte(c.String())
		for i := range text {
			for _, b := range []byte("A9_-=%") {
				if text[i] == b {
					continue
				}
				altered := append([]byte(nil), text...)
				altered[i] = b
				if _, err := parseCursor(string(altered), c.kind); !errors.Is(err, ErrBadCursor) {
					t.Fatalf("%s: got %v", altered, err)
				}
			}
			if _, err := parseCursor(string(text[:i]), c.kind); !errors.Is(err, ErrBadCursor) {
				t.Fatalf("truncated to %d characters: got %v", i, err)
			}
		}
		for _, other := range cursorKinds {
			_, err := parseCursor(string(text), other)
			if (err == nil) != (other == c.kind) || err != nil && !errors.Is(err, ErrBadCursor) {
				t.Fatalf("a cursor of kind %c read as %c: %v", c.kind, other, err)
			}
		}
	}
}

func TestCursorOfAnotherQueryIsRejected(t *testing.T) {
	c := sampleCursors()[0]
	if err := c.check("example.com", 17); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.check("example.org", 17), c.check("example.com", 18)} {
		if !errors.Is(err, ErrBadCursor) {
			t.Fatalf("got %v", err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	for _, c := range sampleCursors() {
		f.Add(c.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range cursorKinds {
			c, err := parseCursor(text, kind)
			if err != nil {
				if !errors.Is(err, ErrBadCursor) {
					t.Fatalf("got %v", err)
				}
				continue
			}
			if c.String() != text {
				t.Fatalf("%q decodes to %+v, which prints as %q", text, c, c.String())
			}
		}
	})
}
