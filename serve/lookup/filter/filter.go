// Package filter decides by a condition on their extras which rows a list of URLs has.
package filter

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// maxFilter is the length of the longest filter, in bytes. A regular expression of it is compiled
// in bounded time and memory, and matched in time that is linear in the text.
const maxFilter = 1000

// Filter is a condition on the extras of a row.
type Filter struct {
	text         string // as it was parsed
	member, want string
	not          bool
	pattern      *regexp.Regexp // in the place of want

	// The last extras that were asked about, and the answer: neighbours often have the same.
	last   string
	passed bool
	known  bool
}

// String is the text that Parse parsed.
func (f *Filter) String() string { return f.text }

// Parse parses a condition: the name of a member of extras, then "=" or "!=" and a value, or "~"
// and a regular expression of Go's regexp. The error completes a sentence that begins with the name
// of the parameter. A filter belongs to one query.
func Parse(text string) (*Filter, error) {
	bad := func(format string, args ...any) (*Filter, error) { return nil, fmt.Errorf(format, args...) }
	if len(text) > maxFilter {
		return bad("has %d bytes, at most %d are allowed", len(text), maxFilter)
	}
	if strings.ContainsRune(text, 0) {
		return bad("has a zero byte, which no extras have")
	}
	at := strings.IndexAny(text, "=!~")
	if at < 1 || text[at] == '!' && !strings.HasPrefix(text[at:], "!=") {
		return bad("is the name of a member of extras, then =, != or ~ and a value, as in status=404 or mime~^image/")
	}
	f := &Filter{text: text, member: text[:at], want: text[at+1:]}
	switch text[at] {
	case '!':
		f.not, f.want = true, text[at+2:]
	case '~':
		var err error
		if f.pattern, err = regexp.Compile(f.want); err != nil {
			return bad("has no regular expression after ~: %v", err)
		}
	}
	return f, nil
}

// Passes reports whether a row with these extras, "" for none, meets the condition.
func (f *Filter) Passes(extras string) bool {
	if f.known && extras == f.last {
		return f.passed
	}
	value, ok := memberOf(extras, f.member)
	switch {
	case !ok:
		f.passed = f.not
	case f.pattern != nil:
		f.passed = f.pattern.MatchString(value)
	default:
		f.passed = (value == f.want) != f.not
	}
	f.last, f.known = extras, true
	return f.passed
}

// memberOf returns a member of a JSON object as text: a string without quotes, anything else as
// JSON. A member that is null is not there.
func memberOf(object, name string) (text string, ok bool) {
	if object == "" {
		return "", false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(object), &members) != nil {
		return "", false
	}
	value, ok := members[name]
	if !ok || string(value) == "null" {
		return "", false
	}
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), true
}
