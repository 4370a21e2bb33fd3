package effect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
)

// maxRead is how many bytes of other batches' records and of parts are read. It is enough for the
// records of some thousand batches, or for about half a million rows.
const maxRead = 12 << 20

// errSpent is the error of a read beyond maxRead.
var errSpent = errors.New("more would be read than the comparison is worth")

// spender is a store whose calls of Get together read about left bytes. Later calls fail with
// errSpent.
type spender struct {
	blob.Store
	left atomic.Int64
}

func newSpender(store blob.Store) *spender {
	s := &spender{Store: store}
	s.left.Store(maxRead)
	return s
}

// Get implements blob.Store.
func (s *spender) Get(ctx context.Context, key string) ([]byte, blob.Info, error) {
	if s.left.Load() < 0 {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, errSpent)
	}
	r, err := s.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, blob.Info{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(&spending{r, &s.left})
	if err != nil {
		return nil, blob.Info{}, fmt.Errorf("%s: %w", key, err)
	}
	return data, blob.Info{Key: key, Size: int64(len(data))}, nil
}

// spending is a stream whose bytes are taken from left. It reads little at once, since other
// streams take from left, too.
type spending struct {
	r    io.Reader
	left *atomic.Int64
}

// Read implements io.Reader.
func (s *spending) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 64<<10)])
	if s.left.Add(-int64(n)) < 0 {
		err = errSpent
	}
	return n, err
}

// known sets KnownRows, which is -1 if it was not counted.
func (e *Effect) known(ctx context.Context, store blob.Store, s *spender, record *lake.Batch, others []other) error {
	if e.OtherBatches == 0 || record.Rows == 0 {
		return nil
	}
	e.KnownRows = -1
	if e.Uncompared > 0 {
		return nil
	}
	all, err := partsOf(ctx, store, others)
	if err != nil {
		return unlessLost(err)
	}
	own := stored{parts: record.Parts}
	size := own.bytes()
	for _, o := range all {
		size += o.bytes()
	}
	if size > s.left.Load() {
		return nil
	}
	n, err := knownRows(ctx, s, own, all)
	if err == nil {
		e.KnownRows = n
	}
	return unlessLost(err)
}

// unlessLost returns err, or nil if an object is missing or damaged, or maxRead is used up.
func unlessLost(err error) error {
	if lost(err) || errors.Is(err, blob.ErrRange) {
		return nil
	}
	return err
}

// stored are parts, and the batches whose rows are wanted; nil means all rows.
type stored struct {
	parts   []lake.Part
	batches map[string]bool
}

func (s *stored) bytes() (n int64) {
	for _, p := range s.parts {
		n += p.Bytes
	}
	return n
}

// partsOf returns the parts with the rows of batches, the parts of each union once.
func partsOf(ctx context.Context, store blob.Store, others []other) ([]stored, error) {
	var all []stored
	unions := map[string]map[string]bool{}
	for _, o := range others {
		switch {
		case o.union == "":
			all = append(all, stored{parts: o.parts})
		case unions[o.union] == nil:
			b, err := read(ctx, store, o.union)
			if err != nil {
				return nil, err
			}
			unions[o.union] = map[string]bool{o.batch: true}
			all = append(all, stored{b.Parts, unions[o.union]})
		default:
			unions[o.union][o.batch] = true
		}
	}
	return all, nil
}

// knownRows counts the rows whose URL is also in others.
func knownRows(ctx context.Context, store blob.Store, rows stored, others []stored) (known int64, err error) {
	own := map[uint64]int64{} // rows by the ids of their URLs
	if err := eachID(ctx, store, []stored{rows}, func(id uint64) { own[id]++ }); err != nil {
		return 0, err
	}
	err = eachID(ctx, store, others, func(id uint64) {
		known += own[id]
		delete(own, id)
	})
	return known, err
}

// eachID calls do with the id of the URL of each row, not concurrently. It reads whole parts.
func eachID(ctx context.Context, store blob.Store, all []stored, do func(id uint64)) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for _, from := range all {
		for _, p := range from.parts {
			g.Go(func() error {
				data, _, err := store.Get(ctx, p.Key)
				if err != nil {
					return err
				}
				memory := blob.NewMemory()
				if _, err := memory.Put(ctx, p.Key, data, blob.Condition{}); err != nil {
					return err
				}
				blocks, err := part.BuildPageIndex(bytes.NewReader(data), p.Bytes, p.Key)
				if err != nil {
					return err
				}
				for i := range blocks {
					b := &blocks[i]
					c, err := partreader.ReadColumns(ctx, memory, p.Key, b, b.FirstRow, b.PageStart(b.Pages()), part.ColURLID, part.ColBatch)
					if err != nil {
						return err
					}
					mu.Lock()
					for row, id := range c.URLID {
						if from.batches == nil || from.batches[c.Batch[row]] {
							do(id)
						}
					}
					mu.Unlock()
				}
				return nil
			})
		}
	}
	return g.Wait()
}
