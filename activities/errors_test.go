package activities

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// TestOnlyFaultsOfTheInputAreFinal lists which errors end an ingest at once, and which are retried
// because a person or time can mend their cause.
func TestOnlyFaultsOfTheInputAreFinal(t *testing.T) {
	for _, c := range []struct {
		err   error
		final string // type, "" if the error is retried
	}{
		{&ingest.InputError{Object: "file:///in", Reason: "not a list"}, ErrInput},
		{&ingest.InputError{Object: "s3://in/x", Reason: "denied", Err: blob.ErrDenied}, ErrInput},
		{blob.OpError("get", "s3://b", "k", blob.ErrNotExist), ErrInput},
		{codec.Corrupt("f", "seal", 0, "a", "b"), ErrCorrupt},
		{blob.OpError("read", "s3://b", "k", blob.ErrRange), ErrCorrupt},
		{&lake.FormError{}, ErrLake},
		{blob.OpError("get", "s3://b", "k", blob.ErrDenied), ""},
		{blob.OpError("get", "s3://b", "k", fmt.Errorf("%w: ExpiredToken", blob.ErrCredentials)), ""},
		{blob.OpError("put", "file:///l", "k", syscall.ENOSPC), ""},
		{blob.OpError("get", "s3://b", "k", syscall.ECONNREFUSED), ""},
		{io.ErrUnexpectedEOF, ""},
	} {
		var app *temporal.ApplicationError
		err := finalError(c.err)
		final := errors.As(err, &app) && app.NonRetryable()
		if final != (c.final != "") || final && app.Type() != c.final {
			t.Errorf("%v: final %v, want %q", c.err, err, c.final)
		}
	}
}
