package seekable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
)

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

	// MaxFrame is the maximum decompressed size of a frame. It bounds what a reader allocates
	// because a seek table says so. It is enough for the postings of a domain that is in each of a
	// million parts.
	MaxFrame = 64 << 20

	// maxSpareFrame is the maximum size of a frame whose memory is reused.
	maxSpareFrame = 1 << 20
)

// Writer writes a frame file. Settings come first, then frames, then Finish; calls in another order
// fail. A failure is final: all later calls return it. A Writer is used by one goroutine at a time.
// It may be dropped without Finish.
type Writer struct {
	w      io.Writer
	width  int
	encode func(dst, data []byte) []byte
	seek   []byte // entries of the seek table
	fences []byte
	frames int
	off    int64
	raw    int64
	hash   xxhash.Digest
	noHash bool
	buf    []byte
	err    error

	concurrency int
	queue       []*pendingFrame // compressed or about to be, in the order of the file
	spare       []*pendingFrame
}

// pendingFrame is a frame that a goroutine compresses.
type pendingFrame struct {
	data, packed []byte
	sum          uint32
	done         chan struct{}
}

// File describes a finished frame file: what a reader must know before it opens one.
type File struct {
	Bytes int64  // size of the file
	XXH64 uint64 // hash of the file; 0 after SkipHash
	// FooterBytes and FooterXXH64 are the size and the hash of the footer, the fences and the seek
	// table at the end of the file.
	FooterBytes int64
	FooterXXH64 uint64
	Frames      int
	RawBytes    int64 // sum of the decompressed sizes
}

// NewWriter returns a Writer to w. Each frame has a fence of width bytes; with width 0 the file has
// no fences. Frames are compressed by zstd at its fastest level, one at a time, unless a setting
// says otherwise.
func NewWriter(w io.Writer, width int) *Writer {
	fw := &Writer{w: w, width: width, encode: appendCompressed}
	fw.hash.Reset()
	return fw
}

// DisableCompression writes frames as zstd frames of raw blocks. It is for files that are read once
// and soon, and for data that is packed already.
func (fw *Writer) DisableCompression() {
	if fw.setting("no compression") {
		fw.encode = appendStored
	}
}

// SkipHash leaves out the hash of the whole file. Every byte is still covered by a frame's checksum
// or the footer's hash. It is for files that are never read as a whole.
func (fw *Writer) SkipHash() {
	if fw.setting("no hash") {
		fw.noHash = true
	}
}

// SetConcurrency compresses up to n frames concurrently, each in a goroutine, while the caller
// makes the next. Frame then copies its data and returns. The file is the same, and the calling
// goroutine alone writes it. An error of the underlying writer may be returned some frames later,
// at the latest by Finish.
func (fw *Writer) SetConcurrency(n int) {
	if fw.setting("concurrency") {
		fw.concurrency = n
	}
}

// setting reports whether settings may still be changed, and fails the Writer if not.
func (fw *Writer) setting(what string) bool {
	if fw.err == nil && fw.frames > 0 {
		fw.err = fmt.Errorf("%s set after %d frames; settings come before the first frame", what, fw.frames)
	}
	return fw.err == nil
}

// Frame writes data as one frame and returns its number and the decompressed offset at which it
// starts. Fences must ascend strictly, because Find looks for a key in one frame only. Data is 1 to
// MaxFrame bytes and is not kept.
func (fw *Writer) Frame(fence, data []byte) (frame int, rawOffset int64, err error) {
	return fw.frame(fence, data, fw.encode)
}

// SectionedFrame is Frame for data that consists of sections, each with its own distribution of
// bytes. Each section is Huffman-coded alone and no repetitions are searched. For data that is
// already packed in other ways the result is nearly as small as by compressing it, in a tenth of
// the time. Sizes are the sizes of the sections and must add up to that of data.
func (fw *Writer) SectionedFrame(fence, data []byte, sizes ...int) (frame int, rawOffset int64, err error) {
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if fw.err == nil && (len(sizes) == 0 || sum != len(data)) {
		return 0, 0, fw.fail(fmt.Errorf("frame %d: sections of %d bytes in a frame of %d", fw.frames, sum, len(data)))
	}
	sizes = slices.Clone(sizes)
	return fw.frame(fence, data, func(dst, data []byte) []byte { return appendSections(dst, data, sizes) })
}

func (fw *Writer) frame(
	fence, data []byte, encode func(dst, data []byte) []byte,
) (frame int, rawOffset int64, err error) {
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
	if fw.concurrency > 0 {
		if err := fw.start(data, encode); err != nil {
			return 0, 0, err
		}
	} else {
		fw.buf = encode(fw.buf[:0], data)
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

// StoredFrame writes the concatenation of parts as one frame of raw blocks, whatever the encoder.
// It does not copy parts of at most MaxRawBlock bytes in all. The file must have no fences and no
// concurrency.
func (fw *Writer) StoredFrame(parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	switch {
	case fw.err != nil:
		return fw.err
	case fw.width > 0 || fw.concurrency > 0:
		return fw.fail(fmt.Errorf("frame %d: StoredFrame in a file with fences or concurrency", fw.frames))
	case size == 0 || size > MaxFrame:
		return fw.fail(fmt.Errorf("frame %d: %d bytes, allowed are 1 to %d", fw.frames, size, MaxFrame))
	case size > MaxRawBlock:
		data := slices.Concat(parts...)
		fw.buf = appendStored(fw.buf[:0], data)
		if err := fw.append(fw.buf, size, uint32(xxhash.Sum64(data))); err != nil {
			return err
		}
	default:
		var buf [16]byte
		header := appendRawBlockHeader(AppendZstdHeader(buf[:0], size), size, true)
		if err := fw.write(header); err != nil {
			return err
		}
		var sum xxhash.Digest
		sum.Reset()
		for _, p := range parts {
			sum.Write(p)
			if err := fw.write(p); err != nil {
				return err
			}
		}
		fw.appendEntry(len(header)+size, size, uint32(sum.Sum64()))
	}
	fw.frames++
	fw.raw += int64(size)
	return nil
}

// append writes a compressed frame and appends its entry to the seek table.
func (fw *Writer) append(packed []byte, size int, sum uint32) error {
	if err := fw.write(packed); err != nil {
		return err
	}
	fw.appendEntry(len(packed), size, sum)
	return nil
}

func (fw *Writer) appendEntry(packed, size int, sum uint32) {
	fw.seek = codec.AppendU32(codec.AppendU32(codec.AppendU32(fw.seek, uint32(packed)), uint32(size)), sum)
}

// start starts to compress a frame. If the queue is full, it writes the first frame of the queue
// before.
func (fw *Writer) start(data []byte, encode func(dst, data []byte) []byte) error {
	if len(fw.queue) >= fw.concurrency {
		if err := fw.writePending(); err != nil {
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
	fw.queue = append(fw.queue, p)
	go func() {
		p.packed = encode(p.packed[:0], p.data)
		p.sum = uint32(xxhash.Sum64(p.data))
		p.done <- struct{}{}
	}()
	return nil
}

// writePending waits for the first frame of the queue and writes it.
func (fw *Writer) writePending() error {
	p := fw.queue[0]
	fw.queue = fw.queue[:copy(fw.queue, fw.queue[1:])]
	<-p.done
	err := fw.append(p.packed, len(p.data), p.sum)
	if cap(p.data) <= maxSpareFrame {
		fw.spare = append(fw.spare, p)
	}
	return err
}

// RawBytes is the sum of the sizes of the frames: the decompressed offset of the next frame.
func (fw *Writer) RawBytes() int64 { return fw.raw }

// Bytes is the number of bytes written: the frames so far, without those of the queue.
func (fw *Writer) Bytes() int64 { return fw.off }

// Finish writes the footer. It does not close the underlying writer.
func (fw *Writer) Finish() (File, error) {
	for len(fw.queue) > 0 && fw.err == nil {
		_ = fw.writePending() // an error is also in fw.err
	}
	if fw.err != nil {
		return File{}, fw.err
	}
	var footer []byte
	if fw.width > 0 {
		body := codec.AppendMagic(nil, fenceMagic, fenceVersion)
		body = codec.AppendU32(body, uint32(fw.frames))
		body = codec.AppendU32(body, uint32(fw.width))
		body = codec.AppendCRC32C(append(body, fw.fences...))
		footer = codec.AppendU32(footer, fenceFrameMagic)
		footer = codec.AppendU32(footer, uint32(len(body)))
		footer = append(footer, body...)
	}
	footer = codec.AppendU32(footer, seekFrameMagic)
	footer = codec.AppendU32(footer, uint32(len(fw.seek)+seekFooterSize))
	footer = append(footer, fw.seek...)
	footer = codec.AppendU32(footer, uint32(fw.frames))
	footer = append(footer, seekDescriptor)
	footer = codec.AppendU32(footer, seekFooterMagic)
	if err := fw.write(footer); err != nil {
		return File{}, err
	}
	f := File{
		Bytes: fw.off, FooterBytes: int64(len(footer)), FooterXXH64: xxhash.Sum64(footer),
		Frames: fw.frames, RawBytes: fw.raw,
	}
	if !fw.noHash {
		f.XXH64 = fw.hash.Sum64()
	}
	fw.err = errors.New("frame file is finished")
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

// RangeReader reads exactly n bytes of one object from off: the ReadRange method of a blob.Store,
// bound to a key.
type RangeReader func(ctx context.Context, off, n int64) ([]byte, error)

// Frames is the footer of a frame file: it knows the range of each frame and decodes frames. It is
// immutable and safe for concurrent use.
type Frames struct {
	file   string
	width  int
	fences []byte
	// offs and raws are the offsets at which the frames start in the file and in the decompressed
	// data; the last element is the end of the last frame.
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

// Open parses the footer of a frame file of size bytes with fences of width bytes. File names the
// file in errors. A footer that is damaged or has another width is a *codec.CorruptError.
func Open(footer []byte, size int64, file string, width int) (*Frames, error) {
	base := size - int64(len(footer))
	bad := func(at int, section string, want, got any) error {
		return codec.Corrupt(file, section, base+int64(at), want, got)
	}
	t, err := OpenSeekTable(func(off int64) (io.ReadCloser, error) {
		if off < base {
			return nil, bad(len(footer)-seekFooterSize, "seek table", fmt.Sprintf("a table of at most %d bytes", len(footer)), size-off)
		}
		return io.NopCloser(bytes.NewReader(footer[off-base:])), nil
	}, size, file)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	n, start := t.Frames, t.Start-base
	if at := len(footer) - seekFooterSize + 4; footer[at] != seekDescriptor {
		return nil, bad(at, "seek table", fmt.Sprintf("descriptor %#x", seekDescriptor), footer[at])
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
			return nil, bad(0, "seek table", "nothing before it in the footer", fmt.Sprintf("%d bytes", start))
		}
		return f, nil
	}
	if start < skippableHeader+fenceHeaderSize+4 {
		return nil, bad(0, "fences", "a fence list", fmt.Sprintf("%d bytes", start))
	}
	if m := binary.LittleEndian.Uint32(footer); m != fenceFrameMagic {
		return nil, bad(0, "fences", fmt.Sprintf("magic %#x", uint32(fenceFrameMagic)), fmt.Sprintf("%#x", m))
	}
	if got := int64(binary.LittleEndian.Uint32(footer[4:])); got != start-skippableHeader {
		return nil, bad(4, "fences", start-skippableHeader, got)
	}
	body, err := codec.CheckCRC32C(footer[skippableHeader:start], file, "fences")
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

// OpenAt reads the footer of a frame file in one read, checks its hash and parses it as Open does.
func OpenAt(ctx context.Context, read RangeReader, ff File, file string, width int) (*Frames, error) {
	if ff.FooterBytes < 0 || ff.FooterBytes > ff.Bytes {
		return nil, codec.Corrupt(file, "footer", -1, fmt.Sprintf("at most %d bytes", ff.Bytes), ff.FooterBytes)
	}
	footer, err := read(ctx, ff.Bytes-ff.FooterBytes, ff.FooterBytes)
	if err != nil {
		return nil, fmt.Errorf("read footer of %s: %w", file, err)
	}
	if got := xxhash.Sum64(footer); got != ff.FooterXXH64 {
		return nil, codec.Corrupt(file, "footer", ff.Bytes-ff.FooterBytes,
			fmt.Sprintf("xxh64 %016x", ff.FooterXXH64), fmt.Sprintf("%016x", got))
	}
	return Open(footer, ff.Bytes, file, width)
}

// OpenWithoutFooter is Open for a file of size bytes of which nobody recorded the footer. It finds
// the footer by the seek table at the end of the file.
func OpenWithoutFooter(ctx context.Context, read RangeReader, size int64, file string, width int) (*Frames, error) {
	table, err := OpenSeekTable(func(off int64) (io.ReadCloser, error) {
		data, err := read(ctx, off, size-off)
		return io.NopCloser(bytes.NewReader(data)), err
	}, size, file)
	if err != nil {
		return nil, err
	}
	start := int64(0) // of the footer, which follows the frames
	for table.Next() {
		start += table.Frame.Stored
	}
	if err := errors.Join(table.Err(), table.Close()); err != nil {
		return nil, err
	}
	if start < 0 || start > table.Start {
		return nil, codec.Corrupt(file, "seek table", -1, fmt.Sprintf("frames of at most %d bytes", table.Start), start)
	}
	footer, err := read(ctx, start, size-start)
	if err != nil {
		return nil, err
	}
	return Open(footer, size, file, width)
}

// Len is the number of frames.
func (f *Frames) Len() int { return len(f.sums) }

// RawBytes is the sum of the decompressed sizes.
func (f *Frames) RawBytes() int64 { return f.raws[len(f.raws)-1] }

// MemoryBytes is the memory that f takes.
func (f *Frames) MemoryBytes() int64 { return int64(len(f.fences) + 20*len(f.sums) + 128) }

// Fence is the fence of frame i, as a view.
func (f *Frames) Fence(i int) []byte { return f.fences[i*f.width : (i+1)*f.width] }

// Find returns the frames [lo, hi) that can have records with keys from first to last, both
// included. Keys are compared as bytes.
func (f *Frames) Find(first, last []byte) (lo, hi int) {
	n := f.Len()
	// If any frame has the key first, it is the last frame whose fence is not above first, because
	// keys are unique.
	lo = max(0, sort.Search(n, func(i int) bool { return bytes.Compare(f.Fence(i), first) > 0 })-1)
	hi = sort.Search(n, func(i int) bool { return bytes.Compare(f.Fence(i), last) > 0 })
	return lo, max(lo, hi)
}

// FrameAt returns the frame with the decompressed offset off, and off's offset in that frame. If
// there is none, frame is -1.
func (f *Frames) FrameAt(off int64) (frame, within int) {
	if off < 0 || off >= f.RawBytes() {
		return -1, 0
	}
	i := sort.Search(f.Len(), func(i int) bool { return f.raws[i+1] > off })
	return i, int(off - f.raws[i])
}

// Range is the range of the frames [lo, hi) in the file: its offset and its size.
func (f *Frames) Range(lo, hi int) (off, n int64) { return f.offs[lo], f.offs[hi] - f.offs[lo] }

// RawSize is the decompressed size of frame i.
func (f *Frames) RawSize(i int) int64 { return f.raws[i+1] - f.raws[i] }

// Decode decodes frame i from its compressed bytes and checks it. The content of a stored frame may
// be a view of compressed.
func (f *Frames) Decode(i int, compressed []byte) ([]byte, error) {
	return f.DecodeInto(i, compressed, nil)
}

// DecodeInto is Decode with memory for the content: a frame that fits into the capacity of buf is
// decoded there.
func (f *Frames) DecodeInto(i int, compressed, buf []byte) ([]byte, error) {
	off, n := f.Range(i, i+1)
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
		dec := decoders.Get().(*zstd.Decoder)
		var err error
		data, err = dec.DecodeAll(compressed, buf[:0:size])
		decoders.Put(dec)
		if err != nil {
			return nil, bad("a zstd frame", err)
		}
	}
	if int64(len(data)) != size {
		return nil, bad(fmt.Sprintf("%d bytes decompressed", size), len(data))
	}
	if got := uint32(xxhash.Sum64(data)); got != f.sums[i] {
		return nil, bad(fmt.Sprintf("checksum %08x", f.sums[i]), fmt.Sprintf("%08x", got))
	}
	return data, nil
}

// Read reads the frames [lo, hi) in one read and decodes them.
func (f *Frames) Read(ctx context.Context, read RangeReader, lo, hi int) ([][]byte, error) {
	if lo < 0 || hi > f.Len() || lo >= hi {
		return nil, fmt.Errorf("%s: frames %d to %d of %d", f.file, lo, hi, f.Len())
	}
	off, n := f.Range(lo, hi)
	raw, err := read(ctx, off, n)
	if err != nil {
		return nil, fmt.Errorf("read frames %d to %d of %s: %w", lo, hi, f.file, err)
	}
	out := make([][]byte, 0, hi-lo)
	for i := lo; i < hi; i++ {
		_, size := f.Range(i, i+1)
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
