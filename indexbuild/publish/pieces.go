package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/urlake/urlake/indexbuild/published"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
)

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
		if _, mendErr := published.MendBatches(ctx, store, v, s); mendErr != nil {
			return fmt.Errorf("%w; it cannot be made again: %w", err, mendErr)
		}
	}
	if _, mendErr := published.MendDatasets(ctx, store, v); mendErr != nil {
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
		lost, err := published.MendBatches(r.ctx, r.store, v, s)
		if err := note(lost, err, func() error {
			like.Batches[s.ID] = published.CoveredBatches(r.ctx, r.store, v, s)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	lost, err := published.MendDatasets(r.ctx, r.store, v)
	if err := note(lost, err, func() (err error) {
		like.Anew = true
		like.Datasets, err = published.RegisteredDatasets(r.ctx, r.store)
		return err
	}); err != nil || len(anew) == 0 {
		return nil, err
	}
	return r.tellAnew(v, like, anew)
}

// tellAnew commits a version like v whose lost pieces are told by the registry, which tells other
// descriptions by now.
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
