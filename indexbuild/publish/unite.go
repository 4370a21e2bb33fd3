package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/suppress"
	"github.com/urlake/urlake/indexbuild/unite"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
	"github.com/urlake/urlake/lake/trash"
)

// A union (package unite) holds the rows of several batches of a dataset. A compaction makes
// unions. A publish that replaces or retires a batch of a union makes a union of the others. Both
// need the new unions before they can build a segment. So Plan, or PlanCompaction, writes a list of
// them instead of a plan, Unite writes them, and the next plan of the round finds in staging what
// they are.

const (
	// uniteFormat is the format version of lists of unions and of what Unite writes, which live as
	// long as one publish.
	uniteFormat = 1

	// A task of a list ends at uniteBytes of parts or uniteJobs unions. It is larger if there would
	// be more than about maxTasks.
	uniteBytes = 256 << 20
	uniteJobs  = 256
)

// unitePlan is the document at Summary.UniteKey.
type unitePlan struct {
	Format int           `json:"format"`
	Run    string        `json:"run"`
	Tasks  [][]uniteTask `json:"tasks"`
}

// uniteTask is a union that is to be written. Document names the takedowns among which the rules of
// the job are.
type uniteTask struct {
	unite.Job
	Document *takedown.Ref `json:"document,omitempty"`
}

// united is what Unite writes: the unions of a task, as far as they are written.
type united struct {
	Format int            `json:"format"`
	Unions []unionWritten `json:"unions"`
}

// unionWritten is a union, or why it could not be written.
type unionWritten struct {
	DatasetID uint32 `json:"dataset_id"`
	unite.Result
	Damaged string `json:"damaged,omitempty"`
	// Lifted tells that it was not written because a takedown of the job is not in force any more.
	Lifted bool `json:"lifted,omitempty"`
	// Found are the batches that the next plan leaves as they are, because of that.
	Found []damagedBatch `json:"found,omitempty"`
}

// unionName names a union of a dataset.
type unionName struct {
	dataset uint32
	name    string
}

func unitedPrefix(run string) string { return lake.StagingPrefix(run) + "united/" }

// readUnited reads the unions that a run has written.
func readUnited(ctx context.Context, store blob.Store, run string) (map[unionName]unionWritten, error) {
	all := map[unionName]unionWritten{}
	for info, err := range store.List(ctx, unitedPrefix(run)) {
		if err != nil {
			return nil, err
		}
		d, err := readUnitedAt(ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		for _, u := range d.Unions {
			all[unionName{u.DatasetID, u.Name}] = u
		}
	}
	return all, nil
}

func readUnitedAt(ctx context.Context, store blob.Store, key string) (*united, error) {
	d := &united{Format: uniteFormat}
	if err := lake.ReadSealed(ctx, store, key, uniteFormat, d); err != nil {
		return nil, err
	}
	if d.Format != uniteFormat {
		return nil, codec.Corrupt(key, "format", -1, uniteFormat, d.Format)
	}
	return d, nil
}

// writeUnitePlan divides unions into tasks and writes the list. It returns the number of tasks.
func writeUnitePlan(
	ctx context.Context, store blob.Store, run string, round int, jobs []uniteTask,
) (key string, tasks int, err error) {
	p := unitePlan{Format: uniteFormat, Run: run}
	all, bytes := int64(0), int64(0)
	for i := range jobs {
		all += jobs[i].Bytes()
	}
	mostBytes, mostJobs := max(uniteBytes, all/maxTasks), max(uniteJobs, len(jobs)/maxTasks)
	for i := range jobs {
		n := len(p.Tasks)
		if n == 0 || bytes+jobs[i].Bytes() > mostBytes || len(p.Tasks[n-1]) >= mostJobs {
			p.Tasks, bytes = append(p.Tasks, nil), 0
			n++
		}
		bytes += jobs[i].Bytes()
		p.Tasks[n-1] = append(p.Tasks[n-1], jobs[i])
	}
	data, err := codec.Seal(p)
	if err != nil {
		return "", 0, err
	}
	key = fmt.Sprintf("%sunite-%d-%s.json", lake.StagingPrefix(run), round, lake.Digest(data))
	if _, err = store.Put(ctx, key, data, blob.Condition{}); err != nil {
		return "", 0, err
	}
	// From now on a garbage collection leaves the unions and their sources alone. One that has not
	// seen the list has to end before they are written.
	m, _, err := manifest.Read(ctx, store)
	if err == nil {
		err = trash.Await(ctx, store, m.Swept)
	}
	return key, len(p.Tasks), err
}

// UniteProgress says how far a Unite is.
type UniteProgress struct {
	// Done of Unions unions are written. Rows is the number of rows of the next one that were read
	// or written.
	Done   int   `json:"done"`
	Unions int   `json:"unions"`
	Rows   int64 `json:"rows"`
}

// United is the result of Unite.
type United struct {
	// Unions is the number of unions, Damaged that of those that could not be written, because a
	// source is damaged. The next plan leaves their batches as they are.
	Unions  int `json:"unions"`
	Damaged int `json:"damaged,omitempty"`
	// Rows, Parts and Bytes count what the unions have. From is the size of the parts that they
	// were made of.
	Rows  int64 `json:"rows"`
	Parts int64 `json:"parts"`
	Bytes int64 `json:"bytes"`
	From  int64 `json:"from"`
}

// Unite writes the unions of a task of the list at key. It may be repeated and go on anywhere.
// Progress may be nil.
func Unite(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(UniteProgress),
) (United, error) {
	out, err := uniteAll(ctx, store, key, task, tempDir, progress)
	if err != nil {
		return United{}, fmt.Errorf("unite batches: %w", err)
	}
	return out, nil
}

// readUnitePlan reads the list at key and returns its run and the unions of a task.
func readUnitePlan(ctx context.Context, store blob.Store, key string, task int) (run string, jobs []uniteTask, err error) {
	var p unitePlan
	if err := lake.ReadSealed(ctx, store, key, uniteFormat, &p); err != nil {
		return "", nil, err
	}
	if p.Format != uniteFormat || task < 0 || task >= len(p.Tasks) {
		return "", nil, codec.Corrupt(key, "tasks", -1, fmt.Sprintf("task %d in format %d", task, uniteFormat),
			fmt.Sprintf("%d tasks in format %d", len(p.Tasks), p.Format))
	}
	return p.Run, p.Tasks[task], nil
}

// readUniteTask is readUnitePlan, and reads what became of the first unions of the task, at
// unitedKey.
func readUniteTask(
	ctx context.Context, store blob.Store, key string, task int,
) (run string, jobs []uniteTask, unitedKey string, done *united, err error) {
	if run, jobs, err = readUnitePlan(ctx, store, key, task); err != nil {
		return "", nil, "", nil, err
	}
	unitedKey = fmt.Sprintf("%s%s-%06d.json", unitedPrefix(run), strings.TrimSuffix(path.Base(key), ".json"), task)
	done, err = readUnitedAt(ctx, store, unitedKey)
	if errors.Is(err, blob.ErrNotExist) {
		done, err = &united{Format: uniteFormat}, nil
	}
	return run, jobs, unitedKey, done, err
}

func uniteAll(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(UniteProgress),
) (out United, err error) {
	run, jobs, unitedKey, done, err := readUniteTask(ctx, store, key, task)
	if err != nil {
		return out, err
	}
	for i := range jobs {
		j := &jobs[i]
		if i >= len(done.Unions) || done.Unions[i].Lifted {
			u, err := uniteOne(ctx, store, run, j, unite.Options{TempDir: tempDir, Progress: func(rows int64) {
				if progress != nil {
					progress(UniteProgress{Done: i, Unions: len(jobs), Rows: rows})
				}
			}})
			if err != nil {
				return out, err
			}
			if i < len(done.Unions) {
				done.Unions[i] = u
			} else {
				done.Unions = append(done.Unions, u)
			}
			if err := lake.WriteSealed(ctx, store, unitedKey, done); err != nil {
				return out, err
			}
		}
		u := &done.Unions[i]
		out.Unions++
		if u.Lifted {
			continue
		}
		if u.Damaged != "" {
			// Another task may have overwritten the list of damaged batches meanwhile. Without them
			// in it, the next plan would ask for the same union again.
			if _, err := addDamage(ctx, store, key, u.Found); err != nil {
				return out, err
			}
			out.Damaged++
			continue
		}
		out.Rows += u.Rows
		out.Parts += u.Parts
		out.Bytes += u.Bytes
		out.From += j.Bytes()
	}
	return out, nil
}

// uniteOne writes a union. Damage of a source is in the result.
func uniteOne(
	ctx context.Context, store blob.Store, run string, t *uniteTask, opt unite.Options,
) (unionWritten, error) {
	j := &t.Job
	u := unionWritten{DatasetID: j.DatasetID}
	hide, all, err := hiding(ctx, store, j)
	if err != nil {
		return u, err
	}
	if !all {
		u.Name, u.Lifted = j.Name(), true
		return u, nil
	}
	opt.Hide = hide
	r, err := codec.Confirm(func() (unite.Result, error) { return unite.Do(ctx, store, run, j, opt) })
	var d *postings.DamageError
	if errors.As(err, &d) {
		u.Name, u.Damaged = j.Name(), lakecheck.Reason(ctx, store, d.Batch, err)
		u.blame(membersOfSource(ctx, store, j, d.Batch))
		return u, nil
	}
	u.Result = r
	return u, err
}

// hiding returns the rules of a job, and whether all of them are in force.
func hiding(ctx context.Context, store blob.Store, j *unite.Job) (*takedown.Rules, bool, error) {
	if len(j.Rules) == 0 {
		return nil, true, nil
	}
	return suppress.InForce(ctx, store, j.Rules)
}

// blame sets the batches that are left as they are.
func (u *unionWritten) blame(members []lake.Member) {
	for _, m := range members {
		ref := segment.BatchRef{DatasetID: u.DatasetID, Batch: m.Batch, Digest: m.Digest}
		u.Found = append(u.Found, damagedBatch{ref, u.Damaged})
	}
}

// membersOfSource returns the members of a job that a damaged source has: all, if its record is
// damaged too.
func membersOfSource(ctx context.Context, store blob.Store, j *unite.Job, source segment.BatchRef) []lake.Member {
	in := func(batch string) bool { return batch == source.Batch }
	if lake.IsUnionName(source.Batch) {
		in = func(string) bool { return true }
		if data, _, err := store.Get(ctx, source.Key()); err == nil {
			if record, err := lake.DecodeBatch(data, source.Key()); err == nil {
				in = func(batch string) bool {
					return slices.ContainsFunc(record.Members, func(m lake.Member) bool { return m.Batch == batch })
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(j.Members), func(m lake.Member) bool { return !in(m.Batch) })
}

// newJob returns the union of batches of a dataset, by name, whose rows follow the rules of the
// version.
func newJob(batches []planned, form, suffix string) uniteTask {
	t := uniteTask{Job: unite.Job{DatasetID: batches[0].DatasetID, CanonicalForm: form, PublicSuffix: suffix}}
	at := map[segment.BatchRef]int{}
	for i := range batches {
		b := &batches[i]
		t.Members = append(t.Members, lake.Member{Batch: b.Batch, Digest: b.Digest, Rows: b.Rows})
		ref := b.stored()
		n, ok := at[ref]
		if !ok {
			n = len(t.Sources)
			at[ref] = n
			t.Sources = append(t.Sources, unite.Source{Batch: ref.Batch, Digest: ref.Digest})
		}
		t.Sources[n].Bytes += b.Bytes
		if b.Union != "" {
			t.Sources[n].Take = append(t.Sources[n].Take, b.Batch)
		}
	}
	return t
}

// apply gives batches, which are those of a job, the union that was written for it.
func (u *unionWritten) apply(batches []*planned) {
	for i, b := range batches {
		if len(u.Members) == len(batches) {
			b.Rows = u.Members[i].Rows
		}
		b.Union, b.UnionDigest, b.Parts, b.Bytes = u.Name, u.Digest, 0, 0
		if i == 0 {
			b.Parts, b.Bytes = u.Parts, u.Bytes
		}
	}
}

// brokenUnions returns the unions of the base version of which batches are replaced or retired.
func (p *plan) brokenUnions(c *chooser) map[unionName]bool {
	broken := map[unionName]bool{}
	note := func(b *planned) {
		if was, ok := c.live[b.name()]; ok && b.Replaces != "" && was.Union != "" && b.Union == "" {
			broken[unionName{b.DatasetID, was.Union}] = true
		}
	}
	eachPlanned(p, note)
	for i := range p.Removes {
		note(&p.Removes[i])
	}
	return broken
}

// inUnions returns the new batches whose rows only a union still has.
func (p *plan) inUnions() (all []*planned) {
	eachPlanned(p, func(b *planned) {
		if b.New && lake.IsUnionName(b.from.Batch) {
			all = append(all, b)
		}
	})
	return all
}

// trim gives the batches that are left of broken unions a union of their own, and each batch of
// single too. It returns the unions that have to be written before. written are those that the run
// has written.
func (p *plan) trim(
	ctx context.Context, store blob.Store, broken map[unionName]bool, single []*planned, rules lake.Rules,
	written map[unionName]unionWritten,
) (need []uniteTask, err error) {
	var unions []*toUnite
	for _, b := range single {
		from := *b
		from.Union, from.UnionDigest = b.from.Batch, b.from.Digest
		u := newUnion([]*planned{&from}, rules.CanonicalForm, rules.PublicSuffix)
		u.batches = []*planned{b}
		unions = append(unions, u)
	}
	left := map[unionName][]*planned{}
	eachPlanned(p, func(b *planned) {
		if name := (unionName{b.DatasetID, b.Union}); broken[name] {
			left[name] = append(left[name], b)
		}
	})
	for _, batches := range left {
		slices.SortFunc(batches, func(a, b *planned) int { return strings.Compare(a.Batch, b.Batch) })
		unions = append(unions, newUnion(batches, rules.CanonicalForm, rules.PublicSuffix))
	}
	tasks := make([]*uniteTask, len(unions))
	for i := range unions {
		tasks[i] = &unions[i].uniteTask
	}
	if err := nameTakedowns(ctx, store, tasks); err != nil {
		return nil, err
	}
	for _, t := range unions {
		if u, ok := written[unionName{t.DatasetID, t.Name()}]; ok && u.Damaged == "" {
			u.apply(t.batches)
		} else {
			need = append(need, t.uniteTask)
		}
	}
	slices.SortFunc(need, compareJobs)
	return need, nil
}

// compareJobs orders unions by dataset and name.
func compareJobs(a, b uniteTask) int {
	return manifest.CompareNames(manifest.BatchName{DatasetID: a.DatasetID, Batch: a.Name()},
		manifest.BatchName{DatasetID: b.DatasetID, Batch: b.Name()})
}

// eachPlanned calls do with each batch of the new segments.
func eachPlanned(p *plan, do func(b *planned)) {
	for i := range p.Batches {
		do(&p.Batches[i])
	}
	for i := range p.Again {
		for j := range p.Again[i].Batches {
			do(&p.Again[i].Batches[j])
		}
	}
}

// unitesOf adds to w what the list of unions at key works on.
func (w *Working) unites(ctx context.Context, store blob.Store, key string) error {
	var u unitePlan
	err := lake.ReadSealed(ctx, store, key, uniteFormat, &u)
	if gone(err) {
		return nil
	}
	for _, task := range u.Tasks {
		for i := range task {
			j := &task[i]
			w.Moving = append(w.Moving, manifest.BatchName{DatasetID: j.DatasetID, Batch: j.Name()})
			for _, s := range j.Sources {
				w.Batches = append(w.Batches, segment.BatchRef{DatasetID: j.DatasetID, Batch: s.Batch, Digest: s.Digest})
			}
		}
	}
	return err
}
