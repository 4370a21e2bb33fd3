package unpack

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
	"github.com/urlake/urlake/lake/raw"
)

const (
	// maxZstdWindow bounds what a zstd frame makes its reader hold; `zstd --long` uses
	// 128 MiB, --long=31 (2 GiB) is refused.
	MaxZstdWindow = 128 << 20

	// maxXZDictionary bounds the same for xz; `xz -9` uses 64 MiB.
	maxXZDictionary = 128 << 20

	// littleWindow replaces both with raw.Options.LittleMemory: zstd up to level 19 and xz up to
	// level 6 use at most 8 MiB.
	littleWindow = 8 << 20
)

// source yields an object's decompressed bytes and knows where in the stored bytes it is.
type Source struct {
	Stored  *bufio.Reader
	R       io.Reader
	Below   io.Reader
	Fetched int64
	Size    int64 // where it is known
	Little  bool  // Options.LittleMemory
	// err is the error of the reader below, which is not the object's fault.
	Err error
}

func New(r io.Reader) *Source {
	s := &Source{Below: r}
	s.Stored = bufio.NewReaderSize(storedBytes{s}, 32<<10)
	return s
}

// storedBytes counts what is fetched and keeps the first error apart from those of decompressors.
type storedBytes struct{ s *Source }

func (b storedBytes) Read(p []byte) (int, error) {
	n, err := b.s.Below.Read(p)
	b.s.Fetched += int64(n)
	if err != nil && err != io.EOF {
		b.s.Err = err
	}
	return n, err
}

// whole leaves the stored bytes to someone who reads them elsewhere and says how far.
func (s *Source) Whole(size int64) {
	s.Stored.Reset(bytes.NewReader(nil))
	s.Size, s.Fetched = size, 0
}

// AtMost returns the limit that applies to this source.
func (s *Source) AtMost(usual, little int64) int64 {
	if s.Little {
		return little
	}
	return usual
}

func (s *Source) Used() int64 { return s.Fetched - int64(s.Stored.Buffered()) }

func (s *Source) Read(p []byte) (int, error) { return s.R.Read(p) }

// compressionOf tells a compression this package reads by its magic.
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

// decompress sets the source up for what its first bytes are; want, where not empty, is
// what they have to be.
func (s *Source) Decompress(want string) (string, error) {
	head, _ := s.Stored.Peek(10)
	if s.Err != nil {
		return raw.NoCompression, s.Err
	}
	is := CompressionOf(head)
	if want != "" && want != is {
		return is, fmt.Errorf("the plan says compression %s, the object has %s: it was changed since", want, is)
	}
	switch is {
	case "gzip":
		s.R = &gzipMembers{stored: s.Stored}
	case "zstd":
		d, err := NewZstd(s.Stored, s.AtMost(MaxZstdWindow, littleWindow))
		if err != nil {
			return is, err
		}
		s.R = ZstdFrames{d}
	case "bzip2":
		s.R = bzip2.NewReader(s.Stored)
	case "xz":
		d, err := xz.NewReader(fullReads{s.Stored}, uint32(s.AtMost(maxXZDictionary, littleWindow)))
		if err != nil {
			return is, xzError(err)
		}
		s.R = xzStreams{d}
	default:
		s.R = s.Stored
	}
	return is, nil
}

// gzipMembers reads gzip members one after another (RFC 1952, 2.2). Zero bytes behind the
// last, with which tapes and block devices pad, end the object; other bytes are an error,
// because a download that went wrong must not look complete.
type gzipMembers struct {
	stored *bufio.Reader
	zr     *gzip.Reader
	open   bool
}

func (g *gzipMembers) Read(p []byte) (int, error) {
	for {
		if !g.open {
			if err := g.nextMember(); err != nil {
				return 0, err
			}
		}
		n, err := g.zr.Read(p)
		if err == io.EOF {
			g.open = false
			err = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (g *gzipMembers) nextMember() error {
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
		g.stored.Discard(1)
	}
	if padding {
		return errors.New("bytes behind the zero padding of the last gzip member")
	}
	if g.zr == nil {
		g.zr = new(gzip.Reader)
	}
	if err := g.zr.Reset(g.stored); err != nil {
		// Reset calls the end inside a member's header io.EOF.
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

// newZstd decompresses in the reader's goroutine: workers read many objects at once already.
func NewZstd(r io.Reader, maxWindow int64) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(maxWindow)))
}

// zstdFrames words the one error a user can mend.
type ZstdFrames struct{ D *zstd.Decoder }

func (z ZstdFrames) Read(p []byte) (int, error) {
	n, err := z.D.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("the zstd window is larger than %d MiB; compress it again without --long: %w", MaxZstdWindow>>20, err)
	}
	return n, err
}

// fullReads fills what it is given. How much of a damaged object xz yields before its error depends on how its
// input comes, and that must not depend on the network.
type fullReads struct{ r io.Reader }

func (f fullReads) Read(p []byte) (int, error) {
	n, err := io.ReadFull(f.r, p)
	if err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// xzStreams words the errors of xz.
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
		return fmt.Errorf("the xz dictionary is larger than %d MiB; compress it again with xz -9 at most: %w", maxXZDictionary>>20, err)
	case errors.Is(err, xz.ErrFormat):
		return errors.New("want an xz stream here, got other bytes")
	}
	return err
}
