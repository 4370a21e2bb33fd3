package detect

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

const (
	// sampleRows is how many rows, lines or documents of the head are looked at.
	sampleRows = 1000
	// titleRows is how far down a header may stand, below titles and remarks.
	titleRows = 5
	// sampleDepth is how deep inside a JSON document a URL is looked for.
	SampleDepth = 4
)

// Detect decides how an object is to be read. head is the beginning of the decompressed
// object, HeadSize bytes or all of it; name is its key or path. It fails with a *FormatError
// for what this package does not read, and where no URL column can be told.
//
// Format Auto: JSON, CDX and CDXJ by their syntax. Of the rest, text is a table if cutting it
// at one separator (tab , ; or |) gives rows of one width and either the name says .csv or
// .tsv, or a header names a URL column, or beside the URLs a second column holds URLs or dates
// (behind a tab, anything); else it is a list. So a list of URLs with commas in them stays one.
//
// URL column: of the columns with one of the names below whose values look like URLs or
// hosts, the one with the best name, then the first one:
//
//	url, urls  >  uri, uris, iri, href, u  >  link, links, permalink, original
//	>  any name with the word url  >  … uri, href, link
//	>  website, homepage, webpage, site  >  domain, hostname, host, fqdn  >  … any of these
//
// Case, plural and separators do not matter (sourceUrl, target_url, "Post URL"). In JSON,
// members further up go before better names, down to four levels of objects. Without such a
// name it is the first column whose values look like URLs, then the first that looks like
// hosts. A header is a first row with such a name, or one whose URL cell is no URL while the
// cells below are.
//
// What was guessed among several is in Plan.Notes.
func Detect(name string, head []byte, opt raw.Options) (raw.Plan, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return raw.Plan{}, err
	}
	if err := Refuse(name, head); err != nil {
		return raw.Plan{}, err
	}
	d, err := NewDetector(name, head, opt)
	if err != nil {
		return raw.Plan{}, err
	}
	if bytes.IndexByte(d.text, '\n') < 0 {
		// Line ends of old Macs; a single CR at the end is half a CRLF.
		i := bytes.IndexByte(d.text, '\r')
		d.Plan.CRLines = i >= 0 && i < len(d.text)-1
	}
	if err := d.detect(); err != nil {
		return raw.Plan{}, err
	}
	return d.Plan, nil
}

// newDetector takes checked options.
func NewDetector(name string, head []byte, opt raw.Options) (*detector, error) {
	d := &detector{name: name, ext: Extension(name), opt: opt, whole: len(head) < raw.HeadSize,
		text: text.TrimBOM(head)}
	var err error
	if d.time, err = timestamp.NewFormat(opt.TSFormat); err != nil {
		return nil, err
	}
	d.Plan = raw.Plan{Compression: raw.NoCompression, MaxLine: opt.MaxLine, TSFormat: opt.TSFormat,
		AllExtras: slices.Contains(opt.Extras, "*")}
	return d, nil
}

type detector struct {
	name, ext string
	opt       raw.Options
	whole     bool
	text      []byte
	time      timestamp.Format
	Plan      raw.Plan
}

// extension returns the name's extension below that of a compression, in lower case.
func Extension(name string) string {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, `\`, "/")))
	ext := path.Ext(name)
	switch ext {
	case ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz":
		ext = path.Ext(strings.TrimSuffix(name, ext))
	}
	return ext
}

func (d *detector) refuse(reason, advice string) error {
	return &raw.FormatError{Name: d.name, Reason: reason, Advice: advice}
}

func (d *detector) note(format string, args ...any) {
	d.Plan.Notes = append(d.Plan.Notes, fmt.Sprintf(format, args...))
}

func (d *detector) detect() error {
	format := d.opt.Format
	if format == raw.Parquet {
		return d.refuse("it is no Parquet file", "leave its format to be recognised (--format auto)")
	}
	blank := len(text.TrimSpace(d.text)) == 0
	if blank && format == raw.Auto {
		format = raw.Lines
	}
	if blank && d.whole {
		// No records, whatever they would have been: no column is missing.
		d.Plan.Format = format
		return nil
	}
	if format == raw.Auto {
		var err error
		if format, err = d.sniff(); err != nil {
			return err
		}
	}
	d.Plan.Format = format
	switch format {
	case raw.Lines:
		if d.opt.URLColumn+d.opt.TSColumn+d.opt.SizeField != "" || len(d.opt.Extras) > 0 && !d.Plan.AllExtras {
			return d.refuse("it is a list of URLs, which has no columns to name", "leave the column options out, or say its format (--format csv)")
		}
		return nil
	case raw.JSONLines, raw.JSON:
		return d.planJSON()
	case raw.CDX:
		return d.planCDX()
	case raw.CDXJ:
		return d.planCDXJ()
	}
	return d.planTable(format)
}

// sniff decides the format.
func (d *detector) sniff() (string, error) {
	start := bytes.TrimLeft(d.text, " \t\r\n\v\f\x1e")
	if text.IsCDXHeader(d.text) {
		return raw.CDX, nil
	}
	if len(start) == 0 {
		return raw.Lines, nil // record separators (RFC 7464) and nothing between them
	}
	lines := d.lines()
	switch start[0] {
	case '<':
		return "", d.refuse("it is XML or HTML, which is not read", "extract its URLs first")
	case '{':
		return d.sniffObjects(lines), nil
	case '[':
		if next := bytes.TrimLeft(start[1:], " \t\r\n"); len(next) == 0 || strings.IndexByte(`{["]`, next[0]) >= 0 {
			return raw.JSON, nil
		}
	case '"':
		if d.stringLines(lines) {
			return raw.JSONLines, nil
		}
	}
	share := func(f func([]byte) bool) bool {
		n := 0
		for _, l := range lines {
			if f(l) {
				n++
			}
		}
		return n > 0 && n*10 >= len(lines)*9
	}
	switch {
	case share(isCDXJLine):
		return raw.CDXJ, nil
	case share(isZipNumLine):
		return "", d.refuse("it is the index of a ZipNum cluster and not its URLs", "give the .cdx.gz files it points to")
	case share(isCDXLine):
		return raw.CDX, nil
	case share(isAccessLogLine):
		return "", d.refuse("it is a web server's access log, which is not read", "write its URLs as text or JSON Lines first")
	}
	return d.sniffTable(), nil
}

// lines returns the first lines of the head that are neither blank nor comments. A last line
// that the head may have cut is left out, unless it is the only one.
func (d *detector) lines() [][]byte {
	var lines [][]byte
	in := d.sample(d.text)
	for len(lines) < sampleRows {
		line, long, err := in.ReadLine()
		if err != nil {
			break
		}
		if long {
			continue
		}
		if l := text.TrimSpace(line); len(l) > 0 && l[0] != '#' {
			if len(in.Buffered()) == 0 && !d.complete() && len(lines) > 0 {
				break
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// complete reports whether the head ends where a line ends.
func (d *detector) complete() bool {
	return d.whole || len(d.text) > 0 && d.text[len(d.text)-1] == d.eol()
}

func (d *detector) eol() byte {
	if d.Plan.CRLines {
		return '\r'
	}
	return '\n'
}

// sample is an input over text.
func (d *detector) sample(content []byte) *text.Input {
	return text.NewBytesInput(content, d.eol(), d.opt.MaxLine)
}

// isAccessLogLine knows the common and the combined log format.
func isAccessLogLine(l []byte) bool {
	i := bytes.Index(l, []byte(" ["))
	j := bytes.Index(l, []byte(`] "`))
	return i > 0 && j > i && bytes.Count(l[:i], []byte{' '}) <= 4 && bytes.IndexByte(l[j+3:], '"') >= 0 && bytes.IndexByte(l[i:j], ':') > 0
}

func (d *detector) named(ext ...string) bool { return slices.Contains(ext, d.ext) }

// Names and values.

// Classes of names, best first; 0 is no name for a URL.
const (
	classURL = 1 + iota
	classURI
	classLink
	ClassURLWord
	classURIWord
	classSite
	classHost
	classHostWord
)
