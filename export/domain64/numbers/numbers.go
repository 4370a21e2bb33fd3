// Package numbers keeps in a lake which number each name has at its place in the domain64 tree
// (package domain64, docs/formats/domain64.md). A name gets the next number of its parent when it
// is first assigned, 1 at first, and keeps it: numbers have no gaps, are never used again, and no
// two writers give one of them twice.
//
// Each layout has numbers of its own. The lake is where they are decided. An export to a
// database compares the copy there with them.
//
// # Objects
//
// One document, Key, is replaced by conditional put. It names, for each layout, a map in immutable
// pieces (package pieces) below PiecesRoot. A commit is one put of the document, for any number of
// names. Whoever loses the race reads again and finds there what the winner assigned.
package numbers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/pieces"
)

const (
	// Key is the key of the document. It is the only one with the numbers: if it is lost, they are.
	Key = "registry/domain64.json"
	// PiecesRoot is the folder of its pieces.
	PiecesRoot = "registry/domain64/"

	documentFormat = 1

	// commitRounds is the most attempts of a commit. One fails only because another writer's has
	// succeeded.
	commitRounds = 200
	// commitPause is the longest pause after the first failed attempt; it grows to 32 times that.
	commitPause = 2 * time.Millisecond
)

// document is the document at Key.
type document struct {
	lake.KeyedHeader
	// Generation counts the changes.
	Generation int64 `json:"generation"`
	// Swept is the number of the last sweep of a garbage collection (package lease).
	Swept uint64 `json:"swept,omitempty"`
	// Layouts are the numbers, by layout.
	Layouts map[string]table `json:"layouts"`
}

// table has the numbers of a layout.
type table struct {
	// Names is how many names have a number.
	Names int64 `json:"names"`
	// Pieces is the map that assign.go describes.
	Pieces pieces.Ref `json:"pieces"`
}

// State says how far a registry is. Two registries of one layout with equal States have the same
// numbers.
type State struct {
	// Names is how many names have a number, those above hosts and paths included.
	Names int64
	// Digest names the content.
	Digest string
}

// Registry is the numbers of one layout in a lake. It is safe for concurrent use, also by several
// processes.
type Registry struct {
	store  blob.Store
	layout domain64.Layout
}

// Open returns the registry of a layout. It reads and writes nothing yet.
func Open(store blob.Store, layout domain64.Layout) *Registry {
	return &Registry{store: store, layout: layout}
}

// Layout returns the registry's layout.
func (r *Registry) Layout() domain64.Layout { return r.layout }

// FullError says that a parent has as many names as its layout can number. Nothing was assigned.
type FullError struct {
	Layout domain64.Layout
	// Level is that of the names, Max how many a parent can have.
	Level domain64.Level
	Max   uint32
	// Parent is the host or top-level domain whose table is full, "" if there are too many
	// top-level domains. Name is one that found no place.
	Parent, Name string
}

func (e *FullError) Error() string {
	what := fmt.Sprintf("%s has %d %ss", e.Parent, e.Max, e.Level)
	if e.Parent == "" {
		what = fmt.Sprintf("there are %d %ss", e.Max, e.Level)
	}
	advice := "leave it out of the export"
	if wider, ok := e.Layout.Wider(e.Level); ok {
		if e.Level == domain64.Sub && domain64.Production.Max(e.Level) > e.Max {
			wider = domain64.Production
		}
		advice += ", or export with layout " + wider.String() + ", which numbers anew"
	}
	return fmt.Sprintf("domain64: %s, which is all that layout %s can number; %s is one more: %s", what, e.Layout, e.Name, advice)
}

// load returns the document and its ETag, "" if there is none.
func load(ctx context.Context, store blob.Store) (*document, string, error) {
	doc := &document{}
	etag, err := lake.LoadKeyed(ctx, store, Key, documentFormat, doc)
	if err != nil {
		return nil, "", fmt.Errorf("domain64 numbers: %w", err)
	}
	for name, t := range doc.Layouts {
		l, err := domain64.ParseLayout(name)
		if err == nil {
			err = t.Pieces.Check(Key)
		}
		if err != nil {
			return nil, "", fmt.Errorf("domain64 numbers: %w", codec.Corrupt(Key, "layouts", -1, "a layout with its pieces", err))
		}
		if t.Names < 0 || t.Names > t.Pieces.Entries || l.String() != name {
			return nil, "", fmt.Errorf("domain64 numbers: %w",
				codec.Corrupt(Key, "layouts", -1, fmt.Sprintf("at most %d names", t.Pieces.Entries), t.Names))
		}
	}
	return doc, etag, nil
}

// create writes an empty document if there is none. Pieces are written only beside a document, so
// that a garbage collection has one into which to write its sweep.
func create(ctx context.Context, store blob.Store) error {
	if _, err := store.Stat(ctx, Key); !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	if err := checkLost(ctx, store); err != nil {
		return err
	}
	_, err := lake.SaveKeyed(ctx, store, Key, documentFormat, &document{Layouts: map[string]table{}}, blob.Condition{IfAbsent: true})
	if err != nil {
		if _, statErr := store.Stat(ctx, Key); statErr == nil {
			return nil // another writer was first, or only the reply was lost
		}
	}
	return err
}

// checkLost returns a *codec.CorruptError if there are pieces, and still no document: numbers that
// were given would be given again.
func checkLost(ctx context.Context, store blob.Store) error {
	for info, err := range store.List(ctx, PiecesRoot) {
		if err != nil {
			return err
		}
		if _, err := store.Stat(ctx, Key); !errors.Is(err, blob.ErrNotExist) {
			return err // another writer has written both meanwhile
		}
		return codec.Corrupt(Key, "object", -1, "one that exists, since "+info.Key+" does", "none")
	}
	return nil
}

// change replaces the table of the layout by what do makes of its map. Do is called again after a
// lost race, and returns nil for no change.
func (r *Registry) change(ctx context.Context, do func(m *pieces.Map) (edits []pieces.Edit, names int64, err error)) error {
	var failure error
	for round := range commitRounds {
		if round == 0 {
			if err := create(ctx, r.store); err != nil {
				return fmt.Errorf("domain64 numbers: %w", err)
			}
		}
		// A collection that announced itself before the document was there has not written its
		// number into it. Others are in the document.
		if _, err := lease.LastSweep(ctx, r.store); err != nil {
			return fmt.Errorf("domain64 numbers: %w", err)
		}
		doc, etag, err := load(ctx, r.store)
		if err == nil && etag == "" {
			err = fmt.Errorf("domain64 numbers: %w", codec.Corrupt(Key, "object", -1, "one that exists", "none"))
		}
		if err == nil {
			err = lease.AwaitSweep(ctx, r.store, doc.Swept)
		}
		if err != nil {
			return err
		}
		was := doc.Layouts[r.layout.String()]
		m := pieces.Open(r.store, PiecesRoot, was.Pieces)
		edits, names, err := do(m)
		if err == nil && len(edits) > 0 && failure == nil {
			m, err = m.Apply(ctx, edits)
		}
		if errors.Is(err, codec.ErrCorrupt) && r.replaced(ctx, etag) {
			continue // pieces of a document that was replaced meanwhile may have been collected
		}
		switch {
		case err != nil:
			return fmt.Errorf("domain64 numbers: %w", err)
		case len(edits) == 0:
			return nil
		case failure != nil:
			return fmt.Errorf("domain64 numbers: %w", failure)
		}
		if doc.Layouts == nil {
			doc.Layouts = map[string]table{}
		}
		doc.Layouts[r.layout.String()] = table{Names: was.Names + names, Pieces: m.Ref()}
		doc.Generation++
		_, err = lake.SaveKeyed(ctx, r.store, Key, documentFormat, doc, blob.Condition{IfMatch: etag})
		if err == nil {
			return nil
		}
		if !errors.Is(err, blob.ErrPrecondition) {
			failure = err // the put may have taken effect: the next round tells
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(commitPause * time.Duration(min(round+1, 32)))):
		}
	}
	return fmt.Errorf("domain64 numbers: %s kept changing", Key)
}

// replaced reports whether the document has another ETag now.
func (r *Registry) replaced(ctx context.Context, etag string) bool {
	info, err := r.store.Stat(ctx, Key)
	return err == nil && info.ETag != etag
}

// read calls do with the map of the layout as it is now, and again if a garbage collection has
// taken pieces of a document that was replaced meanwhile.
func (r *Registry) read(ctx context.Context, do func(t table, m *pieces.Map) error) error {
	for {
		doc, etag, err := load(ctx, r.store)
		if err == nil && etag == "" {
			if err = checkLost(ctx, r.store); err == nil {
				doc = &document{}
			}
		}
		if err != nil {
			return err
		}
		t := doc.Layouts[r.layout.String()]
		err = do(t, pieces.Open(r.store, PiecesRoot, t.Pieces))
		if errors.Is(err, codec.ErrCorrupt) && etag != "" && r.replaced(ctx, etag) {
			continue
		}
		return err
	}
}

// State returns how far the registry is.
func (r *Registry) State(ctx context.Context) (s State, err error) {
	err = r.read(ctx, func(t table, _ *pieces.Map) error {
		s = State{Names: t.Names, Digest: t.Pieces.Root}
		return nil
	})
	return s, err
}

// Layouts returns the layouts in which a lake has numbers, with how many names have one.
func Layouts(ctx context.Context, store blob.Store) (map[domain64.Layout]int64, error) {
	doc, _, err := load(ctx, store)
	if err != nil {
		return nil, err
	}
	all := map[domain64.Layout]int64{}
	for name, t := range doc.Layouts {
		l, err := domain64.ParseLayout(name)
		if err != nil {
			return nil, err
		}
		all[l] = t.Names
	}
	return all, nil
}

// Announce writes the number of a sweep of a garbage collection into the document, so that commits
// that are in flight begin again and wait for its end (package lease). A lake without numbers has
// no document, and needs none: whoever writes the first one looks for a sweep after that.
func Announce(ctx context.Context, store blob.Store, sweep uint64) error {
	for range commitRounds {
		doc, etag, err := load(ctx, store)
		if err != nil || etag == "" || doc.Swept == sweep {
			return err
		}
		if doc.Swept > sweep {
			return fmt.Errorf("domain64 numbers: %w: sweep %d", lease.ErrSweepLost, doc.Swept)
		}
		doc.Swept = sweep
		doc.Generation++
		_, err = lake.SaveKeyed(ctx, store, Key, documentFormat, doc, blob.Condition{IfMatch: etag})
		if err == nil || !errors.Is(err, blob.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("domain64 numbers: %s kept changing", Key)
}

// Pieces yields the key of every piece that the document names, without reading the leaves. Damage
// is an error, which ends it.
func Pieces(ctx context.Context, store blob.Store) iter.Seq2[string, error] {
	return each(ctx, store, (*pieces.Map).Names)
}

// Check yields the key of every piece that the document names and whether it is sound: the error is
// the *codec.CorruptError of a piece that is missing or damaged, or of the document. Another error
// ends it.
func Check(ctx context.Context, store blob.Store) iter.Seq2[string, error] {
	return each(ctx, store, (*pieces.Map).Pieces)
}

func each(
	ctx context.Context, store blob.Store, of func(*pieces.Map, context.Context) iter.Seq2[string, error],
) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		doc, etag, err := load(ctx, store)
		if err == nil && etag == "" {
			err = checkLost(ctx, store)
		}
		if err != nil {
			yield(Key, err)
			return
		}
		for _, t := range doc.Layouts {
			for key, err := range of(pieces.Open(store, PiecesRoot, t.Pieces), ctx) {
				if !yield(key, err) {
					return
				}
			}
		}
	}
}
