package publish

import (
	"context"
	"errors"
	"path"
	"strings"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
)

// A garbage collection may run beside a publish; package lake/lease says how the two agree. Nothing
// is deleted between two manifests that name the same sweep. So if the manifest that a commit is
// about to replace names the sweep that it named when the plan was made, everything that the plan
// relies on is there. Else the commit looks.

// uncollected returns errStale if a sweep since the plan was made may have deleted what the plan's
// version is to have.
func (p *plan) uncollected(ctx context.Context, store blob.Store, swept uint64, built *Built) error {
	if swept == p.Swept {
		return nil
	}
	for _, ref := range built.Segments {
		if err := complete(ctx, store, ref); err != nil {
			return err
		}
	}
	if err := tablesThere(ctx, store, built.Dead); err != nil {
		return err
	}
	// Batches are there: what waits is deleted only after a version has it, and what moves is named
	// by the list of moves in staging.
	return nil
}

// complete returns errStale unless all files of a segment are there.
func complete(ctx context.Context, store blob.Store, ref segment.Ref) error {
	info, err := segment.ReadInfo(ctx, store, ref)
	if errors.Is(err, codec.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
		return errStale
	}
	if err != nil {
		return err
	}
	found := map[string]int64{}
	for o, err := range store.List(ctx, segment.Prefix(ref.ID)) {
		if err != nil {
			return err
		}
		found[strings.TrimPrefix(o.Key, segment.Prefix(ref.ID))] = o.Size
	}
	for _, f := range info.Files {
		if size, ok := found[f.Name]; !ok || size != f.Bytes {
			return errStale
		}
	}
	return nil
}

// Working is what publishes that are under way work on.
type Working struct {
	// Batches are those of their plans, also if a later ingest has finished by now.
	Batches []segment.BatchRef
	// Moving are batches that get another record under other rules.
	Moving []catalog.BatchName
	// Segments are those that they build.
	Segments []string
}

// UnderWay returns what the plans in the staging of all runs name. A publish that ends meanwhile
// may be missing.
func UnderWay(ctx context.Context, store blob.Store) (*Working, error) {
	w := &Working{}
	for info, err := range store.List(ctx, "staging/") {
		if err != nil {
			return nil, err
		}
		dir, name := path.Split(info.Key)
		if dir != lake.StagingPrefix(path.Base(dir)) || info.Key == damageKey(dir) {
			continue // no plan, but what a step has done, or at what it died
		}
		switch {
		case strings.HasPrefix(name, "publish-") && strings.HasSuffix(name, ".json"):
			p, _, err := readPlan(ctx, store, info.Key)
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			w.add(p)
		case strings.HasPrefix(name, "rewrite-") && strings.HasSuffix(name, ".json"):
			if err := w.rewrites(ctx, store, info.Key); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// gone reports whether a document of staging was removed meanwhile, or is damaged, so that nobody
// can go on with it.
func gone(err error) bool {
	return errors.Is(err, blob.ErrNotExist) || codec.IsUnsealed(err)
}

func (w *Working) add(p *plan) {
	for i := range p.Segments {
		all := refs(p.Segments[i].Batches)
		for _, b := range p.Segments[i].Batches {
			w.Batches = append(w.Batches, segment.BatchRef{
				DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest,
			})
		}
		for _, ref := range all {
			if lake.IsUnionName(ref.Batch) {
				w.Batches = append(w.Batches, segment.BatchRef{DatasetID: ref.DatasetID, Batch: ref.Batch, Digest: ref.Digest})
			}
		}
		if len(all) > 0 && segment.SortBatches(all) == nil {
			w.Segments = append(w.Segments, segment.ID(all, ""))
		}
	}
}
