package text

import (
	"bytes"
	"io"

	"github.com/urlake/urlake/lake/raw"
)

// place is where a record begins in the decompressed object.
type Place struct{ Line, Offset int64 }

// input is a window on the decompressed object. Parsers look at buf[r:w], ask for more with
// fill, and never hold more than a record of the greatest length and what was read ahead.
type Input struct {
	Src  io.Reader
	Buf  []byte
	R, W int
	Base int64 // offset of buf[0]
	Line int64 // line of buf[r], from 1
	Eol  byte
	Max  int
	Stop int64 // no line begins behind this offset; 0: anywhere
	At   Place // of the record returned last
	Err  error // why there is no more behind w
}

func NewInput(src io.Reader, maxLine int) *Input {
	// Small objects are many; for others the buffer grows to the head's size at once.
	return &Input{Src: src, Buf: make([]byte, 64<<10), Line: 1, Eol: '\n', Max: maxLine}
}

// skipBOM passes the byte order mark some programs put before UTF-8.
func (in *Input) SkipBOM() {
	for in.W-in.R < len(BOM) && in.Fill() {
	}
	if bytes.HasPrefix(in.Buf[in.R:in.W], BOM) {
		in.R += len(BOM)
	}
}

// fill reads more behind w. Slices of buf and positions in it are void afterwards; positions
// relative to r stay. It returns false when there is no more; err then says why.
func (in *Input) Fill() bool {
	if in.Err != nil {
		return false
	}
	if in.W == len(in.Buf) {
		to := in.Buf
		if in.R < len(in.Buf)/2 {
			to = make([]byte, 2*len(in.Buf))
		}
		copy(to, in.Buf[in.R:in.W])
		in.Base += int64(in.R)
		in.W -= in.R
		in.R = 0
		in.Buf = to
	}
	for range 100 {
		n, err := in.Src.Read(in.Buf[in.W:])
		in.W += n
		in.Err = err
		if n > 0 {
			return true
		}
		if err != nil {
			return false
		}
	}
	in.Err = io.ErrNoProgress
	return false
}

func (in *Input) Here() Place { return Place{in.Line, in.Base + int64(in.R)} }

// peekLine makes the next line stand in buf[r:r+n], without its end. At the end of the object
// err is io.EOF; what precedes another error is not returned as a line, since it may be cut.
// A line longer than max by more than the CR of its end is not held: long is true and n void.
func (in *Input) peekLine() (n int, long bool, err error) {
	if in.Stop != 0 && in.Base+int64(in.R) > in.Stop {
		return 0, false, io.EOF
	}
	seen := 0
	for {
		if i := bytes.IndexByte(in.Buf[in.R+seen:in.W], in.Eol); i >= 0 {
			return seen + i, seen+i > in.Max+1, nil
		}
		seen = in.W - in.R
		if seen > in.Max+1 {
			return 0, true, nil
		}
		if !in.Fill() {
			if seen = in.W - in.R; seen > 0 && in.Err == io.EOF {
				return seen, false, nil
			}
			return 0, false, in.Err
		}
	}
}

// passLine consumes a line that peekLine made stand, and its end.
func (in *Input) passLine(n int) {
	in.R += n
	if in.R < in.W {
		in.R++
		in.Line++
	}
}

// skipLine consumes up to the next line end without holding what is skipped.
func (in *Input) skipLine() {
	for {
		if i := bytes.IndexByte(in.Buf[in.R:in.W], in.Eol); i >= 0 {
			in.R += i + 1
			in.Line++
			return
		}
		in.R = in.W
		if !in.Fill() {
			return
		}
	}
}

// readLine consumes the next line and returns it without its end. A line longer than max is
// skipped and long is true. at is set to the line's place.
func (in *Input) ReadLine() (line []byte, long bool, err error) {
	n, long, err := in.peekLine()
	if err != nil {
		return nil, false, err
	}
	in.At = in.Here()
	if long {
		in.skipLine()
		return nil, true, nil
	}
	line = in.Buf[in.R : in.R+n]
	in.passLine(n)
	line = trimCR(line)
	return line, len(line) > in.Max, nil
}

// nextLine consumes lines until text returns something other than nil for one, and returns that. A
// line longer than the limit is a reject.
func (in *Input) nextLine(rej *raw.Reject, text func(line []byte) []byte) ([]byte, error) {
	for {
		line, long, err := in.ReadLine()
		if err != nil {
			return nil, err
		}
		if long {
			rej.Reason = raw.TooLong
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

// skipIntoRange passes the line that began before the range. Where no line break stands in the
// range, no line belongs to it.
func (in *Input) SkipIntoRange() {
	for {
		n := int(min(int64(in.W), in.Stop-in.Base))
		if i := bytes.IndexByte(in.Buf[in.R:n], in.Eol); i >= 0 {
			in.R += i + 1
			return
		}
		in.R = n
		if in.Base+int64(in.W) > in.Stop {
			break
		}
		// A byte behind the range is asked for even when all of the range is there: that is when its
		// frames have been checked.
		if !in.Fill() {
			if in.Err != io.EOF {
				return // the first read returns it
			}
			break
		}
	}
	in.Stop = -1
}
