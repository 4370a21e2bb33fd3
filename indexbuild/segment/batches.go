package segment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// batchesFrame is how many bytes of text a frame of batches.tsv holds.
const batchesFrame = 64 << 10

// append appends the line of a batch in batches.tsv.
func (b *BatchRef) append(out []byte) []byte {
	out = strconv.AppendUint(out, uint64(b.DatasetID), 10)
	out = append(append(out, '\t'), b.Batch...)
	out = append(append(out, '\t'), b.Digest...)
	return append(out, '\n')
}

// digestOf returns what segment.json says of batches: their number, and the digest of their lines.
func digestOf(batches []BatchRef) (count int64, digest string) {
	h := xxh3.New()
	var line []byte
	for i := range batches {
		line = batches[i].append(line[:0])
		_, _ = h.Write(line) // a hash takes everything
	}
	return int64(len(batches)), lake.FormatDigest(h.Sum128())
}

// writeBatches writes batches.tsv.zst.
func (w *Writer) writeBatches() error {
	f, err := w.Create(BatchesName)
	if err != nil {
		return err
	}
	defer f.Abort()
	ff, err := writeLines(f, 0, batchesFrame, len(w.batches), nil,
		func(i int, out []byte) []byte { return w.batches[i].append(out) })
	if err != nil {
		return err
	}
	return f.FinishFrames(ff)
}

// writeLines writes a frame file of n lines, whole ones in each frame. Fence returns the fence of a
// frame that begins with a line; it is nil if width is 0.
func writeLines(
	w io.Writer, width, frameBytes, n int, fence func(line int) []byte, line func(i int, out []byte) []byte,
) (seekable.File, error) {
	fw := seekable.NewWriter(w, width)
	var text []byte
	first := 0
	flush := func(end, next int) error {
		var key []byte
		if fence != nil {
			key = fence(first)
		}
		_, _, err := fw.Frame(key, text[:end])
		text = text[:copy(text, text[end:])]
		first = next
		return err
	}
	for i := range n {
		start := len(text)
		text = line(i, text)
		if start > 0 && len(text) > frameBytes {
			if err := flush(start, i); err != nil {
				return seekable.File{}, err
			}
		}
	}
	if len(text) > 0 {
		if err := flush(len(text), n); err != nil {
			return seekable.File{}, err
		}
	}
	return fw.Finish()
}

// Batches yields the batches that the segment covers, by dataset and name. An error is the last
// thing that it yields; it may come after all batches, if they are not those that segment.json
// vouches for.
func (i *Info) Batches(ctx context.Context, store blob.Store) iter.Seq2[BatchRef, error] {
	return func(yield func(BatchRef, error) bool) {
		key := Prefix(i.Segment) + BatchesName
		f, err := newFrames(ctx, store, key, i.File(BatchesName), 0)
		if err != nil {
			yield(BatchRef{}, err)
			return
		}
		h, count, last := xxh3.New(), int64(0), BatchRef{}
		for frame, err := range f.scan(ctx, 0, f.Len()) {
			if err != nil {
				yield(BatchRef{}, err)
				return
			}
			_, _ = h.Write(frame.data)
			for line := range bytes.Lines(frame.data) {
				b, ok := parseBatch(string(line))
				if !ok || count > 0 && compareBatches(last, b) >= 0 {
					const want = "dataset_id, batch, digest, by dataset and batch"
					yield(BatchRef{}, codec.Corrupt(key, frame.section(), -1, want, strconv.Quote(string(line))))
					return
				}
				if !yield(b, nil) {
					return
				}
				last = b
				count++
			}
		}
		if got := lake.FormatDigest(h.Sum128()); count != i.BatchCount || got != i.BatchDigest {
			want := fmt.Sprintf("%d batches with digest %s", i.BatchCount, i.BatchDigest)
			yield(BatchRef{}, codec.Corrupt(key, "lines", -1, want, fmt.Sprintf("%d with %s", count, got)))
		}
	}
}

// parseBatch parses a line of batches.tsv, which has one form only.
func parseBatch(line string) (b BatchRef, ok bool) {
	columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	if len(columns) != 3 {
		return b, false
	}
	dataset, err := strconv.ParseUint(columns[0], 10, 32)
	b = BatchRef{DatasetID: uint32(dataset), Batch: columns[1], Digest: columns[2]}
	ok = err == nil && lake.CheckStoredName(b.Batch) == nil && isHex(b.Digest, idDigits)
	return b, ok && string(b.append(nil)) == line
}

// BatchSums is a batch with sums over its parts.
type BatchSums struct {
	BatchRef
	Rows, Parts, Bytes int64
}

// ReadBatches yields the batches of the segment of ref, by dataset and name, with sums over their
// parts in files.tsv. It reads no other files. An error is the last thing that it yields.
func ReadBatches(ctx context.Context, store blob.Store, ref Ref) iter.Seq2[BatchSums, error] {
	return func(yield func(BatchSums, error) bool) {
		info, err := ReadInfo(ctx, store, ref)
		var files *Files
		if err == nil {
			files, err = readFiles(ctx, store, Prefix(ref.ID)+FilesName, info)
		}
		if err != nil {
			yield(BatchSums{}, err)
			return
		}
		at := 0
		for b, err := range info.Batches(ctx, store) {
			sums := BatchSums{BatchRef: b}
			for ; err == nil && at < len(files.info); at++ {
				f := &files.info[at]
				if f.DatasetID != b.DatasetID || f.Batch != b.Batch {
					break
				}
				sums.Rows, sums.Parts, sums.Bytes = sums.Rows+f.Rows, sums.Parts+1, sums.Bytes+f.Bytes
			}
			if !yield(sums, err) || err != nil {
				return
			}
		}
		if at < len(files.info) {
			want := "parts of the segment's batches, in their order"
			yield(BatchSums{}, codec.Corrupt(files.name, fmt.Sprintf("line %d", at), -1, want, files.info[at].Path))
		}
	}
}
