package reader

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/klauspost/compress/gzip"
	pq "github.com/parquet-go/parquet-go"
	pqcompress "github.com/parquet-go/parquet-go/compress"

	"github.com/urlake/urlake/lake/raw"
)

// allocated returns how many bytes do allocates, also if they are collected meanwhile.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// claimedPages replaces the compressed bytes of pages by those that a test gives.
type claimedPages struct {
	pqcompress.Codec
	page func(data []byte) []byte
}

func (c claimedPages) Encode(dst, src []byte) ([]byte, error) {
	data, err := c.Codec.Encode(nil, src)
	if err != nil {
		return nil, err
	}
	return append(dst[:0], c.page(data)...), nil
}

// TestPageClaimsMoreThanItsHeader reads Parquet whose compressed pages claim far more bytes than
// their page headers do. Nothing of that size may be allocated.
func TestPageClaimsMoreThanItsHeader(t *testing.T) {
	type row struct {
		URL string `parquet:"url"`
	}
	rows := []row{{"http://a/"}, {"http://b/"}}
	zstdClaim := func(size uint64) func([]byte) []byte {
		return func(data []byte) []byte {
			// A frame header: a window of 1 KiB, a content size of 8 bytes (RFC 8878, 3.1.1.1).
			head := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x00}, make([]byte, 8)...)
			binary.LittleEndian.PutUint64(head[6:], size)
			return append(head, data[min(len(data), 6):]...)
		}
	}
	for _, c := range []struct {
		name  string
		codec pqcompress.Codec
		page  func(data []byte) []byte
	}{
		{"zstd 6 GiB", &pq.Zstd, zstdClaim(6 << 30)},
		{"zstd 40 GiB", &pq.Zstd, zstdClaim(40 << 30)},
		{"snappy 1 GiB", &pq.Snappy, func(data []byte) []byte {
			_, n := binary.Uvarint(data)
			return append(binary.AppendUvarint(nil, 1<<30), data[n:]...)
		}},
		{"gzip 256 MiB", &pq.Gzip, func([]byte) []byte {
			var buf bytes.Buffer
			w := gzip.NewWriter(&buf)
			zeros := make([]byte, 1<<20)
			for range 256 {
				_, _ = w.Write(zeros)
			}
			w.Close()
			return buf.Bytes()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := writeParquet(t, rows, pq.Compression(claimedPages{c.codec, c.page}))
			n := allocated(func() {
				if _, err := damaged(t, data); err == nil {
					t.Error("no error")
				}
			})
			if n > 64<<20 {
				t.Errorf("a file of %d bytes made its reader allocate %d MiB", len(data), n>>20)
			}
		})
	}
}

// TestPageHeaderOfNoBytes reads a page that expands to 128 MiB while its header says that it has
// none: decoders take an empty buffer for one without a limit.
func TestPageHeaderOfNoBytes(t *testing.T) {
	type row struct {
		URL string `parquet:"url"`
	}
	for name, codec := range map[string]pqcompress.Codec{"gzip": &pq.Gzip, "brotli": &pq.Brotli, "zstd": &pq.Zstd} {
		t.Run(name, func(t *testing.T) {
			bomb, err := codec.Encode(nil, make([]byte, 128<<20))
			if err != nil {
				t.Fatal(err)
			}
			data := writeParquet(t, []row{{"http://a/"}}, pq.Compression(claimedPages{codec, func([]byte) []byte { return bomb }}))
			// The page header is a structure of which field 2 is the uncompressed size.
			at := bytes.Index(data, bomb)
			head := data[len("PAR1"):at]
			size := head[3:]
			_, n := binary.Uvarint(size)
			if head[2] != 0x15 || n != 1 {
				t.Fatalf("page header %x", head)
			}
			size[0] = 0
			got := allocated(func() {
				if _, err := damaged(t, data); err == nil {
					t.Error("no error")
				}
			})
			if got > 64<<20 {
				t.Errorf("a page of no bytes made its reader allocate %d MiB", got>>20)
			}
		})
	}
}

// TestFooterOfAMillionColumns holds that a footer is refused before it is decoded if what it
// describes takes far more memory than its bytes.
func TestFooterOfAMillionColumns(t *testing.T) {
	const n = 1_500_000
	list := func(field byte, n int) []byte {
		return append([]byte{field<<4 | 9, 0xfc}, binary.AppendUvarint(nil, uint64(n))...)
	}
	element := []byte{0x15, 12, 0x25, 0, 0x18, 1, 'a', 0} // a required byte array
	schema := list(1, n+1)
	schema = append(schema, 0x48, 1, 'r', 0x15)
	schema = append(binary.AppendUvarint(schema, 2*n), 0)
	schema = append(schema, bytes.Repeat(element, n)...)
	one := append(list(1, 2), 0x48, 1, 'r', 0x15, 2, 0)
	one = append(one, element...)
	for name, footer := range map[string][]byte{
		"columns": append(schema, 0x16, 0, 0x19, 0x0c, 0),
		// Row groups of one empty column each.
		"row groups": append(append(append(bytes.Clone(one), 0x16, 0), list(1, n)...),
			append(bytes.Repeat([]byte{0x19, 0x1c, 0x00, 0x16, 0, 0x16, 0, 0}, n), 0)...),
		// Key-value metadata of empty structures.
		"metadata": append(append(append(append(bytes.Clone(one), 0x16, 0), 0x19, 0x0c), list(1, 8*n)...),
			make([]byte, 8*n+1)...),
	} {
		t.Run(name, func(t *testing.T) {
			// version 1, then the lists
			footer := append([]byte{0x15, 2}, footer...)
			data := append([]byte("PAR1"), footer...)
			data = append(binary.LittleEndian.AppendUint32(data, uint32(len(footer))), "PAR1"...)
			got := allocated(func() {
				_, err := New(bytes.NewReader(data), "a.parquet", raw.Options{})
				var refused *raw.FormatError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), "too many columns") {
					t.Errorf("error %v, want that the footer describes too much", err)
				}
			})
			if got > 64<<20 {
				t.Errorf("a footer of %d MiB made its reader allocate %d MiB", len(footer)>>20, got>>20)
			}
		})
	}
}

// TestWideFooter measures what a footer that is accepted takes.
func TestWideFooter(t *testing.T) {
	const columns, groups = 3000, 12
	group := pq.Group{"url": pq.String()}
	for i := range columns - 1 {
		group[fmt.Sprintf("column_%04d", i)] = pq.Optional(pq.Leaf(pq.Int64Type))
	}
	var buf bytes.Buffer
	w := pq.NewWriter(&buf, pq.NewSchema("wide", group), pq.DataPageStatistics(false))
	for range groups {
		row := make(pq.Row, columns)
		for i := range row {
			row[i] = pq.NullValue().Level(0, 0, i)
		}
		row[columns-1] = pq.ByteArrayValue([]byte("http://a/")).Level(0, 0, columns-1)
		if _, err := w.WriteRows([]pq.Row{row}); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := buf.Bytes()
	got := allocated(func() {
		r, err := New(bytes.NewReader(data), "a.parquet", raw.Options{URLColumn: "url"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := readAll(r)
		if err != nil || len(g.Rows) != groups {
			t.Errorf("%d rows, %v", len(g.Rows), err)
		}
	})
	footer := binary.LittleEndian.Uint32(data[len(data)-8:])
	t.Logf("a footer of %d KiB takes %d MiB", footer>>10, got>>20)
	if got > 128<<20 {
		t.Errorf("a footer of %d KiB takes %d MiB", footer>>10, got>>20)
	}
}

// repeated yields a block again and again, and counts the bytes.
type repeated struct {
	block []byte
	at    int
	read  int64
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.at:])
	r.at = (r.at + n) % len(r.block)
	r.read += int64(n)
	return n, nil
}

// TestDecompressionBombsEndEarly reads objects of few bytes and no end. Each must end soon, with
// the object's name and what to do.
func TestDecompressionBombsEndEarly(t *testing.T) {
	line := strings.Repeat("x", 1<<20) + "\n"
	frame := func(how string) []byte { return compressed(t, how, []byte(strings.Repeat(line, 64))) }
	// A member of 1 TiB that is compressed once more. Neither compression alone is past its ratio
	// when the records are.
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Name: "a.txt", Size: 1 << 40, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	members := &repeated{block: compressed(t, "zstd", bytes.Repeat(frame("gzip"), 16))}
	for name, c := range map[string]struct {
		object io.Reader
		*repeated
	}{
		"zstd":                     {repeated: &repeated{block: frame("zstd")}},
		"gzip in a compressed tar": {io.MultiReader(bytes.NewReader(compressed(t, "zstd", head.Bytes())), members), members},
	} {
		object := c.object
		if object == nil {
			object = c.repeated
		}
		t.Run(name, func(t *testing.T) {
			r, err := New(object, "bomb.txt", raw.Options{Format: raw.Lines, MaxLine: 1000})
			for err == nil {
				_, _, err = r.Next()
			}
			if !errors.Is(err, raw.ErrInput) || !strings.Contains(err.Error(), "bomb.txt") || !strings.Contains(err.Error(), "decompress it first") {
				t.Fatalf("error %v, want one that names the object and says what to do", err)
			}
			if c.read > 4<<20 {
				t.Errorf("%d KiB were read", c.read>>10)
			}
		})
	}
}

// TestRepeatedRowsOfParquetEndEarly reads a file whose column says in a few bytes that it has
// hundreds of millions of nulls.
func TestRepeatedRowsOfParquetEndEarly(t *testing.T) {
	var buf bytes.Buffer
	url := schema.NewByteArrayNode("url", parquet.Repetitions.Optional, -1)
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, schema.FieldList{url}, -1)
	if err != nil {
		t.Fatal(err)
	}
	w := file.NewParquetWriter(&buf, root, file.WithWriterProps(parquet.NewWriterProperties(
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithDataPageSize(1<<20))))
	g, err := w.AppendRowGroupChecked()
	if err != nil {
		t.Fatal(err)
	}
	col, err := g.NextColumn()
	if err != nil {
		t.Fatal(err)
	}
	const rows, batch = 66 << 20, 1 << 20
	for range rows / batch {
		if _, err := col.(*file.ByteArrayColumnChunkWriter).WriteBatch(nil, make([]int16, batch), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(col.Close(), g.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := New(bytes.NewReader(buf.Bytes()), "bomb.parquet", raw.Options{URLColumn: "url"})
	n := 0
	for err == nil {
		n++
		_, _, err = r.Next()
	}
	if !errors.Is(err, raw.ErrInput) || !strings.Contains(err.Error(), "bomb.parquet") || n >= rows {
		t.Errorf("a file of %d bytes: error %v after %d records", buf.Len(), err, n)
	}
}
