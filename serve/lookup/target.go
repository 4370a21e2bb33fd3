package lookup

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urlake/urlake/lake/urlnorm"
)

// Target is the subject of a query: a host. Its domain depends on the version, by whose public
// suffix list it is found.
type Target struct {
	// Host is canonical.
	Host string
	// doubt is nil unless the text is likely no host, although it can be one: it has one label, or
	// a character that names of hosts do not have. It may still be the name of a domain: that of
	// http://intranet/ is "intranet". The error is returned unless the version has a domain of
	// exactly this name, or the name is a public suffix.
	doubt *urlnorm.RejectError
}

// ParseTarget parses any spelling of a host or URL. The error for other text is a
// *urlnorm.RejectError.
func ParseTarget(text string) (Target, error) {
	n, err := urlnorm.New(urlnorm.BuiltinSuffixes(), urlnorm.Options{}) // the host is the same by every list
	if err != nil {
		return Target{}, err
	}
	u, doubt, err := parseHost(n, []byte(text))
	if err != nil {
		return Target{}, err
	}
	return Target{Host: strings.Clone(u.Host), doubt: doubt}, nil
}

// ParseURL parses a URL that a query is about. All but its domain is the same by every public
// suffix list. The error for other text is a *urlnorm.RejectError.
func ParseURL(text string) (urlnorm.URL, error) {
	if err := oneLine([]byte(text)); err != nil {
		return urlnorm.URL{}, err
	}
	u, err := urlnorm.Parse(urlnorm.BuiltinSuffixes(), text)
	if err != nil {
		return urlnorm.URL{}, err
	}
	return u.Clone(), nil
}

// Several returns an error if the target is likely a list of domains, and nil otherwise. Queries
// return it themselves, unless there is a domain of this name.
func (t Target) Several() error {
	if t.doubt != nil && t.doubt.Reason == urlnorm.RejectHost {
		return t.doubt
	}
	return nil
}

// parseHost parses any spelling of a host or URL. Doubt is as in Target. The error for other text
// is a *urlnorm.RejectError. The strings of the URL are valid until the next use of n, and only
// while text does not change.
func parseHost(n *urlnorm.Normalizer, text []byte) (u urlnorm.URL, doubt *urlnorm.RejectError, err error) {
	if err := oneLine(text); err != nil {
		return urlnorm.URL{}, nil, err
	}
	if u, err = n.Parse(text); err == nil {
		return u, oddName(u.Host, text), nil
	}
	var reject *urlnorm.RejectError
	if errors.As(err, &reject) && reject.Reason == urlnorm.RejectNoHost &&
		len(text) > 0 && !bytes.ContainsAny(text, "/?#@: ") {
		if u, err = n.Parse(slices.Concat([]byte("http://"), text, []byte("/"))); err == nil {
			if doubt = oddName(u.Host, text); doubt == nil {
				doubt = reject
			}
			return u, doubt, nil
		}
	}
	if errors.As(err, &reject) && bytes.ContainsAny(text, ",;|") && !bytes.Contains(text, []byte("://")) {
		err = &urlnorm.RejectError{Reason: reject.Reason, Detail: reject.Detail + "; " + oneAtATime}
	}
	return urlnorm.URL{}, nil, err
}

// oneAtATime is the advice for text that looks like several domains.
const oneAtATime = "ask for one domain at a time"

// oneLine returns an error for text with a control character, or with a space in its host. A
// canonical URL lacks tabs and line breaks, so those of a list would be dropped, and its names be
// joined. Around the text they do not matter, and a path may have spaces.
func oneLine(text []byte) error {
	first := func(c byte) bool { return c > ' ' }
	end := len(text)
	for end > 0 && !first(text[end-1]) {
		end--
	}
	start := 0
	for start < end && !first(text[start]) {
		start++
	}
	for i := start; i < end; i++ {
		c := text[i]
		if c > ' ' && c != 0x7f || c == ' ' && bytes.ContainsAny(afterScheme(text[start:i]), `/\?#`) {
			continue
		}
		return oddAt(text, i)
	}
	return nil
}

// afterScheme returns text without a scheme and the slashes behind it.
func afterScheme(text []byte) []byte {
	if _, rest, ok := bytes.Cut(text, []byte("://")); ok {
		return rest
	}
	return text
}

// oddName returns an error for a host with a character that names of hosts do not have, although
// the rules for URLs allow it, such as a comma. Text is what the host was parsed from.
func oddName(host string, text []byte) *urlnorm.RejectError {
	for i := range len(host) {
		c := host[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(".-_[]:", c) >= 0 {
			continue
		}
		if at := bytes.IndexByte(text, c); at >= 0 {
			return oddAt(text, at)
		}
		return oddAt([]byte(host), i) // it was written in another way, such as escaped
	}
	return nil
}

// oddAt is the error for the character of text that begins at a byte.
func oddAt(text []byte, at int) *urlnorm.RejectError {
	var name string
	switch r, _ := utf8.DecodeRune(text[at:]); r {
	case ',':
		name = "a comma"
	case ' ':
		name = "a space"
	case '\t':
		name = "a tab"
	case '\n', '\r':
		name = "a line break"
	default:
		name = fmt.Sprintf("%q", r)
	}
	return &urlnorm.RejectError{
		Reason: urlnorm.RejectHost,
		Detail: fmt.Sprintf("character %d is %s; %s", utf8.RuneCount(text[:at])+1, name, oneAtATime),
	}
}
