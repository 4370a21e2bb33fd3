package segment

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// posting is an entry of a shard and its tuples.
type posting struct {
	entry  Entry
	tuples []Tuple
}

// writeShard writes sorted postings and returns the two files.
func writeShard(
	tb testing.TB, shard, shardBits int, postings []posting,
) (idx, dat []byte, idxFile, datFile seekable.File) {
	tb.Helper()
	var i, d bytes.Buffer
	w := NewPostingsWriter(&i, &d, shard, shardBits)
	for _, p := range postings {
		if err := w.Add(p.entry, p.tuples); err != nil {
			tb.Fatal(err)
		}
	}
	idxFile, datFile, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return i.Bytes(), d.Bytes(), idxFile, datFile
}

func sortPostings(p []posting) []posting {
	slices.SortFunc(p, func(a, b posting) int {
		return cmp.Or(CompareKeys(a.entry.Key, b.entry.Key), cmp.Compare(a.entry.Dataset, b.entry.Dataset))
	})
	return slices.CompactFunc(p, func(a, b posting) bool {
		return a.entry.Key == b.entry.Key && a.entry.Dataset == b.entry.Dataset
	})
}

// blocksOf decodes a postings.idx.
func blocksOf(tb testing.TB, data []byte, f seekable.File, want expectation) (*seekable.Frames, []*block) {
	tb.Helper()
	read := func(_ context.Context, off, n int64) ([]byte, error) { return data[off : off+n], nil }
	frames, err := seekable.OpenAt(context.Background(), read, f, "idx", postingsFence)
	if err != nil {
		tb.Fatal(err)
	}
	var blocks []*block
	for i := range frames.Len() {
		raw, err := frames.Read(context.Background(), read, i, i+1)
		if err != nil {
			tb.Fatal(err)
		}
		if len(raw[0]) > BlockBytes {
			tb.Errorf("block %d has %d bytes", i, len(raw[0]))
		}
		b, err := parseBlock(raw[0], "idx", frameSection(i), want)
		if err != nil {
			tb.Fatal(err)
		}
		if err := b.checkFence(frames.Fence(i)); err != nil {
			tb.Fatal(err)
		}
		blocks = append(blocks, b)
	}
	return frames, blocks
}

// all decodes all entries of a block.
func (b *block) all() []Entry {
	var out []Entry
	var v blockValues
	b.readKeys(&v)
	var k Key
	domain := -1
	for i := range b.entries {
		if b.starts == nil || b.starts.Has(i) {
			domain++
			k = v.keys[domain]
		}
		out = append(out, b.entry(i, k))
	}
	return out
}

// extreme returns numbers that are small, random, or near limit.
func extreme(rng *rand.Rand, limit int64) int64 {
	switch rng.IntN(4) {
	case 0:
		return limit - rng.Int64N(3)
	case 1:
		return rng.Int64N(limit)
	default:
		return rng.Int64N(5)
	}
}

func randomPosting(rng *rand.Rand, key Key, dataset uint32, files []uint32, wild bool) posting {
	e := Entry{Key: key, Dataset: dataset}
	ts := func() int64 { return 1.7e12 + 1000*rng.Int64N(1e8) }
	bound := int64(1 << 20)
	if wild {
		ts = func() int64 { return []int64{math.MinInt64, math.MaxInt64, 0, rng.Int64(), -rng.Int64()}[rng.IntN(5)] }
		bound = math.MaxInt64 / 4
	}
	if rng.IntN(2) == 0 {
		e.HasSize, e.Size = true, extreme(rng, bound)
	}
	if rng.IntN(2) == 0 {
		a, b := ts(), ts()
		e.HasTS, e.FirstTS, e.LastTS = true, min(a, b), max(a, b)
	}
	var tuples []Tuple
	for range 1 + rng.IntN(3)*rng.IntN(2) {
		t := Tuple{
			FileID: files[rng.IntN(len(files))], RowGroup: uint32(extreme(rng, math.MaxUint32)),
			FirstRow: extreme(rng, bound), Rows: 1 + extreme(rng, bound),
		}
		tuples = append(tuples, t)
	}
	slices.SortFunc(tuples, CompareTuples)
	tuples = slices.CompactFunc(tuples, func(a, b Tuple) bool { return CompareTuples(a, b) == 0 })
	var rows int64
	for i := range tuples {
		tuples[i].Rows = min(tuples[i].Rows, math.MaxInt64/8)
		rows += tuples[i].Rows
	}
	e.Rows = rows
	return posting{e, tuples}
}

// Blocks return the entries written and find these and no others, also if ids are close together,
// at the ends of their range, or equal, and if numbers are as large as allowed.
func TestBlocksRoundTrip(t *testing.T) {
	keys := map[string]func(*rand.Rand) Key{
		"even":  func(r *rand.Rand) Key { return Key{ID: r.Uint64(), Check: r.Uint32()} },
		"equal": func(r *rand.Rand) Key { return Key{ID: 77, Check: r.Uint32()} },
		"close": func(r *rand.Rand) Key {
			return Key{ID: math.MaxUint64 - uint64(r.IntN(3000)), Check: uint32(r.IntN(2))}
		},
		"apart": func(r *rand.Rand) Key {
			return Key{ID: []uint64{0, math.MaxUint64, 1 << 63}[r.IntN(3)], Check: uint32(r.IntN(900))}
		},
		"skewed": func(r *rand.Rand) Key { return Key{ID: r.Uint64() >> r.IntN(64), Check: r.Uint32() >> r.IntN(32)} },
		"one":    func(r *rand.Rand) Key { return Key{ID: 5, Check: 5} },
	}
	for name, key := range keys {
		for _, wild := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/wild=%v", name, wild), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(len(name))))
				var in []posting
				for range 4000 {
					dataset := uint32(1 + rng.IntN(1+rng.IntN(200)))
					if name == "one" || wild && rng.IntN(50) == 0 {
						dataset = rng.Uint32()
					}
					// Files of a dataset follow each other.
					files := []uint32{dataset, dataset}
					in = append(in, randomPosting(rng, key(rng), dataset, files, wild))
				}
				in = sortPostings(in)
				idx, _, f, datFile := writeShard(t, 0, 0, in)
				frames, blocks := blocksOf(t, idx, f, expectation{datBytes: datFile.RawBytes})
				var got []Entry
				for i, b := range blocks {
					if len(blocks) > 2 && i < len(blocks)-1 && b.bytes < BlockBytes*blockFill/100-400 {
						t.Errorf("block %d of %d has only %d bytes", i, len(blocks), b.bytes)
					}
					got = append(got, b.all()...)
				}
				if len(got) != len(in) {
					t.Fatalf("%d entries, want %d", len(got), len(in))
				}
				for i, p := range in {
					want := p.entry
					want.Inline = len(p.tuples) == 1
					want.First = Tuple{FileID: p.tuples[0].FileID}
					if want.Inline {
						want.First = p.tuples[0]
					}
					want.offset, want.length = got[i].offset, got[i].length
					if got[i] != want {
						t.Fatalf("entry %d: %+v, want %+v", i, got[i], want)
					}
					var fence [postingsFence]byte
					putFence(&fence, want.Key, want.Dataset)
					lo, hi := frames.Find(fence[:], fence[:])
					if hi != lo+1 {
						t.Fatalf("entry %d: frames %d to %d", i, lo, hi)
					}
					from, to := blocks[lo].domain(want.Key)
					at := blocks[lo].find(from, to, want.Dataset)
					if at == to || blocks[lo].entry(at, want.Key) != want {
						t.Fatalf("entry %d not found among %d to %d", i, from, to)
					}
				}
				known := map[Key]bool{}
				for _, p := range in {
					known[p.entry.Key] = true
				}
				for range 2000 {
					k := in[rng.IntN(len(in))].entry.Key
					switch rng.IntN(4) {
					case 0:
						k.ID++
					case 1:
						k.ID--
					case 2:
						k.Check++
					default:
						k = Key{ID: rng.Uint64(), Check: rng.Uint32()}
					}
					for _, b := range blocks {
						if from, to := b.domain(k); from != to && !known[k] {
							t.Fatalf("found %+v, which is absent", k)
						}
					}
				}
			})
		}
	}
}

func TestPostingsWriterRejects(t *testing.T) {
	ok := posting{
		Entry{Key: Key{ID: 10, Check: 10}, Dataset: 10, Totals: Totals{Rows: 3}}, []Tuple{{FileID: 1, Rows: 3}},
	}
	for name, change := range map[string]func(p *posting){
		"the same again":            func(p *posting) {},
		"an earlier dataset":        func(p *posting) { p.entry.Dataset-- },
		"an earlier domain":         func(p *posting) { p.entry.ID-- },
		"earlier check bits":        func(p *posting) { p.entry.Check-- },
		"another shard":             func(p *posting) { p.entry.ID = 1 << 63 },
		"no tuples":                 func(p *posting) { p.entry.ID++; p.tuples = nil },
		"other rows":                func(p *posting) { p.entry.ID++; p.entry.Rows++ },
		"no rows":                   func(p *posting) { p.entry.ID++; p.entry.Rows, p.tuples[0].Rows = 0, 0 },
		"a row below the first":     func(p *posting) { p.entry.ID++; p.tuples[0].FirstRow = -1 },
		"rows past the last number": func(p *posting) { p.entry.ID++; p.tuples[0].FirstRow = math.MaxInt64 - 1 },
		"tuples out of order":       func(p *posting) { p.entry.ID++; p.tuples = []Tuple{{FileID: 2, Rows: 1}, {Rows: 2}} },
		"a negative size":           func(p *posting) { p.entry.ID++; p.entry.HasSize, p.entry.Size = true, -1 },
		"a size of none":            func(p *posting) { p.entry.ID++; p.entry.Size = 1 },
		"ts that end before":        func(p *posting) { p.entry.ID++; p.entry.HasTS, p.entry.FirstTS = true, 1 },
	} {
		var idx, dat bytes.Buffer
		w := NewPostingsWriter(&idx, &dat, 0, 1)
		if err := w.Add(ok.entry, ok.tuples); err != nil {
			t.Fatal(err)
		}
		p := posting{ok.entry, slices.Clone(ok.tuples)}
		change(&p)
		if err := w.Add(p.entry, p.tuples); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// No payload straddles frames, and one larger than a frame has a frame of its own.
func TestPayloadsDoNotStraddleFrames(t *testing.T) {
	var in []posting
	for i := range 300 {
		n := 2 + i%40
		if i == 150 {
			n = 9000
		}
		p := posting{entry: Entry{Key: Key{ID: uint64(i), Check: 1}, Dataset: 1}}
		for f := range n {
			p.tuples = append(p.tuples, Tuple{
				FileID: uint32(f * (i + 1)), RowGroup: uint32(f % 3), FirstRow: int64(f) * 1000, Rows: int64(1 + f),
			})
			p.entry.Rows += int64(1 + f)
		}
		in = append(in, p)
	}
	idx, dat, f, df := writeShard(t, 0, 0, in)
	_, blocks := blocksOf(t, idx, f, expectation{datBytes: df.RawBytes})
	read := func(_ context.Context, off, n int64) ([]byte, error) { return dat[off : off+n], nil }
	frames, err := seekable.OpenAt(context.Background(), read, df, "dat", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, b := range blocks {
		for _, e := range b.all() {
			i, within := frames.FrameAt(e.offset)
			data, err := frames.Read(context.Background(), read, i, i+1)
			if err != nil {
				t.Fatal(err)
			}
			body, err := codec.CheckCRC32C(data[0], "dat", "frame")
			if err != nil {
				t.Fatal(err)
			}
			if len(body) > BlockBytes && (within != 0 || int(e.length) != len(body)) {
				t.Errorf("payload %d shares a frame of %d bytes", n, len(body))
			}
			d := codec.NewDecoder(body[within:within+int(e.length)], "dat", "payload")
			got := ReadTuples(d, nil, e.Rows)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(in[n].tuples, got); diff != "" {
				t.Fatalf("tuples of %d: %s", n, diff)
			}
			n++
		}
	}
	if n != len(in) {
		t.Errorf("%d payloads, want %d", n, len(in))
	}
}

// A damaged block is an error or, if its checksum is right, at worst another set of entries in
// order: no lookup panics on a block that parseBlock accepts.
func FuzzBlock(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 3, 50} {
		var in []posting
		for range n {
			dataset := uint32(1 + rng.IntN(4))
			key := Key{ID: rng.Uint64() >> rng.IntN(60), Check: rng.Uint32()}
			in = append(in, randomPosting(rng, key, dataset, []uint32{dataset}, n == 3))
		}
		idx, _, file, _ := writeShard(f, 0, 0, sortPostings(in))
		read := func(_ context.Context, off, n int64) ([]byte, error) { return idx[off : off+n], nil }
		frames, err := seekable.OpenAt(context.Background(), read, file, "idx", postingsFence)
		if err != nil {
			f.Fatal(err)
		}
		raw, err := frames.Read(context.Background(), read, 0, 1)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[0][:len(raw[0])-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > BlockBytes {
			return
		}
		b, err := parseBlock(codec.AppendCRC32C(bytes.Clone(body)), "idx", "frame 0", expectation{datBytes: -1})
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var last Entry
		for i, e := range b.all() {
			if c := CompareKeys(last.Key, e.Key); i > 0 && (c > 0 || c == 0 && last.Dataset >= e.Dataset) {
				t.Fatalf("entry %+v after %+v", e, last)
			}
			if err := e.Totals.Validate(); err != nil {
				t.Fatalf("entry %+v: %v", e, err)
			}
			last = e
			from, to := b.domain(e.Key)
			if at := b.find(from, to, e.Dataset); at == to || b.entry(at, e.Key) != e {
				t.Fatalf("entry %+v is not found", e)
			}
		}
		b.domain(Key{})
		b.domain(Key{ID: math.MaxUint64, Check: math.MaxUint32})
		if len(body) > 16 {
			b.domain(Key{ID: binary.LittleEndian.Uint64(body[8:]), Check: 1})
		}
	})
}

// valid returns true exactly if checkEntries finds no error, and allValidRows if validRows is true
// for every entry.
func TestBranchFreeChecks(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	pick := func(usual int64) int64 {
		if rng.IntN(40) > 0 {
			return usual
		}
		return []int64{-1, 0, 5, math.MaxInt64, math.MinInt64, math.MaxUint32, math.MaxUint32 + 1}[rng.IntN(7)]
	}
	valid, invalid := 0, 0
	for range 20_000 {
		const shardBits = 2
		want := expectation{shard: rng.IntN(1 << shardBits), shardBits: shardBits}
		v := &blockValues{datasets: []uint32{1, 1, 4, math.MaxUint32}[:1+rng.IntN(4)]}
		b := &block{file: "idx", files: len(v.datasets)}
		k := Key{ID: uint64(want.shard) << (64 - shardBits)}
		starts := []byte{0, 0}
		for range 1 + rng.IntN(5) {
			k.ID += uint64(pick(int64(rng.IntN(3))))
			k.Check += 1 + rng.Uint32N(3)
			v.keys = append(v.keys, k)
			starts[b.entries/8] |= 1 << (b.entries % 8)
			file := int64(-1)
			for more := true; more && b.entries < 16; more = rng.IntN(2) == 0 {
				file = min(file+1+rng.Int64N(2), int64(len(v.datasets)-1))
				v.fileIndexes = append(v.fileIndexes, pick(file))
				v.rows = append(v.rows, pick(1+rng.Int64N(5)))
				v.groups, v.firsts = append(v.groups, pick(rng.Int64N(5))), append(v.firsts, pick(rng.Int64N(5)))
				b.entries++
			}
			if b.entries == 16 {
				break
			}
		}
		if b.first = v.keys[0].ID; rng.IntN(40) == 0 {
			b.first++
		}
		if b.domains = len(v.keys); b.domains < b.entries {
			b.starts = starts
		}
		if !slices.ContainsFunc(v.rows, func(n int64) bool { return n < 1 }) { // rejected before
			want := true
			for i, n := range v.rows {
				want = want && validRows(v.groups[i], v.firsts[i], n)
			}
			if got := allValidRows(v.groups, v.firsts, v.rows); got != want {
				t.Fatalf("valid rows: %v, want %v: %+v", got, want, v)
			}
		}
		if err := b.checkEntries(want, v); (err == nil) != b.valid(want, v) {
			t.Fatalf("valid: %v, but %v: %+v of %+v", b.valid(want, v), err, v, b)
		} else if err == nil {
			valid++
		} else {
			invalid++
		}
	}
	if min(valid, invalid) < 1000 {
		t.Errorf("%d blocks are valid, %d are not: want 1000 of each", valid, invalid)
	}
}

func FuzzTuples(f *testing.F) {
	f.Add(AppendTuples(nil, []Tuple{{1, 2, 3, 4}, {1, 3, 0, 5}, {9, 0, 0, 1}}), int64(10))
	f.Add(AppendTuples(nil, []Tuple{{math.MaxUint32, math.MaxUint32, 1 << 40, 1}}), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, rows int64) {
		d := codec.NewDecoder(data, "dat", "payload")
		tuples := ReadTuples(d, nil, rows)
		if err := d.Close(); err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if err := checkTuples(tuples, rows); err != nil {
			t.Fatalf("%v: %v", tuples, err)
		}
		if again := AppendTuples(nil, tuples); !bytes.Equal(again, data) {
			t.Fatalf("%x becomes %x when written again", data, again)
		}
	})
}

// A packed column returns its numbers, whatever they are, by index and in sequence.
func TestColumnsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for n := range 300 {
		values := make([]int64, n%70)
		width := rng.IntN(65)
		for i := range values {
			values[i] = int64(rng.Uint64() >> (64 - width)) // >>64 is 0
			if rng.IntN(20) == 0 {
				values[i] = int64(rng.Uint64() >> rng.IntN(64))
			}
		}
		data, _ := appendInts(nil, values, nil)
		// What follows a column is not read.
		d := codec.NewDecoder(append(bytes.Clone(data), 0xff, 0xff), "f", "s")
		c := readColumn(d, len(values))
		if d.Err() != nil || d.Offset() != len(data) {
			t.Fatalf("%v: %v, %d of %d bytes", values, d.Err(), d.Offset(), len(data))
		}
		if got := c.unpack([]int64{1, 2, 3}, len(values)); !slices.Equal(got, values) {
			t.Fatalf("unpacked %v, want %v", got, values)
		}
		k := c.cursor()
		for i, want := range values {
			if got, next := c.at(i), k.read(); got != want || next != want {
				t.Fatalf("value %d of %v: %d by index, %d in sequence", i, values, got, next)
			}
		}
		for cut := range data {
			d := codec.NewDecoder(data[:cut], "f", "s")
			readColumn(d, len(values))
			if d.Err() == nil {
				t.Fatalf("cut to %d of %d bytes: no error", cut, len(data))
			}
		}
	}
}

// Totals add up to the same in any order.
func TestTotalsAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 300 {
		var all []Totals
		for range 1 + rng.IntN(6) {
			p := randomPosting(rng, Key{}, 1, []uint32{1}, rng.IntN(2) == 0)
			p.entry.Rows = 1 + p.entry.Rows%1000
			all = append(all, p.entry.Totals)
		}
		var a, b Totals
		for i := range all {
			a.Add(all[i])
			b.Add(all[len(all)-1-i])
		}
		if a != b {
			t.Fatalf("%+v: %+v and %+v", all, a, b)
		}
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
	}
	big := Totals{Rows: 1, HasSize: true, Size: math.MaxInt64 - 1}
	big.Add(Totals{Rows: 1, HasSize: true, Size: 5})
	if big.Size != math.MaxInt64 {
		t.Errorf("size %d", big.Size)
	}
}

func BenchmarkParseBlock(b *testing.B) {
	rng := rand.New(rand.NewPCG(2, 2))
	var in []posting
	for range 4000 {
		dataset := uint32(1 + rng.IntN(20))
		key := Key{ID: rng.Uint64() >> 12, Check: rng.Uint32()}
		p := posting{entry: Entry{Key: key, Dataset: dataset, Totals: Totals{Rows: 1 + int64(rng.ExpFloat64()*10)}}}
		p.tuples = []Tuple{{FileID: dataset, FirstRow: rng.Int64N(1e6), Rows: p.entry.Rows}}
		in = append(in, p)
	}
	idx, _, file, _ := writeShard(b, 0, 0, sortPostings(in))
	read := func(_ context.Context, off, n int64) ([]byte, error) { return idx[off : off+n], nil }
	frames, err := seekable.OpenAt(context.Background(), read, file, "idx", postingsFence)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := frames.Read(context.Background(), read, 0, 1)
	if err != nil {
		b.Fatal(err)
	}
	var parsed *block
	for b.Loop() {
		if parsed, err = parseBlock(raw[0], "idx", "frame 0", expectation{datBytes: 0}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(parsed.entries), "entries")
}
