package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/lease"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/publish/rewrite"
	"github.com/urlake/urlake/publish/suppress"
)

// A plan may need other parts than there are (package rewrite): unions of batches for a compaction,
// a union of the batches that are left when one of a union is replaced or retired, and batches by
// another public suffix list. Plan, or PlanCompaction, then writes a list of them instead of a
// plan, Rewrite writes the parts, and the next plan of the round finds in staging what they are.

const (
	// rewriteFormat is the format version of lists of rewrites and of what Rewrite writes, which
	// live as long as one publish.
	rewriteFormat = 1

	// A task of a list ends at taskBytes of parts or taskRewrites rewrites; a large batch is a task
	// by itself. Tasks are larger if there would be more than about twice maxTasks, so that all of
	// them fit into the history of one workflow.
	taskBytes    = 256 << 20
	taskRewrites = 256
	maxTasks     = 1000

	// rowBytes is about what a row takes of a part.
	rowBytes = 16
)

// rewriteList is the document at Summary.RewriteKey. To is the public suffix list that what is
// written follows.
type rewriteList struct {
	Format int              `json:"format"`
	Run    string           `json:"run"`
	Round  int              `json:"round"`
	To     string           `json:"to"`
	Tasks  [][]rewriteOrder `json:"tasks"`
}

// rewriteOrder asks for a union, or for a batch by another public suffix list.
type rewriteOrder struct {
	Union *rewrite.Job `json:"union,omitempty"`
	Move  *toMove      `json:"move,omitempty"`
}

func (o *rewriteOrder) bytes() int64 {
	if o.Move != nil {
		return o.Move.Rows * rowBytes
	}
	return o.Union.Bytes()
}

// rewrittenList is what Rewrite writes: what became of the first orders of a task.
type rewrittenList struct {
	Format int         `json:"format"`
	Round  int         `json:"round"`
	To     string      `json:"to"`
	Done   []rewritten `json:"done"`
}

// rewritten is what became of an order.
type rewritten struct {
	Union *unionWritten `json:"union,omitempty"`
	Move  *outcome      `json:"move,omitempty"`
}

func rewrittenPrefix(run string) string { return lake.StagingPrefix(run) + "rewritten/" }

// readRewritten reads the unions that a run has written, and what its moves have found, both by the
// public suffix list to: a union has the same name by any list. Batches that were damaged in an
// earlier round are left out, since they may have been mended.
func readRewritten(ctx context.Context, store blob.Store, run string, round int, to string) (
	unions map[unionName]unionWritten, moved map[segment.BatchRef]outcome, err error,
) {
	unions, moved = map[unionName]unionWritten{}, map[segment.BatchRef]outcome{}
	for info, err := range store.List(ctx, rewrittenPrefix(run)) {
		if err != nil {
			return nil, nil, err
		}
		d, err := readRewrittenAt(ctx, store, info.Key)
		if err != nil {
			return nil, nil, err
		}
		if d.To != to {
			continue // of a plan that a change of the list has overtaken
		}
		for _, r := range d.Done {
			if u, o := r.Union, r.Move; u != nil && !u.Lifted {
				unions[unionName{u.DatasetID, u.Name}] = *u
			} else if o != nil && (o.Damaged == "" || d.Round == round && moved[o.BatchRef].To == "") {
				moved[o.BatchRef] = *o
			}
		}
	}
	return unions, moved, nil
}

func readRewrittenAt(ctx context.Context, store blob.Store, key string) (*rewrittenList, error) {
	d := &rewrittenList{Format: rewriteFormat}
	if err := lake.ReadSealed(ctx, store, key, rewriteFormat, d); err != nil {
		return nil, err
	}
	if d.Format != rewriteFormat {
		return nil, codec.Corrupt(key, "format", -1, rewriteFormat, d.Format)
	}
	return d, nil
}

// order divides orders into tasks and writes the list, which the summary then names.
func (s *Summary) order(ctx context.Context, store blob.Store, run string, round int, to string, orders []rewriteOrder) error {
	l := rewriteList{Format: rewriteFormat, Run: run, Round: round, To: to}
	all, bytes := int64(0), int64(0)
	for i := range orders {
		all += orders[i].bytes()
	}
	mostBytes, most := max(taskBytes, all/maxTasks), max(taskRewrites, len(orders)/maxTasks)
	for i := range orders {
		n := len(l.Tasks)
		if n == 0 || bytes+orders[i].bytes() > mostBytes || len(l.Tasks[n-1]) >= most {
			l.Tasks, bytes = append(l.Tasks, nil), 0
			n++
		}
		bytes += orders[i].bytes()
		l.Tasks[n-1] = append(l.Tasks[n-1], orders[i])
	}
	data, err := codec.Seal(l)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%srewrite-%d-%s.json", lake.StagingPrefix(run), round, lake.Digest(data))
	if _, err = store.Put(ctx, key, data, blob.Condition{}); err != nil {
		return err
	}
	s.RewriteKey, s.RewriteTasks = key, len(l.Tasks)
	// From now on a garbage collection leaves what is written and what it is made of alone. One
	// that has not seen the list has to end before anything is written.
	m, _, err := catalog.ReadManifest(ctx, store)
	if errors.Is(err, catalog.ErrNoVersion) {
		return nil
	}
	if err != nil {
		return err
	}
	return lease.AwaitSweep(ctx, store, m.Swept)
}

// unionOrders returns orders for unions.
func unionOrders(jobs []*rewrite.Job) []rewriteOrder {
	orders := make([]rewriteOrder, len(jobs))
	for i, j := range jobs {
		orders[i].Union = j
	}
	return orders
}

// RewriteProgress says how far a Rewrite is.
type RewriteProgress struct {
	// Done of All unions and batches are written. Rows is the number of rows of the next one that
	// were read or written.
	Done int   `json:"done"`
	All  int   `json:"all"`
	Rows int64 `json:"rows"`
}

// Rewritten is the result of Rewrite.
type Rewritten struct {
	// Unions is the number of unions. Batches is the number of batches and unions that were to
	// follow another public suffix list, and Again how many of these had rows with another domain.
	Unions  int `json:"unions,omitempty"`
	Batches int `json:"batches,omitempty"`
	Again   int `json:"again,omitempty"`
	// Damaged is the number of what could not be written because a source is damaged. The next plan
	// leaves the batches of such a union as they are, and says what other batches stop.
	Damaged int `json:"damaged,omitempty"`
	// Moved is the number of rows that have another domain.
	Moved int64 `json:"moved,omitempty"`
	// Rows, Parts and Bytes count what was written. From is the size of the unions' source parts.
	Rows  int64 `json:"rows"`
	Parts int64 `json:"parts"`
	Bytes int64 `json:"bytes"`
	From  int64 `json:"from,omitempty"`
}

// Add adds the result of another task.
func (r *Rewritten) Add(o *Rewritten) {
	r.Unions += o.Unions
	r.Batches += o.Batches
	r.Again += o.Again
	r.Damaged += o.Damaged
	r.Moved += o.Moved
	r.Rows += o.Rows
	r.Parts += o.Parts
	r.Bytes += o.Bytes
	r.From += o.From
}

// Rewrite does a task of the list at key. Batches that follow another list get records under new
// digests, which become the current ones of their batches, unless a later ingest has finished
// meanwhile; the current version still has the old records. It may be repeated and go on anywhere.
// Progress may be nil.
func Rewrite(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(RewriteProgress),
) (Rewritten, error) {
	out, err := rewriteAll(ctx, store, key, task, tempDir, progress)
	if err != nil {
		return Rewritten{}, fmt.Errorf("rewrite parts: %w", err)
	}
	return out, nil
}

// rewriteTask is a task of a list, and what became of its first orders, at doneKey.
type rewriteTask struct {
	run, to string
	orders  []rewriteOrder
	doneKey string
	done    *rewrittenList
}

// next returns the next order, nil if all are done.
func (t *rewriteTask) next() *rewriteOrder {
	if len(t.done.Done) == len(t.orders) {
		return nil
	}
	return &t.orders[len(t.done.Done)]
}

func readRewriteTask(ctx context.Context, store blob.Store, key string, task int) (*rewriteTask, error) {
	var l rewriteList
	if err := lake.ReadSealed(ctx, store, key, rewriteFormat, &l); err != nil {
		return nil, err
	}
	if l.Format != rewriteFormat || task < 0 || task >= len(l.Tasks) {
		return nil, codec.Corrupt(key, "tasks", -1, fmt.Sprintf("task %d in format %d", task, rewriteFormat),
			fmt.Sprintf("%d tasks in format %d", len(l.Tasks), l.Format))
	}
	t := &rewriteTask{run: l.Run, to: l.To, orders: l.Tasks[task]}
	t.doneKey = fmt.Sprintf("%s%s-%06d.json", rewrittenPrefix(l.Run), strings.TrimSuffix(path.Base(key), ".json"), task)
	var err error
	t.done, err = readRewrittenAt(ctx, store, t.doneKey)
	if errors.Is(err, blob.ErrNotExist) {
		t.done, err = &rewrittenList{Format: rewriteFormat, Round: l.Round, To: l.To}, nil
	}
	return t, err
}

func rewriteAll(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(RewriteProgress),
) (out Rewritten, err error) {
	t, err := readRewriteTask(ctx, store, key, task)
	if err != nil {
		return out, err
	}
	for i := range t.orders {
		o := &t.orders[i]
		opt := rewrite.Options{TempDir: tempDir, Progress: func(rows int64) {
			if progress != nil {
				progress(RewriteProgress{Done: i, All: len(t.orders), Rows: rows})
			}
		}}
		if i == len(t.done.Done) {
			var r rewritten
			if o.Union != nil {
				r.Union, err = writeUnion(ctx, store, t.run, o.Union, opt)
			} else {
				r.Move, err = moveBatch(ctx, store, t.run, *o.Move, t.to, opt)
			}
			if err != nil {
				return out, err
			}
			t.done.Done = append(t.done.Done, r)
			if err := lake.WriteSealed(ctx, store, t.doneKey, t.done); err != nil {
				return out, err
			}
		}
		if u := t.done.Done[i].Union; u != nil && u.Damaged != "" {
			// Another task may have overwritten the list of damaged batches meanwhile. Without them
			// in it, the next plan would ask for the same union again.
			if _, err := addDamage(ctx, store, key, u.Found); err != nil {
				return out, err
			}
		}
		out.add(o, &t.done.Done[i])
	}
	return out, nil
}

// add adds what became of an order.
func (r *Rewritten) add(o *rewriteOrder, done *rewritten) {
	result := &rewrite.Result{}
	var damaged string
	if u := done.Union; u != nil {
		r.Unions++
		if damaged = u.Damaged; damaged == "" && !u.Lifted {
			result = &u.Result
			r.From += o.Union.Bytes()
		}
	} else {
		r.Batches++
		if damaged = done.Move.Damaged; damaged == "" && done.Move.To != done.Move.Digest {
			result = &done.Move.Result
			r.Again++
		}
	}
	if damaged != "" {
		r.Damaged++
	}
	r.Moved += result.Moved
	r.Rows += result.Rows
	r.Parts += result.Parts
	r.Bytes += result.Bytes
}

// unionWritten is a union, or why it could not be written.
type unionWritten struct {
	DatasetID uint32 `json:"dataset_id"`
	rewrite.Result
	Damaged string `json:"damaged,omitempty"`
	// Lifted is set if it was not written because a takedown of the job was lifted.
	Lifted bool `json:"lifted,omitempty"`
	// Found are the batches that the next plan leaves as they are, because of that.
	Found []damagedBatch `json:"found,omitempty"`
}

// writeUnion writes a union. Damage of a source is in the result.
func writeUnion(
	ctx context.Context, store blob.Store, run string, j *rewrite.Job, opt rewrite.Options,
) (*unionWritten, error) {
	u := &unionWritten{DatasetID: j.DatasetID}
	hide, all, err := hiding(ctx, store, j)
	if err != nil {
		return u, err
	}
	if !all {
		u.Name, u.Lifted = j.Name(), true
		return u, nil
	}
	opt.Hide = hide
	r, err := codec.Confirm(func() (rewrite.Result, error) { return rewrite.Do(ctx, store, run, j, opt) })
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
func hiding(ctx context.Context, store blob.Store, j *rewrite.Job) (*catalog.Takedowns, bool, error) {
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
func membersOfSource(ctx context.Context, store blob.Store, j *rewrite.Job, source segment.BatchRef) []lake.Member {
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

// rewrites adds to w what the list of rewrites at key works on.
func (w *Working) rewrites(ctx context.Context, store blob.Store, key string) error {
	var l rewriteList
	err := lake.ReadSealed(ctx, store, key, rewriteFormat, &l)
	if gone(err) {
		return nil
	}
	for _, task := range l.Tasks {
		for i := range task {
			if b := task[i].Move; b != nil {
				w.Moving = append(w.Moving, catalog.BatchName{DatasetID: b.DatasetID, Batch: b.Batch})
				continue
			}
			j := task[i].Union
			w.Moving = append(w.Moving, catalog.BatchName{DatasetID: j.DatasetID, Batch: j.Name()})
			for _, s := range j.Sources {
				w.Batches = append(w.Batches, segment.BatchRef{DatasetID: j.DatasetID, Batch: s.Batch, Digest: s.Digest})
			}
		}
	}
	return err
}
