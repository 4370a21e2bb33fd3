// Package publish makes the next version of a lake in four steps. Plan compares the finished
// batches with the current version, Build makes a segment of the new ones, Verify reads that
// segment back, and Commit replaces the manifest. The activities run the steps as workers; All runs
// them in one process. A rebuild (rebuild.go) is a publish of what is whole in a damaged lake.
//
// One worker builds a segment, in minutes: a segment has at most MaxSegmentRows rows, unless a
// single batch has more. A plan with more rows than that makes several segments, which several
// workers may build at the same time.
//
// Every step may run twice, run on two workers at the same time, or stop at any point: a plan is an
// object named by its content, a segment is named by what it covers, and a commit's id is the
// digest of its plan. Steps exchange small values; the lists are in the plan.
//
// What waits to be published is in package lake/catalog. A commit deletes the documents whose
// changes its parent has, so a version that is lost is published again.
//
// A publish costs what its new batches cost, whatever the size of the lake: they become one new
// segment beside the others. An older segment is built again only if one of its batches was
// replaced or retired, or by a compaction (PlanCompaction), which keeps small the number of
// segments that a query reads, and unites the small parts of a dataset.
package publish

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
)

const (
	// TargetSegments is the number of segments up to which a compaction has nothing to do. A lookup
	// reads each segment, and eight fit in one round of requests.
	TargetSegments = 8

	// planFormat is the format version of plans. A plan lives as long as one publish, but a worker
	// of another build may run the next step.
	planFormat = 1

	// reads is the most batch records that are read concurrently.
	reads = 32
)

// maxPlanned is the most batches of older segments and new ones that a plan covers. A plan is one
// object, of which a batch takes some 170 bytes, or 300 with a long name (blob.MaxSmall).
var maxPlanned = int64(800_000)

// Summary is the result of Plan.
type Summary struct {
	// Current is the id of the current version, "" if there is none.
	Current string `json:"current"`
	// Nothing tells that the current version has every finished batch. Then there is no plan.
	Nothing bool `json:"nothing"`
	// PlanKey is the key of the plan.
	PlanKey string `json:"plan_key"`
	// RewriteTasks is the number of tasks of the list at RewriteKey, which are to be run with
	// Rewrite before the next Plan of the same round. Then there is no other plan yet.
	RewriteTasks int    `json:"rewrite_tasks,omitempty"`
	RewriteKey   string `json:"rewrite_key,omitempty"`
	// Batches is the number of batches that the current version lacks, Replaced the number of those
	// that take the place of an earlier ingest of the same batch.
	Batches  int `json:"batches"`
	Replaced int `json:"replaced"`
	// Moved is the number of batches of the current version that get another record because the
	// lake's public suffix list has changed. They count as neither of the above.
	Moved int `json:"moved,omitempty"`
	// Removed is the number of batches of the current version that the next one does not have,
	// since they were retired.
	Removed int `json:"removed,omitempty"`
	// Covered is the number of batches that the new segments cover, Segments the number of older
	// segments that they replace. Tables is the number of older segments that stay without some of
	// their batches.
	Covered  int `json:"covered"`
	Segments int `json:"segments"`
	Tables   int `json:"tables,omitempty"`
	// Builds is the number of tasks of Build: one for each new segment, and at least one.
	Builds int `json:"builds,omitempty"`
	// Rows is the number of rows that the new segments cover.
	Rows int64 `json:"rows"`
	// Skipped lists finished batches that are left out because they are damaged: the first
	// maxSkipped of SkippedBatches. If the version has an earlier ingest of such a batch, that one
	// stays.
	Skipped        []Skipped `json:"skipped,omitempty"`
	SkippedBatches int       `json:"skipped_batches,omitempty"`
	// Unions is the number of unions that a compaction has made, Dropped the number of rows that
	// they lack because takedowns hide them.
	Unions  int   `json:"unions,omitempty"`
	Dropped int64 `json:"dropped,omitempty"`
	// Searchable allows the workflow to set search attributes, Window limits its steps in flight,
	// and Tell is how many requests one step answers. The caller of Plan sets them, since they
	// depend on Temporal.
	Searchable bool `json:"searchable,omitempty"`
	Window     int  `json:"window,omitempty"`
	Tell       int  `json:"tell,omitempty"`
	// Lost says what of the manifest and of the current version is missing or damaged, and what
	// takes its place: one line each.
	Lost []string `json:"lost,omitempty"`
}

// Skipped is a finished batch that is not published, with the reason.
type Skipped struct {
	DatasetID uint32 `json:"dataset_id"`
	Dataset   string `json:"dataset"`
	// Batch is "" if a document of what waits is damaged, so that it is not known which batches it
	// names.
	Batch  string `json:"batch"`
	Reason string `json:"reason"`
	// Digest names the record if it, or what it names, is damaged itself, so that no version can
	// have it. It is "" for a batch that waits for something else to be mended.
	Digest string `json:"digest,omitempty"`
}

// String names the batch and the reason.
func (s Skipped) String() string {
	if s.Batch == "" {
		return fmt.Sprintf("new batches of %s: %s", s.Dataset, s.Reason)
	}
	return fmt.Sprintf("batch %s of %s: %s", s.Batch, s.Dataset, s.Reason)
}

// Covers reports whether s says why a batch is not published.
func (s Skipped) Covers(dataset uint32, batch string) bool {
	return s.DatasetID == dataset && (s.Batch == batch || s.Batch == "")
}

// Damages reports whether s says that no version can have the batch. Sound batches wait until what
// keeps them out is mended. A batch without a digest stands for any ingest of it.
func (s Skipped) Damages(b segment.BatchRef) bool {
	return s.Digest != "" && s.Covers(b.DatasetID, b.Batch) && (b.Digest == "" || b.Digest == s.Digest)
}

// firstOf returns the first maxSkipped lines.
func firstOf(lines []string) []string { return lines[:min(len(lines), maxSkipped)] }

// maxSkipped limits the lists in a step's result, since a payload of Temporal has at most 2 MB.
const maxSkipped = 200

// plan is the document at Summary.PlanKey.
type plan struct {
	Format int `json:"format"`
	// Base is the id of the version that the plan is based on, "" for none.
	Base string `json:"base"`
	// Swept is the number of the last sweep of a garbage collection before the plan was made.
	Swept uint64 `json:"swept,omitempty"`
	// CanonicalForm and PublicSuffix are the rules of the new version.
	CanonicalForm string `json:"canonical_form"`
	PublicSuffix  string `json:"public_suffix_list"`
	// Datasets describes the datasets of the plan's batches.
	Datasets []lake.Dataset `json:"datasets"`
	// Segments are those that are built, first those that take the place of one, in the order of
	// Base. There may be none.
	Segments []newSegment `json:"segments,omitempty"`
	// Tables lists the segments of Base that stay, with a deletion table that takes out some of
	// their batches.
	Tables []tabled `json:"tables,omitempty"`
	// Drops lists the other segments of Base that the new ones replace.
	Drops []string `json:"drops,omitempty"`
	// Removes lists the batches of Base that were retired, by dataset and name. Replaces is what
	// Base has of each.
	Removes []planned `json:"removes,omitempty"`
	// Lost lists the batches of Base that a rebuild leaves out since they are damaged.
	Lost []planned `json:"lost,omitempty"`
	// Gone and Starts are those of catalog.Next, besides what follows from Removes. Settled are
	// the documents whose changes Base has.
	Gone    []catalog.Gone `json:"gone,omitempty"`
	Starts  []started      `json:"starts,omitempty"`
	Settled []string       `json:"settled,omitempty"`
	// Rules are the ids of the takedowns whose rows the new segments lack.
	Rules []string `json:"rules,omitempty"`

	// loose are batches that are not in Segments yet, by dataset and name: write divides them among
	// segments, or makes one of them if one is set, since the version would have too many.
	loose []planned
	one   bool
}

// started is a batch of which the version has the record of an earlier ingest, which is the same.
type started struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Start     int64  `json:"start"`
}

// newSegment is a segment that a plan makes. Replaces is the segment of Base whose place it takes,
// so that the rows of a domain stay in the order that they had, "" for none. Batches are by dataset
// and name.
type newSegment struct {
	Replaces string    `json:"replaces,omitempty"`
	Batches  []planned `json:"batches"`
}

// planned is one batch of a plan.
type planned struct {
	DatasetID uint32 `json:"dataset_id"`
	Batch     string `json:"batch"`
	Digest    string `json:"digest"`
	Rows      int64  `json:"rows"`
	Parts     int64  `json:"parts"`
	Bytes     int64  `json:"bytes"`
	Start     int64  `json:"start,omitempty"`
	// New tells that Base lacks the batch. Replaces is the digest of the ingest that Base has under
	// the same name, "" for none.
	New      bool   `json:"new,omitempty"`
	Replaces string `json:"replaces,omitempty"`
	// Had is the record that a retired batch had last, whether Base has it or an earlier one.
	Had string `json:"had,omitempty"`
	// Moved tells that the batch is the replaced one under another public suffix list.
	Moved bool `json:"moved,omitempty"`
	// Union and UnionDigest are those of catalog.Batch.
	Union       string `json:"union,omitempty"`
	UnionDigest string `json:"union_digest,omitempty"`

	from    segment.BatchRef // what has the rows of a batch that base lacks: the batch, or a union
	retired bool             // the batch is to be removed
	by      string           // the batch of the dataset that takes its place, "" for none
}

// RulesError says that a batch was made by other URL rules than the version's batches. One version
// cannot hold both: the lake has to be ingested again.
type RulesError struct {
	DatasetID uint32
	Batch     string
	Want, Got string
}

func (e *RulesError) Error() string {
	return fmt.Sprintf("batch %s of dataset %d was made with %s, the version has %s", e.Batch, e.DatasetID, e.Got, e.Want)
}

// Plan compares the finished batches of all datasets with the current version and writes the plan
// of the next version to the staging of run. Commit removes the plan. A run may publish several
// times; round numbers these publishes and is part of the plan's key.
func Plan(ctx context.Context, store blob.Store, run string, round int) (Summary, error) {
	var s Summary
	err := withPieces(ctx, store, func(lost []string) (err error) {
		s, err = makePlan(ctx, store, run, round)
		for _, key := range lost {
			addLines(&s.Lost, key+": segments and the registry take its place")
		}
		return err
	})
	if err != nil {
		return Summary{}, fmt.Errorf("plan publish: %w", err)
	}
	return s, nil
}

// checkTakedowns returns a *codec.FormatError if a newer urlake has written the takedowns, which
// the commit applies to its segments: that is found before the work.
func checkTakedowns(ctx context.Context, store blob.Store, m *catalog.Manifest) error {
	if m == nil {
		return nil
	}
	if _, err := catalog.ReadTakedowns(ctx, store, m.Takedowns); codec.IsFormat(err) {
		return err
	}
	return nil
}

func makePlan(ctx context.Context, store blob.Store, run string, round int) (Summary, error) {
	published, err := catalog.Recover(ctx, store)
	if err != nil {
		return Summary{}, err
	}
	base := published.Current
	var swept uint64
	if published.Manifest != nil {
		swept = published.Manifest.Swept
	}
	if err := lease.AwaitSweep(ctx, store, swept); err != nil {
		return Summary{}, err
	}
	if err := checkTakedowns(ctx, store, published.Manifest); err != nil {
		return Summary{}, err
	}
	var s Summary
	s.Lost = firstOf(published.Lost)
	skip := func(dataset lake.Dataset, batch, reason, damaged string) {
		if s.SkippedBatches++; len(s.Skipped) < maxSkipped {
			s.Skipped = append(s.Skipped, Skipped{dataset.ID, dataset.Name, batch, reason, damaged})
		}
	}
	rules, err := catalog.ReadRules(ctx, store)
	if err != nil {
		return Summary{}, err
	}
	waiting, err := waitingChanges(ctx, store, base, skip)
	if err != nil {
		return Summary{}, err
	}
	finished, live, rest := waitingBatches(waiting)
	datasets, err := catalog.FindDatasets(ctx, store, idsOf(finished))
	if err != nil {
		return Summary{}, err
	}
	finished = slices.DeleteFunc(finished, func(b planned) bool {
		_, named := datasets[b.DatasetID]
		if !named { // the registry was lost, and nothing told the name when it was restored
			skip(lake.Dataset{ID: b.DatasetID}, b.Batch, fmt.Sprintf("dataset %d has no name", b.DatasetID), b.Digest)
		}
		return !named
	})
	if base != nil {
		s.Current = base.ID
		if err := sameNames(ctx, base, datasetsOf(finished, datasets)); err != nil {
			return Summary{}, err
		}
	}
	known, tableless, err := readDamage(ctx, store, run)
	if err != nil {
		return Summary{}, err
	}
	c := chooser{ctx: ctx, store: store, base: base, live: live, rules: rules, known: known, tableless: tableless, skip: func(b planned, reason string, waits bool) {
		damaged := b.Digest
		if waits {
			damaged = ""
		}
		skip(datasets[b.DatasetID], b.Batch, reason, damaged)
	}}
	var written map[unionName]unionWritten
	if written, c.moved, err = readRewritten(ctx, store, run, round, rules.PublicSuffix); err != nil {
		return Summary{}, err
	}
	good, records, toMove, err := c.choose(finished)
	if err != nil {
		return Summary{}, err
	}
	if len(toMove) > 0 {
		orders := make([]rewriteOrder, len(toMove))
		for i := range toMove {
			orders[i].Move = &toMove[i]
		}
		err = s.order(ctx, store, run, round, rules.PublicSuffix, orders)
		return s, err
	}
	p, err := c.compare(good)
	if err != nil {
		return Summary{}, err
	}
	frozen, err := frozen(ctx, base, known)
	if err == nil {
		err = p.makeRoom(ctx, base, frozen)
	}
	if err != nil {
		return Summary{}, err
	}
	broken, err := p.partialUnions(ctx, base)
	if err != nil {
		return Summary{}, err
	}
	maps.Copy(broken, p.brokenUnions(&c))
	if single := p.inUnions(); len(broken)+len(single) > 0 {
		need, err := p.trim(ctx, store, broken, single, rules, written)
		if err != nil {
			return Summary{}, err
		}
		if len(need) > 0 {
			err = s.order(ctx, store, run, round, rules.PublicSuffix, unionOrders(need))
			return s, err
		}
	}
	p.Swept = swept
	covered := p.all()
	for _, b := range covered {
		switch {
		case b.movedFrom(records):
			s.Moved++
			continue
		case b.Replaces != "":
			s.Replaced++
		}
		if b.New {
			s.Batches++
		}
	}
	s.Removed = len(p.Removes)
	if s.Batches == 0 && s.Moved == 0 && s.Removed == 0 && !c.flips() {
		s.Nothing = true
		if err := store.Delete(ctx, waiting.Superseded...); err != nil {
			return Summary{}, err
		}
		return s, published.Settle(ctx, store)
	}
	p.Gone, p.Starts = rest.gone(waiting, finished, good), rest.starts
	p.Settled = append(waiting.Settled, waiting.Superseded...)
	if err := p.describe(ctx, records, base, rules); err != nil {
		return Summary{}, err
	}
	covered = p.all()
	for _, b := range covered {
		s.Rows += b.Rows
	}
	p.Datasets = datasetsOf(covered, datasets)
	s.Covered, s.Segments, s.Tables = len(covered), len(p.replaced()), len(p.Tables)
	err = p.write(ctx, store, run, round, &s)
	return s, err
}

// write writes the plan, which the summary then names.
func (p *plan) write(ctx context.Context, store blob.Store, run string, round int, s *Summary) error {
	slices.Sort(p.Drops)
	p.Segments, p.loose, p.one = p.segments(), nil, false
	data, err := codec.Seal(p)
	if err != nil {
		return err
	}
	// Two attempts may see different batches. The digest gives each plan its own key.
	s.PlanKey = fmt.Sprintf("%spublish-%d-%s.json", lake.StagingPrefix(run), round, lake.Digest(data))
	s.Builds = p.builds()
	_, err = store.Put(ctx, s.PlanKey, data, blob.Condition{})
	return err
}

// waitingChanges returns what waits and the version lacks. It calls skip for documents that are
// damaged.
func waitingChanges(
	ctx context.Context, store blob.Store, base *catalog.Version,
	skip func(dataset lake.Dataset, batch, reason, damaged string),
) (*catalog.Changes, error) {
	state, err := catalog.ReadWaiting(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, d := range state.Damaged {
		datasets, err := catalog.FindDatasets(ctx, store, []uint32{d.DatasetID})
		if err != nil {
			return nil, err
		}
		dataset := datasets[d.DatasetID]
		dataset.ID, dataset.Name = d.DatasetID, cmp.Or(dataset.Name, "several datasets")
		skip(dataset, "", lake.Explain(store.URL(), d.Err), "")
	}
	state.Version = base
	return state.Changes(ctx)
}

// rest is what waits and changes no rows.
type rest struct {
	retired []catalog.PendingBatch // that the version lacks already
	starts  []started
}

// waitingBatches divides what waits: the batches that the version lacks or is to lose, with what it
// has in their places, and the rest.
func waitingBatches(w *catalog.Changes) (finished []planned, live map[catalog.BatchName]catalog.Batch, r rest) {
	live = map[catalog.BatchName]catalog.Batch{}
	for i := range w.Batches {
		b := &w.Batches[i]
		if b.Live != nil {
			live[b.BatchName] = *b.Live
		}
		switch {
		case !b.Published:
			p := planned{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest, Start: b.Start, retired: b.Retired, by: b.By}
			if p.retired {
				p.Digest, p.Had = "", b.Digest
			}
			finished = append(finished, p)
		case b.Retired:
			r.retired = append(r.retired, *b)
		default:
			r.starts = append(r.starts, started{b.DatasetID, b.Batch, b.Start})
		}
	}
	return finished, live, r
}

// gone returns what is gone besides what the plan removes. What another batch replaces is gone only
// if that one is in the version, and not if it is among the finished ones and not among the good.
func (r *rest) gone(w *catalog.Changes, finished, good []planned) (gone []catalog.Gone) {
	stays := map[catalog.BatchName]bool{}
	for i := range finished {
		stays[finished[i].name()] = true
	}
	for i := range good {
		delete(stays, good[i].name())
	}
	for _, b := range r.retired {
		if b.By == "" || !stays[catalog.BatchName{DatasetID: b.DatasetID, Batch: b.By}] {
			gone = append(gone, catalog.Gone{BatchName: b.BatchName, Start: b.Start, Digest: b.Digest})
		}
	}
	for _, g := range w.Replaced {
		if !stays[g.BatchName] {
			gone = append(gone, catalog.Gone{BatchName: catalog.BatchName{DatasetID: g.DatasetID}, Start: g.Start})
		}
	}
	return gone
}

// idsOf returns the datasets of batches, which are sorted.
func idsOf(batches []planned) (ids []uint32) {
	for _, b := range batches {
		if n := len(ids); n == 0 || ids[n-1] != b.DatasetID {
			ids = append(ids, b.DatasetID)
		}
	}
	return ids
}

// namesOf returns the names of batches.
func namesOf(batches []planned) []catalog.BatchName {
	names := make([]catalog.BatchName, len(batches))
	for i := range batches {
		names[i] = batches[i].name()
	}
	return names
}

// datasetsOf returns the datasets of batches, which are sorted, as far as they are registered.
func datasetsOf(batches []planned, registered map[uint32]lake.Dataset) []lake.Dataset {
	all := []lake.Dataset{}
	for i, b := range batches {
		if d, ok := registered[b.DatasetID]; ok && (i == 0 || batches[i-1].DatasetID != b.DatasetID) {
			all = append(all, d)
		}
	}
	return all
}

// sameNames compares registered datasets with those of v. A different name is a
// *codec.CorruptError: a batch could otherwise replace one of another dataset that had the same id
// before.
func sameNames(ctx context.Context, v *catalog.Version, registered []lake.Dataset) error {
	ids := make([]uint32, len(registered))
	for i := range registered {
		ids[i] = registered[i].ID
	}
	published, err := v.FindDatasets(ctx, ids)
	if err != nil {
		return err
	}
	for _, d := range registered {
		if was, ok := published[d.ID]; ok && was.Name != d.Name {
			section := fmt.Sprintf("dataset %d", d.ID)
			return codec.Corrupt(lake.RegistryKey, section, -1, was.Name+" as in version "+v.ID, d.Name)
		}
	}
	return nil
}

// compare plans the batches that base lacks, and the batches of base that share a segment with a
// replaced or retired one, unless that one is taken out of its segment. If the version flips to
// another public suffix list, each segment with a replaced batch is built again by itself.
func (c *chooser) compare(good []planned) (*plan, error) {
	p := &plan{Format: planFormat, Datasets: []lake.Dataset{}}
	base := c.base
	if base == nil {
		base = &catalog.Version{}
	}
	p.Base = base.ID
	replaced := map[string][]planned{} // by segment
	for _, b := range good {
		live, ok := c.live[b.name()]
		if ok && live.Digest == b.Digest && (b.Union == "" || b.UnionDigest == live.UnionDigest) {
			continue
		}
		b.New = !b.retired
		if ok {
			b.Replaces = live.Digest
			replaced[live.Segment] = append(replaced[live.Segment], b)
		} else {
			p.loose = append(p.loose, b)
		}
	}
	for _, batches := range replaced {
		for _, b := range batches {
			if b.retired {
				p.Removes = append(p.Removes, b)
			}
		}
	}
	sortPlanned(p.Removes)
	for _, s := range base.Segments {
		if replaced[s.ID] == nil {
			continue
		}
		if b, ok := c.table(s, replaced[s.ID]); ok {
			p.Tables = append(p.Tables, b)
			for _, b := range replaced[s.ID] {
				if !b.retired {
					p.loose = append(p.loose, b)
				}
			}
			continue
		}
		again, err := carry(c.ctx, base, s.ID, replaced[s.ID])
		if err != nil {
			return nil, err
		}
		if c.flips() && len(again) > 0 {
			p.Segments = append(p.Segments, newSegment{Replaces: s.ID, Batches: sortPlanned(again)})
		} else {
			p.Drops = append(p.Drops, s.ID)
			p.loose = append(p.loose, again...)
		}
	}
	return p, nil
}

// carry returns replaced and the other batches of one of base's segments, without those that are
// retired.
func carry(ctx context.Context, base *catalog.Version, segment string, replaced []planned) ([]planned, error) {
	names := map[catalog.BatchName]bool{}
	for i := range replaced {
		names[replaced[i].name()] = true
	}
	for b, err := range base.BatchesIn(ctx, segment) {
		if err != nil {
			return nil, err
		}
		if !names[b.BatchName] {
			replaced = append(replaced, liveOf(&b))
		}
	}
	return slices.DeleteFunc(slices.Clone(replaced), func(b planned) bool { return b.retired }), nil
}

// liveOf returns a batch of a version.
func liveOf(b *catalog.Batch) planned {
	return planned{
		DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes,
		Start: b.Start, Union: b.Union, UnionDigest: b.UnionDigest,
	}
}

// sortPlanned sorts batches by dataset and name.
func sortPlanned(batches []planned) []planned {
	slices.SortFunc(batches, func(a, b planned) int {
		return catalog.CompareNames(a.name(), b.name())
	})
	return batches
}

// all returns the batches of all new segments, by dataset and name.
func (p *plan) all() []planned {
	all := slices.Clone(p.loose)
	for i := range p.Segments {
		all = append(all, p.Segments[i].Batches...)
	}
	return sortPlanned(all)
}

// describe copies rows, parts and bytes of the new batches from their records, which it finds by
// digest, and sets the rules of the version. It returns a *RulesError unless all its batches have
// the canonical form of the lake's rules.
func (p *plan) describe(
	ctx context.Context, records map[string]*lake.Batch, base *catalog.Version, rules lake.Rules,
) error {
	p.CanonicalForm, p.PublicSuffix = rules.CanonicalForm, rules.PublicSuffix
	replaced := len(p.Removes)
	describe := func(batches []planned) error {
		for i := range batches {
			b := &batches[i]
			if b.Replaces != "" {
				replaced++
			}
			if !b.New {
				continue
			}
			if b.Union != "" { // the plan has set what follows from the union
				continue
			}
			r := records[b.Digest]
			b.Rows, b.Parts, b.Moved = r.Rows, int64(len(r.Parts)), b.movedFrom(records)
			for _, part := range r.Parts {
				b.Bytes += part.Bytes
			}
			if r.CanonicalForm != p.CanonicalForm {
				return &RulesError{DatasetID: b.DatasetID, Batch: b.Batch, Want: p.CanonicalForm, Got: r.CanonicalForm}
			}
		}
		return nil
	}
	if err := describe(p.loose); err != nil {
		return err
	}
	for i := range p.Segments {
		if err := describe(p.Segments[i].Batches); err != nil {
			return err
		}
	}
	if base != nil && replaced < base.Counts.Batches && base.CanonicalForm != p.CanonicalForm {
		for b, err := range base.Batches(ctx) {
			if err != nil {
				return err
			}
			return &RulesError{DatasetID: b.DatasetID, Batch: b.Batch, Want: p.CanonicalForm, Got: base.CanonicalForm}
		}
	}
	return nil
}

// segments returns the segments that the plan makes, also of the loose batches.
func (p *plan) segments() []newSegment {
	all := slices.Clone(p.Segments)
	if p.one {
		return append(all, newSegment{Batches: p.loose})
	}
	for _, batches := range divide(p.loose) {
		all = append(all, newSegment{Batches: batches})
	}
	return all
}

// builds is the number of tasks of Build. A plan without segments has deletion tables to write.
func (p *plan) builds() int { return max(len(p.segments()), 1) }

// MaxSegmentRows is the number of rows from which on a segment is not made larger. There are at
// most as many pairs of domain and dataset, which one core builds in eleven minutes; usually there
// is a tenth, and a minute. It is a variable for tests.
var MaxSegmentRows int64 = 1 << 31

// divide divides sorted batches among as few segments as fit, in their order. Batches of one union
// stay together. A batch or a union of more than MaxSegmentRows rows is a segment by itself.
func divide(batches []planned) (segments [][]planned) {
	rows := map[segment.BatchRef]int64{}
	for i := range batches {
		rows[batches[i].stored()] += batches[i].Rows
	}
	at := map[segment.BatchRef]int{}
	sum := int64(0)
	for i := range batches {
		ref := batches[i].stored()
		n, ok := at[ref]
		if !ok {
			if sum += rows[ref]; len(segments) == 0 || sum > MaxSegmentRows {
				segments, sum = append(segments, nil), rows[ref]
			}
			n = len(segments) - 1
			at[ref] = n
		}
		segments[n] = append(segments[n], batches[i])
	}
	return segments
}

// makeRoom makes one segment of the new batches, and adds the batches of the smallest segments to
// it, if the version would have more than catalog.MaxSegments otherwise. That happens only if no
// compaction runs. Segments in frozen cannot be built again and stay.
func (p *plan) makeRoom(ctx context.Context, base *catalog.Version, frozen map[string]string) error {
	sortPlanned(p.loose)
	if base != nil && len(p.loose) > 0 {
		replaced := p.replaced()
		var rest []catalog.Segment
		for _, s := range base.Segments {
			if _, ok := frozen[s.ID]; !ok && !replaced[s.ID] && p.tableOf(s.ID) == nil {
				rest = append(rest, s)
			}
		}
		slices.SortStableFunc(rest, func(a, b catalog.Segment) int { return cmp.Compare(a.Live(), b.Live()) })
		left := len(base.Segments) - len(p.Drops)
		p.one = left+len(divide(p.loose)) > catalog.MaxSegments
		left++
		for i := 0; p.one && left > catalog.MaxSegments && i < len(rest); i++ {
			if int64(len(p.loose))+base.CountIn(rest[i].ID) > maxPlanned {
				break
			}
			p.Drops = append(p.Drops, rest[i].ID)
			merged, err := carry(ctx, base, rest[i].ID, nil)
			if err != nil {
				return err
			}
			p.loose = append(p.loose, merged...)
			left--
		}
	}
	sortPlanned(p.loose)
	return nil
}

// readPlan reads and checks the plan at key. id is the id of its commit.
func readPlan(ctx context.Context, store blob.Store, key string) (p *plan, id string, err error) {
	data, _, err := store.Get(ctx, key)
	if err != nil {
		return nil, "", err
	}
	p = new(plan)
	if err := codec.Unseal(data, key, planFormat, p); err != nil {
		return nil, "", err
	}
	if p.Format != planFormat {
		return nil, "", codec.Corrupt(key, "format", -1, planFormat, p.Format)
	}
	return p, lake.Digest(data), nil
}

// refs returns what holds the rows of batches, as the index builder names it: batches and unions.
func refs(batches []planned) []segment.BatchRef {
	refs := make([]segment.BatchRef, 0, len(batches))
	unions := map[segment.BatchRef]bool{}
	for i := range batches {
		ref := batches[i].stored()
		if batches[i].Union != "" {
			if unions[ref] {
				continue
			}
			unions[ref] = true
		}
		refs = append(refs, ref)
	}
	return refs
}

// stored returns what holds the rows of the batch: itself, or a union.
func (b *planned) stored() segment.BatchRef {
	if b.Union != "" {
		return segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Union, Digest: b.UnionDigest}
	}
	return b.ref()
}

// movedFrom reports whether the record of the batch, or of its union, was made from the one that it
// replaces.
func (b *planned) movedFrom(records map[string]*lake.Batch) bool {
	return b.Moved || b.Replaces != "" && records[b.Digest].MovedFrom == b.Replaces
}

// name returns the batch as versions name it.
func (b *planned) name() catalog.BatchName {
	return catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}
}

// ref returns the batch as the index builder names it.
func (b *planned) ref() segment.BatchRef {
	return segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
}
