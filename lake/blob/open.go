package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
)

// Open returns the store at a URL:
//
//	file:///dir        a local directory (percent-escapes as in RFC 8089)
//	dir, /dir          the same, as a plain path, taken literally
//	s3://bucket/prefix S3 or another service with its protocol; taken literally, no escapes
//
// The program must import package s3blob for S3. Nothing is created or contacted before the first
// operation.
func Open(ctx context.Context, rawURL string) (Store, error) {
	scheme, rest, ok := cutScheme(rawURL)
	switch {
	case rawURL == "":
		return nil, errors.New("open store: empty URL")
	case !ok:
		return NewLocal(rawURL)
	case scheme == "file":
		return openFileURL(rawURL)
	}
	if open, ok := openers[scheme]; ok {
		return open(ctx, rest)
	}
	if scheme == "s3" {
		return nil, fmt.Errorf("open store %q: this program was built without S3; use a folder, or build it without the tag nos3",
			withoutUser(rawURL))
	}
	return nil, fmt.Errorf("open store %q: scheme %q is none of file, s3", withoutUser(rawURL), scheme)
}

func openFileURL(rawURL string) (Store, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("open store %q: not a URL", withoutUser(rawURL))
	}
	if (u.Host != "" && u.Host != "localhost") || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		!strings.HasPrefix(u.Path, "/") {
		return nil, fmt.Errorf("open store %q: a local directory is file:///absolute/path or a plain path",
			withoutUser(rawURL))
	}
	l, err := NewLocal(filepath.FromSlash(u.Path))
	if err != nil {
		return nil, err
	}
	l.url = trimSlashes(rawURL)
	return l, nil
}

// openers are the registered stores by scheme.
var openers = map[string]func(ctx context.Context, rest string) (Store, error){}

// Register makes Open call open for URLs of a scheme, with what follows the colon. A package that
// implements a store calls it in its init function, so a program links only the stores that it
// imports. Open's errors must not contain credentials.
func Register(scheme string, open func(ctx context.Context, rest string) (Store, error)) {
	openers[scheme] = open
}

// cutScheme splits "scheme:rest" if the user means a URL by it: rest starts with "//", or the
// scheme is a known one. Other colons are part of a path.
func cutScheme(s string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(s, ":")
	if !ok || scheme == "" {
		return "", "", false
	}
	for i, c := range []byte(scheme) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return "", "", false
		}
	}
	scheme = strings.ToLower(scheme)
	return scheme, rest, strings.HasPrefix(rest, "//") || scheme == "file" || scheme == "s3" || scheme == "mem"
}

// withoutUser removes what precedes an @ from a URL. Error texts end up in logs, which must not
// contain credentials.
func withoutUser(rawURL string) string {
	scheme, rest, ok := cutScheme(rawURL)
	if !ok {
		return rawURL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = "//" + rest[at+1:]
	}
	return scheme + ":" + rest
}

// trimSlashes removes trailing slashes, except the root of a path or of a file URL.
func trimSlashes(s string) string {
	for len(s) > 1 && strings.HasSuffix(s, "/") && !strings.HasSuffix(s, "///") {
		s = s[:len(s)-1]
	}
	return s
}
