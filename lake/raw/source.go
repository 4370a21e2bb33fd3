package raw

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
)

const noCompression = "none"

// source yields an object's decompressed bytes and knows where in the stored bytes it is.
type source struct {
	stored  *bufio.Reader
	r       io.Reader
	below   io.Reader
	fetched int64
	size    int64 // where it is known
	little  bool  // Options.LittleMemory
	// err is the error of the reader below, which is not the object's fault.
	err error
}

func newSource(r io.Reader) *source {
	s := &source{below: r}
	s.stored = bufio.NewReaderSize(storedBytes{s}, 32<<10)
	return s
}

// storedBytes counts what is fetched and keeps the first error apart from those of decompressors.
type storedBytes struct{ s *source }

func (b storedBytes) Read(p []byte) (int, error) {
	n, err := b.s.below.Read(p)
	b.s.fetched += int64(n)
	if err != nil && err != io.EOF {
		b.s.err = err
	}
	return n, err
}

// whole leaves the stored bytes to someone who reads them elsewhere and says how far.
func (s *source) whole(size int64) {
	s.stored.Reset(bytes.NewReader(nil))
	s.size, s.fetched = size, 0
}

// atMost returns the limit that applies to this source.
func (s *source) atMost(usual, little int64) int64 {
	if s.little {
		return little
	}
	return usual
}

func (s *source) used() int64 { return s.fetched - int64(s.stored.Buffered()) }

func (s *source) Read(p []byte) (int, error) { return s.r.Read(p) }

// compressionOf tells a compression this package reads by its magic.
func compressionOf(head []byte) string {
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
	return noCompression
}

// decompress sets the source up for what its first bytes are; want, where not empty, is
// what they have to be.
func (s *source) decompress(want string) (string, error) {
	head, _ := s.stored.Peek(10)
	if s.err != nil {
		return noCompression, s.err
	}
	is := compressionOf(head)
	if want != "" && want != is {
		return is, fmt.Errorf("the plan says compression %s, the object has %s: it was changed since", want, is)
	}
	switch is {
	case "gzip":
		s.r = &gzipMembers{stored: s.stored}
	case "zstd":
		d, err := newZstd(s.stored, s.atMost(maxZstdWindow, littleWindow))
		if err != nil {
			return is, err
		}
		s.r = zstdFrames{d}
	case "bzip2":
		s.r = bzip2.NewReader(s.stored)
	case "xz":
		d, err := xz.NewReader(fullReads{s.stored}, uint32(s.atMost(maxXZDictionary, littleWindow)))
		if err != nil {
			return is, xzError(err)
		}
		s.r = xzStreams{d}
	default:
		s.r = s.stored
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
func newZstd(r io.Reader, maxWindow int64) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(maxWindow)))
}

// zstdFrames words the one error a user can mend.
type zstdFrames struct{ d *zstd.Decoder }

func (z zstdFrames) Read(p []byte) (int, error) {
	n, err := z.d.Read(p)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		err = fmt.Errorf("the zstd window is larger than %d MiB; compress it again without --long: %w", maxZstdWindow>>20, err)
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

// refused are formats told by their magic that this package does not read.
var refused = []struct {
	offset         int
	magic          string
	reason, advice string
}{
	// What NewReader reads, where it can; these are met by Detect alone and in archives.
	{0, "PAR1", "a Parquet file is not planned by its head", "open the whole object"},
	{257, "ustar", "an archive inside an archive is not read", "unpack it first"},
	{0, "PK\x03\x04", "zip archives and office documents are not read", "unpack it, or save the table as CSV"},
	{0, "PK\x05\x06", "zip archives and office documents are not read", "unpack it, or save the table as CSV"},
	{0, "\xd0\xcf\x11\xe0", "office documents are not read", "save the table as CSV"},
	{0, "7z\xbc\xaf\x27\x1c", "7z archives are not read", "unpack it first"},
	{0, "Rar!", "rar archives are not read", "unpack it first"},
	{0, "\x04\x22\x4d\x18", "lz4 is not read", "unpack it first (lz4 -d), or compress it with zstd"},
	{0, "\x1f\x9d", "compress (.Z) is not read", "unpack it first (gzip -d)"},
	{0, "\xff\x06\x00\x00sNaPpY", "snappy is not read", "unpack it first"},
	{0, "ORC", "ORC files are not read", "write the URL column as text or JSON Lines first"},
	{0, "Obj\x01", "Avro files are not read", "write the URL column as text or JSON Lines first"},
	{0, "ARROW1", "Arrow files are not read", "write the URL column as text or JSON Lines first"},
	{0, "SQLite format 3\x00", "SQLite databases are not read", "export the table as CSV"},
	{0, "%PDF-", "PDF is not read", "extract its links first"},
	{0, "WARC/", "WARC files are not read", "give its CDX or CDXJ index"},
	{0, "\xff\xfe", "UTF-16 text is not read", "convert it first (iconv -f UTF-16 -t UTF-8)"},
	{0, "\xfe\xff", "UTF-16 text is not read", "convert it first (iconv -f UTF-16 -t UTF-8)"},
}

// refuse returns the error for a head that is binary, nil for text.
func refuse(name string, head []byte) error {
	for _, f := range refused {
		if len(head) < f.offset || !bytes.HasPrefix(head[f.offset:], []byte(f.magic)) {
			continue
		}
		if f.magic == "ORC" && !isBinary(head) {
			continue // three letters that may begin a text
		}
		return &FormatError{Name: name, Reason: f.reason, Advice: f.advice}
	}
	if c := compressionOf(head); c != noCompression {
		return &FormatError{Name: name, Reason: "it is compressed twice (" + c + " inside)", Advice: "unpack it once first"}
	}
	if isBinary(head) {
		return &FormatError{Name: name, Reason: "it is binary data of no format urlake reads"}
	}
	return nil
}

// isBinary reports whether more than a thirtieth of head is control characters that text does
// not have. Random bytes have a tenth; a list with a stray NUL stays a list.
func isBinary(head []byte) bool {
	n := 0
	for _, c := range head {
		if c < ' ' && !isSpace(c) && c != 0x1b && c != 0x1e {
			n++
		}
	}
	return n > 3 && n*32 > len(head)
}
