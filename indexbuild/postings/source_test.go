package postings

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// domainTotals are the totals of a domain in a part.
type domainTotals struct {
	name   string
	totals segment.Totals
}

func tinyDomains() []domainTotals {
	return []domainTotals{
		{"example.com", segment.Totals{Rows: 39}},
		{"example.net", segment.Totals{
			Rows: 20, HasSize: true, Size: 70_000, HasTS: true, FirstTS: 1.7e12, LastTS: 1.8e12,
		}},
		{"example.org", segment.Totals{Rows: 300}},
		{"xn--bcher-kva.example", segment.Totals{Rows: 1, HasTS: true}},
	}
}

// domainRecord is the record of a domain.
type domainRecord struct {
	name string
	Record
}

// readSource reads all records of a source, one for each domain, and checks the domains' codes.
func readSource(s *Source) (all []domainRecord, err error) {
	last := ""
	for {
		block, err := s.Load(context.Background(), nil)
		if block == nil || err != nil {
			return all, err
		}
		for at := 0; at < len(block)-BlockSlack; {
			d := BlockDomain(block[at:])
			at += d.Len()
			text, n := d.Text()
			r := domainRecord{name: string(text[:n])}
			if RecordLen(d.Records()) != len(d.Records()) {
				return nil, fmt.Errorf("%q has several records", r.name)
			}
			if err := r.Decode(d.Records()); err != nil {
				return nil, fmt.Errorf("record of %q: %w", r.name, err)
			}
			all = append(all, r)
			shared := 0
			for shared < min(len(last), n) && last[shared] == r.name[shared] {
				shared++
			}
			column := make([]byte, 8)
			copy(column[2:], r.name[shared/6*6:])
			if want := uint64(62-shared/6)<<58 | binary.BigEndian.Uint64(column)<<10; d.Code() != want ||
				offsetCode(text[:n], shared) != want {
				return nil, fmt.Errorf("code %x of %q after %q, want %x", d.Code(), r.name, last, want)
			}
			last = r.name
		}
	}
}

// openObject writes data as a postings object of batch b of dataset 1 and opens it.
func openObject(tb testing.TB, data []byte, ff seekable.File) *Reader {
	tb.Helper()
	ctx := context.Background()
	store := blob.NewMemory()
	if _, err := store.Put(ctx, "postings", data, blob.Condition{}); err != nil {
		tb.Fatal(err)
	}
	r, err := Open(ctx, store, segment.BatchRef{DatasetID: 1, Batch: "b"}, lake.NewFrameObject("postings", ff))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// frameSource returns a source of a part with this one domain frame. All checksums of the object
// are right, and its directory has these numbers of domains and rows.
func frameSource(tb testing.TB, frame []byte, domains, rows int64) *Source {
	tb.Helper()
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, 0)
	if _, _, err := w.Frame(nil, frame); err != nil {
		tb.Fatal(err)
	}
	first := (rows + 1) / 2
	groups := []int64{first, rows - first}
	switch rows {
	case 0:
		groups = nil
	case 1:
		groups = groups[:1]
	}
	dir := directory{dataset: 1, batch: "b", parts: []Part{
		{Key: "p", Domains: domains, Rows: rows, Groups: groups, domainFrames: 1},
	}}
	if _, _, err := w.Frame(nil, dir.encode()); err != nil {
		tb.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return openObject(tb, buf.Bytes(), ff).Source(0, 7)
}

// A domain frame with right checksums is either rejected as corrupt or read as decodeFrame reads
// it.
func FuzzDomainFrame(f *testing.F) {
	for n := 1; n <= 4; n++ {
		w := NewWriter(&bytes.Buffer{}, 1, "b")
		rows := int64(0)
		for _, d := range tinyDomains()[:n] {
			if err := w.AddDomain([]byte(d.name), &d.totals); err != nil {
				f.Fatal(err)
			}
			rows += d.totals.Rows
		}
		if err := w.flush(); err != nil {
			f.Fatal(err)
		}
		f.Add(w.frame, int64(n), rows)
	}
	f.Fuzz(func(t *testing.T, frame []byte, domains, rows int64) {
		if len(frame) == 0 || domains < 0 || rows < 0 {
			return
		}
		s := frameSource(t, frame, domains, rows)
		defer s.Close()
		all, err := readSource(s)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		var got []domainTotals
		last := ""
		next := segment.Tuple{FileID: 7}
		for _, r := range all {
			if r.name <= last || len(r.name) > segment.MaxDomain {
				t.Fatalf("domain %q after %q", r.name, last)
			}
			last = r.name
			if err := r.Totals.Validate(); err != nil {
				t.Fatal(err)
			}
			got = append(got, domainTotals{r.name, r.Totals})
			sum := int64(0)
			for _, tuple := range r.Tuples {
				if tuple.RowGroup == 1 && next.RowGroup == 0 && next.FirstRow == (rows+1)/2 {
					next.RowGroup, next.FirstRow = 1, 0
				}
				if tuple.FileID != 7 || tuple.RowGroup != next.RowGroup || tuple.FirstRow != next.FirstRow {
					t.Fatalf("%q at %+v, want %+v", last, tuple, next)
				}
				next.FirstRow += tuple.Rows
				sum += tuple.Rows
			}
			if sum != r.Totals.Rows {
				t.Fatalf("%q has %d rows, its tuples %d", last, r.Totals.Rows, sum)
			}
		}
		want := decodeFrame(frame)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(domainTotals{})); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		sum := int64(0)
		for _, d := range want {
			sum += d.totals.Rows
		}
		if int64(len(want)) != domains || sum != rows {
			t.Fatalf("%d domains, %d rows, the directory has %d, %d", len(want), sum, domains, rows)
		}
	})
}

// decodeFrame decodes a valid domain frame as docs/formats/batch-postings.md describes it.
func decodeFrame(frame []byte) (all []domainTotals) {
	le := binary.LittleEndian
	n, rows, totals := int(le.Uint32(frame)), int(le.Uint32(frame[4:])), int(le.Uint32(frame[8:]))
	shared, rest := frame[12:12+n], frame[12+n:12+2*n]
	counts := bytes.NewReader(frame[12+2*n : 12+2*n+rows])
	measures := bytes.NewReader(frame[12+2*n+rows : 12+2*n+rows+totals])
	text := frame[12+2*n+rows+totals:]
	last := ""
	for i := range n {
		d := domainTotals{name: last[:shared[i]] + string(text[:rest[i]])}
		text = text[rest[i]:]
		v, _ := binary.ReadUvarint(counts)
		d.totals.Rows = int64(v)
		if totals > 0 {
			flags, _ := measures.ReadByte()
			if flags&1 != 0 {
				v, _ := binary.ReadUvarint(measures)
				d.totals.HasSize, d.totals.Size = true, int64(v)
			}
			if flags&2 != 0 {
				d.totals.HasTS = true
				d.totals.FirstTS, _ = binary.ReadVarint(measures)
				v, _ := binary.ReadUvarint(measures)
				d.totals.LastTS = d.totals.FirstTS + int64(v)
			}
		}
		all = append(all, d)
		last = d.name
	}
	return all
}

// largeFrames returns n domains with sizes and times, whose frames are larger than what is read at
// once, and a function that opens a source of them.
func largeFrames(tb testing.TB, n int) (all []domainTotals, open func() *Source) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(13, 13))
	var buf bytes.Buffer
	w := NewWriter(&buf, 1, "b")
	rows := int64(0)
	for i := range n {
		d := domainTotals{fmt.Sprintf("%06d.example", i), segment.Totals{
			Rows: 1 + rng.Int64N(300), HasSize: true, Size: rng.Int64N(1e9), HasTS: true, FirstTS: rng.Int64N(1e12),
		}}
		d.totals.LastTS = d.totals.FirstTS + rng.Int64N(1e12)
		if err := w.AddDomain([]byte(d.name), &d.totals); err != nil {
			tb.Fatal(err)
		}
		rows += d.totals.Rows
		all = append(all, d)
	}
	p := &lake.Part{Object: lake.Object{Key: "p", Bytes: 1}, Rows: rows}
	if err := w.EndPart(p, []int64{rows}, nil); err != nil {
		tb.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	r := openObject(tb, buf.Bytes(), ff)
	if _, size := r.frames.Range(0, 1); size <= readBytes {
		tb.Fatalf("a frame of %d bytes is read at once", size)
	}
	return all, func() *Source { return r.Source(0, 7) }
}

// Concurrent sources share the memory for frames that are larger than what is read at once.
func TestSourcesOfLargeFrames(t *testing.T) {
	want, open := largeFrames(t, 10_000)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			records, err := readSource(open())
			if err != nil || len(records) != len(want) {
				t.Errorf("%d domains, %v, want %d", len(records), err, len(want))
				return
			}
			for i, r := range records {
				if r.name != want[i].name || r.Totals != want[i].totals {
					t.Errorf("%q %+v, want %+v", r.name, r.Totals, want[i])
					return
				}
			}
		})
	}
	all.Wait()
}

// The memory of a merge is that of a thousand sources, with a few blocks of each.
func TestMemoryOfSources(t *testing.T) {
	_, open := largeFrames(t, 20_000)
	const n, blocksPerSource = 50, 3
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // pools release their memory in the second cycle
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var sources [n]*Source
	var blocks [n][blocksPerSource][]byte
	for i := range sources {
		sources[i] = open()
		for k := range 5 * blocksPerSource {
			b, err := sources[i].Load(context.Background(), blocks[i][k%blocksPerSource])
			if err != nil || b == nil {
				t.Fatal(k, err)
			}
			blocks[i][k%blocksPerSource] = b
		}
	}
	if each := (heap() - before) / n; each > 200_000 {
		t.Errorf("%d bytes a source, want at most 200,000", each)
	}
	runtime.KeepAlive(&blocks)
	blocks = [n][blocksPerSource][]byte{}
	var buf []byte
	for _, s := range sources {
		for more := true; more; more = len(buf) > 0 {
			var err error
			if buf, err = s.Load(context.Background(), buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A build keeps all sources until it ends.
	if each := (heap() - before) / n; each > 5000 {
		t.Errorf("%d bytes a source at its end, want at most 5,000", each)
	}
	runtime.KeepAlive(&sources)
}

// Open rejects the object of another batch.
func TestOpenRejectsAnotherBatch(t *testing.T) {
	var buf bytes.Buffer
	ff, err := NewWriter(&buf, 1, "b").Finish()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	store := blob.NewMemory()
	if _, err := store.Put(ctx, "postings", buf.Bytes(), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	own := segment.BatchRef{DatasetID: 1, Batch: "b"}
	for _, ref := range []segment.BatchRef{own, {DatasetID: 2, Batch: "b"}, {DatasetID: 1, Batch: "c"}} {
		var d *DamageError
		_, err := Open(ctx, store, ref, lake.NewFrameObject("postings", ff))
		if errors.As(err, &d) != (ref != own) || ref == own && err != nil {
			t.Errorf("%+v: %v", ref, err)
		}
	}
}

// codeDomain returns a domain of few different bytes, zero and 0xff among them. It often has the
// length of whole columns, or one more or less.
func codeDomain(rng *rand.Rand) []byte {
	n := columnBytes*rng.IntN(segment.MaxDomain/columnBytes+1) + rng.IntN(3) - 1
	if rng.IntN(3) > 0 {
		n = rng.IntN(20)
	}
	b := bytes.Repeat([]byte{[]byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]}, min(max(n, 1), segment.MaxDomain))
	for range rng.IntN(3) {
		b[len(b)-1-rng.IntN(min(len(b), 8))] = []byte{0, 1, 'a', 0xfe, 0xff}[rng.IntN(5)]
	}
	return b
}

// Codes do not depend on the bytes after a domain, leave the low bits free, are not 0 and are less
// than 63<<58.
func TestOffsetCode(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	least := uint64(math.MaxUint64)
	for range 200_000 {
		d := codeDomain(rng)
		shared := rng.IntN(len(d))
		code := offsetCode(d, shared)
		padded := append(bytes.Clone(d), bytes.Repeat([]byte{byte(rng.Uint32())}, BlockSlack)...)
		if fast := OffsetCode(padded, len(d), shared); fast != code {
			t.Fatalf("%x with %d shared bytes: codes %x and %x", d, shared, code, fast)
		}
		if code%(1<<CodeFreeBits) != 0 || code >= 63<<columnBits {
			t.Fatalf("%x with %d shared bytes: code %x", d, shared, code)
		}
		if got := SharedBytes(code); got > shared || got <= shared-columnBytes {
			t.Fatalf("%x with %d shared bytes: the code says %d", d, shared, got)
		}
		least = min(least, code)
	}
	if least == 0 {
		t.Error("a code is 0")
	}
	if most := offsetCode(bytes.Repeat([]byte{0xff}, segment.MaxDomain), 0); most >= 63<<columnBits {
		t.Errorf("the largest code is %x", most)
	}
}
