package catalog

import (
	"context"
	"iter"

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

// GonePieces is DatasetPieces for what is gone.
func (v *Version) GonePieces(ctx context.Context) iter.Seq2[string, error] {
	if v == nil || v.gone == nil {
		return func(func(string, error) bool) {}
	}
	return v.gone.Pieces(ctx)
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
		maps := []*pieces.Map{v.datasets, v.gone}
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
