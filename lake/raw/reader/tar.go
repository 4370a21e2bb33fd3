package reader

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/detect"
	"github.com/urlake/urlake/lake/raw/text"
)

// isTar knows a tar archive by its first header: the sum over it that POSIX and all before have
// (pax(1), ustar Interchange Format).
func isTar(head []byte) bool {
	if len(head) < 512 || head[0] == 0 {
		return false
	}
	field := string(bytes.Trim(head[148:156], " \x00"))
	want, err := strconv.ParseInt(field, 8, 64)
	if err != nil {
		return false
	}
	unsigned, signed := int64(0), int64(0)
	for i, c := range head[:512] {
		if i >= 148 && i < 156 {
			c = ' '
		}
		unsigned += int64(c)
		signed += int64(int8(c))
	}
	return want == unsigned || want == signed
}

// tarParser reads the members of a tar archive one after another, each as an object of its own: by its own
// detection, its lines and offsets counted in it.
//
// Left out and counted are links, devices, and files that hold no data by their name (see leftOut). Every other file
// has to be readable: nothing that may be data is passed over.
type tarParser struct {
	outer  *Reader
	opt    raw.Options
	stream *tarStream
	tr     *tar.Reader

	cur    *Reader
	member string
	before raw.Counts // of the members before
	first  string     // the first member left out
	md     bool       // a member left out was Markdown
}

func newTarParser(outer *Reader, opt raw.Options) *tarParser {
	s := &tarStream{in: outer.in}
	return &tarParser{outer: outer, opt: opt, stream: s, tr: tar.NewReader(s)}
}

func (p *tarParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		if p.cur == nil {
			if err := p.advance(); err != nil {
				return err
			}
		}
		r, x, err := p.cur.Next()
		c, in := &p.outer.counts, p.cur.counts
		c.Blank, c.Comments, c.BadTS = p.before.Blank+in.Blank, p.before.Comments+in.Comments, p.before.BadTS+in.BadTS
		switch {
		case err == io.EOF:
			p.before, p.cur = *c, nil
			continue
		case err != nil:
			return p.fault(err)
		case x != nil:
			*rej = *x
			p.outer.in.SetRecord(text.Position{Line: x.Line, Offset: x.Offset})
		default:
			*rec = *r
			p.outer.in.SetRecord(text.Position{Line: r.Line, Offset: r.Offset})
		}
		rec.Member, rej.Member = p.member, p.member
		return nil
	}
}

// advance opens the next member that holds records, io.EOF at the end of the archive.
func (p *tarParser) advance() error {
	c := &p.outer.counts
	for {
		p.outer.in.SetLine(0) // an archive has none
		h, err := p.tr.Next()
		if err == io.EOF {
			if err := p.end(); err != nil {
				return err
			}
			if c.Members == 0 && c.LeftOut > 0 {
				advice := "put the files with its URLs into one, or give them as they are"
				if p.md {
					advice = `write the links of its Markdown as lines first (tar -xO | grep -oE 'https?://[^][()<>" ]+')`
				}
				return &raw.FormatError{Name: p.outer.name, Reason: fmt.Sprintf("none of the %d members of this archive holds records, by their names; the first is %q", c.LeftOut, p.first), Advice: advice}
			}
			return io.EOF
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		p.member = strings.ToValidUTF8(path.Clean(h.Name), "\ufffd")
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse || leftOut(p.member) {
			if c.LeftOut++; p.first == "" {
				p.first = p.member
			}
			p.md = p.md || slices.Contains([]string{".md", ".markdown"}, detect.Extension(p.member))
			continue
		}
		c.Members++
		p.cur, err = newMember(p.tr, p.outer.name+"/"+p.member, p.opt)
		if err != nil {
			return p.fault(err)
		}
		return nil
	}
}

// end checks that the archive was there to its end mark, and passes what tar and its compression have behind it.
func (p *tarParser) end() error {
	if p.stream.ended {
		return io.ErrUnexpectedEOF
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := p.stream.Read(buf)
		if len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return errors.New("bytes behind the end of the archive; unpack archives that were joined end to end")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fault tells an error of a member from one of the archive around it, which a member's reader takes for the store's.
func (p *tarParser) fault(err error) error {
	if p.outer.src.Err != nil || errors.Is(err, raw.ErrInput) {
		return err
	}
	e := &raw.DataError{Name: p.outer.name + "/" + p.member, Compression: p.outer.plan.Compression, CompressedOffset: p.outer.src.Used(), Err: err}
	if cause := errors.Unwrap(err); cause != nil {
		e.Err = cause
	}
	if p.cur != nil {
		at := p.cur.in.Position()
		e.Line, e.Offset = at.Line, at.Offset
	}
	return e
}

// Names of members that hold no records.
var (
	leftOutNames = []string{"readme", "license", "licence", "copying", "changelog", "makefile", "dockerfile", "md5sums", "sha1sums", "sha256sums", "sha512sums"}
	leftOutExts  = []string{".md", ".markdown", ".rst", ".adoc", ".pdf", ".doc", ".docx", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".ico", ".webp",
		".py", ".sh", ".js", ".css", ".r", ".ipynb", ".yml", ".yaml", ".toml", ".ini", ".cfg",
		".md5", ".sha1", ".sha256", ".sha512", ".asc", ".sig"}
)

// leftOut reports whether a member holds no records by its name: what begins with a dot, at any level; documents (by
// extension, or README, LICENSE and the like without one or with .txt), images, programs, settings, checksums
// and signatures.
func leftOut(name string) bool {
	for _, s := range strings.Split(name, "/") {
		if s != ".." && strings.HasPrefix(s, ".") {
			return true
		}
	}
	base := strings.ToLower(path.Base(name))
	ext := detect.Extension(base)
	stem, _, _ := strings.Cut(base, ".")
	return slices.Contains(leftOutExts, ext) || slices.Contains(leftOutNames, stem) && (ext == "" || ext == ".txt")
}

// tarStream is the decompressed object as an io.Reader.
type tarStream struct {
	in    *text.Input
	ended bool // the object ended while it was read
}

func (s *tarStream) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil {
		s.ended = true
	}
	return n, err
}
