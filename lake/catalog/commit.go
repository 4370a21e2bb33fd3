package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/lake/pieces"
)

// firstCommitTime is how long a lake's first commit may take from writing its version to writing
// the manifest. Until then, versions without a manifest are not a sign that the manifest was lost.
const firstCommitTime = 3 * time.Second

// Commit is one change of a lake's published state.
type Commit struct {
	// ID is a digest of the change's inputs and of the version that it was planned on: 32 hex
	// digits. If the manifest lists ID, the commit has been made, by this process or by another one
	// with the same plan.
	ID string
	// BuiltBy names the program and its build.
	BuiltBy string
	// Build returns what the version holds that follows parent, which is nil for a lake's first.
	// When another commit came first, Apply calls Build again with the new parent. Build returns an
	// error if the change's inputs are no longer live; that error ends the commit.
	Build func(ctx context.Context, parent *Version) (*Next, error)
	// Check is called in each attempt, after Build, if a garbage collection has ever swept the
	// lake, with the number of the last sweep, which has ended. It returns an error unless the
	// objects exist that the version is to have and the parent has not: a sweep may have found them
	// before anything referred to them. That error ends the commit. Later sweeps make the attempt
	// fail.
	Check func(ctx context.Context, swept uint64) error
	// Cover is called in each attempt if the lake has takedowns, with the manifest that the commit
	// replaces and the version that it adds. It returns the takedowns with the tables of the
	// version's segments, so that both are published by one put. A later change of the takedowns
	// makes the attempt fail. Without Cover the version may only have segments that its parent has.
	Cover func(ctx context.Context, m *Manifest, v *Version) (*TakedownRef, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Committed is the result of a commit.
type Committed struct {
	Version VersionRef
	// Generation is that of a manifest that lists the version.
	Generation uint64
	// Existed tells that the commit had been made before.
	Existed bool
}

// Apply makes the commit. It writes the version, its pieces first, then replaces the manifest on
// the condition that it is still the one that was read. If another commit came first, Apply builds
// again on the new parent. If the manifest lists the commit's ID, the commit has succeeded, perhaps
// without a reply. After an error the commit may or may not have been made; applying the same
// commit again is safe and tells.
//
// If the manifest or its current version is lost, the commit follows what Recover finds. The
// generation is then higher than that of any lost manifest, so that readers which saw those accept
// it.
//
// The version of a commit that lost a race stays behind as an object that nothing refers to.
func (c Commit) Apply(ctx context.Context, store blob.Store) (done Committed, err error) {
	if !commitID.MatchString(c.ID) {
		return done, fmt.Errorf("commit id %q: want 32 hex digits", c.ID)
	}
	if err := probe(ctx, store); err != nil {
		return done, err
	}
	var m *Manifest // lists the commit
	started, wrote := time.Now(), false
	err = replace(ctx, store, ManifestKey, func() ([]byte, blob.Condition, error) {
		s, err := Look(ctx, store)
		switch {
		case err != nil:
			return nil, blob.Condition{}, err
		case s.missing && s.last != "" && time.Since(started) < firstCommitTime:
			// The first committer of a lake finds no version and does not wait.
			return nil, s.cond, errAgain
		case s.manifestLost && s.Manifest != nil:
			return nil, s.cond, cmp.Or(s.put(ctx, store, s.Manifest), errAgain)
		case s.Manifest != nil:
			// What the version shares with earlier ones must not be deleted before it is published.
			if err := lease.AwaitSweep(ctx, store, s.Manifest.Swept); err != nil {
				return nil, s.cond, err
			}
			if ref, ok := s.Manifest.FindCommit(c.ID); ok {
				// If this call has written nothing yet, an earlier attempt made the commit.
				done, m = Committed{Version: ref, Generation: s.Manifest.Generation, Existed: !wrote}, s.Manifest
				return nil, s.cond, nil
			}
		}
		if m, done.Version, err = c.write(ctx, store, s); err != nil {
			return nil, s.cond, err
		}
		wrote, done.Generation = true, m.Generation
		data, err := m.encode()
		return data, s.cond, err
	})
	if err == nil {
		err = m.note(ctx, store)
	}
	if err != nil {
		return Committed{}, fmt.Errorf("commit %s: %w", c.ID, err)
	}
	return done, nil
}

// write builds and stores the version that follows the state's, and returns the manifest that
// publishes it.
func (c Commit) write(ctx context.Context, store blob.Store, s *State) (*Manifest, VersionRef, error) {
	next := Manifest{TakedownEpoch: s.takedowns, Takedowns: s.takedownRef}
	parent, last, parentID := s.Current, s.last, ""
	var err error
	if s.Manifest != nil {
		next = *s.Manifest
		parentID = parent.ID
	} else if next.Swept, err = lease.LastSweep(ctx, store); err != nil {
		return nil, VersionRef{}, err
	}
	built, err := c.Build(ctx, parent)
	if err != nil {
		return nil, VersionRef{}, err
	}
	if next.Swept > 0 && c.Check != nil {
		if err := c.Check(ctx, next.Swept); err != nil {
			return nil, VersionRef{}, err
		}
	}
	v, err := built.make(ctx, store, parent)
	if err != nil {
		return nil, VersionRef{}, fmt.Errorf("build version: %w", err)
	}
	if next.Takedowns != nil {
		if next.Takedowns, err = c.cover(ctx, &next, parent, v); err != nil {
			return nil, VersionRef{}, fmt.Errorf("apply the takedowns: %w", err)
		}
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	created := now()
	v.Parent = parentID
	v.Commit = c.ID
	v.Created = created.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	v.BuiltBy = c.BuiltBy
	for {
		v.ID = nextVersionID(last, created, c.ID)
		key := VersionKey(v.ID)
		data, err := v.encode(key)
		if err != nil {
			return nil, VersionRef{}, fmt.Errorf("encode version: %w", err)
		}
		_, err = store.Put(ctx, key, data, blob.Condition{IfAbsent: true})
		if errors.Is(err, blob.ErrPrecondition) {
			// The same commit ran in the same millisecond, or the reply to this put's first try was
			// lost.
			have, _, err := store.Get(ctx, key)
			if err != nil {
				return nil, VersionRef{}, err
			}
			if string(have) != string(data) {
				last = v.ID
				continue
			}
		} else if err != nil {
			return nil, VersionRef{}, err
		}
		ref := refOf(v, data)
		next.CurrentVersion = v.ID
		if next.Generation, err = s.above(s.last, created); err != nil {
			return nil, VersionRef{}, err
		}
		next.Versions = append(next.Versions[:len(next.Versions):len(next.Versions)], ref)
		return &next, ref, nil
	}
}

// cover returns the takedowns of the manifest that publishes v.
func (c Commit) cover(ctx context.Context, m *Manifest, parent, v *Version) (*TakedownRef, error) {
	if c.Cover != nil {
		return c.Cover(ctx, m, v)
	}
	for i := range v.Segments {
		if parent == nil || !slices.ContainsFunc(parent.Segments, func(s Segment) bool { return s.View() == v.Segments[i].View() }) {
			return nil, fmt.Errorf("segment %s is new, and this program does not apply takedowns to it", v.Segments[i].ID)
		}
	}
	return m.Takedowns, nil
}

// ProbeRoot is the folder of the objects by which conditional puts are checked. Only processes that
// were killed leave any.
const ProbeRoot = "index/probe/"

// probed holds the URLs of the stores whose conditional puts have been checked.
var probed sync.Map

// probe checks, once per process, that the store's conditional puts work. On a store that ignores
// conditions two commits could overwrite each other unnoticed.
func probe(ctx context.Context, store blob.Store) error {
	if _, ok := probed.Load(store.URL()); ok {
		return nil
	}
	if err := blob.ProbeConditional(ctx, store, strings.TrimSuffix(ProbeRoot, "/")); err != nil {
		return err
	}
	probed.Store(store.URL(), true)
	return nil
}

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
	parent = parent.orEmpty()
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
		switch batches := n.Batches[s.ID]; {
		case kept && n.Died[s.ID] != nil:
			err = v.bury(ctx, store, parent, s, n.Died[s.ID], count)
		case kept && batches == nil:
			v.batches[s.ID] = parent.batches[s.ID]
		case batches == nil:
			err = fmt.Errorf("segment %s without its batches", s.ID)
		default:
			rows := int64(0)
			v.batches[s.ID], err = buildBatches(ctx, store, batches, func(b *Batch) {
				rows += b.Rows
				if !kept {
					count(1, b)
				}
			})
			if err == nil && !kept && rows != s.Rows {
				err = fmt.Errorf("segment %s of %d rows over batches of %d", s.ID, s.Rows, rows)
			}
		}
		if err != nil {
			return nil, err
		}
		if s.Dead != nil && v.dead[s.ID] == nil {
			v.dead[s.ID] = parent.dead[s.ID]
		}
		if err := n.restart(ctx, v, s.ID, restarted[s.ID]); err != nil {
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
func (n *Next) restarted(ctx context.Context, parent *Version) (map[string][]BatchName, error) {
	bySegment := map[string][]BatchName{}
	found, err := parent.FindBatches(ctx, slices.SortedFunc(maps.Keys(n.Starts), CompareNames))
	for _, b := range found {
		bySegment[b.Segment] = append(bySegment[b.Segment], b.BatchName)
	}
	return bySegment, err
}

// restart gives batches of a segment their later starts, as far as v has them there.
func (n *Next) restart(ctx context.Context, v *Version, segment string, batches []BatchName) error {
	if len(batches) == 0 {
		return nil
	}
	found, err := find(ctx, v.batches[segment], batchKeys(batches), v.decodeBatch(segment))
	if err != nil {
		return err
	}
	var edits []pieces.Edit
	for _, b := range found {
		b.Start = max(b.Start, n.Starts[b.BatchName])
		e, err := batchEntry(&b)
		if err != nil {
			return err
		}
		edits = append(edits, pieces.Edit{Entry: e})
	}
	v.batches[segment], err = v.batches[segment].Apply(ctx, edits)
	return err
}

// mapOr returns a map of the parent to be changed, or an empty one if there is none or it is made
// anew.
func mapOr(store blob.Store, m *pieces.Map, anew bool) *pieces.Map {
	if m == nil || anew {
		return openPieces(store, pieces.Ref{})
	}
	return m
}

// leave writes what is gone: what the parent has of it and Gone, without Back.
func (n *Next) leave(ctx context.Context, store blob.Store, parent, v *Version) (err error) {
	var edits []pieces.Edit
	for _, name := range n.Back {
		edits = append(edits, pieces.Edit{Entry: pieces.Entry{Key: batchKey(name)}, Delete: true})
	}
	for i := range n.Gone {
		e, err := goneEntry(&n.Gone[i])
		if err != nil {
			return err
		}
		edits = append(edits, pieces.Edit{Entry: e})
	}
	v.gone, err = mapOr(store, parent.gone, n.GoneAnew).Apply(ctx, edits)
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
	var err error
	if v.dead[s.ID], err = mapOr(store, parent.dead[s.ID], false).Apply(ctx, dead); err != nil {
		return err
	}
	if v.batches[s.ID], err = parent.batches[s.ID].Apply(ctx, live); err != nil {
		return err
	}
	s.Dead = &Dead{Table: s.Dead.Table, Rows: s.Dead.Rows, BatchPieces: v.dead[s.ID].Ref()}
	return nil
}

// buildBatches writes the map of batches, and calls each with every one.
func buildBatches(
	ctx context.Context, store blob.Store, batches iter.Seq2[Batch, error], each func(*Batch),
) (*pieces.Map, error) {
	return pieces.Build(ctx, store, VersionPiecesRoot, func(yield func(pieces.Entry, error) bool) {
		for b, err := range batches {
			var e pieces.Entry
			if err == nil {
				e, err = batchEntry(&b)
			}
			if err == nil {
				each(&b)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	})
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
	var before map[uint32]Dataset
	var err error
	if n.Anew {
		before, err = recount(ctx, v)
		clear(changed)
	} else {
		before, err = parent.FindDatasets(ctx, slices.Sorted(maps.Keys(changed)))
	}
	if err != nil {
		return err
	}
	for id := range before {
		if changed[id] == nil {
			changed[id] = &Dataset{ID: id}
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
	v.datasets, err = mapOr(store, parent.datasets, n.Anew).Apply(ctx, edits)
	return err
}

// recount returns the counts of the datasets by the batches of a version.
func recount(ctx context.Context, v *Version) (map[uint32]Dataset, error) {
	sums := map[uint32]Dataset{}
	for i := range v.Segments {
		for b, err := range v.BatchesIn(ctx, v.Segments[i].ID) {
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

// updateManifest replaces the manifest by what change makes of it, of the next generation, unless
// change returns false. See replace for when change is called again.
func updateManifest(ctx context.Context, store blob.Store, change func(m *Manifest) (changed bool, err error)) error {
	if err := probe(ctx, store); err != nil {
		return err
	}
	return replace(ctx, store, ManifestKey, func() ([]byte, blob.Condition, error) {
		m, etag, err := ReadManifest(ctx, store)
		cond := blob.Condition{IfMatch: etag}
		if err != nil {
			return nil, cond, err
		}
		if changed, err := change(m); !changed || err != nil {
			return nil, cond, err
		}
		m.Generation++
		data, err := m.encode()
		return data, cond, err
	})
}

// SetTakedowns replaces the takedowns of the manifest. In each attempt it reads the manifest and
// waits until the last sweep has ended. Then it calls change, which writes what its result refers
// to and returns the document and its epoch, or nil if there is nothing to change. The put has the
// condition that the manifest is the one that change was given. If it is not, another attempt
// follows. After a put whose reply was lost, change is called again: it has to see in the
// manifest's takedowns whether its change was made.
//
// The takedowns are in force once the manifest is written. If the registry cannot be told of them
// then, the next commit or change of takedowns tells it.
func SetTakedowns(
	ctx context.Context, store blob.Store,
	change func(ctx context.Context, m *Manifest) (*TakedownRef, uint64, error),
) error {
	var last *Manifest
	err := updateManifest(ctx, store, func(m *Manifest) (bool, error) {
		if err := lease.AwaitSweep(ctx, store, m.Swept); err != nil {
			return false, err
		}
		last = m
		ref, epoch, err := change(ctx, m)
		if ref == nil || err != nil {
			return false, err
		}
		m.Takedowns, m.TakedownEpoch = ref, epoch
		return true, nil
	})
	if err == nil {
		_ = last.note(ctx, store) // perhaps of an earlier change whose note is missing
	}
	return err
}

// Announce writes the number of a sweep into the manifest and the registry. A change of them that
// is in flight then finds its condition broken; its next attempt waits for the end of the sweep. In
// a lake without a manifest the error is ErrNoVersion. A lost registry is an error too.
func Announce(ctx context.Context, store blob.Store, sweep uint64) error {
	announce := func(swept *uint64) (changed bool, err error) {
		if *swept > sweep {
			return false, fmt.Errorf("%w: sweep %d", lease.ErrSweepLost, *swept)
		}
		changed = *swept != sweep
		*swept = sweep
		return changed, nil
	}
	err := updateManifest(ctx, store, func(m *Manifest) (bool, error) { return announce(&m.Swept) })
	if err != nil {
		return fmt.Errorf("announce sweep %d in the manifest: %w", sweep, err)
	}
	// A writer of an earlier state of the registry may still be about to write its copy. It finds a
	// later one.
	err = updateRegistry(ctx, store, func(h *head) (bool, error) {
		if h.Format == 0 {
			return false, missingRegistry()
		}
		return announce(&h.Swept)
	})
	if err != nil {
		return fmt.Errorf("announce sweep %d: %w", sweep, err)
	}
	return nil
}

// Expired returns the versions that are not among the newest keep, have no tag and are not the
// current one, oldest first. Keep is at least 1.
func (m *Manifest) Expired(keep int) []VersionRef {
	var expired []VersionRef
	for _, v := range m.Versions[:max(0, len(m.Versions)-max(1, keep))] {
		if v.ID != m.CurrentVersion && len(m.TagsOf(v.ID)) == 0 {
			expired = append(expired, v)
		}
	}
	return expired
}

// DropExpired removes the Expired versions from the manifest, and returns them with the manifest as
// it is then. Requests that name one of them are told that it is unknown. Their objects stay.
func DropExpired(ctx context.Context, store blob.Store, keep int) (dropped []VersionRef, m *Manifest, err error) {
	err = updateManifest(ctx, store, func(now *Manifest) (bool, error) {
		m, dropped = now, now.Expired(keep)
		now.Versions = slices.DeleteFunc(now.Versions, func(v VersionRef) bool { return slices.Contains(dropped, v) })
		return len(dropped) > 0, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("drop versions: %w", err)
	}
	return dropped, m, nil
}

// DropLost removes those versions from the manifest whose objects are lost, with their tags, and
// returns their keys. The current version stays. Requests that name a dropped version are told that
// it is unknown.
func DropLost(ctx context.Context, store blob.Store) (dropped []string, err error) {
	err = updateManifest(ctx, store, func(m *Manifest) (bool, error) {
		dropped = nil
		m.Versions = slices.DeleteFunc(m.Versions, func(ref VersionRef) bool {
			if ref.ID == m.CurrentVersion {
				return false
			}
			if _, err := ReadVersion(ctx, store, ref); !isLost(err) {
				return false
			}
			dropped = append(dropped, ref.Object)
			m.Tags = slices.DeleteFunc(m.Tags, func(t Tag) bool { return t.Version == ref.ID })
			return true
		})
		return len(dropped) > 0, nil
	})
	if errors.Is(err, ErrNoVersion) {
		return nil, nil
	}
	return dropped, err
}
