package many

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

const (
	// TakenKey is the key of what was taken up. If the object is lost, everything is taken up
	// again.
	TakenKey = "registry/taken.json"
	// TakenRoot is the folder of its pieces.
	TakenRoot = "registry/taken/"
)

// taken is the document at TakenKey: what was read, by dataset and batch.
type taken struct {
	lake.KeyedHeader
	// Pieces has the JSON of a takenBatch for each takenEntry.
	Pieces pieces.Ref `json:"taken_pieces"`
}

// takenBatch is what an ingest has taken up.
type takenBatch struct {
	Fingerprint string `json:"fingerprint"`
	// Start is that of the ingest.
	Start int64 `json:"start"`
}

// takenEntry is the key of a batch in pieces: the dataset's id, the most significant byte first,
// and the batch's name.
func takenEntry(id catalog.BatchName) []byte {
	return append(binary.BigEndian.AppendUint32(nil, id.DatasetID), id.Batch...)
}

// loadTaken reads the document of what was taken up. One that is damaged is as good as none.
func loadTaken(ctx context.Context, store blob.Store) (t taken, etag string, err error) {
	etag, err = loadTakenStrict(ctx, store, &t)
	if errors.Is(err, codec.ErrCorrupt) {
		return taken{}, etag, nil
	}
	return t, etag, err
}

// loadTakenStrict is loadTaken, but damage is an error.
func loadTakenStrict(ctx context.Context, store blob.Store, t *taken) (etag string, err error) {
	if etag, err = lake.LoadKeyed(ctx, store, TakenKey, documentFormat, t); err == nil {
		err = t.Pieces.Check(TakenKey)
	}
	return etag, err
}

// readTaken returns what was taken up of some batches. What is damaged is as good as none.
func readTaken(ctx context.Context, store blob.Store, ids []catalog.BatchName) (map[catalog.BatchName]takenBatch, error) {
	t, _, err := loadTaken(ctx, store)
	if err != nil {
		return nil, err
	}
	found := map[catalog.BatchName]takenBatch{}
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = takenEntry(id)
	}
	entries, err := pieces.Open(store, TakenRoot, t.Pieces).GetMany(ctx, keys)
	if err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return nil, err
	}
	for i, e := range entries {
		var b takenBatch
		if e != nil && json.Unmarshal(e.Value, &b) == nil {
			found[ids[i]] = b
		}
	}
	return found, nil
}

// remember adds to what was taken up.
func remember(ctx context.Context, store blob.Store, more map[catalog.BatchName]takenBatch) error {
	if len(more) == 0 {
		return nil
	}
	const rounds = 100
	for range rounds {
		t, etag, err := loadTaken(ctx, store)
		if err != nil {
			return err
		}
		edits, err := takenEdits(more)
		if err != nil {
			return err
		}
		next, err := pieces.Open(store, TakenRoot, t.Pieces).Apply(ctx, edits)
		if errors.Is(err, codec.ErrCorrupt) {
			next, err = pieces.Open(store, TakenRoot, pieces.Ref{}).Apply(ctx, edits)
		}
		if err != nil {
			return err
		}
		if next.Ref() == t.Pieces {
			return nil
		}
		if err = save(ctx, store, TakenKey, &taken{Pieces: next.Ref()}, etag); !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("%s kept changing", TakenKey)
}

// takenEdits returns the edits that add some batches.
func takenEdits(more map[catalog.BatchName]takenBatch) (edits []pieces.Edit, err error) {
	for id, b := range more {
		value, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: takenEntry(id), Value: value}})
	}
	return edits, nil
}
