package segment

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sort"

	"github.com/urlake/urlake/lake/codec"
)

// Posting is an entry with all its tuples.
type Posting struct {
	Entry
	Tuples []Tuple
}

// PostingsRun is the content of adjacent frames of a shard. Its memory is reused for the next run.
type PostingsRun struct {
	// Entries are all entries, or none if ReadPostings passed the blocks on as PlainBlocks.
	Entries []Entry
	first   runEdge // first entry
	last    runEdge // last entry

	tuples []Tuple
	ends   []int // at which each entry's tuples end; empty if all entries are inline
	one    [1]Tuple

	payloads [2]int64 // range of the decompressed postings.dat that the entries point to
	values   blockValues
}

// runEdge is the first or the last entry of a run. The zero value is that of a run without entries.
type runEdge struct {
	some    bool // there is an entry
	key     Key
	dataset uint32
}

// before tells whether entry next may follow entry e.
func (e *runEdge) before(next *runEdge) bool {
	c := CompareKeys(e.key, next.key)
	return c < 0 || c == 0 && e.dataset < next.dataset
}

// describe returns the entry's name for errors.
func (e *runEdge) describe() string {
	return fmt.Sprintf("%016x/%08x in dataset %d", e.key.ID, e.key.Check, e.dataset)
}

// PlainBlock is a block in columns whose entries all have a single tuple and neither size nor ts.
// Everything in it was checked except what depends on other blocks. It is valid during the call
// that it is passed to.
type PlainBlock struct {
	// Keys are the domains.
	Keys []Key
	// FileIDs is the file table, Datasets the datasets of its files.
	FileIDs, Datasets []uint32
	// FileIndexes, Rows, Groups and Firsts have a value for each entry: the index of its file in
	// the file table, the number of its rows, their row group and the first row.
	FileIndexes, Rows, Groups, Firsts []int64

	starts bitString
}

// Starts sets out to the indexes of the domains' first entries, followed by the number of entries.
func (b *PlainBlock) Starts(out []uint32) []uint32 {
	out = slices.Grow(out[:0], len(b.Keys)+1)
	if b.starts == nil {
		for i := range b.Keys {
			out = append(out, uint32(i))
		}
	}
	for w := range b.starts.Words() {
		for ones := b.starts.Word(w); ones != 0 && len(out) < len(b.Keys); ones &= ones - 1 {
			out = append(out, uint32(w<<6+bits.TrailingZeros64(ones)))
		}
	}
	return append(out, uint32(len(b.FileIndexes)))
}

// isPlain tells whether the header of a block says that it can be a PlainBlock. Data is unchecked.
func isPlain(data []byte) bool {
	const counts = 4 // shard, domains, entries, files
	at := len(postingsMagic) + 4
	for range counts {
		for at < len(data) && data[at] >= 0x80 {
			at++
		}
		at++
	}
	return at < len(data) && data[at] == 0 // no entry has size, ts or payload
}

// Tuples returns the tuples of entry i. They are valid until the next call.
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

// PostingsEnd is where a run of postings ends and the next one must start. The zero value is the
// start of a shard.
type PostingsEnd struct {
	runEdge
	payload int64 // offset in the decompressed postings.dat
}

// runBytes is how many compressed bytes of postings.idx a run has. Decoded, at 120 bytes an entry,
// a run takes some four megabytes.
const runBytes = 256 << 10

// PostingsRuns cuts the frames of a shard's postings.idx into the ranges [lo, hi) that ReadPostings
// is to read at once.
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

// ReadPostings reads the frames [lo, hi) of a shard's postings.idx, and the payloads they point to,
// into r. It bypasses the cache. It checks everything except what depends on other frames, which
// Follow checks. If plain is not nil and all blocks can be PlainBlocks, ReadPostings calls plain
// with each of them instead of setting r.Entries. After an error the caller must discard what plain
// received.
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
		first := runEdge{true, v.keys[0], v.datasets[v.fileIndexes[0]]}
		if i == 0 {
			r.first = first
		} else if !r.last.before(&first) {
			return b.corrupt("entries after those of the frame before", first.describe())
		}
		r.last = runEdge{true, v.keys[len(v.keys)-1], v.datasets[v.fileIndexes[len(v.fileIndexes)-1]]}
		if plain != nil {
			plain(&PlainBlock{
				Keys: v.keys, FileIDs: v.fileIDs, Datasets: v.datasets,
				FileIndexes: v.fileIndexes, Rows: v.rows, Groups: v.groups, Firsts: v.firsts, starts: b.starts,
			})
			continue
		}
		if free := cap(r.Entries) - len(r.Entries); free < b.entries {
			// Guess from this block what the rest of the run will take.
			r.Entries = slices.Grow(r.Entries, b.entries*(len(data)-i)*9/8)
		}
		b.appendEntries(r)
	}
	return s.readPayloads(ctx, h, lo, r)
}

// readPayloads sets the tuples of the run. Payloads must follow each other without a gap.
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
		return nil // Tuples returns the only tuple of each entry
	}
	// Blocks were checked to point into the file, so there are such frames.
	first, _ := h.dat.FrameAt(from)
	last, _ := h.dat.FrameAt(to)
	next, stop := iter.Pull2(h.dat.scan(ctx, first, last+1))
	defer stop()
	// The current frame of postings.dat, its number, and where the last payload in it ended.
	var frame []byte
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
				end = within // Follow checks that the run before ended here
			} else {
				end = 0
			}
			index = at
		}
		if at != index || within != end {
			want := fmt.Sprintf("a payload at %d of frame %d", end, index)
			return codec.Corrupt(h.idx.key, fmt.Sprintf("frames from %d on", lo), -1, want, e.offset)
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

// EntryScan reads the entries of a segment in their order: by domain_id, check bits and dataset. It
// reads no payloads, bypasses the cache, and usually takes about a megabyte of memory: runBytes of
// compressed frames, decompressed, and the entries of one. It is not safe for concurrent use.
type EntryScan struct {
	s            *Segment
	shard, frame int      // the next frame to decode
	read         [][]byte // that frame and some after it, once they are read
	from         runEdge
	run          PostingsRun // the entries of the last frame
	at           int         // the next of them
	last         runEdge     // the last of them
}

// ScanEntries returns a scan from the first entry that is not before that of a domain and a
// dataset. Nothing is read before the first Next.
func (s *Segment) ScanEntries(k Key, dataset uint32) *EntryScan {
	e := &EntryScan{s: s, shard: shardOf(k.ID, s.info.ShardBits), from: runEdge{true, k, dataset}}
	var first, last [postingsFence]byte
	putFence(&first, k, dataset)
	for i := range last {
		last[i] = 0xff
	}
	lo, hi := s.shards[e.shard].idx.Find(first[:], last[:])
	if e.frame = lo; lo == hi {
		e.shard, e.frame = e.shard+1, 0
	}
	return e
}

// Next returns the next entry, or nil at the end. The entry is valid until the next call. An error
// ends the scan.
func (e *EntryScan) Next(ctx context.Context) (*Entry, error) {
	for e.at == len(e.run.Entries) {
		if e.shard == len(e.s.shards) {
			return nil, nil
		}
		h := &e.s.shards[e.shard]
		if e.frame == h.idx.Len() {
			e.shard, e.frame, e.last = e.shard+1, 0, runEdge{}
			continue
		}
		if len(e.read) == 0 {
			var err error
			if e.read, err = h.idx.Read(ctx, h.idx.read, e.frame, h.idx.reach(e.frame, h.idx.Len(), runBytes)); err != nil {
				return nil, err
			}
		}
		if err := e.decode(h); err != nil {
			return nil, err
		}
	}
	e.at++
	return &e.run.Entries[e.at-1], nil
}

// decode decodes the next frame.
func (e *EntryScan) decode(h *shard) error {
	b, err := h.blockValues(e.frame, e.read[0], &e.run.values)
	if err != nil {
		return err
	}
	e.run.Entries = slices.Grow(e.run.Entries[:0], b.entries)
	b.appendEntries(&e.run)
	edge := func(i int) runEdge { return runEdge{true, e.run.Entries[i].Key, e.run.Entries[i].Dataset} }
	first := edge(0)
	if e.last.some && !e.last.before(&first) {
		return b.corrupt("entries after those of the frame before", first.describe())
	}
	e.last = edge(b.entries - 1)
	e.at = sort.Search(b.entries, func(i int) bool {
		at := edge(i)
		return !at.before(&e.from)
	})
	e.frame, e.read = e.frame+1, e.read[1:]
	return nil
}

// Follow checks that a run starts where end is, and sets end to where the run ends.
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

// EndPostings checks that end is the end of a shard: its entries must point to all payloads.
func (s *Segment) EndPostings(shard int, end PostingsEnd) error {
	if dat := s.shards[shard].dat; end.payload != dat.RawBytes() {
		want := fmt.Sprintf("payloads up to byte %d, to which entries point", end.payload)
		return codec.Corrupt(dat.key, "frames", -1, want, fmt.Sprintf("%d bytes", dat.RawBytes()))
	}
	return nil
}

// Postings yields all entries of a shard with their tuples, in order. It checks the order across
// frames and that payloads follow each other without a gap. An error is the last thing yielded.
// Postings bypasses the cache.
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

// appendEntries appends all entries of the block to r.Entries, which has the capacity. r.values
// must hold the block's values.
func (b *block) appendEntries(r *PostingsRun) {
	v := &r.values
	sizes, firstTS, spanTS := b.sizes.cursor(), b.firstTS.cursor(), b.spanTS.cursor()
	offsets, lengths := b.offsets.cursor(), b.lengths.cursor()
	var k Key
	domain, at := -1, 0 // at counts inline entries
	start := len(r.Entries)
	r.Entries = r.Entries[:start+b.entries]
	for i := range b.entries {
		if b.starts == nil || b.starts.Has(i) {
			domain++
			k = v.keys[domain]
		}
		e := &r.Entries[start+i]
		*e = Entry{Key: k}
		p := v.fileIndexes[i]
		e.Dataset, e.First.FileID = v.datasets[p], v.fileIDs[p]
		e.Rows = v.rows[i]
		if b.hasSize == all || b.hasSize == some && b.sizeBits.Has(i) {
			e.HasSize, e.Size = true, sizes.read()
		}
		if b.hasTS == all || b.hasTS == some && b.tsBits.Has(i) {
			e.HasTS = true
			e.FirstTS = b.tsBase + int64(uint64(firstTS.read())*b.tsUnit)
			e.LastTS = e.FirstTS + int64(uint64(spanTS.read())*b.tsUnit)
		}
		if b.hasPayload == all || b.hasPayload == some && b.payBits.Has(i) {
			e.offset, e.length = offsets.read(), lengths.read()
			continue
		}
		e.Inline = true
		e.First.RowGroup, e.First.FirstRow, e.First.Rows = uint32(v.groups[at]), v.firsts[at], e.Rows
		at++
	}
}
