package segment

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
)

// pageKeysVersion is the version of parts.keys.
const pageKeysVersion = 1

// PageKeysWriter writes parts.keys.zst: page key blocks in the order of files, row groups and rows.
type PageKeysWriter struct{ blocks *blockWriter }

// NewPageKeysWriter returns a PageKeysWriter that writes to w.
func NewPageKeysWriter(w io.Writer) *PageKeysWriter {
	return &PageKeysWriter{newBlockWriter(w, "parts.keys")}
}

// Add writes the next block, which is about pages of a file.
func (w *PageKeysWriter) Add(file uint32, b *part.PageKeyBlock) error {
	return w.blocks.add(file, uint32(b.RowGroup), b.FirstRow, b.Append(nil))
}

// Finish writes the footer.
func (w *PageKeysWriter) Finish() (seekable.File, error) { return w.blocks.finish() }

// PartKeys is a page key block and the file whose pages it describes.
type PartKeys struct {
	File uint32
	*part.PageKeyBlock
}

// decodePageKeys decodes frame i of parts.keys and compares it with its fence.
func (s *Segment) decodePageKeys(i int, data []byte) (blocks []PartKeys, memory int64, err error) {
	err = s.keys.eachBlock(i, data, func(file uint32, data []byte) (rowGroup uint32, firstRow int64, err error) {
		b, err := part.DecodePageKeyBlock(data, s.keys.key)
		if err != nil {
			return 0, 0, err
		}
		blocks = append(blocks, PartKeys{file, b})
		memory += b.MemoryBytes()
		return uint32(b.RowGroup), b.FirstRow, nil
	})
	return blocks, memory, err
}

// PageKeys returns the keys of the pages that have the rows [firstRow, firstRow+rows) of a row
// group of a file, as far as they have keys: those that begin within a domain. Blocks ascend, and
// one of them is the block of PageBlocks with the same first row. PageKeys makes at most one read.
func (s *Segment) PageKeys(
	ctx context.Context, file, rowGroup uint32, firstRow, rows int64,
) ([]*part.PageKeyBlock, error) {
	if firstRow < 0 || rows < 1 || firstRow > math.MaxInt64-rows {
		return nil, fmt.Errorf("page keys of file %d: %d rows from row %d", file, rows, firstRow)
	}
	if s.keys == nil {
		return nil, errPostingsOnly
	}
	var first, last [partsFence]byte
	putPartsFence(&first, file, rowGroup, firstRow)
	putPartsFence(&last, file, rowGroup, firstRow+rows-1)
	lo, hi := s.keys.Find(first[:], last[:])
	if lo == hi {
		return nil, nil
	}
	frames, err := loadRange(ctx, s.keys, s.cache, lo, hi, s.decodePageKeys)
	if err != nil {
		return nil, err
	}
	var blocks []*part.PageKeyBlock
	for _, frame := range frames {
		for _, b := range frame {
			if b.File != file || b.RowGroup != int(rowGroup) || b.FirstRow >= firstRow+rows {
				continue
			}
			if n := len(blocks); n > 0 && b.FirstRow <= firstRow {
				blocks = blocks[:0] // the pages of the block before are before the rows
			}
			blocks = append(blocks, b.PageKeyBlock)
		}
	}
	return blocks, nil
}

// AllPageKeys yields all page key blocks in order. An error is the last thing yielded. AllPageKeys
// bypasses the cache.
func (s *Segment) AllPageKeys(ctx context.Context) iter.Seq2[PartKeys, error] {
	return func(yield func(PartKeys, error) bool) {
		if s.keys == nil {
			yield(PartKeys{}, errPostingsOnly)
			return
		}
		for f, err := range s.keys.scan(ctx, 0, s.keys.Len()) {
			if err != nil {
				yield(PartKeys{}, err)
				return
			}
			blocks, _, err := s.decodePageKeys(f.number, f.data)
			if err != nil {
				yield(PartKeys{}, err)
				return
			}
			for _, b := range blocks {
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// LoosePageKeys yields all page key blocks of an object that was the file of page keys of a
// segment, without its segment.json. An error is the last thing yielded.
func LoosePageKeys(ctx context.Context, store blob.Store, info blob.Info) iter.Seq2[PartKeys, error] {
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, info.Key, off, n) }
	opened, err := seekable.OpenWithoutFooter(ctx, read, info.Size, info.Key, partsFence)
	if err != nil {
		return func(yield func(PartKeys, error) bool) { yield(PartKeys{}, err) }
	}
	return (&Segment{keys: &frames{Frames: opened, key: info.Key, read: read}}).AllPageKeys(ctx)
}
