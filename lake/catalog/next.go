package catalog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/pieces"
)

// Next is what a version is to hold. Making it costs what the segments hold that it adds to its
// parent or takes away from it, not what the lake holds.
type Next struct {
	CanonicalForm, PublicSuffix string
	// Segments are all segments, in the order in which lists are served. Those that the parent has
	// keep their batches, but for those in Died. Their BatchPieces are set by Apply. One that the
	// parent has with dead rows and that has none here is another segment: it is in Batches.
	Segments []Segment
	// Batches has the batches of each other segment, by dataset and name. Their Segment is not
	// looked at. No batch may be in two segments. If it has those of a segment that the parent has,
	// they are the same batches, whose pieces in the parent are lost.
	Batches map[string]iter.Seq2[Batch, error]
	// Died has the batches that become dead of segments that the parent has too. Dead of such a
	// segment says, all but BatchPieces, what is dead then. Apply sets BatchPieces.
	Died map[string][]BatchName
	// Datasets describes datasets: ID, Name, Title, Source, Licence. Others are described as in the
	// parent, but every dataset that the parent has no batch of has to be here. Datasets without
	// live batches are left out of the version.
	Datasets []Dataset
	// Anew tells that Datasets describes all datasets, so that the parent's are not read.
	Anew bool
	// Gone are batches and datasets that are gone now, Back batches that were and are no longer.
	// GoneAnew tells that Gone has all that is gone, so that the parent's list is not read.
	Gone     []Gone
	Back     []BatchName
	GoneAnew bool
	// Starts are later starts of batches that the parent has too: an ingest has made the same
	// record again.
	Starts map[BatchName]int64
}

// make writes the pieces of the version that follows parent, and returns the version without what a
// Commit sets. The pieces depend on the content alone.
func (n *Next) make(ctx context.Context, store blob.Store, parent *Version) (*Version, error) {
	if parent == nil {
		parent = &Version{}
	}
	v := &Version{
		Format: versionFormat, CanonicalForm: n.CanonicalForm, PublicSuffix: n.PublicSuffix,
		Segments: slices.Clone(n.Segments), batches: map[string]*pieces.Map{}, dead: map[string]*pieces.Map{},
	}
	if v.Segments == nil {
		v.Segments = []Segment{}
	}
	v.Counts = Counts{Segments: len(v.Segments), Parts: parent.Counts.Parts, PartBytes: parent.Counts.PartBytes}
	changed := map[uint32]*Dataset{} // what batches add to the counts of datasets
	count := func(times int, b *Batch) {
		d := changed[b.DatasetID]
		if d == nil {
			d = &Dataset{ID: b.DatasetID}
			changed[b.DatasetID] = d
		}
		d.add(times, b.Parts, b.Rows, b.Bytes)
		v.Counts.Parts += int64(times) * b.Parts
		v.Counts.PartBytes += int64(times) * b.Bytes
	}
	restarted, err := n.restarted(ctx, parent)
	if err != nil {
		return nil, err
	}
	had := map[string]*Segment{}
	for i := range parent.Segments {
		had[parent.Segments[i].ID] = &parent.Segments[i]
	}
	for i := range v.Segments {
		s := &v.Segments[i]
		was, kept := had[s.ID]
		kept = kept && (was.Dead == nil || s.Dead != nil)
		if kept {
			delete(had, s.ID)
		}
		if s.Dead != nil && !kept {
			return nil, fmt.Errorf("segment %s with dead rows is not one of version %s", s.ID, parent.ID)
		}
		switch {
		case kept && n.Died[s.ID] != nil:
			if err := v.bury(ctx, store, parent, s, n.Died[s.ID], count); err != nil {
				return nil, err
			}
		case kept && n.Batches[s.ID] != nil:
			m, _, err := buildBatches(ctx, store, n.Batches[s.ID], nil)
			if err != nil {
				return nil, err
			}
			v.batches[s.ID] = m
		case kept:
			v.batches[s.ID] = pieces.Open(store, VersionPiecesRoot, was.BatchPieces)
		default:
			batches := n.Batches[s.ID]
			if batches == nil {
				return nil, fmt.Errorf("segment %s without its batches", s.ID)
			}
			m, rows, err := buildBatches(ctx, store, batches, func(b *Batch) { count(1, b) })
			if err != nil {
				return nil, err
			}
			if rows != s.Rows {
				return nil, fmt.Errorf("segment %s of %d rows over batches of %d", s.ID, s.Rows, rows)
			}
			v.batches[s.ID] = m
		}
		if s.Dead != nil && v.dead[s.ID] == nil {
			v.dead[s.ID] = pieces.Open(store, VersionPiecesRoot, was.Dead.BatchPieces)
		}
		if err := v.restart(ctx, s.ID, restarted[s.ID]); err != nil {
			return nil, err
		}
		s.BatchPieces = v.batches[s.ID].Ref()
		v.Counts.Batches += int(s.BatchPieces.Entries)
		v.Counts.Rows += s.Live()
		v.Counts.IndexBytes += s.bytes()
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		for b, err := range parent.BatchesIn(ctx, id) {
			if err != nil {
				return nil, err
			}
			count(-1, &b)
		}
	}
	if err := n.describe(ctx, store, parent, v, changed); err != nil {
		return nil, err
	}
	v.Counts.Datasets = int(v.datasets.Len())
	return v, n.leave(ctx, store, parent, v)
}

// restarted returns the batches of Starts by segment of the parent.
func (n *Next) restarted(ctx context.Context, parent *Version) (map[string][]Batch, error) {
	bySegment := map[string][]Batch{}
	found, err := parent.FindBatches(ctx, slices.SortedFunc(maps.Keys(n.Starts), CompareNames))
	for _, b := range found {
		b.Start = n.Starts[b.BatchName]
		bySegment[b.Segment] = append(bySegment[b.Segment], b)
	}
	return bySegment, err
}

// restart gives batches of a segment later starts, as far as v has them there.
func (v *Version) restart(ctx context.Context, segment string, batches []Batch) error {
	if len(batches) == 0 {
		return nil
	}
	keys := make([][]byte, len(batches))
	for i := range batches {
		keys[i] = batchKey(batches[i].BatchName)
	}
	entries, err := v.batches[segment].GetMany(ctx, keys)
	if err != nil {
		return err
	}
	var edits []pieces.Edit
	for i, e := range entries {
		if e == nil {
			continue
		}
		b, err := v.decodeBatch(*e, segment)
		if err != nil {
			return err
		}
		b.Start = max(b.Start, batches[i].Start)
		entry, err := batchEntry(&b)
		if err != nil {
			return err
		}
		edits = append(edits, pieces.Edit{Entry: entry})
	}
	v.batches[segment], err = v.batches[segment].Apply(ctx, edits)
	return err
}

// leave writes what is gone: what the parent has of it and Gone, without Back.
func (n *Next) leave(ctx context.Context, store blob.Store, parent, v *Version) (err error) {
	from := pieces.Open(store, VersionPiecesRoot, pieces.Ref{})
	if parent.gone != nil && !n.GoneAnew {
		from = parent.gone
	}
	var edits []pieces.Edit
	for _, name := range n.Back {
		if from.Len() > 0 {
			edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: batchKey(name)}, Delete: true})
		}
	}
	for i := range n.Gone {
		e, err := goneEntry(&n.Gone[i])
		if err != nil {
			return err
		}
		edits = append(edits, pieces.Edit{Entry: e})
	}
	v.gone, err = from.Apply(ctx, edits)
	return err
}

// bury makes batches of a segment of the parent dead. What is counted once for a union moves to
// another of its batches.
func (v *Version) bury(
	ctx context.Context, store blob.Store, parent *Version, s *Segment, names []BatchName, count func(int, *Batch),
) error {
	died := map[BatchName]bool{}
	for _, n := range names {
		died[n] = true
	}
	type union struct {
		dataset uint32
		name    string
	}
	var live, dead []pieces.Edit
	moves := map[union]*Batch{}
	edit := func(to *[]pieces.Edit, b *Batch, remove bool) error {
		e, err := batchEntry(b)
		*to = append(*to, pieces.Edit{Entry: e, Delete: remove})
		return err
	}
	var rest []Batch // of unions
	for b, err := range parent.BatchesIn(ctx, s.ID) {
		if err != nil {
			return err
		}
		if !died[b.BatchName] {
			if b.Union != "" {
				rest = append(rest, b)
			}
			continue
		}
		delete(died, b.BatchName)
		count(-1, &b)
		if b.Union != "" && b.Parts > 0 {
			moved := b
			moves[union{b.DatasetID, b.Union}] = &moved
			b.Parts, b.Bytes = 0, 0
		}
		if err := cmp.Or(edit(&live, &b, true), edit(&dead, &b, false)); err != nil {
			return err
		}
	}
	for n := range died {
		return fmt.Errorf("segment %s of version %s has no batch %s of dataset %d", s.ID, parent.ID, n.Batch, n.DatasetID)
	}
	for i := range rest {
		b := &rest[i]
		if from := moves[union{b.DatasetID, b.Union}]; from != nil {
			delete(moves, union{b.DatasetID, b.Union})
			count(-1, b)
			b.Parts, b.Bytes = from.Parts, from.Bytes
			count(1, b)
			if err := edit(&live, b, false); err != nil {
				return err
			}
		}
	}
	was := pieces.Open(store, VersionPiecesRoot, pieces.Ref{})
	if parent.dead[s.ID] != nil {
		was = parent.dead[s.ID]
	}
	var err error
	if v.dead[s.ID], err = was.Apply(ctx, dead); err != nil {
		return err
	}
	if v.batches[s.ID], err = parent.batches[s.ID].Apply(ctx, live); err != nil {
		return err
	}
	ref := v.dead[s.ID].Ref()
	s.Dead = &Dead{Table: s.Dead.Table, Rows: s.Dead.Rows, BatchPieces: ref}
	return nil
}

// buildBatches writes the map of batches, and calls each with every one.
func buildBatches(
	ctx context.Context, store blob.Store, batches iter.Seq2[Batch, error], each func(*Batch),
) (m *pieces.Map, rows int64, err error) {
	m, err = pieces.Build(ctx, store, VersionPiecesRoot, func(yield func(pieces.Entry, error) bool) {
		for b, err := range batches {
			var e pieces.Entry
			if err == nil {
				e, err = batchEntry(&b)
			}
			if err == nil {
				rows += b.Rows
				if each != nil {
					each(&b)
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	})
	return m, rows, err
}

// describe writes the datasets of v: those of parent with other descriptions and counts.
func (n *Next) describe(
	ctx context.Context, store blob.Store, parent, v *Version, changed map[uint32]*Dataset,
) error {
	described := map[uint32]Dataset{}
	for _, d := range n.Datasets {
		if lake.CheckDatasetName(d.Name) != nil || d.ID == 0 {
			return fmt.Errorf("dataset %d with the name %q", d.ID, d.Name)
		}
		described[d.ID] = d
		if changed[d.ID] == nil {
			changed[d.ID] = &Dataset{ID: d.ID}
		}
	}
	whole := n.Anew || parent.datasets == nil
	var before map[uint32]Dataset
	var err error
	switch ids := slices.Sorted(maps.Keys(changed)); {
	case n.Anew:
		before, err = recount(ctx, v)
		clear(changed)
	case whole:
		before = map[uint32]Dataset{}
		for d, err := range parent.Datasets(ctx, 0) {
			if err != nil {
				return err
			}
			before[d.ID] = d
		}
	default:
		before, err = parent.FindDatasets(ctx, ids)
	}
	if err != nil {
		return err
	}
	if whole {
		for id := range before {
			if changed[id] == nil {
				changed[id] = &Dataset{ID: id}
			}
		}
	}
	var edits []pieces.Edit
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		more, d := changed[id], before[id]
		if s, ok := described[id]; ok {
			d.ID, d.Name, d.Title, d.Source, d.Licence = id, s.Name, s.Title, s.Source, s.Licence
		}
		d.Batches += more.Batches
		d.Parts, d.Rows, d.Bytes = d.Parts+more.Parts, d.Rows+more.Rows, d.Bytes+more.Bytes
		switch {
		case d.Batches < 0:
			return fmt.Errorf("dataset %d with %d batches", id, d.Batches)
		case d.Batches > 0 && d.Name == "":
			return fmt.Errorf("dataset %d without a name", id)
		}
		edits = append(edits, pieces.Edit{Entry: datasetEntry(&d), Delete: d.Batches == 0})
	}
	from := pieces.Open(store, VersionPiecesRoot, pieces.Ref{})
	if !whole {
		from = parent.datasets
	}
	v.datasets, err = from.Apply(ctx, edits)
	return err
}

// recount returns the counts of the datasets by the batches of a version.
func recount(ctx context.Context, v *Version) (map[uint32]Dataset, error) {
	sums := map[uint32]Dataset{}
	for i := range v.Segments {
		for b, err := range v.inSegment(ctx, v.Segments[i].ID, nil, nil) {
			if err != nil {
				return nil, err
			}
			d := sums[b.DatasetID]
			d.ID = b.DatasetID
			d.add(1, b.Parts, b.Rows, b.Bytes)
			sums[b.DatasetID] = d
		}
	}
	return sums, nil
}
