package zstdtext

import (
	"bytes"
	"fmt"
	"github.com/urlake/urlake/lake/seekable"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedLines are names with a few endings.
func sortedLines(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	var all []string
	for range n {
		name := ""
		for range 1 + rng.IntN(12) {
			name += string("abcdeiorst"[rng.IntN(10)])
		}
		all = append(all, name+[]string{".com", ".de", ".co.uk", ".example", ""}[rng.IntN(5)])
	}
	slices.Sort(all)
	var text []byte
	for _, name := range slices.Compact(all) {
		text = append(append(text, name...), '\n')
	}
	return text
}

// lineTexts are sorted lines and texts that are none.
func lineTexts() map[string][]byte {
	all := texts()
	for _, n := range []int{1, 2, 3, 10, 1000, 60_000} {
		all[fmt.Sprint(n, " sorted lines")] = sortedLines(uint64(n), n)
	}
	all["no last end"] = bytes.TrimSuffix(sortedLines(7, 500), []byte("\n"))
	all["ends only"] = bytes.Repeat([]byte("\n"), 300)
	all["equal lines"] = bytes.Repeat([]byte("abcdefgh.com\n"), 500)
	all["equal short lines"] = bytes.Repeat([]byte("a\n"), seekable.MaxRawBlock)
	all["a longer line each"] = func() (text []byte) {
		for i := range 600 {
			text = append(append(text, bytes.Repeat([]byte("ab"), i)...), "\n"...)
		}
		return text
	}()
	return all
}

func TestLinesAreReadByOthers(t *testing.T) {
	dec := newDecoder(t)
	var e Encoder
	for name, text := range lineTexts() {
		frame := e.AppendLines(nil, text)
		check(t, dec, frame, nil, text)
		if t.Failed() {
			t.Fatal(name)
		}
		if most := len(text) + 9 + 3*(2+len(text)/seekable.MaxRawBlock); len(frame) > most {
			t.Errorf("%s: %d bytes became %d", name, len(text), len(frame))
		}
		if got, want := e.Append(nil, nil, text), new(Encoder).Append(nil, nil, text); !bytes.Equal(got, want) {
			t.Fatalf("%s: other text is written in another way after lines", name)
		}
	}
}

// Of sorted lines less is left than of any text.
func TestSortedLinesAreSmall(t *testing.T) {
	text := sortedLines(3, 1500)
	var e Encoder
	if lines, other := len(e.AppendLines(nil, text)), len(e.Append(nil, nil, text)); lines > other {
		t.Errorf("%d bytes became %d as lines, %d as other text", len(text), lines, other)
	}
}

func TestMatchesOfLinesAreTrue(t *testing.T) {
	for name, text := range lineTexts() {
		e := Encoder{line: lineFinder{on: true}}
		for from := 0; from < len(text); from += seekable.MaxRawBlock {
			to := min(len(text), from+seekable.MaxRawBlock)
			end := from
			for _, m := range e.parse(text[:to], from) {
				start, stop, d := int(m.start), int(m.end), int(m.distance)
				if start < end || stop < start+minMatch || stop > to || d < 1 || d > start || !bytes.Equal(text[start:stop], text[start-d:stop-d]) {
					t.Fatalf("%s: match %+v after %d", name, m, end)
				}
				end = stop
			}
		}
	}
}

func FuzzAppendLines(f *testing.F) {
	f.Add([]byte("a.com\nab.com\nabc.com\nabcd.de\nabcde.com\n"), uint16(3))
	f.Add(sortedLines(1, 40), uint16(1))
	f.Add(sortedLines(2, 300), uint16(32))
	dec := newDecoder(f)
	var used Encoder
	f.Fuzz(func(t *testing.T, text []byte, times uint16) {
		text = varied(text, int(times))
		frame := used.AppendLines(nil, text)
		check(t, dec, frame, nil, text)
		if !bytes.Equal(new(Encoder).AppendLines(nil, text), frame) {
			t.Fatal("another encoder writes something else")
		}
	})
}
