package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/rewrite"
	"github.com/urlake/urlake/publish/suppress"
)

// A rebuild makes a version of what is whole: the batches of the current version whose records and
// parts are intact. Its steps are those of a publish, but for the first ones:
//
//	StartRebuild  makes lost documents of the registry and the manifest again, and divides the work
//	Inspect       reads every byte of a segment and of its batches, and extracts lost postings
//	PlanRebuild   plans a version in which damaged segments are built again without lost batches
//
// Then come Build, Verify and Commit, and PlanRebuild again, until it has nothing to plan. A
// segment is named by what it covers, so one that has lost no batch is written under its own name,
// which earlier versions refer to as well.
//
//	staging/{run}/rebuild.json         rebuildWork
//	staging/{run}/inspected/{n}.json   inspection
//	staging/{run}/extracted/{name}     names an extracted postings object

const (
	rebuildFormat = 1

	// inspectBatches is the number of unpublished batches that one task inspects.
	inspectBatches = 256
)

// Rebuilt is the result of a rebuild. Each list has at most maxSkipped lines.
type Rebuilt struct {
	// Version is the current version, "" if there is none.
	Version string `json:"version,omitempty"`
	// Checked is the number of segments that were read. Segments lists those that were built again.
	Checked  int      `json:"checked"`
	Segments []string `json:"segments,omitempty"`
	// Postings is the number of postings objects that were extracted from parts.
	Postings int `json:"postings,omitempty"`
	// Restored lists the keys of lost documents that were made again.
	Restored []string `json:"restored,omitempty"`
	// LostBatches is the number of batches that the version no longer has, and LostRows the number
	// of their rows. Lost names them, and all else that could not be made again.
	LostBatches int      `json:"lost_batches,omitempty"`
	LostRows    int64    `json:"lost_rows,omitempty"`
	Lost        []string `json:"lost,omitempty"`
}

// addLines adds lines that a list lacks, up to maxSkipped.
func addLines(to *[]string, lines ...string) {
	for _, l := range lines {
		if len(*to) < maxSkipped && !slices.Contains(*to, l) {
			*to = append(*to, l)
		}
	}
}

// rebuildWork is the document of a rebuild.
type rebuildWork struct {
	lake.KeyedHeader
	// Ready tells that StartRebuild has finished.
	Ready bool `json:"ready"`
	// Segments are those of the current version, by id. Waiting are groups of finished batches that
	// the version lacks. Each segment and each group is a task of Inspect.
	Segments []string             `json:"segments"`
	Waiting  [][]segment.BatchRef `json:"waiting,omitempty"`
	Plans    []rebuildPlan        `json:"plans,omitempty"`
	Out      Rebuilt              `json:"out"`
}

// rebuildPlan names the commit of a plan and the segments that it builds again.
type rebuildPlan struct {
	Commit   string   `json:"commit"`
	Segments []string `json:"segments"`
	// Lost are batches that were found damaged only when they were built.
	Lost []lostBatch `json:"lost,omitempty"`
}

// inspection is what Inspect has found.
type inspection struct {
	lake.KeyedHeader
	// Damaged tells that the segment has to be built again.
	Damaged bool `json:"damaged,omitempty"`
	// Lost are batches of the segment that are not whole. Moved are batches of a damaged union that
	// have parts of their own.
	Lost  []lostBatch `json:"lost,omitempty"`
	Moved []planned   `json:"moved,omitempty"`
	// Other names what is lost and no version needs.
	Other []string `json:"other,omitempty"`
}

// lostBatch is a batch as a version has it, and why it is lost.
type lostBatch struct {
	planned
	Reason string `json:"reason"`
}

func rebuildKey(run string) string { return lake.StagingPrefix(run) + "rebuild.json" }

func extractedPrefix(run string) string { return lake.StagingPrefix(run) + "extracted/" }

func inspectedKey(run string, task int) string {
	return fmt.Sprintf("%sinspected/%06d.json", lake.StagingPrefix(run), task)
}

// StartRebuild makes what is lost of the registry and of the manifest again, as far as other
// documents tell it, and returns the number of tasks of Inspect.
// Temporary files are in tempDir.
func StartRebuild(ctx context.Context, store blob.Store, run, tempDir string) (tasks int, err error) {
	w := &rebuildWork{}
	if _, err := lake.LoadKeyed(ctx, store, rebuildKey(run), rebuildFormat, w); err != nil {
		return 0, err
	}
	if !w.Ready {
		r := &restorer{ctx: ctx, store: store, run: run, tempDir: tempDir, work: w}
		if err := r.restore(); err != nil {
			return 0, fmt.Errorf("start rebuild: %w", err)
		}
	}
	return len(w.Segments) + len(w.Waiting), nil
}

// restorer makes the documents of a lake again.
type restorer struct {
	ctx     context.Context
	store   blob.Store
	run     string
	tempDir string
	work    *rebuildWork
}

// save writes down what was found, so that a repeated step does not forget it.
func (r *restorer) save() error {
	_, err := lake.SaveKeyed(r.ctx, r.store, rebuildKey(r.run), rebuildFormat, r.work, blob.Condition{})
	return err
}

// lost adds an error about damage to what is lost, and returns any other.
func (r *restorer) lost(err error) error {
	if err == nil || r.ctx.Err() != nil || !isDamage(err) && !codec.IsFormat(err) {
		return err
	}
	addLines(&r.work.Out.Lost, lake.Explain(r.store.URL(), err))
	return nil
}

func (r *restorer) restore() error {
	base, older, err := r.versions()
	if err == nil {
		err = r.registries(base)
	}
	if err == nil {
		err = r.suffixLists(append([]*catalog.Version{base}, older...))
	}
	if err == nil && base.ID != "" {
		var told []string
		told, err = retell(r.ctx, r.store)
		addLines(&r.work.Out.Restored, told...)
		err = r.lost(err)
	}
	if err == nil && base.ID != "" {
		err = r.takedowns()
	}
	if err == nil {
		err = r.divide()
	}
	if err != nil {
		return err
	}
	r.work.Ready = true
	return r.save()
}

// versions returns the current version, empty if there is none, and the others that can be read,
// newest first. It drops lost versions from the manifest.
func (r *restorer) versions() (base *catalog.Version, older []*catalog.Version, err error) {
	found, err := catalog.Look(r.ctx, r.store)
	if err == nil {
		addLines(&r.work.Out.Lost, found.Lost...)
		if err = r.save(); err == nil {
			found, err = catalog.Recover(r.ctx, r.store)
		}
	}
	base = &catalog.Version{}
	if err != nil || found.Current == nil {
		return base, nil, r.lost(err)
	}
	if len(found.Lost) == 0 {
		dropped, err := catalog.DropLost(r.ctx, r.store)
		if err != nil {
			return nil, nil, err
		}
		for _, key := range dropped {
			addLines(&r.work.Out.Lost, key+": it is missing or damaged; the manifest no longer lists the version")
		}
		addLines(&r.work.Out.Lost, found.Manifest.LostTags(dropped)...)
	}
	for _, ref := range slices.Backward(found.Manifest.Versions) {
		if ref.ID == found.Current.ID {
			continue
		}
		v, err := catalog.ReadVersion(r.ctx, r.store, ref)
		if err == nil {
			older = append(older, v)
		} else if !isDamage(err) {
			if err := r.lost(err); err != nil {
				return nil, nil, err
			}
		}
	}
	return found.Current, older, nil
}

// registries writes the registry's documents again if they are lost.
func (r *restorer) registries(base *catalog.Version) error {
	datasets := make([]lake.Dataset, 0, base.Counts.Datasets)
	for d, err := range base.Datasets(r.ctx, 0) {
		if isDamage(err) || codec.IsFormat(err) {
			break // the version tells them again by what is restored without them
		}
		if err != nil {
			return err
		}
		datasets = append(datasets, lake.Dataset{ID: d.ID, Name: d.Name, Title: d.Title, Source: d.Source, Licence: d.Licence})
	}
	rules, err := r.rules(base)
	if err != nil {
		return err
	}
	restored, err := catalog.RestoreRegistry(r.ctx, r.store, rules, datasets)
	addLines(&r.work.Out.Restored, append(restored.Keys, restored.Lost...)...)
	if restored.Anew {
		addLines(&r.work.Out.Lost, fmt.Sprintf("%s: the lake has the public suffix list %s again, that of its version or batches; "+
			"if \"starter rules update\" set another one that no version has yet, run it again", lake.RegistryKey, rules.PublicSuffix))
	}
	for _, id := range restored.Nameless {
		addLines(&r.work.Out.Lost, fmt.Sprintf("dataset %d: its name is lost with the registry, "+
			"since nothing of it is published; ingest it again as a new dataset", id))
	}
	if err != nil {
		return r.lost(err)
	}
	return nil
}

// rules returns the rules of a lake: those of its version, or else of one of its batch records.
func (r *restorer) rules(base *catalog.Version) (lake.Rules, error) {
	if base.CanonicalForm != "" {
		return lake.Rules{CanonicalForm: base.CanonicalForm, PublicSuffix: base.PublicSuffix}, nil
	}
	for info, err := range r.store.List(r.ctx, "batches/") {
		if err != nil {
			return lake.Rules{}, err
		}
		if !strings.HasSuffix(info.Key, ".json") {
			continue
		}
		data, _, err := r.store.Get(r.ctx, info.Key)
		if err != nil {
			return lake.Rules{}, err
		}
		if b, err := lake.DecodeBatch(data, info.Key); err == nil {
			return lake.Rules{CanonicalForm: b.CanonicalForm, PublicSuffix: b.PublicSuffix}, nil
		}
	}
	return lake.CurrentRules(), nil
}

// suffixLists writes lost public suffix lists of versions and of new batches again, as far as they
// are this program's.
func (r *restorer) suffixLists(versions []*catalog.Version) error {
	var identities []string
	if rules, err := catalog.ReadRules(r.ctx, r.store); err == nil { // else the registry is lost
		identities = append(identities, rules.PublicSuffix)
	}
	for _, v := range versions {
		identities = append(identities, v.PublicSuffix)
	}
	slices.Sort(identities)
	for _, identity := range slices.Compact(identities) {
		if identity == "" {
			continue
		}
		restored, err := lake.RestoreSuffixList(r.ctx, r.store, identity)
		if restored {
			addLines(&r.work.Out.Restored, lake.SuffixListKey(identity))
		}
		if err := r.lost(err); err != nil {
			return err
		}
	}
	return nil
}

// takedowns applies the takedowns again, and writes their lost deletion tables.
func (r *restorer) takedowns() error {
	damaged, err := suppress.Reapply(r.ctx, r.store, r.tempDir)
	for _, d := range damaged {
		what := "versions that need it are not shown"
		if c := (*codec.CorruptError)(nil); errors.As(d, &c) && strings.HasPrefix(c.File, catalog.TakedownRoot) {
			what = "all takedowns that were found are in force again"
		}
		addLines(&r.work.Out.Lost, fmt.Sprintf("%v; %s", d, what))
	}
	if err != nil || len(damaged) == 0 {
		return r.lost(err)
	}
	return r.save()
}

// divide sets the tasks of Inspect.
func (r *restorer) divide() error {
	found, err := catalog.Look(r.ctx, r.store)
	if err != nil {
		return r.lost(err)
	}
	r.work.Segments, r.work.Waiting = nil, nil
	if found.Current != nil {
		for _, s := range found.Current.Segments {
			r.work.Segments = append(r.work.Segments, s.ID)
		}
	}
	state, err := catalog.ReadWaiting(r.ctx, r.store)
	if err != nil {
		return r.lost(err)
	}
	for _, d := range state.Damaged {
		addLines(&r.work.Out.Lost, fmt.Sprintf("%v; what it named was finished, or retired, and not published: do it again", d.Err))
		if err := r.save(); err != nil {
			return err
		}
		if err := r.store.Delete(r.ctx, d.Key); err != nil {
			return err
		}
	}
	state.Version = found.Current
	unpublished, err := state.Unpublished(r.ctx)
	if err != nil {
		return r.lost(err)
	}
	var waiting []segment.BatchRef
	for _, b := range unpublished {
		if !b.Retired {
			waiting = append(waiting, segment.BatchRef{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest})
		}
	}
	for some := range slices.Chunk(waiting, inspectBatches) {
		r.work.Waiting = append(r.work.Waiting, some)
	}
	return nil
}

// Inspected is the result of Inspect.
type Inspected struct {
	// Lost is the number of lost batches, and Restored the number of postings objects that this
	// attempt has extracted.
	Lost     int `json:"lost"`
	Restored int `json:"restored"`
}

// Inspect reads every byte of a segment and of the batches that it covers, or of a group of batches
// that wait to be published, and writes down what is damaged. It extracts lost postings from parts.
// Temporary files are in tempDir.
func Inspect(ctx context.Context, store blob.Store, run string, task int, tempDir string) (Inspected, error) {
	w := &rebuildWork{}
	if err := lake.RequireKeyed(ctx, store, rebuildKey(run), rebuildFormat, w); err != nil {
		return Inspected{}, err
	}
	i := &inspector{ctx: ctx, store: store, run: run, tempDir: tempDir}
	var err error
	if task < len(w.Segments) {
		err = i.segment(w.Segments[task])
	} else {
		err = i.waiting(w.Waiting[task-len(w.Segments)])
	}
	if codec.IsFormat(err) { // what a newer urlake wrote stays as it is
		i.found, err = inspection{Other: []string{err.Error()}}, nil
	}
	if err == nil {
		_, err = lake.SaveKeyed(ctx, store, inspectedKey(run, task), rebuildFormat, &i.found, blob.Condition{})
	}
	if err != nil {
		return Inspected{}, fmt.Errorf("inspect task %d of a rebuild: %w", task, err)
	}
	return Inspected{len(i.found.Lost), i.restored}, nil
}

type inspector struct {
	ctx     context.Context
	store   blob.Store
	run     string
	tempDir string
	found   inspection
	// restored is the number of postings objects that this attempt has extracted.
	restored int
}

// waiting inspects batches that no version needs. A restored batch may be left in a union only.
func (i *inspector) waiting(batches []segment.BatchRef) error {
	for _, ref := range batches {
		source, _, err := lakecheck.Source(i.ctx, i.store, ref)
		if err != nil && !isDamage(err) {
			return err
		}
		if source != ref {
			continue
		}
		if _, err := i.whole(ref); err != nil {
			if !isDamage(err) {
				return err
			}
			names, namesErr := catalog.FindDatasets(i.ctx, i.store, []uint32{ref.DatasetID})
			if namesErr != nil && !isDamage(namesErr) {
				return namesErr
			}
			addLines(&i.found.Other, fmt.Sprintf("batch %s of %s, which is not published: %s", ref.Batch,
				nameIn(names, ref.DatasetID), lakecheck.Reason(i.ctx, i.store, ref, err)))
		}
	}
	return nil
}

// segment inspects a segment of the current version.
func (i *inspector) segment(id string) error {
	found, err := catalog.Look(i.ctx, i.store)
	if err != nil {
		return err
	}
	v := found.Current
	if v == nil {
		return nil
	}
	n := slices.IndexFunc(v.Segments, func(s catalog.Segment) bool { return s.ID == id })
	if n < 0 {
		return nil // another version has replaced it
	}
	s := v.Segments[n]
	// Of what has the rows of batches, whether it is whole, and why not.
	whole, reasons := map[segment.BatchRef]bool{}, map[segment.BatchRef]error{}
	check := func(ref segment.BatchRef) (bool, error) {
		if sound, ok := whole[ref]; ok {
			return sound, nil
		}
		_, err := i.whole(ref)
		if err != nil && !isDamage(err) {
			return false, err
		}
		whole[ref], reasons[ref] = err == nil, err
		return err == nil, nil
	}
	for b, err := range v.BatchesIn(i.ctx, id) {
		if errors.Is(err, codec.ErrCorrupt) { // StartRebuild has named it
			i.found = inspection{}
			return nil
		}
		if err != nil {
			return err
		}
		ref := lakecheck.StoredRef(b)
		sound, err := check(ref)
		if err != nil {
			return err
		}
		if sound {
			continue
		}
		i.found.Damaged = true
		own := lakecheck.BatchRef(b)
		if b.Union != "" {
			record, err := i.whole(own)
			if err == nil {
				i.found.Moved = append(i.found.Moved, ofRecord(own, b.Start, record))
				continue
			}
			if !isDamage(err) {
				return err
			}
		}
		i.found.Lost = append(i.found.Lost, lostBatch{liveOf(&b), lakecheck.Reason(i.ctx, i.store, ref, reasons[ref])})
	}
	for b, err := range v.DeadIn(i.ctx, id) {
		if err == nil {
			_, err = i.whole(lakecheck.StoredRef(b))
		}
		if err != nil && !isDamage(err) {
			return err
		}
		if err != nil { // without it, the segment could not be built as it is
			i.found.Damaged = true
			break
		}
	}
	if i.found.Damaged {
		return nil
	}
	for _, intact := range []func(catalog.Segment) error{i.files, i.dead, i.trees} {
		switch err := intact(s); {
		case codec.IsFormat(err):
			addLines(&i.found.Other, err.Error())
		case err != nil && isDamage(err):
			i.found.Damaged = true
		case err != nil:
			return err
		}
	}
	return nil
}

// ofRecord returns a batch of the current version that is built from its own parts.
func ofRecord(ref segment.BatchRef, start int64, record *lake.Batch) planned {
	b := planned{DatasetID: ref.DatasetID, Batch: ref.Batch, Digest: ref.Digest, Start: start, Rows: record.Rows, Parts: int64(len(record.Parts))}
	for _, p := range record.Parts {
		b.Bytes += p.Bytes
	}
	return b
}

// whole reads a batch's record, its postings and its parts, every byte of them, and returns the
// record. It extracts lost postings from the parts first.
func (i *inspector) whole(ref segment.BatchRef) (*lake.Batch, error) {
	data, _, err := i.store.Get(i.ctx, ref.Key())
	if err != nil {
		return nil, err
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return nil, err
	}
	for _, p := range record.Parts {
		if err := lakecheck.Object(i.ctx, i.store, p.Object, true); err != nil {
			return nil, err
		}
	}
	if err := postings.Restore(i.ctx, i.store, ref, i.tempDir, i.extracting); err != nil {
		return nil, err
	}
	if _, err := lakecheck.Batch(i.ctx, i.store, ref); err != nil {
		return nil, err
	}
	if record.Rejects != nil {
		err := lakecheck.Object(i.ctx, i.store, *record.Rejects, false)
		if err != nil && !isDamage(err) {
			return nil, err
		}
		if err != nil {
			addLines(&i.found.Other, lake.Explain(i.store.URL(), err))
		}
	}
	return record, nil
}

// extracting keeps the key of a postings object that is about to be written, also for a task whose
// worker dies.
func (i *inspector) extracting(key string) error {
	i.restored++
	_, err := i.store.Put(i.ctx, extractedPrefix(i.run)+path.Base(key), nil, blob.Condition{})
	return err
}

// files reads the files of a segment.
func (i *inspector) files(s catalog.Segment) error {
	_, err := verify.Segment(i.ctx, i.store, lakecheck.SegmentRef(s), false, i.tempDir)
	return err
}

// dead reads the deletion table that the version names of a segment.
func (i *inspector) dead(s catalog.Segment) error {
	table, err := deletion.OpenOwn(i.ctx, i.store, &s, nil)
	if err != nil || table == nil {
		return err
	}
	for _, err := range table.All(i.ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// trees reads the index of a segment's path trees, if it has one.
func (i *inspector) trees(s catalog.Segment) error {
	_, _, why, err := treebuild.Inspect(i.ctx, i.store, s.ID)
	return cmp.Or(why, err)
}

// PlanRebuild plans the version in which the damaged segments of the current one are built again,
// without the batches that are lost. Nothing to plan ends the rebuild. The result is what the
// rebuild has done so far.
func PlanRebuild(ctx context.Context, store blob.Store, run string, round int) (s Summary, out Rebuilt, err error) {
	err = withPieces(ctx, store, func(told []string) (err error) {
		s, out, err = planRebuild(ctx, store, run, round)
		addLines(&out.Restored, told...)
		return err
	})
	if err != nil {
		return Summary{}, Rebuilt{}, fmt.Errorf("plan rebuild: %w", err)
	}
	return s, out, nil
}

func planRebuild(ctx context.Context, store blob.Store, run string, round int) (s Summary, out Rebuilt, err error) {
	w := &rebuildWork{}
	if err := lake.RequireKeyed(ctx, store, rebuildKey(run), rebuildFormat, w); err != nil {
		return s, out, err
	}
	out = w.Out
	published, err := catalog.Recover(ctx, store)
	if err != nil {
		if isDamage(err) || codec.IsFormat(err) { // as StartRebuild has said
			return Summary{Nothing: true}, out, nil
		}
		return s, out, err
	}
	m, base := published.Manifest, published.Current
	if base == nil {
		base, m = &catalog.Version{}, &catalog.Manifest{}
	}
	if err := lease.AwaitSweep(ctx, store, m.Swept); err != nil {
		return s, out, err
	}
	done := map[string]bool{}
	for _, p := range w.Plans {
		if _, ok := m.FindCommit(p.Commit); ok {
			addLines(&out.Segments, p.Segments...)
			if err := out.addLost(ctx, store, p.Lost); err != nil {
				return s, out, err
			}
			for _, id := range p.Segments {
				done[id] = true
			}
		}
	}
	known, _, err := readDamage(ctx, store, run)
	if err != nil {
		return s, out, err
	}
	p := &plan{
		Format: planFormat, Base: base.ID, Swept: m.Swept, CanonicalForm: base.CanonicalForm, PublicSuffix: base.PublicSuffix,
		Datasets: []lake.Dataset{},
	}
	for _, err := range store.List(ctx, extractedPrefix(run)) {
		if err != nil {
			return s, out, err
		}
		out.Postings++
	}
	var next rebuildPlan
	covered := 0
	for task := range len(w.Segments) + len(w.Waiting) {
		found := &inspection{}
		if err := lake.RequireKeyed(ctx, store, inspectedKey(run, task), rebuildFormat, found); err != nil {
			return s, out, err
		}
		addLines(&out.Lost, found.Other...)
		if err := out.addLost(ctx, store, found.Lost); err != nil {
			return s, out, err
		}
		if task >= len(w.Segments) {
			continue
		}
		out.Checked++
		id := w.Segments[task]
		has := slices.ContainsFunc(base.Segments, func(s catalog.Segment) bool { return s.ID == id })
		if !has || done[id] || !found.Damaged || covered > 0 && int64(covered)+base.CountIn(id) > maxPlanned {
			continue
		}
		n, damaged, err := p.rebuild(ctx, base, id, found, known)
		if err != nil {
			return s, out, err
		}
		covered += n
		next.Segments, next.Lost = append(next.Segments, id), append(next.Lost, damaged...)
	}
	s.Current, out.Version = base.ID, base.ID
	if len(next.Segments) == 0 {
		s.Nothing = true
		return s, out, nil
	}
	if need, err := p.whole(ctx, store, base, run); err != nil || len(need) > 0 {
		if err == nil {
			err = s.order(ctx, store, run, round, p.PublicSuffix, unionOrders(need))
		}
		return s, out, err
	}
	sortPlanned(p.Lost)
	all := p.all()
	datasets, err := catalog.FindDatasets(ctx, store, idsOf(all))
	if err != nil {
		return s, out, err
	}
	p.Datasets = datasetsOf(all, datasets)
	for i := range all {
		s.Rows += all[i].Rows
	}
	s.Covered, s.Segments = len(all), len(next.Segments)
	if err := p.write(ctx, store, run, round, &s); err != nil {
		return s, out, err
	}
	next.Commit = commitOf(s.PlanKey)
	w.Plans = append(w.Plans, next)
	_, err = lake.SaveKeyed(ctx, store, rebuildKey(run), rebuildFormat, w, blob.Condition{})
	return s, out, err
}

// addLost adds lost batches.
func (r *Rebuilt) addLost(ctx context.Context, store blob.Store, lost []lostBatch) error {
	for i := range lost {
		b := &lost[i]
		r.LostBatches++
		r.LostRows += b.Rows
		if len(r.Lost) >= maxSkipped {
			continue
		}
		names, err := catalog.FindDatasets(ctx, store, []uint32{b.DatasetID})
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return err
		}
		addLines(&r.Lost, fmt.Sprintf("batch %s of %s, %d rows: %s", b.Batch, nameIn(names, b.DatasetID), b.Rows, b.Reason))
	}
	return nil
}

// nameIn returns the name of a dataset, or its number if the name is lost.
func nameIn(names map[uint32]lake.Dataset, id uint32) string {
	return cmp.Or(names[id].Name, fmt.Sprintf("dataset %d", id))
}

// rebuild adds a damaged segment of base to the plan, without its lost batches. It returns the
// number of batches that are left and those that only builds of this run found damaged, which known
// has.
func (p *plan) rebuild(
	ctx context.Context, base *catalog.Version, id string, found *inspection, known map[segment.BatchRef]string,
) (covered int, damaged []lostBatch, err error) {
	moved := map[segment.BatchRef]planned{}
	for _, b := range found.Moved {
		moved[b.ref()] = b
	}
	lost := map[segment.BatchRef]bool{}
	for i := range found.Lost {
		lost[found.Lost[i].ref()] = true
	}
	var batches []planned
	for live, err := range base.BatchesIn(ctx, id) {
		if err != nil {
			return 0, nil, err
		}
		b := liveOf(&live)
		if other, ok := moved[b.ref()]; ok {
			b = other
		}
		reason, bad := known[b.ref()]
		if bad && !lost[b.ref()] {
			damaged = append(damaged, lostBatch{b, reason})
		}
		if bad || lost[b.ref()] {
			p.Lost = append(p.Lost, b)
		} else {
			batches = append(batches, b)
		}
	}
	if len(batches) == 0 {
		p.Drops = append(p.Drops, id)
	} else {
		p.Segments = append(p.Segments, newSegment{Replaces: id, Batches: sortPlanned(batches)})
	}
	return len(batches), damaged, nil
}

// whole gives the live batches of unions that have dead ones unions of their own: segments that are
// built again have no dead rows. It returns the unions that have to be written before.
func (p *plan) whole(ctx context.Context, store blob.Store, base *catalog.Version, run string) ([]*rewrite.Job, error) {
	partial, err := p.partialUnions(ctx, base)
	if err != nil || len(partial) == 0 {
		return nil, err
	}
	written, _, err := readRewritten(ctx, store, run, 0, p.PublicSuffix)
	if err != nil {
		return nil, err
	}
	return p.trim(ctx, store, partial, nil, lake.Rules{CanonicalForm: p.CanonicalForm, PublicSuffix: p.PublicSuffix}, written)
}

// commitOf returns the id of the commit of the plan at a key.
func commitOf(planKey string) string {
	name := strings.TrimSuffix(path.Base(planKey), ".json")
	return name[strings.LastIndexByte(name, '-')+1:]
}

// Rebuild rebuilds a lake in this process, with the steps that RebuildWorkflow runs on workers. run
// names its staging, which Rebuild removes.
func Rebuild(ctx context.Context, store blob.Store, run, tempDir string) (Rebuilt, error) {
	defer func() { _ = lake.DeleteStaging(ctx, store, run) }()
	tasks, err := StartRebuild(ctx, store, run, tempDir)
	if err != nil {
		return Rebuilt{}, err
	}
	for task := range tasks {
		if _, err := Inspect(ctx, store, run, task, tempDir); err != nil {
			return Rebuilt{}, err
		}
	}
	for round := 0; ; round++ {
		plan, out, err := PlanRebuild(ctx, store, run, round)
		if err == nil && plan.RewriteTasks > 0 {
			if err = rewriteTasks(ctx, store, &plan, tempDir); err == nil {
				continue
			}
		}
		if err != nil || plan.Nothing {
			return out, err
		}
		if _, _, err := buildAndCommit(ctx, store, plan.PlanKey, plan.Builds, round, tempDir); err != nil {
			return out, err
		}
	}
}
