package lookup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/serve/turns"
)

// objects is the store of a lake's immutable objects. The index has their sizes, so a range outside
// of an object means that the object is truncated. Readers call ReadRange from goroutines of their
// own, so a panic in it is turned into an error here.
type objects struct{ blob.Store }

// ReadRange implements blob.Store.
func (o objects) ReadRange(ctx context.Context, key string, off, n int64) (data []byte, err error) {
	turns.Own(ctx).Give() // others can use it while this one waits
	err = contain(func() (err error) {
		data, err = o.Store.ReadRange(ctx, key, off, n)
		return err
	})
	return data, truncated(err, key, off, n)
}

// Open implements blob.Store.
func (o objects) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	turns.Own(ctx).Give()
	r, err := o.Store.Open(ctx, key, off, n)
	return r, truncated(err, key, off, n)
}

// Unwrap gives access to the files of a local store.
func (o objects) Unwrap() blob.Store { return o.Store }

// truncated turns blob.ErrRange into a *codec.CorruptError and returns other errors unchanged.
func truncated(err error, key string, off, n int64) error {
	if errors.Is(err, blob.ErrRange) {
		return codec.Corrupt(key, "object", off, fmt.Sprintf("%d bytes", n), "the end before them")
	}
	return err
}
