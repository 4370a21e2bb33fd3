package lake

import (
	"context"

	"github.com/urlake/urlake/lake/blob"
)

// deleteBatch is the most keys in one deletion: one request to S3 takes as many.
const deleteBatch = 1000

// DeleteStaging deletes everything that a run left in staging. It lists and deletes in batches, so
// that its memory does not depend on the number of objects.
func DeleteStaging(ctx context.Context, store blob.Store, run string) error {
	var keys []string
	for info, err := range store.List(ctx, StagingPrefix(run)) {
		if err != nil {
			return err
		}
		keys = append(keys, info.Key)
		if len(keys) == deleteBatch {
			if err := store.Delete(ctx, keys...); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return store.Delete(ctx, keys...)
}
