package parquetin

import (
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
)

// lakePartColumns are the columns of a lake's part (docs/formats/part.md) that records are read
// from.
var lakePartColumns = []struct {
	name string
	kind valueKind
}{
	{"scheme", textKind},
	{"host", textKind},
	{"port", intKind},
	{"path_query", textKind},
	{"ts", timestampKind},
	{"size", intKind},
	{"extras", textKind},
}

// lakePart is what a record of a lake's part is made of beside path_query.
type lakePart struct {
	scheme, host, port *sideValue
	extras             *sideValue // nil if the plan names extras
	url, json          []byte     // the current record's URL and extras
	doc                jsondoc.Document
}

// record fills in the URL, and the extras as canonical JSON, or returns the reason for which the
// record is rejected. The URL has at most maxLen bytes.
func (l *lakePart) record(rec *raw.Record, pathQuery []byte, maxLen int) (reason string) {
	l.url = append(l.url[:0], l.scheme.value...)
	l.url = append(append(l.url, "://"...), l.host.value...)
	if l.port.value != nil {
		l.url = append(append(l.url, ':'), l.port.value...)
	}
	l.url = append(l.url, pathQuery...)
	switch {
	case l.scheme.value == nil || l.host.value == nil:
		return raw.NoURL
	case len(l.url) > maxLen || l.scheme.tooLong || l.host.tooLong || l.extras != nil && l.extras.tooLong:
		return raw.TooLong
	}
	rec.URL = l.url
	if l.extras == nil || l.extras.value == nil {
		return ""
	}
	if !l.doc.Parse(l.extras.value) || l.doc.Nodes[0].Kind != '{' {
		return raw.BadJSON
	}
	l.json = l.doc.AppendCanonical(l.json[:0], 0, nil)
	rec.Extras = l.json
	return ""
}
