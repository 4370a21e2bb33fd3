package warcin

import (
	"bytes"

	"github.com/urlake/urlake/lake/raw/timestamp"
)

// types are the types of records in ISO 28500.
var types = []string{"warcinfo", typeResponse, typeResource, "request", typeMetadata, typeRevisit, typeConversion,
	"continuation"}

// judgeWARC judges whether b begins with the header of a record: its version, and named fields,
// among them a known type and a length.
func judgeWARC(b []byte) verdict {
	line, rest, ok := bytes.Cut(b, []byte{'\n'})
	if !ok && len(b) <= len(Magic)+8 {
		return unclear
	}
	if !ok || versionAt(bytes.TrimSuffix(line, []byte{'\r'})) != 0 {
		return no
	}
	hasType, hasLength, inValue := false, false, false
	for {
		if line, rest, ok = bytes.Cut(rest, []byte{'\n'}); !ok {
			if len(b) > maxHeader {
				return no
			}
			return unclear
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 {
			break
		}
		if inValue && (line[0] == ' ' || line[0] == '\t') {
			continue
		}
		name, value, isField := bytes.Cut(line, []byte{':'})
		if !isField || len(name) == 0 || bytes.ContainsAny(name, " \t<>\"/") {
			return no
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
		return yes
	}
	return no
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
