package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/trash"
)

// document is a pointer to the decoded form of a registry document.
type document[T any] interface {
	*T
	// check returns a *codec.CorruptError, which names key, if a decoded document is not one of
	// this key.
	check(key string) error
	// newest is the newest format that this program knows.
	newest() int
}

// live is a document that makes objects live.
type live[T any] interface {
	document[T]
	// sweep is the number of the last sweep of a garbage collection that the document names.
	sweep() uint64
}

// read returns a registry document and its ETag, also that of a damaged one. If there is none, they
// are zero and "".
func read[T any, D document[T]](ctx context.Context, store blob.Store, key string) (doc D, etag string, err error) {
	doc = new(T)
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return doc, "", nil
	}
	if err != nil {
		return doc, "", err
	}
	if err := codec.Unseal(data, key, doc.newest(), doc); err != nil {
		return doc, info.ETag, err
	}
	return doc, info.ETag, doc.check(key)
}

const (
	// updateRounds is the maximum number of attempts of an update. An attempt fails only because
	// another writer's has succeeded.
	updateRounds = 200
	// updatePause is the maximum pause after the first failed attempt. It grows with the attempts
	// to at most 32 times that, to spread the writers.
	updatePause = 2 * time.Millisecond
)

// update changes a document by conditional put, and returns it as it is then. Change reports
// whether it changed the document. After every put that did not plainly succeed the document is
// read and change is called again; it finds its own change there if only the reply was lost.
// Missing returns what takes the place of a document that is not there.
//
// Before that it waits for the end of the sweep that the document names (package trash): what the
// new document refers to, pieces among it, is not deleted between here and the put.
func update[T any, D live[T]](
	ctx context.Context, store blob.Store, key string, missing func() (D, error), change func(D) (bool, error),
) (D, error) {
	return replace(ctx, store, key, missing, func(doc D) (bool, error) {
		if err := trash.Await(ctx, store, doc.sweep()); err != nil {
			return false, err
		}
		return change(doc)
	})
}

// replace is update without regard to sweeps.
func replace[T any, D document[T]](
	ctx context.Context, store blob.Store, key string, missing func() (D, error), change func(D) (bool, error),
) (D, error) {
	var failure error
	for round := range updateRounds {
		doc, etag, err := read[T, D](ctx, store, key)
		if err == nil && etag == "" {
			doc, err = missing()
		}
		if err != nil {
			return nil, err
		}
		changed, err := change(doc)
		if errors.Is(err, codec.ErrCorrupt) {
			// Pieces of a document that was replaced meanwhile may have been collected.
			if info, statErr := store.Stat(ctx, key); statErr == nil && etag != "" && info.ETag != etag {
				continue
			}
		}
		if err != nil || !changed {
			return doc, err
		}
		if failure != nil {
			return nil, failure
		}
		data, err := codec.Seal(doc)
		if err != nil {
			return nil, err
		}
		cond := blob.Condition{IfMatch: etag}
		if etag == "" {
			cond = blob.Condition{IfAbsent: true}
		}
		if _, err = store.Put(ctx, key, data, cond); err == nil {
			return doc, nil
		}
		if !errors.Is(err, blob.ErrPrecondition) {
			// The put may have taken effect. If the next round finds that it has not, this is the
			// error to report.
			failure = err
			continue
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(rand.N(updatePause * time.Duration(min(round+1, 32)))):
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrBusy, key)
}

// CheckFormats returns a *codec.FormatError if a newer urlake has written one of the documents that
// changes of the registry read: its datasets, their copy, the ledger, and the last sweep. What
// begins with other writes calls it first, so that it changes nothing of such a lake. Damage is
// left to the change.
func CheckFormats(ctx context.Context, store blob.Store) error {
	checks := []func() error{
		func() error { return trash.CheckFormat(ctx, store) },
		func() error { return formatOf[head](ctx, store, lake.RegistryKey) },
		func() error { return formatOf[head](ctx, store, CopyKey) },
	}
	for n := range Shards {
		checks = append(checks, func() error { return formatOf[shard](ctx, store, ShardKey(n)) })
	}
	var g errgroup.Group
	for _, check := range checks {
		g.Go(check)
	}
	return g.Wait()
}

// formatOf returns the error of reading a document if it is a *codec.FormatError.
func formatOf[T any, D document[T]](ctx context.Context, store blob.Store, key string) error {
	if _, _, err := read[T, D](ctx, store, key); codec.IsFormat(err) {
		return err
	}
	return nil
}

// manifestKey is manifest.Key, which this package does not import.
const manifestKey = "index/manifest.json"

// CheckPresent returns a *codec.CorruptError if the registry document at key is missing although
// the lake has objects that are written only after it. A new lake has no document, which is no
// error. Key is lake.RegistryKey or a ShardKey.
func CheckPresent(ctx context.Context, store blob.Store, key string) error {
	witness := ""
	if key == lake.RegistryKey {
		for _, prefix := range []string{manifestKey, "index/versions/", CopyKey, "batches/"} {
			for info, err := range store.List(ctx, prefix) {
				if err != nil {
					return err
				}
				witness = info.Key
				break
			}
			if witness != "" {
				break
			}
		}
	} else {
		h, err := readHead(ctx, store)
		if err != nil {
			return err
		}
		if h.Format != 0 { // all shards are written before
			witness = lake.RegistryKey
		}
	}
	if witness == "" {
		return nil
	}
	// The document may have been written since the caller looked for it, and the witness after
	// that.
	if _, err := store.Stat(ctx, key); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(key, "object", -1, "one that exists, since "+witness+" does", "none")
}
