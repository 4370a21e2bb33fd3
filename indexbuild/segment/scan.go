package segment

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/urlake/urlake/lake/codec"
)

// Posting is an entry with all its tuples.
type Posting struct {
	Entry
	Tuples []Tuple
}

// PostingsRun is what neighbouring frames of a shard hold. Its memory serves for the next run.
type PostingsRun struct {
	// Entries are all entries, none where the blocks were handed over as PlainBlocks.
	Entries []Entry
	first   runEdge // of the entries
	last    runEdge

	tuples []Tuple
	ends   []int // of each entry's tuples; none where all are inline
	one    [1]Tuple

	payloads [2]int64 // the range of the decompressed postings.dat that entries point to
	values   blockValues
}

// runEdge is where a run begins or ends. The zero value is where one does that has no entries.
type runEdge struct {
	some    bool
	key     Key
	dataset uint32
}

// before tells whether entries that end here may be followed by those that begin at next.
func (e *runEdge) before(next *runEdge) bool {
	c := CompareKeys(e.key, next.key)
	return c < 0 || c == 0 && e.dataset < next.dataset
}

// describe is for errors.
func (e *runEdge) describe() string {
	return fmt.Sprintf("%016x/%08x in dataset %d", e.key.ID, e.key.Check, e.dataset)
}

// PlainBlock has the entries of a block each of which has a single tuple, and neither sizes nor ts, in columns. All were checked but
// for what depends on other blocks. It is valid during the call that it is handed to.
type PlainBlock struct {
	// Keys are the domains.
	Keys []Key
	// FileIDs and Datasets are the files that entries are in, and their datasets, by place.
	FileIDs, Datasets []uint32
	// Places, Rows, Groups and Firsts have a value for each entry: the place of its file, its rows, their row group and the first of them.
	Places, Rows, Groups, Firsts []int64

	starts bitString
}

// Starts sets out to the places of the domains' first entries, and of one past the last entry.
func (b *PlainBlock) Starts(out []uint32) []uint32 {
	out = slices.Grow(out[:0], len(b.Keys)+1)
	if b.starts == nil {
		for i := range b.Keys {
			out = append(out, uint32(i))
		}
	}
	for w := range b.starts.words() {
		for ones := b.starts.word(w); ones != 0 && len(out) < len(b.Keys); ones &= ones - 1 {
			out = append(out, uint32(w<<6+bits.TrailingZeros64(ones)))
		}
	}
	return append(out, uint32(len(b.Places)))
}

// isPlain tells whether a frame claims to be a block that can be a PlainBlock. It is not checked yet.
func isPlain(data []byte) bool {
	const counts = 4 // shard, domains, entries, files
	at := len(postingsMagic) + 4
	for range counts {
		for at < len(data) && data[at] >= 0x80 {
			at++
		}
		at++
	}
	return at < len(data) && data[at] == 0 // no presence
}

// Tuples are those of entry i, until the next call.
func (r *PostingsRun) Tuples(i int) []Tuple {
	if len(r.ends) == 0 {
		r.one[0] = r.Entries[i].First
		return r.one[:]
	}
	from := 0
	if i > 0 {
		from = r.ends[i-1]
	}
	return r.tuples[from:r.ends[i]]
}

// PostingsEnd is where a run of postings ends: what the next one has to follow. The zero value is a shard's start.
type PostingsEnd struct {
	runEdge
	payload int64
}

// runBytes is how many compressed bytes of postings.idx a run has: with 120 bytes an entry it takes some four megabytes decoded.
const runBytes = 256 << 10

// PostingsRuns are ranges of frames of a shard's postings.idx: what ReadPostings is to read at once.
func (s *Segment) PostingsRuns(shard int) [][2]int {
	idx := s.shards[shard].idx
	var runs [][2]int
	for lo := 0; lo < idx.Len(); {
		hi := idx.reach(lo, idx.Len(), runBytes)
		runs = append(runs, [2]int{lo, hi})
		lo = hi
	}
	return runs
}

// ReadPostings reads the frames [lo, hi) of a shard's postings.idx, and what they point to in postings.dat, past the cache. It
// checks everything but what depends on other frames: see Follow. Where plain is not nil and all blocks can be PlainBlocks, they are handed
// to it one by one instead of becoming r.Entries, and what was handed over does not count if there is an error.
func (s *Segment) ReadPostings(ctx context.Context, shard, lo, hi int, r *PostingsRun, plain func(*PlainBlock)) error {
	h := &s.shards[shard]
	r.Entries, r.tuples, r.ends = r.Entries[:0], r.tuples[:0], r.ends[:0]
	r.first, r.last = runEdge{}, runEdge{}
	r.payloads = [2]int64{-1, -1}
	data, err := h.idx.Read(ctx, h.idx.read, lo, hi)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(data, func(d []byte) bool { return !isPlain(d) }) {
		plain = nil
	}
	v := &r.values
	for i, d := range data {
		b, err := h.blockValues(lo+i, d, v)
		if err != nil {
			return err
		}
		first := runEdge{true, v.keys[0], v.datasets[v.places[0]]}
		if i == 0 {
			r.first = first
		} else if !r.last.before(&first) {
			return b.corrupt("entries after those of the frame before", first.describe())
		}
		r.last = runEdge{true, v.keys[len(v.keys)-1], v.datasets[v.places[len(v.places)-1]]}
		if plain != nil {
			plain(&PlainBlock{Keys: v.keys, FileIDs: v.fileIDs, Datasets: v.datasets, Places: v.places, Rows: v.rows, Groups: v.groups, Firsts: v.firsts, starts: b.starts})
			continue
		}
		if room := cap(r.Entries) - len(r.Entries); room < b.entries {
			r.Entries = slices.Grow(r.Entries, b.entries*(len(data)-i)*9/8)
		}
		b.appendEntries(r)
	}
	return s.readPayloads(ctx, h, lo, r)
}

// readPayloads fills in the tuples. Payloads have to follow each other without a gap.
func (s *Segment) readPayloads(ctx context.Context, h *shard, lo int, r *PostingsRun) error {
	from, to := int64(-1), int64(-1)
	for i := range r.Entries {
		if e := &r.Entries[i]; !e.Inline {
			if from < 0 {
				from = e.offset
			}
			to = e.offset + e.length - 1
		}
	}
	if from < 0 {
		return nil // each entry has its only tuple: see Tuples
	}
	// Blocks were checked to point into the file.
	first, _ := h.dat.FrameAt(from)
	last, _ := h.dat.FrameAt(to)
	next, stop := iter.Pull2(h.dat.scan(ctx, first, last+1))
	defer stop()
	var frame []byte // of postings.dat, its number, and how much of it was pointed to
	index, end := first-1, 0
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Inline {
			r.tuples = append(r.tuples, e.First)
			r.ends = append(r.ends, len(r.tuples))
			continue
		}
		at, within := h.dat.FrameAt(e.offset)
		if at == index+1 && end == len(frame) {
			d, err, ok := next()
			if err == nil && ok {
				frame, err = codec.CheckCRC32C(d.data, h.dat.key, d.section())
			}
			if err != nil {
				return err
			}
			if index < first {
				end = within // where the run before ended: see Follow
			} else {
				end = 0
			}
			index = at
		}
		if at != index || within != end {
			return codec.Corrupt(h.idx.key, fmt.Sprintf("frames from %d on", lo), -1, fmt.Sprintf("a payload at %d of frame %d", end, index), e.offset)
		}
		var err error
		if r.tuples, err = s.payload(h, e, index, end, frame, r.tuples); err != nil {
			return err
		}
		r.ends = append(r.ends, len(r.tuples))
		end += int(e.length)
	}
	r.payloads = [2]int64{from, to + 1}
	if end == len(frame) {
		r.payloads[1] += 4 // the frame's CRC
	}
	return nil
}

// Follow checks that a run follows what ended at end, and makes end where the run ends.
func (s *Segment) Follow(shard int, r *PostingsRun, end *PostingsEnd) error {
	if !r.first.some {
		return nil
	}
	h := &s.shards[shard]
	if end.some && !end.before(&r.first) {
		return codec.Corrupt(h.idx.key, "frames", -1, "an entry after "+end.describe(), r.first.describe())
	}
	if r.payloads[0] >= 0 && r.payloads[0] != end.payload {
		return codec.Corrupt(h.idx.key, "frames", -1, fmt.Sprintf("a payload at %d", end.payload), r.payloads[0])
	}
	payload := end.payload
	if r.payloads[0] >= 0 {
		payload = r.payloads[1]
	}
	*end = PostingsEnd{r.last, payload}
	return nil
}

// EndPostings checks that a shard may end at end: that entries point to all payloads.
func (s *Segment) EndPostings(shard int, end PostingsEnd) error {
	if dat := s.shards[shard].dat; end.payload != dat.RawBytes() {
		return codec.Corrupt(dat.key, "frames", -1, fmt.Sprintf("payloads up to byte %d, to which entries point", end.payload), fmt.Sprintf("%d bytes", dat.RawBytes()))
	}
	return nil
}

// Postings yields all entries of a shard in order with their tuples, and checks that order
// across frames and that payloads follow each other without a gap. An error is the last thing
// yielded. It reads past the cache.
func (s *Segment) Postings(ctx context.Context, shard int) iter.Seq2[Posting, error] {
	return func(yield func(Posting, error) bool) {
		var run PostingsRun
		var end PostingsEnd
		for _, r := range s.PostingsRuns(shard) {
			err := s.ReadPostings(ctx, shard, r[0], r[1], &run, nil)
			if err == nil {
				err = s.Follow(shard, &run, &end)
			}
			if err != nil {
				yield(Posting{}, err)
				return
			}
			for i := range run.Entries {
				if !yield(Posting{run.Entries[i], slices.Clone(run.Tuples(i))}, nil) {
					return
				}
			}
		}
		if err := s.EndPostings(shard, end); err != nil {
			yield(Posting{}, err)
		}
	}
}

// appendEntries adds all entries of the block to r, which has room, and the values of the block.
func (b *block) appendEntries(r *PostingsRun) {
	v := &r.values
	sizes, firstTS, spanTS := b.sizes.cursor(), b.firstTS.cursor(), b.spanTS.cursor()
	offsets, lengths := b.offsets.cursor(), b.lengths.cursor()
	var k Key
	domain, at := -1, 0 // at counts entries without a payload
	start := len(r.Entries)
	r.Entries = r.Entries[:start+b.entries]
	for i := range b.entries {
		if b.starts == nil || b.starts.has(i) {
			domain++
			k = v.keys[domain]
		}
		e := &r.Entries[start+i]
		*e = Entry{Key: k}
		p := v.places[i]
		e.Dataset, e.First.FileID = v.datasets[p], v.fileIDs[p]
		e.Rows = v.rows[i]
		if b.hasSize == all || b.hasSize == some && b.sizeBits.has(i) {
			e.HasSize, e.Size = true, sizes.read()
		}
		if b.hasTS == all || b.hasTS == some && b.tsBits.has(i) {
			e.HasTS = true
			e.FirstTS = b.tsBase + int64(uint64(firstTS.read())*b.tsUnit)
			e.LastTS = e.FirstTS + int64(uint64(spanTS.read())*b.tsUnit)
		}
		if b.hasPayload == all || b.hasPayload == some && b.payBits.has(i) {
			e.offset, e.length = offsets.read(), lengths.read()
			continue
		}
		e.Inline = true
		e.First.RowGroup, e.First.FirstRow, e.First.Rows = uint32(v.groups[at]), v.firsts[at], e.Rows
		at++
	}
}

// SetSums has a number for each set of datasets, the sum of one for each of its datasets. Sets that are equal are stored once, and are summed up
// once. It is safe for concurrent use.
type SetSums struct {
	s     *Segment
	of    func(dataset uint32) uint64
	slots []setSum // by place of the bitmap; a power of two
}

// setSum is the sum of the set whose bitmap stands at a place. There is no lock: of two sets that are noted in one slot at the same time, the tag of one does not fit
// the sum of the other.
type setSum struct {
	tag atomic.Uint64 // of the place, XOR sum
	sum atomic.Uint64
}

const (
	// maxSetSums bounds what is kept: 16 MiB.
	maxSetSums = 1 << 20

	// setSpacing is the least that a bitmap takes in Roaring's portable form: no two share a slot, unless they are more than there are slots. One that
	// does is summed up again.
	setSpacing = runHeader + 4
)

// NewSetSums sums up the sets of s.
func (s *Segment) NewSetSums(of func(dataset uint32) uint64) *SetSums {
	return &SetSums{s: s, of: of, slots: emptySlots[setSum](min(1<<bits.Len64(uint64(s.member.index/setSpacing)), maxSetSums))}
}

func (t *SetSums) slot(p bitmapPlace) *setSum {
	return &t.slots[uint64(p.start)/setSpacing&uint64(len(t.slots)-1)]
}

// tag tells places apart: in a file of less than 2 GiB any two, in others but for a chance of 2^-64.
func (p bitmapPlace) tag() uint64 { return uint64(p.start)*0x9e3779b97f4a7c15 + uint64(p.length) }

// Range sets sums to those of the domains with the ordinals from first on.
func (t *SetSums) Range(first uint32, sums []uint64) (err error) {
	s := t.s
	defer guard(debug.SetPanicOnFault(true), &err, s.roar)
	if int64(len(sums)) > s.info.Domains-int64(first) {
		return fmt.Errorf("segment %s: %d ordinals from %d of %d", s.info.Segment, len(sums), first, s.info.Domains)
	}
	var memory [setsAtOnce]bitmapPlace
	var datasets []uint32
	for len(sums) > 0 {
		places := memory[:min(len(sums), setsAtOnce)]
		if err := s.member.places(first, places); err != nil {
			return err
		}
		// All slots are touched before any is needed: the processor waits for many of them at once.
		for _, p := range places {
			t.slot(p).tag.Load()
		}
		for i, p := range places {
			slot, tag := t.slot(p), p.tag()
			sum := slot.sum.Load()
			if slot.tag.Load()^sum != tag {
				if datasets, err = s.member.appendDatasets(datasets[:0], p); err != nil {
					return err
				}
				sum = 0
				for _, d := range datasets {
					sum += t.of(d)
				}
				slot.sum.Store(sum)
				slot.tag.Store(tag ^ sum)
			}
			sums[i] = sum
		}
		first, sums = first+uint32(len(places)), sums[len(places):]
	}
	return nil
}
