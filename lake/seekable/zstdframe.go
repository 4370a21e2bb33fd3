package seekable

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
)

const (
	// MaxRawBlock is the maximum size of a block of a zstd frame, compressed or not (RFC 8878,
	// 3.1.1.2.4).
	MaxRawBlock = 128 << 10

	// minEntropy is the minimum size of a block that is entropy-coded. Smaller blocks do not pay
	// for their table.
	minEntropy = 256
)

var encoders = sync.Pool{New: func() any {
	// Each frame is one EncodeAll, so encoders need neither a window nor goroutines. Higher levels
	// save a tenth of the bytes, as most data is packed already, and take two to three times as
	// long.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithSingleSegment(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return enc
}}

var decoders = sync.Pool{New: func() any {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxFrame))
	if err != nil {
		panic(err) // the options are constants
	}
	return dec
}}

// appendCompressed appends data as one zstd frame, compressed by the library.
func appendCompressed(dst, data []byte) []byte {
	enc := encoders.Get().(*zstd.Encoder)
	defer encoders.Put(enc)
	return enc.EncodeAll(data, dst)
}

// appendStored appends data as one zstd frame of raw blocks.
func appendStored(dst, data []byte) []byte {
	dst = AppendZstdHeader(dst, len(data))
	for len(data) > MaxRawBlock {
		dst = AppendRawBlock(dst, data[:MaxRawBlock], false)
		data = data[MaxRawBlock:]
	}
	return AppendRawBlock(dst, data, true)
}

// AppendZstdHeader appends the header of a zstd frame of size decompressed bytes, with neither
// window, dictionary nor checksum (RFC 8878, 3.1.1.1). The frame's blocks must follow.
func AppendZstdHeader(dst []byte, size int) []byte {
	const (
		magic         = 0xFD2FB528
		singleSegment = 2<<6 | 1<<5 // a content size of four bytes and no window
	)
	return codec.AppendU32(append(codec.AppendU32(dst, magic), singleSegment), uint32(size))
}

// AppendRawBlock appends a block that is not compressed (RFC 8878, 3.1.1.2) with data, at most
// MaxRawBlock bytes. Last is true for the last block of a frame.
func AppendRawBlock(dst, data []byte, last bool) []byte {
	return append(appendRawBlockHeader(dst, len(data), last), data...)
}

// appendRawBlockHeader appends the header of a block of size bytes that are not compressed.
func appendRawBlockHeader(dst []byte, size int, last bool) []byte {
	return appendBlockHeader(dst, uint32(size)<<3, last)
}

// appendBlockHeader appends the header of a block, 3 bytes: its size from bit 3, its type in bits 1
// and 2.
func appendBlockHeader(dst []byte, header uint32, last bool) []byte {
	if last {
		header |= 1
	}
	return append(dst, byte(header), byte(header>>8), byte(header>>16))
}

// storedContent returns the content of a frame that appendStored made of size bytes, as a view of
// the frame. Ok is false if the frame is another one or has more than one block.
func storedContent(frame []byte, size int64) (data []byte, ok bool) {
	var buf [16]byte
	header := appendRawBlockHeader(AppendZstdHeader(buf[:0], int(size)), int(size), true)
	if size > MaxRawBlock || !bytes.HasPrefix(frame, header) || int64(len(frame)) != int64(len(header))+size {
		return nil, false
	}
	return frame[len(header):], true
}

// scratches holds the memory of Huffman encoders.
var scratches = sync.Pool{New: func() any { return new(huff0.Scratch) }}

// appendSections appends data as one zstd frame whose blocks are sections of it. Sections over
// MaxRawBlock are divided.
func appendSections(dst, data []byte, sizes []int) []byte {
	scratch := scratches.Get().(*huff0.Scratch)
	defer scratches.Put(scratch)
	dst = AppendZstdHeader(dst, len(data))
	for _, n := range sizes {
		for n > 0 {
			m := min(n, MaxRawBlock)
			dst = appendLiterals(dst, data[:m], scratch, m == len(data))
			data = data[m:]
			n -= m
		}
	}
	return dst
}

// appendLiterals appends a block with data, at most MaxRawBlock bytes, as literals without
// sequences, in four streams with a Huffman table of their own (RFC 8878, 3.1.1.3.1). If that is
// not smaller, it appends a raw block.
func appendLiterals(dst, data []byte, scratch *huff0.Scratch, last bool) []byte {
	const compressedBlock, compressedLiterals = 2 << 1, 2
	if len(data) < minEntropy {
		return AppendRawBlock(dst, data, last)
	}
	scratch.Reuse = huff0.ReusePolicyNone
	packed, _, err := huff0.Compress4X(data, scratch)
	// The header has the sizes before and after compression, each in 10, 14 or 18 bits.
	width, form := 10, uint64(1)
	if len(data) >= 1<<10 {
		width, form = 14, 2
	}
	if len(data) >= 1<<14 {
		width, form = 18, 3
	}
	header := (4 + 2*width) / 8
	if err != nil || header+len(packed)+1 >= len(data) {
		return AppendRawBlock(dst, data, last)
	}
	dst = appendBlockHeader(dst, uint32(header+len(packed)+1)<<3|compressedBlock, last)
	sizes := compressedLiterals | form<<2 | uint64(len(data))<<4 | uint64(len(packed))<<(4+width)
	for range header {
		dst = append(dst, byte(sizes))
		sizes >>= 8
	}
	return append(append(dst, packed...), 0) // no sequences
}
