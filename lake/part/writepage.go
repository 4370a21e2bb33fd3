package part

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/zstdtext"
)

// chunkWriter collects the pages of one column of the open row group.
type chunkWriter struct {
	blocks [][]byte // encoded pages, cut anywhere
	pages  []writtenPage
}

// chunkBlock is the size of the blocks of a chunk. Blocks need no reallocation when the chunk
// grows, and thirteen columns waste little in their last ones.
const chunkBlock = 64 << 10

// writtenPage is what the metadata has of a page.
type writtenPage struct {
	bytes, rawBytes int // with header, after and before compression
	rows, nulls     int
	sum             uint32 // CRC-32C of header and data
	min, max        []byte // bounds as in the column index; nil if all rows are null
}

// pageEncoders holds idle encoders. What they write depends on the page alone.
var pageEncoders = sync.Pool{New: func() any { return new(zstdtext.Encoder) }}

// endPage encodes the open page of every column and adds it to the open row group. If the row group
// or the part would exceed its limit, the page begins the next one.
func (w *Writer) endPage() error {
	if w.rows == 0 {
		return nil
	}
	if !w.path.valid() {
		return errUTF8
	}
	w.addLastID()
	if !w.union {
		w.texts[ColBatch].set(0, w.opt.Batch)
	}
	raw, err := w.measurePage()
	if err != nil {
		return err
	}
	if w.group.rows > 0 && w.group.raw+raw > w.lim.RowGroupBytes {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	full := w.file.raw+w.group.raw+raw > w.lim.PartBytes || len(w.file.groups) == maxRowGroups
	if full && w.file.rows+w.group.rows > 0 {
		if err := w.endPart(); err != nil {
			return err
		}
	}
	if w.group.rows == 0 && len(w.file.groups) == 1 { // the second row group begins
		free, err := w.file.spool.toFile(w.opt.TempDir)
		if err != nil {
			return err
		}
		w.recycle(free)
		w.freeSlabs()
	}
	if w.opt.Domains != nil {
		w.endDomain()
		measureDomains(&w.domains, &w.numbers[ColTS], &w.numbers[ColSize], w.rows)
		if err := w.opt.Domains.Domains(&w.domains); err != nil {
			return err
		}
		w.domains.reset()
	}
	w.numbers[ColTS].toMicros()
	w.pageKeys = append(w.pageKeys, w.pageKey())
	w.enc = pageEncoders.Get().(*zstdtext.Encoder)
	for i := range Column(NumColumns) {
		w.encodePage(i)
		w.numbers[i].reset()
		w.texts[i].reset()
	}
	pageEncoders.Put(w.enc)
	w.path.reset()
	w.ids = w.ids[:0]
	w.suffix = &noSuffix
	w.rawURLBytes, w.extrasBytes = 0, 0
	w.group.rows += int64(w.rows)
	w.group.raw += raw
	w.rows = 0
	return nil
}

// pageKey returns the key of the open page, which is complete, and keeps its last row for that of
// the next page.
func (w *Writer) pageKey() (k PageKey) {
	value := func(col Column) string { // of the first row
		t := &w.texts[col]
		return string(t.bytes[:t.runs[0].suffix])
	}
	if w.group.rows > 0 && w.lastRow.domain == value(ColDomain) {
		first := PageKey{
			Host: value(ColHost), Path: string(w.path.bytes[:w.path.suffixes[0]]),
			Scheme: value(ColScheme), Port: NoPort,
		}
		if port := w.numbers[ColPort].runs[0]; !port.null {
			first.Port = int32(port.value)
		}
		k = KeyBetween(&w.lastRow.key, &first)
	}
	w.lastRow.domain = string(w.texts[ColDomain].last)
	w.lastRow.key = PageKey{
		Host: string(w.texts[ColHost].last), Path: string(w.url[w.pathAt:]), Scheme: string(w.scheme), Port: w.port,
	}
	return k
}

// measurePage returns the size of the open page before compression, in all columns and without
// headers, and checks its times and its text but for paths.
func (w *Writer) measurePage() (int64, error) {
	raw := 4*w.rows + w.path.plain + len(w.ids)
	if low, high := w.numbers[ColTS].bounds(); low < -maxTS || high > maxTS {
		return 0, fmt.Errorf("times of %d to %d ms since 1970: the limits are ±%d", low, high, int64(maxTS))
	}
	for col := range Column(NumColumns) {
		var nulls int
		switch {
		case col == ColPathQuery || col == ColURLID || col == ColDatasetID:
			continue // counted above
		case col.kind() == format.ByteArray:
			if !w.texts[col].valid() {
				return 0, errUTF8
			}
			var plain int
			plain, nulls = w.texts[col].measure(w.rows)
			raw += plain
		default:
			nulls = w.numbers[col].nulls(w.rows)
			raw += (w.rows - nulls) * numberWidth(col)
		}
		raw += levelBytes(col, w.rows, nulls)
	}
	return int64(raw), nil
}

// levelBytes bounds the size of the definition levels of a page as appendLevels writes them.
func levelBytes(col Column, rows, nulls int) int {
	if !col.optional() {
		return 0
	}
	if nulls == 0 || nulls == rows {
		return len(binary.AppendUvarint(nil, uint64(rows)<<1)) + 1
	}
	groups := (rows + 7) / 8
	return len(binary.AppendUvarint(nil, uint64(groups)<<1|1)) + groups
}

// encodePage encodes the open page of a column and adds it to the column's chunk.
func (w *Writer) encodePage(col Column) {
	c := &w.cols[col]
	page := writtenPage{rows: w.rows}
	h := pageHeader{Zstd: col.compression() == format.Zstd}
	body := w.encoded[:0]
	// useSlab makes body a part of a slab if the content is large, so that it need not be copied.
	useSlab := func(content int) {
		if content >= wholePage {
			body = w.slabSpace(content)
		}
	}
	switch {
	case col == ColPathQuery:
		var prefixes int
		w.lengths, prefixes = w.path.appendLengths(w.lengths[:0])
		h.Uncompressed = len(w.lengths) + len(w.path.bytes)
		useSlab(h.Uncompressed)
		body = w.enc.AppendSections(body, w.path.bytes, w.lengths[:prefixes], w.lengths[prefixes:])
		page.setBounds(w.path.bounds(w.url[w.pathAt:]))
	case col == ColURLID:
		useSlab(len(w.ids))
		body = append(body, w.ids...)
		h.Uncompressed = len(body)
		page.min, page.max = idBounds(w.ids)
	case col == ColDatasetID:
		page.min = appendNumber(nil, int64(w.opt.Dataset), 4)
		page.max = page.min
		h.Uncompressed = 4 * w.rows
		body = w.appendRepeated(body, page.min, w.rows)
	case col.kind() == format.ByteArray:
		t := &w.texts[col]
		page.nulls = t.nulls(w.rows)
		if col.optional() {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) {
				return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null
			})
		}
		h.Levels = len(body)
		h.Uncompressed = h.Levels
		if h.Zstd = page.nulls < w.rows; h.Zstd { // some readers cannot decompress a page without values
			w.lengths = t.appendLengths(w.lengths[:0], w.rows)
			h.Uncompressed += len(w.lengths) + len(t.bytes)
			body = w.enc.Append(body, w.lengths, t.bytes)
			page.setBounds(t.bounds(t.last))
		} else {
			body = appendLengths(appendLengths(body, nil), nil)
			h.Uncompressed = len(body)
		}
	default:
		t := &w.numbers[col]
		page.nulls = t.nulls(w.rows)
		if col.optional() {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) {
				return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null
			})
		}
		h.Levels = len(body)
		h.Uncompressed = h.Levels
		if h.Zstd = page.nulls < w.rows; h.Zstd {
			n, width := w.rows-page.nulls, numberWidth(col)
			low, high := t.bounds()
			page.min, page.max = appendNumber(nil, low, width), appendNumber(nil, high, width)
			h.Uncompressed += n * width
			switch {
			case low == high:
				body = w.appendRepeated(body, page.min, n)
			case col == ColDomainID: // its runs are long
				w.values, w.counts = t.appendRuns(w.values[:0], w.counts[:0], w.rows, width)
				body = w.enc.AppendRuns(body, w.values, width, w.counts)
			default:
				w.values = t.appendPlain(w.values[:0], w.rows, width)
				body = w.enc.Append(body, nil, w.values)
			}
		}
	}
	h.Nulls = page.nulls
	h.Compressed = len(body)
	h.CRC = crc32.ChecksumIEEE(body)
	header := appendPageHeader(w.header[:0], h, w.rows, col.encoding())
	w.header = header
	page.bytes = len(header) + len(body)
	page.rawBytes = len(header) + h.Uncompressed
	page.sum = codec.UpdateCRC32C(codec.CRC32C(header), body)
	c.pages = append(c.pages, page)
	if n := len(body); n > 0 && len(w.slab) > maxPageHeader && &body[0] == &w.slab[maxPageHeader] {
		// Blocks of exactly chunkBlock bytes are recycled as memory of their own. A part of a slab
		// must not be, so a page of that size is copied.
		if from := maxPageHeader - len(header); n >= wholePage && len(header)+n != chunkBlock {
			copy(w.slab[from:], header)
			c.blocks = append(c.blocks, w.slab[from:maxPageHeader+n:maxPageHeader+n])
			w.slab = w.slab[maxPageHeader+n:]
			return
		}
	} else {
		w.encoded = body
	}
	w.appendToChunk(c, header)
	w.appendToChunk(c, body)
}

const (
	// wholePage is the size from which on a page is not copied to blocks of its chunk. It stays in
	// the slab where it was encoded.
	wholePage = 16 << 10
	pageSlab  = 1 << 20
	// maxPageHeader bounds the size of a page header.
	maxPageHeader = 96
)

// pageSlabs holds idle slabs.
var pageSlabs = sync.Pool{New: func() any { return new([pageSlab]byte) }}

// slabSpace returns an empty slice whose capacity is the rest of a slab, behind space for a page
// header. It usually suffices to encode content bytes; the encoder allocates if it does not. If no
// slab is large enough, slabSpace returns nil.
func (w *Writer) slabSpace(content int) []byte {
	if need := maxPageHeader + content + content/16; len(w.slab) < need {
		if need > pageSlab {
			return nil
		}
		slab := pageSlabs.Get().(*[pageSlab]byte)
		w.slabs = append(w.slabs, slab)
		w.slab = slab[:]
	}
	return w.slab[maxPageHeader:maxPageHeader:len(w.slab)]
}

// freeSlabs returns all slabs to the pool. Their pages are written or dropped.
func (w *Writer) freeSlabs() {
	for _, slab := range w.slabs {
		pageSlabs.Put(slab)
	}
	clear(w.slabs)
	w.slabs, w.slab = w.slabs[:0], nil
}

// appendRepeated appends the compressed form of n times value.
func (w *Writer) appendRepeated(body, value []byte, n int) []byte {
	if n*len(value) <= seekable.MaxRawBlock {
		return appendRepeated(body, value, n)
	}
	w.values = w.values[:0]
	for range n {
		w.values = append(w.values, value...)
	}
	return w.enc.Append(body, nil, w.values)
}

// appendLevels appends the definition levels of the open page: one run if all rows are alike. run
// returns the number of rows of one of the column's runs, and whether they are null.
func (w *Writer) appendLevels(dst []byte, nulls, runs int, run func(i int) (rows int, null bool)) []byte {
	if nulls == 0 || nulls == w.rows {
		dst = binary.AppendUvarint(dst, uint64(w.rows)<<1)
		if nulls == 0 {
			return append(dst, 1)
		}
		return append(dst, 0)
	}
	lw := levelWriter{dst: dst, groups: w.values[:0], have: 8}
	for i := range runs {
		n, null := run(i)
		lw.add(n, !null)
	}
	lw.flush()
	return lw.dst
}

// setBounds sets the bounds of a page of text to shortened copies of low and high.
func (p *writtenPage) setBounds(low, high []byte) {
	p.min, p.max = bytes.Clone(lowerBound(low)), bytes.Clone(upperBound(high))
}

// appendToChunk copies b to the column's chunk.
func (w *Writer) appendToChunk(c *chunkWriter, b []byte) {
	for len(b) > 0 {
		last := len(c.blocks) - 1
		if last < 0 || len(c.blocks[last]) == cap(c.blocks[last]) {
			if n := len(w.chunkPool); n > 0 {
				c.blocks, w.chunkPool = append(c.blocks, w.chunkPool[n-1][:0]), w.chunkPool[:n-1]
			} else {
				c.blocks = append(c.blocks, make([]byte, 0, chunkBlock))
			}
			last++
		}
		n := min(len(b), chunkBlock-len(c.blocks[last]))
		c.blocks[last] = append(c.blocks[last], b[:n]...)
		b = b[n:]
	}
}

// idBounds returns the smallest and the largest of the ids in PLAIN form. Parquet orders them as
// signed numbers.
func idBounds(ids []byte) (low, high []byte) {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for ; len(ids) >= 8; ids = ids[8:] {
		v := int64(binary.LittleEndian.Uint64(ids))
		least, most = min(least, v), max(most, v)
	}
	return appendNumber(nil, least, 8), appendNumber(nil, most, 8)
}

// compareBounds compares two values of a column in Parquet's order: numbers are signed, strings
// compare by bytes.
func compareBounds(kind format.Type, a, b []byte) int {
	switch kind {
	case format.Int32:
		return cmp.Compare(int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b)))
	case format.Int64:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	}
	return bytes.Compare(a, b)
}

// lowerBound shortens a string to at most boundBytes, at the start of a character.
func lowerBound(v []byte) []byte {
	if len(v) <= boundBytes {
		return v
	}
	n := boundBytes
	for n > 0 && !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n]
}

// upperBound shortens a string to one that is not less. It increments the last possible character
// and drops the rest, because bounds have to be valid text too. If no character can be incremented,
// it returns the whole string.
func upperBound(v []byte) []byte {
	short := lowerBound(v)
	if len(short) == len(v) {
		return v
	}
	for len(short) > 0 {
		r, n := utf8.DecodeLastRune(short)
		short = short[:len(short)-n]
		if r == utf8.MaxRune {
			continue
		}
		if r++; r == 0xD800 { // skip the surrogates, which are not characters
			r = 0xE000
		}
		return utf8.AppendRune(bytes.Clone(short), r)
	}
	return v
}
