package parquetin

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// arrow-go's own codecs trust what compressed bytes claim: a zstd frame or a snappy block may claim
// gigabytes, which are allocated at once, and a page that is said to have no bytes is decompressed
// without a limit. The codecs below decompress into the page's buffer, which has the size that the
// page header states, and never allocate another. They replace arrow-go's in the whole process.
func init() {
	for kind, decode := range map[compress.Compression]func(dst, src []byte) ([]byte, error){
		compress.Codecs.Zstd:   decodeZstd,
		compress.Codecs.Snappy: decodeSnappy,
		compress.Codecs.Gzip:   decodeGzip,
		compress.Codecs.Brotli: decodeBrotli,
		compress.Codecs.Lz4Raw: decodeLZ4,
	} {
		original, err := compress.GetCodec(kind)
		if err != nil {
			panic(err) // arrow-go registers these itself
		}
		compress.RegisterCodec(kind, pageCodec{original, decode})
	}
}

// pageCodec is a codec of arrow-go whose decoder is replaced. It cannot stream pages, which package
// parquetin does not ask for.
type pageCodec struct {
	compress.Codec
	// decode decompresses src into dst and returns the part of dst that was written. Output that
	// dst has no room for is an error.
	decode func(dst, src []byte) ([]byte, error)
}

// DecodeWithError is what arrow-go calls.
func (c pageCodec) DecodeWithError(dst, src []byte) ([]byte, error) { return c.decode(dst, src) }

// Decode is arrow-go's older interface, which has no errors but panics.
func (c pageCodec) Decode(dst, src []byte) []byte {
	out, err := c.decode(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

var errPageSize = errors.New("a page decompresses to more bytes than its header says")

// zstdPages decompresses zstd pages of all readers, at most into the buffer that it is given. A
// frame's window takes no memory: the buffer is the window.
var zstdPages = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder: %v", err)) // only options can be wrong
	}
	return d
}()

func decodeZstd(dst, src []byte) ([]byte, error) {
	out, err := zstdPages.DecodeAll(src, dst[:0:len(dst)])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return nil, errPageSize
	}
	return out, err
}

func decodeSnappy(dst, src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if n > len(dst) {
		return nil, errPageSize
	}
	return snappy.Decode(dst[:n:n], src)
}

func decodeGzip(dst, src []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	return fill(dst, r)
}

func decodeBrotli(dst, src []byte) ([]byte, error) {
	return fill(dst, brotli.NewReader(bytes.NewReader(src)))
}

func decodeLZ4(dst, src []byte) ([]byte, error) {
	n, err := lz4.UncompressBlock(src, dst)
	if err != nil {
		return nil, err
	}
	return dst[:n], nil
}

// fill reads all of r into dst.
func fill(dst []byte, r io.Reader) ([]byte, error) {
	n, err := io.ReadFull(r, dst)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		// The decoder's own io.ErrUnexpectedEOF means that the page is truncated. Either way the
		// page is shorter than its header says, which arrow-go reports.
		return dst[:n], nil
	}
	if err != nil {
		return nil, err
	}
	// The checksum comes with the end.
	var more [1]byte
	switch n, err := io.ReadFull(r, more[:]); {
	case n > 0:
		return nil, errPageSize
	case err != io.EOF:
		return nil, err
	}
	return dst, nil
}
