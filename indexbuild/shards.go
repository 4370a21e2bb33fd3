package indexbuild

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
)

// shardEntries is the largest number of entries of a shard, until there are 1,024 shards: about
// 80 MB, which one worker reads or writes in a few seconds.
const shardEntries = 8 << 20

// shardBits is the base-2 logarithm of the number of shards for so many entries.
func shardBits(entries int64) int {
	return min(bits.Len64(uint64(max(entries-1, 0)/shardEntries)), segment.MaxShardBits)
}

// writePostings writes the shards of postings, as many at once as there are processors. It compares
// their rows with those of the parts.
func (b *build) writePostings() error {
	b.info.ShardBits = shardBits(b.info.Entries)
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for shard := range 1 << b.info.ShardBits {
		g.Go(func() error {
			inline, rows, err := b.writeShard(ctx, shard)
			mu.Lock()
			defer mu.Unlock()
			b.info.Inline, b.info.Rows = b.info.Inline+inline, b.info.Rows+rows
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	want := int64(0)
	for i := range b.files {
		want += b.files[i].Rows
	}
	if b.info.Rows != want {
		return fmt.Errorf("postings have %d rows, parts %d", b.info.Rows, want)
	}
	return nil
}

// entriesPool keeps the memory of entries that have been written.
var entriesPool = sync.Pool{New: func() any { return new(segment.Entries) }}

// writeShard writes a shard. It sorts and decodes some partitions ahead and writes them in order.
// It returns the number of inline entries and of rows.
func (b *build) writeShard(ctx context.Context, shard int) (inline, rows int64, err error) {
	idx, err := b.out.Create(segment.PostingsName(shard))
	if err != nil {
		return 0, 0, err
	}
	defer idx.Abort()
	dat, err := b.out.Create(segment.PayloadsName(shard))
	if err != nil {
		return 0, 0, err
	}
	defer dat.Abort()
	w := segment.NewPostingsWriter(idx, dat, shard, b.info.ShardBits)

	g, ctx := errgroup.WithContext(ctx)
	// Each element of the queue passes the entries of one partition.
	queue := make(chan chan *segment.Entries, 1+runtime.GOMAXPROCS(0)>>b.info.ShardBits)
	g.Go(func() error {
		defer close(queue)
		n := b.entries.Len() >> b.info.ShardBits
		for i := shard * n; i < (shard+1)*n; i++ {
			out := make(chan *segment.Entries, 1)
			select {
			case queue <- out:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				err := b.entries.Each(ctx, i, func(v *keysort.Values) error {
					e, err := b.decodeEntries(v)
					if err != nil {
						return err
					}
					select {
					case out <- e:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				if err == nil {
					close(out)
				}
				return err
			})
		}
		return nil
	})
	g.Go(func() error {
		for out := range queue {
			for more := true; more; {
				var e *segment.Entries
				select {
				case e, more = <-out:
				case <-ctx.Done():
					return ctx.Err()
				}
				if !more {
					break
				}
				if err := w.AddAll(e); err != nil {
					return err
				}
				rows += e.Rows()
				entriesPool.Put(e)
			}
		}
		return ctx.Err()
	})
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	_, inline = w.Entries()
	idxFile, datFile, err := w.Finish()
	if err != nil {
		return 0, 0, err
	}
	if err := idx.FinishFrames(idxFile); err != nil {
		return 0, 0, err
	}
	return inline, rows, dat.FinishFrames(datFile)
}

// decodeEntries decodes the records of a partition's domains.
func (b *build) decodeEntries(v *keysort.Values) (*segment.Entries, error) {
	out := entriesPool.Get().(*segment.Entries)
	out.Reset()
	const plainValue = 16 + postings.PlainBytes // one plain record and the sorter's header
	out.Grow(v.Bytes() / plainValue)
	var r postings.Record
	for i := range v.Len() {
		k, records := v.At(i)
		for len(records) > 0 {
			if file, group, first, rows, ok := postings.DecodePlain(records); ok {
				if err := out.AddPlain(k, b.files[file].DatasetID, file, group, first, rows); err != nil {
					return nil, err
				}
				records = records[postings.PlainBytes:]
				continue
			}
			n := postings.RecordLen(records)
			if err := r.Decode(records[:n]); err != nil {
				return nil, err
			}
			if err := out.Add(k, b.files[postings.RecordFile(records)].DatasetID, r.Totals, r.Tuples); err != nil {
				return nil, err
			}
			records = records[n:]
		}
	}
	return out, nil
}
