package blob

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxKey is the maximum length of a key in bytes: S3's limit. In an S3 store under a prefix the
	// prefix counts too.
	MaxKey = 1024

	// MaxElement is the maximum length of an element of a key in bytes: the limit of most file
	// systems on a file name.
	MaxElement = 255
)

// TmpDir is a first element that no key may have. The local store keeps unfinished objects and
// locks in the folder of that name.
const TmpDir = ".tmp"

// CheckKey returns an error that matches ErrInvalidKey unless key has the form that the package
// comment describes.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	case len(key) > MaxKey:
		return fmt.Errorf("%w %.64q...: %d bytes, at most %d", ErrInvalidKey, key, len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w %q: not UTF-8", ErrInvalidKey, key)
	case strings.ContainsFunc(key, unlistable):
		return fmt.Errorf("%w %q: control character", ErrInvalidKey, key)
	case key == TmpDir || strings.HasPrefix(key, TmpDir+"/"):
		return fmt.Errorf("%w %q: %s is the local store's own folder", ErrInvalidKey, key, TmpDir)
	}
	for elem := range strings.SplitSeq(key, "/") {
		switch {
		case elem == "":
			return fmt.Errorf("%w %q: empty element", ErrInvalidKey, key)
		case elem == "." || elem == "..":
			return fmt.Errorf("%w %q: element %q", ErrInvalidKey, key, elem)
		case len(elem) > MaxElement:
			return fmt.Errorf("%w %.64q...: an element of %d bytes, at most %d", ErrInvalidKey, key, len(elem), MaxElement)
		}
	}
	return nil
}

// unlistable reports whether S3's XML listings cannot contain the character, or it would break a
// line of text that contains a key.
func unlistable(r rune) bool { return unicode.IsControl(r) || r == '\ufffe' || r == '\uffff' }

// CheckPrefix checks the argument of Store.List: it returns an error that matches ErrInvalidKey if
// no key can start with prefix. The prefixes of TmpDir+"/" are valid, as lists without objects of
// TmpDir.
func CheckPrefix(prefix string) error {
	if prefix == "" || strings.HasPrefix(TmpDir+"/", prefix) {
		return nil
	}
	// A prefix that a key can start with is a key itself after one more letter.
	probe := prefix
	if strings.HasSuffix(prefix, "/") {
		probe += "x"
	} else if base := prefix[strings.LastIndexByte(prefix, '/')+1:]; base == "." || base == ".." {
		probe += "x"
	}
	if err := CheckKey(probe); err != nil {
		return fmt.Errorf("prefix %q: %w", prefix, err)
	}
	return nil
}

// CheckPut checks the arguments of Store.Put and that its context has not ended.
func CheckPut(ctx context.Context, key string, data []byte) error {
	if err := CheckKey(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if len(data) > MaxSmall {
		return fmt.Errorf("put %s: %w: %d bytes, at most %d", key, ErrTooLarge, len(data), MaxSmall)
	}
	return ctx.Err()
}

// CheckKeys checks the arguments of Store.Delete and that its context has not ended.
func CheckKeys(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return ctx.Err()
}
