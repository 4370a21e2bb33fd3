package manifest

import (
	"context"
	"iter"
	"slices"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// DatasetPieces yields the key of every piece of the version's datasets, with the
// *codec.CorruptError of one that is missing or damaged, below which nothing is known. Another
// error ends it.
func (v *Version) DatasetPieces(ctx context.Context) iter.Seq2[string, error] {
	if v == nil || v.datasets == nil {
		return func(func(string, error) bool) {}
	}
	return v.datasets.Pieces(ctx)
}

// BatchPieces is DatasetPieces for the batches of a segment of the version.
func (v *Version) BatchPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	if v == nil || v.batches[segment] == nil {
		return func(func(string, error) bool) {}
	}
	return v.batches[segment].Pieces(ctx)
}

// DeadPieces is DatasetPieces for the dead batches of a segment of the version.
func (v *Version) DeadPieces(ctx context.Context, segment string) iter.Seq2[string, error] {
	if v == nil || v.dead[segment] == nil {
		return func(func(string, error) bool) {}
	}
	return v.dead[segment].Pieces(ctx)
}

// PieceNames yields the key of every piece of the version, without reading the leaves of its maps.
// An error, also that of a damaged piece, is the last thing that it yields.
func (v *Version) PieceNames(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		maps := []*pieces.Map{v.datasets}
		for i := range v.Segments {
			id := v.Segments[i].ID
			maps = append(maps, v.batches[id], v.dead[id])
		}
		for _, m := range maps {
			if m == nil { // of no dead batches
				continue
			}
			for key, err := range m.Names(ctx) {
				if !yield(key, err) || err != nil {
					return
				}
			}
		}
	}
}

// RestoreBatches writes the pieces of the batches of a segment again. Batches are those that the
// version had in it, by dataset and name; others are a *codec.CorruptError.
func (v *Version) RestoreBatches(
	ctx context.Context, store blob.Store, segment string, batches iter.Seq2[Batch, error],
) error {
	m, _, err := buildBatches(ctx, store, batches, nil)
	if err != nil {
		return err
	}
	return v.restored(v.batches[segment].Ref(), m.Ref(), "batches of segment "+segment)
}

// RestoreDatasets writes the pieces of the version's datasets again. They are described by
// described, in which those without live batches are left out; the counts are those of the batches,
// which must be intact. If a description differs from the one that the version had, the pieces are
// others, and the error is a *codec.CorruptError.
func (v *Version) RestoreDatasets(ctx context.Context, store blob.Store, described []Dataset) error {
	n := Next{Datasets: described, Anew: true}
	next := &Version{Segments: slices.Clone(v.Segments), batches: v.batches, dead: v.dead}
	if err := n.describe(ctx, store, v, next, map[uint32]*Dataset{}); err != nil {
		return err
	}
	return v.restored(v.datasets.Ref(), next.datasets.Ref(), "datasets")
}

// restored compares pieces with those that the version has.
func (v *Version) restored(want, got pieces.Ref, section string) error {
	if want != got {
		return codec.Corrupt(VersionKey(v.ID), section, -1, "pieces of "+want.Root, "those of "+got.Root)
	}
	return nil
}
