package warcin

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

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
		return &gzipMembers{src, src.GzipMembers()}, nil
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

// gzipMembers are those of gzip.
type gzipMembers struct {
	src *unpack.Source
	*unpack.GzipMembers
}

func (m *gzipMembers) next() (int64, error) {
	if err := m.PassPadding(); err != nil {
		return -1, err
	}
	return m.src.Used(), m.Begin()
}

func (m *gzipMembers) Read(p []byte) (int, error) {
	n, err := m.ReadMember(p)
	if bomb := m.src.Made(int64(n)); bomb != nil {
		return n, bomb
	}
	return n, err
}

func (m *gzipMembers) size() int64   { return -1 }
func (m *gzipMembers) skip() error   { return discard(m) }
func (m *gzipMembers) magic() string { return "\x1f\x8b\x08" }

const (
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
	const longest = 4 + 1 + 1 + 4 + 8 // zstd.HeaderMaxSize lacks a byte
	head, err := f.stored.Peek(longest)
	var h zstd.Header
	switch bad := h.Decode(head); {
	case errors.Is(bad, io.ErrUnexpectedEOF) && err != nil:
		return noEOF(err)
	case errors.Is(bad, zstd.ErrMagicMismatch):
		return errors.New("want a zstd frame here, got other bytes")
	case bad != nil:
		return bad
	}
	*f = zstdFrame{stored: f.stored, content: -1, left: int64(h.HeaderSize), checksum: h.HasCheckSum}
	if h.HasFCS {
		f.content = int64(h.FrameContentSize)
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
