package postings

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/ingest"
)

// ExtractTask writes the postings object of the parts of t, and returns it with the number of its
// domains. It reads only the pages of domain, ts and size. A temporary file is in tempDir; "" is
// the system's temporary folder. If accept is not nil, it is called with the object's key first,
// and an error from it is returned before anything is written.
func ExtractTask(
	ctx context.Context, store blob.Store, t *ingest.MergedTask, tempDir string, accept func(key string) error,
) (o lake.FrameObject, domains int64, err error) {
	c := NewCollector(t.DatasetID, t.Batch, tempDir)
	defer c.Close()
	rows := int64(0)
	for i := range t.Parts {
		p := &t.Parts[i]
		c.counter.key = p.Part.Key
		scanner := PartScanner{Key: p.Part.Key, Read: func(ctx context.Context, off, n int64) ([]byte, error) {
			return store.ReadRange(ctx, p.Part.Key, off, n)
		}}
		for r, err := range scanner.scanDomains(ctx, p.Blocks) {
			if err == nil {
				err = c.counter.addRuns(r)
			}
			if err != nil {
				return lake.FrameObject{}, 0, err
			}
		}
		if err := c.EndPart(p); err != nil {
			return lake.FrameObject{}, 0, err
		}
		rows += p.Part.Rows
	}
	if rows != t.Rows {
		return lake.FrameObject{}, 0, fmt.Errorf("parts have %d rows, the merge wrote %d", rows, t.Rows)
	}
	return c.finish(ctx, store, accept)
}
