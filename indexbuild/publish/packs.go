package publish

import (
	"context"
	"errors"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/pack"
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

// addLive adds the packs of all batches of a version.
func addLive(ctx context.Context, view *pack.View, v *manifest.Version) error {
	for b, err := range v.Batches(ctx) {
		if err != nil {
			return err
		}
		view.Add(b.DatasetID, b.Batch, b.Pack)
	}
	return nil
}

// repack names for the batches that the plan carries over from an older segment the packs of their
// last ingest. They differ from those of the version if the batch was ingested again with the same
// content, e.g. because its pack was lost.
func (p *plan) repack(finished []planned) {
	type name struct {
		dataset uint32
		batch   string
	}
	last := make(map[name]*planned, len(finished))
	for i := range finished {
		last[name{finished[i].DatasetID, finished[i].Batch}] = &finished[i]
	}
	set := func(batches []planned) {
		for i := range batches {
			b := &batches[i]
			if f := last[name{b.DatasetID, b.Batch}]; f != nil && !b.New && f.Digest == b.Digest {
				b.Pack = f.Pack
			}
		}
	}
	set(p.Batches)
	for i := range p.Again {
		set(p.Again[i].Batches)
	}
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
