// Package blob is the object store that holds a lake: memory (tests), a local
// directory, or S3.
//
// # Keys
//
// A key is a slash-separated path in UTF-8 of at most MaxKey bytes, without a leading
// slash, without empty, "." or ".." elements, without control characters, no element longer
// than MaxElement bytes, the first one not ".tmp" (the local store's own folder). Anything
// else is ErrInvalidKey; CheckKey is the rule. No key may be a folder of another ("a" beside
// "a/b"): files cannot hold both, and a store that cannot refuses the later one with
// ErrInvalidKey. What List meets in a store is held to the same rule: an object under a name
// that is no key ends the listing with ErrInvalidKey instead of being left out; only folder
// markers (empty objects whose name ends in "/") and everything below ".tmp/" are passed over.
//
// # What a store promises
//
// Every store gives read-after-write consistency for single objects and appears to
// replace an object at once: a reader sees the old bytes or the new, never a mix, and an
// object under creation is invisible until Finish has returned. What Put, Finish and Delete
// did is durable when they return.
//
// Stores retry what is transient (timeouts, throttling, 5xx, broken connections)
// themselves, with backoff, until the context ends or their attempts are used up; callers
// do not retry again. Final errors are ErrNotExist, ErrPrecondition, ErrInvalidKey, ErrRange,
// ErrChanged and ErrTooLarge. A conditional put whose reply was lost is reported as whatever the last
// attempt saw, ErrPrecondition included; the caller that must know re-reads the
// object and looks for what it wrote (see lake/manifest).
//
// Conditional puts of one key are decided one after the other. A deletion at the same time is
// ordered with them in memory and in files; some S3 services let it pass between the
// comparison and the write, so what is put conditionally should not be deleted meanwhile.
//
// Whether a store honours conditions is probed, not believed: ProbeConditional.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxKey is the longest key in bytes: S3's limit. An S3 store under a prefix has that much
	// less.
	MaxKey = 1024

	// MaxElement is the longest element of a key in bytes: a file name's limit on the
	// usual file systems.
	MaxElement = 255

	// MaxSmall is the largest object that Get returns and Put takes. Both hold it in
	// memory; larger ones are streamed with Open and Create.
	MaxSmall = 256 << 20
)

// tmpDir is the first element that no key may have. The local store keeps unfinished
// objects and locks there.
const TmpDir = ".tmp"

var (
	// ErrNotExist: no object has that key.
	ErrNotExist = errors.New("object does not exist")
	// ErrPrecondition: the condition of a Put did not hold; nothing was written.
	ErrPrecondition = errors.New("precondition failed")
	// ErrInvalidKey: the key is not in the form the package documents.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrRange: a read asked for bytes that the object does not have.
	ErrRange = errors.New("range outside the object")
	// ErrDenied: the store refuses for a reason that only a person can change: credentials, permissions, no
	// such bucket.
	ErrDenied = errors.New("the store refuses")
	// ErrChanged: an object is no longer the one that a stream began to read.
	ErrChanged = errors.New("object changed while it was read")
	// ErrTooLarge: Get or Put of an object over MaxSmall.
	ErrTooLarge = errors.New("object too large to hold in memory")
)

// Info describes one object.
type Info struct {
	Key  string
	Size int64
	// ETag changes whenever the content does. It is opaque: compare for equality only, and
	// only with tags from the same store.
	ETag string
}

// Condition guards a Put. The zero value is no condition. With both fields set no put succeeds.
type Condition struct {
	// IfAbsent: no object may have the key.
	IfAbsent bool
	// IfMatch: the object must exist and have this ETag.
	IfMatch string
}

// holds tells whether the condition is met by an object with that tag, or by none.
func (c Condition) Holds(etag string, exists bool) bool {
	if c.IfAbsent && exists {
		return false
	}
	return c.IfMatch == "" || exists && etag == c.IfMatch
}

// Store is one flat namespace of objects. It is safe for concurrent use.
//
// Errors name the operation and the object once and match the package's sentinels with
// errors.Is. Offsets and lengths that are negative, where that has no meaning, are ErrRange.
type Store interface {
	// URL is the store's root as the user wrote it, without trailing slashes. It holds no
	// credentials: a URL with credentials in it is refused.
	URL() string

	// Stat describes an object without reading it.
	Stat(ctx context.Context, key string) (Info, error)

	// Get reads a whole object, for small ones; over MaxSmall it is ErrTooLarge. The caller
	// owns the bytes.
	Get(ctx context.Context, key string) ([]byte, Info, error)

	// ReadRange reads exactly n bytes from off, in one request. Fewer bytes than n are
	// ErrRange, never a short answer. The caller owns the bytes.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)

	// Open streams from off to the end of the object (n < 0) or n bytes. Bytes the object
	// does not have are ErrRange at once; off at the very end with n < 0 is an empty
	// stream. The stream resumes after transient faults and fails with ErrChanged when the
	// object was replaced in between; it never ends early without an error. The context
	// holds until Close. One goroutine at a time. What is read once, and all of it at once, is best
	// read into memory that Place chose.
	Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

	// Put writes a small object at once if cond holds, else ErrPrecondition. Over MaxSmall it
	// is ErrTooLarge. The bytes are not kept.
	Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error)

	// Create starts an object of any size, replacing any other. Nothing is visible before
	// Finish. The context holds until Finish: when it ends, nothing will be written.
	Create(ctx context.Context, key string) (Writer, error)

	// List yields the objects whose key starts with prefix, in byte order of the keys. The
	// prefix is any beginning of keys, "" for all. Objects written or deleted meanwhile may
	// or may not be seen. An error is the last thing yielded.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes objects; one that does not exist is no error. An invalid key fails
	// before anything is removed. Other failures leave some of the objects in place, named in
	// the error; deleting again is safe.
	Delete(ctx context.Context, keys ...string) error
}

// Writer writes one object, from one goroutine at a time. Exactly one of Finish and Abort
// ends it; a failed Finish has cleaned up like Abort.
type Writer interface {
	// Write may hold bytes back. An error is final: every later Write and Finish has it too.
	io.Writer
	// Finish makes the object visible and durable.
	Finish() (Info, error)
	// Abort discards what was written. After Finish it does nothing, so it can be deferred.
	Abort()
}

// LocalFiler is a store whose objects are files that can be mapped.
type LocalFiler interface {
	// LocalPath is the absolute path of the object's file; it need not exist. Objects are
	// replaced by renaming, so what is open or mapped keeps its bytes.
	LocalPath(key string) (string, error)
}

// AsLocalFiler finds the LocalFiler in a store or in what its wrappers (anything with an
// Unwrap() Store method) hold. What is read through it passes the wrappers by.
func AsLocalFiler(s Store) (LocalFiler, bool) {
	for s != nil {
		if l, ok := s.(LocalFiler); ok {
			return l, true
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			return nil, false
		}
		s = w.Unwrap()
	}
	return nil, false
}

// Open returns the store at a URL:
//
//	file:///dir        a local directory (percent-escapes as in RFC 8089)
//	dir, /dir          the same, as a plain path, taken literally
//	s3://bucket/prefix S3 or anything that speaks it; taken literally, no escapes
//
// Nothing is created or contacted before the first operation. S3 settings all come from
// the AWS SDK's own environment and files; see S3.
func Open(ctx context.Context, rawURL string) (Store, error) {
	scheme, rest, ok := cutScheme(rawURL)
	switch {
	case rawURL == "":
		return nil, errors.New("open store: empty URL")
	case !ok:
		return NewLocal(rawURL)
	case scheme == "file":
		u, err := url.Parse(rawURL)
		if err != nil {
			return nil, fmt.Errorf("open store %q: not a URL", withoutUser(rawURL))
		}
		if (u.Host != "" && u.Host != "localhost") || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
			return nil, fmt.Errorf("open store %q: a local directory is file:///absolute/path or a plain path", withoutUser(rawURL))
		}
		l, err := NewLocal(filepath.FromSlash(u.Path))
		if err != nil {
			return nil, err
		}
		l.url = trimSlashes(rawURL)
		return l, nil
	}
	if open, ok := openers[scheme]; ok {
		return open(ctx, rest)
	}
	if scheme == "s3" {
		return nil, fmt.Errorf("open store %q: this program was built without S3; use a folder, or build it without the tag nos3", withoutUser(rawURL))
	}
	return nil, fmt.Errorf("open store %q: scheme %q is none of file, s3", withoutUser(rawURL), scheme)
}

// openers opens what follows the colon of a URL, by scheme.
var openers = map[string]func(ctx context.Context, rest string) (Store, error){}

// Register makes Open use open for URLs of a scheme. A package that implements a store calls it from its init
// function, so that a program links only the stores that it imports. Open is given what follows the colon.
func Register(scheme string, open func(ctx context.Context, rest string) (Store, error)) {
	openers[scheme] = open
}

// cutScheme splits "scheme:rest" where that is what a user would mean by it: before "//",
// or one of the known schemes in whatever form. Other colons are part of a path.
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

// withoutUser drops whatever stands before an @ in the authority, since error texts end up
// in logs.
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

// trimSlashes drops trailing slashes, though not the one that is the root of a file URL
// or path.
func trimSlashes(s string) string {
	for len(s) > 1 && strings.HasSuffix(s, "/") && !strings.HasSuffix(s, "///") {
		s = s[:len(s)-1]
	}
	return s
}

// CheckKey tells whether a key is in the form the package documents; the error matches
// ErrInvalidKey.
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

// unlistable is true of characters that S3's XML listing cannot carry, or that would break a
// line of text with a key in it.
func unlistable(r rune) bool { return unicode.IsControl(r) || r == '\ufffe' || r == '\uffff' }

// checkPrefix tells whether any key could start with a List prefix.
func CheckPrefix(prefix string) error {
	if prefix == "" || strings.HasPrefix(TmpDir+"/", prefix) {
		return nil
	}
	// With one more letter a prefix that can be completed is a key.
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

// checkRange refuses offsets and lengths that cannot be meant, so that sums stay in range.
func CheckRange(off, n int64) error {
	if off < 0 || n > math.MaxInt64-off {
		return fmt.Errorf("%w: %d bytes from %d", ErrRange, n, off)
	}
	return nil
}

// outside is the ErrRange of a read of n bytes (to the end when negative) from off.
func Outside(off, n, size int64) error {
	if n < 0 {
		return fmt.Errorf("%w: from %d of %d bytes", ErrRange, off, size)
	}
	return fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, n, off, size)
}

// opError names the operation and the object.
func OpError(op, root, key string, err error) error {
	if err == nil {
		return nil
	}
	if key == "" {
		return fmt.Errorf("%s %s: %w", op, root, err)
	}
	return fmt.Errorf("%s %s/%s: %w", op, strings.TrimSuffix(root, "/"), key, err)
}
