package text

import (
	"bytes"
	"slices"

	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/jsondoc"
	"github.com/urlake/urlake/lake/raw/timestamp"
)

var BOM = []byte("\xef\xbb\xbf")

func IsSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func TrimSpace(b []byte) []byte {
	for len(b) > 0 && IsSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && IsSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// fields is what tables and JSON do alike with the values they found.
type Fields struct {
	time     timestamp.Format
	tsChosen bool
	Counts   *raw.Counts
}

func NewFields(plan raw.Plan, counts *raw.Counts) (Fields, error) {
	tf, err := timestamp.NewFormat(plan.TSFormat)
	return Fields{time: tf, tsChosen: plan.TSChosen, Counts: counts}, err
}

// setTS takes the text of the timestamp; empty text is none. It says whether the record stands.
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
	if f.tsChosen {
		f.Counts.BadTS++
		return true
	}
	return false
}

// setSize takes the text of the size; empty text is none. It says whether the record stands.
func SetSize(rec *raw.Record, b []byte) bool {
	b = TrimSpace(b)
	if len(b) == 0 {
		return true
	}
	n, ok := parseSize(b)
	rec.Size, rec.HasSize = n, ok
	return ok
}

// parseSize reads decimal digits, with a fraction of zeros as float columns write it.
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
		if d > 9 || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return int64(n), true
}

// sortColumns puts columns in the order of canonical JSON.
func SortColumns(cols []raw.Column) []raw.Column {
	cols = slices.Clone(cols)
	slices.SortStableFunc(cols, func(a, b raw.Column) int { return jsondoc.CompareUTF16([]byte(a.Name), []byte(b.Name)) })
	return cols
}
