package warcin

import (
	"bytes"
	"io"

	"github.com/urlake/urlake/lake/raw"
)

// headParser returns the parser of the beginning of a decompressed file. Only begin, isHeader and
// header may be called.
func headParser(head []byte, format string) *Parser {
	p := &Parser{max: maxHeader, arc: format == raw.ARC,
		stream: &stream{judge: judgeWARC, buf: head, w: len(head), err: io.EOF, parts: []part{{end: -1}}}}
	if p.arc {
		p.stream.judge, p.stream.anyLine = judgeARC, true
	}
	return p
}

// HasRecord reports whether the beginning of a file in a format has the header of a record behind
// nothing or text. A file whose compression was damaged has zero bytes there.
func HasRecord(head []byte, format string) bool {
	s := headParser(head, format).stream
	found, _ := s.find()
	return found && bytes.IndexByte(head[:s.offset()], 0) < 0
}

// IsDerived reports whether a WARC file has conversions or metadata of URLs and no captures, by its
// beginning. Neither is true of a file whose beginning has other records only.
func IsDerived(head []byte) (derived bool) {
	p := headParser(head, raw.WARC)
	var err error
	for p.begin() == nil {
		length := int64(-1)
		if is, _ := p.isHeader(); is {
			if length, _, err = p.header(); err != nil {
				break
			}
			switch string(p.values[columnType]) {
			case typeResponse, typeResource, typeRevisit, "request":
				return false
			case typeConversion, typeMetadata:
				derived = derived || len(p.values[columnURL]) > 0
			}
		}
		if length >= 0 {
			_, err = p.stream.skip(length, false)
		} else {
			_, err = p.stream.find()
		}
		if err != nil {
			break
		}
	}
	return derived
}
