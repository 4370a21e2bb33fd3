package indextest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/urlnorm"
)

// SyntheticLake writes batches that have postings but no parts, with about as many pairs of domain
// and dataset, distributed as in large lakes. Each dataset has a random share of the domains, in 16
// parts; the number of a domain's rows follows a power law. If totals, domains have sizes and
// times. Segments of them are built with Options.SkipPageKeys.
func SyntheticLake(tb testing.TB, store blob.Store, domains, datasets, pairs int, totals bool) []segment.BatchRef {
	tb.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	names := make([]string, domains)
	for i := range names {
		// About as long, and with prefixes as long in common, as registered names.
		names[i] = syllables(rng) + []string{".com", ".org", ".de", ".co.uk", ".net"}[rng.IntN(5)]
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var refs []segment.BatchRef
	for dataset := uint32(1); dataset <= uint32(datasets); dataset++ {
		b := &lake.Batch{
			Format: lake.BatchFormat, DatasetID: dataset, Batch: "2026",
			CanonicalForm: "urlake-1", PublicSuffix: "test",
		}
		const parts, groupRows = 16, 1_000_000
		var in [parts][]string
		for _, name := range names {
			if rng.IntN(domains*datasets) < pairs {
				part := urlnorm.DomainID(name) >> 60
				in[part] = append(in[part], name)
			}
		}
		var buf bytes.Buffer
		w := postings.NewWriter(&buf, dataset, b.Batch)
		for i := range in {
			all := int64(0)
			for _, name := range in[i] {
				rows := 1 + int64(math.Min(1e6, math.Pow(rng.Float64(), -0.9)-1))
				t := segment.Totals{Rows: rows}
				if totals {
					t.HasSize, t.Size = true, rows*(2000+rng.Int64N(60000))
					t.HasTS, t.FirstTS = true, 1.7e12+1000*rng.Int64N(60*86400)
					t.LastTS = t.FirstTS
					if rows > 1 {
						t.LastTS += 1000 * rng.Int64N(30*86400)
					}
				}
				if err := w.AddDomain([]byte(name), &t); err != nil {
					tb.Fatal(err)
				}
				all += rows
			}
			if all == 0 {
				continue
			}
			var groups []int64
			for left := all; left > 0; left -= groupRows {
				groups = append(groups, min(left, groupRows))
			}
			p := lake.Part{DomainPrefix: fmt.Sprintf("%x", i), Rows: all, RowGroups: len(groups)}
			p.Key = lake.PartKey(dataset, p.DomainPrefix, b.Batch, lake.Digest([]byte{byte(dataset), byte(i)}), 0)
			pages, size := syntheticPages(all)
			p.Bytes, p.XXH64 = size, "0000000000000000"
			b.Parts = append(b.Parts, p)
			if err := w.EndPart(&p, groups, pages); err != nil {
				tb.Fatal(err)
			}
		}
		ff, err := w.Finish()
		if err != nil {
			tb.Fatal(err)
		}
		key := lake.PostingsKey(dataset, b.Batch, lake.Digest(buf.Bytes()))
		Put(tb, store, key, buf.Bytes())
		b.Postings = []lake.FrameObject{lake.NewFrameObject(key, ff)}
		refs = append(refs, PutBatch(tb, store, b))
	}
	return refs
}

// syllables returns a random name of two to five syllables.
func syllables(rng *rand.Rand) string {
	s := ""
	for range 2 + rng.IntN(4) {
		s += string("bcdfghklmnprstvw"[rng.IntN(16)]) + string("aeiou"[rng.IntN(5)])
		if rng.IntN(3) == 0 {
			s += string("nrst"[rng.IntN(4)])
		}
	}
	if rng.IntN(5) == 0 {
		s += fmt.Sprint(rng.IntN(1000))
	}
	return s
}

// syntheticPages returns the page index of a part with so many rows, 2,048 in a page, and the size
// of the part.
func syntheticPages(rows int64) ([][]byte, int64) {
	rng := rand.New(rand.NewPCG(uint64(rows), 1))
	var blocks [][]byte
	off := uint64(4)
	for group := int64(0); group*1_000_000 < rows; group++ {
		left := min(1_000_000, rows-group*1_000_000)
		for first := int64(0); first < left; first += 2048 * part.PageIndexPages {
			n := (min(left-first, 2048*part.PageIndexPages) + 2047) / 2048
			b := codec.AppendUvarint(nil, uint64(group))
			b = codec.AppendUvarint(b, uint64(first))
			b = codec.AppendUvarint(b, uint64(n))
			for i := range n {
				b = codec.AppendUvarint(b, uint64(min(2048, left-first-i*2048)))
			}
			b = codec.AppendUvarint(b, uint64(part.NumColumns))
			for range part.NumColumns {
				b = codec.AppendUvarint(b, off)
				for range n {
					size := 100 + rng.Uint64N(20000)
					b = codec.AppendUvarint(b, size)
					off += size
				}
				for range n {
					b = codec.AppendU32(b, rng.Uint32())
				}
			}
			blocks = append(blocks, b)
		}
	}
	return blocks, int64(off)
}
