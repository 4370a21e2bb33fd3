package postings

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
)

// entry is a domain with its record, as a list of domains has it.
type entry struct {
	Domain string
	Record Record
}

// listOf reads all blocks of a list.
func listOf(t *testing.T, load func(ctx context.Context, buf []byte) ([]byte, error)) []entry {
	t.Helper()
	var all []entry
	last := []byte{}
	for {
		block, err := load(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if block == nil {
			return all
		}
		for at := 0; at < len(block)-BlockSlack; at += BlockDomain(block[at:]).Len() {
			d := BlockDomain(block[at:])
			text, n := d.Text()
			same := 0
			for same < min(len(last), n) && last[same] == text[same] {
				same++
			}
			if want := OffsetCode(text, n, same); d.Code() != want {
				t.Fatalf("%q after %q: code %x, want %x", text[:n], last, d.Code(), want)
			}
			last = bytes.Clone(text[:n])
			e := entry{Domain: string(last)}
			if err := e.Record.Decode(d.Records()); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
	}
}

// Ranges of a part, whatever is guessed about where they begin, are together the whole part, and
// have its rows once a Relocator has found out where they are.
func TestRangeSource(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	names := map[string]bool{}
	for len(names) < 24_000 {
		names[fmt.Sprintf("%c%x.example%d.test", 'a'+byte(rng.IntN(4)*rng.IntN(4)), rng.Uint32()>>8, rng.IntN(3))] = true
	}
	var sorted []string
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	var buf bytes.Buffer
	w := NewWriter(&buf, 1, "b")
	groups := []int64{}
	rows := int64(0)
	for i, name := range sorted {
		totals := segment.Totals{Rows: 1 + int64(rng.IntN(3))}
		if i%1000 == 0 {
			totals.Rows = 5000 // in several row groups
		}
		if i > 12_000 && i%7 == 0 {
			totals.HasSize, totals.Size = true, int64(i)
		}
		if err := w.AddDomain([]byte(name), &totals); err != nil {
			t.Fatal(err)
		}
		rows += totals.Rows
	}
	for left := rows; left > 0; left -= groups[len(groups)-1] {
		groups = append(groups, min(left, 1500))
	}
	if err := w.EndPart(&lake.Part{Object: lake.Object{Key: "p"}, Rows: rows}, groups, nil); err != nil {
		t.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	if _, err := store.Put(t.Context(), "o", buf.Bytes(), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), store, segment.BatchRef{DatasetID: 1, Batch: "b"}, lake.NewFrameObject("o", ff))
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Parts()[0].domainFrames; n < 8 {
		t.Fatalf("%d frames", n)
	}
	want := listOf(t, r.Source(0, 7).Load)
	var ends []int64
	end := int64(0)
	for _, n := range groups {
		end += n
		ends = append(ends, end)
	}
	for _, cuts := range [][]string{
		{},
		{"0"},
		{"zzz"},
		{sorted[0], sorted[1], sorted[1] + "0", sorted[len(sorted)-1]},
		{"a", "a8", "b", "bb", "d", "e", "e000", "j1", "k"},
		{sorted[4000], sorted[8000], sorted[12_000], sorted[20_000]},
	} {
		for _, guess := range []float64{-1, 0, 0.5, 0.9, 1} {
			var got []entry
			var relocator Relocator
			base, domains := int64(0), int64(0)
			for i := 0; i <= len(cuts); i++ {
				var from, until []byte
				g := guess
				if g < 0 {
					g = float64(i) / float64(len(cuts)+1)
				}
				if i > 0 {
					from = []byte(cuts[i-1])
				}
				if i < len(cuts) {
					until = []byte(cuts[i])
				}
				s := r.RangeSource(0, 7, from, until, g)
				part := listOf(t, s.Load)
				share := s.Share()
				for n := range part {
					rec := &part[n].Record
					out, err := relocator.Append(nil, rec.Append(nil), func(uint32) (int64, []int64) { return base - share.First, ends })
					if err == nil {
						err = rec.Decode(out)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				base += share.Rows
				domains += share.Domains
				got = append(got, part...)
			}
			if domains != int64(len(want)) || base != rows {
				t.Errorf("cuts %q, guess %v: %d domains, %d rows, want %d, %d", cuts, guess, domains, base, len(want), rows)
			}
			if !slices.EqualFunc(want, got, func(a, b entry) bool {
				return a.Domain == b.Domain && a.Record.Totals == b.Record.Totals && slices.Equal(a.Record.Tuples, b.Record.Tuples)
			}) {
				t.Errorf("cuts %q, guess %v: other domains or rows", cuts, guess)
			}
		}
	}
}

// Samples are domains of the part, near to where they are asked for.
func TestSample(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, 1, "b")
	const domains = 20_000
	for i := range domains {
		if err := w.AddDomain(fmt.Appendf(nil, "site%06d.test", i), &segment.Totals{Rows: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.EndPart(&lake.Part{Object: lake.Object{Key: "p"}, Rows: domains}, []int64{domains}, nil); err != nil {
		t.Fatal(err)
	}
	ff, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	store := blob.NewMemory()
	if _, err := store.Put(t.Context(), "o", buf.Bytes(), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), store, segment.BatchRef{DatasetID: 1, Batch: "b"}, lake.NewFrameObject("o", ff))
	if err != nil {
		t.Fatal(err)
	}
	frame := int64(domains / r.Parts()[0].domainFrames)
	for _, i := range []int64{0, 1, 777, domains / 2, domains - 1} {
		got, err := r.Sample(t.Context(), 0, i)
		var n int64
		if err == nil {
			_, err = fmt.Sscanf(string(got), "site%06d.test", &n)
		}
		if err != nil || n < i-2*frame || n > i+2*frame {
			t.Errorf("sample %d is %q, %v", i, got, err)
		}
	}
	if _, err := r.Sample(t.Context(), 0, domains); err == nil {
		t.Error("a sample after the last domain")
	}
}
