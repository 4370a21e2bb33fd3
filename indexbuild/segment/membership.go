package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"runtime/debug"
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
	membershipMagic   = "DTDR"
	membershipVersion = 1
	membershipHeader  = 24
	membershipEntry   = 12

	// Equal bitmaps are stored once while the writer can remember them. A bitmap beyond these
	// bounds is stored again. They are constants so that the bytes do not depend on the machine.
	maxSharedBitmaps = 1 << 18
	maxSharedBytes   = 64 << 20

	// sectionMemory is what is kept in memory of each section: an index of 2.8 million domains.
	sectionMemory = 32 << 20
)

// MembershipWriter writes domain_to_datasets.roar. The header says where the index starts, so
// both sections are buffered until Write, large ones in temporary files.
type MembershipWriter struct {
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

// NewMembershipWriter returns a writer whose temporary files are in dir. Close it in any case.
func NewMembershipWriter(dir string) *MembershipWriter {
	w := &MembershipWriter{off: membershipHeader, large: map[uint64][]largeSet{}, bitmap: roaring.New()}
	w.tiny.slots, w.small.slots = touchedSlots[tinySlot](1024), touchedSlots[smallSlot](1024)
	w.bitmaps, w.index = spill{dir: dir, memory: sectionMemory}, spill{dir: dir, memory: sectionMemory}
	return w
}

// Close removes the temporary files.
func (w *MembershipWriter) Close() {
	w.bitmaps.close()
	w.index.close()
}

// Add writes the next domain's datasets, which must ascend. It does not keep the slice.
func (w *MembershipWriter) Add(datasets []uint32) error {
	return w.AddAll(datasets, []uint32{uint32(len(datasets))})
}

// setBatch is how many sets are looked up together.
const setBatch = 64

// AddAll writes the datasets of the next domains: those of domain i end at ends[i] in datasets and
// ascend. It keeps neither slice.
func (w *MembershipWriter) AddAll(datasets, ends []uint32) error {
	var (
		keys   [setBatch]uint64
		isTiny [setBatch]bool
		index  [setBatch * membershipEntry]byte
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
			e := index[i*membershipEntry:][:membershipEntry]
			binary.LittleEndian.PutUint64(e, uint64(at.start))
			binary.LittleEndian.PutUint32(e[8:], uint32(at.length))
		}
		if _, err := w.index.Write(index[:n*membershipEntry]); err != nil {
			return err
		}
		ends = ends[n:]
	}
	return nil
}

// addOther finds or stores a set that is not in the table of tiny sets.
func (w *MembershipWriter) addOther(datasets []uint32, tiny uint64, isTiny bool) (at byteRange, err error) {
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
func (w *MembershipWriter) store(datasets []uint32, key smallKey, isSmall bool) (at byteRange, err error) {
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
func (w *MembershipWriter) Write(out io.Writer) error {
	h := codec.AppendMagic(nil, membershipMagic, membershipVersion)
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

// membership reads domain_to_datasets.roar from a mapped file.
type membership struct {
	file  *mapped.File
	index int64 // its offset
}

func openMembership(f *mapped.File, domains int64) (*membership, error) {
	h, err := f.Slice(0, membershipHeader)
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(h, f.Name(), "header")
	d.Magic(membershipMagic, membershipVersion)
	if n := d.U64(); d.Err() == nil && n != uint64(domains) {
		d.Fail(fmt.Sprintf("%d domains", domains), n)
	}
	size := uint64(f.Size())
	index := d.U64()
	indexBytes := uint64(domains) * membershipEntry
	if d.Err() == nil && (index < membershipHeader || index > size || size-index != indexBytes) {
		d.Fail(fmt.Sprintf("an index of %d bytes that ends at %d", indexBytes, size), fmt.Sprintf("offset %d", index))
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return &membership{file: f, index: int64(index)}, nil
}

// datasets reads the bitmap of one domain. The bitmap owns its memory.
func (r *membership) datasets(ordinal uint32) (*roaring.Bitmap, error) {
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

// ranges fills out with the byte ranges of the bitmaps of len(out) domains from ordinal first on.
func (r *membership) ranges(first uint32, out []byteRange) error {
	at := r.index + int64(first)*membershipEntry
	entries, err := r.file.Slice(at, int64(len(out))*membershipEntry)
	if err != nil {
		return err
	}
	index := uint64(r.index)
	for i := range out {
		e := (*[membershipEntry]byte)(entries[i*membershipEntry:])
		from, n := binary.LittleEndian.Uint64(e[:]), uint64(binary.LittleEndian.Uint32(e[8:]))
		if from < membershipHeader || from > index || n < 1 || n > index-from {
			want := fmt.Sprintf("a bitmap between %d and %d", membershipHeader, index)
			got := fmt.Sprintf("%d bytes at %d", n, from)
			return codec.Corrupt(r.file.Name(), "index", at+int64(i)*membershipEntry, want, got)
		}
		out[i] = byteRange{int64(from), int64(n)}
	}
	return nil
}

// bitmap decodes data, the bytes of the bitmap at that range.
func (r *membership) bitmap(at byteRange, data []byte) (*roaring.Bitmap, error) {
	b, err := readBitmap(data)
	if err != nil {
		return nil, codec.Corrupt(r.file.Name(), "bitmaps", at.start, "a Roaring bitmap", err)
	}
	return b, nil
}

// appendDatasets appends the datasets of the bitmap at that range to out.
func (r *membership) appendDatasets(out []uint32, at byteRange) ([]uint32, error) {
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

// Datasets returns the set of datasets that hold the domain with that ordinal. The caller owns it.
func (s *Segment) Datasets(ordinal uint32) (set *roaring.Bitmap, err error) {
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.roar)
	if int64(ordinal) >= s.info.Domains {
		return nil, fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	s.roar.Touch()
	return s.member.datasets(ordinal)
}
