package row

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/urlnorm"
)

// checkAddParsed adds URLs to two buffers, one by one and with AddParsed, and compares the buffers.
// It empties both when they are full.
func checkAddParsed(tb testing.TB, budget int64, first uint32, urls []urlnorm.Parsed) {
	tb.Helper()
	each, many := NewBuffer(budget), NewBuffer(budget)
	defer each.Release()
	defer many.Release()
	for len(urls) > 0 {
		many.groupWidth = 1
		added := many.AddParsed(first, urls)
		if added > 0 && many.groupWidth != 0 {
			tb.Fatal("the buffer still counts as sorted after rows were added")
		}
		for i := range urls[:added] {
			p := &urls[i]
			if each.Full() || p.Kind == urlnorm.OtherOrigin {
				tb.Fatalf("%d rows added, want %d", added, i)
			}
			if err := each.AddPlain(first+p.Origin, p.PathQuery, p.Kind == urlnorm.HTTPSOrigin); err != nil {
				tb.Fatal(err)
			}
		}
		if full := each.Full(); full != many.Full() {
			tb.Fatalf("full %v, want %v", many.full, full)
		}
		if each.used != many.used || each.len != many.len {
			tb.Fatalf("%d rows of %d bytes, want %d of %d", many.len, many.used, each.len, each.used)
		}
		switch urls = urls[added:]; {
		case each.Full():
			checkBlocks(tb, each, many)
			each.empty()
			many.empty()
		case len(urls) > 0:
			if p := &urls[0]; p.Kind != urlnorm.OtherOrigin && len(p.PathQuery) <= MaxKey-maxHost {
				tb.Fatalf("a row of kind %d with %d bytes was not added", p.Kind, len(p.PathQuery))
			}
			urls = urls[1:]
		}
	}
	checkBlocks(tb, each, many)
}

// checkBlocks checks that two buffers have the same rows in the same order.
func checkBlocks(tb testing.TB, x, y *Buffer) {
	tb.Helper()
	x.closeBlock()
	y.closeBlock()
	if !bytes.Equal(slices.Concat(x.blocks...), slices.Concat(y.blocks...)) {
		tb.Fatal("the buffers have different rows")
	}
	for i := range max(len(x.counts), len(y.counts)) {
		var c, d hostCount
		if i < len(x.counts) {
			c = x.counts[i]
		}
		if i < len(y.counts) {
			d = y.counts[i]
		}
		if c != d {
			tb.Fatalf("host %d has counts %v and %v", i, c, d)
		}
	}
}

func TestAddParsedIsAddPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := bytes.Repeat([]byte("/some/path-of-text.html?x=y&"), 1000)
	for _, size := range []int{200, 5000, 20_000} {
		var urls []urlnorm.Parsed
		for i := range 20_000 {
			n := 1 + i%(size/10)
			if i%50 == 0 {
				n = 1 + r.IntN(size)
			}
			from := r.IntN(28)
			p := urlnorm.Parsed{PathQuery: text[from : from+n], Origin: r.Uint32N(1000), Kind: urlnorm.OriginKind(1 + r.IntN(2))}
			if r.IntN(40) == 0 {
				p.Kind = urlnorm.OtherOrigin
			}
			urls = append(urls, p)
		}
		for _, budget := range []int64{1, 50_000, 1 << 20, 1 << 30} {
			for some := range slices.Chunk(urls, 1+r.IntN(3000)) {
				checkAddParsed(t, budget, r.Uint32N(5), some)
			}
			checkAddParsed(t, budget, 7, urls)
		}
	}
	checkAddParsed(t, 1<<30, 0, []urlnorm.Parsed{{PathQuery: make([]byte, MaxKey), Kind: urlnorm.HTTPOrigin}})
}

// The row that makes a buffer full is the last, also if the rows fill the budget to the byte.
func TestAddParsedStopsWhenFull(t *testing.T) {
	path := bytes.Repeat([]byte("/"), 4<<10)
	urls := slices.Repeat([]urlnorm.Parsed{{PathQuery: path, Kind: urlnorm.HTTPOrigin}}, 20)
	for _, rows := range []int{1, 2, 10} {
		checkAddParsed(t, int64(rows*(len(path)+rowOverhead+sortOverhead)), 0, urls)
	}
}

// Memory to sort in is counted for the rows of large hosts alone, also if a host has several
// numbers. Little of the budget stays unused.
func TestFullCountsMemoryToSortIn(t *testing.T) {
	const budget, path = 1 << 20, "/a/path/of/thirty/two/characters"
	const perRow = len(path) + rowOverhead
	for _, c := range []struct {
		name   string
		hosts  int // rows are divided among them evenly
		memory int // of a row
	}{
		{"one host", 1, perRow + sortOverhead},
		{"a host with several numbers", 8, perRow + sortOverhead},
		{"many hosts", 1000, perRow},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBuffer(budget)
			defer b.Release()
			for i := 0; !b.Full(); i++ {
				if err := b.AddPlain(uint32(i%c.hosts), []byte(path), true); err != nil {
					t.Fatal(err)
				}
			}
			if most := budget/c.memory + 1; b.Len() > most || b.Len() < most-most/fullShare {
				t.Errorf("full with %d rows, want %d or little less", b.Len(), most)
			}
			for i := range c.hosts {
				b.PlainHost("a.example", fmt.Sprint(i, ".a.example"), uint64(i))
			}
			b.empty()
			if err := b.AddPlain(0, []byte(path), true); err != nil || b.Full() {
				t.Errorf("an emptied buffer is full: %v, %v", b.Full(), err)
			}
		})
	}
}

// AddParsed reads nothing outside of paths and writes nothing outside of the slab.
func TestAddParsedStaysInMemory(t *testing.T) {
	text := testenv.Guarded(t, 5000)
	for i := range text {
		text[i] = "/abcdefghijklmnopqrstuvwxyz"[i%27]
	}
	var urls []urlnorm.Parsed
	for n := 1; n <= len(text); n += 1 + n/100 {
		urls = append(urls, urlnorm.Parsed{PathQuery: text[len(text)-n:], Origin: uint32(n), Kind: urlnorm.HTTPSOrigin})
	}
	each := NewBuffer(1 << 30)
	defer each.Release()
	for _, p := range urls {
		if err := each.AddPlain(p.Origin, p.PathQuery, true); err != nil {
			t.Fatal(err)
		}
	}
	for size := vectorSlack - 1; size < 40<<10; size += 997 {
		many := NewBuffer(1 << 30)
		many.open = testenv.Guarded(t, size)[:0]
		if added := many.AddParsed(0, urls); added != len(urls) {
			t.Fatalf("%d rows of %d added", added, len(urls))
		}
		checkBlocks(t, each, many)
		many.Release()
	}
}

// nameSink collects the names of hosts.
type nameSink []string

func (s *nameSink) Rows(hosts []SortedHost, rows []SortedRow) (int, error) {
	for _, h := range hosts {
		*s = append(*s, h.Host+" "+h.Domain)
	}
	return len(rows), nil
}

// After names that fill a slab to its last byte, another name, and an empty one, still have
// offsets.
func TestNamesFillSlabs(t *testing.T) {
	for _, last := range []string{"", "z"} {
		b := NewBuffer(1 << 30)
		defer b.Release()
		var want nameSink
		names := slices.Repeat([]string{""}, bufferSlab/maxHost)
		for i := range names {
			names[i] = fmt.Sprintf("%0*d", maxHost, i)
		}
		for i, name := range append(names, last) {
			if _, err := b.Host("", name, 0); err != nil {
				t.Fatal(err)
			}
			if err := b.AddPlain(uint32(i), []byte("/"), true); err != nil {
				t.Fatal(err)
			}
			want = append(want, name+" ")
		}
		slices.Sort(want)
		var got nameSink
		if err := b.Rows(context.Background(), 0, Partitions-1, &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d hosts before %q, want %d; %v", len(got), last, len(want), err)
		}
	}
}

// Rows of an unknown host panic before assembly uses the host's number.
func TestRowsOfUnknownHostsPanic(t *testing.T) {
	b := NewBuffer(1 << 20)
	b.PlainHost("a.example", "a.example", 0)
	for host := range uint32(2) {
		if err := b.AddPlain(host, []byte("/"), true); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if p := recover(); p != "row: a buffer of 1 hosts has rows of host 1" {
			t.Errorf("panic: %v", p)
		}
	}()
	_ = b.Rows(context.Background(), 0, Partitions-1, new(nameSink))
}

// Offsets of names have 32 bits, so a load with more names fails.
func TestLoadOfTooManyNamesFails(t *testing.T) {
	ctx, store := context.Background(), blob.NewMemory()
	b := NewBuffer(1 << 20)
	defer b.Release()
	b.PlainHost("a.example", "a.example", urlnorm.DomainID("a.example"))
	if err := b.AddPlain(0, []byte("/"), true); err != nil {
		t.Fatal(err)
	}
	f, err := writeShuffleFile(ctx, b, store, "f")
	if err != nil {
		t.Fatal(err)
	}
	s, err := openShuffle(ctx, store, []ShuffleFile{f})
	if err != nil {
		t.Fatal(err)
	}
	b.names = make([][]byte, 1<<(32-chunkBits))
	if err := b.load(ctx, s, 0, Partitions-1, nil); err == nil || b.Len() != 0 {
		t.Errorf("%d rows, %v", b.Len(), err)
	}
}

// A load uses few read buffers, however many files it reads.
func TestLoadOfManyFilesUsesFewBuffers(t *testing.T) {
	const files = 100
	ctx, store := context.Background(), blob.NewMemory()
	id := urlnorm.DomainID("a.example")
	var list []ShuffleFile
	for i := range files {
		b := NewBuffer(1 << 20)
		b.PlainHost("a.example", "a.example", id)
		if err := b.AddPlain(0, fmt.Appendf(nil, "/%d", i), true); err != nil {
			t.Fatal(err)
		}
		f, err := writeShuffleFile(ctx, b, store, fmt.Sprintf("f%d", i))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
		b.Release()
	}
	made, makeBuffer := atomic.Int64{}, shuffleBuffers.New
	defer func() { shuffleBuffers.New = makeBuffer }()
	shuffleBuffers.New = func() any { made.Add(1); return makeBuffer() }
	for _, partitions := range []int{1, Partitions} {
		s, err := openShuffle(ctx, store, list)
		if err != nil {
			t.Fatal(err)
		}
		b := NewBuffer(1 << 30)
		first := int(id>>56) / partitions * partitions
		if err := b.load(ctx, s, byte(first), byte(first+partitions-1), nil); err != nil || b.Len() != files {
			t.Fatalf("%d rows, %v", b.Len(), err)
		}
		b.Release()
		if n := made.Swap(0); n > files/2 { // under the race detector a pool drops some
			t.Errorf("%d buffers for %d partitions of %d files", n, partitions, files)
		}
	}
}

// FuzzAddParsed compares AddParsed, and its assembly, with AddPlain.
func FuzzAddParsed(f *testing.F) {
	f.Add([]byte("abcdefgh\x80\xffABC"), uint16(1000), uint16(3))
	f.Fuzz(func(t *testing.T, data []byte, budget, first uint16) {
		var urls []urlnorm.Parsed
		for i := 0; i+1 < len(data); i++ {
			n := int(data[i]) + int(data[i+1])<<(data[i]%6)
			urls = append(urls, urlnorm.Parsed{
				PathQuery: bytes.Repeat(data, 1+n/len(data))[:n],
				Origin:    uint32(data[i+1]),
				Kind:      urlnorm.OriginKind(min(2, data[i]%16)),
			})
		}
		checkAddParsed(t, int64(budget)<<(first%12), uint32(first), urls)
	})
}

const benchmarkRows, benchmarkHosts = 2_000_000, 500_000

// fillBuffer adds rows of a few large hosts and many small ones to a buffer, in random order.
func fillBuffer(b *testing.B, buffer *Buffer, rows int, seed uint64) {
	r := rand.New(rand.NewPCG(11, seed))
	for i := range benchmarkHosts {
		domain := fmt.Sprintf("%x-site.example", uint32(i*2654435761))
		if _, err := buffer.Host(domain, "www."+domain, urlnorm.DomainID(domain)); err != nil {
			b.Fatal(err)
		}
	}
	for range rows {
		host := r.Uint32N(benchmarkHosts)
		if r.IntN(3) > 0 {
			host = r.Uint32N(1 + r.Uint32N(1+r.Uint32N(benchmarkHosts)))
		}
		path := fmt.Appendf(nil, "/archive/%d/%02d/articles/%x.html", 2000+r.IntN(24), r.IntN(12), r.Uint32())
		if err := buffer.AddPlain(host, path[r.IntN(2)*8:], r.IntN(100) > 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRows sorts rows in memory that is much larger than a core's caches.
func BenchmarkRows(b *testing.B) {
	buffer := NewBuffer(1 << 30)
	defer buffer.Release()
	fillBuffer(b, buffer, benchmarkRows, 12)
	for b.Loop() {
		buffer.groupWidth = 0
		if err := buffer.Rows(context.Background(), 0, 255, &pathSink{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchmarkRows, "ns/row")
}

// BenchmarkAddParsed adds rows of many hosts in random order.
func BenchmarkAddParsed(b *testing.B) {
	r := rand.New(rand.NewPCG(11, 12))
	text := bytes.Repeat([]byte("/archive/2000/02/articles.html?"), 100)
	urls := make([]urlnorm.Parsed, 1<<17)
	for i := range urls {
		urls[i] = urlnorm.Parsed{
			PathQuery: text[:20+r.IntN(60)], Origin: r.Uint32N(benchmarkHosts), Kind: urlnorm.HTTPSOrigin,
		}
	}
	buffer := NewBuffer(1 << 30)
	defer buffer.Release()
	for b.Loop() {
		buffer.empty()
		for range 8 {
			for i := 0; i < len(urls); i += 256 {
				if n := buffer.AddParsed(0, urls[i:i+256]); n != 256 {
					b.Fatal("not all rows were added")
				}
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(8*len(urls)), "ns/row")
}

// BenchmarkLoadedRows loads and sorts the rows of shuffle files.
func BenchmarkLoadedRows(b *testing.B) {
	ctx := context.Background()
	store, err := blob.NewLocal(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	buffer := NewBuffer(1 << 30)
	defer buffer.Release()
	var files []ShuffleFile
	for i := range 4 {
		fillBuffer(b, buffer, benchmarkRows/4, uint64(i))
		f, err := writeShuffleFile(ctx, buffer, store, fmt.Sprintf("staging/%d", i))
		if err != nil {
			b.Fatal(err)
		}
		files = append(files, f)
	}
	s, err := openShuffle(ctx, store, files)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		for p := range 4 {
			if err := buffer.load(ctx, s, byte(p<<6), byte(p<<6|63), nil); err != nil {
				b.Fatal(err)
			}
			if err := buffer.Rows(ctx, byte(p<<6), byte(p<<6|63), &pathSink{}); err != nil {
				b.Fatal(err)
			}
			buffer.empty()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchmarkRows, "ns/row")
}

// BenchmarkWriteShuffle writes shuffle files to nowhere.
func BenchmarkWriteShuffle(b *testing.B) {
	buffer := NewBuffer(1 << 30)
	defer buffer.Release()
	fillBuffer(b, buffer, benchmarkRows, 12)
	for b.Loop() {
		w := shuffleWriters.Get().(*shuffleWriter)
		w.w = seekable.NewWriter(io.Discard, 0)
		if _, err := w.write(context.Background(), buffer); err != nil {
			b.Fatal(err)
		}
		w.release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchmarkRows, "ns/row")
}

// pathSink copies paths as a part writer does.
type pathSink struct{ a, b []byte }

func (s *pathSink) Rows(hosts []SortedHost, rows []SortedRow) (int, error) {
	records := len(rows)
	for _, h := range hosts {
		s.a = s.a[:0]
		for i := range rows[:h.Rows] {
			path := rows[i].Path
			if len(s.b) >= 256<<10 {
				s.b = s.b[:0]
			}
			shared := codec.CommonPrefix(s.a, path)
			s.a, s.b = append(s.a[:shared], path[shared:]...), append(s.b, path[shared:]...)
		}
		rows = rows[h.Rows:]
	}
	return records, nil
}
