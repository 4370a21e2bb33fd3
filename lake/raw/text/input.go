package text

import (
	"bytes"
	"io"

	"github.com/urlake/urlake/lake/raw"
)

// Position is where a record begins: its line, from 1, and its offset, both as in [raw.Record].
type Position struct{ Line, Offset int64 }

// Input is the part of a decompressed object that the parsers look at. It buffers at most one
// record of the greatest length and what was read ahead.
//
// buf[r:w] is read and not yet consumed. base+r is the offset of buf[r] in the object, and line its
// line. fill moves bytes to the front of buf: it changes r and base, but not base+r. Slices of buf
// are invalid after it, offsets relative to r are not. Only consuming and SetRange change base+r.
type Input struct {
	src     io.Reader
	buf     []byte
	r, w    int
	base    int64
	line    int64
	lineEnd byte     // '\n' or '\r'
	max     int      // the longest record in bytes, without its line end
	stop    int64    // the last offset at which a line may begin; 0: no limit, -1: no line follows
	record  Position // of the record or reject returned last
	err     error    // why no more bytes follow buf[:w]

	// See unread: whether the next line begins inside the line before it, and whether the line read
	// last does.
	again, second bool
}

// NewInput returns an Input of the object that src yields. Lines end in a line feed. A record may
// have up to maxRecord bytes.
func NewInput(src io.Reader, maxRecord int) *Input {
	// Most objects are small; for others the buffer soon grows to raw.HeadSize.
	return &Input{src: src, buf: make([]byte, 64<<10), line: 1, lineEnd: '\n', max: maxRecord}
}

// NewBytesInput returns an Input of an object that is in memory. lineEnd is '\n' or '\r'. The
// parsers only read data, and what they return may be part of it.
func NewBytesInput(data []byte, lineEnd byte, maxRecord int) *Input {
	return &Input{buf: data, w: len(data), line: 1, lineEnd: lineEnd, max: maxRecord, err: io.EOF}
}

// NewRowInput returns an Input of an object that is read by rows. It has no bytes and only keeps
// positions: the line is the row, the offset always -1.
func NewRowInput() *Input {
	return &Input{base: -1, line: 1, lineEnd: '\n', err: io.EOF}
}

// UseCR makes a bare carriage return the line end.
func (in *Input) UseCR() { in.lineEnd = '\r' }

// SetRange makes the Input begin at the offset from of the object and stop at to: no line that
// begins behind to is returned. The source yields the object from the offset from on, and beyond to
// as far as the last line reaches.
func (in *Input) SetRange(from, to int64) { in.base, in.stop = from, to }

// Peek buffers n bytes and returns them without consuming them, or all there are if the object ends
// before. err is why nothing follows what is buffered, if that is known already, even when n bytes
// are there; at the end of the object it is io.EOF. The bytes are valid until the next call of
// another method.
func (in *Input) Peek(n int) (b []byte, err error) {
	for in.w-in.r < n && in.fill() {
	}
	return in.buf[in.r:min(in.w, in.r+n)], in.err
}

// Buffered returns the bytes that are read and not yet consumed. They are valid until the next call
// of another method.
func (in *Input) Buffered() []byte { return in.buf[in.r:in.w] }

// Consume consumes the first n bytes of Buffered and counts their lines. The bytes stay valid until
// the next call of another method.
func (in *Input) Consume(n int) {
	in.line += int64(bytes.Count(in.buf[in.r:in.r+n], []byte{in.lineEnd}))
	in.r += n
}

// Read consumes bytes whatever they hold, for formats that are not text. The line does not change.
func (in *Input) Read(p []byte) (int, error) {
	if in.r < in.w {
		n := copy(p, in.buf[in.r:in.w])
		in.r += n
		return n, nil
	}
	in.base += int64(in.r)
	in.r, in.w = 0, 0
	if in.err != nil {
		return 0, in.err
	}
	n, err := in.src.Read(p)
	in.base += int64(n)
	in.err = err
	if n == 0 && err != nil {
		return 0, err
	}
	return n, nil
}

// Offset returns how many bytes of the object are consumed.
func (in *Input) Offset() int64 { return in.base + int64(in.r) }

// OffsetOf returns the offset of b, which is a part of what is buffered and goes on to its end as
// slices of it do.
func (in *Input) OffsetOf(b []byte) int64 { return in.base + int64(cap(in.buf)-cap(b)) }

// Line returns the line of the next byte: 1 and the number of line ends consumed.
func (in *Input) Line() int64 { return in.line }

// SetLine sets what Line returns: the row of an object read by rows, 0 where lines mean nothing.
func (in *Input) SetLine(line int64) { in.line = line }

// Position returns the position of the next byte.
func (in *Input) Position() Position { return Position{in.line, in.Offset()} }

// Record returns the position of the record or reject that a parser returned last.
func (in *Input) Record() Position { return in.record }

// SetRecord sets what Record returns. Parsers outside of this package call it for every record.
func (in *Input) SetRecord(p Position) { in.record = p }

// SkipBOM consumes the byte order mark that some programs write before UTF-8.
func (in *Input) SkipBOM() {
	for in.w-in.r < len(bom) && in.fill() {
	}
	if bytes.HasPrefix(in.buf[in.r:in.w], []byte(bom)) {
		in.r += len(bom)
	}
}

// fill reads more behind w. Slices of buf and offsets in it are invalid afterwards; offsets
// relative to r stay valid. It returns false if there is no more; err then says why.
func (in *Input) fill() bool {
	if in.err != nil {
		return false
	}
	if in.w == len(in.buf) {
		to := in.buf
		if in.r < len(in.buf)/2 {
			to = make([]byte, 2*len(in.buf))
		}
		copy(to, in.buf[in.r:in.w])
		in.base += int64(in.r)
		in.w -= in.r
		in.r = 0
		in.buf = to
	}
	for range 100 {
		n, err := in.src.Read(in.buf[in.w:])
		in.w += n
		in.err = err
		if n > 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
	in.err = io.ErrNoProgress
	return false
}

// peekLine buffers the next line and returns its length n, without its end: the line is buf[r:r+n].
// At the end of the object err is io.EOF. Bytes before another error are not returned as a line,
// because it may be incomplete. A line longer than max by more than the CR of its end is not
// buffered: then long is true and n is invalid.
func (in *Input) peekLine() (n int, long bool, err error) {
	if in.second, in.again = in.again, false; in.stop != 0 && !in.second && in.base+int64(in.r) > in.stop {
		return 0, false, io.EOF
	}
	searched := 0
	for {
		if i := bytes.IndexByte(in.buf[in.r+searched:in.w], in.lineEnd); i >= 0 {
			return searched + i, searched+i > in.max+1, nil
		}
		searched = in.w - in.r
		if searched > in.max+1 {
			return 0, true, nil
		}
		if !in.fill() {
			if searched = in.w - in.r; searched > 0 && in.err == io.EOF {
				return searched, false, nil
			}
			return 0, false, in.err
		}
	}
}

// consumeLine consumes a line of n bytes that peekLine returned, and its end.
func (in *Input) consumeLine(n int) {
	in.r += n
	if in.r < in.w {
		in.r++
		in.line++
	}
}

// skipLine consumes everything up to the next line end, and the end, without buffering it.
func (in *Input) skipLine() {
	for {
		if i := bytes.IndexByte(in.buf[in.r:in.w], in.lineEnd); i >= 0 {
			in.r += i + 1
			in.line++
			return
		}
		in.r = in.w
		if !in.fill() {
			return
		}
	}
}

// ReadLine consumes the next line and returns it without its end. A line longer than the greatest
// record is skipped; long is then true. Record returns the line's position.
func (in *Input) ReadLine() (line []byte, long bool, err error) {
	n, long, err := in.peekLine()
	if err != nil {
		return nil, false, err
	}
	in.record = in.Position()
	if long {
		in.skipLine()
		return nil, true, nil
	}
	line = in.buf[in.r : in.r+n]
	in.consumeLine(n)
	line = trimCR(line)
	return line, len(line) > in.max, nil
}

// unread makes the next line begin with rest, which is a part of the line or row that was read
// last: that is two without a line break between them.
func (in *Input) unread(rest []byte) {
	start := int(in.record.Offset - in.base)
	in.r = cap(in.buf) - cap(rest)
	in.line = in.record.Line + int64(bytes.Count(in.buf[start:in.r], []byte{in.lineEnd}))
	in.again = true
}

// nextLine consumes lines until content returns something other than nil for one, and returns that.
// A line longer than the limit is a reject.
func (in *Input) nextLine(rej *raw.Reject, content func(line []byte) []byte) ([]byte, error) {
	for {
		line, long, err := in.ReadLine()
		if err != nil {
			return nil, err
		}
		if long {
			rej.Reason = raw.TooLong
			return nil, nil
		}
		if line = content(line); line != nil {
			return line, nil
		}
	}
}

func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}

// SkipPartialLine consumes the rest of the line that began before the range of SetRange. If the
// range has no line end, no line belongs to it and the Input is at its end.
func (in *Input) SkipPartialLine() {
	for {
		n := int(min(int64(in.w), in.stop-in.base))
		if i := bytes.IndexByte(in.buf[in.r:n], in.lineEnd); i >= 0 {
			in.r += i + 1
			return
		}
		in.r = n
		if in.base+int64(in.w) > in.stop {
			break
		}
		// Even if the whole range is buffered, one byte more is read: the source checks the last
		// compressed frame of the range only when it reads beyond it.
		if !in.fill() {
			if in.err != io.EOF {
				return // the first read returns it
			}
			break
		}
	}
	in.stop = -1
}
