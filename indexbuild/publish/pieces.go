package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

// The pieces of a version are kept elsewhere too: a segment lists its batches, the registry
// describes the datasets. Pieces follow from their content alone, so they get their bytes back.

// damagedPieces returns the keys of those of a map's pieces that are missing or damaged.
func damagedPieces(pieces iter.Seq2[string, error]) (keys []string, err error) {
	for key, err := range pieces {
		switch {
		case errors.Is(err, codec.ErrCorrupt):
			keys = append(keys, key)
		case err != nil:
			return nil, err
		}
	}
	return keys, nil
}

// mendBatches writes the lost pieces of the batches of a segment of v again. It returns the keys of
// those that were found lost; with them, pieces below them may have been lost.
func mendBatches(
	ctx context.Context, store blob.Store, v *manifest.Version, s manifest.Segment,
) (lost []string, err error) {
	lost, err = damagedPieces(v.BatchPieces(ctx, s.ID))
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	return lost, v.RestoreBatches(ctx, store, s.ID, func(yield func(manifest.Batch, error) bool) {
		for b, err := range segment.ReadBatches(ctx, store, lakecheck.SegmentRef(s)) {
			name := manifest.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}
			live := manifest.Batch{BatchName: name, Digest: b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes}
			if !yield(live, err) || err != nil {
				return
			}
		}
	})
}

// mendDatasets writes the lost pieces of the datasets of v again, as mendBatches does for batches.
func mendDatasets(ctx context.Context, store blob.Store, v *manifest.Version) (lost []string, err error) {
	lost, err = damagedPieces(v.DatasetPieces(ctx))
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	described, err := registeredDatasets(ctx, store)
	if err != nil {
		return lost, err
	}
	return lost, v.RestoreDatasets(ctx, store, described)
}

// registeredDatasets returns the descriptions of all registered datasets.
func registeredDatasets(ctx context.Context, store blob.Store) ([]manifest.Dataset, error) {
	registered, err := lake.Registry(ctx, store)
	if err != nil {
		return nil, err
	}
	all := make([]manifest.Dataset, 0, len(registered))
	for _, d := range registered {
		all = append(all, described(d))
	}
	return all, nil
}

// withPieces calls do. If do fails because pieces of the current version are lost, it writes them
// again and calls do once more, so that lost pieces do not keep a lake from being published.
func withPieces(ctx context.Context, store blob.Store, do func() error) error {
	err := do()
	var c *codec.CorruptError
	if !errors.As(err, &c) || !strings.HasPrefix(c.File, manifest.PiecesRoot) {
		return err
	}
	v, recoverErr := currentVersion(ctx, store)
	if recoverErr != nil || v == nil {
		return errors.Join(err, recoverErr)
	}
	for _, s := range v.Segments {
		if _, mendErr := mendBatches(ctx, store, v, s); mendErr != nil {
			return fmt.Errorf("%w; it cannot be made again: %w", err, mendErr)
		}
	}
	if _, mendErr := mendDatasets(ctx, store, v); mendErr != nil {
		return fmt.Errorf("%w; it cannot be made again: %w", err, mendErr)
	}
	return do()
}

// pieces mends the pieces of a version.
func (r *rebuilder) pieces(v *manifest.Version) error {
	note := func(lost []string, err error) error {
		if err == nil {
			addLines(&r.out.Pieces, lost...)
			return nil
		}
		for _, key := range lost {
			err := codec.Corrupt(key, "object", -1, "what version "+v.ID+" names", err)
			if err := r.unmended(err); err != nil {
				return err
			}
		}
		return r.unmended(err)
	}
	for _, s := range v.Segments {
		if r.mended[s.BatchPieces.Root] {
			continue
		}
		if r.mended == nil {
			r.mended = map[string]bool{}
		}
		r.mended[s.BatchPieces.Root] = true
		if err := note(mendBatches(r.ctx, r.store, v, s)); err != nil {
			return err
		}
	}
	lost, err := mendDatasets(r.ctx, r.store, v)
	var other *codec.CorruptError
	if !r.earlier && errors.As(err, &other) && other.File == manifest.VersionKey(v.ID) {
		return r.describeAnew(v, lost)
	}
	return note(lost, err)
}

// describeAnew commits a version like v with the descriptions of datasets that the registry has,
// since those of v are lost and the registry has others by now.
func (r *rebuilder) describeAnew(v *manifest.Version, lost []string) error {
	described, err := registeredDatasets(r.ctx, r.store)
	if err != nil {
		return r.unmended(err)
	}
	c := manifest.Commit{
		ID:      lake.Digest(fmt.Appendf(nil, "describe the datasets of version %s anew", v.ID)),
		BuiltBy: builder(),
		Build: func(_ context.Context, parent *manifest.Version) (*manifest.Next, error) {
			if parent == nil || parent.ID != v.ID {
				return nil, errStale
			}
			next := same(parent)
			next.Datasets, next.Anew = described, true
			return next, nil
		},
	}
	made, err := c.Apply(r.ctx, r.store)
	if errors.Is(err, errStale) {
		return nil // another publish came first
	}
	if err != nil {
		return err
	}
	for _, key := range lost {
		addLines(&r.out.Lost, fmt.Sprintf("%s: it described datasets as they were when version %s was made; version %s "+
			"describes them as the registry does", key, v.ID, made.Version.ID))
	}
	return nil
}
