package segment

import (
	"context"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
)

// EntryRange asks for the entries of a domain in the datasets from First to Last.
type EntryRange struct {
	Key
	First, Last uint32
}

const (
	// windowFrames is about how many frames of postings.idx EntryRanges needs at a time: a
	// megabyte.
	windowFrames = 64
	// rangeReads is how many reads of a window are under way at once. A bulk lookup reads windows
	// of all segments of a version at once, and each read takes a connection to the store.
	rangeReads = 16
	// gapFrames is how many frames that are not needed are read rather than divide a read.
	gapFrames = 2
)

// blockAt is a frame of the postings.idx of a shard.
type blockAt struct {
	*shard
	frame int
}

// EntryRanges calls found with the entries of each range, ascending by dataset, in the order of the
// ranges. These must ascend by key, one for each domain. Each frame is read once, some at once, and
// frames that are near each other in one read. The entries are valid during the call. An error of
// found ends the calls.
func (s *Segment) EntryRanges(ctx context.Context, ranges []EntryRange, found func(i int, entries []Entry) error) error {
	have := map[blockAt]*block{}
	var need []blockAt
	var frames []frameRange // of each range, as indexes of need
	var entries []Entry
	for at := 0; at < len(ranges); {
		frames, need = frames[:0], need[:0]
		end := at
		for ; end < len(ranges) && len(need) < windowFrames; end++ {
			r := &ranges[end]
			h := s.shard(r.Key)
			var first, last [postingsFence]byte
			putFence(&first, r.Key, r.First)
			putFence(&last, r.Key, r.Last)
			lo, hi := h.idx.Find(first[:], last[:])
			from := len(need)
			if from > 0 && need[from-1] == (blockAt{h, lo}) {
				from--
			}
			for i := lo + len(need) - from; i < hi; i++ {
				need = append(need, blockAt{h, i})
			}
			frames = append(frames, frameRange{from, from + hi - lo})
		}
		if err := s.loadBlocks(ctx, need, have); err != nil {
			return err
		}
		var search domainSearch // of block number searched
		searched := -1
		for i, fr := range frames {
			r := &ranges[at+i]
			entries = entries[:0]
			for n := fr.lo; n < fr.hi; n++ {
				if n != searched {
					search, searched = have[need[n]].search(), n
				}
				b := search.block
				from, to := search.domain(r.Key)
				for j := b.find(from, to, r.First); j < to; j++ {
					e := b.entry(j, r.Key)
					if e.Dataset > r.Last {
						break
					}
					if n := len(entries); n > 0 && entries[n-1].Dataset >= e.Dataset {
						return b.corrupt(fmt.Sprintf("datasets after %d", entries[n-1].Dataset), e.Dataset)
					}
					entries = append(entries, e)
				}
			}
			if err := found(at+i, entries); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

// frameRange is the frames [lo, hi).
type frameRange struct{ lo, hi int }

// loadBlocks sets have to the blocks of the frames in need, which ascend by shard and frame, and to
// some between them. Those that have already holds are not read again.
func (s *Segment) loadBlocks(ctx context.Context, need []blockAt, have map[blockAt]*block) error {
	before := maps.Clone(have)
	clear(have)
	var runs []frameRange
	var shards []*shard
	for _, b := range need {
		n := len(runs) - 1
		switch {
		case before[b] != nil:
			have[b] = before[b]
		case n >= 0 && shards[n] == b.shard && b.frame-runs[n].hi <= gapFrames:
			runs[n].hi = b.frame + 1
		default:
			runs, shards = append(runs, frameRange{b.frame, b.frame + 1}), append(shards, b.shard)
		}
	}
	loaded := make([][]*block, len(runs))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(rangeReads)
	for i, r := range runs {
		h := shards[i]
		read := func() (err error) {
			loaded[i], err = loadRange(groupCtx, h.idx, s.cache, r.lo, r.hi, func(frame int, data []byte) (*block, int64, error) {
				b, err := h.block(frame, data)
				if err != nil {
					return nil, 0, err
				}
				return b, b.memoryBytes(), nil
			})
			return err
		}
		if len(runs) > 1 {
			group.Go(read)
		} else if err := read(); err != nil {
			return err
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, r := range runs {
		for frame := r.lo; frame < r.hi; frame++ {
			have[blockAt{shards[i], frame}] = loaded[i][frame-r.lo]
		}
	}
	return nil
}
