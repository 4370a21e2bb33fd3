package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestEscape(t *testing.T) {
	for s, want := range map[string]string{
		"": "",
		"plain text, Ünïcode 日本語 👩‍💻":   "plain text, Ünïcode 日本語 👩‍💻",
		`C:\new "quoted" 'text'`:        `C:\new "quoted" 'text'`,
		"\x1b[31mred\x07":               `\x1b[31mred\a`,
		"two\nlines\r\tand a tab\v\f\b": `two\nlines\r\tand a tab\v\f\b`,
		"nul\x00 del\x7f":               `nul\x00 del\x7f`,
		"\u009b31m\u0085":               `\u009b31m\u0085`, // C1: the 8-bit CSI and NEL
		"\x9b31m":                       `\x9b31m`,         // the same in Latin-1
		"cut \xe2\x82":                  `cut \xe2\x82`,
		"a\u202egnp.exe":                `a\u202egnp.exe`,
		"\u2066i\u2069\u200f\u061c":     `\u2066i\u2069\u200f\u061c`,
		"line\u2028paragraph\u2029":     `line\u2028paragraph\u2029`,
		"replaced \ufffd":               "replaced \ufffd",
	} {
		if got := Escape(s); got != want {
			t.Errorf("Escape(%q) = %s, want %s", s, got, want)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := Escape(s)
		if !utf8.ValidString(got) {
			t.Errorf("Escape(%q) = %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("Escape(%q) = %q keeps %q", s, got, r)
			}
		}
		if again := Escape(got); again != got {
			t.Errorf("Escape(%q) = %q, escaped again %q", s, got, again)
		}
	})
}

type reason string

func TestFprintfEscapesArgumentsOnly(t *testing.T) {
	var out bytes.Buffer
	Fprintf(&out, "%s\t%v, %s %s\n%s %v %d of %5.1f%s\n", "a\nb", errors.New("\x1b[2J"), reason("\u202e"), []byte("\x7f"),
		2*time.Second, []string{"\x9b"}, 3, 4.5, "%d")
	if want := "a\\nb\t\\x1b[2J, \\u202e \\x7f\n2s [\\x9b] 3 of   4.5%d\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

func TestRunEscapesErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("open a\x1b[31m\nprogram: done"), "program: open a\\x1b[31m\\nprogram: done\n"},
		{fmt.Errorf("read: %w", errors.Join(errors.New("a\n"), errors.New("b"))), "program: read: a\\n\\nb\n"},
		{errors.Join(errors.New("a\n"), errors.New("b\x00")), "program: a\\n\nb\\x00\n"},
		{Usagef("which\u202e?"), "program: which\\u202e?\nSee 'program --help'.\n"},
	} {
		var out bytes.Buffer
		cmd := &cobra.Command{Use: "program", RunE: func(*cobra.Command, []string) error { return c.err }}
		cmd.SetArgs([]string{})
		cmd.SetErr(&out)
		if Run(context.Background(), cmd); out.String() != c.want {
			t.Errorf("%q, want %q", &out, c.want)
		}
	}
	if text := errorText(fmt.Errorf("%w, %w", errors.New("a"), errors.New("b"))); strings.Contains(text, "\n") {
		t.Errorf("%q has two lines", text)
	}
}

// TestPrintableJSONIsTheSameJSON holds that documents and log lines cannot steer a terminal, and
// that they say what they said.
func TestPrintableJSONIsTheSameJSON(t *testing.T) {
	const hostile = "\x1b[2J\x7f\u009b2J\u202eq\u2066\u2028\u00e9\U0001f600\\u007f\x00"
	for _, indent := range []bool{false, true} {
		var out bytes.Buffer
		if err := WriteJSON(&out, map[string]string{hostile: hostile}, indent); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && isUnsafe(r) {
				t.Errorf("%q is in %q", r, &out)
			}
		}
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[hostile] != hostile {
			t.Errorf("%q: %v, %q", &out, err, got)
		}
	}
	for name, handler := range map[string]func(w io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		var out bytes.Buffer
		log := slog.New(handler(Printable(&out)))
		log.Warn(hostile, hostile, hostile)
		log.Warn("DEL alone", "member", "a\x7fb")
		for _, r := range strings.ReplaceAll(out.String(), "\n", "") {
			if isUnsafe(r) {
				t.Errorf("%s: %q is in %q", name, r, &out)
			}
		}
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%s: %d lines, want 2", name, n)
		}
	}
}
