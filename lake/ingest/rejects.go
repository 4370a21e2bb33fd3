package ingest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// rejectLimits bounds a list of rejects, since inputs of a few KiB can hold billions. All rejects
// are counted; the list has the first ones in input order, up to the first that is beyond a limit.
type rejectLimits struct {
	lines, bytes int64
}

// rejectFrame is the decompressed size in bytes at which a frame of a list of rejects ends.
const rejectFrame = 64 << 10

// rejectWriter writes rejects as JSON lines to a frame file. Frames end by size alone, so the file
// depends on the lines only.
type rejectWriter struct {
	lim          rejectLimits
	lines, bytes int64 // listed so far
	full         bool  // a reject was left out, and so are all further ones

	key  string
	blob blob.Writer // nil if the file is not stored
	w    *seekable.Writer
	buf  []byte
}

func (w *rejectWriter) create(ctx context.Context, store blob.Store, key string) error {
	b, err := store.Create(ctx, key)
	if err != nil {
		return err
	}
	w.key, w.blob, w.w = key, b, seekable.NewWriter(b, 0)
	return nil
}

func (w *rejectWriter) add(r Reject) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write %s: %w", w.key, err)
	}
	return w.line(line)
}

// line adds a line, which has no end, unless the list is full.
func (w *rejectWriter) line(line []byte) error {
	if size := int64(len(line)) + 1; w.lines == w.lim.lines || w.bytes+size > w.lim.bytes {
		w.full = true
	} else if !w.full {
		w.lines++
		w.bytes += size
		w.buf = append(append(w.buf, line...), '\n')
	}
	if len(w.buf) < rejectFrame {
		return nil
	}
	return w.flush()
}

func (w *rejectWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if _, _, err := w.w.Frame(nil, w.buf); err != nil {
		return fmt.Errorf("write %s: %w", w.key, err)
	}
	w.buf = w.buf[:0]
	return nil
}

func (w *rejectWriter) finish() (lake.FrameObject, error) {
	if err := w.flush(); err != nil {
		return lake.FrameObject{}, err
	}
	ff, err := w.w.Finish()
	if err != nil {
		return lake.FrameObject{}, fmt.Errorf("write %s: %w", w.key, err)
	}
	if w.blob != nil {
		if _, err := w.blob.Finish(); err != nil {
			return lake.FrameObject{}, err
		}
	}
	return lake.NewFrameObject(w.key, ff), nil
}

func (w *rejectWriter) abort() {
	if w.blob != nil {
		w.blob.Abort()
	}
}

// rejected returns how many records of the split were rejected.
func (s *splitRecord) rejected() (n int64) {
	for _, count := range s.SplitResult.Rejected {
		n += count
	}
	return n
}

// listed returns how many rejects the split's list has.
func (s *splitRecord) listed() int64 {
	if s.Listed == 0 {
		return s.rejected()
	}
	return s.Listed
}

// writeRejects joins the rejects of all splits, in input order and up to the limits, in one object
// whose key is a digest of its content. It returns how many rejects the object lists, 0 if all are.
// The limits are those of the splits' lists, so that the object does not depend on how the inputs
// were split.
func writeRejects(
	ctx context.Context, store blob.Store, p *plan, splits []splitRecord, lim rejectLimits,
) (*lake.Object, int64, error) {
	var content bytes.Buffer
	w := &rejectWriter{lim: lim, key: "rejects", w: seekable.NewWriter(&content, 0)}
	var all int64
	for i := range splits {
		s := &splits[i]
		all += s.rejected()
		if s.Rejects == nil || w.full {
			continue
		}
		if err := w.copySplit(ctx, store, s); err != nil {
			return nil, 0, err
		}
		w.full = w.full || s.Listed > 0
	}
	if w.lines == 0 {
		return nil, 0, nil
	}
	o, err := w.finish()
	if err != nil {
		return nil, 0, err
	}
	o.Key = lake.RejectsKey(p.DatasetID, p.Batch, lake.Digest(content.Bytes()))
	if _, err := store.Put(ctx, o.Key, content.Bytes(), blob.Condition{}); err != nil {
		return nil, 0, err
	}
	if w.lines == all {
		return &o.Object, 0, nil
	}
	return &o.Object, w.lines, nil
}

// rejectFramesAtOnce is how many frames of rejects one read fetches: one megabyte, decompressed.
const rejectFramesAtOnce = 16

// copySplit adds the listed rejects of a split, until w is full.
func (w *rejectWriter) copySplit(ctx context.Context, store blob.Store, s *splitRecord) error {
	ff, err := s.Rejects.FrameFile()
	if err != nil {
		return err
	}
	key := s.Rejects.Key
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, key, off, n) }
	frames, err := seekable.OpenAt(ctx, read, ff, key, 0)
	if err != nil {
		return err
	}
	c, left := cursor{pieces: s.Objects}, s.listed()
	for lo := 0; lo < frames.Len() && !w.full; {
		hi := min(lo+rejectFramesAtOnce, frames.Len())
		data, err := frames.Read(ctx, read, lo, hi)
		if err != nil {
			return err
		}
		for _, lines := range data {
			for line := range bytes.Lines(lines) {
				before, ok := c.next()
				if !ok || left == 0 {
					return codec.Corrupt(key, "rejects", -1, "no more than the split counted", "more")
				}
				left--
				if err := w.copy(bytes.TrimSuffix(line, []byte("\n")), before, key); err != nil {
					return err
				}
			}
		}
		lo = hi
	}
	if left > 0 && !w.full {
		return codec.Corrupt(key, "rejects", -1, "as many as the split counted", fmt.Sprintf("%d fewer", left))
	}
	return nil
}

// copy adds a reject, read from key, of a range with that many lines before it.
func (w *rejectWriter) copy(line []byte, before int64, key string) error {
	if before == 0 {
		return w.line(line)
	}
	// In a JSON string each quote is escaped, so that only the member itself is found.
	const member = `","line":`
	start := bytes.LastIndex(line, []byte(member)) + len(member)
	end := start
	for end < len(line) && line[end] >= '0' && line[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(line[start:end]), 10, 64)
	if err != nil || start < len(member) {
		return codec.Corrupt(key, "rejects", -1, "a reject with its line", "none")
	}
	changed := strconv.AppendInt(bytes.Clone(line[:start]), n+before, 10)
	return w.line(append(changed, line[end:]...))
}

// readRejects calls each for every reject in the list of a batch, in input order, and checks the
// object. A batch without rejects has no list. The list may be shorter than the batch's rejects,
// see lake.Batch.ListedRejects.
func readRejects(ctx context.Context, store blob.Store, b *lake.Batch, each func(Reject) error) error {
	if b.Rejects == nil {
		return nil
	}
	key := b.Rejects.Key
	r, err := store.Open(ctx, key, 0, -1)
	if errors.Is(err, blob.ErrNotExist) {
		return codec.Corrupt(key, "object", -1, "one that exists", "none")
	}
	if err != nil {
		return err
	}
	defer r.Close()
	sum := xxhash.New()
	z, err := zstd.NewReader(io.TeeReader(r, sum), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(seekable.MaxFrame))
	if err != nil {
		return err
	}
	defer z.Close()
	lines := json.NewDecoder(z)
	for {
		var rej Reject
		err := lines.Decode(&rej)
		if err == io.EOF {
			break
		}
		if err != nil && (ctx.Err() != nil || errors.Is(err, blob.ErrDenied)) {
			return err
		}
		if err != nil {
			return codec.Corrupt(key, "rejects", -1, "JSON lines", err)
		}
		if err := each(rej); err != nil {
			return err
		}
	}
	if got := fmt.Sprintf("%016x", sum.Sum64()); got != b.Rejects.XXH64 {
		return codec.Corrupt(key, "object", -1, "xxh64 "+b.Rejects.XXH64, got)
	}
	return nil
}

// RejectGroup has the listed rejects of one file, or member of an archive, for one reason.
type RejectGroup struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
	// Places are the first of them.
	Places []RejectPlace `json:"places"`
}

// RejectPlace is where a reject is, and its Value, as in ingest.Reject.
type RejectPlace struct {
	Line   int64  `json:"line"`
	Offset int64  `json:"offset"`
	Value  string `json:"value,omitempty"`
}

func (p RejectPlace) String() string {
	text := strings.TrimSpace(location(p.Line, p.Offset))
	if p.Value != "" {
		text += fmt.Sprintf(" %q", p.Value)
	}
	return text
}

// GroupRejects groups the listed rejects of a batch by file and reason, the largest group first.
// Each group has the first places of its rejects. It holds all groups in memory.
func GroupRejects(ctx context.Context, store blob.Store, b *lake.Batch, places int) ([]RejectGroup, error) {
	type key struct{ object, reason string }
	groups := map[key]*RejectGroup{}
	if err := readRejects(ctx, store, b, func(r Reject) error {
		k := key{r.Object, r.Reason}
		g := groups[k]
		if g == nil {
			g = &RejectGroup{Object: r.Object, Reason: r.Reason}
			groups[k] = g
		}
		if g.Count++; len(g.Places) < places {
			g.Places = append(g.Places, RejectPlace{r.Line, r.Offset, r.Value})
		}
		return nil
	}); err != nil {
		return nil, err
	}
	out := make([]RejectGroup, 0, len(groups))
	for _, g := range groups {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b RejectGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
	})
	return out, nil
}
