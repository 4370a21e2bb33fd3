package partwriter

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf8"
	"unsafe"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
)

// textPage collects the values of a text column's open page in which most differ from the one before.
type textPage struct {
	prefixes, suffixes []int32
	bytes              []byte // suffixes
	plain              int    // size of the values as PLAIN
	high               bool   // a suffix has a byte that is not ASCII
	textBounds
}

// add adds a value that has its first prefix bytes from the one before.
func (t *textPage) add(v []byte, prefix int) {
	t.begin(len(v), prefix)
	t.high = t.high || !isASCII(v[prefix:])
	t.bytes = append(t.bytes, v[prefix:]...)
}

// begin is add of a value of so many bytes, whose suffix the caller appends to t.bytes and looks at for high.
func (t *textPage) begin(size, prefix int) {
	t.prefixes = append(t.prefixes, int32(prefix))
	t.suffixes = append(t.suffixes, int32(size-prefix))
	t.plain += 4 + size
}

// appendLengths appends what stands before the suffixes, and returns how much of it are the lengths of prefixes.
func (t *textPage) appendLengths(dst []byte) (_ []byte, prefixes int) {
	from := len(dst)
	dst = appendLengths(dst, t.prefixes)
	return appendLengths(dst, t.suffixes), len(dst) - from
}

// valid reports whether all values are UTF-8.
func (t *textPage) valid() bool {
	if !t.high {
		return true // no value has a byte that is not in a suffix of the page
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

// reset starts the next page.
func (t *textPage) reset() {
	t.prefixes, t.suffixes, t.bytes, t.plain, t.high = t.prefixes[:0], t.suffixes[:0], t.bytes[:0], 0, false
}

// textRuns collects the values of a text column's open page in which rows repeat the one before, or have none.
type textRuns struct {
	runs  []textRun
	bytes []byte // suffixes
	last  []byte // the value before, also that of the page before
	texts int    // runs that have a value
	most  int    // size of the longest
	diffs []byte // scratch space of appendLengths
	textBounds
}

// textRun is a value and the row with which it starts.
type textRun struct {
	row            int32
	null           bool
	prefix, suffix int32
}

// set says that rows from row on have the value v.
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

// follow is set of a value that is another than the last, with which it shares prefix bytes, where both have one and descend was called if it is below.
func (t *textRuns) follow(row, prefix int, v []byte) {
	t.texts++
	t.most = max(t.most, len(v))
	t.runs = append(t.runs, textRun{row: int32(row), prefix: int32(prefix), suffix: int32(len(v) - prefix)})
	t.bytes, t.last = append(t.bytes, v[prefix:]...), append(t.last[:prefix], v[prefix:]...)
}

// setNull says that rows from row on have no value.
func (t *textRuns) setNull(row int) {
	if n := len(t.runs); n == 0 || !t.runs[n-1].null {
		t.runs = append(t.runs, textRun{row: int32(row), null: true})
	}
}

// setOptional is set for a value, setNull for none, which is empty. It returns the size of the value as PLAIN.
func (t *textRuns) setOptional(row int, v string) (plain int) {
	if v == "" {
		t.setNull(row)
		return 0
	}
	t.set(row, v)
	return 4 + len(v)
}

// end is the row behind run i of a page of rows rows.
func (t *textRuns) end(i, rows int) int {
	if i+1 < len(t.runs) {
		return int(t.runs[i+1].row)
	}
	return rows
}

// measure returns the size of the values of a page of rows rows as PLAIN, and the number of rows without one.
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

// nulls is the number of rows of a page of rows rows without a value.
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

// reset starts the next page.
func (t *textRuns) reset() { t.runs, t.bytes, t.texts, t.most = t.runs[:0], t.bytes[:0], 0, 0 }

// textBounds finds the smallest and the largest value of a page. Columns mostly ascend: where they do not, it is known
// where the largest and the smallest values may be.
type textBounds struct {
	low, high []byte // of the values up to the last descent
	descended bool
}

// open starts a page with its first value.
func (b *textBounds) open(v string) {
	b.low, b.descended = append(b.low[:0], v...), false
}

// descend notes that v follows last and is below it.
func (b *textBounds) descend(last, v []byte) {
	if !b.descended || bytes.Compare(last, b.high) > 0 {
		b.high = append(b.high[:0], last...)
	}
	if bytes.Compare(v, b.low) < 0 {
		b.low = append(b.low[:0], v...)
	}
	b.descended = true
}

// bounds are the smallest and the largest value of the page that ends with last, valid until the next.
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
		v := binary.LittleEndian.Uint64(b) | binary.LittleEndian.Uint64(b[8:]) | binary.LittleEndian.Uint64(b[16:]) | binary.LittleEndian.Uint64(b[24:])
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

// Lengths of a page of at least byteLengths values have a byte each, less byteBase, so that an entropy coder
// sees them: a difference is the same byte wherever it stands. Bits packed as tightly as they go are a quarter larger than the
// entropy, but a page of a few rows is smaller with them, and so is a block with differences that do not fit in a byte: it would
// need two for most, and the second ones spoil the statistics.
const (
	byteLengths = 256
	byteBase    = -128
)

// appendLengths appends lengths as DELTA_BINARY_PACKED.
func appendLengths(dst []byte, values []int32) []byte {
	if len(values) < byteLengths {
		return appendDeltaPacked(dst, values)
	}
	dst = appendDeltaHeader(dst, len(values), values[0])
	last := values[0]
	for values = values[1:]; len(values) > 0; {
		n := min(len(values), part.DeltaBlock)
		from := len(dst)
		var out []byte
		dst, out = appendByteBlock(dst, n)
		equal, fit := byteDiffs(out, last, values[:n])
		if equal {
			dst = appendEqualBlock(dst[:from])
		} else if !fit {
			dst = appendPackedBlock(dst[:from], last, values[:n])
		}
		last, values = values[n-1], values[n:]
	}
	return dst
}

// byteDiffsPlain sets out to what each value, the first of them after last, is above the one before, less byteBase. It reports whether all are equal to it, and
// whether all differences fit.
func byteDiffsPlain(out []byte, last int32, values []int32) (equal, fit bool) {
	var all, any uint32
	for i, v := range values {
		d := v - last
		last = v
		out[i] = byte(d - byteBase)
		all |= uint32(d - byteBase)
		any |= uint32(d)
	}
	return any == 0, all <= 0xff
}

// appendDeltaHeader appends the header of DELTA_BINARY_PACKED.
func appendDeltaHeader(dst []byte, n int, first int32) []byte {
	dst = binary.AppendUvarint(dst, part.DeltaBlock)
	dst = binary.AppendUvarint(dst, part.DeltaMiniblocks)
	dst = binary.AppendUvarint(dst, uint64(n))
	return binary.AppendVarint(dst, int64(first))
}

// equalMiniblocks are the bytes of miniblocks in which all values are equal.
var equalMiniblocks = [part.DeltaBlock]byte(bytes.Repeat([]byte{-byteBase}, part.DeltaBlock))

// appendByteBlock appends a block of n differences with a byte each, all of them 0, and returns where these are.
func appendByteBlock(dst []byte, n int) (_, out []byte) {
	dst = binary.AppendVarint(dst, byteBase)
	for m := range part.DeltaMiniblocks {
		if m*part.DeltaMiniblock < n {
			dst = append(dst, 8)
		} else {
			dst = append(dst, 0)
		}
	}
	at := len(dst)
	dst = append(dst, equalMiniblocks[:(n+part.DeltaMiniblock-1)&^(part.DeltaMiniblock-1)]...)
	return dst, dst[at:]
}

// appendEqualBlock appends a block of differences that are 0.
func appendEqualBlock(dst []byte) []byte { return append(dst, 0, 0, 0, 0, 0) }

// appendPackedBlock appends a block of values after last in as few bits as it can. Differences wrap around, as the format wants it.
func appendPackedBlock(dst []byte, last int32, values []int32) []byte {
	var deltas [part.DeltaBlock]int32
	low := values[0] - last
	for i, v := range values {
		deltas[i] = v - last
		low = min(low, deltas[i])
		last = v
	}
	dst = binary.AppendVarint(dst, int64(low))
	widths := len(dst)
	dst = append(dst, make([]byte, part.DeltaMiniblocks)...)
	for m := 0; m*part.DeltaMiniblock < len(values); m++ {
		var offsets [part.DeltaMiniblock]uint32
		var all uint32
		for i, d := range deltas[m*part.DeltaMiniblock : min(len(values), (m+1)*part.DeltaMiniblock)] {
			offsets[i] = uint32(d - low)
			all |= offsets[i]
		}
		width := bits.Len32(all)
		dst[widths+m] = byte(width)
		dst = appendBits(dst, &offsets, width)
	}
	return dst
}

// appendLengths appends what stands before the suffixes of a page of rows rows.
func (t *textRuns) appendLengths(dst []byte, rows int) []byte {
	values := rows - t.nulls(rows)
	if values < byteLengths || t.most >= -byteBase { // else lengths may differ by more than a byte
		prefixes, suffixes := t.lengths(rows, values)
		return appendLengths(appendLengths(dst, prefixes), suffixes)
	}
	// A length differs from the one before only where a run starts and behind that row. Every run sets both, without a branch: what it sets of a row
	// behind it that is of another run is set again.
	need := 2 * (values + 1)
	t.diffs = slices.Grow(t.diffs[:0], need)[:need]
	t.diffs[0] = -byteBase
	for n := 1; n < need; n *= 2 {
		copy(t.diffs[n:], t.diffs[:n])
	}
	prefixes, suffixes := t.diffs[:values+1], t.diffs[values+1:]
	suffixes = suffixes[:len(prefixes)]
	var prefix, suffix int32
	at := 0 // value
	for i := range t.runs {
		r := &t.runs[i]
		if r.null {
			continue
		}
		prefixes[at], suffixes[at] = byte(r.prefix-prefix-byteBase), byte(r.suffix-suffix-byteBase)
		prefixes[at+1], suffixes[at+1] = byte(r.suffix-byteBase), byte(-r.suffix-byteBase)
		prefix, suffix = r.prefix, r.suffix
		n := t.end(i, rows) - int(r.row)
		if n > 1 { // two of these are conditional moves, one for both a branch
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

// appendByteBlocks appends the blocks of differences that have a byte each.
func appendByteBlocks(dst, diffs []byte) []byte {
	for len(diffs) > 0 {
		n := min(len(diffs), part.DeltaBlock)
		if bytes.Equal(diffs[:n], equalMiniblocks[:n]) {
			dst = appendEqualBlock(dst)
		} else {
			var out []byte
			dst, out = appendByteBlock(dst, n)
			copy(out, diffs[:n])
		}
		diffs = diffs[n:]
	}
	return dst
}

// lengths are those of all values of a page of rows rows.
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

// appendDeltaPacked appends values as DELTA_BINARY_PACKED in as few bits as it can.
func appendDeltaPacked(dst []byte, values []int32) []byte {
	if len(values) == 0 {
		return appendDeltaHeader(dst, 0, 0)
	}
	last := values[0]
	dst = appendDeltaHeader(dst, len(values), last)
	values = values[1:]
	for len(values) > 0 {
		n := min(len(values), part.DeltaBlock)
		dst = appendPackedBlock(dst, last, values[:n])
		last, values = values[n-1], values[n:]
	}
	return dst
}

// appendBits appends the low width bits of each value, the first in the lowest bits.
func appendBits(dst []byte, values *[part.DeltaMiniblock]uint32, width int) []byte {
	if width == 0 {
		return dst
	}
	var buf uint64
	have := 0
	for _, v := range values {
		buf |= uint64(v) << have
		if have += width; have >= 32 {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(buf))
			buf >>= 32
			have -= 32
		}
	}
	return dst // 32 values of any width end at a multiple of 32 bits
}

// rawBytes is s as bytes, which must not be written to.
func rawBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
