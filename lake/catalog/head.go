package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

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

// errRegistryBusy means that other writers replaced the registry's document before each of many
// attempts.
var errRegistryBusy = errors.New("registry kept changing")

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
	// ByID has the datasets by idKey, ByName the idKey of each by its name. A piece of one that is
	// lost is made again of the other.
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
	data, info, err := store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return h, "", nil
	}
	if err != nil {
		return h, "", err
	}
	if err := codec.Unseal(data, key, headFormat, h); err != nil {
		return h, info.ETag, err
	}
	if h.Format != headFormat {
		return h, info.ETag, codec.Corrupt(key, "format", -1, headFormat, h.Format)
	}
	if h.ByID.Entries != h.ByName.Entries {
		return h, info.ETag, codec.Corrupt(key, "dataset_pieces", -1, "pieces of as many datasets as names", "others")
	}
	return h, info.ETag, cmp.Or(h.ByID.Check(key), h.ByName.Check(key))
}

// readHead reads the document. It is zero in a new lake. In other lakes, a document that is
// missing, or older than its copy, is a *codec.CorruptError.
func readHead(ctx context.Context, store blob.Store) (*head, error) {
	least, err := copied(ctx, store)
	if err != nil {
		return nil, err
	}
	h, etag, err := readRegistry(ctx, store, lake.RegistryKey)
	if err == nil && etag == "" {
		if err = CheckRegistryPresent(ctx, store); err == nil {
			h, _, err = readRegistry(ctx, store, lake.RegistryKey)
		}
	}
	if err == nil {
		err = h.notOlder(least)
	}
	return h, err
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

const (
	// updateRounds is the maximum number of attempts of an update. An attempt fails only because
	// another writer's has succeeded.
	updateRounds = 200
	// updatePause is the maximum pause after the first failed attempt. It grows with the attempts
	// to at most 32 times that, to spread the writers.
	updatePause = 2 * time.Millisecond
)

// updateRegistry changes the document by conditional put, then its copy. Change reports whether it
// changed the document, which is zero if there is none in a new lake. After every put that did not
// plainly succeed the document is read and change is called again; it finds its own change there if
// only the reply was lost.
func updateRegistry(ctx context.Context, store blob.Store, change func(*head) (bool, error)) error {
	least, err := copied(ctx, store)
	if err != nil {
		return err
	}
	var failure error
	for round := range updateRounds {
		h, etag, err := readRegistry(ctx, store, lake.RegistryKey)
		if err == nil && etag == "" {
			err = CheckRegistryPresent(ctx, store)
		}
		if err == nil {
			err = h.notOlder(least)
		}
		if err != nil {
			return err
		}
		changed, err := change(h)
		if errors.Is(err, codec.ErrCorrupt) {
			// Pieces of a document that was replaced meanwhile may have been collected.
			if info, statErr := store.Stat(ctx, lake.RegistryKey); statErr == nil && etag != "" && info.ETag != etag {
				continue
			}
		}
		switch {
		case err != nil:
			return err
		case !changed && h.Format == 0:
			return nil
		case !changed:
			return keepCopy(ctx, store, h)
		case failure != nil:
			return failure
		}
		h.Generation++
		data, err := codec.Seal(h)
		if err != nil {
			return err
		}
		cond := blob.Condition{IfMatch: etag}
		if etag == "" {
			cond = blob.Condition{IfAbsent: true}
		}
		if _, err = store.Put(ctx, lake.RegistryKey, data, cond); err == nil {
			return keepCopy(ctx, store, h)
		}
		if !errors.Is(err, blob.ErrPrecondition) {
			// The put may have taken effect. If the next round finds that it has not, this is the
			// error to report.
			failure = err
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(updatePause * time.Duration(min(round+1, 32)))):
		}
	}
	return fmt.Errorf("%w: %s", errRegistryBusy, lake.RegistryKey)
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
	for range updateRounds {
		have, etag, err := readRegistry(ctx, store, RegistryCopyKey)
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
		if _, err = store.Put(ctx, RegistryCopyKey, data, cond); !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", errRegistryBusy, RegistryCopyKey)
}

// notedPublished returns the newest version and the newest epoch of the takedowns that
// NotePublished has recorded. They are zero if the registry is lost or damaged.
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

// AnnounceInRegistry writes the number of a sweep of a garbage collection into the registry's
// document, so that updates that are in flight begin again and wait for the end of the sweep
// (package lease). A damaged or missing document is an error.
func AnnounceInRegistry(ctx context.Context, store blob.Store, sweep uint64) error {
	// A writer of an earlier state may still be about to write the copy. It finds a later one.
	err := updateRegistry(ctx, store, func(h *head) (bool, error) {
		switch {
		case h.Format == 0:
			return false, missingRegistry()
		case h.Swept > sweep:
			return false, fmt.Errorf("%w: sweep %d", lease.ErrSweepLost, h.Swept)
		}
		changed := h.Swept != sweep
		h.Swept = sweep
		return changed, nil
	})
	if err != nil {
		return fmt.Errorf("announce sweep %d: %w", sweep, err)
	}
	return nil
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
		for _, m := range []*pieces.Map{h.byID(store), h.byName(store)} {
			for key, err := range m.Names(ctx) {
				if err != nil {
					return err
				}
				each(key)
			}
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

// manifestKey is manifest.Key, which this package does not import.
const manifestKey = "index/manifest.json"

// CheckRegistryPresent returns a *codec.CorruptError if the registry's document is missing although
// the lake has objects that are written only after it. A new lake has no document, which is no
// error.
func CheckRegistryPresent(ctx context.Context, store blob.Store) error {
	witness := ""
	for _, prefix := range []string{manifestKey, "index/versions/", RegistryCopyKey, "batches/"} {
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
