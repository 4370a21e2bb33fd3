// Package blob is the object store of a lake: the Store interface, a store in memory for tests, a
// store in a local directory, and a wrapper that counts operations. Package s3blob adds S3, package
// blobtest the conformance suite of all stores. Everything that reads or writes objects does so
// through a Store.
//
// # Keys
//
// A key is a slash-separated path in UTF-8 of at most MaxKey bytes. It has no leading slash, no
// element that is empty, "." or "..", no control characters and no element over MaxElement bytes.
// The first element is not TmpDir. Other keys are ErrInvalidKey; CheckKey is the rule.
//
// A key must not be a folder of another key ("a" beside "a/b"), because a file system cannot hold
// both. Stores that cannot hold both reject the later one with ErrInvalidKey.
//
// List checks the names in a store by the same rule. A name that is not a key ends the listing with
// ErrInvalidKey and is not left out silently. Only folder markers (empty objects whose name ends in
// "/") and everything below TmpDir are passed over.
//
// # What a store promises
//
// A single object has read-after-write consistency and is replaced at once: a reader gets the old
// bytes or the new ones, never a mix. An object is invisible until Finish of its Writer returns.
// List shows every object that exists from before it begins until it ends. What Put, Finish and
// Delete have done is durable when they return.
//
// A store retries transient failures (timeouts, throttling, HTTP 5xx, broken connections) with
// backoff until the context ends or its attempts are used up. Callers do not retry again. All other
// errors are final; those that callers distinguish are the Err variables of this package.
//
// # Conditional puts
//
// Conditional puts of one key are decided one after the other, so exactly one of several with the
// same condition succeeds. ProbeConditional finds out whether a store honours conditions.
//
// If the reply to a conditional put is lost, the retry may report ErrPrecondition although the put
// has taken effect. A caller that must know reads the object again and looks for what it wrote; see
// lake/manifest.
//
// In the memory and local stores a deletion is ordered with conditional puts. Some S3 services let
// a deletion happen between comparison and write, so do not delete a key that is put conditionally
// at the same time.
//
// # Implementing a store
//
// A store implements Store and Writer, passes blobtest.Run, and calls Register in its init
// function. It checks arguments first, before it contacts anything: CheckKey, CheckPut, CheckKeys,
// CheckPrefix, CheckRange. It translates the errors of its service to the Err variables, wraps them
// once by OpError, and returns errors of the context as they are. RangeError and Condition.Holds
// are the common rules for ranges and conditions.
package blob

import (
	"context"
	"io"
	"iter"
)

// MaxSmall is the maximum size of an object that Get returns and Put takes. Both hold it in memory.
// Larger objects are streamed by Open and Create.
const MaxSmall = 256 << 20

// Info describes one object.
type Info struct {
	Key  string
	Size int64
	// ETag changes whenever the content does. It is opaque: compare it only for equality, and only
	// with ETags of the same store.
	ETag string
}

// Condition is the condition of a Put. The zero value always holds; with both fields set it never
// does.
type Condition struct {
	// IfAbsent: no object has the key.
	IfAbsent bool
	// IfMatch: if not empty, the object exists and has this ETag.
	IfMatch string
}

// Holds reports whether the condition holds for an object with that ETag, or for a key without an
// object.
func (c Condition) Holds(etag string, exists bool) bool {
	if c.IfAbsent && exists {
		return false
	}
	return c.IfMatch == "" || exists && etag == c.IfMatch
}

// Store is a flat namespace of objects. It is safe for concurrent use.
//
// Errors name the operation and the object once and match the Err variables by errors.Is. Negative
// offsets and lengths are ErrRange unless the method gives them a meaning.
type Store interface {
	// URL is the root of the store as the user wrote it, without trailing slashes. It never
	// contains credentials: stores reject URLs with credentials.
	URL() string

	// Stat describes an object without reading it.
	Stat(ctx context.Context, key string) (Info, error)

	// Get reads a whole object of at most MaxSmall bytes; a larger one is ErrTooLarge. The caller
	// owns the bytes.
	Get(ctx context.Context, key string) ([]byte, Info, error)

	// ReadRange reads exactly n bytes from off, in one request. If the object has fewer, the error
	// is ErrRange and there is no short result. The caller owns the bytes.
	ReadRange(ctx context.Context, key string, off, n int64) ([]byte, error)

	// Open streams n bytes from off, or the rest of the object if n is negative. Bytes that the
	// object does not have are ErrRange at once; the rest from the very end is an empty stream. The
	// stream resumes after transient failures. It fails with ErrChanged if the object was replaced
	// meanwhile, and never ends early without an error. It is used by one goroutine at a time and
	// until Close needs the context. Large reads into an AlignedSlice are the fastest.
	Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

	// Put writes an object of at most MaxSmall bytes if cond holds; otherwise the error is
	// ErrPrecondition. More bytes are ErrTooLarge. The store does not keep data.
	Put(ctx context.Context, key string, data []byte, cond Condition) (Info, error)

	// Create returns a Writer of an object of any size, which replaces an existing one. Nothing is
	// visible before Finish. If the context ends before Finish, nothing is written.
	Create(ctx context.Context, key string) (Writer, error)

	// List yields the objects whose keys start with prefix, in byte order of the keys. A prefix may
	// end anywhere in a key; "" yields all objects. Objects that are written or deleted meanwhile
	// may be missing. An error ends the list, unless it matches ErrInvalidKey and comes with a Key:
	// then another program has written an object whose key is invalid in a Store.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes objects. An object that does not exist is no error. An invalid key is an error
	// before anything is removed. After another error, which names them, some objects may still
	// exist; deleting again is safe.
	Delete(ctx context.Context, keys ...string) error
}

// Writer writes one object. It is used by one goroutine at a time. Finish or Abort ends it; a
// failed Finish has cleaned up as Abort does.
type Writer interface {
	// Write may buffer bytes. An error is final: every later Write and Finish returns it too.
	io.Writer
	// Finish makes the object visible and durable.
	Finish() (Info, error)
	// Abort discards the object. After Finish it does nothing, so it can be deferred.
	Abort()
}

// LocalFiler is a store whose objects are files, which can be mapped.
type LocalFiler interface {
	// LocalPath is the absolute path of the object's file, which need not exist. Objects are
	// replaced by renaming, so an open or mapped file keeps its bytes.
	LocalPath(key string) (string, error)
}

// AsLocalFiler returns s, or the first store inside it, that is a LocalFiler. Wrappers have a
// method Unwrap() Store. Reads of the files bypass the wrappers.
func AsLocalFiler(s Store) (LocalFiler, bool) { return as[LocalFiler](s) }

// as returns s, or the first store inside it, that has the ability T.
func as[T any](s Store) (able T, ok bool) {
	for s != nil {
		if able, ok = s.(T); ok {
			return able, true
		}
		w, ok := s.(interface{ Unwrap() Store })
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	return able, false
}
