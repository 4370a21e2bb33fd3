package urlnorm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// An encoded list is its rules with a header in comments: a file in the syntax of
// public_suffix_list.dat. docs/formats/public-suffix.md describes it.
const (
	fileForm   = "// urlake public suffix list, format "
	fileMagic  = fileForm + "1\n"
	fileName   = "// identity: "
	fileDigest = "// xxh3: "
)

// listFormat is the format of the lists that this program reads and writes.
const listFormat = 1

// ListFormatError says that a newer program has encoded a list.
type ListFormatError struct{ Found, Known int }

func (e *ListFormatError) Error() string {
	return fmt.Sprintf("format %d, but this program knows formats up to %d", e.Found, e.Known)
}

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
	rest, ok := strings.CutPrefix(string(data), fileForm)
	number, rest, _ := strings.Cut(rest, "\n")
	format, err := strconv.Atoi(number)
	if !ok || err != nil || format < 1 {
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
	got := fileSum(named, rest)
	switch {
	case format > listFormat && got != digest:
		// A newer format has another digest, which covers the format.
		return nil, &ListFormatError{Found: format, Known: listFormat}
	case format != listFormat:
		return nil, errors.New("no public suffix list of format 1")
	case got != digest:
		return nil, fmt.Errorf("the content has the xxh3 %s, not %q", got, digest)
	}
	if named != identity {
		return nil, fmt.Errorf("the list is %q", named)
	}
	return NewSuffixList(identity, rest)
}
