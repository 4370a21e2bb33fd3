package postings

import (
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// DamageError says that a finished batch cannot be indexed, because its record or its postings are missing or are not what was written.
type DamageError struct {
	Batch BatchRef
	Err   error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("batch %s of dataset %d: %v", e.Batch.Batch, e.Batch.DatasetID, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// damaged makes err, which came of reading objects of a batch, a *DamageError if they are at fault, and not the store or the context.
func Damaged(ref BatchRef, err error) error {
	var already *DamageError
	if err == nil || errors.As(err, &already) {
		return err
	}
	if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange) {
		return &DamageError{ref, err}
	}
	return err
}
