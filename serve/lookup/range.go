package lookup

import (
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
)

// Range is a range of the domains of segments, in the order of their bytes or reversed: with their
// bytes from the last to the first, in the order that they have then.
type Range struct {
	Reversed bool
	// Prefix and Suffix are what the names begin and end with, reversed as they are. Those with the
	// prefix are adjacent.
	Prefix, Suffix string
}

// rangeOf returns the range of the domains with a prefix and a suffix: of the two the one for which
// fewer names are read. It follows from the segments alone, so that cursors may depend on it.
func rangeOf(segments []*segment.Segment, prefix, suffix string) Range {
	forward, reversed := Range{Prefix: prefix, Suffix: suffix}, Range{true, reverse(suffix), reverse(prefix)}
	switch {
	case suffix == "":
		return forward
	case prefix == "":
		return reversed
	}
	more := 0 // frames to be read if reversed
	for _, seg := range segments {
		more += frames(seg.Reversed(), reversed.Prefix) - frames(seg.Names(), prefix)
	}
	if more < 0 {
		return reversed
	}
	return forward
}

// frames is the number of frames of a list that may have names with a prefix.
func frames(list *segment.Names, prefix string) int {
	lo, hi := list.Starts().Find(prefix, prefix)
	return hi - lo
}

// Text returns a domain as it is in the range, and the other way round.
func (r *Range) Text(domain string) string {
	if r.Reversed {
		return reverse(domain)
	}
	return domain
}

// Has reports whether a name that has the prefix is in the range.
func (r *Range) Has(name string) bool { return strings.HasSuffix(name, r.Suffix) }

// reverse returns a text with its bytes reversed.
func reverse(text string) string {
	b := []byte(text)
	slices.Reverse(b)
	return string(b)
}
