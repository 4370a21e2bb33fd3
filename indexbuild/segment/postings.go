package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"runtime"
	"slices"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	postingsMagic   = "PDX1"
	postingsVersion = 1

	// BlockBytes bounds a block of postings.idx and a frame of several payloads: what a lookup
	// fetches and decodes. 16 KiB hold about two thousand entries. Smaller frames would cost
	// more in fences than they save in reading.
	BlockBytes = 16 << 10

	// blockFill is how full, in percent, a block must be before the next one is started. Finding
	// the last entry that fits exactly would cost several more encodings per block.
	blockFill = 97

	// maxBlockEntries bounds the entries of a block, and so the cost of checking a block.
	maxBlockEntries = math.MaxUint16

	// MaxShardBits allows 1,024 shards.
	MaxShardBits = 10

	postingsFence = 16
)

// Key is a domain as the index knows it: its domain_id and 32 further, independent check bits.
type Key = mph.Key

// KeyOf returns the key of a domain.
func KeyOf(domain string) Key {
	return Key{ID: urlnorm.DomainID(domain), Check: urlnorm.CheckBits(domain)}
}

// CompareKeys orders keys by id, then by check bits.
func CompareKeys(a, b Key) int {
	if a.ID != b.ID {
		return cmp.Compare(a.ID, b.ID)
	}
	return cmp.Compare(a.Check, b.Check)
}

// Tuple is a run of rows: all rows that a domain has in one row group of one part.
type Tuple struct {
	FileID, RowGroup uint32
	FirstRow         int64 // of the row group
	Rows             int64
}

// CompareTuples orders tuples by file, then by row group.
func CompareTuples(a, b Tuple) int {
	return cmp.Or(cmp.Compare(a.FileID, b.FileID), cmp.Compare(a.RowGroup, b.RowGroup))
}

// Totals are exact sums over rows.
type Totals struct {
	Rows int64
	// Size is the sum of the sizes of the rows that have one; see SizeOverflows. HasSize tells
	// whether any row has a size.
	Size    int64
	HasSize bool
	// FirstTS and LastTS are the smallest and the largest ts of the rows that have one, in
	// milliseconds of Unix time. HasTS tells whether any row has a ts.
	FirstTS, LastTS int64
	HasTS           bool
}

// Add adds the rows of b to t. The order of additions does not matter.
func (t *Totals) Add(b Totals) {
	t.Rows += b.Rows
	if b.HasSize {
		t.HasSize = true
		if t.Size += b.Size; t.Size < 0 {
			t.Size = math.MaxInt64 // neither was negative; see SizeOverflows
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

// SizeOverflows reports whether the sum of sizes is not known, since it is 2^63-1 or more. Size is
// then 2^63-1, in files too, and stays that whatever is added.
func (t *Totals) SizeOverflows() bool { return t.Size == math.MaxInt64 }

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
	// First is the only tuple if Inline is set; else it has only the FileID of the first tuple.
	First Tuple
	// Inline tells that there is a single tuple, so that the entry has no payload.
	Inline bool

	// Where the payload is in the decompressed postings.dat, unless Inline.
	offset, length int64
}

// shardOf returns the shard of a domain: the top bits of its id.
func shardOf(id uint64, shardBits int) int { return int(id >> (64 - shardBits)) } // >>64 is 0

// PostingsWriter writes the two files of a shard. Entries must arrive in the order of (domain_id,
// check bits, dataset_id). A writer is for one goroutine but compresses with several. What it
// writes depends on the entries alone.
type PostingsWriter struct {
	idx, dat  *seekable.Writer
	shard     int
	shardBits int

	pending Entries // not in a block yet
	seen    int     // pending entries that may go into the next block
	guess   int     // estimate of the entries that fill a block
	buf     []byte
	payload []byte // whole payloads, not in a frame yet
	last    Key
	dataset uint32 // of the last entry
	entries int64
	inline  int64
	one     Entries

	// Scratch memory of encode.
	seenFiles fileNumbers
	table     []uint32 // files of the block
	owners    []uint32 // their datasets
	unsorted  []uint32
	order     []uint64
	ranks     []uint32 // index in the sorted table of the file with each number
	firsts    []uint32 // entries that are a domain's first
	ints      []int64
	scratch   []uint64
}

// NewPostingsWriter returns a writer of one of 1<<shardBits shards to idx and dat.
func NewPostingsWriter(idx, dat io.Writer, shard, shardBits int) *PostingsWriter {
	w := &PostingsWriter{
		idx: seekable.NewWriter(idx, postingsFence), dat: seekable.NewWriter(dat, 0),
		shard: shard, shardBits: shardBits, guess: 1000,
	}
	w.idx.DisableCompression() // blocks are packed bits: zstd would save one byte in ten thousand
	w.idx.SetConcurrency(framesAhead())
	w.dat.SetConcurrency(framesAhead())
	return w
}

// framesAhead is how many frames of a file are compressed at once: two for each processor, so that
// no processor waits for the goroutine that makes the frames.
func framesAhead() int { return 2 * runtime.GOMAXPROCS(0) }

// Add writes an entry. It uses only Key, Dataset and Totals of e. The tuples must ascend by
// (file_id, row_group) and their rows must add up to e.Rows. The slice is not kept.
func (w *PostingsWriter) Add(e Entry, tuples []Tuple) error {
	w.one.Reset()
	if err := w.one.Add(e.Key, e.Dataset, e.Totals, tuples); err != nil {
		return err
	}
	return w.AddAll(&w.one)
}

// AddAll writes the entries of c. They are not kept.
func (w *PostingsWriter) AddAll(c *Entries) error {
	if err := w.checkOrder(c); err != nil {
		return err
	}
	payload := c.payloads
	for i, n := range c.rare.lengths {
		if n == 0 {
			continue
		}
		var err error
		if c.rare.offsets[i], err = w.addPayload(payload[:n]); err != nil {
			return entryError(c.key(i), c.datasets[i], err)
		}
		payload = payload[n:]
	}
	w.entries += int64(c.Len())
	w.inline += c.inline
	w.pending.add(c)
	return w.cut(false)
}

// checkOrder checks that the entries of c ascend, follow those written before and belong to the
// shard.
func (w *PostingsWriter) checkOrder(c *Entries) error {
	n := c.Len()
	if n == 0 {
		return nil
	}
	ids, checks, datasets := c.ids, c.checks[:n], c.datasets[:n]
	// after returns 1 if entry i is after (last, dataset), without a branch.
	after := func(last Key, dataset uint32, i int) uint64 {
		_, less := bits.Sub64(uint64(last.Check)<<32|uint64(dataset), uint64(checks[i])<<32|uint64(datasets[i]), 0)
		_, less = bits.Sub64(last.ID, ids[i], less)
		return less
	}
	last, dataset, ordered := c.key(0), datasets[0], uint64(1)
	if w.entries > 0 {
		ordered = after(w.last, w.dataset, 0)
	}
	for i := range ids[1:] {
		i++
		ordered &= after(last, dataset, i)
		last, dataset = Key{ID: ids[i], Check: checks[i]}, datasets[i]
	}
	if ordered == 0 {
		last, dataset = w.last, w.dataset
		for i := range ids {
			if (i > 0 || w.entries > 0) && after(last, dataset, i) == 0 {
				err := fmt.Errorf("after %016x/%08x in dataset %d", last.ID, last.Check, dataset)
				return entryError(c.key(i), datasets[i], err)
			}
			last, dataset = c.key(i), datasets[i]
		}
	}
	// Ids ascend: if the first and the last are in the shard, all are.
	for _, i := range []int{0, n - 1} {
		if got := shardOf(ids[i], w.shardBits); got != w.shard {
			return entryError(c.key(i), datasets[i], fmt.Errorf("belongs to shard %d, not %d", got, w.shard))
		}
	}
	w.last, w.dataset = last, dataset
	return nil
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

// addPayload appends a payload to postings.dat and returns its offset. A frame holds whole
// payloads; a payload larger than BlockBytes has a frame of its own.
func (w *PostingsWriter) addPayload(packed []byte) (offset int64, err error) {
	if len(w.payload) > 0 && len(w.payload)+len(packed) > BlockBytes-4 {
		if err := w.flushPayloads(); err != nil {
			return 0, err
		}
	}
	offset = w.dat.RawBytes() + int64(len(w.payload))
	w.payload = append(w.payload, packed...)
	if len(w.payload) >= BlockBytes-4 {
		err = w.flushPayloads()
	}
	return offset, err
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

// AppendTuples encodes tuples: uvarint count, then for each tuple uvarint file_id less that of the
// tuple before; uvarint row_group, less that of the tuple before plus one if the file is the same;
// uvarint first_row; uvarint rows less one.
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

// ReadTuples decodes what AppendTuples wrote and appends it to tuples. The tuples must ascend and
// have rows rows in all, and there must be at least one; otherwise d has an error.
func ReadTuples(d *codec.Decoder, tuples []Tuple, rows int64) []Tuple {
	// A tuple takes at least four bytes.
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

// cut writes blocks of the pending entries: of all of them when final, else as long as they are
// known to fill a block. An entry may go into a block once as many entries as the guess are
// pending, so blocks are the same whether entries arrive one by one or many at once.
func (w *PostingsWriter) cut(final bool) error {
	done := 0
	for {
		have := w.pending.Len() - done
		if w.seen = max(w.seen, min(w.guess, have)); final {
			w.seen = have
		}
		if w.seen == 0 || !final && w.seen < w.guess {
			w.pending.drop(done)
			return nil
		}
		n, err := w.fill(done, final)
		if err != nil {
			return err
		}
		done += n
		w.seen -= n
	}
}

// fill writes one block of the entries from start on and returns their number: 0 if there are too
// few and more may arrive.
func (w *PostingsWriter) fill(start int, final bool) (int, error) {
	fits, tooMany := 0, min(w.seen, maxBlockEntries)+1
	n := min(w.guess, tooMany-1)
	for {
		w.buf = w.encode(w.buf[:0], start, start+n)
		size := len(w.buf)
		// Aim for the middle between full enough and full.
		aim := n * BlockBytes * (100 + blockFill) / (200 * size)
		switch {
		case size > BlockBytes:
			tooMany = n
		case size >= BlockBytes*blockFill/100 || n == tooMany-1 && (final || tooMany <= w.seen):
			w.guess = max(n, 1)
			return n, w.writeBlock(start)
		case n == tooMany-1:
			w.guess = max(aim, n+1)
			return 0, nil
		default:
			fits = n
		}
		if tooMany-fits <= 1 {
			// One entry more is too many; or not even one fits.
			if fits == 0 {
				return 0, fmt.Errorf("one entry takes %d bytes, a block has %d", size, BlockBytes)
			}
			w.buf = w.encode(w.buf[:0], start, start+fits)
			w.guess = fits
			return fits, w.writeBlock(start)
		}
		n = min(max(aim, fits+1), tooMany-1)
	}
}

func (w *PostingsWriter) writeBlock(start int) error {
	var fence [postingsFence]byte
	putFence(&fence, w.pending.key(start), w.pending.datasets[start])
	_, _, err := w.idx.Frame(fence[:], w.buf)
	return err
}

// putFence writes bytes that sort like (domain_id, check bits, dataset_id).
func putFence(f *[postingsFence]byte, k Key, dataset uint32) {
	binary.BigEndian.PutUint64(f[:], k.ID)
	binary.BigEndian.PutUint32(f[8:], k.Check)
	binary.BigEndian.PutUint32(f[12:], dataset)
}

// Finish writes the pending entries and the footers.
func (w *PostingsWriter) Finish() (idx, dat seekable.File, err error) {
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

// Entries returns the number of entries added, and how many of them are inline.
func (w *PostingsWriter) Entries() (entries, inline int64) { return w.entries, w.inline }

func (s *Segment) shard(k Key) *shard { return &s.shards[shardOf(k.ID, s.info.ShardBits)] }

// block decodes and checks frame i of the shard's postings.idx.
func (h *shard) block(i int, data []byte) (*block, error) {
	v := valuesPool.Get().(*blockValues)
	defer valuesPool.Put(v)
	return h.blockValues(i, data, v)
}

// blockValues is block that also fills v.
func (h *shard) blockValues(i int, data []byte, v *blockValues) (*block, error) {
	b, err := parseBlockValues(data, h.idx.key, frameSection(i), h.want, v)
	if err != nil {
		return nil, err
	}
	return b, b.checkFence(h.idx.Fence(i))
}

// Entry returns the entry of a domain in a dataset, or false if there is none. It makes at most one
// read.
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

// Entries returns the entries of a domain in the datasets from one on, in their order. A limit
// above 0 bounds their number. Entries makes at most one read: the frames that hold a domain's
// entries are adjacent.
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

// Tuples returns where an entry's rows are, in the order of files and row groups. It makes at most
// one read, and none for an inline entry.
func (s *Segment) Tuples(ctx context.Context, e Entry) ([]Tuple, error) {
	if e.Inline {
		return []Tuple{e.First}, nil
	}
	h := s.shard(e.Key)
	i, within := h.dat.FrameAt(e.offset)
	if i < 0 {
		want := fmt.Sprintf("below %d", h.dat.RawBytes())
		return nil, codec.Corrupt(h.idx.key, "payload offset", -1, want, e.offset)
	}
	data, err := load(ctx, h.dat, s.cache, i, func(data []byte) ([]byte, int64, error) {
		body, err := codec.CheckCRC32C(data, h.dat.key, frameSection(i))
		return body, int64(cap(body)), err
	})
	if err != nil {
		return nil, err
	}
	return s.payload(h, &e, i, within, data, nil)
}

// payload decodes and checks the payload of e and appends its tuples to out. The payload starts at
// offset within of data, frame i of postings.dat.
func (s *Segment) payload(h *shard, e *Entry, i, within int, data []byte, out []Tuple) ([]Tuple, error) {
	bad := func(want, got any) ([]Tuple, error) {
		return nil, codec.Corrupt(h.dat.key, frameSection(i), -1, want, got)
	}
	if e.length > int64(len(data)-within) {
		return bad(fmt.Sprintf("%d bytes from %d", e.length, within), fmt.Sprintf("a frame of %d", len(data)))
	}
	d := codec.NewDecoder(data[within:within+int(e.length)], h.dat.key, frameSection(i))
	before := len(out)
	out = ReadTuples(d, out, e.Rows)
	if err := d.Close(); err != nil {
		return nil, err
	}
	tuples := out[before:]
	if len(tuples) < 2 {
		return bad("two tuples or more in a payload", len(tuples))
	}
	if tuples[0].FileID != e.First.FileID {
		return bad(fmt.Sprintf("a payload that starts with file %d", e.First.FileID), tuples[0].FileID)
	}
	for _, t := range tuples {
		ours := int64(t.FileID) < s.owners.count
		if ours {
			first, last := s.owners.may(t.FileID)
			ours = first <= e.Dataset && e.Dataset <= last
		}
		if !ours {
			return bad(fmt.Sprintf("files of dataset %d", e.Dataset), fmt.Sprintf("file %d", t.FileID))
		}
	}
	return out, nil
}
