package catalog

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
	"github.com/urlake/urlake/lake/urlnorm"
)

// idKey is the key of a dataset in pieces: its id, the most significant byte first.
func idKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

func decodeDataset(e pieces.Entry) (d lake.Dataset, err error) {
	if err = json.Unmarshal(e.Value, &d); err != nil || !bytes.Equal(e.Key, idKey(d.ID)) || lake.CheckDatasetName(d.Name) != nil {
		err = codec.Corrupt(lake.RegistryKey, fmt.Sprintf("dataset %x", e.Key), -1, "a dataset", string(e.Value))
	}
	return d, err
}

// all yields the datasets by id.
func (h *head) all(ctx context.Context, store blob.Store) iter.Seq2[lake.Dataset, error] {
	return func(yield func(lake.Dataset, error) bool) {
		for e, err := range h.byID(store).All(ctx) {
			var d lake.Dataset
			if err == nil {
				d, err = decodeDataset(e)
			}
			if !yield(d, err) || err != nil {
				return
			}
		}
	}
}

// find returns the datasets with these ids, by id.
func (h *head) find(ctx context.Context, store blob.Store, ids []uint32) (map[uint32]lake.Dataset, error) {
	found := map[uint32]lake.Dataset{}
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = idKey(id)
	}
	entries, err := h.byID(store).GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e == nil {
			continue
		}
		d, err := decodeDataset(*e)
		if err != nil {
			return nil, err
		}
		found[d.ID] = d
	}
	return found, nil
}

// named returns the datasets with these names, by name.
func (h *head) named(ctx context.Context, store blob.Store, names []string) (map[string]lake.Dataset, error) {
	found := map[string]lake.Dataset{}
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = []byte(name)
	}
	entries, err := h.byName(store).GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, e := range entries {
		switch {
		case e == nil:
		case len(e.Value) != 4:
			return nil, codec.Corrupt(lake.RegistryKey, fmt.Sprintf("name %q", e.Key), -1, "an id", fmt.Sprintf("%x", e.Value))
		default:
			ids = append(ids, binary.BigEndian.Uint32(e.Value))
		}
	}
	byID, err := h.find(ctx, store, ids)
	for _, d := range byID {
		found[d.Name] = d
	}
	if err == nil && len(found) != len(slices.Compact(slices.Sorted(slices.Values(ids)))) {
		err = codec.Corrupt(lake.RegistryKey, "name_pieces", -1, "names of datasets", "others")
	}
	return found, err
}

// set writes datasets into the pieces: new ones, or known ones with other descriptions.
func (h *head) set(ctx context.Context, store blob.Store, datasets []lake.Dataset) error {
	var ids, names []pieces.Edit
	for _, d := range datasets {
		value, err := json.Marshal(d)
		if err != nil {
			return err
		}
		ids = append(ids, pieces.Edit{Entry: pieces.Entry{Key: idKey(d.ID), Value: value}})
		names = append(names, pieces.Edit{Entry: pieces.Entry{Key: []byte(d.Name), Value: idKey(d.ID)}})
	}
	byID, err := h.byID(store).Apply(ctx, ids)
	if err != nil {
		return err
	}
	byName, err := h.byName(store).Apply(ctx, names)
	if err == nil {
		h.ByID, h.ByName = byID.Ref(), byName.Ref()
	}
	return err
}

// Datasets returns the lake's datasets in the order of their ids. A new lake has no registry and no
// datasets; a registry that is missing from another lake is a *codec.CorruptError.
func Datasets(ctx context.Context, store blob.Store) ([]lake.Dataset, error) {
	h, err := readHead(ctx, store)
	if err != nil {
		return nil, err
	}
	var all []lake.Dataset
	for d, err := range h.all(ctx, store) {
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// FindDatasets returns the datasets with these ids, by id. It reads a few pieces, not all datasets.
func FindDatasets(ctx context.Context, store blob.Store, ids []uint32) (map[uint32]lake.Dataset, error) {
	h, err := readHead(ctx, store)
	if err != nil || h.Format == 0 {
		return nil, err
	}
	return h.find(ctx, store, ids)
}

// DatasetsNamed returns the datasets with these names, by name. It reads a few pieces, not all
// datasets.
func DatasetsNamed(ctx context.Context, store blob.Store, names ...string) (map[string]lake.Dataset, error) {
	h, err := readHead(ctx, store)
	if err != nil || h.Format == 0 {
		return nil, err
	}
	return h.named(ctx, store, names)
}

// RegisterDataset returns the dataset with d's name. A new dataset gets the next id; d.ID is
// ignored. The other fields of d replace those of a known dataset unless they are empty. A new lake
// gets the rules of this program, see CurrentRules. The error is a *FormError or a
// *MissingListError if this program cannot apply the lake's rules. A registry that is missing from
// a lake with batches or versions is a *codec.CorruptError, since ids would be given again. A name
// that no new dataset can have is a *NameError.
//
// Calls may be repeated and concurrent. If a reply is lost, the document is read again.
func RegisterDataset(ctx context.Context, store blob.Store, d lake.Dataset) (lake.Dataset, error) {
	out, err := RegisterDatasets(ctx, store, []lake.Dataset{d})
	if err != nil {
		return lake.Dataset{}, err
	}
	return out[0], nil
}

// NameError means that no new dataset can have a name.
type NameError struct{ error }

// RegisterDatasets is RegisterDataset for many. It returns them in the same order, and registers
// all or none.
func RegisterDatasets(ctx context.Context, store blob.Store, datasets []lake.Dataset) ([]lake.Dataset, error) {
	if len(datasets) == 0 {
		return nil, nil
	}
	names := make([]string, len(datasets))
	for i, d := range datasets {
		if err := lake.CheckDatasetName(d.Name); err != nil {
			return nil, err
		}
		names[i] = d.Name
	}
	var known map[string]lake.Dataset
	err := makeLive(ctx, store, func(h *head) (changed bool, err error) {
		if err := h.prepare(ctx, store, urlnorm.BuiltinSuffixes()); err != nil {
			return false, err
		}
		if _, err := lake.LoadSuffixList(ctx, store, h.Rules.PublicSuffix); err != nil {
			return false, err
		}
		if known, err = h.named(ctx, store, names); err != nil {
			return false, err
		}
		edited := map[string]lake.Dataset{}
		for _, d := range datasets {
			have, ok := known[d.Name]
			if !ok {
				if err := lake.CheckNewDatasetName(d.Name); err != nil {
					return false, &NameError{err}
				}
				if h.NextID == math.MaxUint32 {
					return false, errors.New("no dataset id left")
				}
				have = lake.Dataset{ID: h.NextID, Name: d.Name}
				h.NextID++
			}
			if describe(&have, d) || !ok {
				edited[d.Name] = have
			}
			known[d.Name] = have
		}
		if len(edited) == 0 {
			return false, nil
		}
		return true, h.set(ctx, store, slices.Collect(maps.Values(edited)))
	})
	if err != nil {
		if len(names) == 1 {
			return nil, fmt.Errorf("register dataset %q: %w", names[0], err)
		}
		return nil, fmt.Errorf("register %d datasets: %w", len(names), err)
	}
	out := make([]lake.Dataset, len(datasets))
	for i, name := range names {
		out[i] = known[name]
	}
	return out, nil
}

// describe gives have the fields of d that are not empty, and reports whether that changed it.
func describe(have *lake.Dataset, d lake.Dataset) (changed bool) {
	for _, f := range []struct {
		have *string
		want string
	}{{&have.Title, d.Title}, {&have.Source, d.Source}, {&have.Licence, d.Licence}} {
		if f.want != "" && *f.have != f.want {
			*f.have, changed = f.want, true
		}
	}
	return changed
}
