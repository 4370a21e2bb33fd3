package publish

import (
	"context"
	"path"
	"strings"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// NoteCrash adds the batch of an object to the damaged batches of the plan's run, after builds of
// the plan killed their workers or panicked while they read the object. It reads the plan only, not
// the object. It returns how many batches it added: 0 if the object is of none of the plan's
// batches, else as Built.Damaged.
func NoteCrash(ctx context.Context, store blob.Store, planKey, object, reason string) (int, error) {
	p, _, err := readPlan(ctx, store, planKey)
	if err != nil {
		return 0, err
	}
	var found []damagedBatch // several if the object is of a union
	for _, b := range p.all() {
		if strings.HasPrefix(object, lake.BatchPrefix(b.DatasetID, b.stored().Batch)) {
			found = append(found, damagedBatch{b.ref(), reason})
		}
	}
	if n, err := addDamage(ctx, store, planKey, found); n > 0 || err != nil || len(p.Buried) == 0 {
		return n, err
	}
	// It may have been read to take batches out of a segment.
	_, unburied, err := readDamage(ctx, store, path.Base(path.Dir(planKey)))
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range p.Buried {
		if id := p.Buried[i].Segment.ID; !unburied[id] {
			n++
			if err := noteUnburied(ctx, store, planKey, id); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// NoteUniteCrash notes the batches of the next union of a task of a list as damaged, after writing
// it killed workers or panicked. Unite then goes on behind it. It returns false if all unions of
// the task are done.
func NoteUniteCrash(ctx context.Context, store blob.Store, key string, task int, reason string) (bool, error) {
	_, jobs, unitedKey, done, err := readUniteTask(ctx, store, key, task)
	if err != nil || len(done.Unions) >= len(jobs) {
		return false, err
	}
	j := &jobs[len(done.Unions)]
	u := unionWritten{DatasetID: j.DatasetID, Damaged: reason}
	u.Name = j.Name()
	u.blame(j.Members)
	done.Unions = append(done.Unions, u)
	return true, lake.WriteSealed(ctx, store, unitedKey, done)
}

// NoteMoveCrash notes the next batch of a task of a move plan as damaged, after moves of it killed
// their workers or panicked. Move then goes on behind it. It returns false if all batches of the
// task are done.
func NoteMoveCrash(ctx context.Context, store blob.Store, key string, task int, reason string) (bool, error) {
	p, movedKey, done, err := readTask(ctx, store, key, task)
	if err != nil || len(done.Batches) >= len(p.Tasks[task]) {
		return false, err
	}
	crashed := p.Tasks[task][len(done.Batches)].BatchRef
	done.Batches = append(done.Batches, outcome{BatchRef: crashed, Damaged: reason})
	return true, lake.WriteSealed(ctx, store, movedKey, done)
}
