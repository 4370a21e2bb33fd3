package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// Lakes of earlier builds list all datasets in one document (listFormat). They have a document with
// the order of ingests, and a copy of its entry, for each dataset. Reading goes on as before; the
// first write turns the lists into shards and pieces. Workers of those builds have to be stopped
// before: what they finish afterwards is not found.

const (
	listBatchesRoot = "registry/batches/"
	listCopyRoot    = "registry/datasets/"
)

// listedOrder is the order of a dataset's ingests in a lake of an earlier build.
type listedOrder struct {
	Format    int    `json:"format"`
	DatasetID uint32 `json:"dataset_id"`
	NextSeq   int64  `json:"next_seq"`
	Ingests   []struct {
		Batch string `json:"batch"`
		Ingest
	} `json:"ingests"`
}

func listedKey(dataset uint32) string {
	return fmt.Sprintf("%sdataset_id=%d.json", listBatchesRoot, dataset)
}

func (l *listedOrder) newest() int { return 1 }

func (l *listedOrder) check(key string) error {
	if l.Format != 1 || key != listedKey(l.DatasetID) {
		return codec.Corrupt(key, "document", -1, "an order of ingests in format 1",
			fmt.Sprintf("dataset %d in format %d", l.DatasetID, l.Format))
	}
	return nil
}

// shardOfLists returns a shard with all that the lists of its datasets have. All of it is open, as
// if nothing was settled.
func shardOfLists(ctx context.Context, store blob.Store, h *head, n int) (*shard, error) {
	s := newShard(n)
	for _, d := range h.List {
		if ShardOf(d.ID) != n {
			continue
		}
		l, etag, err := read[listedOrder](ctx, store, listedKey(d.ID))
		if err == nil && etag == "" {
			err = checkUnlisted(ctx, store, d.ID)
		}
		if err != nil {
			return nil, err
		}
		for _, in := range l.Ingests {
			s.Open = append(s.Open, openIngest{d.ID, in.Batch, in.Ingest})
		}
		s.NextSeq = max(s.NextSeq, l.NextSeq)
	}
	return s, nil
}

// checkUnlisted returns a *codec.CorruptError if a dataset without a document has batches.
func checkUnlisted(ctx context.Context, store blob.Store, dataset uint32) error {
	for info, err := range store.List(ctx, fmt.Sprintf("batches/dataset_id=%d/", dataset)) {
		if err != nil {
			return err
		}
		if _, err := store.Stat(ctx, ShardKey(ShardOf(dataset))); !errors.Is(err, blob.ErrNotExist) {
			return err // somebody has turned the lists into shards meanwhile
		}
		return codec.Corrupt(listedKey(dataset), "object", -1, "one that exists, since "+info.Key+" does", "none")
	}
	return nil
}

// leaveLists gives a document of an earlier build the present format. All shards are in the store
// when it returns, as they have to be before the document.
func (h *head) leaveLists(ctx context.Context, store blob.Store) error {
	if err := createShards(ctx, store, func(n int) (*shard, error) { return shardOfLists(ctx, store, h, n) }); err != nil {
		return err
	}
	list := h.List
	*h = head{Format: headFormat, Rules: h.Rules, NextID: h.NextID, ByID: emptyRef(), ByName: emptyRef()}
	return h.set(ctx, store, list)
}

// leaveLists gives the registry of an earlier build the present format. Nothing is written before:
// a shard beside the lists could be lost unseen, since the lists would take its place.
func leaveLists(ctx context.Context, store blob.Store) error {
	h, err := readHead(ctx, store)
	if err != nil || h.Format != listFormat {
		return err
	}
	h, err = updateHead(ctx, store, func(h *head) (bool, error) {
		if h.Format != listFormat {
			return false, nil
		}
		return true, h.leaveLists(ctx, store)
	})
	if err != nil {
		return err
	}
	return keepCopy(ctx, store, h)
}

// createShards writes the shards that are missing.
func createShards(ctx context.Context, store blob.Store, content func(n int) (*shard, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	for n := range Shards {
		g.Go(func() error {
			if _, err := store.Stat(ctx, ShardKey(n)); !errors.Is(err, blob.ErrNotExist) {
				return err
			}
			s, err := content(n)
			if err != nil {
				return err
			}
			data, err := codec.Seal(s)
			if err != nil {
				return err
			}
			_, err = store.Put(ctx, ShardKey(n), data, blob.Condition{IfAbsent: true})
			if err != nil {
				// Another writer was first, or only the reply was lost.
				if _, statErr := store.Stat(ctx, ShardKey(n)); statErr == nil {
					return nil
				}
			}
			return err
		})
	}
	return g.Wait()
}

// removeLists deletes what an earlier build kept for each dataset.
func removeLists(ctx context.Context, store blob.Store) error {
	var keys []string
	for _, root := range []string{listBatchesRoot, listCopyRoot} {
		for info, err := range store.List(ctx, root) {
			if err != nil {
				return err
			}
			if strings.HasSuffix(info.Key, ".json") {
				keys = append(keys, info.Key)
			}
		}
	}
	return store.Delete(ctx, keys...)
}
