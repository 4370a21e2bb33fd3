package urlnorm

import (
	"errors"
	"fmt"
	"strings"
)

// An encoded list is its rules with a header in comments: a file in the syntax of
// public_suffix_list.dat. docs/formats/public-suffix.md describes it.
const (
	fileMagic  = "// urlake public suffix list, format 1\n"
	fileName   = "// identity: "
	fileDigest = "// xxh3: "
)

// fileSum is the digest in an encoded list, of the identity and all rules.
func fileSum(identity, rules string) string { return digestOf(identity + "\n" + rules) }

// Encode returns the list with its identity, as a lake stores it.
func (l *SuffixList) Encode() []byte {
	rules := l.Text()
	return []byte(fileMagic + fileName + l.identity + "\n" + fileDigest + fileSum(l.identity, rules) + "\n" + rules)
}

// DecodeSuffixList decodes what Encode returned for the list with that identity. It notices every
// changed byte.
func DecodeSuffixList(data []byte, identity string) (*SuffixList, error) {
	rest, ok := strings.CutPrefix(string(data), fileMagic)
	if !ok {
		return nil, errors.New("no public suffix list of format 1")
	}
	// A line without its field gives the field no value, which then differs from what is wanted.
	field := func(name string) (value string) {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if text, ok := strings.CutPrefix(line, name); ok {
			value = text
		}
		return value
	}
	named, digest := field(fileName), field(fileDigest)
	if got := fileSum(named, rest); got != digest {
		return nil, fmt.Errorf("the content has the xxh3 %s, not %q", got, digest)
	}
	if named != identity {
		return nil, fmt.Errorf("the list is %q", named)
	}
	return NewSuffixList(identity, rest)
}
