package urlnorm

import (
	"slices"
	"strings"
)

// SuffixChange is the difference of two public suffix lists. It says what a change of a lake's list
// can do to the domains that the lake has stored. It compares the rules of the lists, so it needs
// no hosts: which hosts of a domain really move is found by the new list from their names. It is
// immutable and safe for concurrent use.
type SuffixChange struct {
	from, to       *SuffixList
	added, removed map[string]bool // rules that only one list has
	// names are the names of these rules, without their marks, above the names of which these are
	// subdomains.
	names, above map[string]bool
}

// NewSuffixChange returns the change from one list to another. If the list before is not known, it
// is nil.
func NewSuffixChange(from, to *SuffixList) *SuffixChange {
	c := &SuffixChange{from: from, to: to, names: map[string]bool{}, above: map[string]bool{}}
	if from == nil {
		return c
	}
	c.added, c.removed = rulesOf(to), rulesOf(from)
	for rule := range c.added {
		if c.removed[rule] {
			delete(c.added, rule)
			delete(c.removed, rule)
		}
	}
	for _, rules := range []map[string]bool{c.added, c.removed} {
		for rule := range rules {
			name := strings.TrimPrefix(strings.TrimPrefix(rule, "!"), "*.")
			c.names[name] = true
			for {
				_, parent, ok := strings.Cut(name, ".")
				if !ok {
					break
				}
				c.above[parent] = true
				name = parent
			}
		}
	}
	return c
}

func rulesOf(l *SuffixList) map[string]bool {
	rules := make(map[string]bool, l.Rules())
	for line := range strings.Lines(l.Text()) {
		rules[strings.TrimSuffix(line, "\n")] = true
	}
	return rules
}

// Added returns the rules that only the new list has, Removed those that only the old one has,
// sorted. Both are empty if the old list is not known.
func (c *SuffixChange) Added() []string { return sortedRules(c.added) }

// Removed is explained at Added.
func (c *SuffixChange) Removed() []string { return sortedRules(c.removed) }

func sortedRules(rules map[string]bool) []string {
	out := make([]string, 0, len(rules))
	for rule := range rules {
		out = append(out, rule)
	}
	slices.Sort(out)
	return out
}

// Affects reports whether a host of the domain, which was found by the old list, may have another
// domain by the new one. It may be true without such a host; it is never false if there is one. If
// the old list is not known, it is true for all domains.
//
// A rule decides for the hosts at and below its name. Their domains are at, below or above it.
func (c *SuffixChange) Affects(domain string) bool {
	if c.from == nil || c.above[domain] {
		return true
	}
	if len(c.names) == 0 {
		return false
	}
	for name := domain; ; {
		if c.names[name] {
			return true
		}
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		name = parent
	}
}

// Rule returns the changed rule that gives a host another domain: one that only the new list has,
// or else one that only the old list has. It is empty if the domain of the host does not change, or
// the old list is not known.
func (c *SuffixChange) Rule(host string) (rule string, added bool) {
	if c.from == nil || c.from.Domain(host) == c.to.Domain(host) {
		return "", false
	}
	if rule = c.to.Rule(host); c.added[rule] {
		return rule, true
	}
	return c.from.Rule(host), false
}
