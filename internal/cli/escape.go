package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns s with every character that can steer a terminal or break a line written as in a
// Go string literal, such as \n, \x1b or \u202e. These are the control characters (C0, DEL and C1),
// the separators of lines and paragraphs, the controls of bidirectional text, and bytes that are
// not UTF-8. All other text stays as it is, backslashes too: the result is for reading, not for
// parsing.
func Escape(s string) string {
	var out strings.Builder
	copied := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if invalid := r == utf8.RuneError && size == 1; invalid || isUnsafe(r) {
			out.WriteString(s[copied:i])
			quoted := strconv.Quote(s[i : i+size])
			out.WriteString(quoted[1 : len(quoted)-1])
			copied = i + size
		}
		i += size
	}
	if copied == 0 {
		return s
	}
	out.WriteString(s[copied:])
	return out.String()
}

// isUnsafe reports whether a character can do more to a terminal than show itself.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Fprintf writes text for people. It is fmt.Fprintf, but whatever args hold apart from plain
// numbers is escaped: dataset titles, names of objects and members of archives, and errors that
// quote them come from outside, and only format may begin a line or move the cursor. It replaces
// the elements of args.
func Fprintf(w io.Writer, format string, args ...any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case int, int32, int64, uint32, uint64, float64:
		case []byte:
			args[i] = Escape(string(v))
		default:
			args[i] = Escape(fmt.Sprint(v))
		}
	}
	fmt.Fprintf(w, format, args...)
}

// errorText returns what an error says, escaped. Each error of an errors.Join has its own line.
func errorText(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var plain, escaped []string
		for _, e := range joined.Unwrap() {
			plain, escaped = append(plain, e.Error()), append(escaped, errorText(e))
		}
		// Only errors.Join says nothing else.
		if strings.Join(plain, "\n") == err.Error() {
			return strings.Join(escaped, "\n")
		}
	}
	return Escape(err.Error())
}
