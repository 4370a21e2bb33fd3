package scan

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/indexbuild/deletion"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// Count returns how many rows a version shows of each dataset, under some takedowns: of some
// domains, or of all if there are none. The totals of the index tell, which know nothing of what
// Read does. All are the rows of the whole version by dataset; datasets that it lacks may be
// missing or wrong in the answer.
func Count(
	ctx context.Context, store blob.Store, v *catalog.Version, doc *catalog.TakedownDocument, domains []string, all map[uint32]int64,
	cache *segment.FrameCache,
) (shown map[uint32]int64, err error) {
	shown = map[uint32]int64{}
	if len(domains) == 0 {
		for id, rows := range all {
			shown[id] = rows
		}
	}
	for i := range v.Segments {
		at := &v.Segments[i]
		covered, err := coveredBy(doc, at)
		if err == nil && len(domains) > 0 {
			err = countDomains(ctx, store, at, covered, domains, shown, cache)
		} else if err == nil {
			var hidden map[uint32]int64
			hidden, err = deletion.Hidden(ctx, store, at, covered)
			for dataset, rows := range hidden {
				shown[dataset] -= rows
			}
		}
		if err != nil {
			return nil, fmt.Errorf("segment %s: %w", at.ID, err)
		}
	}
	return shown, nil
}

// coveredBy returns what takedowns say of a segment.
func coveredBy(doc *catalog.TakedownDocument, at *catalog.Segment) (catalog.TakedownSegment, error) {
	if doc == nil {
		return catalog.TakedownSegment{}, nil
	}
	covered, ok := doc.Find(at.View())
	if !ok && len(doc.Segments) > 0 {
		return covered, errors.New("the takedowns were not applied to it yet; export again")
	}
	return covered, nil
}

// OpenSegment opens the postings of a segment.
func OpenSegment(ctx context.Context, store blob.Store, at *catalog.Segment, cache *segment.FrameCache) (*segment.Segment, error) {
	return segment.Open(ctx, store, deletion.SegmentRef(at), segment.Options{Cache: cache, PostingsOnly: true, WholeFiles: true})
}

// countDomains adds the rows that a segment shows of some domains.
func countDomains(
	ctx context.Context, store blob.Store, at *catalog.Segment, covered catalog.TakedownSegment, domains []string, shown map[uint32]int64,
	cache *segment.FrameCache,
) error {
	table, err := deletion.OpenView(ctx, store, at, covered, cache)
	if err != nil {
		return err
	}
	seg, err := OpenSegment(ctx, store, at, cache)
	if err != nil {
		return err
	}
	defer seg.Close()
	for _, domain := range domains {
		key := segment.KeyOf(domain)
		entries, err := seg.Entries(ctx, key, 0, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			left, ok, err := table.Entry(ctx, key, e.Dataset)
			if err != nil {
				return err
			}
			if ok {
				e.Rows = left.Rows
			}
			shown[e.Dataset] += e.Rows
		}
	}
	return nil
}
