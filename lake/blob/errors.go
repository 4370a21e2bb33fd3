package blob

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

var (
	// ErrNotExist: no object has that key.
	ErrNotExist = errors.New("object does not exist")
	// ErrPrecondition: the condition of a Put did not hold. Nothing was written.
	ErrPrecondition = errors.New("precondition failed")
	// ErrInvalidKey: the key does not have the form that the package comment describes.
	ErrInvalidKey = errors.New("invalid object key")
	// ErrRange: a read asked for bytes that the object does not have.
	ErrRange = errors.New("range outside the object")
	// ErrDenied: the store refuses for a reason that a person must remove: permissions, no such
	// bucket, credentials.
	ErrDenied = errors.New("the store refuses")
	// ErrCredentials: the credentials are missing, expired or unknown, or the clocks differ, so
	// that the store cannot tell who asks. It is an ErrDenied that says nothing about the object,
	// and it goes away when the credentials are renewed.
	ErrCredentials = fmt.Errorf("%w the credentials", ErrDenied)
	// ErrAway: the folder of a Local store, which was there before, is absent. It says nothing
	// about any object, and it goes away when the file system is mounted again.
	ErrAway = errors.New("the store is away")
	// ErrChanged: an object was replaced while a stream read it.
	ErrChanged = errors.New("object changed while it was read")
	// ErrTooLarge: Get or Put of an object over MaxSmall.
	ErrTooLarge = errors.New("object too large to hold in memory")
	// ErrWriterDone: Write or Finish of a Writer after Finish or Abort.
	ErrWriterDone = errors.New("writer is finished or aborted")
)

// OpError adds the operation and the object to err: "get s3://bucket/prefix/key: …". Root is the
// URL of the store. The error wraps err and is nil if err is.
func OpError(op, root, key string, err error) error {
	if err == nil {
		return nil
	}
	return &opError{op, root, key, err}
}

type opError struct {
	op, root, key string
	err           error
}

func (e *opError) Error() string {
	if e.key == "" {
		return fmt.Sprintf("%s %s: %v", e.op, e.root, e.err)
	}
	return fmt.Sprintf("%s %s/%s: %v", e.op, strings.TrimSuffix(e.root, "/"), e.key, e.err)
}

func (e *opError) Unwrap() error { return e.err }

// KeyOf returns the key of the object whose operation failed with err, "" if err is no OpError.
func KeyOf(err error) string {
	if e := (*opError)(nil); errors.As(err, &e) {
		return e.key
	}
	return ""
}

// CheckRange checks the range of a read before the size of the object is known: off must not be
// negative, and off + n must not overflow. A negative n, which means the rest of the object, is
// valid. The error matches ErrRange.
func CheckRange(off, n int64) error {
	if off < 0 || n > math.MaxInt64-off {
		return fmt.Errorf("%w: %d bytes from %d", ErrRange, n, off)
	}
	return nil
}

// RangeError returns the ErrRange of a read of n bytes from off, or of the rest if n is negative,
// of an object of size bytes.
func RangeError(off, n, size int64) error {
	if n < 0 {
		return fmt.Errorf("%w: from %d of %d bytes", ErrRange, off, size)
	}
	return fmt.Errorf("%w: %d bytes from %d of %d", ErrRange, n, off, size)
}
