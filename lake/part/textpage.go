package part

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/urlake/urlake/lake/codec"
)

// textPage collects the values of a text column's open page when most values differ from the
// previous one.
type textPage struct {
	prefixes, suffixes []int32
	bytes              []byte // suffixes
	plain              int    // size of the values as PLAIN
	high               bool   // a suffix has a byte that is not ASCII
	textBounds
}

// add adds a value that shares its first prefix bytes with the previous one.
func (t *textPage) add(v []byte, prefix int) {
	t.prefixes = append(t.prefixes, int32(prefix))
	t.suffixes = append(t.suffixes, int32(len(v)-prefix))
	t.plain += 4 + len(v)
	t.high = t.high || !isASCII(v[prefix:])
	t.bytes = append(t.bytes, v[prefix:]...)
}

// appendLengths appends the lengths, which precede the suffixes, and returns how many bytes the
// lengths of prefixes take.
func (t *textPage) appendLengths(dst []byte) (_ []byte, prefixes int) {
	from := len(dst)
	dst = appendLengths(dst, t.prefixes)
	return appendLengths(dst, t.suffixes), len(dst) - from
}

// valid reports whether all values are UTF-8.
func (t *textPage) valid() bool {
	if !t.high {
		return true // every byte of a value is in a suffix of the page
	}
	var v []byte
	rest := t.bytes
	for i, suffix := range t.suffixes {
		v = append(v[:t.prefixes[i]], rest[:suffix]...)
		if rest = rest[suffix:]; !utf8.Valid(v) {
			return false
		}
	}
	return true
}

// reset begins the next page.
func (t *textPage) reset() {
	t.prefixes, t.suffixes, t.bytes, t.plain, t.high = t.prefixes[:0], t.suffixes[:0], t.bytes[:0], 0, false
}

// textRuns collects a text column's open page as runs of rows with the same value or without one.
type textRuns struct {
	runs  []textRun
	bytes []byte // suffixes
	last  []byte // the last value, also that of an earlier page
	texts int    // number of runs that have a value
	most  int    // bytes of the longest value
	diffs []byte // scratch space of appendLengths
	textBounds
}

// textRun is a value and the row of the page from which on rows have it.
type textRun struct {
	row            int32
	null           bool
	prefix, suffix int32
}

// set sets the value of all rows from row on.
func (t *textRuns) set(row int, v string) {
	prefix := 0
	if t.texts == 0 {
		t.open(v)
	} else {
		prefix = codec.CommonPrefix(t.last, rawBytes(v))
		if prefix == len(v) && prefix == len(t.last) && !t.runs[len(t.runs)-1].null {
			return
		}
		if prefix < len(t.last) && (prefix == len(v) || v[prefix] < t.last[prefix]) {
			t.descend(t.last, rawBytes(v))
		}
	}
	t.follow(row, prefix, rawBytes(v))
}

// follow is set for a value that differs from the last one and shares its first prefix bytes with
// it. If it is less, the caller has called descend.
func (t *textRuns) follow(row, prefix int, v []byte) {
	t.texts++
	t.most = max(t.most, len(v))
	t.runs = append(t.runs, textRun{row: int32(row), prefix: int32(prefix), suffix: int32(len(v) - prefix)})
	t.bytes, t.last = append(t.bytes, v[prefix:]...), append(t.last[:prefix], v[prefix:]...)
}

// setNull makes all rows from row on null.
func (t *textRuns) setNull(row int) {
	if n := len(t.runs); n == 0 || !t.runs[n-1].null {
		t.runs = append(t.runs, textRun{row: int32(row), null: true})
	}
}

// setOptional is set for a value and setNull for "". It returns the size of the value as PLAIN.
func (t *textRuns) setOptional(row int, v string) (plain int) {
	if v == "" {
		t.setNull(row)
		return 0
	}
	t.set(row, v)
	return 4 + len(v)
}

// end is the end of run i in a page of rows rows.
func (t *textRuns) end(i, rows int) int {
	if i+1 < len(t.runs) {
		return int(t.runs[i+1].row)
	}
	return rows
}

// measure returns the size as PLAIN and the number of nulls of a page of rows rows.
func (t *textRuns) measure(rows int) (plain, nulls int) {
	end := rows
	for i := len(t.runs) - 1; i >= 0; i-- {
		r := &t.runs[i]
		n := end - int(r.row)
		if end = int(r.row); r.null {
			nulls += n
		} else {
			plain += n * int(4+r.prefix+r.suffix)
		}
	}
	return plain, nulls
}

// nulls is the number of null rows in a page of rows rows.
func (t *textRuns) nulls(rows int) int {
	switch t.texts {
	case len(t.runs):
		return 0
	case 0:
		return rows
	}
	_, nulls := t.measure(rows)
	return nulls
}

// valid reports whether all values are UTF-8.
func (t *textRuns) valid() bool {
	if isASCII(t.bytes) {
		return true
	}
	var v []byte
	rest := t.bytes
	for _, r := range t.runs {
		if r.null {
			continue
		}
		v = append(v[:r.prefix], rest[:r.suffix]...)
		if rest = rest[r.suffix:]; !utf8.Valid(v) {
			return false
		}
	}
	return true
}

// reset begins the next page.
func (t *textRuns) reset() { t.runs, t.bytes, t.texts, t.most = t.runs[:0], t.bytes[:0], 0, 0 }

// appendLengths appends the lengths of a page of rows rows, which precede the suffixes.
func (t *textRuns) appendLengths(dst []byte, rows int) []byte {
	values := rows - t.nulls(rows)
	if values < byteLengths || t.most >= -byteBase { // too few values, or differences may exceed a byte
		prefixes, suffixes := t.lengths(rows, values)
		return appendLengths(appendLengths(dst, prefixes), suffixes)
	}
	// A length differs from the previous one only in the first two rows of a run. Every run sets
	// both differences without a branch. If the run has one row, the second is of the next run,
	// which overwrites it.
	need := 2 * (values + 1)
	t.diffs = slices.Grow(t.diffs[:0], need)[:need]
	t.diffs[0] = -byteBase
	for n := 1; n < need; n *= 2 {
		copy(t.diffs[n:], t.diffs[:n])
	}
	prefixes, suffixes := t.diffs[:values+1], t.diffs[values+1:]
	suffixes = suffixes[:len(prefixes)]
	var prefix, suffix int32
	at := 0 // index of the run's first value
	for i := range t.runs {
		r := &t.runs[i]
		if r.null {
			continue
		}
		prefixes[at], suffixes[at] = byte(r.prefix-prefix-byteBase), byte(r.suffix-suffix-byteBase)
		prefixes[at+1], suffixes[at+1] = byte(r.suffix-byteBase), byte(-r.suffix-byteBase)
		prefix, suffix = r.prefix, r.suffix
		n := t.end(i, rows) - int(r.row)
		if n > 1 { // two ifs compile to conditional moves, one to a branch
			prefix += suffix
		}
		if n > 1 {
			suffix = 0
		}
		at += n
	}
	// The first value has no prefix.
	dst = appendByteBlocks(appendDeltaHeader(dst, values, 0), prefixes[1:values])
	first := int32(suffixes[0]) + byteBase
	return appendByteBlocks(appendDeltaHeader(dst, values, first), suffixes[1:values])
}

// lengths returns the lengths of all values of a page of rows rows.
func (t *textRuns) lengths(rows, values int) (prefixes, suffixes []int32) {
	prefixes, suffixes = make([]int32, 0, values), make([]int32, 0, values)
	for i, r := range t.runs {
		if r.null {
			continue
		}
		prefixes, suffixes = append(prefixes, r.prefix), append(suffixes, r.suffix)
		for range t.end(i, rows) - int(r.row) - 1 {
			prefixes, suffixes = append(prefixes, r.prefix+r.suffix), append(suffixes, 0)
		}
	}
	return prefixes, suffixes
}

// textBounds finds the smallest and the largest value of a page. Values mostly ascend, so only the
// values at a descent need a comparison: the smallest value is the first one or follows a descent,
// the largest precedes a descent or is the last.
type textBounds struct {
	low, high []byte // bounds of the values so far; high only up to the last descent
	descended bool   // there was a descent in the page
}

// open begins a page with its first value.
func (b *textBounds) open(v string) {
	b.low, b.descended = append(b.low[:0], v...), false
}

// descend records that v follows last and is less.
func (b *textBounds) descend(last, v []byte) {
	if !b.descended || bytes.Compare(last, b.high) > 0 {
		b.high = append(b.high[:0], last...)
	}
	if bytes.Compare(v, b.low) < 0 {
		b.low = append(b.low[:0], v...)
	}
	b.descended = true
}

// bounds returns the smallest and the largest value of a page whose last value is last. They are
// valid until the next page.
func (b *textBounds) bounds(last []byte) (low, high []byte) {
	if b.descended && bytes.Compare(b.high, last) > 0 {
		return b.low, b.high
	}
	return b.low, last
}

// isASCII reports whether all bytes of b are below 0x80.
func isASCII(b []byte) bool {
	const high = 0x8080808080808080
	for ; len(b) >= 32; b = b[32:] {
		v := binary.LittleEndian.Uint64(b) | binary.LittleEndian.Uint64(b[8:]) |
			binary.LittleEndian.Uint64(b[16:]) | binary.LittleEndian.Uint64(b[24:])
		if v&high != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// rawBytes is s as bytes without a copy. They must not be written to.
func rawBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
