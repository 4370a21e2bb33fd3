package publish

import (
	"context"
	"errors"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/pack"
	"github.com/urlake/urlake/lake/registry"
)

// withPacks returns a store in which the objects of batches can be read that packs hold. Every step
// that reads records or postings begins with it.
func withPacks(store blob.Store, batches []planned) blob.Store {
	view := pack.NewView(store)
	addPlanned(view, batches)
	return view
}

func addPlanned(view *pack.View, batches []planned) {
	for i := range batches {
		view.Add(batches[i].DatasetID, batches[i].Batch, batches[i].Pack)
	}
}

// addLive adds the packs of all batches that a version needs.
func addLive(ctx context.Context, view *pack.View, v *manifest.Version) error {
	for b, err := range v.Needed(ctx) {
		if err != nil {
			return err
		}
		view.Add(b.DatasetID, b.Batch, b.Pack)
	}
	return nil
}

// repack names for the batches that the plan carries over from an older segment the packs of their
// last ingest: the same content may have been ingested again, because the earlier pack is damaged.
func (p *plan) repack(ctx context.Context, store blob.Store) error {
	var ids []registry.BatchID
	carried := func(do func(b *planned)) {
		set := func(batches []planned) {
			for i := range batches {
				if b := &batches[i]; !b.New && b.Pack != "" {
					do(b)
				}
			}
		}
		set(p.Batches)
		for i := range p.Again {
			set(p.Again[i].Batches)
		}
	}
	carried(func(b *planned) { ids = append(ids, registry.BatchID{DatasetID: b.DatasetID, Batch: b.Batch}) })
	if len(ids) == 0 {
		return nil
	}
	ingests, err := registry.IngestsOf(ctx, store, ids)
	if errors.Is(err, codec.ErrCorrupt) {
		return nil // the packs that the version names have to do
	}
	carried(func(b *planned) {
		for _, in := range ingests[registry.BatchID{DatasetID: b.DatasetID, Batch: b.Batch}] {
			if in.Digest == b.Digest {
				b.Pack = in.Pack
			}
		}
	})
	return err
}

// withPlanned returns the store of a step after Build. The plan is gone, and nothing is left to do,
// if another worker has finished the publish meanwhile.
func withPlanned(ctx context.Context, store blob.Store, planKey string) (in blob.Store, gone bool, err error) {
	if planKey == "" { // of a publish that began with an earlier build of urlake, without packs
		return store, false, nil
	}
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		if gone = errors.Is(err, blob.ErrNotExist); gone {
			err = nil
		}
		return nil, gone, err
	}
	return withPacks(store, p.all()), false, nil
}
