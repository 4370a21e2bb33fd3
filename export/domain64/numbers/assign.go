package numbers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/urlake/urlake/export/domain64"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/pieces"
)

// The map of a layout has these entries, integers as varints unless stated otherwise:
//
//	'n', code of the parent (u64 BE), level (u8), label   number of that child
//	'n', code of the parent (u64 BE), level (u8)          how many children of that level it has
//	'c', code (u64 BE)                                    label of the name with that code
//
// So the children of a parent, by label, are neighbours, and so are names by code.
const (
	byName = 'n'
	byCode = 'c'

	nameKeyLen = 1 + 8 + 1
	codeKeyLen = 1 + 8

	// maxLabel is the longest label: a key of the map may not be longer.
	maxLabel = pieces.MaxKey - nameKeyLen
)

func appendNameKey(b []byte, parent domain64.Code, level domain64.Level) []byte {
	return append(binary.BigEndian.AppendUint64(append(b, byName), uint64(parent)), byte(level))
}

func appendCodeKey(b []byte, c domain64.Code) []byte {
	return binary.BigEndian.AppendUint64(append(b, byCode), uint64(c))
}

// place is a name at one level of a batch of names: one for each different parent and label.
type place struct {
	parent int32 // index of the place above in its level, -1 for the top
	label  string
	code   domain64.Code // 0 if it has no number yet
}

// levels are the places of a batch, by level.
type levels struct {
	places [domain64.Levels][]place
	// of has the index of each name's place at the lowest level that it has.
	of []int32
	at []domain64.Level
}

type placeKey struct {
	parent int32
	host   domain64.Level // the level of a path's parent
	label  string
}

// arrange finds the different places of names. The order of places of one level is that in which
// they come first.
func arrange(names []domain64.Name) (*levels, error) {
	l := &levels{of: make([]int32, len(names)), at: make([]domain64.Level, len(names))}
	// Names that are sorted by level come in one run for each place, so nothing has to be looked
	// up.
	sorted := slices.IsSortedFunc(names, domain64.Name.Compare)
	var known [domain64.Levels]map[placeKey]int32
	for i := range known {
		if !sorted {
			known[i] = map[placeKey]int32{}
		}
	}
	var last domain64.Name
	var lastAt [domain64.Levels]int32
	for i, n := range names {
		if err := n.Check(); err != nil {
			return nil, err
		}
		parent, above := int32(-1), domain64.TLD
		same := i > 0
		for level := domain64.TLD; level < domain64.Levels; level++ {
			label := n.Label(level)
			if same = same && label == last.Label(level); label == "" {
				continue
			}
			if len(label) > maxLabel {
				return nil, fmt.Errorf("domain64 %s of %d bytes, at most %d can be numbered: %.60s…", level, len(label), maxLabel, n)
			}
			at := lastAt[level]
			if !same {
				k := placeKey{parent, above, label}
				var ok bool
				if !sorted {
					at, ok = known[level][k]
				}
				if !ok {
					at = int32(len(l.places[level]))
					l.places[level] = append(l.places[level], place{parent: l.pack(parent, above), label: label})
					if !sorted {
						known[level][k] = at
					}
				}
				lastAt[level] = at
			}
			parent, above = at, level
		}
		l.of[i], l.at[i] = parent, above
		last = n
	}
	return l, nil
}

// The parent of a path can be of any level above. Its level is kept in the two highest bits below
// the sign of the index.
const packShift = 29

// maxBatch is the most names of one call, so that indexes leave room for a level.
const maxBatch = 1 << 20

func (l *levels) pack(parent int32, level domain64.Level) int32 {
	if parent < 0 {
		return parent
	}
	return parent | int32(level)<<packShift
}

func (l *levels) parentCode(p *place) domain64.Code {
	if p.parent < 0 {
		return 0
	}
	return l.places[p.parent>>packShift][p.parent&(1<<packShift-1)].code
}

// name returns the whole name of a place.
func (l *levels) name(level domain64.Level, p *place) (n domain64.Name) {
	for {
		n = n.With(level, p.label)
		if p.parent < 0 {
			return n
		}
		level = domain64.Level(p.parent >> packShift)
		p = &l.places[level][p.parent&(1<<packShift-1)]
	}
}

// find fills in the codes that a level's places have in a map. Those above are filled in before.
func (l *levels) find(ctx context.Context, layout domain64.Layout, m *pieces.Map, level domain64.Level) error {
	places := l.places[level]
	var keys [][]byte
	var asked []int32
	size := 0
	for i := range places {
		size += nameKeyLen + len(places[i].label)
	}
	arena := make([]byte, 0, size)
	for i := range places {
		p := &places[i]
		p.code = 0
		parent := l.parentCode(p)
		if p.parent >= 0 && parent == 0 || m.Len() == 0 {
			continue // the parent is new, so it has no children
		}
		from := len(arena)
		arena = append(appendNameKey(arena, parent, level), p.label...)
		keys = append(keys, arena[from:len(arena):len(arena)])
		asked = append(asked, int32(i))
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := m.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	for k, e := range found {
		if e == nil {
			continue
		}
		p := &places[asked[k]]
		number, err := decodeNumber(e.Value, layout.Max(level))
		if err != nil {
			return err
		}
		p.code = layout.Child(l.parentCode(p), level, number)
	}
	return nil
}

// decodeNumber reads a number of 1 to most.
func decodeNumber(value []byte, most uint32) (uint32, error) {
	d := codec.NewDecoder(value, Key, "number")
	n := d.Uint(uint64(most))
	if n == 0 && d.Err() == nil {
		d.Fail("a number", 0)
	}
	return uint32(n), d.Close()
}

// codes returns the codes of the names, 0 for those without.
func (l *levels) codes() []domain64.Code {
	all := make([]domain64.Code, len(l.of))
	for i, at := range l.of {
		all[i] = l.places[l.at[i]][at].code
	}
	return all
}

// Find returns the codes of names, 0 for those that have none yet.
func (r *Registry) Find(ctx context.Context, names []domain64.Name) ([]domain64.Code, error) {
	all := make([]domain64.Code, 0, len(names))
	for some := range slices.Chunk(names, maxBatch) {
		l, err := arrange(some)
		if err != nil {
			return nil, err
		}
		err = r.read(ctx, func(_ table, m *pieces.Map) error {
			for level := range l.places {
				if err := l.find(ctx, r.layout, m, domain64.Level(level)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("domain64 numbers: %w", err)
		}
		all = append(all, l.codes()...)
	}
	return all, nil
}

// Assign returns the codes of names, and gives a number to those that have none, and to the names
// above them, in the order in which they come. All new numbers of a call of at most a million names
// are one commit: when Assign returns, they are durable, and if it fails, they may or may not be,
// which another call finds out. Larger calls are several commits.
//
// A commit writes what changes of the registry, so batches of 100,000 names or more cost least, and
// least of all if names that are neighbours in order come in one batch. Memory is about 300 bytes a
// name.
//
// The error is a *FullError, and nothing of that commit is assigned, if a parent has no number
// left.
func (r *Registry) Assign(ctx context.Context, names []domain64.Name) ([]domain64.Code, error) {
	all := make([]domain64.Code, 0, len(names))
	for some := range slices.Chunk(names, maxBatch) {
		l, err := arrange(some)
		if err != nil {
			return nil, err
		}
		if err := r.change(ctx, func(m *pieces.Map) ([]pieces.Edit, int64, error) { return l.assign(ctx, r.layout, m) }); err != nil {
			return nil, err
		}
		all = append(all, l.codes()...)
	}
	return all, nil
}

// assign finds codes, gives those that are missing, and returns what changes in the map.
func (l *levels) assign(ctx context.Context, layout domain64.Layout, m *pieces.Map) (edits []pieces.Edit, added int64, err error) {
	var lists [][]pieces.Edit
	for i := range l.places {
		level := domain64.Level(i)
		if err := l.find(ctx, layout, m, level); err != nil {
			return nil, 0, err
		}
		more, n, err := l.number(ctx, layout, m, level)
		if err != nil {
			return nil, 0, err
		}
		lists, added = append(lists, more...), added+n
	}
	return mergeEdits(lists), added, nil
}

// mergeEdits returns the edits of all lists in the order of their keys, of which no two are equal.
// If names come sorted, each list is sorted.
func mergeEdits(lists [][]pieces.Edit) []pieces.Edit {
	for i := range lists {
		lists[i] = sortEdits(lists[i])
	}
	for len(lists) > 1 {
		slices.SortFunc(lists, func(a, b []pieces.Edit) int { return cmp.Compare(len(a), len(b)) })
		a, b := lists[0], lists[1]
		merged := make([]pieces.Edit, 0, len(a)+len(b))
		for len(a) > 0 && len(b) > 0 {
			if bytes.Compare(a[0].Key, b[0].Key) < 0 {
				merged, a = append(merged, a[0]), a[1:]
			} else {
				merged, b = append(merged, b[0]), b[1:]
			}
		}
		lists = append(lists[2:], append(append(merged, a...), b...))
	}
	if len(lists) == 0 {
		return nil
	}
	return lists[0]
}

// sortEdits sorts edits by their keys, whose first eight bytes behind the kind are a code:
// comparing these first, as numbers, is what makes it fast. No two edits have the same key.
func sortEdits(edits []pieces.Edit) []pieces.Edit {
	if slices.IsSortedFunc(edits, func(a, b pieces.Edit) int { return bytes.Compare(a.Key, b.Key) }) {
		return edits
	}
	type item struct {
		code uint64
		at   int32
		kind byte
	}
	items := make([]item, len(edits))
	for i, e := range edits {
		items[i] = item{binary.BigEndian.Uint64(e.Key[1:]), int32(i), e.Key[0]}
	}
	slices.SortFunc(items, func(a, b item) int {
		if c := cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.code, b.code)); c != 0 {
			return c
		}
		return bytes.Compare(edits[a.at].Key, edits[b.at].Key)
	})
	sorted := make([]pieces.Edit, len(edits))
	for i, x := range items {
		sorted[i] = edits[x.at]
	}
	return sorted
}

// number gives numbers to the places of a level that have none. It returns lists of what changes in
// the map.
func (l *levels) number(
	ctx context.Context, layout domain64.Layout, m *pieces.Map, level domain64.Level,
) (edits [][]pieces.Edit, added int64, err error) {
	places := l.places[level]
	// The next numbers of the parents of new places.
	counts := map[domain64.Code]uint32{}
	var parents []domain64.Code
	size := 0
	for i := range places {
		if p := &places[i]; p.code == 0 {
			parent := l.parentCode(p)
			if _, ok := counts[parent]; !ok {
				counts[parent] = 0
				parents = append(parents, parent)
			}
			size += nameKeyLen + len(p.label) + codeKeyLen + binary.MaxVarintLen32
			added++
		}
	}
	if added == 0 {
		return nil, 0, nil
	}
	size += len(parents) * (nameKeyLen + binary.MaxVarintLen32)
	arena := make([]byte, 0, size)
	take := func(from int) []byte { return arena[from:len(arena):len(arena)] }
	keys := make([][]byte, len(parents))
	for i, parent := range parents {
		from := len(arena)
		arena = appendNameKey(arena, parent, level)
		keys[i] = take(from)
	}
	if m.Len() > 0 {
		found, err := m.GetMany(ctx, keys)
		if err != nil {
			return nil, 0, err
		}
		for i, e := range found {
			if e != nil {
				if counts[parents[i]], err = decodeNumber(e.Value, layout.Max(level)); err != nil {
					return nil, 0, err
				}
			}
		}
	}
	byLabel, byCode, totals := make([]pieces.Edit, 0, added), make([]pieces.Edit, 0, added), make([]pieces.Edit, 0, len(parents))
	for i := range places {
		p := &places[i]
		if p.code != 0 {
			continue
		}
		parent := l.parentCode(p)
		number := counts[parent] + 1
		if most := layout.Max(level); number > most || number == 0 {
			return nil, 0, l.full(layout, level, p)
		}
		counts[parent] = number
		p.code = layout.Child(parent, level, number)
		from := len(arena)
		arena = append(appendNameKey(arena, parent, level), p.label...)
		key := take(from)
		from = len(arena)
		arena = binary.AppendUvarint(arena, uint64(number))
		byLabel = append(byLabel, pieces.Edit{Entry: pieces.Entry{Key: key, Value: take(from)}})
		from = len(arena)
		arena = appendCodeKey(arena, p.code)
		byCode = append(byCode, pieces.Edit{Entry: pieces.Entry{Key: take(from), Value: key[nameKeyLen:]}})
	}
	for i, parent := range parents {
		from := len(arena)
		arena = binary.AppendUvarint(arena, uint64(counts[parent]))
		totals = append(totals, pieces.Edit{Entry: pieces.Entry{Key: keys[i], Value: take(from)}})
	}
	return [][]pieces.Edit{byLabel, byCode, totals}, added, nil
}

// full returns the error for a place whose parent has no number left.
func (l *levels) full(layout domain64.Layout, level domain64.Level, p *place) error {
	name := l.name(level, p)
	e := &FullError{Layout: layout, Level: level, Max: layout.Max(level), Name: name.String()}
	if p.parent >= 0 {
		above := name.With(level, "")
		e.Parent = above.String()
	}
	return e
}

// Names returns the names that have some codes. The error names a code that nothing has.
func (r *Registry) Names(ctx context.Context, codes []domain64.Code) ([]domain64.Name, error) {
	var keys [][]byte
	at := map[domain64.Code]int{}
	for _, c := range codes {
		if err := r.layout.Check(c); err != nil || c == 0 {
			return nil, fmt.Errorf("domain64 numbers: code %s: %w", r.layout.Format(c), domain64.ErrNumbers)
		}
		for ; c != 0; c = r.layout.Parent(c) {
			if _, ok := at[c]; ok {
				break
			}
			at[c] = len(keys)
			keys = append(keys, appendCodeKey(nil, c))
		}
	}
	var found []*pieces.Entry
	err := r.read(ctx, func(_ table, m *pieces.Map) (err error) {
		found, err = m.GetMany(ctx, keys)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("domain64 numbers: %w", err)
	}
	names := make([]domain64.Name, len(codes))
	for i, c := range codes {
		for ; c != 0; c = r.layout.Parent(c) {
			e := found[at[c]]
			if e == nil {
				return nil, fmt.Errorf("domain64 numbers: nothing has the code %s in layout %s", r.layout.Format(c), r.layout)
			}
			level, _ := r.layout.Level(c)
			names[i] = names[i].With(level, string(e.Value))
		}
	}
	return names, nil
}

// All yields every name that has a code, ascending by code as an unsigned number, so that a name
// comes before all below it. Below is the code of the part of the tree to yield, 0 for all. An
// error is the last thing that it yields. It is one state of the registry.
func (r *Registry) All(ctx context.Context, below domain64.Code) iter.Seq2[domain64.Entry, error] {
	return func(yield func(domain64.Entry, error) bool) {
		fail := func(err error) { yield(domain64.Entry{}, fmt.Errorf("domain64 numbers: %w", err)) }
		var m *pieces.Map
		if err := r.read(ctx, func(_ table, now *pieces.Map) error { m = now; return nil }); err != nil {
			fail(err)
			return
		}
		// The names above each entry, by level. Those above below are read first.
		var names [domain64.Levels]domain64.Name
		var codes [domain64.Levels]domain64.Code
		if above := r.layout.Parent(below); above != 0 {
			found, err := r.Names(ctx, []domain64.Code{above})
			if err != nil {
				fail(err)
				return
			}
			for c := above; c != 0; c = r.layout.Parent(c) {
				level, _ := r.layout.Level(c)
				names[level], codes[level] = found[0], c
				found[0] = found[0].With(level, "")
			}
		}
		last := ^domain64.Code(0)
		if below != 0 {
			span := r.layout.Range(below)
			last = below + domain64.Code(span.Len()-1)
		}
		to := []byte{byCode + 1}
		if last != ^domain64.Code(0) {
			to = appendCodeKey(nil, last+1)
		}
		for e, err := range m.Range(ctx, appendCodeKey(nil, below), to) {
			if err != nil {
				fail(err)
				return
			}
			if len(e.Key) != codeKeyLen || e.Key[0] != byCode {
				continue // an entry by name, which comes after those by code
			}
			c := domain64.Code(binary.BigEndian.Uint64(e.Key[1:]))
			level, ok := r.layout.Level(c)
			parent := r.layout.Parent(c)
			var name domain64.Name
			if at, isChild := r.layout.Level(parent); ok && isChild {
				if ok = codes[at] == parent; ok {
					name = names[at]
				}
			}
			if !ok {
				fail(codec.Corrupt(Key, "codes", -1, "a name above "+r.layout.Format(c), "none"))
				return
			}
			names[level], codes[level] = name.With(level, string(e.Value)), c
			if !yield(domain64.Entry{Code: c, Name: names[level]}, nil) {
				return
			}
		}
	}
}
