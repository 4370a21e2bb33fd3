package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/treebuild"
	"github.com/urlake/urlake/indexbuild/verify"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/publish/suppress"
)

// Built is the result of Build.
type Built struct {
	// Segments has the segment of the task, or none if the plan makes none.
	Segments []segment.Ref `json:"segments,omitempty"`
	// Dead are the deletion tables that the first task has written for segments that stay, in the
	// order of the plan.
	Dead []catalog.Dead `json:"dead,omitempty"`
	// Damaged is the number of the plan's batches that were found damaged. If it is not 0, there is
	// no segment: plan again, and the new plan leaves those batches out.
	Damaged int `json:"damaged,omitempty"`
}

// Join returns the results of all tasks of a plan, in their order, as one, for Commit.
func Join(tasks []Built) (all Built) {
	for _, b := range tasks {
		all.Segments = append(all.Segments, b.Segments...)
		all.Dead = append(all.Dead, b.Dead...)
	}
	return all
}

// Committed is the result of Commit.
type Committed struct {
	// Version is the id of the version that has the plan's batches.
	Version    string `json:"version"`
	Generation uint64 `json:"generation"`
	// Compact is set if a compaction should start: it would leave fewer segments, or would write a
	// segment again because many of its rows are dead. It is false if an earlier attempt made the
	// version.
	Compact bool `json:"compact,omitempty"`
	// Existed tells that an earlier attempt had made the version.
	Existed bool `json:"existed,omitempty"`
	// Stale tells that another publish came first and changed the plan's inputs. Nothing was
	// committed; plan again.
	Stale bool `json:"stale,omitempty"`
	// Skipped lists the batches that All left out, as Summary.Skipped does. Commit does not set it.
	Skipped []Skipped `json:"-"`
}

// maxVerifications is how many rounds All begins again after a segment that was damaged as soon as
// it was built.
const maxVerifications = 3

// errStale ends a commit whose plan does not fit the version that it would follow.
var errStale = errors.New("plan is stale")

// Build runs one of the Summary.Builds tasks of a plan, which are numbered from 0: it makes a
// segment, with spill files in tempDir. The first task also writes the plan's deletion tables. A
// segment that an earlier build left and that is intact is not built again. Batches that are
// damaged, or that cannot be in one segment, are no error: Build lists them for the next plan of
// the same run.
func Build(ctx context.Context, store blob.Store, planKey string, task int, tempDir string) (Built, error) {
	return build(ctx, store, planKey, task, indexbuild.Options{TempDir: tempDir})
}

func build(ctx context.Context, store blob.Store, planKey string, task int, opt indexbuild.Options) (Built, error) {
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		return Built{}, fmt.Errorf("build segment: %w", err)
	}
	if task < 0 || task >= p.builds() {
		return Built{}, fmt.Errorf("build segment: task %d of a plan with %d", task, p.builds())
	}
	var built Built
	if task < len(p.Segments) {
		batches := p.Segments[task].Batches
		ref, err := buildOne(ctx, store, refs(batches), opt)
		if n, err := note(ctx, store, planKey, batches, err); n > 0 || err != nil {
			return Built{Damaged: n}, err
		}
		built.Segments = []segment.Ref{ref}
	}
	if task > 0 {
		return built, nil
	}
	dead, damaged, err := p.tables(ctx, store, planKey)
	if err != nil || damaged > 0 {
		return Built{Damaged: damaged}, err
	}
	built.Dead = dead
	return built, nil
}

// note adds the batches because of which the build of a segment ended with err to the list of the
// plan's run. It returns how many there are: 0 with err if no batch is to blame.
func note(ctx context.Context, store blob.Store, planKey string, batches []planned, err error) (int, error) {
	var d *postings.DamageError
	var c *indexbuild.CollisionError
	var blamed []segment.BatchRef
	n, nerr := 0, error(nil)
	switch {
	case errors.As(err, &d):
		blamed = []segment.BatchRef{d.Batch}
		n, nerr = noteDamage(ctx, store, planKey, batches)
	case errors.As(err, &c):
		blamed = slices.Concat(c.Batches[0], c.Batches[1])
		n, nerr = noteCollision(ctx, store, planKey, batches, c)
	}
	if nerr == nil && n == 0 && len(blamed) > 0 {
		// An attempt whose result was lost may have noted them.
		var list *damage
		if list, nerr = readDamageAt(ctx, store, damageKey(path.Dir(planKey)+"/")); nerr == nil {
			for _, b := range batches {
				if slices.Contains(blamed, b.stored()) &&
					slices.ContainsFunc(list.Batches, func(d damagedBatch) bool { return d.BatchRef == b.ref() }) {
					n++
				}
			}
		}
	}
	switch {
	case nerr != nil:
		return 0, fmt.Errorf("build segment: find the damaged batches after %w: %w", err, nerr)
	case n > 0:
		return n, nil
	}
	return 0, err
}

// buildOne returns the segment over batches. If an earlier build has left it and every byte of it
// is what was written, it is not built again.
func buildOne(
	ctx context.Context, store blob.Store, batches []segment.BatchRef, opt indexbuild.Options,
) (segment.Ref, error) {
	ref, ok, err := indexbuild.FindSegment(ctx, store, batches, opt)
	if ok && err == nil {
		_, err = verify.Segment(ctx, store, ref, false, opt.TempDir)
	}
	if err == nil && ok || err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return ref, err
	}
	return indexbuild.BuildSegment(ctx, store, batches, opt)
}

// Verify reads back and checks every byte of the built segments, before readers depend on them. It
// builds the indexes of their path trees, if the lake is to have them; why one is not built is told
// to warn. Temporary files are in tempDir.
func Verify(ctx context.Context, store blob.Store, built Built, tempDir string, warn func(error)) error {
	for _, ref := range built.Segments {
		if _, err := verify.Segment(ctx, store, ref, false, tempDir); err != nil {
			return err
		}
	}
	return trees(ctx, store, built.Segments, tempDir, warn)
}

// treeMemory bounds the memory of sorting for an index of path trees. It is well within what a
// worker reserves for work on a segment.
const treeMemory = 64 << 20

// trees builds the indexes of path trees of segments, if the lake is to have them, and otherwise
// those again that are damaged. Damage is told to warn, and other segments are built: a segment is
// whole without this index, and a damaged setting or part, which alone it reads in a publish, must
// not hold up other batches.
func trees(ctx context.Context, store blob.Store, segments []segment.Ref, tempDir string, warn func(error)) error {
	damaged := func(err error) bool {
		if errors.Is(err, codec.ErrCorrupt) {
			warn(err)
			return true
		}
		return false
	}
	always, err := treebuild.Always(ctx, store)
	if damaged(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, ref := range segments {
		if !always {
			state, _, _, err := treebuild.Inspect(ctx, store, ref.ID)
			if err != nil && !codec.IsFormat(err) {
				return err
			}
			if state != treebuild.Damaged {
				continue
			}
		}
		_, _, err := treebuild.Ensure(ctx, store, ref, treebuild.Options{TempDir: tempDir, MemoryBytes: treeMemory})
		if err != nil && !damaged(err) {
			return err
		}
	}
	return nil
}

// Commit makes the version in which the plan's segments take the places of those that they replace,
// and removes the plan, and the documents of what waited that the parent has. If another version
// came first, the plan is applied to that one, provided
// that its inputs are still live there; else the result is Stale. So is that of a plan that drops
// the rows of a takedown which was lifted since. Rows that takedowns hide are hidden in the new
// segments from the beginning; temporary files are in tempDir.
func Commit(ctx context.Context, store blob.Store, planKey string, built Built, tempDir string) (Committed, error) {
	p, id, err := readPlan(ctx, store, planKey)
	if errors.Is(err, blob.ErrNotExist) {
		return committed(ctx, store, planKey)
	}
	if err != nil {
		return Committed{}, fmt.Errorf("commit version: %w", err)
	}
	compact := false
	c := catalog.Commit{
		ID: id, BuiltBy: builder(),
		Build: func(ctx context.Context, parent *catalog.Version) (*catalog.Next, error) {
			if lifted, err := p.lifted(ctx, store); err != nil || lifted {
				return nil, cmp.Or(err, errStale)
			}
			next, err := p.after(ctx, parent, &built)
			if err == nil {
				compact = len(ChooseSegments(liveRows(next.Segments))) > 0 || slices.ContainsFunc(next.Segments, manyDead)
			}
			return next, err
		},
		Check: func(ctx context.Context, swept uint64) error { return p.uncollected(ctx, store, swept, &built) },
		Cover: suppress.Covering(store, tempDir),
	}
	// Each publish looks whether a batch that is left out is whole again.
	for i, b := range p.Lost {
		change := catalog.Change{DatasetID: b.DatasetID, Batch: b.Batch, Digest: b.Digest}
		if err := catalog.PutPending(ctx, store, fmt.Sprintf("%s-%d", id, i), max(b.Start, 1), []catalog.Change{change}); err != nil {
			return Committed{}, fmt.Errorf("commit version: %w", err)
		}
	}
	out := Committed{Stale: true}
	var done catalog.Committed
	err = withPieces(ctx, store, func([]string) (err error) {
		done, err = c.Apply(ctx, store)
		return err
	})
	switch {
	case err == nil:
		out = Committed{Version: done.Version.ID, Generation: done.Generation, Existed: done.Existed, Compact: compact}
	case !errors.Is(err, errStale):
		return Committed{}, err
	}
	if !out.Stale {
		if err := store.Delete(ctx, p.Settled...); err != nil {
			return Committed{}, fmt.Errorf("commit version: %w", err)
		}
	}
	if err := store.Delete(ctx, planKey); err != nil {
		return Committed{}, fmt.Errorf("remove plan: %w", err)
	}
	return out, nil
}

// committed returns the result of a commit whose plan is gone: an earlier attempt finished, and
// only its reply was lost. The plan's name ends in the commit's id.
func committed(ctx context.Context, store blob.Store, planKey string) (Committed, error) {
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return Committed{Stale: true}, nil
	}
	if err != nil {
		return Committed{}, err
	}
	if ref, ok := m.FindCommit(commitOf(planKey)); ok {
		return Committed{Version: ref.ID, Generation: m.Generation, Existed: true}, nil
	}
	return Committed{Stale: true}, nil
}

// after returns what the version holds that follows parent by this plan, or errStale.
func (p *plan) after(ctx context.Context, parent *catalog.Version, built *Built) (*catalog.Next, error) {
	if parent == nil {
		parent = &catalog.Version{}
	}
	if len(built.Segments) != len(p.Segments) || len(built.Dead) != len(p.Tables) {
		return nil, errors.New("commit version: another worker has built other segments than the plan has")
	}
	if err := p.fits(ctx, parent, built); err != nil {
		return nil, err
	}
	if err := sameNames(ctx, parent, p.Datasets); err != nil {
		return nil, err
	}
	next := &catalog.Next{
		CanonicalForm: p.CanonicalForm, PublicSuffix: p.PublicSuffix,
		Batches: map[string]iter.Seq2[catalog.Batch, error]{}, Died: map[string][]catalog.BatchName{},
		Gone: slices.Clone(p.Gone), Starts: map[catalog.BatchName]int64{},
	}
	for _, b := range p.Removes {
		next.Gone = append(next.Gone, catalog.Gone{BatchName: b.name(), Start: b.Start, Digest: b.Had})
	}
	for _, b := range p.Starts {
		next.Starts[catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch}] = b.Start
	}
	replaced := p.replaced()
	add := func(seg segment.Ref, batches []planned) {
		next.Segments = append(next.Segments, catalog.NewSegment(seg.ID, seg.XXH64, seg.Bytes, seg.Domains, seg.Rows))
		next.Batches[seg.ID] = func(yield func(catalog.Batch, error) bool) {
			for _, b := range batches {
				live := catalog.Batch{
					BatchName: b.name(), Digest: b.Digest, Rows: b.Rows, Parts: b.Parts, Bytes: b.Bytes,
					Start: max(b.Start, next.Starts[b.name()]),
					Union: b.Union, UnionDigest: b.UnionDigest,
				}
				if !yield(live, nil) {
					return
				}
			}
		}
	}
	for _, s := range parent.Segments {
		if i := slices.IndexFunc(p.Segments, func(n newSegment) bool { return n.Replaces == s.ID }); i >= 0 {
			add(built.Segments[i], p.Segments[i].Batches)
		} else if i := slices.IndexFunc(p.Tables, func(b tabled) bool { return b.Segment.ID == s.ID }); i >= 0 {
			s.Dead = &built.Dead[i]
			next.Segments = append(next.Segments, s)
			next.Died[s.ID] = namesOf(p.Tables[i].Batches)
		} else if !replaced[s.ID] {
			next.Segments = append(next.Segments, s)
		}
	}
	for i := range p.Segments {
		if p.Segments[i].Replaces == "" {
			add(built.Segments[i], p.Segments[i].Batches)
		}
	}
	for _, b := range p.all() {
		if b.New {
			next.Back = append(next.Back, b.name())
		}
	}
	for _, d := range p.Datasets {
		next.Datasets = append(next.Datasets, described(d))
	}
	return next, nil
}

// replaced returns the segments that the plan replaces.
func (p *plan) replaced() map[string]bool {
	all := map[string]bool{}
	for _, id := range p.Drops {
		all[id] = true
	}
	for i := range p.Segments {
		if id := p.Segments[i].Replaces; id != "" {
			all[id] = true
		}
	}
	return all
}

// fits returns errStale unless the plan can be applied to parent: parent still has the segments
// that the plan replaces, they hold only batches that the plan covers, and no other publish has
// added the plan's new batches.
func (p *plan) fits(ctx context.Context, parent *catalog.Version, built *Built) error {
	if parent.ID == p.Base {
		return nil
	}
	if parent.Counts.Batches > 0 && (parent.CanonicalForm != p.CanonicalForm || parent.PublicSuffix != p.PublicSuffix) {
		return errStale
	}
	live, views := map[string]bool{}, map[string]bool{}
	for _, s := range parent.Segments {
		live[s.ID], views[s.View()] = true, true
	}
	replaced := p.replaced()
	for id := range replaced {
		if !live[id] {
			return errStale
		}
	}
	for i := range p.Tables {
		if !views[p.Tables[i].Segment.View()] {
			return errStale
		}
	}
	added := built.Segments
	for _, seg := range added {
		if live[seg.ID] && !replaced[seg.ID] {
			return errStale
		}
	}
	if len(parent.Segments)-len(replaced)+len(added) > catalog.MaxSegments {
		return errStale
	}
	all := p.all()
	found, err := parent.FindBatches(ctx, namesOf(all))
	if err != nil {
		return err
	}
	known := int64(0)
	for _, b := range all {
		have, ok := found[b.name()]
		switch {
		case !ok && (!b.New || b.Replaces != ""):
			return errStale
		case !ok:
			continue
		case b.New && (have.Digest != b.Replaces || have.Start > b.Start), !b.New && have.Digest != b.Digest:
			return errStale
		case replaced[have.Segment]:
			known++
		case p.tableOf(have.Segment) == nil:
			return errStale
		}
	}
	retired, err := p.retiredSince(ctx, parent)
	if err != nil || retired {
		return cmp.Or(err, errStale)
	}
	removed, err := parent.FindBatches(ctx, namesOf(p.Removes))
	if err != nil {
		return err
	}
	for _, b := range p.Removes {
		have, ok := removed[b.name()]
		switch {
		case !ok || have.Digest != b.Replaces || have.Start > b.Start:
			return errStale
		case replaced[have.Segment]:
			known++
		case p.tableOf(have.Segment) == nil:
			return errStale
		}
	}
	lost, err := parent.FindBatches(ctx, namesOf(p.Lost))
	if err != nil {
		return err
	}
	for _, b := range p.Lost {
		have, ok := lost[b.name()]
		if !ok || have.Digest != b.Digest || !replaced[have.Segment] {
			return errStale
		}
		known++
	}
	for id := range replaced {
		known -= parent.CountIn(id)
	}
	if known != 0 {
		return errStale
	}
	return nil
}

// retiredSince reports whether a new batch of the plan began before it was retired in parent.
func (p *plan) retiredSince(ctx context.Context, parent *catalog.Version) (bool, error) {
	starts := map[catalog.BatchName]int64{}
	for _, b := range p.all() {
		if b.New && !b.Moved {
			starts[b.name()] = b.Start
			dataset := catalog.BatchName{DatasetID: b.DatasetID}
			starts[dataset] = min(b.Start, cmp.Or(starts[dataset], b.Start))
		}
	}
	gone, err := parent.FindGone(ctx, slices.SortedFunc(maps.Keys(starts), catalog.CompareNames))
	for name, g := range gone {
		if g.Start > starts[name] {
			return true, err
		}
	}
	return false, err
}

// builder names this program, its version and its revision.
func builder() string {
	name := "urlake"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	if v := info.Main.Version; v != "" {
		name += " " + v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(name, s.Value[:min(12, len(s.Value))]) {
			name += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return name
}

// All publishes every intact finished batch in this process, with the steps that PublishWorkflow
// runs on workers, and returns the version that has them. run names its staging, which All removes.
func All(ctx context.Context, store blob.Store, run, tempDir string) (Committed, error) {
	// Commit removes its own plan; other plans and the list of damaged batches remain.
	defer func() { _ = lake.DeleteStaging(ctx, store, run) }()
	for round := 0; ; round++ {
		plan, err := planAndRewrite(ctx, store, run, round, tempDir)
		if err != nil {
			return Committed{}, err
		}
		if plan.Nothing {
			return Committed{Version: plan.Current, Existed: true, Skipped: plan.Skipped}, nil
		}
		done, again, err := buildAndCommit(ctx, store, plan.PlanKey, plan.Builds, round, tempDir)
		if err != nil || !again {
			done.Skipped = plan.Skipped
			return done, err
		}
	}
}

// buildAndCommit does what follows a plan. again tells that another plan is needed.
func buildAndCommit(
	ctx context.Context, store blob.Store, planKey string, builds, round int, tempDir string,
) (done Committed, again bool, err error) {
	tasks := make([]Built, builds)
	for i := range tasks {
		if tasks[i], err = Build(ctx, store, planKey, i, tempDir); err != nil || tasks[i].Damaged > 0 {
			return Committed{}, err == nil, err
		}
	}
	built := Join(tasks)
	if err := Verify(ctx, store, built, tempDir, func(error) {}); err != nil {
		if errors.Is(err, codec.ErrCorrupt) && round < maxVerifications {
			return Committed{}, true, nil // Build finds the damage and builds the segment again
		}
		return Committed{}, false, err
	}
	done, err = Commit(ctx, store, planKey, built, tempDir)
	return done, err == nil && done.Stale, err
}

// rewriteTasks writes the parts that a plan needs first.
func rewriteTasks(ctx context.Context, store blob.Store, plan *Summary, tempDir string) error {
	for task := range plan.RewriteTasks {
		if _, err := Rewrite(ctx, store, plan.RewriteKey, task, tempDir, nil); err != nil {
			return err
		}
	}
	return nil
}

// planAndRewrite plans a round and writes the parts that the plan needs first.
func planAndRewrite(ctx context.Context, store blob.Store, run string, round int, tempDir string) (Summary, error) {
	for {
		plan, err := Plan(ctx, store, run, round)
		if err != nil || plan.RewriteTasks == 0 {
			return plan, err
		}
		if err := rewriteTasks(ctx, store, &plan, tempDir); err != nil {
			return Summary{}, err
		}
	}
}
