package warcin

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// members are the parts that a file is compressed in. A file that is written for replay has one for
// every record, which can then be read by itself.
type members interface {
	// next begins the next member and returns the offset of its first stored byte, -1 if members
	// have none. After the last member the error is io.EOF. The caller has read the member before
	// to its end, or called skip, or src.Resume.
	next() (offset int64, err error)
	// Read yields the decompressed bytes of the member, io.EOF at its end.
	io.Reader
	// size returns how many decompressed bytes the member has, -1 if only reading tells.
	size() int64
	// skip passes the rest of the member, if possible without decompressing it.
	skip() error
	// magic is how a member begins, "" if none can be found behind a damaged one.
	magic() string
}

// newMembers returns the members of the object that src stores.
func newMembers(src *unpack.Source, compression string) (members, error) {
	switch compression {
	case "gzip":
		return &gzipMembers{src: src}, nil
	case "zstd":
		return newZstdMembers(src)
	}
	// The file is one member: it is not compressed, or by something that no record can be cut of.
	m := &wholeFile{src: src}
	if compression == raw.NoCompression {
		m.r = src.Stored()
		return m, nil
	}
	if _, err := src.Decompress(compression); err != nil {
		return nil, err
	}
	m.r, m.packed = src, true
	return m, nil
}

// wholeFile is a file that is one member.
type wholeFile struct {
	src    *unpack.Source
	r      io.Reader
	packed bool
	begun  bool
}

func (m *wholeFile) next() (int64, error) {
	if m.begun {
		return -1, io.EOF
	}
	m.begun = true
	if m.packed {
		return -1, nil
	}
	return 0, nil
}

func (m *wholeFile) Read(p []byte) (int, error) { return m.r.Read(p) }
func (m *wholeFile) size() int64                { return -1 }
func (m *wholeFile) skip() error                { return discard(m) }
func (m *wholeFile) magic() string              { return "" }

// gzipMembers are those of gzip (RFC 1952). Zero bytes behind the last one are padding.
type gzipMembers struct {
	src *unpack.Source
	zr  *gzip.Reader
}

func (m *gzipMembers) next() (int64, error) {
	stored := m.src.Stored()
	if m.zr == nil {
		m.zr = new(gzip.Reader)
	} else if err := skipPadding(stored); err != nil {
		return -1, err
	}
	offset := m.src.Used()
	if err := m.zr.Reset(stored); err != nil {
		switch {
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		case errors.Is(err, gzip.ErrHeader):
			err = errors.New("want a gzip member here, got other bytes")
		}
		return offset, err
	}
	m.zr.Multistream(false)
	return offset, nil
}

// skipPadding passes zero bytes. The error is io.EOF if nothing follows them, or the member before.
func skipPadding(stored *bufio.Reader) error {
	padding := false
	for {
		b, err := stored.Peek(1)
		if err != nil {
			return err
		}
		if b[0] != 0 {
			break
		}
		padding = true
		_, _ = stored.Discard(1) // it is buffered
	}
	if padding {
		return errors.New("bytes behind the zero padding of the last gzip member")
	}
	return nil
}

func (m *gzipMembers) Read(p []byte) (int, error) {
	n, err := m.zr.Read(p)
	if bomb := m.src.Made(int64(n)); bomb != nil {
		return n, bomb
	}
	return n, err
}

func (m *gzipMembers) size() int64   { return -1 }
func (m *gzipMembers) skip() error   { return discard(m) }
func (m *gzipMembers) magic() string { return "\x1f\x8b\x08" }

const (
	zstdMagic    = 0xfd2fb528
	maxZstdBlock = 128 << 10
)

// zstdMembers are frames of zstd (RFC 8878). The headers of a frame's blocks tell where it ends, so
// that it is passed without being decompressed.
type zstdMembers struct {
	src *unpack.Source
	d   *unpack.ZstdReader
	zstdFrame
	// begun is the offset of the frame. passed is the offset of the frame before if that was
	// skipped by the lengths in its block headers, which nothing has checked; else -1.
	begun, passed int64
}

func newZstdMembers(src *unpack.Source) (*zstdMembers, error) {
	dictionary, err := src.ReadDictionary()
	if err != nil {
		return nil, noEOF(err)
	}
	d, err := src.NewZstdReader(nil, dictionary)
	if err != nil {
		return nil, err
	}
	return &zstdMembers{src: src, d: d, zstdFrame: zstdFrame{stored: src.Stored()}, passed: -1}, nil
}

func (m *zstdMembers) next() (int64, error) {
	for {
		offset := m.src.Used()
		head, err := m.stored.Peek(8)
		if len(head) == 0 {
			return -1, err
		}
		if len(head) >= 8 && binary.LittleEndian.Uint32(head)&^0xf == 0x184d2a50 {
			// Skippable frames hold no records.
			_, _ = m.stored.Discard(8)
			if err := discardStored(m.stored, int64(binary.LittleEndian.Uint32(head[4:]))); err != nil {
				return offset, err
			}
			continue
		}
		if err := m.begin(); err != nil {
			if m.passed >= 0 {
				offset, m.passed = m.passed, -1
			}
			return offset, err
		}
		m.begun, m.passed = offset, -1
		return offset, m.d.Reset(&m.zstdFrame)
	}
}

func (m *zstdMembers) Read(p []byte) (int, error) {
	n, err := m.d.Read(p)
	if bomb := m.src.Made(int64(n)); bomb != nil {
		return n, bomb
	}
	return n, err
}

func (m *zstdMembers) size() int64   { return m.content }
func (m *zstdMembers) magic() string { return "\x28\xb5\x2f\xfd" }

func (m *zstdMembers) skip() error {
	m.passed = m.begun
	return m.pass()
}

// zstdFrame yields the stored bytes of one frame, and io.EOF at its end.
type zstdFrame struct {
	stored   *bufio.Reader
	content  int64 // how many bytes it decompresses to, -1 if the header does not say
	left     int64 // bytes up to the next block header, or to the end
	last     bool  // left ends with the last block
	checksum bool
	ended    bool
}

// begin reads the header of the frame that begins here, without consuming it.
func (f *zstdFrame) begin() error {
	head, err := f.stored.Peek(18)
	if len(head) < 6 {
		return noEOF(err)
	}
	if binary.LittleEndian.Uint32(head) != zstdMagic {
		return errors.New("want a zstd frame here, got other bytes")
	}
	descriptor := head[4]
	single := descriptor&0x20 != 0
	n := 5
	if !single {
		n++ // the window
	}
	n += []int{0, 1, 2, 4}[descriptor&3] // the dictionary's number
	sizeBytes := []int{0, 2, 4, 8}[descriptor>>6]
	if sizeBytes == 0 && single {
		sizeBytes = 1
	}
	if len(head) < n+sizeBytes {
		return noEOF(err)
	}
	*f = zstdFrame{stored: f.stored, content: -1, left: int64(n + sizeBytes), checksum: descriptor&4 != 0}
	switch b := head[n:]; sizeBytes {
	case 1:
		f.content = int64(b[0])
	case 2:
		f.content = int64(binary.LittleEndian.Uint16(b)) + 256
	case 4:
		f.content = int64(binary.LittleEndian.Uint32(b))
	case 8:
		f.content = int64(binary.LittleEndian.Uint64(b))
	}
	return nil
}

// advance finds what follows when left is 0: a block, or the end.
func (f *zstdFrame) advance() error {
	switch {
	case f.ended:
		return io.EOF
	case f.last:
		f.ended = true
		if !f.checksum {
			return io.EOF
		}
		f.left = 4
		return nil
	}
	b, err := f.stored.Peek(3)
	if len(b) < 3 {
		return noEOF(err)
	}
	header := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	f.last = header&1 != 0
	size := int64(header >> 3)
	kind := header >> 1 & 3
	if kind == 3 || size > maxZstdBlock {
		return errors.New("a zstd block of no known kind or size")
	}
	if kind == 1 {
		size = 1 // a byte that is repeated
	}
	f.left = 3 + size
	return nil
}

func (f *zstdFrame) Read(p []byte) (int, error) {
	for f.left == 0 {
		if err := f.advance(); err != nil {
			return 0, err
		}
	}
	n, err := f.stored.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, noEOF(err)
}

// pass passes the rest of the frame.
func (f *zstdFrame) pass() error {
	for {
		if err := discardStored(f.stored, f.left); err != nil {
			return err
		}
		f.left = 0
		if err := f.advance(); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

// discardStored passes n bytes.
func discardStored(r *bufio.Reader, n int64) error {
	_, err := r.Discard(int(n))
	return noEOF(err)
}

// discard reads r to its end.
func discard(r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}

// noEOF returns the error of an end where none may be.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
