package partwriter

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go/encoding/delta"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/partreader"
)

// Packed lengths are what parquet-go reads, and what it writes is read.
func TestDeltaPackedAgreesWithParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 1))
	for n := range 400 {
		values := make([]int32, n)
		for i := range values {
			switch n % 4 {
			case 0:
				values[i] = rng.Int32N(60)
			case 1:
				values[i] = int32(rng.Uint32())
			case 2:
				values[i] = int32(n)
			case 3:
				values[i] = []int32{math.MinInt32, math.MaxInt32, 0, -1}[rng.IntN(4)]
			}
		}
		packed := appendDeltaPacked(nil, values)
		byOther, err := (&delta.BinaryPackedEncoding{}).DecodeInt32(nil, packed)
		if err != nil {
			t.Fatalf("%d values: parquet-go: %v", n, err)
		}
		if !slices.Equal(byOther, values) {
			t.Fatalf("%d values: %s", n, cmp.Diff(values, byOther))
		}
		other, err := (&delta.BinaryPackedEncoding{}).EncodeInt32(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range [][]byte{packed, other} {
			got, rest, ok := partreader.ReadDeltaPacked(nil, append(slices.Clip(data), "rest"...), n)
			if !ok || string(rest) != "rest" || !slices.Equal(got, values) {
				t.Fatalf("%d values: read %v, %q behind them: %s", n, ok, rest, cmp.Diff(values, got))
			}
			for cut := range data {
				if _, _, ok := partreader.ReadDeltaPacked(nil, data[:cut], n); ok {
					t.Fatalf("%d values read from %d of %d bytes", n, cut, len(data))
				}
			}
		}
	}
}

// pageOf is a page of values, as rows that differ.
func pageOf(values []string) (*textPage, []byte) {
	page := new(textPage)
	var last []byte
	for i, v := range values {
		prefix := 0
		if i == 0 {
			page.open(v)
		} else if prefix = codec.CommonPrefix(last, []byte(v)); v < string(last) {
			page.descend(last, []byte(v))
		}
		page.add([]byte(v), prefix)
		last = []byte(v)
	}
	return page, last
}

func (t *textPage) encoded() []byte {
	lengths, _ := t.appendLengths(nil)
	return append(lengths, t.bytes...)
}

func (t *textRuns) encoded(rows int) []byte {
	return append(t.appendLengths(nil, rows), t.bytes...)
}

// runsOf is a page of values, as runs.
func runsOf(values []string) *textRuns {
	runs := new(textRuns)
	for i, v := range values {
		runs.set(i, v)
	}
	return runs
}

// FuzzTextPage gives the decoder any bytes, and writes what it reads: the same values must come back, in other libraries too.
func FuzzTextPage(f *testing.F) {
	page, _ := pageOf([]string{"/", "/a", "/a/b", "/a/b", "/b", ""})
	f.Add(page.encoded(), 6, 1, 4)
	f.Add([]byte{}, 0, 0, 0)
	many := make([]string, 700)
	for i := range many {
		many[i] = strings.Repeat("x", i*i%150) + strconv.Itoa(i*i%11)
	}
	page, _ = pageOf(many)
	f.Add(page.encoded(), len(many), 1, 400)
	f.Fuzz(func(t *testing.T, data []byte, n, lo, hi int) {
		if n < 0 || n > 1000 || lo < 0 || lo > hi || hi > n {
			return
		}
		var d partreader.PageDecoder
		var all, some []string
		ok := d.AppendStrings(&all, data, nil, n, 0, n)
		if d.AppendStrings(&some, data, nil, n, lo, hi) != ok && len(data) < 1<<10 {
			t.Fatalf("all rows: %v, rows %d to %d otherwise", ok, lo, hi)
		}
		if !ok {
			return
		}
		if !slices.Equal(some, all[lo:hi]) {
			t.Fatalf("rows %d to %d: %q, want %q", lo, hi, some, all[lo:hi])
		}
		checkWritten(t, all)
	})
}

// checkWritten writes values as rows and as runs, which has to give the same bytes, and reads them back.
func checkWritten(t *testing.T, all []string) {
	t.Helper()
	page, last := pageOf(all)
	written := page.encoded()
	runs := runsOf(all)
	if asRuns := runs.encoded(len(all)); !bytes.Equal(asRuns, written) {
		t.Fatalf("as runs %q, as rows %q", asRuns, written)
	}
	var again []string
	if !new(partreader.PageDecoder).AppendStrings(&again, written, nil, len(all), 0, len(all)) || !slices.Equal(all, again) {
		t.Fatalf("written %q, read %q", all, again)
	}
	if len(all) == 0 {
		return
	}
	valid := !slices.ContainsFunc(all, func(v string) bool { return !utf8.ValidString(v) })
	if page.valid() != valid || runs.valid() != valid {
		t.Fatalf("%q: valid %v and %v", all, page.valid(), runs.valid())
	}
	if low, high := page.bounds(last); string(low) != slices.Min(all) || string(high) != slices.Max(all) {
		t.Fatalf("bounds of %q: %q, %q", all, low, high)
	}
	if low, high := runs.bounds(runs.last); string(low) != slices.Min(all) || string(high) != slices.Max(all) {
		t.Fatalf("bounds of %q as runs: %q, %q", all, low, high)
	}
	values, _, err := (&delta.ByteArrayEncoding{}).DecodeByteArray(nil, written, nil)
	if err != nil || string(values) != strings.Join(all, "") {
		t.Fatalf("parquet-go reads %q of %q: %v", values, all, err)
	}
}

// Runs of any length, values short and long, pages of few and many rows.
func TestTextPageAsRunsAndRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 1))
	for range 2000 {
		n := rng.IntN(3 * byteLengths)
		longest := []int{3, 20, 130, 400}[rng.IntN(4)]
		run := 1 + rng.IntN(1<<rng.IntN(10))
		all := make([]string, n)
		v := ""
		for i := range all {
			if rng.IntN(run) == 0 {
				v = v[:rng.IntN(len(v)+1)] + strings.Repeat(string(rune('a'+rng.IntN(26))), rng.IntN(longest))
				v = v[:min(len(v), longest)]
			}
			all[i] = v
		}
		checkWritten(t, all)
	}
}

func BenchmarkTextPage(b *testing.B) {
	var paths []string
	for _, r := range realRows(b)[:part.PageRows] {
		paths = append(paths, r.PathQuery)
	}
	page, _ := pageOf(paths)
	values := page.encoded()
	n := len(page.prefixes)
	b.Run("lengths", func(b *testing.B) {
		for b.Loop() {
			page.appendLengths(nil)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
	})
	b.Run("decode", func(b *testing.B) {
		var d partreader.PageDecoder
		var out []string
		for b.Loop() {
			out = out[:0]
			if !d.AppendStrings(&out, values, nil, n, 0, n) {
				b.Fatal("not read")
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/row")
		b.SetBytes(int64(binary.Size(values)))
	})
}

func TestTextPageNoticesWhatIsNotUTF8(t *testing.T) {
	pieces := []string{"", "a", "abcdefgh", "é", "\U0001f600", "\xc3", "\xa9", "\xff", "\xf0\x9f"}
	rng := rand.New(rand.NewPCG(23, 1))
	for range 20_000 {
		before, v := "", ""
		for range rng.IntN(4) {
			before += pieces[rng.IntN(5)]
		}
		v = before[:rng.IntN(len(before)+1)]
		for range rng.IntN(3) {
			v += pieces[rng.IntN(len(pieces))]
		}
		page, _ := pageOf([]string{before, v})
		runs := runsOf([]string{before, v})
		if want := utf8.ValidString(v); page.valid() != want || runs.valid() != want {
			t.Fatalf("%q after %q: valid %v, %v", v, before, page.valid(), runs.valid())
		}
	}
}
