package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/pieces"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// headFormat is the version of the document at lake.RegistryKey.
	headFormat = 1

	// RegistryPiecesRoot is the folder of the pieces (package pieces) of the registry.
	RegistryPiecesRoot = "registry/pieces/"

	// RegistryCopyKey is the key of the copy of the document at lake.RegistryKey, which is written
	// after each change of it. Only RestoreRegistry reads it.
	RegistryCopyKey = "registry/datasets.copy.json"
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
	// Swept is the number of the last sweep of a garbage collection (package lake/lease), 0 for
	// none. A writer that makes something live waits until that sweep has ended.
	Swept uint64 `json:"swept,omitempty"`
	// Version is the newest published version, and Takedowns the newest epoch of the takedowns.
	Version   string `json:"version,omitempty"`
	Takedowns uint64 `json:"takedowns,omitempty"`
	// ByID has the datasets by datasetKey, ByName the datasetKey of each by its name. A piece of
	// one that is lost is made again of the other.
	ByID   pieces.Ref `json:"dataset_pieces"`
	ByName pieces.Ref `json:"name_pieces"`
}

func (h *head) byID(store blob.Store) *pieces.Map {
	return pieces.Open(store, RegistryPiecesRoot, h.ByID)
}
func (h *head) byName(store blob.Store) *pieces.Map {
	return pieces.Open(store, RegistryPiecesRoot, h.ByName)
}

// readRegistry reads the document, or its copy, and its ETag, also that of a damaged one. If there
// is none, they are zero and "".
func readRegistry(ctx context.Context, store blob.Store, key string) (h *head, etag string, err error) {
	h = new(head)
	etag, err = lake.LoadSealed(ctx, store, key, headFormat, h)
	switch {
	case err != nil || etag == "":
	case h.Format != headFormat:
		err = codec.Corrupt(key, "format", -1, headFormat, h.Format)
	case h.ByID.Entries != h.ByName.Entries:
		err = codec.Corrupt(key, "dataset_pieces", -1, "pieces of as many datasets as names", "others")
	default:
		err = cmp.Or(h.ByID.Check(key), h.ByName.Check(key))
	}
	return h, etag, err
}

// A document that was put back from a backup has an intact seal. So it has a generation, and its
// copy vouches for that; the document itself vouches for the manifest. A document with a lower
// generation than vouched for is damaged, like one with a broken seal: readers and writers refuse
// it, and a rebuild makes it again.

// readHead reads the document and its ETag. It is zero in a new lake. In other lakes, a document
// that is missing, or older than its copy, is a *codec.CorruptError.
func readHead(ctx context.Context, store blob.Store) (h *head, etag string, err error) {
	// A document that is read after its copy has that generation or a higher one.
	backup, _, err := readRegistry(ctx, store, RegistryCopyKey)
	if errors.Is(err, codec.ErrCorrupt) {
		backup, err = &head{}, nil
	}
	if err != nil {
		return backup, "", err
	}
	h, etag, err = readRegistry(ctx, store, lake.RegistryKey)
	if err == nil && etag == "" {
		if err = CheckRegistryPresent(ctx, store); err == nil {
			h, etag, err = readRegistry(ctx, store, lake.RegistryKey)
		}
	}
	if err == nil {
		err = h.notOlder(backup.Generation)
	}
	return h, etag, err
}

// notOlder returns an error if the document is older than its copy was.
func (h *head) notOlder(copied uint64) error {
	if h.Format != 0 && h.Generation < copied {
		return codec.Corrupt(lake.RegistryKey, "generation", -1, fmt.Sprintf("at least %d, which the lake has had", copied),
			fmt.Sprintf("%d: it was put back, perhaps from a backup", h.Generation))
	}
	return nil
}

// updateRegistry changes the document by conditional put (see replace), then its copy. Change
// reports whether it changed the document, which is zero if there is none in a new lake.
func updateRegistry(ctx context.Context, store blob.Store, change func(*head) (bool, error)) error {
	var h *head
	err := replace(ctx, store, lake.RegistryKey, func() ([]byte, blob.Condition, error) {
		now, etag, err := readHead(ctx, store)
		h = now
		cond := condition(etag)
		if err != nil {
			return nil, cond, err
		}
		if changed, err := change(h); !changed || err != nil {
			return nil, cond, err
		}
		h.Generation++
		data, err := codec.Seal(h)
		return data, cond, err
	})
	if err != nil || h.Format == 0 {
		return err
	}
	return keepCopy(ctx, store, h)
}

// makeLive is update of what makes objects live. In each attempt it waits for the end of the sweep
// that the document names (package lease): what the new document refers to, pieces among it, is not
// deleted between here and the put.
func makeLive(ctx context.Context, store blob.Store, change func(*head) (bool, error)) error {
	return updateRegistry(ctx, store, func(h *head) (bool, error) {
		if err := lease.AwaitSweep(ctx, store, h.Swept); err != nil {
			return false, err
		}
		return change(h)
	})
}

// keepCopy writes the copy of h unless there is one of h or of a later state.
func keepCopy(ctx context.Context, store blob.Store, h *head) error {
	return replace(ctx, store, RegistryCopyKey, func() ([]byte, blob.Condition, error) {
		have, etag, err := readRegistry(ctx, store, RegistryCopyKey)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) || err == nil && etag != "" && have.Generation >= h.Generation {
			return nil, blob.Condition{}, err
		}
		data, err := codec.Seal(h)
		return data, condition(etag), err
	})
}

// notedPublished returns the newest version and the newest epoch of the takedowns that
// notePublished has recorded. They are zero if the registry is lost or damaged.
func notedPublished(ctx context.Context, store blob.Store) (version string, takedowns uint64, err error) {
	h, _, err := readRegistry(ctx, store, lake.RegistryKey)
	if errors.Is(err, codec.ErrCorrupt) {
		return "", 0, nil
	}
	return h.Version, h.Takedowns, err
}

// notePublished records that a manifest with this current version and this epoch of the takedowns
// was written. In a lake without a registry, or with a damaged one, it does nothing.
func notePublished(ctx context.Context, store blob.Store, version string, takedowns uint64) error {
	err := updateRegistry(ctx, store, func(h *head) (bool, error) {
		if h.Format == 0 || version <= h.Version && takedowns <= h.Takedowns {
			return false, nil
		}
		h.Version, h.Takedowns = max(h.Version, version), max(h.Takedowns, takedowns)
		return true, nil
	})
	if errors.Is(err, codec.ErrCorrupt) {
		return nil
	}
	return err
}

// AwaitSweep returns when every sweep has ended that was announced before. It is for a writer that
// has written a document of its own that makes objects live.
func AwaitSweep(ctx context.Context, store blob.Store) error {
	h, _, err := readRegistry(ctx, store, lake.RegistryKey)
	if err != nil {
		return err
	}
	return lease.AwaitSweep(ctx, store, h.Swept)
}

func missingRegistry() error {
	return codec.Corrupt(lake.RegistryKey, "object", -1, "one that exists", "none")
}

// RegistryPieces calls each with the key of every piece that the registry's document and its copy
// name. Damage is an error.
func RegistryPieces(ctx context.Context, store blob.Store, each func(key string)) error {
	for _, key := range []string{lake.RegistryKey, RegistryCopyKey} {
		h, etag, err := readRegistry(ctx, store, key)
		if err == nil && etag == "" && key == lake.RegistryKey {
			err = missingRegistry()
		}
		if err != nil {
			return err
		}
		for key, err := range names(ctx, h.byID(store), h.byName(store)) {
			if err != nil {
				return err
			}
			each(key)
		}
	}
	return nil
}

// CheckFormats returns a *codec.FormatError if a newer urlake has written one of the documents that
// changes of the registry read: its datasets, their copy, and the last sweep. What begins with
// other writes calls it first, so that it changes nothing of such a lake. Damage is left to the
// change.
func CheckFormats(ctx context.Context, store blob.Store) error {
	for _, key := range []string{lake.RegistryKey, RegistryCopyKey} {
		if _, _, err := readRegistry(ctx, store, key); codec.IsFormat(err) {
			return err
		}
	}
	return lease.CheckSweepFormat(ctx, store)
}

// CheckRegistryPresent returns a *codec.CorruptError if the registry's document is missing although
// the lake has objects that are written only after it. A new lake has no document, which is no
// error.
func CheckRegistryPresent(ctx context.Context, store blob.Store) error {
	witness := ""
	for _, prefix := range []string{ManifestKey, versionRoot, RegistryCopyKey, "batches/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return err
			}
			witness = info.Key
			break
		}
		if witness != "" {
			break
		}
	}
	if witness == "" {
		return nil
	}
	// The document may have been written since the caller looked for it, and the witness after
	// that.
	if _, err := store.Stat(ctx, lake.RegistryKey); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	return codec.Corrupt(lake.RegistryKey, "object", -1, "one that exists, since "+witness+" does", "none")
}

func decodeDataset(e pieces.Entry) (d lake.Dataset, err error) {
	if err = json.Unmarshal(e.Value, &d); err != nil || !bytes.Equal(e.Key, datasetKey(d.ID)) || lake.CheckDatasetName(d.Name) != nil {
		err = codec.Corrupt(lake.RegistryKey, fmt.Sprintf("dataset %x", e.Key), -1, "a dataset", string(e.Value))
	}
	return d, err
}

// decodeName returns the id of a name.
func decodeName(e pieces.Entry) (uint32, error) {
	if len(e.Value) != 4 {
		return 0, codec.Corrupt(lake.RegistryKey, fmt.Sprintf("name %q", e.Key), -1, "an id", fmt.Sprintf("%x", e.Value))
	}
	return binary.BigEndian.Uint32(e.Value), nil
}

// find returns the datasets with these ids, by id.
func (h *head) find(ctx context.Context, store blob.Store, ids []uint32) (map[uint32]lake.Dataset, error) {
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = datasetKey(id)
	}
	all, err := find(ctx, h.byID(store), keys, decodeDataset)
	found := map[uint32]lake.Dataset{}
	for _, d := range all {
		found[d.ID] = d
	}
	return found, err
}

// named returns the datasets with these names, by name.
func (h *head) named(ctx context.Context, store blob.Store, names []string) (map[string]lake.Dataset, error) {
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = []byte(name)
	}
	ids, err := find(ctx, h.byName(store), keys, decodeName)
	if err != nil {
		return nil, err
	}
	byID, err := h.find(ctx, store, ids)
	found := map[string]lake.Dataset{}
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
		ids = append(ids, pieces.Edit{Entry: pieces.Entry{Key: datasetKey(d.ID), Value: value}})
		names = append(names, pieces.Edit{Entry: pieces.Entry{Key: []byte(d.Name), Value: datasetKey(d.ID)}})
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
	h, _, err := readHead(ctx, store)
	if err != nil {
		return nil, err
	}
	var all []lake.Dataset
	for d, err := range entries(ctx, h.byID(store), nil, nil, decodeDataset) {
		if err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

// FindDatasets returns the datasets with these ids, by id. It reads a few pieces, not all datasets.
func FindDatasets(ctx context.Context, store blob.Store, ids []uint32) (map[uint32]lake.Dataset, error) {
	h, _, err := readHead(ctx, store)
	if err != nil || h.Format == 0 {
		return nil, err
	}
	return h.find(ctx, store, ids)
}

// DatasetsNamed returns the datasets with these names, by name. It reads a few pieces, not all
// datasets.
func DatasetsNamed(ctx context.Context, store blob.Store, names ...string) (map[string]lake.Dataset, error) {
	h, _, err := readHead(ctx, store)
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

// RulesChangedError says that the lake's rules are not those that SetRules was to replace.
type RulesChangedError struct{ Want, Got lake.Rules }

func (e *RulesChangedError) Error() string {
	return fmt.Sprintf("the lake's public suffix list is %q, and no longer %q: somebody else has changed it; look again",
		e.Got.PublicSuffix, e.Want.PublicSuffix)
}

// ReadRules returns the rules that the registry names, by which new rows are made. They are zero in
// a new lake, which gets them with its first dataset.
func ReadRules(ctx context.Context, store blob.Store) (lake.Rules, error) {
	h, _, err := readHead(ctx, store)
	if err != nil {
		return lake.Rules{}, err
	}
	return h.Rules, nil
}

// LoadRules returns the rules that the registry names and their public suffix list. Those of a new
// lake are this program's. The error is a *FormError or a *MissingListError if this program cannot
// apply them.
func LoadRules(ctx context.Context, store blob.Store) (lake.Rules, *urlnorm.SuffixList, error) {
	r, err := ReadRules(ctx, store)
	if err != nil {
		return r, nil, err
	}
	if r == (lake.Rules{}) {
		r = lake.CurrentRules()
	}
	if err := lake.CheckForm(r); err != nil {
		return r, nil, err
	}
	list, err := lake.LoadSuffixList(ctx, store, r.PublicSuffix)
	return r, list, err
}

// SetRules gives the lake a public suffix list, by which rows are made from now on, and returns
// without moving the rows that are there; the next publish does that. From are the rules that are
// replaced: if the registry names others, the error is a *RulesChangedError. From is zero for a
// lake without a registry. If the registry names the list already, only the list's object is
// written again.
//
// Both lists are objects of the lake before the registry changes, unless the old one is neither
// there nor this program's.
func SetRules(ctx context.Context, store blob.Store, from lake.Rules, to *urlnorm.SuffixList) error {
	if err := CheckFormats(ctx, store); err != nil {
		return fmt.Errorf("set the lake's rules: %w", err)
	}
	// The object is written in any case: it may be damaged.
	if _, err := store.Put(ctx, lake.SuffixListKey(to.Identity()), to.Encode(), blob.Condition{}); err != nil {
		return err
	}
	err := makeLive(ctx, store, func(h *head) (bool, error) {
		if h.Rules == lake.RulesOf(to) {
			return false, nil
		}
		if h.Rules != from {
			return false, &RulesChangedError{Want: from, Got: h.Rules}
		}
		if err := h.prepare(ctx, store, to); err != nil {
			return false, err
		}
		h.Rules = lake.RulesOf(to)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("set the lake's rules: %w", err)
	}
	return nil
}

// prepare makes sure that h is a document to which this program may write, before a change of it.
// A new document gets the list. If the document names the list of this program, the list becomes an
// object of the lake, in case it was lost.
func (h *head) prepare(ctx context.Context, store blob.Store, list *urlnorm.SuffixList) error {
	if h.Format == 0 {
		*h = head{Format: headFormat, Rules: lake.RulesOf(list), NextID: 1}
		return lake.SaveSuffixList(ctx, store, list)
	}
	if err := lake.CheckForm(h.Rules); err != nil {
		return err
	}
	if own := urlnorm.BuiltinSuffixes(); h.Rules.PublicSuffix == own.Identity() {
		if err := lake.SaveSuffixList(ctx, store, own); err != nil {
			return err
		}
	}
	return nil
}

// datasetOf returns the dataset in a key, as in "batches/dataset_id=3/…".
func datasetOf(key, prefix string) (id uint32, ok bool) {
	digits, ok := strings.CutPrefix(key, prefix+"dataset_id=")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), ok && err == nil
}

// RestoredRegistry is what RestoreRegistry has done.
type RestoredRegistry struct {
	// Keys are the objects that were lost and are written again: lake.RegistryKey, CopyKey.
	Keys []string
	// Anew tells that neither the document nor its copy could be read: the lake has the rules that
	// the caller passed.
	Anew bool
	// Lost are pieces that were missing or damaged.
	Lost []string
	// Nameless are the ids that keys of the lake contain but no source tells the names of; they are
	// not given again.
	Nameless []uint32
}

// RestoreRegistry writes the registry's datasets again if they are lost: the document or pieces of
// it damaged, or missing from a lake that is not new. The datasets are those of sound pieces that
// the document or its copy names, and those of a version, which the caller passes. Rules are used
// if neither the document nor its copy can be read.
func RestoreRegistry(
	ctx context.Context, store blob.Store, rules lake.Rules, datasets []lake.Dataset,
) (out RestoredRegistry, err error) {
	h, cond, lost, err := readLost(ctx, store, lake.RegistryKey)
	if err != nil {
		return out, err
	}
	backup, _, backupLost, err := readLost(ctx, store, RegistryCopyKey)
	if err != nil {
		return out, err
	}
	if !lost && h != nil && backup != nil && h.notOlder(backup.Generation) != nil {
		h, lost = nil, true
	}
	byID := map[uint32]lake.Dataset{}
	for _, d := range datasets {
		byID[d.ID] = d
	}
	source := h
	if lost {
		source = backup
	}
	if source != nil {
		broken, err := source.soundDatasets(ctx, store, byID)
		if err != nil {
			return out, err
		}
		out.Lost = broken
	}
	if lost || len(out.Lost) > 0 {
		if h, err = restoredHead(ctx, store, source, rules, byID, &out); err != nil {
			return out, err
		}
		data, err := codec.Seal(h)
		if err != nil {
			return out, err
		}
		if _, err = store.Put(ctx, lake.RegistryKey, data, cond); err != nil {
			return out, err
		}
		out.Keys, out.Anew = append(out.Keys, lake.RegistryKey), source == nil
	}
	if h == nil {
		return out, nil
	}
	if backupLost {
		out.Keys = append(out.Keys, RegistryCopyKey)
	}
	return out, keepCopy(ctx, store, h)
}

// restoredHead is the document of these datasets. Source is what could be read of the lost one, nil
// for nothing.
func restoredHead(
	ctx context.Context, store blob.Store, source *head, rules lake.Rules, byID map[uint32]lake.Dataset, out *RestoredRegistry,
) (*head, error) {
	used := map[uint32]bool{}
	for _, prefix := range []string{"batches/", "urls/"} {
		for info, err := range store.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if id, ok := datasetOf(info.Key, prefix); ok {
				used[id] = true
			}
		}
	}
	h := &head{Format: headFormat, Rules: rules, NextID: 1}
	var err error
	if h.Swept, err = lease.LastSweep(ctx, store); err != nil {
		return nil, err
	}
	if source != nil {
		h.Rules, h.NextID, h.Generation = source.Rules, source.NextID, source.Generation
		h.Version, h.Takedowns = source.Version, source.Takedowns
	}
	h.Generation++
	for id := range byID {
		delete(used, id)
		h.NextID = max(h.NextID, id+1)
	}
	out.Nameless = slices.Sorted(maps.Keys(used))
	if n := len(out.Nameless); n > 0 {
		h.NextID = max(h.NextID, out.Nameless[n-1]+1)
	}
	return h, h.set(ctx, store, slices.Collect(maps.Values(byID)))
}

// readLost reads the registry's document, or its copy, to see whether it has to be restored, and
// the condition under which it may be replaced. The document is nil if it cannot be read. One of
// another format belongs to another program's version and is not lost.
func readLost(ctx context.Context, store blob.Store, key string) (h *head, cond blob.Condition, lost bool, err error) {
	etag := ""
	h, err = codec.Confirm(func() (h *head, err error) {
		h, etag, err = readRegistry(ctx, store, key)
		return h, err
	})
	cond = condition(etag)
	if err == nil && etag == "" && key != RegistryCopyKey {
		err = CheckRegistryPresent(ctx, store)
	}
	var damage *codec.CorruptError
	switch {
	case err == nil && etag != "":
		return h, cond, false, nil
	case errors.As(err, &damage):
		return nil, cond, damage.Section != "format", nil
	case errors.Is(err, codec.ErrCorrupt):
		err = nil
	}
	return nil, cond, false, err
}

// soundDatasets adds the datasets of h that can be read to those of byID, and returns the keys of
// the pieces that are lost.
func (h *head) soundDatasets(ctx context.Context, store blob.Store, byID map[uint32]lake.Dataset) (lost []string, err error) {
	add := func(d lake.Dataset) {
		// A version has the same name. The title may be newer here.
		if have, ok := byID[d.ID]; !ok || have.Name == d.Name {
			byID[d.ID] = d
		}
	}
	damaged := func(key string) { lost = append(lost, key) }
	for e, err := range h.byName(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if id, err := decodeName(e); err == nil && byID[id].ID == 0 {
			add(lake.Dataset{ID: id, Name: string(e.Key)})
		}
	}
	for e, err := range h.byID(store).Sound(ctx, damaged) {
		if err != nil {
			return nil, err
		}
		if d, err := decodeDataset(e); err == nil {
			add(d)
		}
	}
	return lost, nil
}

// CheckRegistry calls damaged with the error of every lost object of the registry: the document,
// its copy, and pieces. It returns other errors.
func CheckRegistry(ctx context.Context, store blob.Store, damaged func(err error) error) error {
	note := func(err error) error {
		if errors.Is(err, codec.ErrCorrupt) {
			return damaged(err)
		}
		return err
	}
	_, _, err := readRegistry(ctx, store, RegistryCopyKey)
	if err := note(err); err != nil {
		return err
	}
	h, _, err := readHead(ctx, store)
	if err != nil {
		return note(err)
	}
	for _, m := range []*pieces.Map{h.byID(store), h.byName(store)} {
		for _, err := range m.Pieces(ctx) {
			if err := note(err); err != nil {
				return err
			}
		}
	}
	return nil
}
