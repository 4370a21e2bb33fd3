// Package warcin reads the captures of a WARC file (ISO 28500), plain, or compressed with gzip or
// zstd, usually with a member or frame for every record.
//
// A record is a capture if its type is response, resource or revisit, as in CDX indexes. Of its
// block, only the header of an HTTP response is looked at; the rest is passed by its length. In
// zstd it is not decompressed, if the frame's header says how long it is; a member of gzip has to
// be decompressed to find its end. Memory is bounded by the longest line of a header.
//
// Package lake/raw/reader reads through it, lake/raw/detect plans.
package warcin

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/urlake/urlake/lake/codec"
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

const (
	// bufferSize is how much of a member is buffered.
	bufferSize = 64 << 10
	// maxHTTPHeader is how many bytes of an HTTP header are searched for its media type.
	maxHTTPHeader = 1 << 20
)

// Parser implements text.Parser. Of a record or reject, the line is 0 and the offset that of the
// first stored byte of its member, or of the record if the file is not compressed.
type Parser struct {
	in      *text.Input
	src     *unpack.Source
	members members
	r       *bufio.Reader // of the member
	counts  *raw.Counts
	fields  text.Fields
	max     int // the longest line of a header
	packed  bool

	url, ts, size int // indices of Columns, -1 for none
	whole         bool
	extras        []extra

	inside bool  // a member is begun and not read to its end
	later  bool  // a record of the member was read before
	begin  int64 // the member's offset, -1 if it has none
	made   int64 // bytes read of the member

	line        []byte // of a header
	values      [columnSize + 1][]byte
	contentType []byte // of the record's block
	out         []byte // extras
	unaddressed int64  // captures without an offset
}

type extra struct {
	column int
	key    []byte // `"name":`
}

// NewParser returns the parser of the object that src stores, of which nothing has been read. name
// is its key or path. in only keeps positions.
func NewParser(name string, src *unpack.Source, in *text.Input, plan raw.Plan, f text.Fields) (*Parser, error) {
	m, err := newMembers(src, plan.Compression)
	if err != nil {
		return nil, err
	}
	p := &Parser{in: in, src: src, members: m, counts: f.Counts, fields: f, max: plan.MaxLine,
		packed: plan.Compression != raw.NoCompression, url: plan.URL.Number - 1, ts: -1, size: -1,
		r: bufio.NewReaderSize(nil, bufferSize)}
	if plan.TS != nil {
		p.ts, p.whole = plan.TS.Number-1, plan.TSChosen
	}
	if plan.Size != nil {
		p.size = plan.Size.Number - 1
	}
	for _, c := range text.SortColumns(plan.Extras) {
		p.extras = append(p.extras, extra{c.Number - 1, append(codec.AppendJSONString(nil, c.Name), ':')})
	}
	file := path.Base(strings.ReplaceAll(name, `\`, "/"))
	p.values[columnFilename] = []byte(strings.ToValidUTF8(file, "\ufffd"))
	in.SetLine(0)
	return p, nil
}

// Unaddressed returns how many captures cannot be read by themselves, because several records are
// in one member.
func (p *Parser) Unaddressed() int64 { return p.unaddressed }

// Next implements text.Parser.
func (p *Parser) Next(rec *raw.Record, rej *raw.Reject) error {
	for {
		begin, err := p.nextRecord()
		if err != nil {
			return err
		}
		p.in.SetRange(max(begin, 0), 0)
		p.in.SetRecord(p.in.Position())
		rest, reason, err := p.header()
		if err != nil {
			return err
		}
		if reason != "" && rest < 0 {
			// Where the record ends is unknown, but where the member ends is not.
			if !p.packed {
				return errors.New("the header of this record is malformed; the file cannot be read behind it")
			}
			p.inside = false
			if err := p.members.skip(); err != nil {
				return err
			}
			rej.Reason = reason
			return nil
		}
		capture := reason == "" && p.isCapture()
		if capture {
			if rest, err = p.block(rest); err != nil {
				return err
			}
		}
		short, err := p.endRecord(begin, rest)
		if err != nil {
			return err
		}
		switch {
		case reason == "" && !capture:
			p.counts.Comments++
			continue
		case reason == "" && short:
			reason = raw.BadWARC
		case reason == "":
			reason = p.record(rec)
		}
		rej.Reason = reason
		return nil
	}
}

// nextRecord goes to the next record and returns the offset of its member, or of itself in a file
// that is not compressed.
func (p *Parser) nextRecord() (begin int64, err error) {
	for {
		if !p.inside {
			if p.begin, err = p.members.next(); err != nil {
				if p.begin >= 0 {
					p.in.SetRange(p.begin, 0)
				}
				return 0, err
			}
			p.inside, p.later, p.made = true, false, 0
			if p.packed {
				p.r.Reset(memberBytes{p})
			} else {
				p.r = p.src.Stored()
			}
		}
		more, err := p.skipLineEnds()
		if err != nil {
			return 0, err
		}
		if !more {
			p.inside = false
			continue
		}
		if !p.packed {
			return p.src.Used(), nil
		}
		return p.begin, nil
	}
}

// memberBytes counts the bytes of the member.
type memberBytes struct{ p *Parser }

func (b memberBytes) Read(buf []byte) (int, error) {
	n, err := b.p.members.Read(buf)
	b.p.made += int64(n)
	return n, err
}

// skipLineEnds passes the empty lines between records. It returns false at the end of the member.
func (p *Parser) skipLineEnds() (more bool, err error) {
	for {
		b, err := p.r.Peek(1)
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if b[0] != '\r' && b[0] != '\n' {
			return true, nil
		}
		_, _ = p.r.Discard(1) // it is buffered
	}
}

// readLine consumes a line, of at most left bytes with its end, and returns it without its end and
// what is left then. A line is longer than p.max if long; it is returned cut off.
func (p *Parser) readLine(left int64) (line []byte, rest int64, long bool, err error) {
	p.line = p.line[:0]
	for left > 0 {
		if _, err := p.r.Peek(1); err != nil {
			return nil, left, false, err
		}
		b, _ := p.r.Peek(int(min(int64(p.r.Buffered()), left)))
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
		_, _ = p.r.Discard(n) // it is buffered
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
	line, _, _, err := p.readLine(math.MaxInt64)
	if err != nil && err != io.EOF {
		return -1, "", err
	}
	if !bytes.HasPrefix(line, []byte(Magic)) {
		return -1, raw.BadWARC, nil
	}
	length = -1
	var blockDigest []byte
	for {
		line, _, long, err := p.readLine(math.MaxInt64)
		if err == io.EOF && p.packed {
			return -1, raw.BadWARC, nil
		}
		if err != nil {
			return -1, "", noEOF(err)
		}
		if len(line) == 0 {
			break
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		var to *[]byte
		switch value = text.TrimSpace(value); string(bytes.ToLower(text.TrimSpace(name[:min(len(name), 32)]))) {
		case "content-length":
			n, err := strconv.ParseUint(string(value[:min(len(value), 32)]), 10, 62)
			if err != nil || length >= 0 && int64(n) != length {
				return p.restOfHeader(raw.BadWARC)
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
	if length < 0 {
		return -1, raw.BadWARC, nil
	}
	if string(p.values[columnType]) == typeResource && len(p.values[columnDigest]) == 0 {
		p.values[columnDigest] = append(p.values[columnDigest], blockDigest...) // its block is its payload
	}
	return length, reason, nil
}

// maxValue is the longest digest in bytes.
const maxValue = 1 << 10

// restOfHeader passes the lines up to the end of the header, and returns the reason of a record
// whose length is unknown.
func (p *Parser) restOfHeader(reason string) (length int64, _ string, err error) {
	for {
		line, _, _, err := p.readLine(math.MaxInt64)
		if err == io.EOF || err == nil && len(line) == 0 {
			return -1, reason, nil
		}
		if err != nil {
			return -1, "", err
		}
	}
}

// The types of records that are captures.
const (
	typeResponse = "response"
	typeResource = "resource"
	typeRevisit  = "revisit"
)

func (p *Parser) isCapture() bool {
	switch string(p.values[columnType]) {
	case typeResponse, typeResource, typeRevisit:
		return true
	}
	return false
}

// block reads what is needed of a capture's block, which has left bytes, and returns how many are
// left then.
func (p *Parser) block(left int64) (rest int64, err error) {
	mime := &p.values[columnMIME]
	http := bytes.HasPrefix(bytes.ToLower(p.contentType[:min(len(p.contentType), 32)]), []byte("application/http"))
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
		return left, ignoreEOF(err)
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
			return left, ignoreEOF(err)
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

// ignoreEOF returns nil for the end of the member: that the record is too short is found at its
// end.
func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// endRecord passes the rest of the record's block. It sets where the record is, if it can be read
// by itself, and returns whether the member ended before the record.
func (p *Parser) endRecord(begin, rest int64) (short bool, err error) {
	more, end := false, int64(0)
	behind := p.members.size() - (p.made - int64(p.r.Buffered())) - rest
	switch {
	case p.packed && p.members.size() >= 0 && behind >= 0 && behind <= int64(len("\r\n\r\n")):
		// Nothing but the rest of this record is left in the member.
	default:
		if _, err := p.r.Discard(int(rest)); err == io.EOF && p.packed {
			short = true
			break
		} else if err != nil {
			return false, noEOF(err)
		}
		end = p.src.Used()
		if more, err = p.skipLineEnds(); err != nil {
			return false, err
		}
	}
	if p.packed && !more {
		p.inside = false
		if err := p.members.skip(); err != nil {
			return false, err
		}
	}
	if p.packed {
		end = p.src.Used()
	}
	addressed := !p.packed || p.begin >= 0 && !p.later && !more
	p.later = true
	if addressed {
		p.values[columnOffset] = strconv.AppendInt(p.values[columnOffset], begin, 10)
		p.values[columnLength] = strconv.AppendInt(p.values[columnLength], end-begin, 10)
	}
	return short, nil
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
		p.unaddressed++
	}
	p.values[columnDigest] = text.CaptureValue(raw.Digest, p.values[columnDigest])
	p.out = append(p.out[:0], '{')
	for _, x := range p.extras {
		v := p.values[x.column]
		if len(v) == 0 {
			continue
		}
		if len(p.out) > 1 {
			p.out = append(p.out, ',')
		}
		p.out = codec.AppendJSONString(append(p.out, x.key...), v)
	}
	if len(p.out) > 1 {
		p.out = append(p.out, '}')
		rec.Extras = p.out
	}
	return ""
}
