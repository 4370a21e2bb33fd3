// Package pieces is an immutable sorted map whose content is kept in many small objects, so that a
// map that differs little from another shares nearly all objects with it. Documents that grow with
// the lake are kept in it: changing one entry of a map of millions writes some ten kilobytes.
//
// A map is a search tree. Its leaves hold the entries, in the order of their keys. Every other
// piece holds the last key and the digest of each piece below it. A piece is an immutable object
// that is named by the digest of its bytes.
//
// The tree depends on the content alone, not on the order of the changes that led to it: where a
// piece ends is decided by the hash of the key that ends it, so two maps with the same entries are
// the same pieces. Such trees are known as prolly trees.
//
// # Writing
//
// Pieces are written from the leaves up, and a reference to the new map exists only when all of
// them are stored. A writer that dies leaves pieces to which nothing refers. Nothing here deletes
// pieces.
//
// # Reading
//
// Every piece that is read is held against its digest. One that is missing or damaged is a
// *codec.CorruptError that names it.
package pieces

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// MaxKey and MaxValue are the most bytes of a key and of a value.
	MaxKey   = 1 << 10
	MaxValue = 1 << 16

	// maxLevel is more than 256 pieces a piece can need.
	maxLevel = 16

	// atOnce is the most pieces that are read or written concurrently.
	atOnce = 16

	// cached is how many bytes of decoded pieces a Map keeps.
	cached = 8 << 20
)

// Entry is a key with its value. A key has 1 to MaxKey bytes, a value at most MaxValue.
type Entry struct{ Key, Value []byte }

// Edit sets the value of a key, or removes it.
type Edit struct {
	Entry
	Delete bool
}

// Ref names the content of a map. The zero value is the empty map.
type Ref struct {
	// Root is the digest of the topmost piece, as 32 hex digits.
	Root string `json:"root,omitempty"`
	// Level is its height: 0 for a map of one leaf.
	Level int `json:"level,omitempty"`
	// Entries is the number of entries.
	Entries int64 `json:"entries"`
}

// Map is the content that a Ref names. It is safe for concurrent use, and its bytes may not be
// changed by callers. A nil Map can be read and is empty.
type Map struct {
	store  blob.Store
	folder string
	ref    Ref
	slots  chan struct{} // taken by reads

	mu     sync.Mutex
	cache  map[string]*piece
	recent []string // names in cache, the oldest first
	bytes  int
}

// Open returns the map that ref names, whose pieces are below folder, which ends with a slash. It
// reads nothing yet.
func Open(store blob.Store, folder string, ref Ref) *Map {
	return &Map{
		store: store, folder: folder, ref: ref, slots: make(chan struct{}, atOnce), cache: map[string]*piece{},
	}
}

// Key is the object of the piece with that name in a folder.
func Key(folder, name string) string { return folder + name[:2] + "/" + name }

func (m *Map) key(c child) string { return Key(m.folder, c.name) }

// Ref returns what names the map.
func (m *Map) Ref() Ref { return m.ref }

// Len is the number of entries.
func (m *Map) Len() int64 {
	if m == nil {
		return 0
	}
	return m.ref.Entries
}

// Check returns a *codec.CorruptError, which names file, if ref cannot name a map.
func (r Ref) Check(file string) error {
	empty := r.Root == "" && r.Level == 0 && r.Entries == 0
	digest, err := hex.DecodeString(r.Root)
	if empty || err == nil && len(digest) == digestBytes && r.Level >= 0 && r.Level <= maxLevel && r.Entries > 0 {
		return nil
	}
	return codec.Corrupt(file, "reference to pieces", -1, "a digest, a level and a number of entries", fmt.Sprintf("%+v", r))
}

// Get returns the value of a key.
func (m *Map) Get(ctx context.Context, key []byte) (value []byte, ok bool, err error) {
	found, err := m.GetMany(ctx, [][]byte{key})
	if err != nil || found[0] == nil {
		return nil, false, err
	}
	return found[0].Value, true, nil
}

// GetMany returns the entry of each key, nil for a key that is not in the map. It reads each piece
// once, and many at a time.
func (m *Map) GetMany(ctx context.Context, keys [][]byte) ([]*Entry, error) {
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		slices.SortFunc(order, func(a, b int) int { return bytes.Compare(keys[a], keys[b]) })
	}
	found := make([]*Entry, len(keys))
	if m.Len() == 0 {
		return found, nil
	}
	return found, m.find(ctx, m.root(), keys, order, found)
}

// child is a reference to a piece.
type child struct {
	last    []byte // its last key; nil for the root
	name    string
	level   int
	entries int64
}

func (m *Map) root() child {
	return child{name: m.ref.Root, level: m.ref.Level, entries: m.ref.Entries}
}

// find fills in the entries of the keys in order, which is sorted by key, below a piece.
func (m *Map) find(ctx context.Context, at child, keys [][]byte, order []int, found []*Entry) error {
	p, err := m.read(ctx, at)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for len(order) > 0 {
		i := p.search(keys[order[0]])
		if i == len(p.entries) {
			break // behind the last key
		}
		n := 1
		for n < len(order) && bytes.Compare(keys[order[n]], p.entries[i].Key) <= 0 {
			n++
		}
		some := order[:n]
		order = order[n:]
		if at.level > 0 {
			group.Go(func() error { return m.find(ctx, p.children[i], keys, some, found) })
			continue
		}
		for _, k := range some {
			if bytes.Equal(keys[k], p.entries[i].Key) {
				found[k] = &p.entries[i]
			}
		}
	}
	return group.Wait()
}

// Range yields the entries with from <= key < to in order; a nil to has no end. An error is the
// last thing that it yields. Pieces are read ahead.
func (m *Map) Range(ctx context.Context, from, to []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for leaf, err := range m.level(ctx, 0, from) {
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for i := leaf.search(from); i < len(leaf.entries); i++ {
				if to != nil && bytes.Compare(leaf.entries[i].Key, to) >= 0 || !yield(leaf.entries[i], nil) {
					return
				}
			}
		}
	}
}

// All yields all entries in order.
func (m *Map) All(ctx context.Context) iter.Seq2[Entry, error] { return m.Range(ctx, nil, nil) }

// Pieces yields the key of every object of the map and whether it is sound: the error is the
// *codec.CorruptError of a piece that is missing or damaged, below which nothing is known. Another
// error ends it.
func (m *Map) Pieces(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.walk(ctx, walk{do: func(c child, _ *piece, err error) bool { return yield(m.key(c), err) }})
	}
}

// Names yields the key of every object of the map, without reading the leaves. An error, also that
// of a damaged piece, is the last thing that it yields.
func (m *Map) Names(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		m.walk(ctx, walk{unread: true, do: func(c child, _ *piece, err error) bool {
			return yield(m.key(c), err) && err == nil
		}})
	}
}

// Sound yields the entries of all pieces that can be read, in order. Damaged is called with the key
// of every piece that is missing or damaged, below which nothing is known. Another error ends it.
func (m *Map) Sound(ctx context.Context, damaged func(key string)) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		m.walk(ctx, walk{do: func(c child, p *piece, err error) bool {
			switch {
			case errors.Is(err, codec.ErrCorrupt):
				damaged(m.key(c))
			case err != nil:
				return yield(Entry{}, err)
			case c.level == 0:
				for _, e := range p.entries {
					if !yield(e, nil) {
						return false
					}
				}
			}
			return true
		}})
	}
}

// Leaves yields the entries of all intact leaves below a folder, leaf by leaf, also of those that
// no map names. It is for what is left of a lost map.
func Leaves(ctx context.Context, store blob.Store, folder string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for info, err := range store.List(ctx, folder) {
			var data []byte
			if err == nil {
				data, _, err = store.Get(ctx, info.Key)
			}
			if errors.Is(err, blob.ErrNotExist) {
				continue
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			p, err := decode(data, info.Key, 0)
			if err != nil || Key(folder, digest(data)) != info.Key {
				continue
			}
			for _, e := range p.entries {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// level yields the pieces of a level in order, from the first whose last key is not before from.
func (m *Map) level(ctx context.Context, level int, from []byte) iter.Seq2[*piece, error] {
	return func(yield func(*piece, error) bool) {
		m.walk(ctx, walk{lowest: level, from: from, do: func(c child, p *piece, err error) bool {
			if err == nil && c.level > level {
				return true
			}
			return yield(p, err) && err == nil
		}})
	}
}

// walk says which pieces a walk visits: those of the level lowest and above, from the first whose
// last key is not before from. A piece comes before those below it.
type walk struct {
	lowest int
	unread bool // leaves are visited without being read
	from   []byte
	// do is called with each piece and why it could not be read. An error that is not about damage
	// ends the walk, as does false.
	do func(c child, p *piece, err error) bool
}

func (m *Map) walk(ctx context.Context, w walk) {
	if m.Len() > 0 {
		m.visit(ctx, []child{m.root()}, &w)
	}
}

// visit visits some pieces of one level and those below. It reads a few ahead at first and then
// more, so that a search in a range costs little and a scan is fast.
func (m *Map) visit(ctx context.Context, at []child, w *walk) bool {
	for ahead := 1; len(at) > 0; ahead = min(2*ahead, atOnce) {
		some := at[:min(ahead, len(at))]
		at = at[len(some):]
		read, failed := make([]*piece, len(some)), make([]error, len(some))
		group, groupCtx := errgroup.WithContext(ctx)
		for i, c := range some {
			if c.level == 0 && w.unread {
				continue
			}
			group.Go(func() error {
				if read[i], failed[i] = m.read(groupCtx, c); errors.Is(failed[i], codec.ErrCorrupt) {
					return nil
				}
				return failed[i]
			})
		}
		if err := group.Wait(); err != nil {
			w.do(some[0], nil, err)
			return false
		}
		for i, c := range some {
			if !w.do(c, read[i], failed[i]) {
				return false
			}
			if failed[i] != nil || c.level <= w.lowest {
				continue
			}
			p := read[i]
			if !m.visit(ctx, p.children[min(p.search(w.from), len(p.children)):], w) {
				return false
			}
		}
	}
	return true
}

// read returns a piece.
func (m *Map) read(ctx context.Context, c child) (*piece, error) {
	m.mu.Lock()
	p := m.cache[c.name]
	m.mu.Unlock()
	if p != nil {
		return p, nil
	}
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	key := m.key(c)
	data, _, err := m.store.Get(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil, codec.Corrupt(key, "object", -1, "one that exists, since a map names it", "none")
	}
	if err != nil {
		return nil, err
	}
	if got := digest(data); got != c.name {
		return nil, codec.Corrupt(key, "digest", -1, c.name, got)
	}
	p, err = decode(data, key, c.level)
	if err != nil {
		return nil, err
	}
	if p.total != c.entries {
		return nil, codec.Corrupt(key, "entries", -1, c.entries, p.total)
	}
	if c.last != nil && !bytes.Equal(p.lastKey(), c.last) {
		return nil, codec.Corrupt(key, "last key", -1, fmt.Sprintf("%q", c.last), fmt.Sprintf("%q", p.lastKey()))
	}
	p.name = c.name
	m.keep(c.name, p)
	return p, nil
}

// keep puts a piece into the cache.
func (m *Map) keep(name string, p *piece) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cache[name] != nil {
		return
	}
	m.cache[name] = p
	m.recent = append(m.recent, name)
	m.bytes += p.bytes
	for m.bytes > cached && len(m.recent) > 1 {
		m.bytes -= m.cache[m.recent[0]].bytes
		delete(m.cache, m.recent[0])
		m.recent = m.recent[1:]
	}
}

// digest names a piece by its bytes.
func digest(data []byte) string {
	h := xxh3.Hash128(data).Bytes()
	return hex.EncodeToString(h[:])
}
