package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/registry"
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
// those that were found lost; with them, pieces below them may have been lost. If the batches
// cannot be told as v told them, the error is a *codec.CorruptError about v.
func mendBatches(
	ctx context.Context, store blob.Store, v *manifest.Version, s manifest.Segment,
) (lost []string, err error) {
	lost, err = damagedPieces(v.BatchPieces(ctx, s.ID))
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	return lost, v.RestoreBatches(ctx, store, s.ID, coveredBatches(ctx, store, v, s))
}

// coveredBatches yields the batches that a segment lists, and in the place of a union those of the
// union, with the packs that the registry names. Those that are dead in v are left out.
func coveredBatches(
	ctx context.Context, store blob.Store, v *manifest.Version, s manifest.Segment,
) iter.Seq2[manifest.Batch, error] {
	return func(yield func(manifest.Batch, error) bool) {
		dead := map[manifest.BatchName]bool{}
		for b, err := range v.DeadIn(ctx, s.ID) {
			if err != nil {
				yield(manifest.Batch{}, err)
				return
			}
			dead[b.BatchName] = true
		}
		var batches []manifest.Batch // of a dataset
		flush := func() bool {
			slices.SortFunc(batches, func(a, b manifest.Batch) int { return manifest.CompareNames(a.BatchName, b.BatchName) })
			var ingests map[string][]registry.Ingest
			var err error
			if len(batches) > 0 {
				ingests, err = registry.Ingests(ctx, store, batches[0].DatasetID)
			}
			for _, live := range batches {
				for _, i := range ingests[live.Batch] {
					if i.Digest == live.Digest {
						live.Pack = i.Pack
					}
				}
				if !yield(live, err) || err != nil {
					return false
				}
			}
			batches = batches[:0]
			return true
		}
		for b, err := range segment.ReadBatches(ctx, store, lakecheck.SegmentRef(s)) {
			if err == nil && len(batches) > 0 && batches[0].DatasetID != b.DatasetID && !flush() {
				return
			}
			live := []manifest.Batch{{
				BatchName: manifest.BatchName{DatasetID: b.DatasetID, Batch: b.Batch},
				Digest:    b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes,
			}}
			if err == nil && lake.IsUnionName(b.Batch) {
				live, err = membersOf(ctx, store, live[0])
			}
			live = withoutDead(live, dead)
			if err != nil {
				yield(manifest.Batch{}, err)
				return
			}
			batches = append(batches, live...)
		}
		flush()
	}
}

// withoutDead returns the batches, of one union or one alone, that are not dead. What is counted
// once for a union is counted for the first.
func withoutDead(batches []manifest.Batch, dead map[manifest.BatchName]bool) []manifest.Batch {
	var parts, bytes int64
	for i := range batches {
		parts, bytes = parts+batches[i].Parts, bytes+batches[i].Bytes
		batches[i].Parts, batches[i].Bytes = 0, 0
	}
	batches = slices.DeleteFunc(batches, func(b manifest.Batch) bool { return dead[b.BatchName] })
	if len(batches) > 0 {
		batches[0].Parts, batches[0].Bytes = parts, bytes
	}
	return batches
}

// membersOf returns the batches of a union, which is given as a batch, as a version has them.
func membersOf(ctx context.Context, store blob.Store, union manifest.Batch) (batches []manifest.Batch, err error) {
	data, _, err := store.Get(ctx, union.Record())
	if err != nil {
		return nil, err
	}
	record, err := lake.DecodeBatch(data, union.Record())
	if err != nil {
		return nil, err
	}
	for i, m := range record.Members {
		b := manifest.Batch{
			BatchName: manifest.BatchName{DatasetID: union.DatasetID, Batch: m.Batch},
			Digest:    m.Digest, Rows: m.Rows, Union: union.Batch, UnionDigest: union.Digest,
		}
		if i == 0 {
			b.Parts, b.Bytes = union.Parts, union.Bytes
		}
		batches = append(batches, b)
	}
	return batches, nil
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
	registered, err := registry.Datasets(ctx, store)
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
	v, recoverErr := published.Current(ctx, store)
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

// pieces mends the pieces of a version. If they cannot be told as the version told them and it is
// the current one, next is the version that takes its place.
func (r *rebuilder) pieces(v *manifest.Version) (next *manifest.Version, err error) {
	like := same(v)
	like.Batches = map[string]iter.Seq2[manifest.Batch, error]{}
	var anew []string // lost pieces whose content has to be told anew
	note := func(lost []string, err error, tellAnew func() error) error {
		var other *codec.CorruptError
		switch {
		case err == nil:
			addLines(&r.out.Pieces, lost...)
			return nil
		case !r.earlier && errors.As(err, &other) && other.File == manifest.VersionKey(v.ID):
			anew = append(anew, lost...)
			return r.unmended(tellAnew())
		}
		for _, key := range lost {
			if err := r.unmended(codec.Corrupt(key, "object", -1, "what version "+v.ID+" names", err)); err != nil {
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
		lost, err := mendBatches(r.ctx, r.store, v, s)
		if err := note(lost, err, func() error {
			like.Batches[s.ID] = coveredBatches(r.ctx, r.store, v, s)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	lost, err := mendDatasets(r.ctx, r.store, v)
	if err := note(lost, err, func() (err error) {
		like.Anew = true
		like.Datasets, err = registeredDatasets(r.ctx, r.store)
		return err
	}); err != nil || len(anew) == 0 {
		return nil, err
	}
	return r.tellAnew(v, like, anew)
}

// tellAnew commits a version like v whose lost pieces are told by the registry, which tells other
// packs or descriptions by now.
func (r *rebuilder) tellAnew(
	v *manifest.Version, like *manifest.Next, lost []string,
) (next *manifest.Version, err error) {
	c := manifest.Commit{
		ID:      lake.Digest(fmt.Appendf(nil, "tell the pieces %q of version %s anew", lost, v.ID)),
		BuiltBy: builder(),
		Build: func(_ context.Context, parent *manifest.Version) (*manifest.Next, error) {
			if parent == nil || parent.ID != v.ID {
				return nil, errStale
			}
			return like, nil
		},
	}
	made, err := c.Apply(r.ctx, r.store)
	if errors.Is(err, errStale) {
		return nil, nil // another publish came first
	}
	if err != nil {
		return nil, r.unmended(err)
	}
	for _, key := range lost {
		addLines(&r.out.Lost, fmt.Sprintf("%s: it told datasets or batches as they were registered when version %s was made; "+
			"version %s tells them as they are registered now", key, v.ID, made.Version.ID))
	}
	return published.Current(r.ctx, r.store)
}
