package segment

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// EntryRange asks for the entries of a domain in the datasets from First to Last.
type EntryRange struct {
	Key
	First, Last uint32
}

const (
	// windowFrames is about how many frames of postings.idx EntryRanges holds at a time: a
	// megabyte.
	windowFrames = 64
	// rangeReads is how many reads of one window are under way at once.
	rangeReads = 8
)

// EntryRanges calls found with the entries of each range, ascending by dataset, in the order of the
// ranges. These must ascend by key, one for each domain. Each frame is read once,
// and frames that are next to each other in one read. The entries are valid during the call. An
// error of found ends the calls.
func (s *Segment) EntryRanges(ctx context.Context, ranges []EntryRange, found func(i int, entries []Entry) error) error {
	have := map[int]*block{} // frames of the shard that the last range was in
	var frames []frameRange
	var entries []Entry
	var before *shard
	for at := 0; at < len(ranges); {
		h := s.shard(ranges[at].Key)
		if h != before {
			clear(have)
			before = h
		}
		frames = frames[:0]
		var need []int
		end := at
		for ; end < len(ranges) && len(need) < windowFrames; end++ {
			r := &ranges[end]
			if s.shard(r.Key) != h {
				break
			}
			var first, last [postingsFence]byte
			putFence(&first, r.Key, r.First)
			putFence(&last, r.Key, r.Last)
			lo, hi := h.idx.Find(first[:], last[:])
			frames = append(frames, frameRange{lo, hi})
			for i := lo; i < hi; i++ {
				if n := len(need); n == 0 || need[n-1] < i {
					need = append(need, i)
				}
			}
		}
		if err := s.loadBlocks(ctx, h, need, have); err != nil {
			return err
		}
		for i, fr := range frames {
			r := &ranges[at+i]
			entries = entries[:0]
			for frame := fr.lo; frame < fr.hi; frame++ {
				b := have[frame]
				from, to := b.domain(r.Key)
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

// loadBlocks sets have to the blocks of the frames in need, which ascend. Those that have already
// holds are not read again.
func (s *Segment) loadBlocks(ctx context.Context, h *shard, need []int, have map[int]*block) error {
	for frame := range have {
		if _, ok := slices.BinarySearch(need, frame); !ok {
			delete(have, frame)
		}
	}
	var runs []frameRange
	for _, frame := range need {
		switch n := len(runs); {
		case have[frame] != nil:
		case n > 0 && runs[n-1].hi == frame:
			runs[n-1].hi++
		default:
			runs = append(runs, frameRange{frame, frame + 1})
		}
	}
	loaded := make([][]*block, len(runs))
	read := func(ctx context.Context, i int) (err error) {
		loaded[i], err = loadRange(ctx, h.idx, s.cache, runs[i].lo, runs[i].hi, func(frame int, data []byte) (*block, int64, error) {
			b, err := h.block(frame, data)
			if err != nil {
				return nil, 0, err
			}
			return b, b.memoryBytes(), nil
		})
		return err
	}
	if len(runs) == 1 {
		if err := read(ctx, 0); err != nil {
			return err
		}
	} else {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(rangeReads)
		for i := range runs {
			group.Go(func() error { return read(ctx, i) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	for i, r := range runs {
		for frame := r.lo; frame < r.hi; frame++ {
			have[frame] = loaded[i][frame-r.lo]
		}
	}
	return nil
}
