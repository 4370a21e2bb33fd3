package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	postingsMagic   = "PDX1"
	postingsVersion = 2
	// 1: the format of the original specification: flat entries, one stream.
	// 2: blocks split by column, exact totals, row ranges, single tuples inline.

	// BlockBytes bounds one block of postings.idx and one frame of whole payloads: what a
	// lookup fetches and decodes. 16 KiB hold about two thousand entries, and smaller frames
	// would cost more in fences than they save in reading.
	BlockBytes = 16 << 10

	// blockFill is how full, in percent, a block has to be before the next is begun. Finding the
	// exact last entry that fits would cost several more encodings a block.
	blockFill = 97

	// maxBlockEntries bounds the entries of a block, and with them what checking one costs.
	maxBlockEntries = math.MaxUint16

	// MaxShardBits allows 1,024 shards.
	MaxShardBits = 10

	postingsFence = 16
)

// Key is a domain as the index knows it: domain_id and 32 further, independent bits.
type Key = mph.Key

// KeyOf is the key of a domain.
func KeyOf(domain string) Key {
	return Key{ID: urlnorm.DomainID(domain), Check: urlnorm.CheckBits(domain)}
}

// CompareKeys orders keys by id, then check bits.
func CompareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Check, b.Check))
}

// Tuple is a run of one domain's rows: all that it has in one row group of one part.
type Tuple struct {
	FileID, RowGroup uint32
	FirstRow         int64 // counted from the row group's first
	Rows             int64
}

// CompareTuples orders tuples by file, then row group.
func CompareTuples(a, b Tuple) int {
	return cmp.Or(cmp.Compare(a.FileID, b.FileID), cmp.Compare(a.RowGroup, b.RowGroup))
}

// Totals sum up rows. They are exact.
type Totals struct {
	Rows int64
	// Size sums the sizes of the rows that have one; HasSize tells whether any has. Sums that
	// do not fit are math.MaxInt64.
	Size    int64
	HasSize bool
	// FirstTS and LastTS are the smallest and largest ts, in milliseconds of Unix time, of the
	// rows that have one; HasTS tells whether any has.
	FirstTS, LastTS int64
	HasTS           bool
}

// Add takes the rows of b into t. The order of additions does not matter.
func (t *Totals) Add(b Totals) {
	t.Rows += b.Rows
	if b.HasSize {
		t.HasSize = true
		if t.Size += b.Size; t.Size < 0 {
			t.Size = math.MaxInt64 // neither was negative
		}
	}
	if b.HasTS {
		if !t.HasTS || b.FirstTS < t.FirstTS {
			t.FirstTS = b.FirstTS
		}
		if !t.HasTS || b.LastTS > t.LastTS {
			t.LastTS = b.LastTS
		}
		t.HasTS = true
	}
}

// Validate tells whether t can be the totals of rows.
func (t *Totals) Validate() error {
	switch {
	case t.Rows < 1:
		return fmt.Errorf("%d rows", t.Rows)
	case t.Size < 0, !t.HasSize && t.Size != 0:
		return fmt.Errorf("size %d", t.Size)
	case t.FirstTS > t.LastTS, !t.HasTS && (t.FirstTS != 0 || t.LastTS != 0):
		return fmt.Errorf("ts from %d to %d", t.FirstTS, t.LastTS)
	}
	return nil
}

// Entry is what a segment knows of one domain in one dataset.
type Entry struct {
	Key
	Dataset uint32
	Totals
	// First is the first tuple's file, and all of the first tuple where Inline.
	First Tuple
	// Inline: First is the only tuple.
	Inline bool

	// The payload's place in the decompressed postings.dat, where not Inline.
	offset, length int64
}

// shardOf is the shard of a domain: the top bits of its id.
func shardOf(id uint64, shardBits int) int { return int(id >> (64 - shardBits)) } // >>64 is 0

// PostingsWriter writes the two files of one shard. Entries have to come in the order of
// (domain_id, check bits, dataset_id). It is for one goroutine; output depends on nothing but
// the calls.
type PostingsWriter struct {
	idx, dat  *codec.FrameWriter
	shard     int
	shardBits int

	pending []Entry // not in a block yet
	guess   int     // entries that fill a block
	buf     []byte
	payload []byte // whole payloads, not in a frame yet
	last    Entry
	any     bool
	entries int64
	inline  int64

	// Scratch memory of encode.
	files   map[uint32]uint32
	table   []uint32
	ints    []int64
	scratch []uint64
}

// NewPostingsWriter writes shard number shard of 1<<shardBits to idx and dat.
func NewPostingsWriter(idx, dat io.Writer, shard, shardBits int) *PostingsWriter {
	return &PostingsWriter{
		idx: codec.NewFrameWriter(idx, postingsFence), dat: codec.NewFrameWriter(dat, 0),
		shard: shard, shardBits: shardBits, guess: 1000, files: map[uint32]uint32{},
	}
}

// Add writes one entry. Of e it takes Key, Dataset and Totals. The tuples have to ascend by
// (file_id, row_group) and their rows to sum up to e.Rows; they are not kept.
func (w *PostingsWriter) Add(e Entry, tuples []Tuple) error {
	bad := func(format string, args ...any) error {
		args = append([]any{e.ID, e.Check, e.Dataset}, args...)
		return fmt.Errorf("postings of domain %016x/%08x in dataset %d: "+format, args...)
	}
	if w.any {
		c := CompareKeys(w.last.Key, e.Key)
		if c > 0 || c == 0 && w.last.Dataset >= e.Dataset {
			return bad("after %016x/%08x in dataset %d", w.last.ID, w.last.Check, w.last.Dataset)
		}
	}
	if got := shardOf(e.ID, w.shardBits); got != w.shard {
		return bad("belongs to shard %d, not %d", got, w.shard)
	}
	if err := e.Totals.Validate(); err != nil {
		return bad("%w", err)
	}
	if err := checkTuples(tuples, e.Rows); err != nil {
		return bad("%w", err)
	}
	e.First, e.Inline, e.offset, e.length = tuples[0], len(tuples) == 1, 0, 0
	if !e.Inline {
		var err error
		if e.offset, e.length, err = w.addPayload(tuples); err != nil {
			return bad("%w", err)
		}
	} else {
		w.inline++
	}
	w.last, w.any = e, true
	w.entries++
	w.pending = append(w.pending, e)
	if len(w.pending) < w.guess {
		return nil
	}
	return w.cut(false)
}

func checkTuples(tuples []Tuple, rows int64) error {
	if len(tuples) == 0 {
		return fmt.Errorf("no tuples")
	}
	var sum int64
	for i, t := range tuples {
		if t.FirstRow < 0 || t.Rows < 1 || t.FirstRow > math.MaxInt64-t.Rows || sum > math.MaxInt64-t.Rows {
			return fmt.Errorf("tuple %+v", t)
		}
		if i > 0 && CompareTuples(tuples[i-1], t) >= 0 {
			return fmt.Errorf("tuple %+v after %+v", t, tuples[i-1])
		}
		sum += t.Rows
	}
	if sum != rows {
		return fmt.Errorf("%d rows in tuples, %d in all", sum, rows)
	}
	return nil
}

// addPayload appends a payload to postings.dat. A frame holds whole payloads, and one larger
// than a frame has its own.
func (w *PostingsWriter) addPayload(tuples []Tuple) (offset, length int64, err error) {
	start := len(w.payload)
	w.payload = AppendTuples(w.payload, tuples)
	n := len(w.payload) - start
	if n > codec.MaxFrame-4 {
		return 0, 0, fmt.Errorf("%d tuples take %d bytes, a frame holds %d", len(tuples), n, codec.MaxFrame-4)
	}
	if start > 0 && len(w.payload) > BlockBytes-4 {
		rest := slices.Clone(w.payload[start:])
		w.payload = w.payload[:start]
		if err := w.flushPayloads(); err != nil {
			return 0, 0, err
		}
		w.payload = append(w.payload, rest...)
		start = 0
	}
	offset = w.dat.RawBytes() + int64(start)
	if len(w.payload) >= BlockBytes-4 {
		if err := w.flushPayloads(); err != nil {
			return 0, 0, err
		}
	}
	return offset, int64(n), nil
}

func (w *PostingsWriter) flushPayloads() error {
	if len(w.payload) == 0 {
		return nil
	}
	w.payload = codec.AppendCRC32C(w.payload)
	_, _, err := w.dat.Frame(nil, w.payload)
	w.payload = w.payload[:0]
	return err
}

// AppendTuples encodes tuples: uvarint count, then for each uvarint file_id less the
// previous one's; uvarint row_group, less the previous one's plus one where the file is the
// same; uvarint first_row; uvarint rows less one.
func AppendTuples(out []byte, tuples []Tuple) []byte {
	out = codec.AppendUvarint(out, uint64(len(tuples)))
	var prev Tuple
	for i, t := range tuples {
		out = codec.AppendUvarint(out, uint64(t.FileID-prev.FileID))
		if i > 0 && t.FileID == prev.FileID {
			out = codec.AppendUvarint(out, uint64(t.RowGroup-prev.RowGroup-1))
		} else {
			out = codec.AppendUvarint(out, uint64(t.RowGroup))
		}
		out = codec.AppendUvarint(out, uint64(t.FirstRow))
		out = codec.AppendUvarint(out, uint64(t.Rows-1))
		prev = t
	}
	return out
}

// ReadTuples reads what AppendTuples made and appends it to tuples: a list of at least one, of
// rows rows in all, that ascends. A list that is not leaves an error in d.
func ReadTuples(d *codec.Decoder, tuples []Tuple, rows int64) []Tuple {
	// A tuple takes four bytes or more.
	n := int(d.Uint(uint64(d.Len() / 4)))
	if d.Err() == nil && n < 1 {
		d.Fail("tuples", "none")
	}
	if d.Err() != nil {
		return tuples
	}
	tuples = slices.Grow(tuples, n)
	var prev Tuple
	var sum uint64
	for i := range n {
		step := d.Uint(math.MaxUint32 - uint64(prev.FileID))
		t := Tuple{FileID: prev.FileID + uint32(step)}
		if i > 0 && step == 0 {
			if prev.RowGroup == math.MaxUint32 {
				d.Fail("another file after the last row group", "the same")
				return tuples
			}
			t.RowGroup = prev.RowGroup + 1 + uint32(d.Uint(uint64(math.MaxUint32-prev.RowGroup-1)))
		} else {
			t.RowGroup = uint32(d.Uint(math.MaxUint32))
		}
		t.FirstRow = int64(d.Uint(math.MaxInt64 - 1))
		t.Rows = int64(d.Uint(uint64(math.MaxInt64-t.FirstRow)-1)) + 1
		if d.Err() != nil {
			return tuples
		}
		if sum += uint64(t.Rows); sum > uint64(rows) {
			d.Fail(fmt.Sprintf("tuples of %d rows", rows), fmt.Sprintf("%d or more", sum))
			return tuples
		}
		tuples = append(tuples, t)
		prev = t
	}
	if sum != uint64(rows) {
		d.Fail(fmt.Sprintf("tuples of %d rows", rows), sum)
	}
	return tuples
}

// cut makes blocks of the pending entries: all of them when final, else as long as they are
// known to fill one.
func (w *PostingsWriter) cut(final bool) error {
	for len(w.pending) > 0 {
		n, err := w.fill(final)
		if n == 0 || err != nil {
			return err
		}
		w.pending = w.pending[:copy(w.pending, w.pending[n:])]
		if !final && len(w.pending) < w.guess {
			return nil
		}
	}
	return nil
}

// fill writes one block of the first pending entries and returns their number; 0 if there are
// too few and more may come.
func (w *PostingsWriter) fill(final bool) (int, error) {
	fits, tooMany := 0, min(len(w.pending), maxBlockEntries)+1
	n := min(w.guess, tooMany-1)
	for {
		w.buf = w.encode(w.buf[:0], w.pending[:n])
		size := len(w.buf)
		// Aim between full enough and full.
		aim := n * BlockBytes * (100 + blockFill) / (200 * size)
		switch {
		case size > BlockBytes:
			tooMany = n
		case size >= BlockBytes*blockFill/100 || n == tooMany-1 && (final || tooMany <= len(w.pending)):
			w.guess = max(n, 1)
			return n, w.writeBlock(n)
		case n == tooMany-1:
			w.guess = max(aim, n+1)
			return 0, nil
		default:
			fits = n
		}
		if tooMany-fits <= 1 {
			// The size jumps past the aim with one entry; or even one alone does not fit.
			if fits == 0 {
				return 0, fmt.Errorf("one entry takes %d bytes, a block has %d", size, BlockBytes)
			}
			w.buf = w.encode(w.buf[:0], w.pending[:fits])
			w.guess = fits
			return fits, w.writeBlock(fits)
		}
		n = min(max(aim, fits+1), tooMany-1)
	}
}

func (w *PostingsWriter) writeBlock(n int) error {
	var fence [postingsFence]byte
	e := &w.pending[0]
	putFence(&fence, e.Key, e.Dataset)
	_, _, err := w.idx.Frame(fence[:], w.buf)
	return err
}

// putFence makes bytes that sort like (domain_id, check bits, dataset_id).
func putFence(f *[postingsFence]byte, k Key, dataset uint32) {
	binary.BigEndian.PutUint64(f[:], k.ID)
	binary.BigEndian.PutUint32(f[8:], k.Check)
	binary.BigEndian.PutUint32(f[12:], dataset)
}

// Finish writes what is pending and the tails.
func (w *PostingsWriter) Finish() (idx, dat codec.FrameFile, err error) {
	if err := w.cut(true); err != nil {
		return idx, dat, err
	}
	if err := w.flushPayloads(); err != nil {
		return idx, dat, err
	}
	if idx, err = w.idx.Finish(); err != nil {
		return idx, dat, err
	}
	dat, err = w.dat.Finish()
	return idx, dat, err
}

// Entries is the number of entries added, and of those whose only tuple stands in the index.
func (w *PostingsWriter) Entries() (entries, inline int64) { return w.entries, w.inline }

func (s *Segment) shard(k Key) *shard { return &s.shards[shardOf(k.ID, s.info.ShardBits)] }

// block decodes and checks frame i of the shard's postings.idx.
func (h *shard) block(i int, data []byte) (*block, error) {
	b, err := parseBlock(data, h.idx.key, frameSection(i), h.want)
	if err != nil {
		return nil, err
	}
	return b, b.checkFence(h.idx.Fence(i))
}

// Entry returns what the segment knows of a domain in a dataset, or false if it knows nothing.
// It is one read at most.
func (s *Segment) Entry(ctx context.Context, k Key, dataset uint32) (Entry, bool, error) {
	h := s.shard(k)
	var fence [postingsFence]byte
	putFence(&fence, k, dataset)
	lo, hi := h.idx.Find(fence[:], fence[:])
	if lo == hi {
		return Entry{}, false, nil
	}
	b, err := load(ctx, h.idx, s.cache, lo, func(data []byte) (*block, int64, error) {
		b, err := h.block(lo, data)
		if err != nil {
			return nil, 0, err
		}
		return b, b.memoryBytes(), nil
	})
	if err != nil {
		return Entry{}, false, err
	}
	from, to := b.domain(k)
	i := b.find(from, to, dataset)
	if i == to || b.dataset(i) != dataset {
		return Entry{}, false, nil
	}
	return b.entry(i, k), true, nil
}

// Entries returns what the segment knows of a domain, for all datasets from one on, in their
// order; limit > 0 bounds their number. It is one read at most: the frames that hold a
// domain's entries are next to each other.
func (s *Segment) Entries(ctx context.Context, k Key, from uint32, limit int) ([]Entry, error) {
	h := s.shard(k)
	var first, last [postingsFence]byte
	putFence(&first, k, from)
	putFence(&last, k, math.MaxUint32)
	lo, hi := h.idx.Find(first[:], last[:])
	blocks, err := loadRange(ctx, h.idx, s.cache, lo, hi, func(i int, data []byte) (*block, int64, error) {
		b, err := h.block(i, data)
		if err != nil {
			return nil, 0, err
		}
		return b, b.memoryBytes(), nil
	})
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, b := range blocks {
		at, to := b.domain(k)
		at = b.find(at, to, from)
		if limit > 0 {
			to = min(to, at+limit-len(entries))
		}
		entries = slices.Grow(entries, to-at)
		for ; at < to; at++ {
			e := b.entry(at, k)
			if n := len(entries); n > 0 && entries[n-1].Dataset >= e.Dataset {
				return nil, b.corrupt(fmt.Sprintf("datasets after %d", entries[n-1].Dataset), e.Dataset)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Tuples returns where an entry's rows are, in order of files and row groups. It is one read
// at most, and none where the entry is inline.
func (s *Segment) Tuples(ctx context.Context, e Entry) ([]Tuple, error) {
	if e.Inline {
		return []Tuple{e.First}, nil
	}
	h := s.shard(e.Key)
	i, within := h.dat.FrameAt(e.offset)
	if i < 0 {
		return nil, codec.Corrupt(h.idx.key, "payload offset", -1, fmt.Sprintf("below %d", h.dat.RawBytes()), e.offset)
	}
	data, err := load(ctx, h.dat, s.cache, i, func(data []byte) ([]byte, int64, error) {
		body, err := codec.CheckCRC32C(data, h.dat.key, frameSection(i))
		return body, int64(cap(body)), err
	})
	if err != nil {
		return nil, err
	}
	return s.payload(h, e, i, within, data)
}

// payload decodes and checks the payload of e, which is in frame i of postings.dat.
func (s *Segment) payload(h *shard, e Entry, i, within int, data []byte) ([]Tuple, error) {
	if e.length > int64(len(data)-within) {
		return nil, codec.Corrupt(h.dat.key, frameSection(i), -1, fmt.Sprintf("%d bytes from %d", e.length, within), fmt.Sprintf("a frame of %d", len(data)))
	}
	d := codec.NewDecoder(data[within:within+int(e.length)], h.dat.key, frameSection(i))
	tuples := ReadTuples(d, nil, e.Rows)
	if err := d.Close(); err != nil {
		return nil, err
	}
	if len(tuples) < 2 {
		return nil, codec.Corrupt(h.dat.key, frameSection(i), -1, "two tuples or more in a payload", len(tuples))
	}
	if tuples[0].FileID != e.First.FileID {
		return nil, codec.Corrupt(h.dat.key, frameSection(i), -1, fmt.Sprintf("a payload that starts with file %d", e.First.FileID), tuples[0].FileID)
	}
	for _, t := range tuples {
		if int64(t.FileID) >= int64(s.files.Len()) || s.files.info[t.FileID].DatasetID != e.Dataset {
			return nil, codec.Corrupt(h.dat.key, frameSection(i), -1, fmt.Sprintf("files of dataset %d", e.Dataset), fmt.Sprintf("file %d", t.FileID))
		}
	}
	return tuples, nil
}

// Posting is an entry with all its tuples.
type Posting struct {
	Entry
	Tuples []Tuple
}

// Postings yields all entries of a shard in order with their tuples, and checks that order
// across frames and that payloads follow each other without a gap. An error is the last thing
// yielded. It reads both files once, past the cache.
func (s *Segment) Postings(ctx context.Context, number int) iter.Seq2[Posting, error] {
	return func(yield func(Posting, error) bool) {
		h := &s.shards[number]
		next, stop := iter.Pull2(h.dat.scan(ctx, 0))
		defer stop()
		var frame []byte // of postings.dat, its number, and how much of it was pointed to
		index, end := -1, 0
		var last Entry
		for f, err := range h.idx.scan(ctx, 0) {
			if err != nil {
				yield(Posting{}, err)
				return
			}
			b, err := h.block(f.number, f.data)
			if err != nil {
				yield(Posting{}, err)
				return
			}
			domain := -1
			ids := b.idCursor()
			var k Key
			for i := range b.entries {
				if b.starts == nil || b.starts.has(i) {
					domain++
					k = Key{ID: ids.next(), Check: b.checkBits(domain)}
				}
				p := Posting{Entry: b.entry(i, k)}
				if c := CompareKeys(last.Key, k); i == 0 && f.number > 0 && (c > 0 || c == 0 && last.Dataset >= p.Dataset) {
					yield(Posting{}, b.corrupt("entries after those of the frame before", fmt.Sprintf("%016x/%08x in dataset %d", k.ID, k.Check, p.Dataset)))
					return
				}
				last = p.Entry
				if p.Inline {
					p.Tuples = []Tuple{p.First}
				} else {
					at, within := h.dat.FrameAt(p.offset)
					if at == index+1 && end == len(frame) {
						d, err, ok := next()
						if err == nil && ok {
							frame, err = codec.CheckCRC32C(d.data, h.dat.key, d.section())
						}
						if err != nil {
							yield(Posting{}, err)
							return
						}
						index, end = at, 0
					}
					if at != index || within != end {
						yield(Posting{}, b.corrupt(fmt.Sprintf("a payload at %d of frame %d", end, index), p.offset))
						return
					}
					if p.Tuples, err = s.payload(h, p.Entry, index, end, frame); err != nil {
						yield(Posting{}, err)
						return
					}
					end += int(p.length)
				}
				if !yield(p, nil) {
					return
				}
			}
		}
		if end != len(frame) || index != h.dat.Len()-1 {
			yield(Posting{}, codec.Corrupt(h.dat.key, "frames", -1, "payloads that entries point to", "more"))
		}
	}
}
