// Package membership is the file domain_to_datasets.roar of a segment: for each domain the set of
// datasets that hold it. docs/formats/domain-to-datasets.md describes it.
//
// A Reader reads a mapped file. Its callers touch the file, and guard against faults, as package
// mapped asks.
package membership

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/internal/mapped"
	"github.com/urlake/urlake/lake/codec"
)

// domain_to_datasets.roar is the original specification's DTDR:
//
//	"DTDR" | u32 ver=1 | u64 N | u64 index_offset
//	bitmaps, each in Roaring's portable form, from byte 24
//	N × {u64 start from the file's beginning | u32 length}, at index_offset
const (
	// Magic and Version begin the file.
	Magic       = "DTDR"
	Version     = 1
	headerBytes = 24
	entryBytes  = 12

	// Equal bitmaps are stored once while the writer can remember them. A bitmap beyond these
	// bounds is stored again. They are constants so that the bytes do not depend on the machine.
	maxSharedBitmaps = 1 << 18
	maxSharedBytes   = 64 << 20

	// sectionMemory is what is kept in memory of each section: an index of 2.8 million domains.
	sectionMemory = 32 << 20
)

// Writer writes domain_to_datasets.roar. The header says where the index starts, so both sections
// are buffered until Write, large ones in temporary files.
type Writer struct {
	bitmaps, index spill
	off            uint64 // at which the next bitmap starts
	count          int64  // domains

	// Sets that were written, each in one of three tables.
	tiny        tinySets
	small       smallSets
	large       map[uint64][]largeSet // by hash
	storedSets  int                   // in all three
	storedBytes int

	// The set of the last call of store, in case the next domain has it too.
	last      []uint32
	lastRange byteRange
	lastFor   int64 // one more than the number of the last domain that had it

	prefetched uint64 // a sink: the compiler keeps the early reads of slots of tiny for it
	bitmap     *roaring.Bitmap
	buf        bytes.Buffer
	data       []byte // scratch memory
}

// byteRange is where a bitmap is in the file.
type byteRange struct{ start, length int64 }

// largeSet is a set that was written and is not small.
type largeSet struct {
	start  uint64
	bitmap []byte
}

// NewWriter returns a writer whose temporary files are in dir. Close it in any case.
func NewWriter(dir string) *Writer {
	w := &Writer{off: headerBytes, large: map[uint64][]largeSet{}, bitmap: roaring.New()}
	w.tiny.slots, w.small.slots = touchedSlots[tinySlot](1024), touchedSlots[smallSlot](1024)
	w.bitmaps, w.index = spill{dir: dir, memory: sectionMemory}, spill{dir: dir, memory: sectionMemory}
	return w
}

// Close removes the temporary files.
func (w *Writer) Close() {
	w.bitmaps.close()
	w.index.close()
}

// Add writes the next domain's datasets, which must ascend. It does not keep the slice.
func (w *Writer) Add(datasets []uint32) error {
	return w.AddAll(datasets, []uint32{uint32(len(datasets))})
}

// setBatch is how many sets are looked up together.
const setBatch = 64

// AddAll writes the datasets of the next domains: those of domain i end at ends[i] in datasets and
// ascend. It keeps neither slice.
func (w *Writer) AddAll(datasets, ends []uint32) error {
	var (
		keys   [setBatch]uint64
		isTiny [setBatch]bool
		index  [setBatch * entryBytes]byte
	)
	from := uint32(0)
	for len(ends) > 0 {
		n := min(len(ends), setBatch)
		// Reading all slots before the first is needed lets their cache misses overlap.
		start, sum := from, uint64(0)
		for i, end := range ends[:n] {
			switch rest := datasets[start:]; {
			case end-start > maxTiny:
				keys[i], isTiny[i] = 0, false
			case len(rest) >= maxTiny:
				keys[i], isTiny[i] = packTiny((*[maxTiny]uint32)(rest), int(end-start))
			default:
				var key smallKey
				key, isTiny[i] = packSmall(datasets[start:end])
				keys[i] = key[0]
			}
			start = end
			sum ^= w.tiny.slots[w.tiny.home(keys[i])].key
		}
		w.prefetched = sum
		for i, end := range ends[:n] {
			set := datasets[from:end]
			from = end
			var at byteRange
			if isTiny[i] && len(set) > 0 {
				at = w.tiny.slot(keys[i]).byteRange()
			}
			if at.length == 0 {
				var err error
				if at, err = w.addOther(set, keys[i], isTiny[i]); err != nil {
					return err
				}
			}
			w.count++
			e := index[i*entryBytes:][:entryBytes]
			binary.LittleEndian.PutUint64(e, uint64(at.start))
			binary.LittleEndian.PutUint32(e[8:], uint32(at.length))
		}
		if _, err := w.index.Write(index[:n*entryBytes]); err != nil {
			return err
		}
		ends = ends[n:]
	}
	return nil
}

// addOther finds or stores a set that is not in the table of tiny sets.
func (w *Writer) addOther(datasets []uint32, tiny uint64, isTiny bool) (at byteRange, err error) {
	key, isSmall := smallKey{tiny}, isTiny
	if !isTiny {
		if key, isSmall = packSmall(datasets); isSmall {
			if at = w.small.slot(key).byteRange; at.length > 0 {
				return at, nil
			}
		}
	}
	return w.store(datasets, key, isSmall)
}

// store stores a set that is in neither table of packed sets, unless it is in the table of large
// sets or was the last domain's.
func (w *Writer) store(datasets []uint32, key smallKey, isSmall bool) (at byteRange, err error) {
	if w.count > 0 && w.lastFor == w.count && slices.Equal(w.last, datasets) {
		w.lastFor++
		return w.lastRange, nil
	}
	defer func() { w.last, w.lastRange, w.lastFor = append(w.last[:0], datasets...), at, w.count+1 }()
	if len(datasets) == 0 {
		return byteRange{}, fmt.Errorf("domain %d: no datasets", w.count)
	}
	for i := 1; i < len(datasets); i++ {
		if datasets[i] <= datasets[i-1] {
			return byteRange{}, fmt.Errorf("domain %d: dataset %d after %d", w.count, datasets[i], datasets[i-1])
		}
	}
	data, ok := appendBitmap(w.data[:0], datasets)
	if !ok {
		b := w.bitmap
		b.Clear()
		b.AddMany(datasets)
		b.RunOptimize()
		w.buf.Reset()
		if _, err := b.WriteTo(&w.buf); err != nil {
			return byteRange{}, err
		}
		data = append(data, w.buf.Bytes()...)
	}
	w.data = data
	hash := uint64(0)
	if !isSmall {
		hash = xxhash.Sum64(data)
		for _, s := range w.large[hash] {
			if bytes.Equal(s.bitmap, data) {
				return byteRange{int64(s.start), int64(len(data))}, nil
			}
		}
	}
	at = byteRange{int64(w.off), int64(len(data))}
	if w.storedSets < maxSharedBitmaps && w.storedBytes+len(data) <= maxSharedBytes {
		switch {
		case isSmall && key[1] == 0:
			w.tiny.add(key[0], at)
		case isSmall:
			w.small.add(key, at)
		default:
			w.large[hash] = append(w.large[hash], largeSet{w.off, bytes.Clone(data)})
		}
		w.storedSets++
		w.storedBytes += len(data)
	}
	w.off += uint64(len(data))
	_, err = w.bitmaps.Write(data)
	return at, err
}

// Write writes the file to out.
func (w *Writer) Write(out io.Writer) error {
	h := codec.AppendMagic(nil, Magic, Version)
	h = codec.AppendU64(h, uint64(w.count))
	h = codec.AppendU64(h, w.off)
	if _, err := out.Write(h); err != nil {
		return err
	}
	if err := w.bitmaps.copyTo(out); err != nil {
		return err
	}
	return w.index.copyTo(out)
}

// Reader reads domain_to_datasets.roar from a mapped file.
type Reader struct {
	file    *mapped.File
	index   int64 // its offset
	domains int64
}

// Open checks the header of a file for that number of domains.
func Open(f *mapped.File, domains int64) (*Reader, error) {
	h, err := f.Slice(0, headerBytes)
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(h, f.Name(), "header")
	d.Magic(Magic, Version)
	if n := d.U64(); d.Err() == nil && n != uint64(domains) {
		d.Fail(fmt.Sprintf("%d domains", domains), n)
	}
	size := uint64(f.Size())
	index := d.U64()
	indexBytes := uint64(domains) * entryBytes
	if d.Err() == nil && (index < headerBytes || index > size || size-index != indexBytes) {
		d.Fail(fmt.Sprintf("an index of %d bytes that ends at %d", indexBytes, size), fmt.Sprintf("offset %d", index))
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return &Reader{file: f, index: int64(index), domains: domains}, nil
}

// Datasets reads the set of the domain with that ordinal, which is below the number of domains. The
// bitmap owns its memory.
func (r *Reader) Datasets(ordinal uint32) (*roaring.Bitmap, error) {
	var at [1]byteRange
	if err := r.ranges(ordinal, at[:]); err != nil {
		return nil, err
	}
	data, err := r.file.Slice(at[0].start, at[0].length)
	if err != nil {
		return nil, err
	}
	return r.bitmap(at[0], data)
}

// AppendDatasets appends the datasets of the domain with that ordinal, which is below the number of
// domains, to out. They ascend.
func (r *Reader) AppendDatasets(out []uint32, ordinal uint32) ([]uint32, error) {
	var at [1]byteRange
	if err := r.ranges(ordinal, at[:]); err != nil {
		return nil, err
	}
	return r.appendDatasets(out, at[0])
}

// ranges fills out with the byte ranges of the bitmaps of len(out) domains from ordinal first on.
func (r *Reader) ranges(first uint32, out []byteRange) error {
	at := r.index + int64(first)*entryBytes
	entries, err := r.file.Slice(at, int64(len(out))*entryBytes)
	if err != nil {
		return err
	}
	index := uint64(r.index)
	for i := range out {
		e := (*[entryBytes]byte)(entries[i*entryBytes:])
		from, n := binary.LittleEndian.Uint64(e[:]), uint64(binary.LittleEndian.Uint32(e[8:]))
		if from < headerBytes || from > index || n < 1 || n > index-from {
			want := fmt.Sprintf("a bitmap between %d and %d", headerBytes, index)
			got := fmt.Sprintf("%d bytes at %d", n, from)
			return codec.Corrupt(r.file.Name(), "index", at+int64(i)*entryBytes, want, got)
		}
		out[i] = byteRange{int64(from), int64(n)}
	}
	return nil
}

// bitmap decodes data, the bytes of the bitmap at that range.
func (r *Reader) bitmap(at byteRange, data []byte) (*roaring.Bitmap, error) {
	b, err := readBitmap(data)
	if err != nil {
		return nil, codec.Corrupt(r.file.Name(), "bitmaps", at.start, "a Roaring bitmap", err)
	}
	return b, nil
}

// appendDatasets appends the datasets of the bitmap at that range to out.
func (r *Reader) appendDatasets(out []uint32, at byteRange) ([]uint32, error) {
	data, err := r.file.Slice(at.start, at.length)
	if err != nil {
		return nil, err
	}
	if small, ok := readSmallBitmap(data, out); ok {
		return small, nil
	}
	b, err := r.bitmap(at, data)
	if err != nil {
		return nil, err
	}
	for it := b.Iterator(); it.HasNext(); {
		out = append(out, it.Next())
	}
	return out, nil
}

// readBitmap decodes a bitmap that must take all of data and must not be empty.
func readBitmap(data []byte) (*roaring.Bitmap, error) {
	b := roaring.New()
	n, err := b.ReadFrom(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if n != int64(len(data)) {
		return nil, fmt.Errorf("%d bytes of %d", n, len(data))
	}
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if b.IsEmpty() {
		return nil, fmt.Errorf("an empty set")
	}
	return b, nil
}
