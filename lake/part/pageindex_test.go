package part

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/lake/codec"
)

// encodings are the encoded forms of blocks, which are equal if the blocks are.
func encodings(blocks []PageIndexBlock) (out [][]byte) {
	for i := range blocks {
		out = append(out, blocks[i].Append(nil))
	}
	return out
}

func TestBuildPageIndexFindsWhatWasWritten(t *testing.T) {
	for _, tc := range writerCases() {
		store, parts := writeParts(t, tc.Rows, tc.Limits)
		for _, p := range parts {
			data := partBytes(t, store, p)
			blocks, err := BuildPageIndex(bytes.NewReader(data), int64(len(data)), p.Part.Key)
			if err != nil {
				t.Fatalf("%s: %v", tc.Name, err)
			}
			if diff := cmp.Diff(encodings(p.Blocks), encodings(blocks)); diff != "" {
				t.Errorf("%s: %s", tc.Name, diff)
			}
			var rows int64
			for i := range blocks {
				if blocks[i].Pages() > PageIndexPages {
					t.Errorf("%s: block of %d pages", tc.Name, blocks[i].Pages())
				}
				rows += blocks[i].Rows()
			}
			if rows != p.Part.Rows {
				t.Errorf("%s: blocks of %d rows, the part has %d", tc.Name, rows, p.Part.Rows)
			}
		}
	}
}

func TestTruncatedPartsAreRejected(t *testing.T) {
	_, _, data := smallPart(t)
	for n := range data {
		_, err := BuildPageIndex(bytes.NewReader(data[:n]), int64(n), "part")
		if !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
		if _, err := BuildPageIndex(bytes.NewReader(data[:n]), int64(len(data)), "part"); err == nil {
			t.Fatalf("%d of %d bytes read as all", n, len(data))
		}
	}
}

func FuzzBuildPageIndex(f *testing.F) {
	_, p, data := smallPart(f)
	end := p.Blocks[0].PageOffset(Column(NumColumns-1), p.Blocks[0].Pages())
	f.Add(data[end:])
	pages := data[:end]
	f.Fuzz(func(t *testing.T, tail []byte) {
		file := slices.Concat(pages, tail)
		_, err := BuildPageIndex(bytes.NewReader(file), int64(len(file)), "part")
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func TestPageIndexBlockRoundTrip(t *testing.T) {
	for _, tc := range writerCases() {
		_, parts := writeParts(t, tc.Rows, tc.Limits)
		for _, p := range parts {
			for i := range p.Blocks {
				b := &p.Blocks[i]
				data := b.Append([]byte("before"))[len("before"):]
				got, err := DecodePageIndexBlock(data, "parts.idx")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(data, got.Append(nil)); diff != "" {
					t.Fatal(diff)
				}
			}
		}
	}
}

func TestPageIndexBlockTruncatedOrLonger(t *testing.T) {
	_, p, _ := smallPart(t)
	data := p.Blocks[0].Append(nil)
	for n := range data {
		if _, err := DecodePageIndexBlock(data[:n], "parts.idx"); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(data), err)
		}
	}
	if _, err := DecodePageIndexBlock(append(data, 0), "parts.idx"); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("a byte more: %v", err)
	}
}

func FuzzDecodePageIndexBlock(f *testing.F) {
	_, p, _ := smallPart(f)
	f.Add(p.Blocks[0].Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodePageIndexBlock(data, "parts.idx")
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if again := b.Append(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes to what encodes as %x", data, again)
		}
		plan, err := NewPlan(b, b.FirstRow, b.Rows(), allColumns...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range plan.Ranges {
			if r.Offset < 0 || r.Bytes <= 0 {
				t.Fatalf("range %+v", r)
			}
		}
	})
}

// No truncation of a page header is read.
func TestTruncatedPageHeadersAreRejected(t *testing.T) {
	body := make([]byte, 300)
	raw := testPage(PageHeader{Uncompressed: 300}, 75, EncodingPlain, body)
	h, err := ReadPageHeader(raw, ColDatasetID, 75, "part")
	if err != nil || h.Size != len(raw)-300 {
		t.Fatal(h, err)
	}
	for n := range h.Size {
		if _, err := ReadPageHeader(raw[:n], ColDatasetID, 75, "part"); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d bytes of a header: %v", n, err)
		}
	}
}
