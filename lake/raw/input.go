package raw

import (
	"bytes"
	"io"
)

// place is where a record begins in the decompressed object.
type place struct{ line, offset int64 }

// input is a window on the decompressed object. Parsers look at buf[r:w], ask for more with
// fill, and never hold more than a record of the greatest length and what was read ahead.
type input struct {
	src  io.Reader
	buf  []byte
	r, w int
	base int64 // offset of buf[0]
	line int64 // line of buf[r], from 1
	eol  byte
	max  int
	stop int64 // no line begins behind this offset; 0: anywhere
	at   place // of the record returned last
	err  error // why there is no more behind w
}

func newInput(src io.Reader, maxLine int) *input {
	// Small objects are many; for others the buffer grows to the head's size at once.
	return &input{src: src, buf: make([]byte, 64<<10), line: 1, eol: '\n', max: maxLine}
}

// skipBOM passes the byte order mark some programs put before UTF-8.
func (in *input) skipBOM() {
	for in.w-in.r < len(bom) && in.fill() {
	}
	if bytes.HasPrefix(in.buf[in.r:in.w], bom) {
		in.r += len(bom)
	}
}

// fill reads more behind w. Slices of buf and positions in it are void afterwards; positions
// relative to r stay. It returns false when there is no more; err then says why.
func (in *input) fill() bool {
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

func (in *input) here() place { return place{in.line, in.base + int64(in.r)} }

// peekLine makes the next line stand in buf[r:r+n], without its end. At the end of the object
// err is io.EOF; what precedes another error is not returned as a line, since it may be cut.
// A line longer than max by more than the CR of its end is not held: long is true and n void.
func (in *input) peekLine() (n int, long bool, err error) {
	if in.stop != 0 && in.base+int64(in.r) > in.stop {
		return 0, false, io.EOF
	}
	seen := 0
	for {
		if i := bytes.IndexByte(in.buf[in.r+seen:in.w], in.eol); i >= 0 {
			return seen + i, seen+i > in.max+1, nil
		}
		seen = in.w - in.r
		if seen > in.max+1 {
			return 0, true, nil
		}
		if !in.fill() {
			if seen = in.w - in.r; seen > 0 && in.err == io.EOF {
				return seen, false, nil
			}
			return 0, false, in.err
		}
	}
}

// passLine consumes a line that peekLine made stand, and its end.
func (in *input) passLine(n int) {
	in.r += n
	if in.r < in.w {
		in.r++
		in.line++
	}
}

// skipLine consumes up to the next line end without holding what is skipped.
func (in *input) skipLine() {
	for {
		if i := bytes.IndexByte(in.buf[in.r:in.w], in.eol); i >= 0 {
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

// readLine consumes the next line and returns it without its end. A line longer than max is
// skipped and long is true. at is set to the line's place.
func (in *input) readLine() (line []byte, long bool, err error) {
	n, long, err := in.peekLine()
	if err != nil {
		return nil, false, err
	}
	in.at = in.here()
	if long {
		in.skipLine()
		return nil, true, nil
	}
	line = in.buf[in.r : in.r+n]
	in.passLine(n)
	line = trimCR(line)
	return line, len(line) > in.max, nil
}

// nextLine consumes lines until text returns something other than nil for one, and returns that. A
// line longer than max is a reject.
func (in *input) nextLine(rej *Reject, text func(line []byte) []byte) ([]byte, error) {
	for {
		line, long, err := in.readLine()
		if err != nil {
			return nil, err
		}
		if long {
			rej.Reason = TooLong
			return nil, nil
		}
		if line = text(line); line != nil {
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
