package scan

import (
	"context"
	"errors"
	"fmt"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/overlay"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/manifest"
	"github.com/urlake/urlake/lake/takedown"
)

// Count returns how many rows a version shows of each dataset, under some takedowns: of some
// domains, or of all if there are none. The totals of the index tell, which know nothing of what
// Read does. All are the rows of the whole version by dataset; datasets that it lacks may be
// missing or wrong in the answer.
func Count(
	ctx context.Context, store blob.Store, v *manifest.Version, doc *takedown.Document, domains []string, all map[uint32]int64,
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
		hidden, err := openHidden(ctx, store, doc, at, cache)
		if err == nil && len(domains) > 0 {
			err = countDomains(ctx, store, at, hidden, domains, shown, cache)
		} else if err == nil && hidden != nil {
			for _, sum := range hidden.Sums() {
				shown[sum.Dataset] -= sum.Rows
			}
		}
		if err != nil {
			return nil, fmt.Errorf("segment %s: %w", at.ID, err)
		}
	}
	return shown, nil
}

// openHidden opens what says which rows of a segment takedowns hide, nil for none.
func openHidden(
	ctx context.Context, store blob.Store, doc *takedown.Document, at *manifest.Segment, cache *segment.FrameCache,
) (*overlay.Overlay, error) {
	if doc == nil {
		return nil, nil
	}
	covered, ok := doc.Find(at.View())
	switch {
	case !ok && len(doc.Segments) > 0:
		return nil, errors.New("the takedowns were not applied to it yet; export again")
	case covered.Overlay == nil:
		return nil, nil
	}
	return overlay.Open(ctx, store, overlay.Ref(*covered.Overlay), cache)
}

// OpenSegment opens the postings of a segment.
func OpenSegment(ctx context.Context, store blob.Store, at *manifest.Segment, cache *segment.FrameCache) (*segment.Segment, error) {
	ref := segment.Ref{ID: at.ID, XXH64: at.SegmentXXH64, Bytes: at.Bytes, Domains: at.Domains, Rows: at.Rows}
	return segment.Open(ctx, store, ref, segment.Options{Cache: cache, PostingsOnly: true, WholeFiles: true})
}

// countDomains adds the rows that a segment shows of some domains.
func countDomains(
	ctx context.Context, store blob.Store, at *manifest.Segment, hidden *overlay.Overlay, domains []string, shown map[uint32]int64,
	cache *segment.FrameCache,
) error {
	var dead *overlay.Overlay
	var err error
	if at.Dead != nil {
		if dead, err = overlay.Open(ctx, store, overlay.Ref(at.Dead.Overlay), cache); err != nil {
			return err
		}
	}
	seg, err := OpenSegment(ctx, store, at, cache)
	if err != nil {
		return err
	}
	defer seg.Close()
	stack := overlay.NewStack(dead, hidden)
	for _, domain := range domains {
		key := segment.KeyOf(domain)
		entries, err := seg.Entries(ctx, key, 0, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			left, ok, err := stack.Entry(ctx, key, e.Dataset)
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
