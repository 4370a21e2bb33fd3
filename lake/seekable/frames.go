package seekable

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/huff0"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/internal/prefetch"
	"github.com/urlake/urlake/lake/codec"
)

// A frame file is a zstd file in the seekable format (facebook/zstd,
// contrib/seekable_format): data frames that can each be decoded alone, then skippable
// frames, which every zstd decoder passes over:
//
//	data frame 0 … data frame n-1
//	fences      u32 0x184D2A5D | u32 size | "FNCE" u32 ver=1 | u32 n | u32 width | n × width bytes | u32 CRC-32C
//	seek table  u32 0x184D2A5E | u32 size | n × {u32 compressed, u32 decompressed, u32 checksum} | u32 n | u8 0x80 | u32 0x8F92EAB1
//
// Fences hold the key of the first record of each data frame, as bytes that sort like the
// keys, so that a lookup is one range request. The checksum is the low half of the xxh64
// of the frame's decompressed bytes. Fences and seek table are the file's tail: a reader
// fetches it once, and its place and hash come from outside (segment.json).

const (
	fenceFrameMagic = 0x184D2A5D
	seekFrameMagic  = 0x184D2A5E
	seekFooterMagic = 0x8F92EAB1
	seekDescriptor  = 0x80 // entries carry checksums
	seekReserved    = 0x7c // bits of the descriptor that are zero
	seekEntrySize   = 12   // 8 without a checksum
	seekFooterSize  = 9
	seekBuffer      = 24 << 10 // a multiple of both sizes of an entry
	skippableHeader = 8
	fenceMagic      = "FNCE"
	fenceVersion    = 1
	fenceHeaderSize = 16

	// MaxFrame bounds the decompressed size of one frame: it is what a reader allocates on the word
	// of a seek table. Large enough for one payload of a domain that every one of a
	// million parts holds.
	MaxFrame = 64 << 20

	// maxSpareFrame is the largest frame whose memory is kept for the next.
	maxSpareFrame = 1 << 20
)

// FrameLevel is the zstd level of frame files. What is large in them is packed in bits already; of the rest the better levels make
// a tenth less and take two to three times as long.
const Level = zstd.SpeedFastest

// stored is the level of frames that are not compressed; zstd's own start above it.
const stored zstd.EncoderLevel = 0

// minEntropy is the least that a block of entropy-coded bytes is made of: less does not pay for its table.
const minEntropy = 256

// frameEncoders has a pool of *zstd.Encoder for each level.
var frameEncoders [zstd.SpeedBestCompression + 1]sync.Pool

func frameEncoder(level zstd.EncoderLevel) *zstd.Encoder {
	if enc, ok := frameEncoders[level].Get().(*zstd.Encoder); ok {
		return enc
	}
	// One frame is one EncodeAll: no window carries over, concurrency is the caller's.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(level),
		zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithSingleSegment(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return enc
}

var frameDecoders = sync.Pool{New: func() any {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxFrame))
	if err != nil {
		panic(err) // the options are constants
	}
	return dec
}}

// FrameWriter writes a frame file. Output depends on nothing but the calls.
type Writer struct {
	w      io.Writer
	width  int
	level  zstd.EncoderLevel
	seek   []byte
	fences []byte
	frames int
	off    int64
	raw    int64
	hash   xxhash.Digest
	noHash bool
	buf    []byte
	err    error

	ahead int
	queue []*pendingFrame // compressed or about to be, in their order
	spare []*pendingFrame
}

// pendingFrame is a frame that is compressed aside.
type pendingFrame struct {
	data, packed []byte
	sum          uint32
	done         chan struct{}
}

// FrameFile describes a finished frame file: what a reader has to know before it opens one.
type File struct {
	Bytes int64  // size of the file
	XXH64 uint64 // hash of the file; 0 after NoHash
	// TailBytes is the size of fences and seek table at the end of the file, TailXXH64 their hash.
	TailBytes int64
	TailXXH64 uint64
	Frames    int
	RawBytes  int64 // sum of the decompressed sizes
}

// NewFrameWriter writes to w. Each frame has a fence of width bytes; 0 is a file without fences.
func NewWriter(w io.Writer, width int) *Writer {
	fw := &Writer{w: w, width: width, level: Level}
	fw.hash.Reset()
	return fw
}

// Store leaves the frames from now on uncompressed, as zstd frames of raw blocks: what is read once and soon is not worth more.
func (fw *Writer) Store() { fw.level = stored }

// NoHash leaves out the hash of the whole file, which is 0 then. All that is read of it has been checked by its frame's checksum or the tail's hash; what is read once and soon, and
// never as a whole, need not be hashed twice. It must be called before the first frame.
func (fw *Writer) NoHash() { fw.noHash = true }

// Ahead has up to n frames compressed at once, each in a goroutine of its own, while the caller makes the next: Frame copies its
// data and returns. The file is the same, and still written by the caller's goroutine alone. What Frame returns are the same
// numbers; an error of the underlying writer may come some frames later, with Finish at the latest. It must be called before the
// first frame, and a writer that is given up without Finish needs no end: its goroutines end by themselves.
func (fw *Writer) Ahead(n int) { fw.ahead = n }

// Pieces is Frame for data that are pieces one after the other, each of bytes that are distributed in their own way: each is entropy-coded
// by itself (Huffman's code, in zstd's form, RFC 8878, 3.1.1.3.1) and no repetitions are looked for. That takes a tenth of the time of
// compressing, and of what is packed as tightly as it can be by other means makes nearly as little. Sizes are those of the pieces, in
// their order, and add up to the data's.
func (fw *Writer) Pieces(fence, data []byte, sizes ...int) (frame int, rawOffset int64, err error) {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if len(sizes) == 0 || sum != len(data) {
		return 0, 0, fw.fail(fmt.Errorf("frame %d: pieces of %d bytes in a frame of %d", fw.frames, sum, len(data)))
	}
	return fw.frame(fence, data, sizes)
}

// Frame writes data as one frame and returns its number and the decompressed offset at which it starts.
// Fences have to ascend strictly: Find looks for a key in one frame only.
func (fw *Writer) Frame(fence, data []byte) (frame int, rawOffset int64, err error) {
	return fw.frame(fence, data, nil)
}

func (fw *Writer) frame(fence, data []byte, pieces []int) (frame int, rawOffset int64, err error) {
	if fw.err != nil {
		return 0, 0, fw.err
	}
	if len(fence) != fw.width {
		return 0, 0, fw.fail(fmt.Errorf("frame %d: fence of %d bytes in a file of %d", fw.frames, len(fence), fw.width))
	}
	if fw.width > 0 && fw.frames > 0 && bytes.Compare(fw.fences[len(fw.fences)-fw.width:], fence) >= 0 {
		return 0, 0, fw.fail(fmt.Errorf("frame %d: fence %x after %x", fw.frames, fence, fw.fences[len(fw.fences)-fw.width:]))
	}
	if len(data) == 0 || len(data) > MaxFrame {
		return 0, 0, fw.fail(fmt.Errorf("frame %d: %d bytes, allowed are 1 to %d", fw.frames, len(data), MaxFrame))
	}
	if fw.ahead > 0 {
		if err := fw.begin(data, pieces); err != nil {
			return 0, 0, err
		}
	} else {
		fw.buf = packFrame(fw.level, data, pieces, fw.buf[:0])
		if err := fw.append(fw.buf, len(data), uint32(xxhash.Sum64(data))); err != nil {
			return 0, 0, err
		}
	}
	fw.fences = append(fw.fences, fence...)
	frame, rawOffset = fw.frames, fw.raw
	fw.frames++
	fw.raw += int64(len(data))
	return frame, rawOffset, nil
}

// StoredFrame writes the concatenation of parts as one frame, uncompressed whatever the file's level, and without copying it where
// it is at most MaxRawBlock. The file must be without fences and not be written Ahead.
func (fw *Writer) StoredFrame(parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	switch {
	case fw.err != nil:
		return fw.err
	case fw.width > 0 || fw.ahead > 0:
		return fw.fail(fmt.Errorf("frame %d: stored in a file with fences or written ahead", fw.frames))
	case size == 0 || size > MaxFrame:
		return fw.fail(fmt.Errorf("frame %d: %d bytes, allowed are 1 to %d", fw.frames, size, MaxFrame))
	case size > MaxRawBlock:
		parts = [][]byte{slices.Concat(parts...)}
		fw.buf = appendStored(fw.buf[:0], parts[0])
		if err := fw.append(fw.buf, size, uint32(xxhash.Sum64(parts[0]))); err != nil {
			return err
		}
	default:
		var head [16]byte
		h := appendBlockHeader(AppendZstdHeader(head[:0], size), size, true)
		if err := fw.write(h); err != nil {
			return err
		}
		var sum xxhash.Digest
		sum.Reset()
		for _, p := range parts {
			for piece := range prefetch.Chunks(p) {
				sum.Write(piece)
			}
			if err := fw.write(p); err != nil {
				return err
			}
		}
		fw.note(len(h)+size, size, uint32(sum.Sum64()))
	}
	fw.frames++
	fw.raw += int64(size)
	return nil
}

// packFrame appends the compressed form of data to out.
func packFrame(level zstd.EncoderLevel, data []byte, pieces []int, out []byte) []byte {
	switch {
	case pieces != nil:
		return appendPieces(out, data, pieces)
	case level == stored:
		return appendStored(out, data)
	}
	enc := frameEncoder(level)
	out = enc.EncodeAll(data, out)
	frameEncoders[level].Put(enc)
	return out
}

// appendStored appends data as one zstd frame of raw blocks.
func appendStored(out, data []byte) []byte {
	out = AppendZstdHeader(out, len(data))
	for len(data) > MaxRawBlock {
		out = AppendRawBlock(out, data[:MaxRawBlock], false)
		data = data[MaxRawBlock:]
	}
	return AppendRawBlock(out, data, true)
}

// MaxRawBlock is the most that a block of a zstd frame may hold.
const MaxRawBlock = 128 << 10

// AppendZstdHeader appends the header of a zstd frame of size bytes without window, dictionary and checksum (RFC 8878,
// 3.1.1.1). Blocks have to follow.
func AppendZstdHeader(b []byte, size int) []byte {
	const (
		magic         = 0xFD2FB528
		singleSegment = 2<<6 | 1<<5 // a content size of four bytes and no window
	)
	return codec.AppendU32(append(codec.AppendU32(b, magic), singleSegment), uint32(size))
}

// AppendRawBlock appends a block of a zstd frame that is not compressed (RFC 8878, 3.1.1.2): data, at most MaxRawBlock bytes.
func AppendRawBlock(b, data []byte, last bool) []byte {
	return append(appendBlockHeader(b, len(data), last), data...)
}

// appendBlockHeader appends the header of a block that is not compressed.
func appendBlockHeader(b []byte, size int, last bool) []byte {
	head := uint32(size) << 3
	if last {
		head |= 1
	}
	return append(b, byte(head), byte(head>>8), byte(head>>16))
}

// storedContent is the data of a frame that appendStored made of at most MaxRawBlock bytes, as a view.
func storedContent(packed []byte, size int64) (data []byte, ok bool) {
	var head [16]byte
	h := appendBlockHeader(AppendZstdHeader(head[:0], int(size)), int(size), true)
	if size > MaxRawBlock || !bytes.HasPrefix(packed, h) || int64(len(packed)) != int64(len(h))+size {
		return nil, false
	}
	return packed[len(h):], true
}

// huffman keeps the memory of Huffman encoders.
var huffman = sync.Pool{New: func() any { return new(huff0.Scratch) }}

// appendPieces appends data as one zstd frame whose blocks are pieces of it, the large ones parted.
func appendPieces(out, data []byte, sizes []int) []byte {
	s := huffman.Get().(*huff0.Scratch)
	defer huffman.Put(s)
	out = AppendZstdHeader(out, len(data))
	for _, n := range sizes {
		for n > 0 {
			m := min(n, MaxRawBlock)
			out = appendLiterals(out, data[:m], s, m == len(data))
			data = data[m:]
			n -= m
		}
	}
	return out
}

// appendLiterals appends a block of a zstd frame that has data, at most MaxRawBlock bytes, as literals without sequences, in four streams with
// a table of their own (RFC 8878, 3.1.1.3); or as it is, where that is no longer.
func appendLiterals(out, data []byte, s *huff0.Scratch, last bool) []byte {
	const compressedBlock, compressedLiterals = 2 << 1, 2
	if len(data) < minEntropy {
		return AppendRawBlock(out, data, last)
	}
	s.Reuse = huff0.ReusePolicyNone
	packed, _, err := huff0.Compress4X(data, s)
	// The sizes before and after stand in 10 bits each, or 14, or 18.
	width, form := 10, uint64(1)
	if len(data) >= 1<<10 {
		width, form = 14, 2
	}
	if len(data) >= 1<<14 {
		width, form = 18, 3
	}
	header := (4 + 2*width) / 8
	if err != nil || header+len(packed)+1 >= len(data) {
		return AppendRawBlock(out, data, last)
	}
	head := uint32(header+len(packed)+1)<<3 | compressedBlock
	if last {
		head |= 1
	}
	out = append(out, byte(head), byte(head>>8), byte(head>>16))
	sizes := compressedLiterals | form<<2 | uint64(len(data))<<4 | uint64(len(packed))<<(4+width)
	for range header {
		out = append(out, byte(sizes))
		sizes >>= 8
	}
	return append(append(out, packed...), 0) // no sequences
}

// append writes a compressed frame and notes its place.
func (fw *Writer) append(packed []byte, size int, sum uint32) error {
	if err := fw.write(packed); err != nil {
		return err
	}
	fw.note(len(packed), size, sum)
	return nil
}

// note adds a frame to the seek table.
func (fw *Writer) note(packed, size int, sum uint32) {
	fw.seek = codec.AppendU32(codec.AppendU32(codec.AppendU32(fw.seek, uint32(packed)), uint32(size)), sum)
}

// begin has a frame compressed, after the first of those under way is written if there are enough.
func (fw *Writer) begin(data []byte, pieces []int) error {
	if len(fw.queue) >= fw.ahead {
		if err := fw.settle(); err != nil {
			return err
		}
	}
	var p *pendingFrame
	if n := len(fw.spare); n > 0 {
		p, fw.spare = fw.spare[n-1], fw.spare[:n-1]
	} else {
		p = &pendingFrame{done: make(chan struct{}, 1)}
	}
	p.data = append(p.data[:0], data...)
	pieces = slices.Clone(pieces)
	fw.queue = append(fw.queue, p)
	level := fw.level
	go func() {
		p.packed = packFrame(level, p.data, pieces, p.packed[:0])
		p.sum = uint32(xxhash.Sum64(p.data))
		p.done <- struct{}{}
	}()
	return nil
}

// settle waits for the first frame under way and writes it.
func (fw *Writer) settle() error {
	p := fw.queue[0]
	fw.queue = fw.queue[:copy(fw.queue, fw.queue[1:])]
	<-p.done
	err := fw.append(p.packed, len(p.data), p.sum)
	if cap(p.data) <= maxSpareFrame {
		fw.spare = append(fw.spare, p)
	}
	return err
}

// RawBytes is the sum of the sizes of the frames written so far: the decompressed offset of the next.
func (fw *Writer) RawBytes() int64 { return fw.raw }

// Bytes is the size of the file so far, without its tail and without frames that are compressed ahead.
func (fw *Writer) Bytes() int64 { return fw.off }

// Finish writes the tail. It does not close the underlying writer.
func (fw *Writer) Finish() (File, error) {
	for len(fw.queue) > 0 && fw.err == nil {
		_ = fw.settle() // which keeps its error in fw.err
	}
	if fw.err != nil {
		return File{}, fw.err
	}
	var tail []byte
	if fw.width > 0 {
		body := codec.AppendMagic(nil, fenceMagic, fenceVersion)
		body = codec.AppendU32(body, uint32(fw.frames))
		body = codec.AppendU32(body, uint32(fw.width))
		body = codec.AppendCRC32C(append(body, fw.fences...))
		tail = codec.AppendU32(tail, fenceFrameMagic)
		tail = codec.AppendU32(tail, uint32(len(body)))
		tail = append(tail, body...)
	}
	tail = codec.AppendU32(tail, seekFrameMagic)
	tail = codec.AppendU32(tail, uint32(len(fw.seek)+seekFooterSize))
	tail = append(tail, fw.seek...)
	tail = codec.AppendU32(tail, uint32(fw.frames))
	tail = append(tail, seekDescriptor)
	tail = codec.AppendU32(tail, seekFooterMagic)
	if err := fw.write(tail); err != nil {
		return File{}, err
	}
	f := File{Bytes: fw.off, TailBytes: int64(len(tail)), TailXXH64: xxhash.Sum64(tail), Frames: fw.frames, RawBytes: fw.raw}
	if !fw.noHash {
		f.XXH64 = fw.hash.Sum64()
	}
	fw.err = fmt.Errorf("frame file is finished")
	return f, nil
}

func (fw *Writer) write(b []byte) error {
	if _, err := fw.w.Write(b); err != nil {
		return fw.fail(err)
	}
	if !fw.noHash {
		fw.hash.Write(b)
	}
	fw.off += int64(len(b))
	return nil
}

func (fw *Writer) fail(err error) error {
	fw.err = err
	return err
}

// RangeReader reads exactly n bytes of one object. blob.Store's ReadRange bound to a key is one.
type RangeReader func(ctx context.Context, off, n int64) ([]byte, error)

// Frames is the opened tail of a frame file: it says where each frame is and reads it.
// It is immutable and safe for concurrent use.
type Frames struct {
	file   string
	width  int
	fences []byte
	// offs and raws are the frames' starts in the compressed and the decompressed file; the
	// last element is the end.
	offs []int64
	raws []int64
	sums []uint32
}

// SeekTable reads the seek table at the end of any file in zstd's seekable format. The table holds
// the stored and the decompressed size of each frame. Memory does not depend on the number of
// frames.
type SeekTable struct {
	// Frames is the number of frames. Start is the offset of the skippable frame that holds the
	// table. The caller checks that the data frames end there, or where other skippable frames
	// begin: if files were joined, the table describes the last one only.
	Frames, Start int64
	// Checksums reports whether frames have checksums.
	Checksums bool
	// Frame is the frame that Next has read.
	Frame SeekFrame

	file   string
	stream io.ReadCloser
	memory []byte // of buf
	buf    []byte // entries that were read
	rest   int64  // bytes of entries that were not
	err    error
}

// SeekFrame is one frame of a seek table.
type SeekFrame struct {
	Stored, Raw int64  // bytes before and after decompression
	Checksum    uint32 // low half of the xxh64 of the decompressed bytes
}

// OpenSeekTable checks footer and header of the seek table at the end of a file of size bytes. open
// returns the file's bytes from an offset to its end; it is called once for the footer and once for
// the table. The caller closes the table.
//
// If the file has no seek table, or a damaged one, the error is a *CorruptError that names file.
// Errors of open and of its readers are returned as they are.
func OpenSeekTable(open func(off int64) (io.ReadCloser, error), size int64, file string) (*SeekTable, error) {
	bad := func(off int64, want, got any) error { return codec.Corrupt(file, "seek table", off, want, got) }
	foot := size - seekFooterSize
	if foot < skippableHeader {
		return nil, bad(0, "a seek table", fmt.Sprintf("%d bytes", size))
	}
	footer, err := readFooter(open, foot)
	if err != nil {
		return nil, err
	}
	if m := binary.LittleEndian.Uint32(footer[5:]); m != seekFooterMagic {
		return nil, bad(foot+5, fmt.Sprintf("magic %#x", uint32(seekFooterMagic)), fmt.Sprintf("%#x", m))
	}
	if footer[4]&seekReserved != 0 {
		return nil, bad(foot+4, fmt.Sprintf("descriptor %#x", seekDescriptor), footer[4])
	}
	t := &SeekTable{file: file, Frames: int64(binary.LittleEndian.Uint32(footer[:])), Checksums: footer[4]&seekDescriptor != 0}
	entries := t.Frames * t.entrySize()
	if t.Start = foot - entries - skippableHeader; t.Start < 0 {
		return nil, bad(foot, fmt.Sprintf("at most %d frames", (foot-skippableHeader)/t.entrySize()), t.Frames)
	}
	if t.stream, err = open(t.Start); err != nil {
		return nil, err
	}
	t.rest, t.memory = entries, make([]byte, max(skippableHeader, min(entries, seekBuffer)))
	header := t.memory[:skippableHeader]
	if _, err = io.ReadFull(t.stream, header); err == nil {
		if m := binary.LittleEndian.Uint32(header); m != seekFrameMagic {
			err = bad(t.Start, fmt.Sprintf("magic %#x", uint32(seekFrameMagic)), fmt.Sprintf("%#x", m))
		} else if got := int64(binary.LittleEndian.Uint32(header[4:])); got != entries+seekFooterSize {
			err = bad(t.Start+4, entries+seekFooterSize, got)
		}
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// readFooter reads the last bytes of a file, which begin at off.
func readFooter(open func(off int64) (io.ReadCloser, error), off int64) (footer [seekFooterSize]byte, err error) {
	r, err := open(off)
	if err != nil {
		return footer, err
	}
	defer r.Close()
	_, err = io.ReadFull(r, footer[:])
	return footer, err
}

// Next reads the next frame into Frame. It returns false after the last one and after a failure.
func (t *SeekTable) Next() bool {
	if len(t.buf) == 0 && !t.fill() {
		return false
	}
	e := t.buf
	t.Frame.Stored = int64(binary.LittleEndian.Uint32(e))
	t.Frame.Raw = int64(binary.LittleEndian.Uint32(e[4:]))
	if t.Checksums {
		t.Frame.Checksum = binary.LittleEndian.Uint32(e[8:])
	}
	t.buf = e[t.entrySize():]
	return true
}

// fill reads more entries into buf, and reports whether there are any.
func (t *SeekTable) fill() bool {
	if t.err != nil || t.rest == 0 {
		return false
	}
	t.buf = t.memory[:min(t.rest, seekBuffer)]
	t.rest -= int64(len(t.buf))
	if _, t.err = io.ReadFull(t.stream, t.buf); t.err != nil {
		t.buf = nil
	}
	return t.err == nil
}

// Err is the first failure of Next.
func (t *SeekTable) Err() error { return t.err }

// Close closes what open returned.
func (t *SeekTable) Close() error { return t.stream.Close() }

// entrySize is the size of a frame's entry.
func (t *SeekTable) entrySize() int64 {
	if t.Checksums {
		return seekEntrySize
	}
	return seekEntrySize - 4
}

// OpenFrames checks and parses the tail of a frame file of size bytes.
func Open(tail []byte, size int64, file string, width int) (*Frames, error) {
	base := size - int64(len(tail))
	bad := func(at int, section string, want, got any) error {
		return codec.Corrupt(file, section, base+int64(at), want, got)
	}
	t, err := OpenSeekTable(func(off int64) (io.ReadCloser, error) {
		if off < base {
			return nil, bad(len(tail)-seekFooterSize, "seek table", fmt.Sprintf("a table of at most %d bytes", len(tail)), size-off)
		}
		return io.NopCloser(bytes.NewReader(tail[off-base:])), nil
	}, size, file)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	n, start := t.Frames, t.Start-base
	if at := len(tail) - seekFooterSize + 4; tail[at] != seekDescriptor {
		return nil, bad(at, "seek table", fmt.Sprintf("descriptor %#x", seekDescriptor), tail[at])
	}
	f := &Frames{file: file, width: width, offs: make([]int64, n+1), raws: make([]int64, n+1), sums: make([]uint32, n)}
	for i := int64(0); t.Next(); i++ {
		if t.Frame.Raw == 0 || t.Frame.Raw > MaxFrame {
			return nil, bad(int(start+skippableHeader+i*seekEntrySize), "seek table", fmt.Sprintf("a frame of 1 to %d bytes", MaxFrame), t.Frame.Raw)
		}
		f.offs[i+1] = f.offs[i] + t.Frame.Stored
		f.raws[i+1] = f.raws[i] + t.Frame.Raw
		f.sums[i] = t.Frame.Checksum
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	if f.offs[n] != base {
		return nil, bad(int(start), "seek table", fmt.Sprintf("frames that end at byte %d", base), f.offs[n])
	}
	if width == 0 {
		if start != 0 {
			return nil, bad(0, "seek table", "nothing before it in the tail", fmt.Sprintf("%d bytes", start))
		}
		return f, nil
	}
	if start < skippableHeader+fenceHeaderSize+4 {
		return nil, bad(0, "fences", "a fence list", fmt.Sprintf("%d bytes", start))
	}
	if m := binary.LittleEndian.Uint32(tail); m != fenceFrameMagic {
		return nil, bad(0, "fences", fmt.Sprintf("magic %#x", uint32(fenceFrameMagic)), fmt.Sprintf("%#x", m))
	}
	if got := int64(binary.LittleEndian.Uint32(tail[4:])); got != start-skippableHeader {
		return nil, bad(4, "fences", start-skippableHeader, got)
	}
	body, err := codec.CheckCRC32C(tail[skippableHeader:start], file, "fences")
	if err != nil {
		return nil, err
	}
	d := codec.NewDecoder(body, file, "fences")
	d.Magic(fenceMagic, fenceVersion)
	if got := int64(d.U32()); d.Err() == nil && got != n {
		d.Fail(fmt.Sprintf("%d fences", n), got)
	}
	if got := int(d.U32()); d.Err() == nil && got != width {
		d.Fail(fmt.Sprintf("width %d", width), got)
	}
	f.fences = d.Bytes(int(n) * width)
	if err := d.Close(); err != nil {
		return nil, err
	}
	for i := 1; i < int(n); i++ {
		if bytes.Compare(f.Fence(i-1), f.Fence(i)) >= 0 {
			return nil, bad(skippableHeader+fenceHeaderSize+i*width, "fences", fmt.Sprintf("more than %x", f.Fence(i-1)), fmt.Sprintf("%x", f.Fence(i)))
		}
	}
	return f, nil
}

// OpenFramesAt fetches the tail of ff's file in one read, checks its hash and opens it.
func OpenAt(ctx context.Context, read RangeReader, ff File, file string, width int) (*Frames, error) {
	if ff.TailBytes < 0 || ff.TailBytes > ff.Bytes {
		return nil, codec.Corrupt(file, "tail", -1, fmt.Sprintf("at most %d bytes", ff.Bytes), ff.TailBytes)
	}
	tail, err := read(ctx, ff.Bytes-ff.TailBytes, ff.TailBytes)
	if err != nil {
		return nil, fmt.Errorf("read tail of %s: %w", file, err)
	}
	if got := xxhash.Sum64(tail); got != ff.TailXXH64 {
		return nil, codec.Corrupt(file, "tail", ff.Bytes-ff.TailBytes, fmt.Sprintf("xxh64 %016x", ff.TailXXH64), fmt.Sprintf("%016x", got))
	}
	return Open(tail, ff.Bytes, file, width)
}

// Len is the number of frames.
func (f *Frames) Len() int { return len(f.sums) }

// RawBytes is the sum of the decompressed sizes.
func (f *Frames) RawBytes() int64 { return f.raws[len(f.raws)-1] }

// MemoryBytes is what the opened tail keeps in memory.
func (f *Frames) MemoryBytes() int64 { return int64(len(f.fences) + 20*len(f.sums) + 128) }

// Fence is the fence of frame i.
func (f *Frames) Fence(i int) []byte { return f.fences[i*f.width : (i+1)*f.width] }

// Find returns the frames [lo, hi) that can hold records with keys from first to last,
// both included, compared as bytes.
func (f *Frames) Find(first, last []byte) (lo, hi int) {
	n := f.Len()
	// The last frame whose fence is not above first holds it, if any frame does: keys are unique.
	lo = max(0, sort.Search(n, func(i int) bool { return bytes.Compare(f.Fence(i), first) > 0 })-1)
	hi = sort.Search(n, func(i int) bool { return bytes.Compare(f.Fence(i), last) > 0 })
	return lo, max(lo, hi)
}

// FrameAt returns the frame that holds decompressed offset off and the place of off in it; -1 if none does.
func (f *Frames) FrameAt(off int64) (frame, within int) {
	if off < 0 || off >= f.RawBytes() {
		return -1, 0
	}
	i := sort.Search(f.Len(), func(i int) bool { return f.raws[i+1] > off })
	return i, int(off - f.raws[i])
}

// Place is the compressed range of frames [lo, hi).
func (f *Frames) Place(lo, hi int) (off, n int64) { return f.offs[lo], f.offs[hi] - f.offs[lo] }

// RawSize is the decompressed size of frame i.
func (f *Frames) RawSize(i int) int64 { return f.raws[i+1] - f.raws[i] }

// Decode decodes and checks frame i from its compressed bytes. Data that was stored may be a view of them.
func (f *Frames) Decode(i int, compressed []byte) ([]byte, error) {
	return f.DecodeInto(i, compressed, nil)
}

// DecodeInto is Decode that decodes, where it does, into the memory of buf if that is enough: a reader of many frames needs no new memory for
// each.
func (f *Frames) DecodeInto(i int, compressed, buf []byte) ([]byte, error) {
	off, n := f.Place(i, i+1)
	bad := func(want, got any) error { return codec.Corrupt(f.file, fmt.Sprintf("frame %d", i), off, want, got) }
	if int64(len(compressed)) != n {
		return nil, bad(fmt.Sprintf("%d bytes", n), len(compressed))
	}
	size := f.RawSize(i)
	data, ok := storedContent(compressed, size)
	if !ok {
		if int64(cap(buf)) < size {
			buf = make([]byte, 0, size)
		}
		dec := frameDecoders.Get().(*zstd.Decoder)
		var err error
		data, err = dec.DecodeAll(compressed, buf[:0:size])
		frameDecoders.Put(dec)
		if err != nil {
			return nil, bad("a zstd frame", err)
		}
	}
	if int64(len(data)) != size {
		return nil, bad(fmt.Sprintf("%d bytes decompressed", size), len(data))
	}
	if got := uint32(prefetch.Sum64(data)); got != f.sums[i] {
		return nil, bad(fmt.Sprintf("checksum %08x", f.sums[i]), fmt.Sprintf("%08x", got))
	}
	return data, nil
}

// Read fetches frames [lo, hi) in one read and decodes them.
func (f *Frames) Read(ctx context.Context, read RangeReader, lo, hi int) ([][]byte, error) {
	if lo < 0 || hi > f.Len() || lo >= hi {
		return nil, fmt.Errorf("%s: frames %d to %d of %d", f.file, lo, hi, f.Len())
	}
	off, n := f.Place(lo, hi)
	raw, err := read(ctx, off, n)
	if err != nil {
		return nil, fmt.Errorf("read frames %d to %d of %s: %w", lo, hi, f.file, err)
	}
	out := make([][]byte, 0, hi-lo)
	for i := lo; i < hi; i++ {
		_, size := f.Place(i, i+1)
		if size > int64(len(raw)) {
			return nil, codec.Corrupt(f.file, fmt.Sprintf("frame %d", i), f.offs[i], fmt.Sprintf("%d bytes", size), len(raw))
		}
		data, err := f.Decode(i, raw[:size])
		if err != nil {
			return nil, err
		}
		out = append(out, data)
		raw = raw[size:]
	}
	return out, nil
}
