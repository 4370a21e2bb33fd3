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
	"math"
	"slices"
	"sort"
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

// A piece, integers as varints unless stated otherwise:
//
//	magic "UPCE", version u32 LE, level u8
//	entries: bytes of the key shared with the key before, length and bytes of the rest;
//	  in a leaf: length and bytes of the value
//	  otherwise: digest of the piece below (16 bytes), number of entries in it and below
//
// A piece that is not a leaf holds the last key of each piece below it.
const (
	pieceMagic   = "UPCE"
	pieceVersion = 1
	digestBytes  = 16
)

// A piece ends after a key whose hash says so, one in 128, but holds at least minEntries, and at
// most maxEntries and some targetBytes: what one change writes stays small.
const (
	endMask     = 1<<7 - 1
	minEntries  = 32
	maxEntries  = 1 << 9
	targetBytes = 24 << 10
	// usualBytes is what most pieces take.
	usualBytes = 4 << 10
)

// piece is a decoded piece. Entries of a piece that is not a leaf have no values, but children.
type piece struct {
	name     string
	entries  []Entry
	children []child
	total    int64 // entries in the leaves below
	bytes    int   // memory
}

// search returns the index of the first entry whose key is not before key.
func (p *piece) search(key []byte) int {
	return sort.Search(len(p.entries), func(i int) bool { return bytes.Compare(p.entries[i].Key, key) >= 0 })
}

func (p *piece) lastKey() []byte { return p.entries[len(p.entries)-1].Key }

// decode reads a piece.
func decode(data []byte, file string, level int) (*piece, error) {
	d := codec.NewDecoder(data, file, "piece")
	d.Magic(pieceMagic, pieceVersion)
	if got := d.U8(); d.Err() == nil && int(got) != level {
		d.Fail(fmt.Sprintf("level %d", level), got)
	}
	p := &piece{bytes: len(data)}
	keys := make([]byte, 0, 2*len(data)) // all of them
	var last []byte
	for d.Err() == nil && d.Len() > 0 {
		shared := d.Uint(uint64(len(last)))
		rest := d.Bytes(int(d.Uint(MaxKey - shared)))
		if d.Err() != nil {
			break
		}
		from := len(keys)
		keys = append(append(keys, last[:shared]...), rest...)
		key := keys[from:len(keys):len(keys)]
		if bytes.Compare(key, last) <= 0 {
			d.Fail("keys in ascending order", fmt.Sprintf("%q after %q", key, last))
			break
		}
		e := Entry{Key: key}
		if level == 0 {
			e.Value = d.Bytes(int(d.Uint(MaxValue)))
			p.total++
		} else {
			c := child{last: key, name: hex.EncodeToString(d.Bytes(digestBytes)), level: level - 1}
			c.entries = int64(d.Uint(math.MaxInt64 - uint64(p.total)))
			p.total += c.entries
			p.children = append(p.children, c)
		}
		p.entries = append(p.entries, e)
		p.bytes += len(key) + entryMemory
		last = key
	}
	if d.Err() == nil && len(p.entries) == 0 {
		d.Fail("an entry", "none")
	}
	return p, d.Close()
}

// entryMemory is about what an entry takes besides its bytes.
const entryMemory = 96

// cutter divides the entries of one level into pieces.
type cutter struct {
	level int
	buf   []byte
	last  []byte
	n     int
	total int64
	done  []encoded
}

// encoded is a piece to be written.
type encoded struct {
	child
	data []byte
}

// add appends an entry: of a leaf, or the piece below that c is.
func (w *cutter) add(e Entry, c child) {
	if w.n == 0 {
		w.buf = append(codec.AppendMagic(make([]byte, 0, usualBytes), pieceMagic, pieceVersion), byte(w.level))
		w.last = nil
	}
	shared := codec.CommonPrefix(w.last, e.Key)
	w.buf = codec.AppendUvarint(w.buf, uint64(shared))
	w.buf = codec.AppendUvarint(w.buf, uint64(len(e.Key)-shared))
	w.buf = append(w.buf, e.Key[shared:]...)
	if w.level == 0 {
		w.buf = codec.AppendUvarint(w.buf, uint64(len(e.Value)))
		w.buf = append(w.buf, e.Value...)
		w.total++
	} else {
		name, _ := hex.DecodeString(c.name) // decode and digest made it
		w.buf = append(w.buf, name...)
		w.buf = codec.AppendUvarint(w.buf, uint64(c.entries))
		w.total += c.entries
	}
	w.last = e.Key
	w.n++
	ends := w.n >= minEntries && xxh3.HashSeed(e.Key, uint64(w.level))&endMask == 0
	if ends || w.n == maxEntries || w.n > 1 && len(w.buf) >= targetBytes {
		w.cut()
	}
}

// cut ends the piece.
func (w *cutter) cut() {
	if w.n == 0 {
		return
	}
	c := child{last: bytes.Clone(w.last), name: digest(w.buf), level: w.level, entries: w.total}
	w.done = append(w.done, encoded{c, w.buf})
	w.buf, w.n, w.total = nil, 0, 0
}

// ErrOrder is the error of Build for keys that do not ascend.
var ErrOrder = errors.New("keys do not ascend")

// writeAtOnce is how many pieces Build holds until it writes them.
const writeAtOnce = 64

// Build writes a map of the entries of seq, whose keys ascend, below folder, which ends with a
// slash. An error that seq yields is returned. Memory does not grow with the number of entries but
// for the keys of its pieces.
func Build(ctx context.Context, store blob.Store, folder string, seq iter.Seq2[Entry, error]) (*Map, error) {
	m := Open(store, folder, Ref{})
	w := cutter{}
	var last []byte
	var level []child
	flush := func() error {
		for _, e := range w.done {
			level = append(level, e.child)
		}
		err := m.put(ctx, w.done)
		w.done = w.done[:0]
		return err
	}
	for e, err := range seq {
		if err == nil {
			err = check(e)
		}
		if err == nil && last != nil && bytes.Compare(e.Key, last) <= 0 {
			err = fmt.Errorf("%w: %q after %q", ErrOrder, e.Key, last)
		}
		if err != nil {
			return nil, err
		}
		last = append(last[:0], e.Key...)
		w.add(Entry{bytes.Clone(e.Key), e.Value}, child{})
		if len(w.done) >= writeAtOnce {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	w.cut()
	if err := flush(); err != nil {
		return nil, err
	}
	err := m.raise(ctx, level)
	return m, err
}

// check returns an error if an entry cannot be in a map.
func check(e Entry) error {
	if len(e.Key) == 0 || len(e.Key) > MaxKey || len(e.Value) > MaxValue {
		return fmt.Errorf("map entry %q with a value of %d bytes: want a key of 1 to %d bytes, and at most %d",
			e.Key, len(e.Value), MaxKey, MaxValue)
	}
	return nil
}

// raise writes the pieces above those of a level until there is one, and makes it the root.
func (m *Map) raise(ctx context.Context, level []child) error {
	for len(level) > 1 {
		w := cutter{level: level[0].level + 1}
		for _, c := range level {
			w.add(Entry{Key: c.last}, c)
		}
		w.cut()
		if err := m.put(ctx, w.done); err != nil {
			return err
		}
		level = level[:0:0]
		for _, e := range w.done {
			level = append(level, e.child)
		}
	}
	m.ref = Ref{}
	if len(level) == 1 {
		m.ref = Ref{Root: level[0].name, Level: level[0].level, Entries: level[0].entries}
	}
	return nil
}

// put writes pieces.
func (m *Map) put(ctx context.Context, all []encoded) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, e := range all {
		group.Go(func() error {
			// Without a condition, so that a retry, or another writer of the same piece, succeeds.
			_, err := m.store.Put(ctx, m.key(e.child), e.data, blob.Condition{})
			return err
		})
	}
	return group.Wait()
}

// change sets or removes an entry of a level. In a leaf that is a key and its value, on other
// levels the reference to a piece, by its last key.
type change struct {
	Entry
	child  *child // nil in a leaf
	remove bool
}

// Apply writes the map that edits make of m, which stays as it is. Of several edits of one key the
// last holds; removing a key that is not there changes nothing. Only pieces that m has not are
// written. Edits that change nothing return a map with m's Ref.
func (m *Map) Apply(ctx context.Context, edits []Edit) (*Map, error) {
	changes, keys, err := prepare(edits)
	if err != nil {
		return nil, err
	}
	if m.ref.Root == "" {
		return Build(ctx, m.store, m.folder, func(yield func(Entry, error) bool) {
			for _, c := range changes {
				if !c.remove && !yield(c.Entry, nil) {
					return
				}
			}
		})
	}
	next := Open(m.store, m.folder, m.ref)
	if _, err := m.GetMany(ctx, keys); err != nil { // reads many pieces at a time into the cache
		return nil, err
	}
	root, err := m.read(ctx, m.root())
	if err != nil {
		return nil, err
	}
	for level := 0; len(changes) > 0; level++ {
		divided, err := m.applyLevel(ctx, level, root.lastKey(), changes)
		if err != nil {
			return nil, err
		}
		if err := next.put(ctx, divided.made); err != nil {
			return nil, err
		}
		if level == m.ref.Level {
			if err := next.raise(ctx, divided.pieces); err != nil {
				return nil, err
			}
			return next, next.lower(ctx)
		}
		changes = divided.above
	}
	return next, nil
}

// prepare sorts edits by key and leaves out those that a later one of the same key replaces.
func prepare(edits []Edit) (changes []change, keys [][]byte, err error) {
	byKey := func(a, b Edit) int { return bytes.Compare(a.Key, b.Key) }
	sorted := edits
	if !slices.IsSortedFunc(edits, byKey) {
		sorted = slices.Clone(edits)
		slices.SortStableFunc(sorted, byKey)
	}
	changes, keys = make([]change, 0, len(sorted)), make([][]byte, 0, len(sorted))
	for i, e := range sorted {
		if err := check(e.Entry); err != nil {
			return nil, nil, err
		}
		if i+1 < len(sorted) && bytes.Equal(e.Key, sorted[i+1].Key) {
			continue
		}
		changes = append(changes, change{Entry: e.Entry, remove: e.Delete})
		keys = append(keys, e.Key)
	}
	return changes, keys, nil
}

// lower removes the levels at the top that have a single piece below them, so that a map has no
// more levels than it needs.
func (m *Map) lower(ctx context.Context) error {
	for m.ref.Level > 0 {
		p, err := m.read(ctx, m.root())
		if err != nil || len(p.children) > 1 {
			return err
		}
		m.ref.Root, m.ref.Level = p.children[0].name, p.children[0].level
	}
	return nil
}

// divided is what a change makes of a level.
type divided struct {
	made   []encoded // pieces that the old map has not
	pieces []child   // the same and the unchanged ones among them
	above  []change  // what changes on the level above, by key
}

// applyLevel divides the changed parts of a level anew. Last is the last key of the map.
func (m *Map) applyLevel(ctx context.Context, level int, last []byte, changes []change) (*divided, error) {
	d := &divided{}
	for len(changes) > 0 {
		// A run begins with the piece that the next change belongs to, and ends where an old and a
		// new piece end alike: behind that, all pieces stay as they are.
		from := changes[0].Key
		if bytes.Compare(from, last) > 0 {
			from = last
		}
		w := cutter{level: level}
		var old []child
		for p, err := range m.level(ctx, level, from) {
			if err != nil {
				return nil, err
			}
			end := p.lastKey()
			old = append(old, child{last: end, name: p.name, level: level, entries: p.total})
			if bytes.Equal(end, last) {
				end = nil // the last piece takes what follows
			}
			changes = w.merge(p, changes, end)
			if w.n == 0 {
				break
			}
		}
		w.cut()
		d.replace(old, w.done)
	}
	slices.SortFunc(d.above, func(a, b change) int { return bytes.Compare(a.Key, b.Key) })
	return d, nil
}

// merge adds the entries of a piece, changed by the changes up to the key end, or by all if end is
// nil. It returns the other changes.
func (w *cutter) merge(p *piece, changes []change, end []byte) []change {
	at := 0
	old := func() {
		if p.children != nil {
			w.add(p.entries[at], p.children[at])
		} else {
			w.add(p.entries[at], child{})
		}
	}
	for ; len(changes) > 0; changes = changes[1:] {
		c := changes[0]
		if end != nil && bytes.Compare(c.Key, end) > 0 {
			break
		}
		for ; at < len(p.entries) && bytes.Compare(p.entries[at].Key, c.Key) < 0; at++ {
			old()
		}
		if at < len(p.entries) && bytes.Equal(p.entries[at].Key, c.Key) {
			at++
		}
		switch {
		case c.remove:
		case c.child != nil:
			w.add(c.Entry, *c.child)
		default:
			w.add(c.Entry, child{})
		}
	}
	for ; at < len(p.entries); at++ {
		old()
	}
	return changes
}

// replace notes that pieces take the place of old ones.
func (d *divided) replace(old []child, pieces []encoded) {
	for _, o := range old {
		if !slices.ContainsFunc(pieces, func(e encoded) bool { return bytes.Equal(e.last, o.last) }) {
			d.above = append(d.above, change{Entry: Entry{Key: o.last}, remove: true})
		}
	}
	for _, e := range pieces {
		d.pieces = append(d.pieces, e.child)
		if !slices.ContainsFunc(old, func(o child) bool { return o.name == e.name }) {
			d.made = append(d.made, e)
			d.above = append(d.above, change{Entry: Entry{Key: e.last}, child: &e.child})
		}
	}
}
