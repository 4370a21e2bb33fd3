package postings

import (
	"errors"
	"fmt"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
)

// DamageError says that a finished batch cannot be indexed: its record or its postings are missing,
// or are not what was written.
type DamageError struct {
	Batch segment.BatchRef
	Err   error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("batch %s of dataset %d: %v", e.Batch.Batch, e.Batch.DatasetID, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// Damaged returns a *DamageError for the batch if err says that an object is missing, too short or
// corrupt. It returns any other error as it is, e.g. a failure of the store, and also an err that
// is a *DamageError already.
func Damaged(batch segment.BatchRef, err error) error {
	var already *DamageError
	if err == nil || errors.As(err, &already) {
		return err
	}
	if lake.IsDamage(err) {
		return &DamageError{batch, err}
	}
	return err
}
