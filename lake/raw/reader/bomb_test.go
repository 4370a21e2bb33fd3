package reader

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

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
			// A frame header with a window of 1 KiB and a content size of 8 bytes (RFC 8878, 3.1.1.1).
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

// TestPageHeaderOfNoBytes reads a page that expands to 512 MiB while its header says that it has
// none: decoders take an empty buffer for one without a limit.
func TestPageHeaderOfNoBytes(t *testing.T) {
	type row struct {
		URL string `parquet:"url"`
	}
	for name, codec := range map[string]pqcompress.Codec{"gzip": &pq.Gzip, "brotli": &pq.Brotli, "zstd": &pq.Zstd} {
		t.Run(name, func(t *testing.T) {
			bomb, err := codec.Encode(nil, make([]byte, 512<<20))
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

var (
	_ = errors.New
	_ = io.EOF
	_ = fmt.Sprint
	_ = strings.Contains
	_ raw.Options
)
