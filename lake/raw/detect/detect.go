package detect

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/markup"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/timestamp"
	"github.com/urlake/urlake/lake/raw/warcin"
)

const (
	// sampleRows is how many rows, lines or documents are sampled.
	sampleRows = 1000
	// titleRows is how many of the first rows may be the header: titles and remarks may be above
	// it.
	titleRows = 5
	// sampleDepth is how deep inside a JSON document a URL is looked for.
	sampleDepth = 4
)

// Detect decides how an object is to be read: its format, its columns, and which of them holds the
// URLs. head is the beginning of the decompressed object, the first raw.HeadSize bytes or all of
// it; name is its key or path. Detect rejects an object that is in no format urlake reads, or that
// has no URL column, with a *raw.FormatError that says what to do. If it guessed among several
// columns, Plan.Notes says so. The same name, head and options give the same plan.
//
// # Format
//
// With Options.Format Auto, JSON, CDX and CDXJ are recognised by their syntax. Other text is a
// table if both of these hold, else it is a list:
//
//   - One of the separators tab , ; and | cuts it into rows of the same number of cells.
//   - The name ends in .csv or .tsv, or a header names a URL column, or a second column beside the
//     URLs holds URLs or dates. If the separator is a tab, the second column may hold anything.
//     Without a header not all columns hold URLs: those are a list of several URLs in a line.
//
// Hosts beside anything that is no host are a table, too, since hosts have no separators in them. A
// list of URLs that contain commas is therefore read as a list. Lines are a table separated by
// blanks if most of them have words behind their URL.
//
// A list, or the URL column of a table, is refused if most of its URLs are names without a scheme
// and most of these end in no public suffix or are as likely files (a.zip, x.py), and if most are
// e-mail addresses or DOIs, unless the options name the format or the column. So is a hosts file
// with several names in a line.
//
// A single column is a table if its header has one of the names of one word below, or if the name
// of the object ends in .csv or .tsv.
//
// # Header
//
// The header is one of the first five rows, and no row before it holds a URL. It has one of the
// names below, or a name that the options give to a column. The first row is the header too if its
// cell in the URL column is no URL while the cells below are, and no cell looks like data.
//
// # URL column
//
// Detect considers the columns with one of these names whose values look like URLs or hosts. It
// chooses the best name, and of equally good names the first. From best to worst, the names are:
//
//  1. url, urls
//  2. uri, uris, iri, href, u
//  3. link, links, permalink, original
//  4. several words, one of them url
//  5. several words, one of them from 2 or 3, but not u or original
//  6. website, homepage, webpage, site
//  7. domain, hostname, host, fqdn
//  8. several words, one of them from 6 or 7; address
//
// Case, plural and the separators between words do not matter: sourceUrl, target_url and "Post URL"
// are names of several words. In JSON, members are looked for in up to four levels of objects, and
// a member of an outer object comes before a better name in an inner one.
//
// If no such column has URLs, Detect chooses among the columns whose values look like URLs: in a
// table the one with the most different values, in JSON and Parquet the first. If there is none, it
// chooses a column with a name from 1 to 3, and last the first column of a table whose values look
// like hosts.
func Detect(name string, head []byte, opt raw.Options) (raw.Plan, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return raw.Plan{}, err
	}
	if err := checkReadable(name, head); err != nil {
		return raw.Plan{}, err
	}
	d, err := newDetector(name, head, opt)
	if err != nil {
		return raw.Plan{}, err
	}
	if bytes.IndexByte(d.text, '\n') < 0 {
		// Old Macs end lines with CR. A single CR at the end of the head is half a CRLF.
		i := bytes.IndexByte(d.text, '\r')
		d.plan.CRLines = i >= 0 && i < len(d.text)-1
	}
	if err := d.detect(); err != nil {
		return raw.Plan{}, err
	}
	return d.plan, nil
}

// Encoding returns raw.UTF16LE or raw.UTF16BE for text whose byte order mark says so, or for XML
// whose first byte shows it; the encoding that XML or HTML declares; and "" for all other objects.
func Encoding(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // UTF-32
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return raw.UTF16LE
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return raw.UTF16BE
	case bytes.HasPrefix(head, []byte("<\x00")):
		return raw.UTF16LE
	case bytes.HasPrefix(head, []byte("\x00<")):
		return raw.UTF16BE
	}
	if name, known := markup.Encoding(head); known {
		return name
	}
	return "" // Detect refuses it
}

// RecordFormat returns raw.WARC or raw.ARC for the beginning of such a file, "" for all others. The
// first record may be damaged if the options or the name say what the file is.
func RecordFormat(name string, head []byte, opt raw.Options) string {
	start := bytes.TrimLeft(text.TrimBOM(head), "\r\n")
	is, sure := "", false
	switch ext := Extension(name); {
	case bytes.HasPrefix(start, []byte(warcin.Magic)):
		is, sure = raw.WARC, true
	case warcin.IsARC(start):
		is, sure = raw.ARC, true
	case opt.Format == raw.WARC, ext == ".warc", ext == ".wet", ext == ".wat":
		is = raw.WARC
	case opt.Format == raw.ARC, ext == ".arc":
		is = raw.ARC
	}
	if opt.Format != raw.Auto && opt.Format != is || !sure && (is == "" || !warcin.HasRecord(head, is)) {
		return ""
	}
	return is
}

// Records is Detect for a WARC or ARC file. The names of its columns are warcin.Columns.
func Records(name, format string, head []byte, opt raw.Options) (raw.Plan, error) {
	opt, err := opt.WithDefaults()
	if err != nil {
		return raw.Plan{}, err
	}
	d, err := newDetector(name, nil, opt)
	if err != nil {
		return raw.Plan{}, err
	}
	d.plan.Format, d.plan.Columns = format, warcin.Columns
	if d.plan.Derived = format == raw.WARC && warcin.IsDerived(head); d.plan.Derived {
		d.note("it has no captures, but what was made of them (WET, WAT): its rows are conversions and metadata with a URL")
	}
	if err := d.planNamed(d.cdxColumn, d.cdxColumn); err != nil {
		return raw.Plan{}, err
	}
	if opt.URLColumn == "" {
		if d.plan.URL, err = d.cdxColumn("url"); err != nil {
			return raw.Plan{}, err
		}
	}
	if d.plan.TS == nil && !d.noTime {
		c, err := d.cdxColumn("timestamp")
		if err != nil {
			return raw.Plan{}, err
		}
		d.plan.TS, d.plan.TSChosen = &c, true
	}
	d.keepColumns(true)
	return d.plan, nil
}

// newDetector returns a detector. Its options have their defaults filled in.
func newDetector(name string, head []byte, opt raw.Options) (*detector, error) {
	d := &detector{name: name, ext: Extension(name), opt: opt, whole: len(head) < raw.HeadSize,
		text: text.TrimBOM(head), tables: map[tableCut]*table{}}
	var err error
	if d.time, err = timestamp.NewFormat(opt.TSFormat); err != nil {
		return nil, err
	}
	d.plan = raw.Plan{Compression: raw.NoCompression, MaxLine: opt.MaxLine, TSFormat: opt.TSFormat,
		AllExtras: slices.Contains(opt.Extras, "*")}
	d.cdx = sync.OnceValues(d.findCDX)
	return d, nil
}

// detector makes the plan of one object.
type detector struct {
	name, ext string // ext is Extension(name)
	opt       raw.Options
	text      []byte // the head without a byte order mark
	whole     bool   // text is all of the object
	time      timestamp.Format
	plan      raw.Plan
	noTime    bool // the options want no time
	// malformed is how many of the sampled values are malformed, if the first is a malformed
	// object.
	malformed, values int
	sample            [][]byte                                    // what lines returns
	tables            map[tableCut]*table                         // what readTable returned
	cdx               func() (legend *text.CDXLegend, usual bool) // findCDX
}

// Extension returns the extension of a key or path in lower case. It ignores the extension of a
// compression: that of a.CSV.gz is .csv.
func Extension(name string) string {
	name = strings.ToLower(path.Base(strings.ReplaceAll(name, `\`, "/")))
	ext := path.Ext(name)
	switch ext {
	case ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz":
		ext = path.Ext(strings.TrimSuffix(name, ext))
	}
	return ext
}

// reject returns the error that rejects the object.
func (d *detector) reject(reason, advice string) error {
	return &raw.FormatError{Name: d.name, Reason: reason, Advice: advice}
}

// note adds a note to the plan.
func (d *detector) note(format string, args ...any) {
	d.plan.Notes = append(d.plan.Notes, fmt.Sprintf(format, args...))
}

// detect makes the plan of text.
func (d *detector) detect() error {
	format := d.opt.Format
	if format == raw.Parquet {
		return d.reject("it is no Parquet file", "let urlake recognise its format (--format auto)")
	}
	blank := len(text.TrimSpace(d.text)) == 0
	if blank && format == raw.Auto {
		format = raw.Lines
	}
	if blank && d.whole {
		// Without records no column is missing.
		d.plan.Format = format
		return nil
	}
	if format == raw.Auto {
		var err error
		if format, err = d.sniff(); err != nil {
			return err
		}
	}
	d.plan.Format = format
	switch format {
	case raw.Lines:
		extras, _ := d.opt.WantsExtras()
		ts := d.opt.TSColumn
		if ts == raw.None {
			ts = ""
		}
		if d.opt.URLColumn+ts+d.opt.SizeField != "" || len(extras) > 0 && !d.plan.AllExtras {
			return d.reject("it is a list of URLs, which has no columns to name",
				"leave the column options out, or name its format (--format csv)")
		}
		values := make([]string, 0, sampleRows)
		for _, l := range d.lines() {
			values = append(values, string(text.TrimSpace(l)))
		}
		d.plan.Enclosed = slices.ContainsFunc(values, isEnclosed)
		if d.opt.Format == raw.Lines {
			return nil
		}
		if slices.ContainsFunc(values, isSURT) {
			d.plan.SURT = true
			d.noteKeys()
		}
		return d.checkHosts(values, false)
	case raw.JSONLines, raw.JSON:
		if err := d.planJSON(); err != nil {
			return err
		}
		return d.checkJSON()
	case raw.CDX:
		return d.planCDX()
	case raw.CDXJ:
		return d.planCDXJ()
	case raw.CrawlLog:
		return d.planCrawlLog()
	case raw.WARC, raw.ARC:
		return d.reject("it is no "+strings.ToUpper(format)+" file", "let urlake recognise its format (--format auto)")
	}
	if slices.Contains(raw.MarkupFormats, format) {
		return d.planMarkup()
	}
	return d.planTable(format)
}

// sniff returns the format of text. It rejects text in formats that urlake does not read.
func (d *detector) sniff() (string, error) {
	start := bytes.TrimLeft(d.text, " \t\r\n\v\f\x1e")
	if d.beginsWithLegend() {
		return raw.CDX, nil
	}
	if len(start) == 0 {
		return raw.Lines, nil // nothing but record separators (RFC 7464)
	}
	lines := d.lines()
	objects := d.firstLines(isObjectLine)
	switch { // whichever line is broken
	case len(lines) > 2 && objects:
		return raw.JSONLines, nil
	case (len(lines) < 4 || start[0] == '{') && isGlued(start):
		return raw.JSON, nil
	case objects:
		return raw.JSONLines, nil
	case d.firstLines(markup.IsStatement):
		return raw.NTriples, nil
	}
	switch start[0] {
	case '<':
		// A long line of links may end anywhere here.
		if !markup.IsLink(start) && d.firstLines(func(l []byte) bool { return isEnclosed(string(text.TrimSpace(l))) }) {
			return raw.Lines, nil
		}
		return d.sniffMarkup()
	case '{':
		if next := bytes.TrimLeft(start[1:], " \t\r\n"); len(next) == 0 || next[0] == '"' || next[0] == '}' {
			return d.sniffObjects(lines), nil
		}
	case '[':
		if format := d.sniffArrays(start, lines); format != "" {
			return format, nil
		}
	case '"':
		if d.stringLines(lines) {
			return raw.JSONLines, nil
		}
		if d.firstLines(isMemberLine) {
			return "", d.rejectJSON()
		}
	}
	content := slices.DeleteFunc(slices.Clone(lines), text.IsIndexComment)
	most := func(f func([]byte) bool) bool { return mostly(content, f) }
	switch {
	case script.Match(start):
		return "", d.reject("it is JSON in a script (JSONP), which is not read",
			`write what is inside as JSON: sed -E '1s/^([)]]}[^[{]*|[^[{]*)//; $s/[^]}]*$//' FILE > urls.json`)
	case len(lines) > 0 && turtle.Match(lines[0]):
		return "", d.reject("it is RDF in Turtle, which is not read",
			"write it as N-Triples: rapper -i turtle -o ntriples FILE > urls.nt")
	case d.firstLines(isSURTLine):
		return raw.Lines, nil
	case markup.IsMarkup(start), most(func(l []byte) bool { return text.TrimSpace(l)[0] == '<' }):
		return d.sniffMarkup()
	case most(isCDXJLine), d.firstLines(isCDXJLine), len(lines) > 0 && !slices.ContainsFunc(lines, func(l []byte) bool { return l[0] != '!' }):
		return raw.CDXJ, nil
	case most(isZipNumLine):
		return "", d.reject("it is the index of a ZipNum cluster and not its URLs",
			"give the .cdx.gz files it points to")
	case most(text.IsCrawlLogLine):
		return raw.CrawlLog, nil
	case d.isCDX():
		return raw.CDX, nil
	case most(isAccessLogLine), start[0] == '#' && logFields.Match(start[:min(len(start), 4096)]):
		return "", d.reject("it is a web server's access log, which is not read",
			"write its URLs as lines or JSON Lines first")
	}
	if hosts, err := d.sniffHosts(lines); hosts || err != nil {
		return raw.Spaced, err
	}
	format := d.sniffTable()
	if format == raw.Lines && start[0] == '{' && !d.firstLines(func(l []byte) bool { return looksURLOrHost(string(l)) }) {
		return d.sniffObjects(lines), nil
	}
	return format, nil
}

// lines returns the first sampleRows lines that are neither blank nor comments. It leaves out a
// last line that may continue past the head, unless it is the only one.
func (d *detector) lines() [][]byte {
	if d.sample != nil {
		return d.sample
	}
	lines := make([][]byte, 0, sampleRows)
	in := d.input(d.text)
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
	d.sample = lines
	return lines
}

// complete reports whether the head ends with a whole line.
func (d *detector) complete() bool {
	return d.whole || len(d.text) > 0 && d.text[len(d.text)-1] == d.eol()
}

// eol returns the byte that ends a line.
func (d *detector) eol() byte {
	if d.plan.CRLines {
		return '\r'
	}
	return '\n'
}

// input returns content as the input of a parser.
func (d *detector) input(content []byte) *text.Input {
	return text.NewBytesInput(content, d.eol(), d.opt.MaxLine)
}

var (
	// script begins a call or an assignment of JSON, or JSON that no script is to read.
	script = regexp.MustCompile(`^((/\*.*?\*/\s*)?((var|let|const)\s+)?[\w$.]+\s*[(=]|\)\]\}'?,?)\s*[\[{]`)
	// logFields begins the line that names the fields of a log (https://www.w3.org/TR/WD-logfile).
	logFields = regexp.MustCompile(`(?m)^#Fields:.*\s(cs|c|x)[-(]`)
	// turtle begins a directive (https://www.w3.org/TR/turtle/#sec-iri).
	turtle = regexp.MustCompile(`(?i)^\s*@?(prefix\s+\S*:|base)\s+<`)
)

// isAccessLogLine reports whether l is in the common or the combined log format.
func isAccessLogLine(l []byte) bool {
	i := bytes.Index(l, []byte(" ["))
	j := bytes.Index(l, []byte(`] "`))
	return i > 0 && j > i && bytes.Count(l[:i], []byte{' '}) <= 4 &&
		bytes.IndexByte(l[j+3:], '"') >= 0 && bytes.IndexByte(l[i:j], ':') > 0
}

// hasExt reports whether the object's name has one of the extensions.
func (d *detector) hasExt(ext ...string) bool { return slices.Contains(ext, d.ext) }
