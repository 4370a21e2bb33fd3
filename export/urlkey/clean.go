package urlkey

import (
	"fmt"
	"net/url"
	"strings"
)

// tracking are the parameters that CleanURL removes. Others that begin with utm_ stay.
var tracking = [...]string{"utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content", "utm_brand"}

// CleanURL returns a URL as the scrape service stores it: without six tracking parameters
// (utm_source, utm_medium, utm_campaign, utm_term, utm_content, utm_brand) and without the
// fragment, and with its query encoded again. That sorts the parameters by name, writes a space as
// + and a parameter without a value with =, and drops what net/url cannot read as a parameter, such
// as one with a semicolon or a broken escape. So it is not urlake's canonical form, and the key of
// a canonical URL can differ from that of the cleaned one.
//
// The error is that of net/url for a text that is no URL.
func CleanURL(raw string) (string, error) {
	if clean(raw) {
		return raw, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("clean URL: %w", err)
	}
	query := u.Query()
	for _, name := range tracking {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	u.Fragment = ""
	return u.String(), nil
}

// clean reports whether it is known without parsing that CleanURL leaves a URL as it is: http or
// https, a plain host name, and a path without escapes.
func clean(raw string) bool {
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(raw, "http://"); !ok {
			return false
		}
	}
	i := 0
	for i < len(rest) && plain[rest[i]] == inHost {
		i++
	}
	if i == 0 || i < len(rest) && rest[i] != '/' {
		return false
	}
	for ; i < len(rest); i++ {
		if plain[rest[i]] == 0 {
			return false
		}
	}
	return true
}

const (
	inPath = iota + 1
	inHost // and in the path
)

// plain has the bytes that net/url writes as it reads them.
var plain = func() (t [256]byte) {
	for _, c := range []byte("/_~:=&+,;@$!'()*ABCDEFGHIJKLMNOPQRSTUVWXYZ") {
		t[c] = inPath
	}
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyz0123456789.-") {
		t[c] = inHost
	}
	return t
}()
