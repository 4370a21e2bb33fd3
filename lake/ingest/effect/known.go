package effect

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
)

const (
	// maxOwnRows and maxOtherRows bound the rows whose URLs are compared, so that an ingest into a
	// large dataset does not read all of it. The ids of the rows of the batch are in memory, with a
	// filter 10 bytes each; those of the others are read once, 8 bytes each.
	maxOwnRows   = 8 << 20
	maxOtherRows = 32 << 20

	// partsAtOnce and pagesAtOnce are how many parts are read concurrently, and how many pages of
	// one of them at once.
	partsAtOnce = 4
	pagesAtOnce = 32
)

// known sets KnownRows, which is -1 if it was not counted.
func (e *Effect) known(ctx context.Context, store blob.Store, record *lake.Batch, others []other) error {
	if e.OtherBatches == 0 || record.Rows == 0 {
		return nil
	}
	if e.OtherRows < 0 || e.OtherRows > maxOtherRows || record.Rows > maxOwnRows || int64(len(others)) < e.OtherBatches {
		e.KnownRows = -1
		return nil
	}
	n, err := knownRows(ctx, store, record, others)
	if lost(err) || errors.Is(err, blob.ErrRange) {
		n, err = -1, nil
	}
	e.KnownRows = n
	return err
}

// knownRows counts the rows of a record whose URL is one of a row of the other batches.
func knownRows(ctx context.Context, store blob.Store, record *lake.Batch, others []other) (int64, error) {
	ids := make([]uint64, 0, record.Rows)
	var mu sync.Mutex
	err := eachPart(ctx, store, record.Parts, nil, func(page []uint64) {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, page...)
	})
	if err != nil {
		return 0, err
	}
	own := newSet(ids)
	stored := map[string]map[string]bool{} // the batches that are wanted of each record; nil for all
	for _, o := range others {
		if o.union == "" {
			stored[o.key] = nil
			continue
		}
		if stored[o.union] == nil {
			stored[o.union] = map[string]bool{}
		}
		stored[o.union][o.batch] = true
	}
	for key, batches := range stored {
		b, err := read(ctx, store, key)
		if err != nil {
			return 0, err
		}
		if err := eachPart(ctx, store, b.Parts, batches, own.meet); err != nil {
			return 0, err
		}
	}
	return own.met(), nil
}

// eachPart calls do with the ids of the URLs of parts, some pages at a time, concurrently. If
// batches is not nil, rows of other batches are left out.
func eachPart(ctx context.Context, store blob.Store, parts []lake.Part, batches map[string]bool, do func(ids []uint64)) error {
	columns := []part.Column{part.ColURLID}
	if batches != nil {
		columns = append(columns, part.ColBatch)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for _, p := range parts {
		g.Go(func() error {
			blocks, err := part.BuildPageIndex(readerAt{ctx, store, p.Key}, p.Bytes, p.Key)
			if err != nil {
				return err
			}
			for i := range blocks {
				b := &blocks[i]
				for from := 0; from < b.Pages(); from += pagesAtOnce {
					first, end := b.PageStart(from), b.PageStart(min(from+pagesAtOnce, b.Pages()))
					c, err := partreader.ReadColumns(ctx, store, p.Key, b, b.FirstRow+first, end-first, columns...)
					if err != nil {
						return err
					}
					ids := make([]uint64, 0, c.Rows)
					for row := range c.Rows {
						if batches == nil || batches[c.Batch[row]] {
							ids = append(ids, c.URLID[row])
						}
					}
					do(ids)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// readerAt reads an object by ranges.
type readerAt struct {
	ctx   context.Context
	store blob.Store
	key   string
}

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	data, err := r.store.ReadRange(r.ctx, r.key, off, int64(len(p)))
	return copy(p, data), err
}

// set is a set of ids, which notes those that it has met.
type set struct {
	ids    []uint64 // ascending; equal ones stay
	found  []atomic.Uint64
	filter []uint64 // a bit for the upper bits of each id
	shift  int
}

func newSet(ids []uint64) *set {
	slices.Sort(ids)
	size := max(bits.Len(uint(8*len(ids))), 6) // of 16 bits, one or two are set
	s := &set{ids: ids, found: make([]atomic.Uint64, len(ids)/64+1), filter: make([]uint64, 1<<size/64), shift: 64 - size}
	for _, id := range ids {
		at := id >> s.shift
		s.filter[at/64] |= 1 << (at % 64)
	}
	return s
}

// meet notes which of the ids the set has. It may be called concurrently.
func (s *set) meet(ids []uint64) {
	for _, id := range ids {
		if at := id >> s.shift; s.filter[at/64]&(1<<(at%64)) == 0 {
			continue
		}
		for i, _ := slices.BinarySearch(s.ids, id); i < len(s.ids) && s.ids[i] == id; i++ {
			s.found[i/64].Or(1 << (i % 64))
		}
	}
}

// met is how many of the ids were met; equal ones count each.
func (s *set) met() (n int64) {
	for i := range s.found {
		n += int64(bits.OnesCount64(s.found[i].Load()))
	}
	return n
}
