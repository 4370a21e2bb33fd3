package lake

import (
	"context"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake/blob"
)

// StagedRun is a run with objects in staging.
type StagedRun struct {
	Run string
	// Objects and Bytes count them, Hash is one of all keys and ETags.
	Objects, Bytes int64
	Hash           uint64
}

// StagedRuns lists the runs that have objects in staging, by name.
func StagedRuns(ctx context.Context, store blob.Store) ([]StagedRun, error) {
	const root = "staging/"
	var runs []StagedRun
	hash := xxh3.New()
	for info, err := range store.List(ctx, root) {
		if err != nil {
			return nil, err
		}
		run, _, folder := strings.Cut(strings.TrimPrefix(info.Key, root), "/")
		if !folder {
			continue
		}
		if n := len(runs); n == 0 || runs[n-1].Run != run {
			runs = append(runs, StagedRun{Run: run})
			hash.Reset()
		}
		r := &runs[len(runs)-1]
		hash.WriteString(info.Key + "\x00" + info.ETag + "\x00")
		r.Objects, r.Bytes, r.Hash = r.Objects+1, r.Bytes+info.Size, hash.Sum64()
	}
	return runs, nil
}

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
