package many

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// takenKey is the key of what was taken up. If the object is lost, everything is taken up again.
const takenKey = "registry/taken.json"

// taken is the document at takenKey: what was read, by dataset and batch.
type taken struct {
	header
	Batches map[string]takenBatch `json:"batches"`
}

// takenBatch is what an ingest has taken up.
type takenBatch struct {
	Fingerprint string `json:"fingerprint"`
	// Digest is that of the record that came of it.
	Digest string `json:"digest"`
}

func takenName(dataset uint32, batch string) string { return fmt.Sprintf("%d/%s", dataset, batch) }

// readTaken reads what was taken up. What is damaged is as good as none.
func readTaken(ctx context.Context, store blob.Store) (t taken, etag string, err error) {
	data, info, err := store.Get(ctx, takenKey)
	switch {
	case errors.Is(err, blob.ErrNotExist):
	case err != nil:
		return t, "", err
	default:
		etag = info.ETag
		if err := codec.Unseal(data, takenKey, &t); err != nil || t.Format != documentFormat {
			t = taken{}
		}
	}
	if t.Batches == nil {
		t.Batches = map[string]takenBatch{}
	}
	return t, etag, nil
}

// remember adds to what was taken up.
func remember(ctx context.Context, store blob.Store, more map[string]takenBatch) error {
	if len(more) == 0 {
		return nil
	}
	const rounds = 100
	for range rounds {
		t, etag, err := readTaken(ctx, store)
		if err != nil {
			return err
		}
		changed := false
		for name, b := range more {
			if t.Batches[name] != b {
				t.Batches[name], changed = b, true
			}
		}
		if !changed {
			return nil
		}
		cond := blob.Condition{IfMatch: etag}
		if etag == "" {
			cond = blob.Condition{IfAbsent: true}
		}
		if err = save(ctx, store, takenKey, &t, cond); !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("%s kept changing", takenKey)
}
