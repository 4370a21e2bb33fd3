package pending

import (
	"context"
	"maps"
	"slices"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
)

// State is a lake's batches: those of its current version, and what waits to change them.
type State struct {
	Version *manifest.Version // nil if nothing is published
	// Damaged are the documents that cannot be read.
	Damaged []Damaged

	docs     []*document
	latest   map[manifest.BatchName]change // the last change of each batch
	replaced map[uint32]change             // the last one of each dataset that replaces it
}

type change struct {
	Change
	start int64
}

// Batch is a batch with all changes that wait.
type Batch struct {
	manifest.BatchName
	// Digest names the record, or the record that a retired batch had. Start is when the ingest, or
	// the retirement, began.
	Digest  string
	Start   int64
	Retired bool
	// By is the batch that replaces the dataset, if that retires this one.
	By string
	// Live is what the version has of the batch, nil for nothing.
	Live *manifest.Batch
	// Published tells that the version has the batch, or lacks it, as it is here, and Known that it
	// knows the start, too.
	Published, Known bool
}

// Look reads the batches of some datasets, or of all. It reads what waits before the version: what
// is published meanwhile is found there.
func Look(ctx context.Context, store blob.Store, datasets ...uint32) (*State, error) {
	s, err := ReadWaiting(ctx, store, datasets...)
	if err != nil {
		return nil, err
	}
	published, err := manifest.Look(ctx, store)
	if err != nil {
		return nil, err
	}
	s.Version = published.Current
	return s, nil
}

// ReadWaiting is Look without the version, for a caller who sets it.
func ReadWaiting(ctx context.Context, store blob.Store, datasets ...uint32) (*State, error) {
	s := &State{}
	var err error
	if s.docs, s.Damaged, err = read(ctx, store, datasets); err != nil {
		return nil, err
	}
	s.index()
	return s, nil
}

// Without returns the state without the changes that began at start.
func (s *State) Without(start int64) *State {
	left := *s
	left.docs = slices.DeleteFunc(slices.Clone(s.docs), func(d *document) bool { return d.Start == start })
	left.index()
	return &left
}

func (s *State) index() {
	s.latest, s.replaced = map[manifest.BatchName]change{}, map[uint32]change{}
	for _, d := range s.docs {
		for _, c := range d.Changes {
			s.latest[c.name()] = change{c, d.Start}
			if c.Replace {
				s.replaced[c.DatasetID] = change{c, d.Start}
			}
		}
	}
}

// Names returns the batches of a dataset with changes that wait, or all for 0.
func (s *State) Names(dataset uint32) (names []manifest.BatchName) {
	for name := range s.latest {
		if dataset == 0 || name.DatasetID == dataset {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, manifest.CompareNames)
	return names
}

// Replaced returns the start before which every other batch of a dataset is retired, since a batch
// that waits replaces the dataset, and that batch. It is 0 if none does.
func (s *State) Replaced(dataset uint32) (start int64, by string) {
	r := s.replaced[dataset]
	return r.start, r.Batch
}

// known is what the version knows of some batches.
type known struct {
	live map[manifest.BatchName]manifest.Batch
	gone map[manifest.BatchName]manifest.Gone
}

func (s *State) known(ctx context.Context, names []manifest.BatchName) (k known, err error) {
	if k.live, err = s.Version.FindBatches(ctx, names); err != nil {
		return k, err
	}
	with, datasets := slices.Clone(names), map[uint32]bool{}
	for _, n := range names {
		if !datasets[n.DatasetID] {
			datasets[n.DatasetID] = true
			with = append(with, manifest.BatchName{DatasetID: n.DatasetID})
		}
	}
	k.gone, err = s.Version.FindGone(ctx, with)
	return k, err
}

// has reports whether the version knows a change of the batch that began at start, or a later one.
func (k *known) has(n manifest.BatchName, start int64) bool {
	live, isLive := k.live[n]
	gone, isGone := k.gone[n]
	return live.Start >= start || gone.Start >= start || (isLive || isGone) && k.cut(n.DatasetID) > start
}

// cut is the last start of a batch that replaced the dataset.
func (k *known) cut(dataset uint32) int64 {
	return k.gone[manifest.BatchName{DatasetID: dataset}].Start
}

// of returns a batch. ok is false if there is none of that name.
func (s *State) of(k *known, n manifest.BatchName) (b Batch, ok bool) {
	b.BatchName = n
	if live, found := k.live[n]; found {
		b.Live, b.Digest, b.Start, ok = &live, live.Digest, live.Start, true
	}
	if gone, found := k.gone[n]; found && b.Live == nil {
		b.Digest, b.Start, b.Retired, ok = gone.Digest, gone.Start, true, true
	}
	cut := k.cut(n.DatasetID)
	switch c, found := s.latest[n]; {
	case !found || ok && c.start <= b.Start:
	case c.start < cut && !ok:
		b.Digest, b.Start, b.Retired, ok = c.Digest, cut, true, true
	case c.start >= cut:
		b.Digest, b.Start, b.Retired, ok = c.Digest, c.start, c.Retired, true
	}
	if r, found := s.replaced[n.DatasetID]; found && ok && n.Batch != r.Batch && b.Start < r.start {
		b.Start, b.By = r.start, r.Batch
		b.Retired = true
	}
	if b.Retired {
		b.Published = b.Live == nil
	} else {
		b.Published = b.Live != nil && b.Live.Digest == b.Digest
	}
	b.Known = b.Published && k.has(n, b.Start)
	return b, ok
}

// Find returns those of the named batches that there are, retired ones among them.
func (s *State) Find(ctx context.Context, names ...manifest.BatchName) (map[manifest.BatchName]Batch, error) {
	k, err := s.known(ctx, names)
	if err != nil {
		return nil, err
	}
	found := map[manifest.BatchName]Batch{}
	for _, n := range names {
		if b, ok := s.of(&k, n); ok {
			found[n] = b
		}
	}
	return found, nil
}

// Has reports whether the ingest of a batch that began at start waits, or the version has it.
func (s *State) Has(ctx context.Context, name manifest.BatchName, start int64) (bool, error) {
	for _, d := range s.docs {
		if d.Start == start && slices.ContainsFunc(d.Changes, func(c Change) bool { return c.name() == name }) {
			return true, nil
		}
	}
	live, _, err := s.Version.FindBatch(ctx, name.DatasetID, name.Batch)
	return live.Start == start, err
}

// Batches returns all batches of a dataset by name, retired ones among them.
func (s *State) Batches(ctx context.Context, dataset uint32) ([]Batch, error) {
	names := s.Names(dataset)
	for b, err := range s.Version.BatchesOf(ctx, dataset) {
		if err != nil {
			return nil, err
		}
		names = append(names, b.BatchName)
	}
	for g, err := range s.Version.Gone(ctx, dataset) {
		if err != nil {
			return nil, err
		}
		if g.Batch != "" {
			names = append(names, g.BatchName)
		}
	}
	found, err := s.Find(ctx, names...)
	return slices.SortedFunc(maps.Values(found), compare), err
}

// Current returns the digests of the records of the batches of a dataset that are not retired.
func (s *State) Current(ctx context.Context, dataset uint32) (map[string]string, error) {
	all, err := s.Batches(ctx, dataset)
	records := map[string]string{}
	for _, b := range all {
		if !b.Retired {
			records[b.Batch] = b.Digest
		}
	}
	return records, err
}

func compare(a, b Batch) int { return manifest.CompareNames(a.BatchName, b.BatchName) }

// Changes are what a version lacks of what waits.
type Changes struct {
	// Batches are the batches that are not Known, by dataset and name.
	Batches []Batch
	// Replaced are the datasets that a batch replaces, by id: the name of the batch is that one.
	Replaced []manifest.Gone
	// Settled are the keys of the documents of which the version knows everything, or something
	// later. Superseded are those of which later documents say everything.
	Settled, Superseded []string
}

// Unpublished returns the batches that the version lacks, or has although they are retired, by
// dataset and name.
func (s *State) Unpublished(ctx context.Context) ([]Batch, error) {
	c, err := s.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(c.Batches, func(b Batch) bool { return b.Published }), nil
}

// Changes compares what waits with the version.
func (s *State) Changes(ctx context.Context) (*Changes, error) {
	names := s.Names(0)
	for dataset, r := range s.replaced {
		for b, err := range s.Version.BatchesOf(ctx, dataset) {
			if err != nil {
				return nil, err
			}
			if b.Start < r.start {
				names = append(names, b.BatchName)
			}
		}
	}
	slices.SortFunc(names, manifest.CompareNames)
	names = slices.Compact(names)
	k, err := s.known(ctx, names)
	if err != nil {
		return nil, err
	}
	out := &Changes{}
	for _, n := range names {
		if b, ok := s.of(&k, n); ok && !b.Known {
			out.Batches = append(out.Batches, b)
		}
	}
	for _, dataset := range slices.Sorted(maps.Keys(s.replaced)) {
		if r := s.replaced[dataset]; k.cut(dataset) < r.start {
			out.Replaced = append(out.Replaced, manifest.Gone{BatchName: r.name(), Start: r.start})
		}
	}
	for _, d := range s.docs {
		superseded, settled := true, true
		for _, c := range d.Changes {
			later := s.latest[c.name()].start > d.Start && (!c.Replace || s.replaced[c.DatasetID].start > d.Start)
			superseded = superseded && later
			settled = settled && (later || k.has(c.name(), d.Start) && (!c.Replace || k.cut(c.DatasetID) >= d.Start))
		}
		switch {
		case superseded:
			out.Superseded = append(out.Superseded, d.Object)
		case settled:
			out.Settled = append(out.Settled, d.Object)
		}
	}
	return out, nil
}
