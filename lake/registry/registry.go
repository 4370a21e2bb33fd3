// Package registry keeps what changes in a lake besides its versions: the datasets with their names
// and ids, and the ledger, which is the order of the ingests of every batch.
//
// Both are small documents that are replaced by conditional puts. What grows with the lake is in
// pieces (package lake/pieces), so registering an ingest costs the same in a lake of four million
// batches as in a new one.
package registry

import (
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

const (
	// headFormat is the version of the document at lake.RegistryKey.
	headFormat = 1

	// PiecesRoot is the folder of the pieces (package pieces) of the registry.
	PiecesRoot = "registry/pieces/"

	// CopyKey is the key of the copy of the document at lake.RegistryKey, which is written after
	// each change of it. Only RestoreRegistry reads it.
	CopyKey = "registry/datasets.copy.json"
)

var (
	// ErrUnknownRun: FinishIngest was called for a run that is not registered, or no longer.
	ErrUnknownRun = errors.New("run has not registered an ingest of this batch")
	// ErrBusy: other writers replaced a registry document before each of many attempts to do so.
	ErrBusy = errors.New("registry kept changing")
)

// head is the document at lake.RegistryKey.
type head struct {
	Format int        `json:"format"`
	Rules  lake.Rules `json:"rules"`
	// NextID is the next dataset's id. It is stored, so an id is not reused even if its entry is
	// removed.
	NextID uint32 `json:"next_id"`
	// Generation grows by one with every change.
	Generation uint64 `json:"generation,omitempty"`
	// Swept is as for a shard of the ledger.
	Swept uint64 `json:"swept,omitempty"`
	// Version is the newest published version, and Takedowns the newest epoch of the takedowns.
	// Ledger has, for each shard of the ledger, its generation when a publish last settled batches
	// in it.
	Version   string   `json:"version,omitempty"`
	Takedowns uint64   `json:"takedowns,omitempty"`
	Ledger    []uint64 `json:"ledger,omitempty"`
	// ByID has the datasets by idKey, ByName the idKey of each by its name.
	ByID   pieces.Ref `json:"dataset_pieces"`
	ByName pieces.Ref `json:"name_pieces"`
}

func (h *head) newest() int { return headFormat }

func (h *head) check(key string) error {
	if h.Format != headFormat {
		return codec.Corrupt(key, "format", -1, headFormat, h.Format)
	}
	if h.ByID.Entries != h.ByName.Entries {
		return codec.Corrupt(key, "dataset_pieces", -1, "pieces of as many datasets as names", "others")
	}
	return errors.Join(h.ByID.Check(key), h.ByName.Check(key))
}

func (h *head) byID(store blob.Store) *pieces.Map   { return pieces.Open(store, PiecesRoot, h.ByID) }
func (h *head) byName(store blob.Store) *pieces.Map { return pieces.Open(store, PiecesRoot, h.ByName) }

// idKey is the key of a dataset in pieces: its id, the most significant byte first.
func idKey(id uint32) []byte { return binary.BigEndian.AppendUint32(nil, id) }

// datasetEntry is a dataset in head.ByID.
func datasetEntry(d lake.Dataset) (pieces.Entry, error) {
	value, err := json.Marshal(d)
	return pieces.Entry{Key: idKey(d.ID), Value: value}, err
}

func decodeDataset(e pieces.Entry) (d lake.Dataset, err error) {
	if err = json.Unmarshal(e.Value, &d); err != nil || len(e.Key) != 4 || d.ID != binary.BigEndian.Uint32(e.Key) ||
		lake.CheckDatasetName(d.Name) != nil {
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
	var byID, byName []pieces.Edit
	for _, d := range datasets {
		e, err := datasetEntry(d)
		if err != nil {
			return err
		}
		byID = append(byID, pieces.Edit{Entry: e})
		byName = append(byName, pieces.Edit{Entry: pieces.Entry{Key: []byte(d.Name), Value: idKey(d.ID)}})
	}
	ids, err := h.byID(store).Apply(ctx, byID)
	if err != nil {
		return err
	}
	names, err := h.byName(store).Apply(ctx, byName)
	if err != nil {
		return err
	}
	h.ByID, h.ByName = ids.Ref(), names.Ref()
	return nil
}

// readHead reads the document. It is zero in a new lake. In other lakes, a document that is
// missing, or older than its copy, is a *codec.CorruptError.
func readHead(ctx context.Context, store blob.Store) (*head, error) {
	least, err := copied(ctx, store)
	if err != nil {
		return nil, err
	}
	h, etag, err := read[head](ctx, store, lake.RegistryKey)
	if err == nil && etag == "" {
		if err = CheckPresent(ctx, store, lake.RegistryKey); err == nil {
			h, _, err = read[head](ctx, store, lake.RegistryKey)
		}
	}
	if err == nil {
		err = h.notOlder(least)
	}
	return h, err
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
	h, err := updateHead(ctx, store, func(h *head) (changed bool, err error) {
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
	if err == nil {
		err = keepCopy(ctx, store, h)
	}
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

// updateHead changes the document at lake.RegistryKey, and returns it as it is then.
func updateHead(ctx context.Context, store blob.Store, change func(*head) (bool, error)) (*head, error) {
	least, err := copied(ctx, store)
	if err != nil {
		return nil, err
	}
	return update(ctx, store, lake.RegistryKey, func() (*head, error) {
		return &head{}, CheckPresent(ctx, store, lake.RegistryKey)
	}, func(h *head) (bool, error) {
		if err := h.notOlder(least); err != nil {
			return false, err
		}
		changed, err := change(h)
		if changed {
			h.Generation++
		}
		return changed, err
	})
}

// keepCopy writes the copy of h unless there is one of h or of a later state.
func keepCopy(ctx context.Context, store blob.Store, h *head) error {
	for range updateRounds {
		have, etag, err := read[head](ctx, store, CopyKey)
		cond := blob.Condition{IfMatch: etag}
		switch {
		case errors.Is(err, codec.ErrCorrupt):
			cond = blob.Condition{}
		case err != nil:
			return err
		case etag == "":
			cond = blob.Condition{IfAbsent: true}
		case have.Generation >= h.Generation:
			return nil
		}
		data, err := codec.Seal(h)
		if err != nil {
			return err
		}
		if _, err = store.Put(ctx, CopyKey, data, cond); !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrBusy, CopyKey)
}
