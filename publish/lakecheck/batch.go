package lakecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// smallObject is the size up to which an object is read and hashed where otherwise only its
	// size is compared. In an object store that is one request either way.
	smallObject = 1 << 20

	// reads is how many objects of a batch are looked at concurrently.
	reads = 32
)

// Batch checks what a publish of a batch vouches for: the record, the directories of the postings,
// and the size of each part; small parts are hashed. It returns the record. If something is missing
// or damaged, the error is a *postings.DamageError.
func Batch(ctx context.Context, store blob.Store, ref segment.BatchRef) (*lake.Batch, error) {
	b, err := indexbuild.CheckBatch(ctx, store, ref, false)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, p := range b.Parts {
		g.Go(func() error { return postings.Damaged(ref, Object(gctx, store, p.Object, false)) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return b, nil
}

// Source checks a finished batch as Batch does, and returns what has its rows: the batch, or, if
// not all of its own objects are left, a union that is. A compaction leaves the parts of the
// batches of a union to garbage collections; a batch that was retired since may come back. The
// record of a batch that a union has is that of the union, as far as the batch is concerned. Of
// several unions it takes the one that lacks the fewest rows because of takedowns: what a takedown
// hides stays hidden, and what it hid before it was lifted comes back if any union still has it.
// Unions in not are passed over.
func Source(
	ctx context.Context, store blob.Store, ref segment.BatchRef, not ...segment.BatchRef,
) (segment.BatchRef, *lake.Batch, error) {
	record, err := Batch(ctx, store, ref)
	var d *postings.DamageError
	if !errors.As(err, &d) {
		return ref, record, err
	}
	best, dropped, found := ref, int64(0), (*lake.Batch)(nil)
	for info, listErr := range store.List(ctx, lake.UnionPrefix(ref.DatasetID)) {
		if listErr != nil {
			return ref, nil, listErr
		}
		folder, file := path.Split(info.Key)
		digest, ok := strings.CutSuffix(file, ".json")
		union := segment.BatchRef{DatasetID: ref.DatasetID, Batch: path.Base(folder), Digest: digest}
		if !ok || union.Key() != info.Key || slices.Contains(not, union) {
			continue
		}
		u, unionErr := Batch(ctx, store, union)
		switch {
		case errors.As(unionErr, &d):
			continue
		case unionErr != nil:
			return ref, nil, unionErr
		}
		for _, m := range u.Members {
			if m.Batch == ref.Batch && m.Digest == ref.Digest && (found == nil || m.Dropped < dropped) {
				best, dropped = union, m.Dropped
				found = &lake.Batch{
					Format: lake.BatchFormat, DatasetID: ref.DatasetID, Batch: ref.Batch, Rows: m.Rows,
					CanonicalForm: u.CanonicalForm, PublicSuffix: u.PublicSuffix,
				}
			}
		}
		if found != nil && dropped == 0 {
			break
		}
	}
	if found == nil {
		return ref, nil, err
	}
	return best, found, nil
}

// Object checks that an object exists with its size. If whole is set, and for a small object
// always, it checks the hash too. A *codec.CorruptError says what is wrong.
func Object(ctx context.Context, store blob.Store, o lake.Object, whole bool) error {
	_, err := codec.Confirm(func() (struct{}, error) { return struct{}{}, object(ctx, store, o, whole) })
	return err
}

func object(ctx context.Context, store blob.Store, o lake.Object, whole bool) error {
	if !whole && o.Bytes > smallObject {
		info, err := store.Stat(ctx, o.Key)
		if err == nil && info.Size != o.Bytes {
			err = codec.Corrupt(o.Key, "size", -1, o.Bytes, info.Size)
		}
		return missing(o.Key, err)
	}
	r, err := store.Open(ctx, o.Key, 0, -1)
	if err != nil {
		return missing(o.Key, err)
	}
	h := xxhash.New()
	n, err := io.Copy(h, r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if n != o.Bytes {
		return codec.Corrupt(o.Key, "size", -1, o.Bytes, n)
	}
	if sum := fmt.Sprintf("%016x", h.Sum64()); sum != o.XXH64 {
		return codec.Corrupt(o.Key, "file", -1, "xxh64 "+o.XXH64, sum)
	}
	return nil
}

// missing turns blob.ErrNotExist, of an object that must exist, into a *codec.CorruptError.
func missing(key string, err error) error {
	if errors.Is(err, blob.ErrNotExist) {
		return codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	return err
}

// Reason says why a batch cannot be published: which of its objects is missing or damaged, and the
// command that mends it. Err is the error of Batch or of a build.
func Reason(ctx context.Context, store blob.Store, ref segment.BatchRef, err error) string {
	var damage *postings.DamageError
	if errors.As(err, &damage) {
		err = damage.Err // without the batch, which the caller names
	}
	if errors.Is(err, codec.ErrCorrupt) {
		return lake.Explain(store.URL(), err)
	}
	// A missing or truncated object is an error of the store, which does not tell what kind it is.
	data, _, getErr := store.Get(ctx, ref.Key())
	if errors.Is(getErr, blob.ErrNotExist) {
		return lake.Explain(store.URL(), missing(ref.Key(), getErr))
	}
	if b, decodeErr := lake.DecodeBatch(data, ref.Key()); decodeErr == nil && getErr == nil {
		for _, o := range b.Postings {
			if err := Object(ctx, store, o.Object, true); errors.Is(err, codec.ErrCorrupt) {
				return lake.Explain(store.URL(), err)
			}
		}
	}
	return lake.Explain(store.URL(), err)
}
