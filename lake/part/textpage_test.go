package part

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/encoding/delta"

	"github.com/urlake/urlake/lake/codec"
)

// pageOf is a page of values, collected as rows that differ.
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

// runsOf is a page of values, collected as runs.
func runsOf(values []string) *textRuns {
	runs := new(textRuns)
	for i, v := range values {
		runs.set(i, v)
	}
	return runs
}

// FuzzTextPage writes any values, which text holds separated by line feeds.
func FuzzTextPage(f *testing.F) {
	f.Add("/\n/a\n/a/b\n/a/b\n/b\n", 1)
	f.Add("", 1)
	many := make([]string, 700)
	for i := range many {
		many[i] = strings.Repeat("x", i*i%150) + strconv.Itoa(i*i%11)
	}
	f.Add(strings.Join(many, "\n"), 1)
	f.Add("a\n\xff\n\u00e9", 200)
	f.Fuzz(func(t *testing.T, text string, repeat int) {
		var all []string
		for _, v := range strings.Split(text, "\n") {
			for range 1 + repeat&255 {
				all = append(all, v)
			}
		}
		if len(all) <= 1<<14 {
			checkWritten(t, all)
		}
	})
}

// checkWritten writes values as rows and as runs, which has to give the same bytes, and has
// parquet-go read them.
func checkWritten(t *testing.T, all []string) {
	t.Helper()
	page, last := pageOf(all)
	written := page.encoded()
	runs := runsOf(all)
	if asRuns := runs.encoded(len(all)); !bytes.Equal(asRuns, written) {
		t.Fatalf("as runs %q, as rows %q", asRuns, written)
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
	values, ends, err := (&delta.ByteArrayEncoding{}).DecodeByteArray(nil, written, nil)
	if err != nil || len(ends) != len(all)+1 {
		t.Fatalf("parquet-go reads %d offsets of %d values: %v", len(ends), len(all), err)
	}
	for i, want := range all {
		if got := string(values[ends[i]:ends[i+1]]); got != want {
			t.Fatalf("parquet-go reads value %d as %q, want %q", i, got, want)
		}
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

// BenchmarkTextPage encodes the lengths of a page of real paths.
func BenchmarkTextPage(b *testing.B) {
	var paths []string
	for _, r := range realRows(b)[:PageRows] {
		paths = append(paths, r.PathQuery)
	}
	page, _ := pageOf(paths)
	var dst []byte
	for b.Loop() {
		dst, _ = page.appendLengths(dst[:0])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(paths)), "ns/row")
}

func TestTextPageNoticesWhatIsNotUTF8(t *testing.T) {
	pieces := []string{"", "a", "abcdefgh", "é", "\U0001f600", "\xc3", "\xa9", "\xff", "\xf0\x9f"}
	rng := rand.New(rand.NewPCG(23, 1))
	for range 20_000 {
		var before, v string
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
