package publish

import (
	"context"
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
	for _, b := range p.all() {
		if strings.HasPrefix(object, lake.BatchPrefix(b.DatasetID, b.Batch)) {
			return addDamage(ctx, store, planKey, []damagedBatch{{b.ref(), reason}})
		}
	}
	return 0, nil
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
	return true, writeStaged(ctx, store, movedKey, done)
}
