package partwriter

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/seekable"
	"github.com/urlake/urlake/lake/zstdtext"
)

// chunkWriter collects the pages of one column of the open row group.
type chunkWriter struct {
	chunk []([]byte) // encoded, in blocks
	pages []writtenPage
}

// writtenPage is what the metadata needs to know of a page.
type writtenPage struct {
	bytes, rawBytes int // with header
	rows, nulls     int
	sum             uint32 // CRC-32C of header and data
	min, max        []byte // bounds as in the column index; none in a page of nulls
}

// endPage encodes the open page of every column and adds it to the row group, or to the next.
func (w *Writer) endPage() error {
	if w.rows == 0 {
		return nil
	}
	if !w.path.valid() {
		return errUTF8
	}
	w.addID()
	raw := w.rows*(4+4+len(w.opt.Batch)) + w.path.plain + len(w.ids)
	w.texts[part.ColBatch].set(0, w.opt.Batch)
	for i := range part.Column(part.NumColumns) {
		def := &part.ColumnDefs[i]
		nulls := 0
		switch {
		case i == part.ColPathQuery || i == part.ColURLID || i == part.ColBatch || i == part.ColDatasetID:
			continue
		case def.Kind == format.ByteArray:
			if !w.texts[i].valid() {
				return errUTF8
			}
			var plain int
			plain, nulls = w.texts[i].measure(w.rows)
			raw += plain
		default:
			nulls = w.numbers[i].nulls(w.rows)
			raw += (w.rows - nulls) * numberWidth(def.Kind)
		}
		raw += levelBytes(i, w.rows, nulls)
	}
	// The page opens a new row group or part rather than make this one too long.
	if w.group.rows > 0 && w.group.raw+int64(raw) > w.lim.RowGroupBytes {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if full := w.part.raw+w.group.raw+int64(raw) > w.lim.PartBytes; w.part.rows+w.group.rows > 0 && (full || len(w.part.groups) == part.MaxRowGroups) {
		if err := w.endPart(); err != nil {
			return err
		}
	}
	if w.group.rows == 0 && len(w.part.groups) == 1 {
		free, err := w.part.spool.toFile(w.opt.TempDir)
		if err != nil {
			return err
		}
		w.recycle(free)
		w.freeSlabs()
	}
	if w.opt.Domains != nil {
		w.domains.End(w.rows)
		measureDomains(&w.domains, &w.numbers[part.ColTS], &w.numbers[part.ColSize], w.rows)
		if err := w.opt.Domains.Domains(&w.domains); err != nil {
			return err
		}
		w.domains.Begin()
	}
	w.enc = pageEncoders.Get().(*zstdtext.Encoder)
	for i := range part.Column(part.NumColumns) {
		w.encodePage(i)
		w.numbers[i].reset()
		w.texts[i].reset()
	}
	pageEncoders.Put(w.enc)
	w.path.reset()
	w.ids = w.ids[:0]
	w.tail = &noTail
	w.rawURLs, w.notes = 0, 0
	w.group.rows += int64(w.rows)
	w.group.raw += int64(raw)
	w.rows = 0
	return nil
}

// levelBytes is the size of the definition levels that appendLevels writes, at most.
func levelBytes(col part.Column, rows, nulls int) int {
	if !part.ColumnDefs[col].Optional {
		return 0
	}
	if nulls == 0 || nulls == rows {
		return len(binary.AppendUvarint(nil, uint64(rows)<<1)) + 1
	}
	groups := (rows + 7) / 8
	return len(binary.AppendUvarint(nil, uint64(groups)<<1|1)) + groups
}

// encodePage encodes the open page of a column into its chunk.
func (w *Writer) encodePage(col part.Column) {
	c, def := &w.cols[col], &part.ColumnDefs[col]
	page := writtenPage{rows: w.rows}
	h := part.PageHeader{Zstd: def.Codec == format.Zstd}
	body := w.encoded[:0]
	room := func(content int) {
		if content >= wholePage {
			body = w.pageRoom(content)
		}
	}
	switch {
	case col == part.ColPathQuery:
		var prefixes int
		w.lengths, prefixes = w.path.appendLengths(w.lengths[:0])
		h.Uncompressed = len(w.lengths) + len(w.path.bytes)
		room(h.Uncompressed)
		body = w.enc.AppendSections(body, w.path.bytes, w.lengths[:prefixes], w.lengths[prefixes:])
		page.setBounds(w.path.bounds(w.url[w.urlPath:]))
	case col == part.ColURLID:
		room(len(w.ids))
		body = append(body, w.ids...)
		h.Uncompressed = len(body)
		page.min, page.max = idBounds(w.ids)
	case col == part.ColDatasetID:
		page.min = appendNumber(nil, int64(w.opt.Dataset), 4)
		page.max = page.min
		h.Uncompressed = 4 * w.rows
		body = w.repeated(body, page.min, w.rows)
	case def.Kind == format.ByteArray:
		t := &w.texts[col]
		page.nulls = t.nulls(w.rows)
		if def.Optional {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) { return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null })
		}
		h.Levels = len(body)
		h.Uncompressed = h.Levels
		if h.Zstd = page.nulls < w.rows; h.Zstd { // some readers refuse to decompress nothing
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
		if def.Optional {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) { return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null })
		}
		h.Levels = len(body)
		h.Uncompressed = h.Levels
		if h.Zstd = page.nulls < w.rows; h.Zstd {
			n, width := w.rows-page.nulls, numberWidth(def.Kind)
			low, high := t.bounds()
			page.min, page.max = appendNumber(nil, low, width), appendNumber(nil, high, width)
			h.Uncompressed += n * width
			switch {
			case low == high:
				body = w.repeated(body, page.min, n)
			case col == part.ColDomainID: // rows of a domain stand together
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
	h.Crc = crc32.ChecksumIEEE(body)
	header := part.AppendPageHeader(w.header[:0], h, w.rows, def.Encoding())
	w.header = header
	page.bytes = len(header) + len(body)
	page.rawBytes = len(header) + h.Uncompressed
	page.sum = codec.UpdateCRC32C(codec.CRC32C(header), body)
	c.pages = append(c.pages, page)
	if n := len(body); n > 0 && len(w.slab) > maxPageHeader && &body[0] == &w.slab[maxPageHeader] {
		if from := maxPageHeader - len(header); n >= wholePage && len(header)+n != chunkBlock {
			copy(w.slab[from:], header)
			c.chunk = append(c.chunk, w.slab[from:maxPageHeader+n:maxPageHeader+n])
			w.slab = w.slab[maxPageHeader+n:]
			return
		}
	} else {
		w.encoded = body
	}
	w.spool(c, header)
	w.spool(c, body)
}

const (
	// wholePage is the size from which a page is not copied, but stays where it was encoded: in a slab of pageSlab bytes.
	wholePage = 16 << 10
	pageSlab  = 1 << 20
	// maxPageHeader is room for what appendPageHeader appends.
	maxPageHeader = 96
)

// pageSlabs are slabs that are free.
var pageSlabs = sync.Pool{New: func() any { return new([pageSlab]byte) }}

// pageRoom returns memory at the end of a slab, behind room for a header, in which content is encoded unless that makes it longer than one would think.
func (w *Writer) pageRoom(content int) []byte {
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

// freeSlabs gives slabs back, whose pages are written.
func (w *Writer) freeSlabs() {
	for _, slab := range w.slabs {
		pageSlabs.Put(slab)
	}
	clear(w.slabs)
	w.slabs, w.slab = w.slabs[:0], nil
}

// repeated appends n times value as it is compressed.
func (w *Writer) repeated(body, value []byte, n int) []byte {
	if n*len(value) <= seekable.MaxRawBlock {
		return appendRepeated(body, value, n)
	}
	w.values = w.values[:0]
	for range n {
		w.values = append(w.values, value...)
	}
	return w.enc.Append(body, nil, w.values)
}

// appendLevels appends definition levels: one repeated run where all rows are alike. Run returns the rows of a run, and whether they have no value.
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

// setBounds shortens and copies the bounds of a page of text.
func (p *writtenPage) setBounds(low, high []byte) {
	p.min, p.max = bytes.Clone(lowerBound(low)), bytes.Clone(upperBound(high))
}

// spool appends b to the column's part of the row group.
func (w *Writer) spool(c *chunkWriter, b []byte) {
	for len(b) > 0 {
		last := len(c.chunk) - 1
		if last < 0 || len(c.chunk[last]) == cap(c.chunk[last]) {
			if n := len(w.chunkPool); n > 0 {
				c.chunk, w.chunkPool = append(c.chunk, w.chunkPool[n-1][:0]), w.chunkPool[:n-1]
			} else {
				c.chunk = append(c.chunk, make([]byte, 0, chunkBlock))
			}
			last++
		}
		n := min(len(b), chunkBlock-len(c.chunk[last]))
		c.chunk[last] = append(c.chunk[last], b[:n]...)
		b = b[n:]
	}
}

// idBounds returns the smallest and the largest of ids as PLAIN, which Parquet takes as signed.
func idBounds(ids []byte) (low, high []byte) {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for ; len(ids) >= 8; ids = ids[8:] {
		v := int64(binary.LittleEndian.Uint64(ids))
		least, most = min(least, v), max(most, v)
	}
	return appendNumber(nil, least, 8), appendNumber(nil, most, 8)
}

// compareBounds orders two values of a column as Parquet does: numbers signed, strings by their bytes.
func compareBounds(kind format.Type, a, b []byte) int {
	switch kind {
	case format.Int32:
		return cmp.Compare(int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b)))
	case format.Int64:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	}
	return bytes.Compare(a, b)
}

// lowerBound shortens a string to at most BoundBytes, at the start of a character.
func lowerBound(v []byte) []byte {
	if len(v) <= part.BoundBytes {
		return v
	}
	n := part.BoundBytes
	for n > 0 && !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n]
}

// upperBound shortens a string to one not below it: the last character that can be raised is, and what follows goes.
// Bounds have to be valid text themselves.
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
		if r++; r == 0xD800 { // surrogates are no characters
			r = 0xE000
		}
		return utf8.AppendRune(bytes.Clone(short), r)
	}
	return v
}
