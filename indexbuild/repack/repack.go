// Package repack writes packs again without what takedowns have made superfluous. The postings of a
// small batch may be in a pack, and name its domains. When a union takes their place, the pack
// stays, for the record of the batch and for other batches. So a compaction that drops rows needs
// other packs, which lack these postings. The ledger names the new packs first, then the version
// does.
package repack

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/pack"
	"github.com/urlake/urlake/lake/registry"
)

// Options say which packs are written again.
type Options struct {
	// Drop are the batches whose postings are to go, with the pack that a version is to name for
	// each, "" for none. Their rows are in a union, or will be in the next version.
	Drop map[manifest.BatchName]string
	// All asks to look into all packs of the lake, also for the postings of batches that nothing
	// refers to any more.
	All bool
}

// Packs are the packs that take the places of others.
type Packs map[registry.Repacked]string

// Of returns the pack that takes the place of a batch's pack.
func (p Packs) Of(b manifest.BatchName, name string) (string, bool) {
	to, ok := p[registry.Repacked{BatchID: registry.BatchID(b), From: name}]
	return to, ok
}

// Batches returns the batches in packs that others take the place of.
func (p Packs) Batches() []manifest.BatchName {
	names := make([]manifest.BatchName, 0, len(p))
	for m := range p {
		names = append(names, manifest.BatchName(m.BatchID))
	}
	slices.SortFunc(names, manifest.CompareNames)
	return slices.Compact(names)
}

// repacker writes packs again.
type repacker struct {
	ctx   context.Context
	store blob.Store
	base  *manifest.Version
	opt   Options

	collectors []*pack.Collector
	moves      []registry.Repacked // of each collector
	own        []own
}

// own is an object of a pack that gets its own key for as long as the version needs it.
type own struct {
	key  string
	data []byte
}

// Write writes packs without the postings of batches that base has in a union, or that are to be
// dropped, and of batches that nothing refers to; and names them in the ledger. Until a version
// names the new packs, these postings are objects of their own, as far as base needs them. A ledger
// or a pack that is damaged stays as it is, and so does a pack of a newer urlake.
func Write(ctx context.Context, store blob.Store, base *manifest.Version, opt Options) (Packs, error) {
	r := &repacker{ctx: ctx, store: store, base: base, opt: opt}
	names, err := r.packs()
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		err := r.pack(name)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, blob.ErrNotExist) && !codec.IsFormat(err) {
			return nil, err
		}
	}
	if len(r.moves) == 0 {
		return nil, nil
	}
	packs, err := r.apply()
	if errors.Is(err, codec.ErrCorrupt) {
		return nil, nil // a shard of the ledger; the version goes on naming the packs that it has
	}
	return packs, err
}

// packs returns the names of the packs to look into.
func (r *repacker) packs() ([]string, error) {
	names := map[string]bool{}
	if r.opt.All {
		for info, err := range r.store.List(r.ctx, pack.Prefix) {
			if err != nil {
				return nil, err
			}
			if name, ok := pack.NameOf(info.Key); ok {
				names[name] = true
			}
		}
	}
	var ids []registry.BatchID
	for b, name := range r.opt.Drop {
		ids = append(ids, registry.BatchID(b))
		names[name] = true
	}
	ingests, err := registry.IngestsOf(r.ctx, r.store, ids)
	for _, list := range ingests {
		for _, in := range list {
			names[in.Pack] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names)), err
}

// pack looks into a pack.
func (r *repacker) pack(name string) error {
	data, _, err := r.store.Get(r.ctx, pack.Key(name))
	if err != nil {
		return err
	}
	p, err := pack.Decode(data, pack.Key(name))
	if err != nil {
		return err
	}
	keys := map[manifest.BatchName][]string{}
	var batches []manifest.BatchName
	var ids []registry.BatchID
	for _, e := range p.Entries() {
		dataset, batch, ok := pack.BatchOf(e.Key)
		if !ok {
			continue
		}
		b := manifest.BatchName{DatasetID: dataset, Batch: batch}
		if keys[b] == nil {
			batches, ids = append(batches, b), append(ids, registry.BatchID(b))
		}
		keys[b] = append(keys[b], e.Key)
	}
	live, err := r.base.FindBatches(r.ctx, batches)
	if err != nil {
		return err
	}
	kept, err := registry.KeptRecordsOf(r.ctx, r.store, ids)
	if err != nil {
		return err
	}
	var collectors []*pack.Collector
	var moves []registry.Repacked
	var copies []own
	sheds := false
	for i, b := range batches {
		named, current := live[b].Pack == name, true
		for _, record := range kept[ids[i]] {
			if record.Pack == name {
				named, current = true, current && record.Digest == live[b].Digest
			}
		}
		if !named {
			// A batch that was retired can be restored until it is collected.
			if named, err = r.hasParts(p, keys[b]); err != nil {
				return err
			}
			current = false
		}
		_, drops := r.opt.Drop[b]
		united := current && (drops || live[b].Union != "") // the rows are those of a union
		c := pack.NewCollector(r.store)
		for _, key := range keys[b] {
			object, _, err := p.Object(key)
			if err != nil {
				return err
			}
			if strings.Contains(key, "/postings-") && (united || !named) {
				sheds = true
				if drops && live[b].Union == "" {
					copies = append(copies, own{key, object})
				}
				continue
			}
			if named {
				if _, err := c.Put(r.ctx, key, object, blob.Condition{}); err != nil {
					return err
				}
			}
		}
		if named {
			collectors, moves = append(collectors, c), append(moves, registry.Repacked{BatchID: ids[i], From: name})
		}
	}
	if sheds && len(moves) > 0 {
		r.collectors, r.moves, r.own = append(r.collectors, collectors...), append(r.moves, moves...), append(r.own, copies...)
	}
	return nil
}

// hasParts reports whether the parts of a batch, which has these objects in a pack, are in the
// store.
func (r *repacker) hasParts(p *pack.Pack, keys []string) (bool, error) {
	for _, key := range keys {
		if !strings.HasSuffix(key, ".json") {
			continue
		}
		data, _, err := p.Object(key)
		if err != nil {
			return false, err
		}
		record, err := lake.DecodeBatch(data, key)
		if err != nil {
			return false, err
		}
		for _, part := range record.Parts {
			_, err := r.store.Stat(r.ctx, part.Key)
			if err == nil {
				return true, nil
			}
			if !errors.Is(err, blob.ErrNotExist) {
				return false, err
			}
		}
	}
	return false, nil
}

// apply writes the packs and names them in the ledger.
func (r *repacker) apply() (Packs, error) {
	// Each pack is written by itself: where one is full depends on the batches that are written
	// together.
	byPack := map[string][]int{}
	for i, m := range r.moves {
		byPack[m.From] = append(byPack[m.From], i)
	}
	write := func(ctx context.Context, named func(i int, name string)) error {
		for _, o := range r.own {
			if _, err := r.store.Put(ctx, o.key, o.data, blob.Condition{}); err != nil {
				return err
			}
		}
		for _, from := range slices.Sorted(maps.Keys(byPack)) {
			var of []*pack.Collector
			for _, i := range byPack[from] {
				of = append(of, r.collectors[i])
			}
			names, err := pack.Write(ctx, r.store, of)
			if err != nil {
				return err
			}
			for k, i := range byPack[from] {
				named(i, names[k])
			}
		}
		return nil
	}
	if err := write(r.ctx, func(i int, name string) { r.moves[i].To = name }); err != nil {
		return nil, err
	}
	again := func(ctx context.Context) error { return write(ctx, func(int, string) {}) }
	if err := registry.Repack(r.ctx, r.store, r.moves, again); err != nil {
		return nil, err
	}
	packs := Packs{}
	for _, m := range r.moves {
		to := m.To
		m.To = ""
		packs[m] = to
	}
	return packs, nil
}
