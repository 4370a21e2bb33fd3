package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// PendingRoot is the folder of all documents.
	PendingRoot = "pending/"

	pendingFormat = 1
	manyFolder    = "many"

	// pendingReads is how many documents are read concurrently.
	pendingReads = 32
)

// Change is what a publish is to do with one batch.
type Change struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	// Digest names the record of the batch or, if the batch is retired, the record that it had.
	Digest string `json:"digest"`
	// Retired takes the batch out of the lake. Replace takes out all other batches of the dataset
	// whose ingests began before this one.
	Retired bool `json:"retired,omitempty"`
	Replace bool `json:"replace,omitempty"`
}

func (c *Change) name() BatchName {
	return BatchName{DatasetID: c.DatasetID, Batch: c.Batch}
}

// pendingDocument is what one run has finished.
type pendingDocument struct {
	lake.KeyedHeader
	// Start is when the run began: nanoseconds since 1970, by Temporal's clock for an ingest.
	Start   int64    `json:"start"`
	Run     string   `json:"run"`
	Changes []Change `json:"changes"`
}

// PutPending writes what a run that began at start has finished. The records must be in the store.
// A run that finishes in several parts gives each another name.
func PutPending(ctx context.Context, store blob.Store, run string, start int64, changes []Change) error {
	folder := strconv.FormatUint(uint64(changes[0].DatasetID), 10)
	for i := range changes {
		if changes[i].DatasetID != changes[0].DatasetID {
			folder = manyFolder
		}
	}
	key := fmt.Sprintf("%s%s/%019d-%s.json", PendingRoot, folder, start, run)
	_, err := lake.SaveKeyed(ctx, store, key, pendingFormat, &pendingDocument{Start: start, Run: run, Changes: changes}, blob.Condition{})
	return err
}

// DamagedDocument is a document that cannot be read.
type DamagedDocument struct {
	Key string
	// DatasetID is the dataset whose changes are lost, 0 if they are of several.
	DatasetID uint32
	Err       error // a *codec.CorruptError
}

// readPending returns the documents of some datasets, or of all, by start. Those that are deleted
// meanwhile are left out: a version has what they name.
func readPending(ctx context.Context, store blob.Store, datasets []uint32) (docs []*pendingDocument, damaged []DamagedDocument, err error) {
	folders := []string{PendingRoot}
	if len(datasets) > 0 {
		folders = []string{PendingRoot + manyFolder + "/"}
		for _, id := range datasets {
			folders = append(folders, fmt.Sprintf("%s%d/", PendingRoot, id))
		}
	}
	var keys []string
	for _, folder := range folders {
		for info, err := range store.List(ctx, folder) {
			if err != nil {
				return nil, nil, err
			}
			keys = append(keys, info.Key)
		}
	}
	all, errs := make([]*pendingDocument, len(keys)), make([]error, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pendingReads)
	for i, key := range keys {
		g.Go(func() error {
			d, err := codec.Confirm(func() (*pendingDocument, error) {
				d := new(pendingDocument)
				etag, err := lake.LoadKeyed(gctx, store, key, pendingFormat, d)
				if etag == "" {
					return nil, err
				}
				return d, err
			})
			if errors.Is(err, codec.ErrCorrupt) {
				errs[i], err = err, nil
			} else {
				all[i] = d
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	for i, err := range errs {
		if err != nil {
			folder, _, _ := strings.Cut(strings.TrimPrefix(keys[i], PendingRoot), "/")
			id, _ := strconv.ParseUint(folder, 10, 32)
			damaged = append(damaged, DamagedDocument{keys[i], uint32(id), err})
		}
	}
	all = slices.DeleteFunc(all, func(d *pendingDocument) bool { return d == nil })
	slices.SortFunc(all, func(a, b *pendingDocument) int {
		if c := a.Start - b.Start; c != 0 {
			return int(min(max(c, -1), 1))
		}
		return strings.Compare(a.Object, b.Object)
	})
	return all, damaged, nil
}
