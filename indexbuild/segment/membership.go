package segment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"os"
	"runtime/debug"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cespare/xxhash/v2"

	"github.com/urlake/urlake/lake/codec"
)

// domain_to_datasets.roar is the original specification's DTDR, version 1:
//
//	"DTDR" | u32 ver=1 | u64 N | u64 index_offset
//	bitmaps, each in Roaring's portable form, from byte 24
//	N × {u64 start from the file's beginning | u32 length}, at index_offset
const (
	membershipMagic   = "DTDR"
	membershipVersion = 1
	membershipHeader  = 24
	membershipEntry   = 12

	// What is remembered of bitmaps written, to store equal ones once. Beyond it a bitmap that
	// was not remembered is stored again. Constants, so that the bytes do not depend on the
	// machine.
	maxSharedBitmaps = 1 << 18
	maxSharedBytes   = 64 << 20

	// heldBytes is what of each section is kept in memory: an index of 2.8 million domains.
	heldBytes = 32 << 20

	// heldChunk is the unit in which it grows, and is written when there is more.
	heldChunk = 256 << 10
)

// MembershipWriter makes domain_to_datasets.roar. Both sections are kept until all is known, large ones in temporary files,
// since the header needs what is known last.
type MembershipWriter struct {
	bitmaps, index         held
	off                    uint64
	count                  int64
	shared                 map[uint64][]sharedBitmap // of sets that are not small
	sharedCount, sharedLen int                       // of all that are remembered
	few                    fewSets
	small                  smallSets // of more
	last                   []uint32  // the set that was last looked for otherwise, by the domain with number lastFor-1
	lastAt                 bitmapPlace
	lastFor                int64
	touched                uint64 // what was read of few before it was needed
	bitmap                 *roaring.Bitmap
	buf                    bytes.Buffer
	data                   []byte // scratch memory
}

type sharedBitmap struct {
	off  uint64
	data []byte
}

// bitmapPlace is where a bitmap stands in the file.
type bitmapPlace struct{ start, length int64 }

// smallSet is a set of at most eight datasets, 16 bits each, as most are: it is looked for without a bitmap being made.
type smallSet [2]uint64

// makeSmallSet fails for sets of other datasets, and makes none of what does not ascend.
func makeSmallSet(datasets []uint32) (s smallSet, ok bool) {
	if len(datasets) > 8 {
		return smallSet{}, false
	}
	before := uint32(0)
	for i, d := range datasets {
		d++
		if d <= before || d >= 1<<16 {
			return smallSet{}, false
		}
		s[i/4] |= uint64(d) << (i % 4 * 16) // 0 is none
		before = d
	}
	return s, true
}

// fewDatasets is the most that packFew packs.
const fewDatasets = 4

// fewMasks are of the datasets that sets of so many have.
var fewMasks = [fewDatasets + 1][fewDatasets]uint64{1: {1<<64 - 1}, 2: {1<<64 - 1, 1<<64 - 1}, 3: {1<<64 - 1, 1<<64 - 1, 1<<64 - 1}, 4: {1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1}}

// packFew is makeSmallSet of the first n datasets, as many as most sets have at most, without a branch that depends on n, of which nobody knows
// what comes next. Sets that do not ascend it packs too: no such set is in a table.
func packFew(datasets *[fewDatasets]uint32, n int) (s uint64, ok bool) {
	m := &fewMasks[n]
	a, b := (uint64(datasets[0])+1)&m[0], (uint64(datasets[1])+1)&m[1]
	c, d := (uint64(datasets[2])+1)&m[2], (uint64(datasets[3])+1)&m[3]
	return a | b<<16 | c<<32 | d<<48, (a|b|c|d)>>16 == 0
}

// hash spreads sets over a table.
func (s *smallSet) hash() uint64 {
	hi, lo := bits.Mul64(s[0]^0x9e3779b97f4a7c15, s[1]^0xd1b54a32d192ed02)
	return hi ^ lo
}

// smallSets is a hash table of small sets and where they stand in the file. Places are found by going on from slot to slot, and half of the
// slots at least are free.
type smallSets struct {
	slots []smallSlot // a power of two
	n     int
}

type smallSlot struct {
	set smallSet // empty where the slot is free
	bitmapPlace
}

// slot is that of a set, or the free one where it belongs. The table is not empty.
func (t *smallSets) slot(set smallSet) *smallSlot {
	mask := uint64(len(t.slots) - 1)
	for i := set.hash() & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.set == set || s.set == (smallSet{}) {
			return s
		}
	}
}

// add adds a set that is not there.
func (t *smallSets) add(set smallSet, at bitmapPlace) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = emptySlots[smallSlot](2 * len(old))
		for i := range old {
			if s := &old[i]; s.set != (smallSet{}) {
				*t.slot(s.set) = *s
			}
		}
	}
	*t.slot(set) = smallSlot{set, at}
	t.n++
}

// fewSets is smallSets for sets that packFew packs, as nearly all domains have: it is asked for every one of these in a random order, and most of it stays in a core's cache.
type fewSets struct {
	slots []fewSlot // a power of two
	n     int
}

type fewSlot struct {
	set uint64 // 0 where the slot is free
	at  uint64 // start, and in the lowest eight bits the length
}

func (s fewSlot) place() bitmapPlace { return bitmapPlace{int64(s.at >> 8), int64(s.at & 0xff)} }

// first is where a set is looked for first.
func (t *fewSets) first(set uint64) uint64 {
	hi, lo := bits.Mul64(set, 0x9e3779b97f4a7c15)
	return (hi ^ lo) & uint64(len(t.slots)-1)
}

// slot is that of a set, or the free one where it belongs. The table is not empty.
func (t *fewSets) slot(set uint64) *fewSlot {
	mask := uint64(len(t.slots) - 1)
	for i := t.first(set); ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.set == set || s.set == 0 {
			return s
		}
	}
}

// add adds a set that is not there.
func (t *fewSets) add(set uint64, at bitmapPlace) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = emptySlots[fewSlot](2 * len(old))
		for _, s := range old {
			if s.set != 0 {
				*t.slot(s.set) = s
			}
		}
	}
	*t.slot(set) = fewSlot{set, uint64(at.start)<<8 | uint64(at.length)}
	t.n++
}

// emptySlots are written before they are read: memory that is read first is, page by page, mapped twice, and the second time all processors have to know.
func emptySlots[T any](n int) []T {
	slots := make([]T, n)
	clear(slots)
	return slots
}

// NewMembershipWriter keeps its temporary files in dir. Close it, whether it was written or not.
func NewMembershipWriter(dir string) *MembershipWriter {
	w := &MembershipWriter{off: membershipHeader, shared: map[uint64][]sharedBitmap{}, bitmap: roaring.New()}
	w.few.slots, w.small.slots = emptySlots[fewSlot](1024), emptySlots[smallSlot](1024)
	w.bitmaps, w.index = held{dir: dir, most: heldBytes}, held{dir: dir, most: heldBytes}
	return w
}

// Close drops the temporary files.
func (w *MembershipWriter) Close() {
	w.bitmaps.close()
	w.index.close()
}

// held is what is written once and then read once: in memory, or in a temporary file if it is large.
type held struct {
	dir    string
	most   int // bytes in memory
	chunks [][]byte
	file   *os.File // what was written before chunks; nil if nothing was
}

func (h *held) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		n := len(h.chunks) - 1
		if n < 0 || len(h.chunks[n]) == cap(h.chunks[n]) {
			if err := h.grow(); err != nil {
				return 0, err
			}
			n = len(h.chunks) - 1
		}
		c := h.chunks[n]
		some := min(len(left), cap(c)-len(c))
		h.chunks[n] = append(c, left[:some]...)
		left = left[some:]
	}
	return len(p), nil
}

// grow makes room for another chunk, by writing those that are there if they are too many.
func (h *held) grow() (err error) {
	if len(h.chunks) == 0 || h.file == nil && len(h.chunks)*heldChunk < h.most {
		h.chunks = append(h.chunks, make([]byte, 0, heldChunk))
		return nil
	}
	if h.file == nil {
		if h.file, err = os.CreateTemp(h.dir, "membership-*.tmp"); err != nil {
			return err
		}
		_ = os.Remove(h.file.Name()) // else by close; a file without a name goes when the process dies, where the system can do that
	}
	for _, c := range h.chunks {
		if _, err := h.file.Write(c); err != nil {
			return err
		}
	}
	h.chunks = append(h.chunks[:0], h.chunks[0][:0])
	return nil
}

// copyTo writes everything to out.
func (h *held) copyTo(out io.Writer) error {
	if h.file != nil {
		if _, err := h.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, h.file); err != nil {
			return err
		}
	}
	for _, c := range h.chunks {
		if _, err := out.Write(c); err != nil {
			return err
		}
	}
	return nil
}

func (h *held) close() {
	if h.file != nil {
		h.file.Close()
		_ = os.Remove(h.file.Name())
	}
	h.file, h.chunks = nil, nil
}

// Add writes the next domain's datasets, which have to ascend. It does not keep the slice.
func (w *MembershipWriter) Add(datasets []uint32) error {
	return w.AddAll(datasets, []uint32{uint32(len(datasets))})
}

// setsAtOnce is how many sets are looked for at the same time.
const setsAtOnce = 64

// AddAll writes the datasets of the next domains: those of domain i end at ends[i] in datasets, and ascend.
func (w *MembershipWriter) AddAll(datasets, ends []uint32) error {
	var (
		few   [setsAtOnce]uint64
		isFew [setsAtOnce]bool
		index [setsAtOnce * membershipEntry]byte
	)
	from := uint32(0)
	for len(ends) > 0 {
		n := min(len(ends), setsAtOnce)
		// All slots are touched before any is needed: the processor waits for many of them at once.
		start, sum := from, uint64(0)
		for i, end := range ends[:n] {
			switch rest := datasets[start:]; {
			case end-start > fewDatasets:
				few[i], isFew[i] = 0, false
			case len(rest) >= fewDatasets:
				few[i], isFew[i] = packFew((*[fewDatasets]uint32)(rest), int(end-start))
			default:
				var set smallSet
				set, isFew[i] = makeSmallSet(datasets[start:end])
				few[i] = set[0]
			}
			start = end
			sum ^= w.few.slots[w.few.first(few[i])].set
		}
		w.touched = sum
		for i, end := range ends[:n] {
			set := datasets[from:end]
			from = end
			var at bitmapPlace
			if isFew[i] && len(set) > 0 {
				at = w.few.slot(few[i]).place()
			}
			if at.length == 0 {
				var err error
				if at, err = w.other(set, few[i], isFew[i]); err != nil {
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

// other finds or stores a set that is not among those of few datasets.
func (w *MembershipWriter) other(datasets []uint32, few uint64, isFew bool) (at bitmapPlace, err error) {
	set, small := smallSet{few}, isFew
	if !isFew {
		if set, small = makeSmallSet(datasets); small {
			if at = w.small.slot(set).bitmapPlace; at.length > 0 {
				return at, nil
			}
		}
	}
	return w.store(datasets, set, small)
}

// store writes a set that is in neither table, unless it is remembered elsewhere or that of the domain before.
func (w *MembershipWriter) store(datasets []uint32, set smallSet, small bool) (at bitmapPlace, err error) {
	if w.count > 0 && w.lastFor == w.count && slices.Equal(w.last, datasets) {
		w.lastFor++
		return w.lastAt, nil
	}
	defer func() { w.last, w.lastAt, w.lastFor = append(w.last[:0], datasets...), at, w.count+1 }()
	if len(datasets) == 0 {
		return bitmapPlace{}, fmt.Errorf("domain %d: no datasets", w.count)
	}
	for i := 1; i < len(datasets); i++ {
		if datasets[i] <= datasets[i-1] {
			return bitmapPlace{}, fmt.Errorf("domain %d: dataset %d after %d", w.count, datasets[i], datasets[i-1])
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
			return bitmapPlace{}, err
		}
		data = append(data, w.buf.Bytes()...)
	}
	w.data = data
	hash := uint64(0)
	if !small {
		hash = xxhash.Sum64(data)
		for _, s := range w.shared[hash] {
			if bytes.Equal(s.data, data) {
				return bitmapPlace{int64(s.off), int64(len(data))}, nil
			}
		}
	}
	at = bitmapPlace{int64(w.off), int64(len(data))}
	if w.sharedCount < maxSharedBitmaps && w.sharedLen+len(data) <= maxSharedBytes {
		switch {
		case small && set[1] == 0:
			w.few.add(set[0], at)
		case small:
			w.small.add(set, at)
		default:
			w.shared[hash] = append(w.shared[hash], sharedBitmap{w.off, bytes.Clone(data)})
		}
		w.sharedCount++
		w.sharedLen += len(data)
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
	m     *mapped
	count int64
	index int64 // its offset
}

func openMembership(m *mapped, domains int64) (*membership, error) {
	h, err := m.bytes(0, membershipHeader)
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(h, m.name, "header")
	d.Magic(membershipMagic, membershipVersion)
	if n := d.U64(); d.Err() == nil && n != uint64(domains) {
		d.Fail(fmt.Sprintf("%d domains", domains), n)
	}
	size := uint64(len(m.data))
	index := d.U64()
	if d.Err() == nil && (index < membershipHeader || index > size || size-index != uint64(domains)*membershipEntry) {
		d.Fail(fmt.Sprintf("an index of %d bytes that ends at %d", domains*membershipEntry, size), fmt.Sprintf("offset %d", index))
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	return &membership{m: m, count: domains, index: int64(index)}, nil
}

// datasets reads the bitmap of one domain. The bitmap owns its memory.
func (r *membership) datasets(ordinal uint32) (*roaring.Bitmap, error) {
	var place [1]bitmapPlace
	if err := r.places(ordinal, place[:]); err != nil {
		return nil, err
	}
	data, err := r.m.bytes(place[0].start, place[0].length)
	if err != nil {
		return nil, err
	}
	return r.bitmap(place[0], data)
}

// places sets out to where the bitmaps of the domains from first on stand.
func (r *membership) places(first uint32, out []bitmapPlace) error {
	at := r.index + int64(first)*membershipEntry
	entries, err := r.m.bytes(at, int64(len(out))*membershipEntry)
	if err != nil {
		return err
	}
	index := uint64(r.index)
	for i := range out {
		e := (*[membershipEntry]byte)(entries[i*membershipEntry:])
		from, n := binary.LittleEndian.Uint64(e[:]), uint64(binary.LittleEndian.Uint32(e[8:]))
		if from < membershipHeader || from > index || n < 1 || n > index-from {
			return codec.Corrupt(r.m.name, "index", at+int64(i)*membershipEntry, fmt.Sprintf("a bitmap between %d and %d", membershipHeader, index), fmt.Sprintf("%d bytes at %d", n, from))
		}
		out[i] = bitmapPlace{int64(from), int64(n)}
	}
	return nil
}

// bitmap reads the bitmap at a place from its bytes.
func (r *membership) bitmap(p bitmapPlace, data []byte) (*roaring.Bitmap, error) {
	b, err := readBitmap(data)
	if err != nil {
		return nil, codec.Corrupt(r.m.name, "bitmaps", p.start, "a Roaring bitmap", err)
	}
	return b, nil
}

// appendDatasets appends the datasets of the bitmap at a place to out.
func (r *membership) appendDatasets(out []uint32, p bitmapPlace) ([]uint32, error) {
	data, err := r.m.bytes(p.start, p.length)
	if err != nil {
		return nil, err
	}
	if small, ok := readSmallBitmap(data, out); ok {
		return small, nil
	}
	b, err := r.bitmap(p, data)
	if err != nil {
		return nil, err
	}
	for it := b.Iterator(); it.HasNext(); {
		out = append(out, it.Next())
	}
	return out, nil
}

// readBitmap reads a bitmap that has to take all of data.
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
	defer guard(debug.SetPanicOnFault(true), &err, s.roar)
	if int64(ordinal) >= s.info.Domains {
		return nil, fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	s.roar.resident.touch()
	return s.member.datasets(ordinal)
}
