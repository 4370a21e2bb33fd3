// Package warcin reads the captures of WARC files (ISO 28500) and ARC files, plain or compressed.
//
// A record of WARC is a capture if its type is response, resource or revisit, as in CDX indexes; in
// a file of conversions or metadata (WET, WAT) these are read. Only the header of an HTTP response
// is read from its block; the rest is passed by its length. In zstd the rest is not decompressed,
// if the frame's header says how long it is; a member of gzip has to be decompressed to find its
// end.
//
// A file is one stream of records, wherever its gzip members or zstd frames end. After a record
// that is not as its header says, the next one is found: within its block if that holds records
// and ends neither before one nor, behind all of them, before a separator; else behind it. A member
// that cannot be decompressed costs its record, if each record has a member of its own; otherwise
// it is an error. Memory is bounded by the longest line of a header and a window of 8 MiB.
//
// Package lake/raw/reader reads through it, lake/raw/detect plans.
package warcin

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/text"
	"github.com/urlake/urlake/lake/raw/unpack"
)

// Magic begins every record.
const Magic = "WARC/"

// Columns are what is known of a record, by the names that options use.
var Columns = []string{"url", "timestamp", raw.Status, raw.MIME, raw.Digest, raw.Filename, raw.Offset, raw.Length,
	"type", "size"}

// Indices of Columns.
const (
	columnURL = iota
	columnTimestamp
	columnStatus
	columnMIME
	columnDigest
	columnFilename
	columnOffset
	columnLength
	columnType
	columnSize // of the record's block, as its Content-Length says
)

// maxHTTPHeader is how many bytes of an HTTP header are searched for its media type.
const maxHTTPHeader = 1 << 20

// Parser implements text.Parser. Records and rejects have the line 0. Their offset is the stored
// offset of their member if they begin one, else the offset in the decompressed file.
type Parser struct {
	in      *text.Input
	members members
	stream  *stream
	counts  *raw.Counts
	fields  text.Fields
	max     int // the longest line of a header
	packed  bool
	arc     bool
	derived bool // conversions and metadata are records too

	url, ts, size int // indices of Columns, -1 for none
	whole         bool
	extras        text.Extras

	start, blank int64 // offset of the record, and of the line ends before it
	inRecord     bool
	truncated    bool  // the file ends within the record, whose member is not its own
	several      bool  // a member has not exactly one record
	damage       error // of the first member that could not be read

	line        []byte // of a header
	folded      []byte // of several lines of a header
	values      [columnSize + 1][]byte
	contentType []byte // of the record's block
	tally       Tally
}

// Tally counts what a person should know of files that were read.
type Tally struct {
	Unaddressed int64  // captures that cannot be read by themselves: several records are in a member
	Left        int64  // conversions and metadata with a URL, left out since they stand beside captures
	Unknown     int64  // records of types outside the standard, left out
	FirstType   string // the first such type
	Truncated   int64  // files that end within their last record, which is a reject
}

// Add adds the counts of another file.
func (t *Tally) Add(u Tally) {
	t.Unaddressed += u.Unaddressed
	t.Left += u.Left
	t.Unknown += u.Unknown
	t.Truncated += u.Truncated
	t.FirstType = cmp.Or(t.FirstType, u.FirstType)
}

// Notes says what the counts mean.
func (t *Tally) Notes() (notes []string) {
	if t.Unaddressed > 0 {
		notes = append(notes, fmt.Sprintf("%d captures have no offset, since their records are not compressed one by one; "+
			"such a file cannot be replayed (warcio recompress)", t.Unaddressed))
	}
	if t.Left > 0 {
		notes = append(notes, fmt.Sprintf("%d conversion and metadata records stand beside captures and were left out", t.Left))
	}
	if t.Unknown > 0 {
		notes = append(notes, fmt.Sprintf("%d records have types that are not in the standard, and were left out; the first is %q",
			t.Unknown, t.FirstType))
	}
	if t.Truncated > 0 {
		notes = append(notes, fmt.Sprintf("%d files end within their last record, which is rejected; if they were copied, "+
			"compare their sizes with the original", t.Truncated))
	}
	return notes
}

// NewParser returns the parser of the object that src stores, of which nothing has been read. name
// is its key or path. in only keeps positions.
func NewParser(name string, src *unpack.Source, in *text.Input, plan raw.Plan, f text.Fields) (*Parser, error) {
	m, err := newMembers(src, plan.Compression)
	if err != nil {
		return nil, err
	}
	p := &Parser{in: in, members: m, counts: f.Counts, fields: f, max: plan.MaxLine,
		packed: plan.Compression != raw.NoCompression, arc: plan.Format == raw.ARC, derived: plan.Derived,
		url: plan.URL.Number - 1, ts: -1, size: -1, extras: text.NewExtras(plan.Extras), stream: newStream(src, m)}
	p.stream.judge = judgeWARC
	if p.arc {
		p.stream.judge, p.stream.anyLine = judgeARC, true
	}
	if plan.TS != nil {
		p.ts, p.whole = plan.TS.Number-1, plan.TSChosen
	}
	if plan.Size != nil {
		p.size = plan.Size.Number - 1
	}
	file := path.Base(strings.ReplaceAll(name, `\`, "/"))
	p.values[columnFilename] = []byte(strings.ToValidUTF8(file, "\ufffd"))
	in.SetLine(0)
	return p, nil
}

// Tally returns the counts so far.
func (p *Parser) Tally() Tally { return p.tally }

// Next implements text.Parser.
func (p *Parser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		capture, reason, err := p.next(rec)
		if err != nil && err != io.EOF {
			if err = p.resume(err); err == nil {
				reason = raw.BadWARC
			}
		}
		if err == io.EOF && p.truncated {
			p.truncated = false
			p.tally.Truncated++
		}
		if err != nil {
			return err
		}
		if rej.Reason = reason; reason != "" || capture {
			return nil
		}
		p.counts.Comments++
	}
}

// next reads a record. It is a capture, or else none that makes a row.
func (p *Parser) next(rec *raw.Record) (capture bool, reason string, err error) {
	s := p.stream
	p.inRecord = false
	if err := p.begin(); err != nil {
		return false, "", err
	}
	p.inRecord, p.truncated = true, false
	place := p.start
	if m := s.part(p.start); p.alone() && m.storedBegin >= 0 {
		place = m.storedBegin
	}
	p.setPlace(place)
	is, err := p.isHeader()
	if err != nil {
		return false, "", err
	}
	length := int64(-1)
	if is {
		length, reason, err = p.header()
	}
	if err != nil {
		p.truncated = err == io.EOF && !p.alone()
		return false, raw.BadWARC, unpack.NoErrorAtEnd(err)
	}
	if b := s.unread(); !is && !p.alone() {
		p.truncated = p.arc && len(b) > 0 && b[0]|0x20 >= 'a' && b[0]|0x20 <= 'z' && bytes.IndexByte(b, '\n') < 0 ||
			bytes.HasPrefix([]byte(Magic), b)
	}
	if length < 0 {
		// Where the record ends is unknown.
		_, err = s.find()
		return false, raw.BadWARC, err
	}
	block := s.offset()
	capture = reason == "" && p.isCapture()
	rest := length
	if capture {
		if rest, err = p.block(rest); err != nil {
			return false, "", err
		}
	}
	ok, err := p.end(block, block+length, rest)
	switch {
	case err != nil:
		return false, "", err
	case reason == "" && !ok:
		reason = raw.BadWARC
	case reason == "" && capture:
		reason = p.record(rec)
	case reason == "":
		reason = p.checkType()
	}
	return capture, reason, nil
}

// setPlace sets the position of the record or reject that is returned next.
func (p *Parser) setPlace(offset int64) {
	p.in.SetRange(max(offset, 0), 0)
	p.in.SetRecord(p.in.Position())
}

// begin goes to the next record.
func (p *Parser) begin() error {
	s := p.stream
	p.blank = s.offset()
	for {
		s.mark()
		atEnd, err := s.skipLineEnds(s.offset())
		if err == nil && atEnd && len(s.unread()) == 0 {
			err = s.fill()
		}
		if err != nil {
			return err
		}
		if !atEnd {
			break
		}
	}
	p.start = s.offset()
	s.mark()
	return nil
}

// resume goes on behind a member that could not be read, if each record has a member of its own.
// Its record is then a reject. Otherwise resume returns err.
func (p *Parser) resume(err error) error {
	s := p.stream
	if s.err == nil {
		return err
	}
	failed := s.failed
	if failed >= 0 {
		p.in.SetRange(failed, 0)
	}
	if p.several || p.inRecord && s.part(p.start).storedBegin != failed {
		return err
	}
	if err := s.resume(); err != nil {
		return err
	}
	if p.damage == nil {
		p.damage = err
	}
	p.setPlace(failed)
	return nil
}

// isHeader reports whether a record begins here.
func (p *Parser) isHeader() (bool, error) {
	if p.arc {
		v, err := p.stream.judgeNext()
		return v == yes, err
	}
	b, err := p.stream.peek(len(Magic))
	return string(b) == Magic, err
}

// readLine consumes a line, of at most left bytes with its end, and returns it without its end and
// what is left then. A line is longer than p.max if long; it is returned cut off. The line is valid
// until more is read.
func (p *Parser) readLine(left int64) (line []byte, rest int64, long bool, err error) {
	s := p.stream
	if b := s.unread(); len(b) > 0 {
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i < p.max && int64(i) < left {
			s.r += i + 1
			return bytes.TrimSuffix(b[:i], []byte{'\r'}), left - int64(i) - 1, false, nil
		}
	}
	p.line = p.line[:0]
	for left > 0 {
		if b, err := s.peek(1); err != nil {
			return nil, left, false, err
		} else if len(b) == 0 {
			return nil, left, false, io.EOF
		}
		b := s.unread()
		b = b[:min(int64(len(b)), left)]
		i := bytes.IndexByte(b, '\n')
		n := i + 1
		if i < 0 {
			n = len(b)
		}
		if room := p.max + 2 - len(p.line); room < n {
			long = true
			p.line = append(p.line, b[:room]...)
		} else {
			p.line = append(p.line, b[:n]...)
		}
		s.r += n
		if left -= int64(n); i >= 0 {
			break
		}
	}
	line = bytes.TrimSuffix(p.line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), left, long, nil
}

// header reads the header of a record into p.values and returns the length of its block, -1 if that
// is unknown. A reason says what is wrong with it.
func (p *Parser) header() (length int64, reason string, err error) {
	for i := range p.values {
		if i != columnFilename {
			p.values[i] = p.values[i][:0]
		}
	}
	p.contentType = p.contentType[:0]
	line, _, long, err := p.readLine(math.MaxInt64)
	if err != nil {
		return -1, "", err
	}
	if p.arc {
		return p.arcHeader(line, long)
	}
	length = -1
	var blockDigest []byte
	var lowered [maxName]byte
	for {
		before := p.stream.offset()
		line, long, err := p.headerLine()
		if err != nil {
			return -1, "", err
		}
		if len(line) == 0 {
			break
		}
		if i := versionAt(line); i >= 0 && before+int64(i) >= p.stream.kept {
			// The header broke off, and the next record begins.
			p.stream.seek(before + int64(i))
			return -1, "", nil
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		var to *[]byte
		switch value = text.TrimSpace(value); string(lower(&lowered, text.TrimSpace(name))) {
		case "content-length":
			n, err := strconv.ParseUint(string(value[:min(len(value), 32)]), 10, 62)
			if err != nil || length >= 0 && int64(n) != length {
				return -1, "", nil //nolint:nilerr // a reject, after which reading goes on
			}
			length, to = int64(n), &p.values[columnSize]
		case "content-type":
			to = &p.contentType
		case "warc-type":
			to = &p.values[columnType]
		case "warc-target-uri":
			// Some programs write it between < and >.
			value = bytes.TrimSuffix(bytes.TrimPrefix(value, []byte{'<'}), []byte{'>'})
			to = &p.values[columnURL]
		case "warc-date":
			to = &p.values[columnTimestamp]
		case "warc-payload-digest":
			to = &p.values[columnDigest]
		case "warc-block-digest":
			blockDigest = append(blockDigest, value[:min(len(value), maxValue)]...)
		}
		switch {
		case to == nil:
		case long:
			reason = raw.TooLong
		default:
			*to = append((*to)[:0], value...)
		}
	}
	if string(p.values[columnType]) == typeResource && len(p.values[columnDigest]) == 0 {
		p.values[columnDigest] = append(p.values[columnDigest], blockDigest...) // its block is its payload
	}
	return length, reason, nil
}

// headerLine reads a line of a header with the lines that continue it (RFC 822, 3.1.1). A URL has
// no blanks, so its parts are joined without.
func (p *Parser) headerLine() (line []byte, long bool, err error) {
	line, _, long, err = p.readLine(math.MaxInt64)
	if err != nil || len(line) == 0 {
		return line, long, err
	}
	isFolded := func() bool {
		if len(p.stream.unread()) == 0 {
			_, err = p.stream.peek(1)
		}
		b := p.stream.unread()
		return err == nil && len(b) > 0 && (b[0] == ' ' || b[0] == '\t')
	}
	if !isFolded() {
		return line, long, err
	}
	p.folded = append(p.folded[:0], line...)
	const uri = "warc-target-uri"
	isURL := len(line) > len(uri) && bytes.EqualFold(line[:len(uri)], []byte(uri))
	for isFolded() {
		next, _, tooLong, err := p.readLine(math.MaxInt64)
		if err != nil {
			return nil, long, err
		}
		next = text.TrimSpace(next)
		if long = long || tooLong || len(p.folded)+len(next) > p.max; long {
			continue
		}
		if !isURL {
			p.folded = append(p.folded, ' ')
		}
		p.folded = append(p.folded, next...)
	}
	return p.folded, long, err
}

// maxName is how many bytes of a name are compared. Those that mean something are shorter.
const maxName = 32

// lower returns the first bytes of name in lower case, in buf.
func lower(buf *[maxName]byte, name []byte) []byte {
	n := copy(buf[:], name)
	for i, c := range buf[:n] {
		if 'A' <= c && c <= 'Z' {
			buf[i] = c + 'a' - 'A'
		}
	}
	return buf[:n]
}

// maxValue is the longest digest in bytes.
const maxValue = 1 << 10

// The types of records.
const (
	typeResponse   = "response"
	typeResource   = "resource"
	typeRevisit    = "revisit"
	typeConversion = "conversion"
	typeMetadata   = "metadata"
)

// isCapture reports whether the record makes a row.
func (p *Parser) isCapture() bool {
	if p.arc {
		return isCaptureARC(p.values[columnURL])
	}
	switch string(p.values[columnType]) {
	case typeResponse, typeResource, typeRevisit:
		return true
	case typeConversion, typeMetadata:
		return p.derived && len(p.values[columnURL]) > 0
	}
	return false
}

// checkType returns the reason to reject a record that makes no row, "" if its type is one without
// a row. Types outside the standard are to be ignored (ISO 28500, 5.5), unless it is a damaged one.
func (p *Parser) checkType() string {
	if p.arc {
		return ""
	}
	switch kind := string(p.values[columnType]); kind {
	case typeConversion, typeMetadata:
		if len(p.values[columnURL]) > 0 {
			p.tally.Left++
		}
	case "warcinfo", "request", "continuation":
	default:
		http := bytes.HasPrefix(p.contentType, []byte("application/http"))
		if http && len(p.values[columnURL]) > 0 || isDamaged(kind) {
			return raw.BadWARC
		}
		if p.tally.Unknown++; p.tally.FirstType == "" {
			p.tally.FirstType = strings.ToValidUTF8(kind[:min(len(kind), maxType)], "\ufffd")
		}
	}
	return ""
}

// maxType is how much of an unknown type a note has, in bytes.
const maxType = 40

// isDamaged reports whether a type is one of the standard but for two characters in a row.
func isDamaged(kind string) bool {
	kind = strings.ToLower(kind)
	for _, t := range types {
		n := 0
		for n < min(len(kind), len(t)) && kind[n] == t[n] {
			n++
		}
		a, b := kind[n:], t[n:]
		for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		if max(len(a), len(b)) <= 2 {
			return true
		}
	}
	return kind == ""
}

// block reads what is needed of a capture's block, which has left bytes, and returns how many are
// left then.
func (p *Parser) block(left int64) (rest int64, err error) {
	if p.arc {
		return p.arcBlock(left)
	}
	mime := &p.values[columnMIME]
	const ofHTTP = "application/http"
	http := len(p.contentType) >= len(ofHTTP) && bytes.EqualFold(p.contentType[:len(ofHTTP)], []byte(ofHTTP))
	if !http || string(p.values[columnType]) == typeResource {
		*mime = append(*mime, text.CaptureValue(raw.MIME, p.contentType)...)
	} else if left, err = p.httpHeader(left); err != nil {
		return left, err
	}
	if string(p.values[columnType]) == typeRevisit {
		// As in CDX indexes: the status is that of the capture which is revisited.
		*mime = append((*mime)[:0], "warc/revisit"...)
		p.values[columnStatus] = p.values[columnStatus][:0]
	}
	return left, nil
}

// httpHeader reads the status and the media type of an HTTP response.
func (p *Parser) httpHeader(left int64) (rest int64, err error) {
	line, left, _, err := p.readLine(left)
	if err != nil {
		return left, unpack.NoErrorAtEnd(err)
	}
	if !bytes.HasPrefix(line, []byte("HTTP/")) {
		return left, nil
	}
	if f := bytes.Fields(line[:min(len(line), maxValue)]); len(f) > 1 && len(f[1]) == 3 {
		p.values[columnStatus] = append(p.values[columnStatus], f[1]...)
	}
	const name = "content-type:"
	for begin := left; begin-left < maxHTTPHeader; {
		if line, left, _, err = p.readLine(left); err != nil {
			return left, unpack.NoErrorAtEnd(err)
		}
		if len(line) == 0 {
			break
		}
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) && len(p.values[columnMIME]) == 0 {
			value := text.CaptureValue(raw.MIME, line[len(name):])
			p.values[columnMIME] = append(p.values[columnMIME], value[:min(len(value), maxValue)]...)
		}
	}
	return left, nil
}

// end passes the rest of a record's block, which has rest bytes. It sets the offset and length of
// the record, if it can be read by itself. ok is false if the block does not end where its length
// says; the next record then begins within the block.
func (p *Parser) end(block, end, rest int64) (ok bool, err error) {
	s := p.stream
	m := s.part(s.offset())
	size := p.members.size()
	behind := m.begin + size - end
	separator := "\r\n\r\n"
	if p.arc {
		separator = "\n"
	}
	if p.packed && s.open && size >= 0 && behind >= 0 && behind <= int64(len(separator)) {
		// Nothing but the rest of this record is left in the member.
		if err := s.passMember(m.begin + size); err != nil {
			return false, err
		}
		return true, p.address(end)
	}
	alone := p.alone()
	if alone && m.begin > p.start {
		// What was read of the block has gone past the member.
		s.seek(s.part(p.start).end)
		rest = end - s.offset()
	}
	short, err := s.skip(rest, alone)
	if err != nil {
		return false, err
	}
	if short && len(s.unread()) > 0 {
		return false, nil // the member ended, and the next record begins
	}
	if !short {
		atEnd, err := s.skipLineEnds(p.start)
		if ok = atEnd; !ok && err == nil {
			ok, err = p.isHeader()
		}
		if err != nil {
			return false, err
		}
		if ok {
			return true, p.address(end)
		}
	}
	within := false
	if !short && !s.lost {
		if within, err = p.holdsRecords(block, end, separator); err != nil {
			return false, err
		}
	}
	switch {
	case s.lost:
		return false, fmt.Errorf("the Content-Length of the record at byte %d of the decompressed file is wrong, and records "+
			"lie further back than %d MiB; take that record out", p.start, maxWindow>>20)
	case within, !short && p.brokenHeader(end):
		s.seek(end)
	default:
		separated := bytes.HasSuffix(s.buf[:s.w], []byte(separator))
		if found, err := s.findWithin(block, end); found || err != nil || short {
			p.truncated = short && !found && !alone && !separated
			return false, err
		}
	}
	return true, p.address(end)
}

// holdsRecords reports whether a separator stands behind a record's block, and every record that
// begins in the block ends in it. The length of the block is then right: a longer one would end
// within a record.
func (p *Parser) holdsRecords(block, end int64, separator string) (bool, error) {
	s, format := p.stream, raw.WARC
	if p.arc {
		format = raw.ARC
	}
	s.seek(end)
	if b, err := s.peek(len(separator)); string(b) != separator || err != nil {
		return false, err
	}
	for at := block; ; {
		found, err := s.findWithin(at, end)
		if !found || err != nil {
			return !found, err
		}
		h := headParser(s.unread(), format)
		length, _, err := h.header()
		if at = s.offset() + h.stream.offset() + length; err != nil || length < 0 || at > end {
			return false, nil //nolint:nilerr // the header is malformed
		}
	}
}

// brokenHeader reports whether an unreadable header stands at the end of a record's block. The
// length of the block is then right.
func (p *Parser) brokenHeader(end int64) bool {
	p.stream.seek(end)
	all, err := p.stream.peek(maxHeader)
	b := bytes.TrimLeft(all, "\r\n")
	switch {
	case err != nil || len(b) == len(all):
		return false
	case p.arc:
		return isBrokenARC(b)
	}
	header, _, _ := bytes.Cut(b, []byte("\n\r\n"))
	return bytes.Contains(header, []byte("\nWARC-"))
}

// alone reports whether the record begins a compressed member, which usually has no other.
func (p *Parser) alone() bool { return p.packed && p.stream.part(p.start).begin >= p.blank }

// address sets where the record is whose block ends at end, if it is alone in its member.
func (p *Parser) address(end int64) error {
	m := p.stream.part(p.start)
	offset, length := p.start, end-p.start
	if p.packed {
		alone := p.alone() && m.end >= end && m.end <= p.stream.offset()
		if !alone {
			p.several = true
		}
		if p.several && p.damage != nil {
			return fmt.Errorf("%w; members of this file have more than one record", p.damage)
		}
		if !alone || m.storedBegin < 0 {
			return nil
		}
		offset, length = m.storedBegin, m.storedEnd-m.storedBegin
	}
	p.values[columnOffset] = strconv.AppendInt(p.values[columnOffset], offset, 10)
	p.values[columnLength] = strconv.AppendInt(p.values[columnLength], length, 10)
	return nil
}

// record makes a record of a capture, or returns the reason of the reject.
func (p *Parser) record(rec *raw.Record) string {
	if rec.URL = p.values[p.url]; len(rec.URL) == 0 {
		return raw.NoURL
	}
	if p.ts >= 0 && !p.fields.SetTS(rec, p.values[p.ts]) {
		return raw.BadTS
	}
	if rec.HasTS && p.whole {
		rec.TS -= (rec.TS%1000 + 1000) % 1000
	}
	if p.size >= 0 && !text.SetSize(rec, p.values[p.size]) {
		return raw.BadSize
	}
	if len(p.values[columnOffset]) == 0 {
		p.tally.Unaddressed++
	}
	rec.Extras = p.extras.Of(p.values[:])
	return ""
}
