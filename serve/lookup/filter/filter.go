// Package filter decides by conditions on their extras which rows a list of URLs has.
package filter

import (
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

const (
	// maxConditions is how many conditions a set has at most.
	maxConditions = 16
	// maxFilter is the length of the longest condition, in bytes.
	maxFilter = 1000
	// MaxSize is how large the regular expressions of a set may be together, see sizeOf. They are
	// compiled in about a millisecond then.
	MaxSize = 2000
	// MaxMatch is how many steps a match may take: the size of the regular expression times the
	// length of the value. A step takes 25 ns or so, and a match cannot be interrupted.
	MaxMatch = 3_000_000

	// sizeBytes is the memory of a compiled regular expression, and of its compilation and its
	// matches, for each unit of its size; matchBytes is what the matches of a set take besides.
	sizeBytes  = 1 << 10
	matchBytes = 96 << 10
	// restSteps are some tens of microseconds.
	restSteps = 4096
	// classRanges is how many ranges of a class of characters count as one more character.
	classRanges = 16
)

// Set is conditions on the extras of a row that all have to hold. The zero value has none. A set is
// for one query, and for one goroutine at a time.
type Set struct {
	list []condition
	size int // of all regular expressions
	// work is the steps taken so far, rested those when others could work last.
	work, rested int64

	// The last extras that were asked about, and the answer: neighbours often have the same.
	last   string
	passed bool
	known  bool
}

// condition is one condition.
type condition struct {
	text         string // as it was added
	member, want string
	not          bool
	size         int            // of the regular expression want, 0 if it is none
	pattern      *regexp.Regexp // nil before the first match
}

// TooLargeError means that a regular expression is too large for a value of the lake.
type TooLargeError struct{ Size, Bytes int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the regular expression has a size of %d and would have to be matched with a value of %d bytes; "+
		"the product may be %d", e.Size, e.Bytes, MaxMatch)
}

// Add adds a condition: the name of a member of extras, then "=" or "!=" and a value, or "~" and a
// regular expression of Go's regexp. That is compiled when a row is asked about. The error
// completes a sentence that begins with the name of the parameter.
func (s *Set) Add(text string) error {
	if len(s.list) == maxConditions {
		return fmt.Errorf("is given more often than %d times", maxConditions)
	}
	if len(text) > maxFilter {
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxFilter)
	}
	if strings.ContainsRune(text, 0) {
		return fmt.Errorf("has a zero byte, which no extras have")
	}
	at := strings.IndexAny(text, "=!~")
	if at < 1 || text[at] == '!' && !strings.HasPrefix(text[at:], "!=") {
		return fmt.Errorf("is the name of a member of extras, then =, != or ~ and a value, as in status=404 or mime~^image/")
	}
	c := condition{text: text, member: text[:at], want: text[at+1:]}
	switch text[at] {
	case '!':
		c.not, c.want = true, text[at+2:]
	case '~':
		re, err := syntax.Parse(c.want, syntax.Perl)
		if err != nil {
			return fmt.Errorf("has no regular expression after ~: %w", err)
		}
		c.size = sizeOf(re)
		if s.size+c.size > MaxSize {
			return fmt.Errorf("brings the size of regular expressions to %d, at most %d is allowed for all together; "+
				"x{100} counts as 100 x", s.size+c.size, MaxSize)
		}
	}
	s.list, s.size = append(s.list, c), s.size+c.size
	return nil
}

// sizeOf returns about how many instructions a regular expression is compiled to, and at least half
// as many as that. Classes of many ranges count more, because it takes time to search them.
func sizeOf(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += sizeOf(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/2/classRanges
	case syntax.OpConcat:
		return n
	case syntax.OpAlternate:
		return n + len(re.Sub) - 1
	case syntax.OpCapture, syntax.OpStar:
		return n + 2
	case syntax.OpRepeat: // x{2,} is xx+, and x{2,4} is xx(xx?)?
		return n*max(1, re.Min, re.Max) + max(0, re.Max-re.Min) + 2
	default: // x+, x?, any character, and what matches no character
		return n + 1
	}
}

// Len is the number of conditions.
func (s *Set) Len() int { return len(s.list) }

// Texts are the conditions as they were added.
func (s *Set) Texts() []string {
	texts := make([]string, len(s.list))
	for i := range s.list {
		texts[i] = s.list[i].text
	}
	return texts
}

// Memory is about the memory that the set takes while rows are asked about, in bytes.
func (s *Set) Memory() int64 {
	if s.size == 0 {
		return 0
	}
	return int64(s.size)*sizeBytes + matchBytes
}

// Work is how many steps the set has taken, as MaxMatch counts them.
func (s *Set) Work() int64 { return s.work }

// Rests reports whether it is time to let others work, before Passes is called again.
func (s *Set) Rests() bool {
	if s.work < s.rested+restSteps {
		return false
	}
	s.rested = s.work
	return true
}

// Passes reports whether a row with these extras, "" for none, meets all conditions. The error is a
// *TooLargeError.
func (s *Set) Passes(extras string) (bool, error) {
	if s.known && extras == s.last {
		return s.passed, nil
	}
	var members map[string]json.RawMessage
	if len(s.list) > 0 && extras != "" {
		s.work += int64(len(extras))
		if json.Unmarshal([]byte(extras), &members) != nil {
			members = nil
		}
	}
	passed := true
	for i := 0; i < len(s.list) && passed; i++ {
		c := &s.list[i]
		value, ok := textOf(members[c.member])
		steps := (c.size + 1) * len(value)
		if c.size > 0 && steps > MaxMatch {
			return false, &TooLargeError{c.size, len(value)}
		}
		s.work += int64(steps)
		passed = c.passes(value, ok)
	}
	s.last, s.passed, s.known = extras, passed, true
	return passed, nil
}

// passes reports whether a row with that value meets the condition. Ok tells whether it has one.
func (c *condition) passes(value string, ok bool) bool {
	switch {
	case !ok:
		return c.not
	case c.size == 0:
		return (value == c.want) != c.not
	case c.pattern == nil:
		c.pattern = regexp.MustCompile(c.want) // Add has parsed it
	}
	return c.pattern.MatchString(value)
}

// textOf returns a member of a JSON object as text: a string without quotes, anything else as JSON.
// A member that is null is not there.
func textOf(value json.RawMessage) (text string, ok bool) {
	if len(value) == 0 || string(value) == "null" {
		return "", false
	}
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		return text, true
	}
	return string(value), true
}
