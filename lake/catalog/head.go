package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/pieces"
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

// readHead reads the document. It is zero in a new lake. In other lakes, a document that is
// missing, or older than its copy, is a *codec.CorruptError.
func readHead(ctx context.Context, store blob.Store) (*head, error) {
	least, err := copied(ctx, store)
	if err != nil {
		return nil, err
	}
	h, _, err := readPresent(ctx, store, least)
	return h, err
}

// readPresent is readHead with the generation of the copy, and returns the document's ETag.
func readPresent(ctx context.Context, store blob.Store, copied uint64) (h *head, etag string, err error) {
	h, etag, err = readRegistry(ctx, store, lake.RegistryKey)
	if err == nil && etag == "" {
		if err = CheckRegistryPresent(ctx, store); err == nil {
			h, etag, err = readRegistry(ctx, store, lake.RegistryKey)
		}
	}
	if err == nil {
		err = h.notOlder(copied)
	}
	return h, etag, err
}

// A document that was put back from a backup has an intact seal. So it has a generation, and its
// copy vouches for that; the document itself vouches for the manifest. A document with a lower
// generation than vouched for is damaged, like one with a broken seal: readers and writers refuse
// it, and a rebuild makes it again.

// copied returns the generation of the copy, 0 if that cannot be read. A document that is read
// afterwards has that generation or a higher one.
func copied(ctx context.Context, store blob.Store) (uint64, error) {
	h, _, err := readRegistry(ctx, store, RegistryCopyKey)
	if errors.Is(err, codec.ErrCorrupt) {
		return 0, nil
	}
	return h.Generation, err
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
	least, err := copied(ctx, store)
	if err != nil {
		return err
	}
	var h *head
	err = replace(ctx, store, lake.RegistryKey, func() ([]byte, blob.Condition, error) {
		now, etag, err := readPresent(ctx, store, least)
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
