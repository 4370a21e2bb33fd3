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
	if n, err := addDamage(ctx, store, planKey, found); n > 0 || err != nil || len(p.Tables) == 0 {
		return n, err
	}
	// It may have been read to take batches out of a segment.
	_, tableless, err := readDamage(ctx, store, path.Base(path.Dir(planKey)))
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range p.Tables {
		if id := p.Tables[i].Segment.ID; !tableless[id] {
			n++
			if err := noteTableless(ctx, store, planKey, id); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// NoteRewriteCrash notes the next union or batch of a task of a list as damaged, after writing it
// killed workers or panicked. Rewrite then goes on behind it. It returns false if all of the task
// is done.
func NoteRewriteCrash(ctx context.Context, store blob.Store, key string, task int, reason string) (bool, error) {
	t, err := readRewriteTask(ctx, store, key, task)
	if err != nil || t.next() == nil {
		return false, err
	}
	var r rewritten
	if o := t.next(); o.Union != nil {
		r.Union = &unionWritten{DatasetID: o.Union.DatasetID, Damaged: reason}
		r.Union.Name = o.Union.Name()
		r.Union.blame(o.Union.Members)
	} else {
		r.Move = &outcome{BatchRef: o.Move.BatchRef, Damaged: reason}
	}
	t.done.Done = append(t.done.Done, r)
	return true, lake.WriteSealed(ctx, store, t.doneKey, t.done)
}
