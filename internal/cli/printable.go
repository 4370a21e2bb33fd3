package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// WriteJSON writes v as one JSON document and a line end, with two spaces for each level if indent
// is set. What could steer a terminal is escaped, as Printable does it.
func WriteJSON(w io.Writer, v any, indent bool) error {
	enc := json.NewEncoder(Printable(w))
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// Printable returns a writer that passes on JSON documents and log lines, with the characters
// escaped that encoders of JSON and of logs leave as they are although they can steer a terminal:
// DEL, the C1 controls, separators of lines and paragraphs, and the controls of bidirectional text.
// Each becomes \u and four hex digits, which in JSON is the same string. Control characters below a
// space are not changed. Each Write must have whole characters, as those of encoders do.
func Printable(w io.Writer) io.Writer { return printable{w} }

type printable struct{ w io.Writer }

func (p printable) Write(b []byte) (int, error) {
	if _, err := p.w.Write(escapeControls(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func escapeControls(b []byte) []byte {
	var out bytes.Buffer
	copied := 0
	for i := 0; i < len(b); {
		if b[i] < 0x7f {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if isUnsafe(r) {
			out.Write(b[copied:i])
			fmt.Fprintf(&out, `\u%04x`, r)
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return b
	}
	out.Write(b[copied:])
	return out.Bytes()
}

// CheckPrintable returns a *UsageError if the value of a flag, which others get to see, has control
// characters or other characters that Escape replaces.
func CheckPrintable(flag, value string) error {
	if escaped := Escape(value); escaped != value {
		return Usagef("--%s has characters that do not print, shown here as in a string literal: %q; leave them out",
			flag, value)
	}
	return nil
}
