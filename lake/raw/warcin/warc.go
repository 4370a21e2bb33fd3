package warcin

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw/timestamp"
)

// types are the types of records in ISO 28500.
var types = []string{"warcinfo", typeResponse, typeResource, "request", typeMetadata, typeRevisit, typeConversion,
	"continuation"}

// judgeWARC tells whether b begins with the header of a record: its version, and named fields, one
// of them a known type and one a length. A field that ends with a version is not one, but the
// beginning of another header. So no byte is looked at for two beginnings.
func judgeWARC(b []byte) (at int, v verdict) {
	const longest = len(Magic + "1.10\r\n")
	more := unclear // if b ends before the header does
	if len(b) > maxHeader {
		b, more = b[:maxHeader], no
	}
	n := bytes.IndexByte(b[:min(len(b), longest)], '\n')
	if n < 0 && len(b) < longest {
		return 0, more
	}
	if n < 0 || versionAt(bytes.TrimSuffix(b[:n], []byte{'\r'})) != 0 {
		return 0, no
	}
	hasType, hasLength, inValue := false, false, false
	for rest := b[n+1:]; ; {
		line, behind, ok := bytes.Cut(rest, []byte{'\n'})
		if !ok {
			return 0, more
		}
		rest = behind
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 {
			break
		}
		if versionAt(line) >= 0 {
			return 0, no
		}
		if inValue && (line[0] == ' ' || line[0] == '\t') {
			continue
		}
		name, value, isField := bytes.Cut(line, []byte{':'})
		if !isField || len(name) == 0 || bytes.ContainsAny(name, " \t<>\"/") {
			return 0, no
		}
		inValue = true
		switch value = bytes.TrimSpace(value); string(bytes.ToLower(name[:min(len(name), 32)])) {
		case "warc-type":
			hasType = len(value) == 0 || isType(value) // without a value it is folded
		case "content-length":
			hasLength = len(value) == 0 || timestamp.IsDigit(value[0])
		}
	}
	if hasType && hasLength {
		return 0, yes
	}
	return 0, no
}

func isType(b []byte) bool {
	for _, t := range types {
		if string(b) == t {
			return true
		}
	}
	return false
}

// versionAt returns the index of the WARC version at the end of a line, where a record begins, -1
// for none.
func versionAt(line []byte) int {
	n := len(line)
	if n < len("WARC/1.0") || line[n-4] != '/' && line[n-5] != '/' {
		return -1
	}
	i := bytes.LastIndex(line, []byte(Magic))
	if i < 0 {
		return -1
	}
	major, minor, ok := bytes.Cut(line[i+len(Magic):], []byte{'.'})
	if !ok || len(major) != 1 || len(minor) == 0 || len(minor) > 2 {
		return -1
	}
	for _, c := range line[i+len(Magic):] {
		if c != '.' && !timestamp.IsDigit(c) {
			return -1
		}
	}
	return i
}
