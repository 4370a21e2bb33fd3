package publish

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/indexbuild/lakecheck"
	"github.com/urlake/urlake/indexbuild/move"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/suffixchange"
	"github.com/urlake/urlake/lake/trash"
)

// A batch follows the public suffix list that its record names, or that of the current version if
// the version has the batch. When the registry names another list, each batch of the version and
// each finished batch has to be moved to it before the next version, which names that list. Plan
// then writes a list of these batches instead of a plan, Move moves them, and the next Plan of the
// round finds in staging what became of them.

const (
	// moveFormat is the format version of move plans and of what Move writes, which live as long as
	// one publish.
	moveFormat = 1

	// A task of a move plan ends at taskRows rows or taskBatches batches; a large batch is a task
	// by itself. Tasks are larger if there would be more than about twice maxTasks, so that all of
	// them fit into the history of one workflow.
	taskRows    = 16 << 20
	taskBatches = 64
	maxTasks    = 1000
)

// MoveError says that a batch of the current version cannot be moved to the public suffix list that
// the registry names. The lake stays at the current version, which answers as before.
type MoveError struct {
	DatasetID     uint32
	Batch         string
	Version, List string
	Reason        string
}

func (e *MoveError) Error() string {
	return fmt.Sprintf("the lake stays at version %s, since batch %s of dataset %d cannot be moved to the public suffix list %q: "+
		`%s; then publish again; or go back to the list of the version with "starter rules update"`,
		e.Version, e.Batch, e.DatasetID, e.List, e.Reason)
}

// movePlan is the document at Summary.MoveKey.
type movePlan struct {
	Format int        `json:"format"`
	Run    string     `json:"run"`
	Round  int        `json:"round"`
	To     string     `json:"to"`
	Tasks  [][]toMove `json:"tasks"`
}

// toMove is a batch that may have to be moved. From is the list that it follows.
type toMove struct {
	segment.BatchRef
	From string `json:"from"`
	Rows int64  `json:"rows"`
}

// movedBatches is what Move writes: what became of the batches of a task.
type movedBatches struct {
	Format  int       `json:"format"`
	Round   int       `json:"round"`
	To      string    `json:"to"`
	Batches []outcome `json:"batches"`
}

// outcome is what became of a batch: the digest of its record under the new list, or why it cannot
// be moved.
type outcome struct {
	segment.BatchRef
	To      string      `json:"to_digest,omitempty"`
	Damaged string      `json:"damaged,omitempty"`
	Result  move.Result `json:"result"`
}

func movedPrefix(run string) string { return lake.StagingPrefix(run) + "moved/" }

// readMoved reads what the moves of a run to the list to have found. Batches that were damaged in
// an earlier round are left out, since they may have been mended.
func readMoved(ctx context.Context, store blob.Store, run string, round int, to string) (map[segment.BatchRef]outcome, error) {
	all := map[segment.BatchRef]outcome{}
	for info, err := range store.List(ctx, movedPrefix(run)) {
		if err != nil {
			return nil, err
		}
		d, err := readMovedAt(ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		if d.To != to {
			continue
		}
		for _, o := range d.Batches {
			if o.Damaged == "" || d.Round == round && all[o.BatchRef].To == "" {
				all[o.BatchRef] = o
			}
		}
	}
	return all, nil
}

func readMovedAt(ctx context.Context, store blob.Store, key string) (*movedBatches, error) {
	d := &movedBatches{Format: moveFormat}
	if err := lake.ReadSealed(ctx, store, key, moveFormat, d); err != nil {
		return nil, err
	}
	if d.Format != moveFormat {
		return nil, codec.Corrupt(key, "format", -1, moveFormat, d.Format)
	}
	return d, nil
}

// writeMovePlan divides batches into tasks and writes the move plan.
func writeMovePlan(
	ctx context.Context, store blob.Store, run string, round int, to string, batches []toMove,
) (key string, tasks int, err error) {
	p := movePlan{Format: moveFormat, Run: run, Round: round, To: to}
	all, rows := int64(0), int64(0)
	for _, b := range batches {
		all += b.Rows
	}
	mostRows, mostBatches := max(taskRows, all/maxTasks), max(taskBatches, len(batches)/maxTasks)
	for _, b := range batches {
		n := len(p.Tasks)
		if n == 0 || rows+b.Rows > mostRows || len(p.Tasks[n-1]) >= mostBatches {
			p.Tasks, rows = append(p.Tasks, nil), 0
			n++
		}
		rows += b.Rows
		p.Tasks[n-1] = append(p.Tasks[n-1], b)
	}
	data, err := codec.Seal(p)
	if err != nil {
		return "", 0, err
	}
	key = fmt.Sprintf("%smove-%d-%s.json", lake.StagingPrefix(run), round, lake.Digest(data))
	if _, err = store.Put(ctx, key, data, blob.Condition{}); err != nil {
		return "", 0, err
	}
	// From now on a garbage collection leaves the objects of these batches alone. One that has not
	// seen the plan has to end before they are written.
	m, _, err := manifest.Read(ctx, store)
	if errors.Is(err, manifest.ErrNoVersion) {
		return key, len(p.Tasks), nil
	}
	if err != nil {
		return "", 0, err
	}
	return key, len(p.Tasks), trash.Await(ctx, store, m.Swept)
}

// MoveProgress says how far a Move is.
type MoveProgress struct {
	// Done of Batches batches are moved. Current is the progress of the next one.
	Done    int           `json:"done"`
	Batches int           `json:"batches"`
	Current move.Progress `json:"current"`
}

// Moved is the result of Move.
type Moved struct {
	// Batches is the number of batches that were looked at, Rewritten that of those with another
	// record, Damaged that of those that cannot be moved.
	Batches   int `json:"batches"`
	Rewritten int `json:"rewritten"`
	Damaged   int `json:"damaged,omitempty"`
	// Rows is the number of rows that have another domain, Bytes the size of the new parts and
	// postings.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// Move moves the batches of a task of a move plan to the public suffix list of the plan: it writes
// what changes of them under new names (package move). The current version still has the old
// records. Damaged batches are no error; the next Plan says what they stop.
//
// Move may be repeated and go on anywhere. Progress may be nil.
func Move(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(MoveProgress),
) (Moved, error) {
	out, err := moveTask(ctx, store, key, task, tempDir, progress)
	if err != nil {
		return Moved{}, fmt.Errorf("move batches: %w", err)
	}
	return out, nil
}

func moveTask(
	ctx context.Context, store blob.Store, key string, task int, tempDir string, progress func(MoveProgress),
) (out Moved, err error) {
	p, movedKey, done, err := readTask(ctx, store, key, task)
	if err != nil {
		return out, err
	}
	for i, b := range p.Tasks[task] {
		if i >= len(done.Batches) {
			o, err := moveBatch(ctx, store, p.Run, b, p.To, tempDir, func(current move.Progress) {
				if progress != nil {
					progress(MoveProgress{Done: i, Batches: len(p.Tasks[task]), Current: current})
				}
			})
			if err != nil {
				return out, err
			}
			done.Batches = append(done.Batches, o)
			if err := lake.WriteSealed(ctx, store, movedKey, done); err != nil {
				return out, err
			}
		}
		o := &done.Batches[i]
		out.Batches++
		switch {
		case o.Damaged != "":
			out.Damaged++
		case o.To != o.Digest:
			out.Rewritten++
			out.Rows += o.Result.Moved
			out.Bytes += o.Result.Bytes
		}
	}
	return out, nil
}

// readTask reads a move plan, and what became of the first batches of a task, at movedKey.
func readTask(ctx context.Context, store blob.Store, key string, task int) (p *movePlan, movedKey string, done *movedBatches, err error) {
	p = new(movePlan)
	if err := lake.ReadSealed(ctx, store, key, moveFormat, p); err != nil {
		return nil, "", nil, err
	}
	if p.Format != moveFormat || task < 0 || task >= len(p.Tasks) {
		return nil, "", nil, codec.Corrupt(key, "tasks", -1, fmt.Sprintf("task %d in format %d", task, moveFormat),
			fmt.Sprintf("%d tasks in format %d", len(p.Tasks), p.Format))
	}
	movedKey = fmt.Sprintf("%s%s-%06d.json", movedPrefix(p.Run), strings.TrimSuffix(path.Base(key), ".json"), task)
	done, err = readMovedAt(ctx, store, movedKey)
	if errors.Is(err, blob.ErrNotExist) {
		done, err = &movedBatches{Format: moveFormat, Round: p.Round, To: p.To}, nil
	}
	return p, movedKey, done, err
}

// moveBatch moves a batch.
func moveBatch(
	ctx context.Context, store blob.Store, run string, b toMove, to, tempDir string, progress func(move.Progress),
) (outcome, error) {
	o := outcome{BatchRef: b.BatchRef}
	c, err := changeOf(ctx, store, b.From, to)
	if err != nil {
		return o, err
	}
	if c == nil {
		o.To = b.Digest
		return o, nil
	}
	o.Result, err = move.Batch(ctx, store, run, b.BatchRef, c, move.Options{TempDir: tempDir, Progress: progress})
	var d *postings.DamageError
	if errors.As(err, &d) {
		o.Damaged = lakecheck.Reason(ctx, store, b.BatchRef, err)
		return o, nil
	}
	o.To = o.Result.Digest
	return o, err
}

// chooser chooses the batches of the next version.
type chooser struct {
	ctx   context.Context
	store blob.Store
	base  *manifest.Version // nil for none
	// live has the batches of base under the names of the finished ones.
	live  map[manifest.BatchName]manifest.Batch
	rules lake.Rules // of the next version
	known map[segment.BatchRef]string
	// unburied are segments out of which no batches can be taken.
	unburied map[string]bool
	moved    map[segment.BatchRef]outcome
	skip     func(b planned, reason string, waits bool)
}

// flips reports whether base has batches and another public suffix list than the next version.
func (c *chooser) flips() bool {
	return c.base != nil && c.base.Counts.Batches > 0 && c.base.PublicSuffix != c.rules.PublicSuffix
}

// choose returns the finished batches that can be published, with the records of those that base
// lacks, and the batches of which it must first be known what moves of them. It calls skip for
// other finished batches. If a batch of base cannot be moved, the error is a *MoveError, once
// nothing else is left to move.
func (c *chooser) choose(finished []planned) (good []planned, records map[string]*lake.Batch, need []toMove, err error) {
	waiting := finished
	finished = c.withMoved(finished)
	all, records, err := publishable(c.ctx, c.store, c.base, finished, c.live, c.known, c.skip)
	if err != nil {
		return nil, nil, nil, err
	}
	chosen := map[manifest.BatchName]string{} // digests
	asked := map[segment.BatchRef]bool{}      // unions of batches that only these have
	for _, b := range all {
		if r := records[b.Digest]; r != nil && r.CanonicalForm != c.rules.CanonicalForm {
			e := &RulesError{DatasetID: b.DatasetID, Batch: b.Batch, Want: c.rules.CanonicalForm, Got: r.CanonicalForm}
			c.skip(b, e.Error()+": ingest the batch again", false)
			continue
		}
		if r := records[b.Digest]; r != nil && r.PublicSuffix != c.rules.PublicSuffix {
			source := b.ref()
			if lake.IsUnionName(b.from.Batch) {
				source = b.from
			}
			o, ok := c.moved[source]
			if !ok && !asked[source] {
				need = append(need, toMove{source, r.PublicSuffix, r.Rows})
				asked[source] = true
			}
			if o.Damaged != "" {
				c.skip(b, o.Damaged, false)
				continue
			}
			if ok && source == b.from {
				b.from.Digest = o.To // the rows of the batch follow the list there
			}
		}
		good = append(good, b)
	}
	good = c.together(waiting, good)
	for _, b := range good {
		chosen[b.name()] = b.Digest
	}
	if !c.flips() {
		return good, records, need, nil
	}
	blocked := func(b planned, reason string) error {
		return &MoveError{b.DatasetID, b.Batch, c.base.ID, c.rules.PublicSuffix, reason}
	}
	var stopped error
	var extra []planned                   // batches of base that no finished batch replaces
	var united []planned                  // those of them that are in unions
	unions := map[segment.BatchRef]bool{} // that were looked at
	for live, err := range c.base.Batches(c.ctx) {
		if err != nil {
			return nil, nil, nil, err
		}
		b := planned{DatasetID: live.DatasetID, Batch: live.Batch, Digest: live.Digest, Start: live.Start}
		digest, ok := chosen[b.name()]
		if ok && digest != live.Digest {
			continue
		}
		stored := lakecheck.StoredRef(live)
		switch o, known := c.moved[stored]; {
		case !known && live.Union != "":
			if !unions[stored] && !asked[stored] {
				need = append(need, toMove{stored, c.base.PublicSuffix, live.Rows})
			}
			unions[stored] = true
		case !known:
			need = append(need, toMove{stored, c.base.PublicSuffix, live.Rows})
		case o.Damaged != "":
			if stopped == nil {
				stopped = blocked(b, o.Damaged)
			}
		case o.To != stored.Digest && live.Union != "":
			b.Rows, b.Union, b.UnionDigest, b.Moved = live.Rows, live.Union, o.To, true
			c.live[b.name()] = live
			if !unions[stored] {
				if b.Parts, b.Bytes, err = partsOf(c.ctx, c.store, b.stored()); err != nil {
					return nil, nil, nil, err
				}
			}
			unions[stored] = true
			united = append(united, b)
		case o.To != stored.Digest:
			b.Digest = o.To
			c.live[b.name()] = live
			extra = append(extra, b)
		}
	}
	if len(need) > 0 {
		return nil, nil, need, nil
	}
	if stopped != nil {
		return nil, nil, nil, stopped
	}
	more, moreRecords, err := publishable(c.ctx, c.store, c.base, extra, c.live, c.known, func(b planned, reason string, _ bool) {
		if stopped == nil {
			stopped = blocked(b, reason)
		}
	})
	if err != nil || stopped != nil {
		return nil, nil, nil, errors.Join(err, stopped)
	}
	for digest, r := range moreRecords {
		records[digest] = r
	}
	return slices.Concat(good, more, united), records, nil, nil
}

// partsOf returns the number and the size of the parts that a record names.
func partsOf(ctx context.Context, store blob.Store, ref segment.BatchRef) (parts, bytes int64, err error) {
	data, _, err := store.Get(ctx, ref.Key())
	if err != nil {
		return 0, 0, err
	}
	record, err := lake.DecodeBatch(data, ref.Key())
	if err != nil {
		return 0, 0, err
	}
	for _, p := range record.Parts {
		bytes += p.Bytes
	}
	return int64(len(record.Parts)), bytes, nil
}

// together returns the good ones of the waiting batches without those that have to wait for others:
// a version that has a batch which replaces the others of its dataset lacks those, and no version
// lacks them before. It calls skip for those that wait.
func (c *chooser) together(waiting, good []planned) []planned {
	left := map[manifest.BatchName]bool{} // that stay out of the next version
	for _, b := range waiting {
		left[b.name()] = true
	}
	for _, b := range good {
		delete(left, b.name())
	}
	for {
		n := len(good)
		blocked := map[manifest.BatchName]string{} // the batches that cannot be removed yet, by what takes their place
		for _, b := range waiting {
			if b.retired && b.by != "" && left[b.name()] {
				blocked[manifest.BatchName{DatasetID: b.DatasetID, Batch: b.by}] = b.Batch
			}
		}
		good = slices.DeleteFunc(good, func(b planned) bool {
			reason := ""
			if other, ok := blocked[b.name()]; ok && !b.retired {
				reason = fmt.Sprintf("it takes the place of batch %s, which cannot be taken out of the version", other)
			}
			if b.retired && b.by != "" && left[manifest.BatchName{DatasetID: b.DatasetID, Batch: b.by}] {
				reason = fmt.Sprintf("batch %s, which takes its place, cannot be published", b.by)
			}
			if reason == "" {
				return false
			}
			left[b.name()] = true
			c.skip(b, reason, true)
			return true
		})
		if len(good) == n {
			return good
		}
	}
}

// withMoved returns the finished batches with the digests of their moved records.
func (c *chooser) withMoved(finished []planned) []planned {
	out := slices.Clone(finished)
	for i := range out {
		if o := c.moved[out[i].ref()]; o.To != "" {
			out[i].Digest = o.To
		}
	}
	return out
}

// changeOf returns what changes for batches that follow the list from and are to follow the list
// to. It is nil if the lists have the same rules. If the lake has lost the list from, all domains
// are looked at.
func changeOf(ctx context.Context, store blob.Store, from, to string) (*move.Change, error) {
	list, err := lake.LoadSuffixList(ctx, store, to)
	if err != nil {
		return nil, err
	}
	c := &move.Change{To: to, Domain: list.Domain}
	old, err := lake.LoadSuffixList(ctx, store, from)
	var missing *lake.MissingListError
	switch {
	case errors.As(err, &missing), errors.Is(err, codec.ErrCorrupt):
		return c, nil
	case err != nil:
		return nil, err
	case old.SameRules(list):
		return nil, nil
	}
	c.Affected = suffixchange.New(old, list).Affects
	return c, nil
}
