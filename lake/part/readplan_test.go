package part

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// sameStarts reports whether the pages of two blocks have the same rows.
func sameStarts(a, b PageIndexBlock) bool {
	if a.Pages() != b.Pages() {
		return false
	}
	for i := range a.Pages() + 1 {
		if a.PageStart(i) != b.PageStart(i) {
			return false
		}
	}
	return true
}

// readRange reads rows [from, to) of a part as lookups do, with one plan for each block.
func readRange(t *testing.T, store blob.Store, p Written, from, to int64) []fileRow {
	t.Helper()
	got := new(Columns)
	var row int64 // of the part
	for i := range p.Blocks {
		b := &p.Blocks[i]
		lo, hi := max(from, row), min(to, row+b.Rows())
		if lo < hi {
			plan, err := NewPlan(b, b.FirstRow+lo-row, hi-lo, allColumns...)
			if err != nil {
				t.Fatal(err)
			}
			data, err := plan.Read(t.Context(), store, p.Part.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.AppendTo(got, p.Part.Key, data); err != nil {
				t.Fatal(err)
			}
		}
		row += b.Rows()
	}
	return columnRows(got)
}

func TestPageReaderAgreesWithParquetGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 1))
	for _, tc := range writerCases() {
		t.Run(tc.Name, func(t *testing.T) {
			store, parts := writeParts(t, tc.Rows, tc.Limits)
			for _, p := range parts {
				want := readParquetGo(t, bytesOf(t, store, p))
				n := int64(len(want))
				if diff := cmp.Diff(want, readRange(t, store, p, 0, n)); diff != "" {
					t.Fatalf("all rows (-parquet-go +page reader):\n%s", diff)
				}
				for range 30 {
					from := rng.Int64N(n)
					to := from + 1 + rng.Int64N(min(200, n-from))
					if diff := cmp.Diff(want[from:to], readRange(t, store, p, from, to)); diff != "" {
						t.Fatalf("rows %d to %d (-parquet-go +page reader):\n%s", from, to, diff)
					}
				}
			}
		})
	}
}

func TestReadColumnsFillsOnlyRequestedColumns(t *testing.T) {
	rows := testRows(21, 3000, someNull)
	store, parts := writeParts(t, rows, Limits{})
	p := parts[0]
	b := &p.Blocks[0]
	want := fileRows(rows)
	for _, cols := range [][]Column{
		{ColHost, ColTS, ColScheme, ColPort, ColPathQuery},
		{ColDomain, ColTS, ColSize},
		{ColPort}, {ColScheme}, {ColPort, ColScheme}, {ColURLID, ColURLID}, nil,
	} {
		got, err := ReadColumns(context.Background(), store, p.Part.Key, b, 2000, 100, cols...)
		if err != nil {
			t.Fatal(err)
		}
		expect := &Columns{Rows: 100}
		for _, r := range want[2000:2100] {
			for _, c := range slices.Compact(slices.Clone(cols)) {
				switch c {
				case ColHost:
					expect.Host = append(expect.Host, r.Host)
				case ColTS:
					expect.TS, expect.HasTS = append(expect.TS, r.TS), append(expect.HasTS, r.HasTS)
				case ColSize:
					expect.Size, expect.HasSize = append(expect.Size, r.Size), append(expect.HasSize, r.HasSize)
				case ColScheme:
					expect.Scheme = append(expect.Scheme, r.Scheme)
				case ColPort:
					expect.Port = append(expect.Port, r.Port)
				case ColPathQuery:
					expect.PathQuery = append(expect.PathQuery, r.PathQuery)
				case ColDomain:
					expect.Domain = append(expect.Domain, r.Domain)
				case ColURLID:
					expect.URLID = append(expect.URLID, r.URLID)
				}
			}
		}
		if diff := cmp.Diff(expect, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", cols, diff)
		}
	}
}

func TestPlanHasOneRangeForEachColumn(t *testing.T) {
	rows := testRows(22, 4000, someNull)
	_, parts := writeParts(t, rows, Limits{PageRows: 64})
	b := &parts[0].Blocks[0]
	plan, err := NewPlan(b, 1000, 100, ColTS, ColPathQuery, ColPort, ColHost, ColScheme)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Ranges) != 4 {
		t.Errorf("%d ranges, want 4: scheme with port, host, ts, path_query", len(plan.Ranges))
	}
	for i := 1; i < len(plan.Ranges); i++ {
		if plan.Ranges[i].Offset < plan.Ranges[i-1].Offset+plan.Ranges[i-1].Bytes {
			t.Error("ranges overlap")
		}
	}
	for _, bad := range [][2]int64{
		{-1, 5}, {0, 0}, {0, -1}, {0, b.Rows() + 1}, {b.Rows(), 1}, {5, 1 << 62}, {-1 << 63, 1},
	} {
		if _, err := NewPlan(b, bad[0], bad[1], ColHost); err == nil {
			t.Errorf("rows %v planned", bad)
		}
	}
	for _, c := range []Column{-1, Column(NumColumns)} {
		if _, err := NewPlan(b, 0, 1, c); err == nil {
			t.Errorf("%v planned", c)
		}
	}
}

func TestDecodeRejectsOtherBytesThanPlanned(t *testing.T) {
	_, parts := writeParts(t, sameSite(10), Limits{})
	plan, err := NewPlan(&parts[0].Blocks[0], 0, 10, ColHost, ColPathQuery)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Decode("part", nil); err == nil {
		t.Error("no ranges accepted")
	}
	short := [][]byte{make([]byte, plan.Ranges[0].Bytes), make([]byte, plan.Ranges[1].Bytes-1)}
	if _, err := plan.Decode("part", short); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("short range: %v", err)
	}
}

// smallPart is a part of a few rows with all kinds of pages.
func smallPart(tb testing.TB) (*blob.Memory, Written, []byte) {
	store, parts := writeParts(tb, testRows(23, 12, someNull), Limits{PageRows: 5})
	return store, parts[0], bytesOf(tb, store, parts[0])
}

func TestFlippedBitsInAPartAreNoticed(t *testing.T) {
	t.Parallel()
	_, p, data := smallPart(t)
	want := readParquetGo(t, data)
	b := &p.Blocks[0]
	plan, err := NewPlan(b, 0, b.Rows(), allColumns...)
	if err != nil {
		t.Fatal(err)
	}
	end := b.PageOffset(Column(NumColumns-1), b.Pages())
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			var ranges [][]byte
			for _, r := range plan.Ranges {
				ranges = append(ranges, data[r.Offset:r.Offset+r.Bytes])
			}
			got, err := plan.Decode("part", ranges)
			inPages := i >= len(parquetMagic) && int64(i) < end
			var c *codec.CorruptError
			switch {
			case inPages && !errors.As(err, &c):
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			case inPages && (c.File != "part" || c.Offset < 0 || c.Offset > int64(i)):
				t.Fatalf("byte %d bit %d reported as %v", i, bit, c)
			case !inPages && err != nil:
				t.Fatalf("byte %d bit %d is outside the pages: %v", i, bit, err)
			case !inPages && !cmp.Equal(want, columnRows(got)):
				t.Fatalf("byte %d bit %d changed rows", i, bit)
			}
			// BuildPageIndex notices damage that Parquet's checksums cover, and never panics.
			blocks, err := BuildPageIndex(bytes.NewReader(data), int64(len(data)), "part")
			if err != nil && !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			} else if err == nil && !slices.EqualFunc(blocks, p.Blocks, sameStarts) {
				t.Fatalf("byte %d bit %d changed the rows of pages", i, bit)
			}
			data[i] ^= 1 << bit
		}
	}
}

func TestReadColumnsOfAShortObjectFails(t *testing.T) {
	ctx := context.Background()
	store, p, data := smallPart(t)
	b := &p.Blocks[0]
	for n := range data {
		if _, err := store.Put(ctx, "short", data[:n], blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		_, err := ReadColumns(ctx, store, "short", b, 0, b.Rows(), ColExtras)
		if whole := int64(n) >= b.PageOffset(ColExtras, b.Pages()); whole != (err == nil) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if _, err := ReadColumns(ctx, store, "absent", b, 0, 1, ColHost); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("absent part: %v", err)
	}
}

func BenchmarkReadPage(b *testing.B) {
	rows := realRows(b)
	store, parts := writeParts(b, rows, Limits{})
	p := parts[0]
	data := bytesOf(b, store, p)
	cols := []Column{ColScheme, ColPort, ColHost, ColTS, ColPathQuery}
	rng := rand.New(rand.NewPCG(30, 1))
	b.Run("decode 100 rows", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			block := &p.Blocks[rng.IntN(len(p.Blocks))]
			plan, err := NewPlan(block, block.FirstRow+rng.Int64N(block.Rows()-100), 100, cols...)
			if err != nil {
				b.Fatal(err)
			}
			var ranges [5][]byte
			for i, r := range plan.Ranges {
				ranges[i] = data[r.Offset : r.Offset+r.Bytes]
			}
			if _, err := plan.Decode(p.Part.Key, ranges[:len(plan.Ranges)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 100 rows", func(b *testing.B) {
		b.ReportAllocs()
		var bytes, reads int64
		for b.Loop() {
			block := &p.Blocks[rng.IntN(len(p.Blocks))]
			first := block.FirstRow + rng.Int64N(block.Rows()-100)
			if _, err := ReadColumns(b.Context(), store, p.Part.Key, block, first, 100, cols...); err != nil {
				b.Fatal(err)
			}
			plan, _ := NewPlan(block, first, 100, cols...)
			for _, r := range plan.Ranges {
				bytes += r.Bytes
			}
			reads++
		}
		b.ReportMetric(float64(bytes)/float64(reads), "fetched-B/op")
	})
	b.Run("all rows all columns", func(b *testing.B) {
		for b.Loop() {
			for i := range p.Blocks {
				block := &p.Blocks[i]
				first, n := block.FirstRow, block.Rows()
				_, err := ReadColumns(b.Context(), store, p.Part.Key, block, first, n, allColumns...)
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Part.Rows), "ns/row")
	})
	b.Run("page index block", func(b *testing.B) {
		enc := p.Blocks[0].Append(nil)
		b.SetBytes(int64(len(enc)))
		for b.Loop() {
			if _, err := DecodePageIndexBlock(enc, "parts.idx"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
