package pieces

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake/blob"
)

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
