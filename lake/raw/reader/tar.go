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
	"github.com/urlake/urlake/lake/raw/warcin"
)

// isTar reports whether head is the beginning of a tar archive: the first header has a valid
// checksum (pax(1), ustar Interchange Format), as signed or as unsigned bytes.
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

// memberParser reads the members of an archive one after another, each with a Reader and a plan of
// its own. Lines and offsets count in the member.
type memberParser struct {
	outer   *Reader
	opt     raw.Options
	advance func() error // opens the next member; io.EOF at the end of the archive

	current *Reader    // nil between members
	member  string     // the name of the current member
	before  raw.Counts // the archive's counts before the current member
	tally   warcin.Tally

	firstLeftOut    string // the name of the first member left out
	leftOutMarkdown bool   // a member left out is Markdown

	ended     bool         // the end of the archive was read and checked
	unread    []raw.Unread // the first members that cannot be read
	unreadAll int64
}

func (p *memberParser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		if err := p.next(); err != nil {
			return err
		}
		memberRec, memberRej, err := p.current.Next()
		c, in := &p.outer.counts, p.current.counts
		c.Blank = p.before.Blank + in.Blank
		c.Comments = p.before.Comments + in.Comments
		c.Spaced = p.before.Spaced + in.Spaced
		c.BadTS = p.before.BadTS + in.BadTS
		switch {
		case err == io.EOF, err != nil && p.skip(err):
			p.tally.Add(p.current.tally())
			p.before, p.current = *c, nil
			continue
		case err != nil:
			return p.fault(err)
		case memberRej != nil:
			*rej = *memberRej
			p.outer.in.SetRecord(text.Position{Line: memberRej.Line, Offset: memberRej.Offset})
		default:
			*rec = *memberRec
			p.outer.in.SetRecord(text.Position{Line: memberRec.Line, Offset: memberRec.Offset})
		}
		rec.Member, rej.Member = p.member, p.member
		return nil
	}
}

// next opens the next member that is not skipped unless one is open. It returns io.EOF at the end
// of the archive.
func (p *memberParser) next() error {
	for p.current == nil {
		if err := p.advance(); err != nil {
			return err
		}
	}
	return nil
}

// members returns the part of the parser that all archives share.
func (p *memberParser) members() *memberParser { return p }

// open makes r, which yields a member, the current one, unless the member is skipped.
func (p *memberParser) open(r io.Reader) (err error) {
	p.outer.counts.Members++
	p.current, err = newMember(r, p.outer.name+"/"+p.member, p.opt, p.outer.src)
	switch {
	case err == nil:
		return nil
	case p.skip(err):
		p.current = nil
		return nil
	}
	return p.fault(err)
}

// tarParser reads the members of a tar archive. It leaves out and counts links, devices, and files
// that hold no records by their name (see isLeftOut). Every other file must be readable, so that no
// data is skipped, unless raw.Options.SkipUnreadable is set.
type tarParser struct {
	memberParser
	stream *tarStream
	tr     *tar.Reader
}

func newTarParser(outer *Reader, opt raw.Options) *tarParser {
	s := &tarStream{in: outer.in}
	p := &tarParser{memberParser: memberParser{outer: outer, opt: opt}, stream: s, tr: tar.NewReader(s)}
	p.memberParser.advance = p.advance
	return p
}

// advance opens the next member that is not left out. It returns io.EOF at the end of the archive.
func (p *tarParser) advance() error {
	if p.ended {
		return io.EOF
	}
	for {
		p.outer.in.SetLine(0) // an archive has no lines
		h, err := p.tr.Next()
		if err == io.EOF {
			if err := p.checkEnd(); err != nil {
				return err
			}
			return p.end()
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		p.member = strings.ToValidUTF8(path.Clean(h.Name), "\ufffd")
		if err := checkTable(p.outer.name, p.member); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse || isLeftOut(p.member) {
			p.leaveOut()
			continue
		}
		return p.open(p.tr)
	}
}

// checkTable returns the error of an archive with a member that belongs to the log of a table.
func checkTable(archive, member string) error {
	f, table := raw.TableLog(strings.ReplaceAll(member, `\`, "/"))
	if f == nil {
		return nil
	}
	return &raw.FormatError{Name: archive, Reason: f.Reason(), Advice: "unpack it, and " + f.Advice("./"+table)}
}

// leaveOut counts the member as one without records.
func (p *memberParser) leaveOut() {
	if p.outer.counts.LeftOut++; p.firstLeftOut == "" {
		p.firstLeftOut = p.member
	}
	ext := detect.Extension(p.member)
	p.leftOutMarkdown = p.leftOutMarkdown || ext == ".md" || ext == ".markdown"
}

// end ends the archive. It returns io.EOF unless all of its members were left out.
func (p *memberParser) end() error {
	if c := p.outer.counts; c.Members == 0 && c.LeftOut > 0 {
		advice := "put the files with its URLs into one, or give them as they are"
		if p.leftOutMarkdown {
			unpack := "tar -xOf FILE"
			if p.outer.plan.Format == raw.Zip {
				unpack = "unzip -p FILE"
			}
			advice = "write the links of its Markdown as lines: " + unpack + ` | grep -oE 'https?://[^][()<>" ]+' > urls.txt`
		}
		reason := fmt.Sprintf("none of the %d members of this archive holds records, by their names; the first is %q",
			c.LeftOut, p.firstLeftOut)
		return &raw.FormatError{Name: p.outer.name, Reason: reason, Advice: advice}
	}
	p.ended = true
	return io.EOF
}

// maxUnread is how many unread members of an archive are named.
const maxUnread = 1000

// skip reports whether an error of the current member leaves out the member, or the rest of it, and
// not the whole archive. It then notes the member.
func (p *memberParser) skip(err error) bool {
	var format *raw.FormatError
	var data *raw.DataError
	u := raw.Unread{Member: p.member}
	switch {
	case !p.opt.SkipUnreadable || p.outer.src.Err != nil:
		return false
	case errors.As(err, &format):
		if u.Reason = format.Reason; format.Advice != "" {
			u.Reason += "; " + format.Advice
		}
	case errors.As(err, &data) && !p.opt.LowMemory: // with more memory it may be readable
		u.Line, u.Offset, u.Reason = data.Line, data.Offset, data.Reason()
	default:
		return false
	}
	if p.unreadAll++; len(p.unread) < maxUnread {
		p.unread = append(p.unread, u)
	}
	return true
}

// checkEnd checks that the archive ends with its end mark, and skips the zero bytes after it.
func (p *tarParser) checkEnd() error {
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

// fault returns an error of the member or of the store as it is. Any other error is the archive's:
// the member's Reader, which reads from the archive, takes it for one of the store.
func (p *memberParser) fault(err error) error {
	if p.outer.src.Err != nil || errors.Is(err, raw.ErrInput) || errors.Is(err, raw.ErrPageMemory) {
		return err
	}
	e := &raw.DataError{Name: p.outer.name + "/" + p.member, Compression: p.outer.plan.Compression,
		CompressedOffset: p.outer.src.Used(), Err: err}
	if cause := errors.Unwrap(err); cause != nil {
		e.Err = cause
	}
	if p.current != nil {
		at := p.current.in.Position()
		e.Line, e.Offset = at.Line, at.Offset
	}
	return e
}

// Names of members that hold no records.
var (
	leftOutNames = []string{"readme", "license", "licence", "copying", "changelog", "makefile", "dockerfile",
		"md5sums", "sha1sums", "sha256sums", "sha512sums"}
	leftOutExts = []string{
		".md", ".markdown", ".rst", ".adoc", ".pdf", ".doc", ".docx",
		".png", ".jpg", ".jpeg", ".gif", ".svg", ".ico", ".webp",
		".py", ".sh", ".js", ".css", ".r", ".ipynb", ".yml", ".yaml", ".toml", ".ini", ".cfg",
		".md5", ".sha1", ".sha256", ".sha512", ".asc", ".sig",
	}
)

// isLeftOut reports whether a member holds no records by its name. These are files and folders
// whose name begins with a dot, documents (by extension, or README, LICENSE and the like without
// one or with .txt), images, programs, settings, checksums and signatures.
func isLeftOut(name string) bool {
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

// tarStream reads the rest of the decompressed object.
type tarStream struct {
	in    *text.Input
	ended bool // a read reached the end of the object or an error
}

func (s *tarStream) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil {
		s.ended = true
	}
	return n, err
}
