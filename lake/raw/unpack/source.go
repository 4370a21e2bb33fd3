// Package unpack decompresses the objects of a dataset: gzip, zstd, bzip2 and xz, also many
// members, frames or streams one after another.
//
// Memory is bounded by limits on the window of zstd and the dictionary of xz, and output by its
// ratio to the stored bytes. A truncated object is an error, never a shorter object. Errors of the
// store are kept apart from those of the object. Package lake/raw/reader reads through it;
// lake/raw/parquetin and lake/raw/detect use its limits and magics.
package unpack

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
	"github.com/urlake/urlake/lake/raw"
)

const (
	// maxZstdWindow bounds how much of a zstd frame its reader must buffer. `zstd --long` needs
	// 128 MiB; --long=31, with 2 GiB, is rejected.
	maxZstdWindow = 128 << 20

	// maxXZDictionary is the same bound for xz; `xz -9` needs 64 MiB.
	maxXZDictionary = 128 << 20

	// lowWindow replaces both with raw.Options.LowMemory: zstd up to level 19 and xz up to level 6
	// need at most 8 MiB.
	lowWindow = 8 << 20

	// Beyond freeOutput bytes, an object may decompress to at most maxRatio times what it has
	// stored. Logs reach some hundreds and gzip never more than 1,032. What compresses better
	// repeats itself; a few hundred KiB of it could keep a worker busy for days.
	freeOutput = 1 << 30
	maxRatio   = 2000
)

// ErrBomb is the error of an object that decompresses to far more than records need.
var ErrBomb = fmt.Errorf("it decompresses to more than %d GiB and more than %d times its size; "+
	"if it really holds that many records, decompress it first", freeOutput>>30, maxRatio)

// Ratio compares what is made of stored bytes with their number. The zero value is ready for use.
type Ratio struct{ made int64 }

// Add counts n bytes that were made of stored bytes in all. It returns ErrBomb if they are too
// many.
func (r *Ratio) Add(n, stored int64) error {
	if r.made += n; r.made > freeOutput && r.made/maxRatio > stored {
		return ErrBomb
	}
	return nil
}

// Source decompresses an object and counts how many of its stored bytes are used. Read is valid
// after Decompress or SetReader. It is not safe for concurrent use.
type Source struct {
	// LowMemory is raw.Options.LowMemory; it is to be set before Decompress.
	LowMemory bool
	// PageMemory is the most memory that pages of Parquet may take, 0 for no limit but that of
	// package parquetin. Beyond it the error is raw.ErrPageMemory.
	PageMemory int64
	// Size is how many stored bytes an object has that is not read in order, see SetSize.
	Size int64
	// Err is the first error of the reader that yields the stored bytes. It tells a failing store
	// from a damaged object. Readers of the store beside this Source set it too.
	Err error

	below   io.Reader     // yields the stored bytes
	stored  *bufio.Reader // of below
	r       io.Reader     // yields the decompressed bytes
	fetched int64         // bytes read from below, or as set by SetFetched
	read    int64         // bytes read from below
	ratio   Ratio         // of the decompressed bytes
	archive *Source       // the archive of which the object is a member, nil for none
	members Ratio         // of the bytes of an archive's members

	keep     int    // how many bytes recorded has at least, keepAll for all since Record
	recorded []byte // the last bytes that were read from below
	end      int64  // the offset behind recorded
	twice    int64  // bytes that Resume went back
}

const keepAll = -1

// Resume goes back at most freeTwice bytes plus maxTwice times the bytes read. So an object full of
// false members takes no endless time.
const freeTwice, maxTwice = 1 << 20, 8

// New returns the Source of an object whose stored bytes r yields.
func New(r io.Reader) *Source {
	s := &Source{below: r}
	s.stored = bufio.NewReaderSize(storedBytes{s}, 32<<10)
	return s
}

// storedBytes reads from below. It counts bytes and keeps the first error.
type storedBytes struct{ s *Source }

func (b storedBytes) Read(p []byte) (int, error) {
	n, err := b.s.below.Read(p)
	b.s.fetched += int64(n)
	b.s.read += int64(n)
	if b.s.keep != 0 {
		b.s.record(p[:n])
	}
	if err != nil && err != io.EOF {
		b.s.Err = err
	}
	return n, err
}

// Record keeps the stored bytes that are read from now on, until Rewind or Forget. It is called
// before the first read, by a caller that reads little before it decides.
func (s *Source) Record() { s.keep = keepAll }

// Forget drops the kept bytes.
func (s *Source) Forget() { s.Keep(0) }

// Keep keeps the last n stored bytes that are read, to which Resume goes back.
func (s *Source) Keep(n int) {
	if s.keep = n; n == 0 {
		s.recorded = nil
	}
}

// record appends b, which was read from below, to the kept bytes.
func (s *Source) record(b []byte) {
	if n := len(s.recorded); s.keep > 0 && n >= 2*s.keep {
		s.recorded = append(s.recorded[:0], s.recorded[n-s.keep:]...)
	}
	s.recorded = append(s.recorded, b...)
	s.end = s.fetched
}

// Rewind makes Stored begin again at the first byte after Record. Nothing may be read by Read
// before SetReader or Decompress is called.
func (s *Source) Rewind() {
	s.back(0)
	s.read = 0
}

// back makes Stored go on at an offset that is kept.
func (s *Source) back(offset int64) {
	kept := s.recorded[int64(len(s.recorded))-(s.end-offset):]
	s.fetched = offset
	s.stored.Reset(&rewound{kept, storedBytes{s}})
}

// Resume makes Stored go on at the first place from an offset on where the stored bytes are magic.
// Before the next byte of Stored, it searches only the bytes that are kept. found is false if the
// object ends before such a place, or if too much of it would have been read more than once.
func (s *Source) Resume(offset int64, magic string) (found bool, err error) {
	if offset = max(offset, s.end-int64(len(s.recorded))); offset < s.Used() {
		if s.twice += s.end - offset; s.twice > maxTwice*s.end+freeTwice {
			return false, nil
		}
		s.back(offset)
	}
	if _, err := s.stored.Discard(int(offset - s.Used())); err != nil {
		return false, NoErrorAtEnd(err)
	}
	for {
		b, err := s.stored.Peek(len(magic))
		if len(b) < len(magic) {
			return false, NoErrorAtEnd(err)
		}
		b, _ = s.stored.Peek(s.stored.Buffered())
		i := bytes.Index(b, []byte(magic))
		if i >= 0 {
			_, _ = s.stored.Discard(i) // it is buffered
			return true, nil
		}
		_, _ = s.stored.Discard(len(b) - len(magic) + 1)
	}
}

// rewound reads what was read before, and then goes on below.
type rewound struct {
	kept  []byte
	below storedBytes
}

func (r *rewound) Read(p []byte) (int, error) {
	if len(r.kept) == 0 {
		return r.below.Read(p)
	}
	n := copy(p, r.kept)
	r.kept = r.kept[n:]
	r.below.s.fetched += int64(n)
	r.below.s.read += int64(n)
	return n, nil
}

// NoErrorAtEnd returns nil for io.EOF.
func NoErrorAtEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// Below returns the reader given to New.
func (s *Source) Below() io.Reader { return s.below }

// Stored returns the reader of the stored bytes, from the first that is not used yet.
func (s *Source) Stored() *bufio.Reader { return s.stored }

// SetReader makes r, which reads from Stored, yield the decompressed bytes. It replaces Decompress
// where the caller knows the compression.
func (s *Source) SetReader(r io.Reader) { s.r = r }

// SetSize drops the buffered bytes and sets Size: from now on the caller reads the object of so
// many stored bytes by offset and reports its progress by SetFetched.
func (s *Source) SetSize(size int64) {
	s.stored.Reset(bytes.NewReader(nil))
	s.Size, s.fetched = size, 0
}

// SetFetched sets the offset of the next byte that is read from Below, in the object as stored.
func (s *Source) SetFetched(offset int64) { s.fetched = offset }

// Used returns how many of the object's stored bytes have been used.
func (s *Source) Used() int64 { return s.fetched - int64(s.stored.Buffered()) }

// Limit returns low with LowMemory, else usual.
func (s *Source) Limit(usual, low int64) int64 {
	if s.LowMemory {
		return low
	}
	return usual
}

// SetArchive tells that the object is a member of an archive, with whose stored bytes those of all
// its members are compared: a member may be compressed once more, or be sparse.
func (s *Source) SetArchive(archive *Source) { s.archive = archive }

// Read yields the decompressed bytes. It returns ErrBomb for an object that has too many.
func (s *Source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if bomb := s.Made(int64(n)); bomb != nil {
		return n, bomb
	}
	return n, err
}

// Made counts n bytes that a caller decompressed from Stored without Read. It returns ErrBomb if
// they are too many.
func (s *Source) Made(n int64) error {
	if bomb := s.ratio.Add(n, s.consumed()); bomb != nil {
		return bomb
	}
	if a := s.archive; a != nil {
		return a.members.Add(n, a.consumed())
	}
	return nil
}

// ReadBelow counts n stored bytes that a caller read from Below by their offset.
func (s *Source) ReadBelow(n int64) { s.read += n }

// consumed returns how many of the bytes read from below are decompressed.
func (s *Source) consumed() int64 { return s.read - int64(s.stored.Buffered()) }

// CompressionOf returns the compression of an object whose stored bytes begin with head, of which
// 10 are enough: gzip, zstd, bzip2, xz or raw.NoCompression.
func CompressionOf(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b\x08")):
		return "gzip"
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")),
		// A skippable frame, with which pzstd and others begin.
		len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18":
		return "zstd"
	case len(head) >= 10 && string(head[:3]) == "BZh" && head[3] >= '1' && head[3] <= '9' &&
		(string(head[4:10]) == "\x31\x41\x59\x26\x53\x59" || string(head[4:10]) == "\x17\x72\x45\x38\x50\x90"):
		return "bzip2"
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return "xz"
	}
	return raw.NoCompression
}

// Decompress makes Read decompress the object, and returns its compression, which its first bytes
// decide. If want is not empty, it is an error that the object has another compression.
func (s *Source) Decompress(want string) (compression string, err error) {
	head, _ := s.stored.Peek(10)
	if s.Err != nil {
		return raw.NoCompression, s.Err
	}
	is := CompressionOf(head)
	if want != "" && want != is {
		return is, fmt.Errorf("the plan says compression %s, the object has %s: it was changed since", want, is)
	}
	switch is {
	case "gzip":
		s.r = s.GzipMembers()
	case "zstd":
		dictionary, err := s.ReadDictionary()
		if err != nil {
			return is, err
		}
		z, err := s.NewZstdReader(s.stored, dictionary)
		if err != nil {
			return is, err
		}
		s.r = z
	case "bzip2":
		s.r = bzip2.NewReader(s.stored)
	case "xz":
		d, err := xz.NewReader(fullReads{s.stored}, uint32(s.Limit(maxXZDictionary, lowWindow)))
		if err != nil {
			return is, xzError(err)
		}
		s.r = xzStreams{d}
	default:
		s.r = s.stored
	}
	return is, nil
}

// GzipMembers reads gzip members one after another (RFC 1952, 2.2). Zero bytes behind the last
// member, with which tapes and block devices pad, end the object. Other bytes are an error: a
// damaged download must not look complete.
type GzipMembers struct {
	stored *bufio.Reader
	zr     *gzip.Reader
	open   bool

	made   int64   // bytes that Read returned
	last   byte    // the last of them
	starts []int64 // see Source.MemberIn
}

// maxStarts is how many starts of members are kept, the last ones: more than a record holds.
const maxStarts = 64 << 10

// MemberIn returns the offset in (from, to) of the decompressed object where a gzip member begins
// though the one before does not end in a line feed; 0 if there is none or it was forgotten.
func (s *Source) MemberIn(from, to int64) int64 {
	if g, ok := s.r.(*GzipMembers); ok {
		if i, _ := slices.BinarySearch(g.starts, from+1); i < len(g.starts) && g.starts[i] < to {
			return g.starts[i]
		}
	}
	return 0
}

// GzipMembers returns a reader of the members from the first stored byte on that is not used yet.
func (s *Source) GzipMembers() *GzipMembers { return &GzipMembers{stored: s.stored} }

// Read reads all members as one.
func (g *GzipMembers) Read(p []byte) (int, error) {
	for {
		if !g.open {
			if err := g.PassPadding(); err != nil {
				return 0, err
			}
			if err := g.Begin(); err != nil {
				return 0, err
			}
			if g.made > 0 && g.last != '\n' {
				if len(g.starts) == maxStarts {
					g.starts = append(g.starts[:0], g.starts[maxStarts/2:]...)
				}
				g.starts = append(g.starts, g.made)
			}
		}
		n, err := g.ReadMember(p)
		if n > 0 {
			g.made, g.last = g.made+int64(n), p[n-1]
		}
		if err == io.EOF {
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// PassPadding passes the zero bytes behind a member. The error is io.EOF at the end of the object.
func (g *GzipMembers) PassPadding() error {
	padding := false
	for g.zr != nil {
		b, err := g.stored.Peek(1)
		if err != nil {
			return err
		}
		if b[0] != 0 {
			break
		}
		padding = true
		_, _ = g.stored.Discard(1) // it is buffered
	}
	if padding {
		return errors.New("bytes behind the zero padding of the last gzip member")
	}
	return nil
}

// Begin begins the member at the next stored byte.
func (g *GzipMembers) Begin() error {
	if g.zr == nil {
		g.zr = new(gzip.Reader)
	}
	if err := g.zr.Reset(g.stored); err != nil {
		// Reset returns io.EOF if the object ends within a member's header.
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		} else if errors.Is(err, gzip.ErrHeader) {
			err = errors.New("want a gzip member here, got other bytes")
		}
		return err
	}
	g.zr.Multistream(false)
	g.open = true
	return nil
}

// ReadMember reads the member that was begun. It returns io.EOF at its end.
func (g *GzipMembers) ReadMember(p []byte) (int, error) {
	n, err := g.zr.Read(p)
	g.open = g.open && err != io.EOF
	return n, err
}

// ZstdReader decompresses zstd frames in the goroutine that calls Read: callers read many objects
// at once already. It needs no closing.
type ZstdReader struct{ d *zstd.Decoder }

// NewZstdReader returns a reader of the frames that r yields, with a window of up to 128 MiB.
func NewZstdReader(r io.Reader) (*ZstdReader, error) { return newZstdReader(r, maxZstdWindow) }

const (
	// dictionaryMagic begins a skippable frame with the dictionary of the frames behind it, as in
	// .warc.zst (https://iipc.github.io/warc-specifications/specifications/warc-zstd/).
	dictionaryMagic = 0x184d2a5d

	// maxDictionary bounds such a dictionary, lowDictionary with raw.Options.LowMemory. Usual ones
	// have about a hundred KiB.
	maxDictionary, lowDictionary = 16 << 20, 1 << 20
)

// ReadDictionary returns the dictionary with which an object of zstd begins, nil for none. It
// consumes the frame of a dictionary. A frame that is too large, or holds no dictionary, is passed.
func (s *Source) ReadDictionary() ([]byte, error) {
	head, _ := s.stored.Peek(8)
	if len(head) < 8 || binary.LittleEndian.Uint32(head) != dictionaryMagic {
		return nil, nil
	}
	size := int64(binary.LittleEndian.Uint32(head[4:]))
	if size > s.Limit(maxDictionary, lowDictionary) {
		return nil, nil // the decoder passes it
	}
	_, _ = s.stored.Discard(8) // it is buffered
	// Little is allocated for a frame that only claims to be large.
	b, err := io.ReadAll(io.LimitReader(s.stored, size))
	if err == nil && int64(len(b)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	if CompressionOf(b) == "zstd" {
		d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(lowWindow))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		if b, err = io.ReadAll(io.LimitReader(d, maxDictionary+1)); err != nil || len(b) > maxDictionary {
			return nil, nil
		}
	}
	if _, err := zstd.InspectDictionary(b); err != nil {
		return nil, nil
	}
	return b, nil
}

// NewZstdReader returns a reader of frames that r yields, with the window that the Source allows.
// dictionary is what the frames were compressed with, nil for none.
func (s *Source) NewZstdReader(r io.Reader, dictionary []byte) (*ZstdReader, error) {
	var opts []zstd.DOption
	if len(dictionary) > 0 {
		opts = append(opts, zstd.WithDecoderDicts(dictionary))
	}
	return newZstdReader(r, s.Limit(maxZstdWindow, lowWindow), opts...)
}

func newZstdReader(r io.Reader, maxWindow int64, opts ...zstd.DOption) (*ZstdReader, error) {
	d, err := zstd.NewReader(r, append(opts, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(uint64(maxWindow)))...)
	if err != nil {
		return nil, err
	}
	return &ZstdReader{d}, nil
}

// Read yields the decompressed bytes. The error of a window that is too large says how to avoid it.
func (z *ZstdReader) Read(p []byte) (int, error) {
	n, err := z.d.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("the zstd window is larger than %d MiB; compress it again without --long: %w",
			maxZstdWindow>>20, err)
	}
	return n, err
}

// Reset makes z read the frames that r yields.
func (z *ZstdReader) Reset(r io.Reader) error { return z.d.Reset(r) }

// fullReads fills every buffer it is given. How many bytes of a damaged object xz yields before its
// error depends on the sizes of the reads below, which must not depend on the network.
type fullReads struct{ r io.Reader }

func (f fullReads) Read(p []byte) (int, error) {
	n, err := io.ReadFull(f.r, p)
	if err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// xzStreams reads xz streams. Its errors say what to do.
type xzStreams struct{ d *xz.Reader }

func (x xzStreams) Read(p []byte) (int, error) {
	n, err := x.d.Read(p)
	return n, xzError(err)
}

func xzError(err error) error {
	switch {
	case errors.Is(err, xz.ErrBuf):
		return io.ErrUnexpectedEOF
	case errors.Is(err, xz.ErrMemlimit):
		return fmt.Errorf("the xz dictionary is larger than %d MiB; compress it again with xz -9 at most: %w",
			maxXZDictionary>>20, err)
	case errors.Is(err, xz.ErrFormat):
		return errors.New("want an xz stream here, got other bytes")
	}
	return err
}
