package activities

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
)

// TestDamageThatARebuildMends checks after which damage an ingest can continue.
func TestDamageThatARebuildMends(t *testing.T) {
	for key, want := range map[string]bool{
		lake.RegistryKey: true, "pending/3/1796032800123456789-run.json": true, lake.SuffixListKey("x"): true,
		lake.StagingPrefix("r") + "plan.json": false, "urls/dataset_id=1/domain_prefix=any/part-b.parquet": false,
	} {
		var app *temporal.ApplicationError
		var damage Damage
		err := finalError(fmt.Errorf("plan: %w", codec.Corrupt(key, "seal", 0, "a", "b")))
		if !errors.As(err, &app) || app.Type() != ErrCorrupt || app.Details(&damage) != nil || damage.Mendable != want {
			t.Errorf("%s: %v, %+v; want %v", key, err, damage, want)
		}
	}
}

// TestIngestGoesOnWhenWhatIsMissingIsBack checks that a missing object of the lake is no fault of
// the input, so that the staging stays.
func TestIngestGoesOnWhenWhatIsMissingIsBack(t *testing.T) {
	for key, advice := range map[string]string{
		"pending/3/1796032800123456789-run.json": "put it back", lake.SuffixListKey("x"): "put it back",
		"urls/dataset_id=1/domain_prefix=any/part-b.parquet": "put it back", "urls/staging/x": "put it back",
		lake.StagingPrefix("r") + "splits/000000.json": "start the same ingest again",
	} {
		_, _, err := blob.NewMemory().Get(t.Context(), key)
		var app *temporal.ApplicationError
		var damage Damage
		err = finalError(fmt.Errorf("merge: %w", err))
		if !errors.As(err, &app) || app.Type() != ErrCorrupt || !app.NonRetryable() || app.Details(&damage) != nil || !damage.Mendable ||
			!strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), advice) {
			t.Errorf("%s: %v, %+v", key, err, damage)
		}
	}
}

// TestOnlyFaultsOfTheInputAreFinal lists which errors end an ingest at once, and which are retried
// because a person or time can mend their cause.
func TestOnlyFaultsOfTheInputAreFinal(t *testing.T) {
	for _, c := range []struct {
		err   error
		final string // type, "" if the error is retried
	}{
		{&ingest.InputError{Object: "file:///in", Reason: "not a list"}, ErrInput},
		{&ingest.InputError{Object: "s3://in/x", Reason: "denied", Err: blob.ErrDenied}, ErrInput},
		{blob.OpError("get", "s3://b", "k", blob.ErrNotExist), ErrCorrupt},
		{&ingest.InputError{Object: "s3://in/x", Reason: "no such object", Err: blob.ErrNotExist}, ErrInput},
		{codec.Corrupt("f", "seal", 0, "a", "b"), ErrCorrupt},
		{blob.OpError("read", "s3://b", "k", blob.ErrRange), ErrCorrupt},
		{&lake.FormError{}, ErrLake},
		{fmt.Errorf("plan: %w", &codec.FormatError{Key: "registry/datasets.json", Found: 3, Known: 2}), ErrLake},
		{fmt.Errorf("plan: %w", &codec.FormatError{Key: "staging/r/plan.json", Found: 7, Known: 8}), ErrLake},
		{fmt.Errorf("plan: %w", &codec.FormatError{Key: "staging/r/plan.json", Found: 9, Known: 8}), ""},
		{fmt.Errorf("plan: %w", &codec.FormatError{Key: "staging/r/plan.json", Found: 8, Known: 8, Member: "colour"}), ""},
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
