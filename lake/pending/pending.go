// Package pending keeps what waits for a publish: ingests that have finished, and retirements.
//
// Whoever finishes something writes one document below Root, after the batch records that it names.
// Its key has the time at which the ingest began and the run, so writers never meet: nothing is
// read or replaced. A publish reads all documents. Of two changes of a batch the one that began
// later wins, whichever finished first, also if a version has it already: a version keeps the
// starts of its batches, and of what was retired.
//
//	pending/{dataset}/{start}-{run}.json   changes of one dataset
//	pending/many/{start}-{run}.json        changes of several datasets
//
// A commit deletes the documents that its parent has in full. So what the newest version has is
// still named here, and is published again if that version is lost.
package pending

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
	"github.com/urlake/urlake/lake/manifest"
)

const (
	// Root is the folder of all documents.
	Root = "pending/"

	format = 1
	many   = "many"

	// reads is how many documents are read concurrently.
	reads = 32
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

func (c *Change) name() manifest.BatchName {
	return manifest.BatchName{DatasetID: c.DatasetID, Batch: c.Batch}
}

// document is what one run has finished.
type document struct {
	lake.KeyedHeader
	// Start is when the run began: nanoseconds since 1970, by Temporal's clock for an ingest.
	Start   int64    `json:"start"`
	Run     string   `json:"run"`
	Changes []Change `json:"changes"`
}

// Put writes what a run that began at start has finished. The records must be in the store. A run
// that finishes in several parts gives each another name.
func Put(ctx context.Context, store blob.Store, run string, start int64, changes []Change) error {
	folder := strconv.FormatUint(uint64(changes[0].DatasetID), 10)
	for i := range changes {
		if changes[i].DatasetID != changes[0].DatasetID {
			folder = many
		}
	}
	key := fmt.Sprintf("%s%s/%019d-%s.json", Root, folder, start, run)
	_, err := lake.SaveKeyed(ctx, store, key, format, &document{Start: start, Run: run, Changes: changes}, blob.Condition{})
	return err
}

// Damaged is a document that cannot be read.
type Damaged struct {
	Key string
	// DatasetID is the dataset whose changes are lost, 0 if they are of several.
	DatasetID uint32
	Err       error // a *codec.CorruptError
}

// read returns the documents of some datasets, or of all, by start. Those that are deleted
// meanwhile are left out: a version has what they name.
func read(ctx context.Context, store blob.Store, datasets []uint32) (docs []*document, damaged []Damaged, err error) {
	folders := []string{Root}
	if len(datasets) > 0 {
		folders = []string{Root + many + "/"}
		for _, id := range datasets {
			folders = append(folders, fmt.Sprintf("%s%d/", Root, id))
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
	all, errs := make([]*document, len(keys)), make([]error, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i, key := range keys {
		g.Go(func() error {
			d, err := codec.Confirm(func() (*document, error) {
				d := new(document)
				etag, err := lake.LoadKeyed(gctx, store, key, format, d)
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
			folder, _, _ := strings.Cut(strings.TrimPrefix(keys[i], Root), "/")
			id, _ := strconv.ParseUint(folder, 10, 32)
			damaged = append(damaged, Damaged{keys[i], uint32(id), err})
		}
	}
	all = slices.DeleteFunc(all, func(d *document) bool { return d == nil })
	slices.SortFunc(all, func(a, b *document) int {
		if c := a.Start - b.Start; c != 0 {
			return int(min(max(c, -1), 1))
		}
		return strings.Compare(a.Object, b.Object)
	})
	return all, damaged, nil
}
