package text

import (
	"bytes"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

// bom is the byte order mark of UTF-8.
const bom = "\xef\xbb\xbf"

// TrimBOM returns b without the byte order mark it may begin with.
func TrimBOM(b []byte) []byte {
	if len(b) >= len(bom) && string(b[:len(bom)]) == bom {
		return b[len(bom):]
	}
	return b
}

// IsSpace reports whether c is white space: a space, tab, line feed, vertical tab, form feed or
// carriage return.
func IsSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// TrimSpace returns b without the white space around it, as IsSpace defines it. Unlike
// [bytes.TrimSpace] it leaves bytes beyond ASCII alone.
func TrimSpace(b []byte) []byte {
	for len(b) > 0 && IsSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && IsSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// Fields turns the text of a record's timestamp into its value. All formats with columns use it.
type Fields struct {
	// Counts is where the parser counts what is no record.
	Counts *raw.Counts

	time     timestamp.Format
	tsChosen bool
}

// NewFields returns the Fields of a plan. The error is that of an invalid timestamp format.
func NewFields(plan raw.Plan, counts *raw.Counts) (Fields, error) {
	format, err := timestamp.NewFormat(plan.TSFormat)
	return Fields{Counts: counts, time: format, tsChosen: plan.TSChosen}, err
}

// SetTS sets rec's timestamp from its text; blank text is none. It returns false if the text is no
// timestamp and the record is to be rejected. If no caller named the timestamp column, such a
// record is kept without a timestamp and counted.
func (f *Fields) SetTS(rec *raw.Record, b []byte) bool {
	b = TrimSpace(b)
	if len(b) == 0 {
		return true
	}
	ms, ok := f.time.Parse(b)
	if ok {
		rec.TS, rec.HasTS = ms, true
		return true
	}
	rec.BadTS = excerpt(b)
	if f.tsChosen {
		f.Counts.BadTS++
	}
	return f.tsChosen
}

// excerpt returns the first bytes of text that is no timestamp, nothing of what may be a URL: URLs
// can be secrets.
func excerpt(b []byte) string {
	const most = 40
	if bytes.Contains(b, []byte("//")) || bytes.IndexByte(b, '@') >= 0 {
		return ""
	}
	return strings.ToValidUTF8(string(b[:min(len(b), most)]), "\ufffd")
}

// SetSize sets rec's size from its text; blank text is none. It returns false if the text is no
// size and the record is to be rejected.
func SetSize(rec *raw.Record, b []byte) bool {
	b = TrimSpace(b)
	if len(b) == 0 {
		return true
	}
	n, ok := parseSize(b)
	rec.Size, rec.HasSize = n, ok
	return ok
}

// parseSize reads decimal digits. A fraction of zeros may follow, as float columns have it.
func parseSize(b []byte) (int64, bool) {
	if i := bytes.IndexByte(b, '.'); i > 0 {
		if len(bytes.Trim(b[i+1:], "0")) > 0 {
			return 0, false
		}
		b = b[:i]
	}
	if len(b) == 0 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (raw.MaxSize-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return int64(n), true
}

// captureField is what a column is as a field of a capture.
type captureField uint8

const (
	noCapture captureField = iota
	digestField
	mimeField
	otherField // whose values are taken as they are
)

func captureFieldOf(name string) captureField {
	switch name {
	case raw.Digest:
		return digestField
	case raw.MIME:
		return mimeField
	}
	return otherField
}

// CaptureValue returns the value of a capture field in the form that all formats share: a digest
// without the prefix of SHA-1, a media type without its parameters.
func CaptureValue(name string, v []byte) []byte { return captureFieldOf(name).value(v) }

func (f captureField) value(v []byte) []byte {
	v = TrimSpace(v)
	switch f {
	case digestField:
		const prefix = "sha1:"
		if len(v) > len(prefix) && v[len(prefix)-1] == ':' && bytes.EqualFold(v[:len(prefix)], []byte(prefix)) {
			v = v[len(prefix):]
		}
	case mimeField:
		if i := bytes.IndexByte(v, ';'); i >= 0 {
			v = TrimSpace(v[:i])
		}
		if string(v) == "unk" { // how indexes write that there is none
			return nil
		}
	}
	return v
}

// SortColumns returns cols in the order in which canonical JSON has their names.
func SortColumns(cols []raw.Column) []raw.Column {
	cols = slices.Clone(cols)
	slices.SortStableFunc(cols, func(a, b raw.Column) int {
		return jsondoc.CompareUTF16([]byte(a.Name), []byte(b.Name))
	})
	return cols
}
