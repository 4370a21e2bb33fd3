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
