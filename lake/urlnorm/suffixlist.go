package urlnorm

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// SuffixList is a public suffix list. It decides the registrable domain of a host. It is immutable
// and safe for concurrent use.
//
// ICANN's and private suffixes count alike. Of the rules that match a name the one with the most
// labels decides, and exceptions before all others; if none matches, the suffix is the last label.
// That is the algorithm of publicsuffix.org.
type SuffixList struct {
	table    *suffixTable
	identity string
	rules    int
	digest   string
}

// publicsuffix.txt holds the list of golang.org/x/net/publicsuffix: its version, then its rules as
// in SuffixList.Text. The module's own lookup is a binary search a label and takes longer than all
// other parsing of a canonical URL.
//
//go:generate go test -run ^TestPublicSuffixRulesAreThoseOfTheModule$ -update .
//go:embed publicsuffix.txt
var publicSuffixList string

// BuiltinSuffixes returns the list of this program, for which new lakes are made. Its identity is
// the version of golang.org/x/net/publicsuffix from which it was generated.
func BuiltinSuffixes() *SuffixList { return builtinSuffixes() }

var builtinSuffixes = sync.OnceValue(func() *SuffixList {
	identity, rules, _ := strings.Cut(publicSuffixList, "\n")
	l, err := NewSuffixList(identity, rules)
	if err != nil {
		panic("urlnorm: publicsuffix.txt: " + err.Error()) // a test reads the file that is compiled in
	}
	return l
})

// Identity names the list: one line of printable ASCII. Lists of one identity have the same rules.
// That of a list from a file, see ParseSuffixList, holds the version that the file names and a
// digest of the rules.
func (l *SuffixList) Identity() string { return l.identity }

// Rules is the number of rules.
func (l *SuffixList) Rules() int { return l.rules }

// Text returns the rules in their canonical text: one line each, in ASCII, those with the fewest
// labels first and otherwise in the order of their bytes. A wildcard begins with "*.", an exception
// with "!". NewSuffixList makes an equal list of it.
func (l *SuffixList) Text() string { return l.table.list[wordSize:] }

// SameRules reports whether both lists have the same rules, whatever their identities. They then
// find the same domains.
func (l *SuffixList) SameRules(other *SuffixList) bool { return l.digest == other.digest }

// Domain returns the registrable domain (eTLD+1, private suffixes included) of a canonical host. An
// IP address, localhost and a bare public suffix are their own domains. The result is a suffix of
// host.
func (l *SuffixList) Domain(host string) string {
	if host == "" || isAddress(host) {
		return host
	}
	if len(host) > maxTableHost {
		suffix, _ := l.table.match(host)
		return host[domainBefore(host, suffix):]
	}
	var s [wordSize + maxTableHost]byte
	var dots uint64
	for i := range len(host) {
		if s[wordSize+i] = host[i]; host[i] == '.' {
			dots |= 1 << i
		}
	}
	return host[l.table.domain(view(s[:wordSize+len(host)]), wordSize, dots):]
}

// Rule returns the rule that decides the domain of a canonical host, as it is in Text. It is empty
// if no rule does, so that the public suffix is the last label, and for an IP address.
func (l *SuffixList) Rule(host string) string {
	if host == "" || isAddress(host) {
		return ""
	}
	switch suffix, kind := l.table.match(host); kind {
	case isException:
		return "!" + host[domainBefore(host, suffix):]
	case isWildcard:
		_, parent, _ := strings.Cut(host[suffix:], ".")
		return "*." + parent
	case isRule:
		return host[suffix:]
	}
	return ""
}

// IsSuffix reports whether a rule makes a canonical host a public suffix, or all names directly
// below it: *.np does so for np, which has no other rule.
func (l *SuffixList) IsSuffix(host string) bool {
	return l.Rule(host) == host || l.Rule("_."+host) == "*."+host // no rule has the label _
}

const (
	// fileIdentity is what the identities of lists from files begin with, digestMark what is before
	// their digest.
	fileIdentity = "public_suffix_list.dat"
	digestMark   = ", rules xxh3 "

	// maxListBytes is the longest list that is read, as a file or as canonical text: more than ten
	// times what there are rules.
	maxListBytes = 4 << 20

	// maxIdentity is the longest identity, in bytes.
	maxIdentity = 200
)

// NewSuffixList returns the list with the rules in a canonical text, see Text. A digest in the
// identity has to be that of the rules. Errors name the line of the text.
func NewSuffixList(identity, rules string) (*SuffixList, error) {
	if err := checkIdentity(identity); err != nil {
		return nil, err
	}
	n, err := checkRules(rules)
	if err != nil {
		return nil, err
	}
	digest := digestOf(rules)
	if _, want, ok := strings.Cut(identity, digestMark); ok && want != digest {
		return nil, fmt.Errorf("the rules have the digest %s, not that of the identity %q", digest, identity)
	}
	return &SuffixList{table: newSuffixTable(rules), identity: identity, rules: n, digest: digest}, nil
}

func digestOf(rules string) string {
	b := xxh3.HashString128(rules).Bytes()
	return hex.EncodeToString(b[:])
}

func checkIdentity(identity string) error {
	printable := func(r rune) bool { return ' ' <= r && r <= '~' }
	if identity == "" || len(identity) > maxIdentity ||
		strings.IndexFunc(identity, func(r rune) bool { return !printable(r) }) >= 0 {
		return fmt.Errorf("identity %q: want 1 to %d printable ASCII characters", identity, maxIdentity)
	}
	return nil
}

// checkRules returns the number of rules of a canonical text.
func checkRules(text string) (rules int, err error) {
	if err := checkSize(text); err != nil {
		return 0, err
	}
	before := ""
	for line := range strings.Lines(text) {
		rules++
		rule, ended := strings.CutSuffix(line, "\n")
		if err := checkRule(rule); err != nil {
			return 0, fmt.Errorf("line %d: %w", rules, err)
		}
		if !ended || compareRules(before, rule) >= 0 {
			return 0, fmt.Errorf("line %d: rule %q is not in its place", rules, rule)
		}
		before = rule
	}
	if rules == 0 {
		return 0, errNoRules
	}
	return rules, nil
}

var errNoRules = errors.New("there is no rule in it")

func checkSize[T string | []byte](text T) error {
	if len(text) > maxListBytes {
		return fmt.Errorf("%d bytes are too many for a public suffix list, which has up to %d", len(text), maxListBytes)
	}
	return nil
}

// compareRules is the order of a canonical text.
func compareRules(a, b string) int {
	return cmp.Or(cmp.Compare(strings.Count(a, "."), strings.Count(b, ".")), cmp.Compare(a, b))
}

// splitRule divides a rule into its mark, which is "!", "*." or empty, and its name.
func splitRule(rule string) (mark, name string) {
	if rule != "" && rule[0] == '!' {
		return rule[:1], rule[1:]
	}
	if strings.HasPrefix(rule, "*.") {
		return rule[:2], rule[2:]
	}
	return "", rule
}

// checkRule rejects what is no rule in canonical text.
func checkRule(rule string) error {
	mark, name := splitRule(rule)
	if mark == "!" && !strings.Contains(name, ".") {
		return fmt.Errorf("rule %q: an exception needs two labels", rule)
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.' && label == 0:
			return fmt.Errorf("rule %q has an empty label", rule)
		case c == '.':
			label = 0
			continue
		case c == '*':
			return fmt.Errorf("rule %q: a wildcard can only be the first label, before a name", rule)
		case classes[c]&(forbidden|escaped) != 0 || 'A' <= c && c <= 'Z':
			return fmt.Errorf("rule %q has the character %q", rule, c)
		}
		if label++; label > maxLabel {
			return fmt.Errorf("rule %q has a label over %d bytes", rule, maxLabel)
		}
	}
	switch {
	case label == 0:
		return fmt.Errorf("rule %q has an empty label", rule)
	case len(name) > maxName:
		return fmt.Errorf("rule %q has over %d bytes", rule, maxName)
	case endsInNumber(name):
		return fmt.Errorf("rule %q ends in a number, as no name does", rule)
	}
	return nil
}

var (
	versionComment = regexp.MustCompile(`^// *VERSION: *([0-9A-Za-z][0-9A-Za-z._:+-]{0,63})$`)
	sectionComment = regexp.MustCompile(`^// *===(BEGIN|END) (.*)===$`)
)

// ParseSuffixList parses a list in the syntax of publicsuffix.org's public_suffix_list.dat: UTF-8,
// with or without a byte order mark, and LF or CRLF at the end of a line. A line is a comment after
// "//", or a rule up to the first white space. Names may be in Unicode or punycode and of any case.
// Errors name the line.
//
// The identity of the list holds the text of a comment "// VERSION: …", if there is one, and a
// digest of its rules. It does not depend on other comments, or on the order and spelling of rules.
func ParseSuffixList(dat []byte) (*SuffixList, error) {
	if err := checkSize(dat); err != nil {
		return nil, err
	}
	var rules, open []string
	version := ""
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(dat, []byte("\uFEFF"))) {
		number++
		if !utf8.Valid(line) {
			return nil, fmt.Errorf("line %d is not UTF-8", number)
		}
		text := string(bytes.TrimSpace(line))
		switch {
		case text == "":
			continue
		case strings.HasPrefix(text, "//"):
			if m := versionComment.FindStringSubmatch(text); m != nil && version == "" {
				version = m[1]
			}
			if m := sectionComment.FindStringSubmatch(text); m != nil {
				i := slices.Index(open, m[2])
				switch {
				case m[1] == "BEGIN":
					open = append(open, m[2])
				case i < 0:
					return nil, fmt.Errorf("line %d: section %q ends and has no beginning", number, m[2])
				default:
					open = slices.Delete(open, i, i+1)
				}
			}
			continue
		}
		rule, err := parseRule(strings.Fields(text)[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		rules = append(rules, rule)
	}
	switch {
	case len(open) > 0:
		return nil, fmt.Errorf("line %d: the end comes before that of section %q; the list is cut short", number, open[0])
	case len(rules) == 0:
		return nil, errNoRules
	}
	slices.SortFunc(rules, compareRules)
	text := strings.Join(slices.Compact(rules), "\n") + "\n"
	identity := fileIdentity
	if version != "" {
		identity += ", version " + version
	}
	return NewSuffixList(identity+digestMark+digestOf(text), text)
}

// parseRule returns the canonical spelling of a rule, whose name is spelt as a host is.
func parseRule(text string) (string, error) {
	mark, name := splitRule(text)
	if !strings.HasSuffix(name, ".") && !strings.Contains(name, "*") { // checkRule names those
		canonical, rej := canonicalName([]byte(name))
		if rej != nil {
			return "", fmt.Errorf("rule %q: %s", text, rej.Detail)
		}
		name = strings.Clone(canonical)
	}
	rule := mark + name
	return rule, checkRule(rule)
}
