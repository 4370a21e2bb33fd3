package overlay

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
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// Ref names an overlay and vouches for its bytes.
type Ref struct {
	Object string `json:"object"`
	Bytes  int64  `json:"bytes"`
	XXH64  string `json:"xxh64"` // of the whole file, 16 hex digits
	// FooterBytes and FooterXXH64 are the size and the hash of the frame file's footer.
	FooterBytes int64  `json:"footer_bytes"`
	FooterXXH64 string `json:"footer_xxh64"`
}

// NewRef returns the reference of a finished file.
func NewRef(object string, f seekable.File) Ref {
	return Ref{
		Object: object, Bytes: f.Bytes, XXH64: formatSum(f.XXH64),
		FooterBytes: f.FooterBytes, FooterXXH64: formatSum(f.FooterXXH64),
	}
}

func formatSum(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// Check returns a *codec.CorruptError, which names file, if r cannot name an overlay.
func (r *Ref) Check(file, section string) error {
	for _, s := range []string{r.XXH64, r.FooterXXH64} {
		if _, err := strconv.ParseUint(s, 16, 64); err != nil || len(s) != 16 {
			return codec.Corrupt(file, section, -1, "16 hex digits", s)
		}
	}
	if r.Object == "" || r.FooterBytes < 1 || r.Bytes <= r.FooterBytes {
		return codec.Corrupt(file, section, -1, "an overlay", fmt.Sprintf("%+v", *r))
	}
	return nil
}

// Overlay is an open overlay. It is safe for concurrent use, and needs no closing.
type Overlay struct {
	ref     Ref
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

// Open opens an overlay. A small file is read as a whole, of others the footer, the sums and the
// filter. Cache keeps decoded blocks; nil keeps none.
func Open(ctx context.Context, store blob.Store, ref Ref, cache segment.Cache) (*Overlay, error) {
	o, err := open(ctx, store, ref, cache)
	if err != nil {
		return nil, fmt.Errorf("open overlay: %w", err)
	}
	return o, nil
}

func open(ctx context.Context, store blob.Store, ref Ref, cache segment.Cache) (*Overlay, error) {
	if err := ref.Check(ref.Object, "reference"); err != nil {
		return nil, err
	}
	o := &Overlay{ref: ref, cache: cache}
	read := func(ctx context.Context, off, n int64) ([]byte, error) {
		data, err := store.ReadRange(ctx, ref.Object, off, n)
		if errors.Is(err, blob.ErrRange) {
			err = codec.Corrupt(ref.Object, "file", off, fmt.Sprintf("%d bytes", ref.Bytes), "fewer")
		}
		return data, err
	}
	if ref.Bytes <= wholeBytes {
		data, err := read(ctx, 0, ref.Bytes)
		if err != nil {
			return nil, err
		}
		if got := formatSum(xxhash.Sum64(data)); got != ref.XXH64 {
			return nil, codec.Corrupt(ref.Object, "file", -1, "xxh64 "+ref.XXH64, got)
		}
		o.whole = data
	}
	o.read = func(ctx context.Context, off, n int64) ([]byte, error) {
		if o.whole != nil {
			if off < 0 || n < 0 || n > int64(len(o.whole))-off {
				return nil, codec.Corrupt(ref.Object, "range", off, fmt.Sprintf("within %d bytes", len(o.whole)), n)
			}
			return o.whole[off : off+n], nil
		}
		return read(ctx, off, n)
	}
	footer, err := strconv.ParseUint(ref.FooterXXH64, 16, 64)
	if err != nil {
		return nil, err
	}
	file := seekable.File{Bytes: ref.Bytes, FooterBytes: ref.FooterBytes, FooterXXH64: footer}
	if o.frames, err = seekable.OpenAt(ctx, o.read, file, ref.Object, fenceBytes); err != nil {
		return nil, err
	}
	if o.frames.Len() < 3 {
		return nil, codec.Corrupt(ref.Object, "seek table", -1, "three frames or more", o.frames.Len())
	}
	return o, o.readHeader(ctx)
}

// readHeader reads the sums and the filter.
func (o *Overlay) readHeader(ctx context.Context) error {
	data, err := o.frames.Read(ctx, o.read, 0, 1)
	if err != nil {
		return err
	}
	body, err := codec.CheckCRC32C(data[0], o.ref.Object, "header")
	if err != nil {
		return err
	}
	d := codec.NewDecoder(body, o.ref.Object, "header")
	d.Magic(magic, version)
	chunks := int(d.Uint(uint64(o.frames.Len() - 2)))
	size := int64(d.Uint(math.MaxInt32))
	o.entries = int64(d.Uint(math.MaxInt64))
	o.domains = int64(d.Uint(uint64(max(o.entries, 0))))
	n := int(d.Uint(uint64(d.Len() / 4)))
	o.sums = make([]Sums, 0, n)
	id := uint32(0)
	for range n {
		step := d.Uint(uint64(math.MaxUint32 - id))
		if d.Err() == nil && step == 0 && len(o.sums) > 0 {
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
		o.sums = append(o.sums, s)
	}
	if d.Err() == nil && (chunks < 1 || n < 1 || size != int64(len(newFilter(o.domains)))) {
		d.Fail(fmt.Sprintf("a filter of %d domains", o.domains), fmt.Sprintf("%d frames of %d bytes", chunks, size))
	}
	if err := d.Close(); err != nil {
		return err
	}
	o.header = 1 + chunks
	parts, err := o.frames.Read(ctx, o.read, 1, o.header)
	if err != nil {
		return err
	}
	if len(parts) == 1 {
		o.filter = parts[0]
	} else {
		o.filter = slices.Concat(parts...)
	}
	if int64(len(o.filter)) != size {
		return codec.Corrupt(o.ref.Object, "filter", -1, fmt.Sprintf("%d bytes", size), len(o.filter))
	}
	return nil
}

// Ref returns what names the overlay.
func (o *Overlay) Ref() Ref { return o.ref }

// Len is the number of entries.
func (o *Overlay) Len() int64 { return o.entries }

// Sums are what the overlay takes away from each dataset, ascending by dataset. They must not be
// changed.
func (o *Overlay) Sums() []Sums { return o.sums }

// MemoryBytes is the memory that the overlay takes without the cache.
func (o *Overlay) MemoryBytes() int64 {
	return int64(len(o.whole)+len(o.filter)+32*len(o.sums)) + o.frames.MemoryBytes()
}

// May reports whether the overlay may have the domain. It reads nothing. It is false for nearly all
// domains that it does not have. A nil overlay has none.
func (o *Overlay) May(k segment.Key) bool { return o != nil && o.filter.has(k) }

// decodeBlock decodes and checks frame i.
func (o *Overlay) decodeBlock(i int, data []byte) ([]Entry, error) {
	section := "frame " + strconv.Itoa(i)
	body, err := codec.CheckCRC32C(data, o.ref.Object, section)
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, o.ref.Object, section)
	n := int(d.Uint(uint64(d.Len() / minEntry)))
	if d.Err() == nil && n < 1 {
		d.Fail("entries", "none")
	}
	entries := make([]Entry, 0, n)
	var prev segment.Key
	for range n {
		e := readEntry(d, prev, o.ref.Object, section)
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
	if string(fence[:]) != string(o.frames.Fence(i)) {
		return nil, codec.Corrupt(o.ref.Object, section, -1, fmt.Sprintf("fence %x", o.frames.Fence(i)), fmt.Sprintf("%x", fence))
	}
	return entries, nil
}

// block returns the entries of frame i.
func (o *Overlay) block(ctx context.Context, i int) ([]Entry, error) {
	key := segment.CacheKey{Object: o.ref.Object, Frame: i}
	if o.cache != nil {
		if v, ok := o.cache.Get(key); ok {
			return v.([]Entry), nil
		}
	}
	data, err := o.frames.Read(ctx, o.read, i, i+1)
	if err != nil {
		return nil, err
	}
	entries, err := o.decodeBlock(i, data[0])
	if err != nil {
		return nil, err
	}
	if o.cache != nil {
		o.cache.Add(key, entries, int64(len(data[0])+192*len(entries)))
	}
	return entries, nil
}

// Entries returns the entries of a domain in the datasets from first to last, ascending.
func (o *Overlay) Entries(ctx context.Context, k segment.Key, first, last uint32) ([]Entry, error) {
	if !o.May(k) {
		return nil, nil
	}
	var from, to [fenceBytes]byte
	putFence(&from, k, first)
	putFence(&to, k, last)
	lo, hi := o.frames.Find(from[:], to[:])
	var found []Entry
	for i := max(lo, o.header); i < hi; i++ {
		entries, err := o.block(ctx, i)
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

// Entry returns the entry of a domain in a dataset, or false if the overlay has none: the segment's
// own stands.
func (o *Overlay) Entry(ctx context.Context, k segment.Key, dataset uint32) (Entry, bool, error) {
	found, err := o.Entries(ctx, k, dataset, dataset)
	if err != nil || len(found) == 0 {
		return Entry{}, false, err
	}
	return found[0], true, nil
}

// Scan reads the entries of an overlay in order, by way of the cache. It is for one goroutine.
type Scan struct {
	o        *Overlay
	from     Entry
	frame    int
	entries  []Entry // the rest of the block before frame
	position bool    // from is passed
}

// Scan returns a scan from an entry on.
func (o *Overlay) Scan(k segment.Key, dataset uint32) *Scan {
	var fence [fenceBytes]byte
	putFence(&fence, k, dataset)
	lo, _ := o.frames.Find(fence[:], fence[:])
	return &Scan{o: o, from: Entry{Key: k, Dataset: dataset}, frame: max(lo, o.header)}
}

// Peek returns the next entry, nil after the last. It is valid until the next call.
func (s *Scan) Peek(ctx context.Context) (*Entry, error) {
	for len(s.entries) == 0 {
		if s.frame >= s.o.frames.Len() {
			return nil, nil
		}
		entries, err := s.o.block(ctx, s.frame)
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
func (o *Overlay) All(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var last Entry
		entries, domains := int64(0), int64(0)
		sums := map[uint32]*Sums{}
		for i := o.header; i < o.frames.Len(); i++ {
			data, err := o.frames.Read(ctx, o.read, i, i+1)
			var block []Entry
			if err == nil {
				block, err = o.decodeBlock(i, data[0])
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range block {
				if entries > 0 && Compare(&last, &e) >= 0 || !o.filter.has(e.Key) {
					yield(Entry{}, codec.Corrupt(o.ref.Object, e.section, -1,
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
		ok := entries == o.entries && domains == o.domains && len(sums) == len(o.sums)
		for _, s := range o.sums {
			ok = ok && sums[s.Dataset] != nil && *sums[s.Dataset] == s
		}
		if !ok {
			yield(Entry{}, codec.Corrupt(o.ref.Object, "header", -1, "the sums of the entries", "others"))
		}
	}
}
