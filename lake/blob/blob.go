// Package blob is the object store that holds a lake: memory (tests), a local
// directory, or S3.
//
// A key is a slash-separated path without a leading slash, without empty, "." or
// ".." elements, of at most 1,024 bytes; anything else is ErrInvalidKey. No key may be a
// folder of another ("a" beside "a/b"): some stores cannot hold both.
//
// Every store gives read-after-write consistency for single objects and appears to
// replace an object at once: a reader sees the old bytes or the new, never a mix, and an
// object under creation is invisible until Finish has returned.
//
// Stores retry what is transient (timeouts, throttling, 5xx) themselves, with backoff, until
// the context ends or their attempts are used up; callers do not retry again. Final errors are ErrNotExist,
// ErrPrecondition, ErrInvalidKey and ErrRange. A conditional put whose reply was lost is
// reported as whatever the last attempt saw; the caller that must know re-reads the
// object and looks for what it wrote (see lake/manifest).
package blob

import (
	"context"
	"errors"
	"io"
	"iter"
)

var (
	// ErrNotExist: no object has that key.
	ErrNotExist = errors.New("object does not exist")
	// ErrPrecondition: the condition of a Put did not hold; nothing was written.
	ErrPrecondition = errors.New("precondition failed")
	// ErrInvalidKey: the key is not in the form the package documents.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrRange: a read asked for bytes that the object does not have.
	ErrRange = errors.New("range outside the object")
	// ErrChanged: an object is no longer the one whose ETag the reader named.
	ErrChanged = errors.New("object changed while it was read")
)

// Info describes one object.
type Info struct {
	Key  string
	Size int64
	// ETag changes whenever the content does. It is opaque: compare for equality only.
	ETag string
}

// Condition guards a Put. The zero value is no condition.
type Condition struct {
	// IfAbsent: no object may have the key.
	IfAbsent bool
	// IfMatch: the object must exist and have this ETag.
	IfMatch string
}

// Store is one flat namespace of objects. It is safe for concurrent use.
type Store interface {
	// URL is the store's root as the user wrote it, without credentials.
	URL() string

	// Stat describes an object without reading it.
	Stat(ctx context.Context, key string) (Info, error)

	// Get reads a whole object, for small ones.
	Get(ctx context.Context, key string) ([]byte, Info, error)

	// ReadRange reads exactly n bytes from off, in one request. Fewer bytes than n are
	// ErrRange, never a short answer.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)

	// Open streams from off to the end of the object (n < 0) or n bytes. The stream
	// resumes after transient faults and fails with ErrChanged when the object was
	// replaced in between; it never ends early without an error.
	Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

	// Put writes a small object at once if cond holds, else ErrPrecondition.
	Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error)

	// Create starts an object of any size. Nothing is visible before Finish.
	Create(ctx context.Context, key string) (Writer, error)

	// List yields the objects whose key starts with prefix, in byte order of the keys.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes objects; one that does not exist is no error.
	Delete(ctx context.Context, keys ...string) error
}

// Writer writes one object. Exactly one of Finish and Abort ends it.
type Writer interface {
	io.Writer
	// Finish makes the object visible and durable.
	Finish() (Info, error)
	// Abort discards what was written. After Finish it does nothing.
	Abort()
}

// LocalFiler is a store whose objects are files that can be mapped.
type LocalFiler interface {
	// LocalPath is the path of the object's file; it need not exist.
	LocalPath(key string) (string, error)
}
