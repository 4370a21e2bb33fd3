package deletion

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Table is an open deletion table. It is safe for concurrent use, and needs no closing.
type Table struct {
	ref     lake.FrameObject
	frames  *seekable.Frames
	read    seekable.RangeReader
	cache   segment.Cache
	whole   []byte // the file if it is kept
	header  int    // frames before the first block
	filter  filter
	entries int64
	domains int64
	sums    []Sums
}

// Open opens a deletion table. A small file is read as a whole, of others the footer, the sums and
// the filter. Cache keeps decoded blocks; nil keeps none.
func Open(ctx context.Context, store blob.Store, ref lake.FrameObject, cache segment.Cache) (*Table, error) {
	t, err := openTable(ctx, store, ref, cache)
	if err != nil {
		return nil, fmt.Errorf("open deletion table: %w", err)
	}
	return t, nil
}

func openTable(ctx context.Context, store blob.Store, ref lake.FrameObject, cache segment.Cache) (*Table, error) {
	file, err := ref.FrameFile()
	if err != nil {
		return nil, err
	}
	t := &Table{ref: ref, cache: cache}
	read := func(ctx context.Context, off, n int64) ([]byte, error) {
		data, err := store.ReadRange(ctx, ref.Key, off, n)
		if errors.Is(err, blob.ErrRange) {
			err = codec.Corrupt(ref.Key, "file", off, fmt.Sprintf("%d bytes", ref.Bytes), "fewer")
		}
		return data, err
	}
	if ref.Bytes <= wholeBytes {
		data, err := read(ctx, 0, ref.Bytes)
		if err != nil {
			return nil, err
		}
		if got := fmt.Sprintf("%016x", xxhash.Sum64(data)); got != ref.XXH64 {
			return nil, codec.Corrupt(ref.Key, "file", -1, "xxh64 "+ref.XXH64, got)
		}
		t.whole = data
	}
	t.read = func(ctx context.Context, off, n int64) ([]byte, error) {
		if t.whole != nil {
			if off < 0 || n < 0 || n > int64(len(t.whole))-off {
				return nil, codec.Corrupt(ref.Key, "range", off, fmt.Sprintf("within %d bytes", len(t.whole)), n)
			}
			return t.whole[off : off+n], nil
		}
		return read(ctx, off, n)
	}
	if t.frames, err = seekable.OpenAt(ctx, t.read, file, ref.Key, fenceBytes); err != nil {
		return nil, err
	}
	if t.frames.Len() < 3 {
		return nil, codec.Corrupt(ref.Key, "seek table", -1, "three frames or more", t.frames.Len())
	}
	return t, t.readHeader(ctx)
}

// readHeader reads the sums and the filter.
func (t *Table) readHeader(ctx context.Context) error {
	data, err := t.frames.Read(ctx, t.read, 0, 1)
	if err != nil {
		return err
	}
	body, err := codec.CheckCRC32C(data[0], t.ref.Key, "header")
	if err != nil {
		return err
	}
	d := codec.NewDecoder(body, t.ref.Key, "header")
	d.Magic(magic, version)
	chunks := int(d.Uint(uint64(t.frames.Len() - 2)))
	size := int64(d.Uint(math.MaxInt32))
	t.entries = int64(d.Uint(math.MaxInt64))
	t.domains = int64(d.Uint(uint64(min(max(t.entries, 0), math.MaxInt32))))
	n := int(d.Uint(uint64(d.Len() / 4)))
	t.sums = make([]Sums, 0, n)
	id := uint32(0)
	for range n {
		step := d.Uint(uint64(math.MaxUint32 - id))
		if d.Err() == nil && step == 0 && len(t.sums) > 0 {
			d.Fail("ascending datasets", "the same twice")
		}
		id += uint32(step)
		s := Sums{Dataset: id}
		s.Rows = int64(d.Uint(math.MaxInt64))
		s.Size = int64(d.Uint(math.MaxInt64))
		s.Domains = int64(d.Uint(math.MaxInt64))
		if d.Err() == nil && s.Rows == 0 {
			d.Fail("dead rows", 0)
		}
		t.sums = append(t.sums, s)
	}
	if d.Err() == nil && (chunks < 1 || n < 1 || size != filterBytes(t.domains)) {
		d.Fail(fmt.Sprintf("a filter of %d domains", t.domains), fmt.Sprintf("%d frames of %d bytes", chunks, size))
	}
	if err := d.Close(); err != nil {
		return err
	}
	t.header = 1 + chunks
	parts, err := t.frames.Read(ctx, t.read, 1, t.header)
	if err != nil {
		return err
	}
	if len(parts) == 1 {
		t.filter = parts[0]
	} else {
		t.filter = slices.Concat(parts...)
	}
	if int64(len(t.filter)) != size {
		return codec.Corrupt(t.ref.Key, "filter", -1, fmt.Sprintf("%d bytes", size), len(t.filter))
	}
	return nil
}

// Ref returns what names the deletion.
func (t *Table) Ref() lake.FrameObject { return t.ref }

// Sums are what the table takes away from each dataset, ascending by dataset. They must not be
// changed.
func (t *Table) Sums() []Sums { return t.sums }

// MemoryBytes is the memory that the table takes without the cache.
func (t *Table) MemoryBytes() int64 {
	return int64(len(t.whole)+len(t.filter)+32*len(t.sums)) + t.frames.MemoryBytes()
}

// May reports whether the table may have the domain. It reads nothing. It is false for nearly all
// domains that it does not have. A nil table has none.
func (t *Table) May(k segment.Key) bool { return t != nil && t.filter.has(k) }

// decodeBlock decodes and checks frame i.
func (t *Table) decodeBlock(i int, data []byte) ([]Entry, error) {
	section := "frame " + strconv.Itoa(i)
	body, err := codec.CheckCRC32C(data, t.ref.Key, section)
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, t.ref.Key, section)
	n := int(d.Uint(uint64(d.Len() / minEntry)))
	if d.Err() == nil && n < 1 {
		d.Fail("entries", "none")
	}
	entries := make([]Entry, 0, n)
	var prev segment.Key
	for range n {
		e := readEntry(d, prev, t.ref.Key, section)
		if d.Err() != nil {
			break
		}
		if k := len(entries); k > 0 && Compare(&entries[k-1], &e) >= 0 {
			d.Fail("ascending entries", fmt.Sprintf("%016x", e.ID))
			break
		}
		entries = append(entries, e)
		prev = e.Key
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	var fence [fenceBytes]byte
	putFence(&fence, entries[0].Key, entries[0].Dataset)
	if string(fence[:]) != string(t.frames.Fence(i)) {
		return nil, codec.Corrupt(t.ref.Key, section, -1, fmt.Sprintf("fence %x", t.frames.Fence(i)), fmt.Sprintf("%x", fence))
	}
	return entries, nil
}

// block returns the entries of frame i.
func (t *Table) block(ctx context.Context, i int) ([]Entry, error) {
	key := segment.CacheKey{Object: t.ref.Key, Frame: i}
	if t.cache != nil {
		if v, ok := t.cache.Get(key); ok {
			return v.([]Entry), nil
		}
	}
	data, err := t.frames.Read(ctx, t.read, i, i+1)
	if err != nil {
		return nil, err
	}
	entries, err := t.decodeBlock(i, data[0])
	if err != nil {
		return nil, err
	}
	if t.cache != nil {
		t.cache.Add(key, entries, int64(len(data[0])+192*len(entries)))
	}
	return entries, nil
}

// Entries returns the entries of a domain in the datasets from first to last, ascending.
func (t *Table) Entries(ctx context.Context, k segment.Key, first, last uint32) ([]Entry, error) {
	if !t.May(k) {
		return nil, nil
	}
	var from, to [fenceBytes]byte
	putFence(&from, k, first)
	putFence(&to, k, last)
	lo, hi := t.frames.Find(from[:], to[:])
	var found []Entry
	for i := max(lo, t.header); i < hi; i++ {
		entries, err := t.block(ctx, i)
		if err != nil {
			return nil, err
		}
		want := Entry{Key: k, Dataset: first}
		at, _ := slices.BinarySearchFunc(entries, &want, func(e Entry, w *Entry) int { return Compare(&e, w) })
		for ; at < len(entries) && entries[at].Key == k && entries[at].Dataset <= last; at++ {
			found = append(found, entries[at])
		}
	}
	return found, nil
}

// Entry returns the entry of a domain in a dataset, or false if the table has none: the segment's
// own stands.
func (t *Table) Entry(ctx context.Context, k segment.Key, dataset uint32) (Entry, bool, error) {
	found, err := t.Entries(ctx, k, dataset, dataset)
	if err != nil || len(found) == 0 {
		return Entry{}, false, err
	}
	return found[0], true, nil
}

// Scan reads the entries of a table in order, by way of the cache. It is for one goroutine.
type Scan struct {
	table    *Table
	from     Entry
	frame    int
	entries  []Entry // the rest of the block before frame
	position bool    // from is passed
}

// Scan returns a scan from an entry on.
func (t *Table) Scan(k segment.Key, dataset uint32) *Scan {
	var fence [fenceBytes]byte
	putFence(&fence, k, dataset)
	lo, _ := t.frames.Find(fence[:], fence[:])
	return &Scan{table: t, from: Entry{Key: k, Dataset: dataset}, frame: max(lo, t.header)}
}

// Peek returns the next entry, nil after the last. It is valid until the next call.
func (s *Scan) Peek(ctx context.Context) (*Entry, error) {
	for len(s.entries) == 0 {
		if s.frame >= s.table.frames.Len() {
			return nil, nil
		}
		entries, err := s.table.block(ctx, s.frame)
		if err != nil {
			return nil, err
		}
		if s.frame++; !s.position {
			at, _ := slices.BinarySearchFunc(entries, &s.from, func(e Entry, w *Entry) int { return Compare(&e, w) })
			entries = entries[at:]
			s.position = len(entries) > 0
		}
		s.entries = entries
	}
	return &s.entries[0], nil
}

// Skip passes the entry that Peek has returned.
func (s *Scan) Skip() { s.entries = s.entries[1:] }

// All yields all entries in order, without the cache. An error is the last thing that it yields. It
// checks what the header says of them.
func (t *Table) All(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var last Entry
		entries, domains := int64(0), int64(0)
		sums := map[uint32]*Sums{}
		for i := t.header; i < t.frames.Len(); i++ {
			data, err := t.frames.Read(ctx, t.read, i, i+1)
			var block []Entry
			if err == nil {
				block, err = t.decodeBlock(i, data[0])
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range block {
				if entries > 0 && Compare(&last, &e) >= 0 || !t.filter.has(e.Key) {
					yield(Entry{}, codec.Corrupt(t.ref.Key, e.section, -1,
						"ascending entries that the filter has", fmt.Sprintf("%016x", e.ID)))
					return
				}
				if entries == 0 || last.Key != e.Key {
					domains++
				}
				last = e
				entries++
				if sums[e.Dataset] == nil {
					sums[e.Dataset] = &Sums{Dataset: e.Dataset}
				}
				sums[e.Dataset].add(&e)
				if !yield(e, nil) {
					return
				}
			}
		}
		ok := entries == t.entries && domains == t.domains && len(sums) == len(t.sums)
		for _, s := range t.sums {
			ok = ok && sums[s.Dataset] != nil && *sums[s.Dataset] == s
		}
		if !ok {
			yield(Entry{}, codec.Corrupt(t.ref.Key, "header", -1, "the sums of the entries", "others"))
		}
	}
}
