package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish/lakecheck"
)

// The pieces of a version are kept elsewhere too: a segment lists its batches, the registry
// describes the datasets. So lost pieces keep no lake from being published: a version follows that
// has them from there.

// withPieces calls do. If do fails because pieces of the current version are lost, it makes a
// version without them and calls do again, with the keys of the pieces.
func withPieces(ctx context.Context, store blob.Store, do func(lost []string) error) error {
	err := do(nil)
	var c *codec.CorruptError
	if !errors.As(err, &c) || !strings.HasPrefix(c.File, catalog.VersionPiecesRoot) {
		return err
	}
	lost, retellErr := retell(ctx, store)
	if retellErr != nil {
		return fmt.Errorf("%w; it cannot be told again: %w", err, retellErr)
	}
	return do(lost)
}

// retell makes a version like the current one whose lost pieces are told again, by segments and by
// the registry. It returns the keys of the lost pieces.
func retell(ctx context.Context, store blob.Store) (lost []string, err error) {
	found, err := catalog.Recover(ctx, store)
	if err != nil || found.Current == nil {
		return nil, err
	}
	v := found.Current
	next := &catalog.Next{
		CanonicalForm: v.CanonicalForm, PublicSuffix: v.PublicSuffix, Segments: slices.Clone(v.Segments),
		Batches: map[string]iter.Seq2[catalog.Batch, error]{},
	}
	for _, s := range v.Segments {
		keys, err := damagedPieces(v.BatchPieces(ctx, s.ID))
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			dead := map[catalog.BatchName]bool{}
			for b, err := range v.DeadIn(ctx, s.ID) {
				if err != nil {
					return nil, err
				}
				dead[b.BatchName] = true
			}
			next.Batches[s.ID] = CoveredBatches(ctx, store, s, dead)
			lost = append(lost, keys...)
		}
	}
	gone, keys, err := v.SoundGone(ctx)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		next.Gone, next.GoneAnew = gone, true
		lost = append(lost, keys...)
	}
	keys, err = damagedPieces(v.DatasetPieces(ctx))
	if err == nil && len(keys) > 0 {
		next.Anew = true
		next.Datasets, err = registeredDatasets(ctx, store)
		lost = append(lost, keys...)
	}
	if err != nil || len(lost) == 0 {
		return nil, err
	}
	c := catalog.Commit{
		ID:      lake.Digest(fmt.Appendf(nil, "tell the pieces %q of version %s again", lost, v.ID)),
		BuiltBy: builder(),
		Build: func(_ context.Context, parent *catalog.Version) (*catalog.Next, error) {
			if parent == nil || parent.ID != v.ID {
				return nil, errStale
			}
			return next, nil
		},
	}
	if _, err := c.Apply(ctx, store); err != nil && !errors.Is(err, errStale) { // else another publish came first
		return nil, err
	}
	return lost, nil
}

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

// CoveredBatches yields the batches that a segment lists, and in the place of a union those of the
// union, without the dead ones. Starts are not known.
func CoveredBatches(
	ctx context.Context, store blob.Store, s catalog.Segment, dead map[catalog.BatchName]bool,
) iter.Seq2[catalog.Batch, error] {
	return func(yield func(catalog.Batch, error) bool) {
		var batches []catalog.Batch // of a dataset
		flush := func() bool {
			slices.SortFunc(batches, func(a, b catalog.Batch) int { return catalog.CompareNames(a.BatchName, b.BatchName) })
			for _, live := range batches {
				if !yield(live, nil) {
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
			live := []catalog.Batch{{
				BatchName: catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch},
				Digest:    b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes,
			}}
			if err == nil && lake.IsUnionName(b.Batch) {
				live, err = membersOf(ctx, store, live[0])
			}
			live = withoutDead(live, dead)
			if err != nil {
				yield(catalog.Batch{}, err)
				return
			}
			batches = append(batches, live...)
		}
		flush()
	}
}

// withoutDead returns the batches, of one union or one alone, that are not dead. What is counted
// once for a union is counted for the first.
func withoutDead(batches []catalog.Batch, dead map[catalog.BatchName]bool) []catalog.Batch {
	var parts, bytes int64
	for i := range batches {
		parts, bytes = parts+batches[i].Parts, bytes+batches[i].Bytes
		batches[i].Parts, batches[i].Bytes = 0, 0
	}
	batches = slices.DeleteFunc(batches, func(b catalog.Batch) bool { return dead[b.BatchName] })
	if len(batches) > 0 {
		batches[0].Parts, batches[0].Bytes = parts, bytes
	}
	return batches
}

// membersOf returns the batches of a union, which is given as a batch, as a version has them.
func membersOf(ctx context.Context, store blob.Store, union catalog.Batch) (batches []catalog.Batch, err error) {
	data, _, err := store.Get(ctx, union.Record())
	if err != nil {
		return nil, err
	}
	record, err := lake.DecodeBatch(data, union.Record())
	if err != nil {
		return nil, err
	}
	for i, m := range record.Members {
		b := catalog.Batch{
			BatchName: catalog.BatchName{DatasetID: union.DatasetID, Batch: m.Batch},
			Digest:    m.Digest, Rows: m.Rows, Union: union.Batch, UnionDigest: union.Digest,
		}
		if i == 0 {
			b.Parts, b.Bytes = union.Parts, union.Bytes
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// registeredDatasets returns the descriptions of all registered datasets.
func registeredDatasets(ctx context.Context, store blob.Store) ([]catalog.Dataset, error) {
	registered, err := catalog.Datasets(ctx, store)
	if err != nil {
		return nil, err
	}
	all := make([]catalog.Dataset, 0, len(registered))
	for _, d := range registered {
		all = append(all, described(d))
	}
	return all, nil
}

// described returns the description of a dataset in a version.
func described(d lake.Dataset) catalog.Dataset {
	return catalog.Dataset{ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence}
}
