package lake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// The limits of a part. What is written depends on them and on the rows alone; changing one changes
// the bytes, and with them the names, of all parts written after.
const (
	// PageRows and PageBytes end a page: a reader decodes whole pages, so they bound what one
	// row costs. 64 KiB of path_query decompress in some 35 µs; pages half as long again save 3 % of the part
	// and cost a reader half as much time again. 2,048 rows keep the other columns' pages, which shrink to
	// little, from being all header.
	PageRows  = 2048
	PageBytes = 64 << 10
	// PageColumnBytes ends a page whatever its column: extras and raw_url have no such small limit of
	// their own.
	PageColumnBytes = 1 << 20
	// RowGroupBytes is the most a row group holds before compression. Compressed it is kept in
	// memory, since Parquet wants each column in one piece.
	RowGroupBytes = 128 << 20
	// PartBytes is the most a part holds before compression: one object that a worker writes
	// again after a crash, and one temporary file.
	PartBytes = 512 << 20
	// BoundBytes is how much of a string stands in the column index and the statistics: long enough to
	// tell the paths of one site apart.
	BoundBytes = 256
)

// partLevel is the zstd level of pages. Suffixes of sorted URLs are short and new, so that searching longer for
// matches saves little: the next level takes twice the time for 3 % less of a part of real URLs, 7 % of generated ones.
// All literals are entropy coded, though: most of what is left of a path is plain text.
const partLevel = zstd.SpeedFastest

// PartLimits are the limits a writer keeps; a field left zero is the constant of that name. Only tests
// have a reason to set them.
type PartLimits struct {
	PageRows, PageBytes, PageColumnBytes int
	RowGroupBytes, PartBytes             int64
}

// PartOptions say what a PartWriter writes.
type PartOptions struct {
	// Dataset, Batch and Prefix name the partition: they stand in the parts' keys, and dataset and
	// batch in every row.
	Dataset uint32
	Batch   string
	// Prefix is AnyPrefix or the first one or two hex digits of the domain ids of all rows.
	Prefix string
	// TempDir holds one part at a time while it is written; empty is the system's. Nothing is left there,
	// whatever happens.
	TempDir string
	Limits  PartLimits
}

// WrittenPart is a part that is in the store.
type WrittenPart struct {
	Part Part
	// Blocks are the part's page index, in the order of its rows.
	Blocks []PageIndexBlock
}

// PartWriter writes the parts of one partition of one batch. It is fed hosts and their rows, sorted, and encodes
// pages itself, which takes a third of the time of a general writer, since it is told what neighbours have in common,
// and lets pages end where all columns agree.
//
// A part is named by its content, so it is uploaded when it is complete. One with several row groups is in a
// temporary file until then, and read back and checked with BuildPageIndex first. It is uploaded even if the object exists: the bytes are the
// same, and a garbage collector that goes by age then sees a young object.
//
// Memory: one row group compressed, at most RowGroupBytes and usually a fifth, and one page.
type PartWriter struct {
	ctx   context.Context
	store blob.Store
	opt   PartOptions
	lim   PartLimits
	shift uint // domain_id >> shift == want, for a partition
	want  uint64
	err   error
	parts []WrittenPart

	// The open host, none before the first.
	hosts        int64
	domain, host []byte
	domainID     uint64
	hostRows     int64

	// The row before: the tail that was given, of this host, and its value, whose strings are not valid any more.
	tail           *Tail
	before         Tail
	scheme, extras []byte
	url            []byte
	urlHead        int // length of scheme, host and port in url

	// Where Append is: the key and its rows.
	from     *Key
	at       int64
	keyTails [2]Tail

	cols [NumColumns]columnWriter
	rows int // of the open page
	// constant are encoded pages of columns in which all rows of a part are alike, by their number of rows.
	constant [NumColumns]map[int]constantPage

	group     partGroup
	chunkPool [][]byte
	part      partFile

	// Scratch space of encodePage.
	lengths, encoded, header []byte
}

// columnWriter collects one column.
type columnWriter struct {
	// The open page: numbers as PLAIN, or text; a bit for each row that has a value, the number that have none.
	values  []byte
	text    textPage
	defined []byte
	nulls   int
	// Pages of the open row group.
	chunk []([]byte) // encoded, in blocks
	pages []writtenPage
}

// plain is the size of the open page's values as PLAIN.
func (c *columnWriter) plain() int { return len(c.values) + c.text.plain }

// constantPage is a page of a constant column.
type constantPage struct {
	writtenPage
	encoded []byte // with header
}

// writtenPage is what the metadata needs to know of a page.
type writtenPage struct {
	bytes, rawBytes int // with header
	rows, nulls     int
	sum             uint32 // CRC-32C of header and data
	min, max        []byte // bounds as in the column index; none in a page of nulls
}

// partGroup is the open row group.
type partGroup struct {
	rows int64
	raw  int64 // bytes before compression, without headers
}

// partFile is the open part.
type partFile struct {
	spool  *spool // nil before the first row group
	rows   int64
	raw    int64
	groups []format.RowGroup
	colIdx [][NumColumns]format.ColumnIndex
	offIdx [][NumColumns]format.OffsetIndex
	blocks []PageIndexBlock
}

// chunkBlock is the size of the pieces that a row group is kept in: no reallocation, little waste in thirteen columns.
const chunkBlock = 64 << 10

var pageEncoders = sync.Pool{New: func() any {
	// One page is one EncodeAll: no state carries over, so the pool does not show in the bytes.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(partLevel),
		zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return enc
}}

// NewPartWriter starts a writer. Options that cannot be are reported by the first call.
func NewPartWriter(ctx context.Context, store blob.Store, opt PartOptions) *PartWriter {
	w := &PartWriter{ctx: ctx, store: store, opt: opt, lim: opt.Limits}
	w.lim.PageRows = cmp.Or(w.lim.PageRows, PageRows)
	w.lim.PageBytes = cmp.Or(w.lim.PageBytes, PageBytes)
	w.lim.PageColumnBytes = cmp.Or(w.lim.PageColumnBytes, PageColumnBytes)
	w.lim.RowGroupBytes = cmp.Or(w.lim.RowGroupBytes, RowGroupBytes)
	w.lim.PartBytes = cmp.Or(w.lim.PartBytes, PartBytes)
	w.err = w.start()
	return w
}

// MaxPlainBytes bounds what rows, whose keys take keyBytes, hold as a part before compression: where it is within RowGroupBytes they
// are one row group, which needs no temporary file.
func MaxPlainBytes(batch string, rows, keyBytes int64) int64 {
	// A key has all text and ends five strings with a byte each; its three numbers take a byte at least. Beside the
	// text a row has seven lengths of 4 bytes, two numbers of 4 and four of 8, and the batch's name. Of
	// levels there are at most two bytes a column, where a page is one row.
	const key, row, levels = 5 + 3, 7*4 + 2*4 + 4*8, 5 * 2
	return keyBytes + rows*(row-key+levels+int64(len(batch)))
}

func (w *PartWriter) start() error {
	if w.opt.Dataset == 0 {
		return errors.New("write part: no dataset id")
	}
	if err := CheckBatchName(w.opt.Batch); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	if w.opt.Prefix == AnyPrefix {
		w.shift = 64
		return nil
	}
	n := len(w.opt.Prefix)
	v, err := strconv.ParseUint(w.opt.Prefix, 16, 8)
	if err != nil || n > 2 || strings.ToLower(w.opt.Prefix) != w.opt.Prefix {
		return fmt.Errorf("write part: domain prefix %q: want %q or one or two lower-case hex digits", w.opt.Prefix, AnyPrefix)
	}
	w.shift, w.want = uint(64-4*n), v
	return nil
}

// Host starts the rows of a host. Hosts ascend by domain, then host, and all domains belong to the writer's partition;
// domainID is urlnorm.DomainID(domain). The strings need to be valid during the call only.
func (w *PartWriter) Host(domain, host string, domainID uint64) error {
	if w.err != nil {
		return w.err
	}
	if err := w.openHost(domain, host, domainID); err != nil {
		return w.fail(err)
	}
	return nil
}

// Row adds a row of the open host. Rows of a host ascend by path, then by the fields of tail in their order, and no two are equal in all but the
// raw URL. Shared is the length of the longest common prefix of path and the path of the row before of this host, 0 for the
// first. What path and tail refer to needs to be valid during the call only; a tail at the address of the one before says
// that its value is the same. Text that is not UTF-8, which would make engines refuse the file, is refused.
func (w *PartWriter) Row(path []byte, shared int, tail *Tail) error {
	if w.err != nil {
		return w.err
	}
	if err := w.add(path, shared, tail); err != nil {
		return w.fail(err)
	}
	return nil
}

// Append adds the row at which key stands. Between two calls key has stepped to one other record.
func (w *PartWriter) Append(key *Key) error {
	if w.err != nil {
		return w.err
	}
	if err := w.addKey(key); err != nil {
		return w.fail(err)
	}
	return nil
}

// fail gives up. What it returns names no row's text: URLs can be secrets.
func (w *PartWriter) fail(err error) error {
	err = fmt.Errorf("write parts of batch %s of dataset %d, domain_prefix %s: %w", w.opt.Batch, w.opt.Dataset, w.opt.Prefix, err)
	w.err = err
	w.dropPart()
	return err
}

var (
	errStep = errors.New("key has not stepped to the next record")
	errHost = errors.New("a row before the first host")
	errUTF8 = errors.New("text is not UTF-8")
)

func (w *PartWriter) addKey(k *Key) error {
	changed, shared := k.changed, k.shared
	switch {
	case w.from == nil:
		changed, shared = 0, 0
	case w.from != k || w.at+1 != k.rows:
		return errStep
	}
	w.from, w.at = k, k.rows
	path := k.text(keyPath)
	if changed <= keyHost {
		domain, id := view(k.text(keyDomain)), w.domainID
		if changed == keyDomain {
			id = urlnorm.DomainID(domain)
		}
		if err := w.openHost(domain, view(k.text(keyHost)), id); err != nil {
			return err
		}
		shared = 0
	} else {
		shared = min(shared-k.start(keyPath), len(path))
	}
	tail := &w.keyTails[k.rows&1] // never that of the row before
	*tail = Tail{Scheme: view(k.text(keyScheme)), Port: k.port(), Extras: view(k.text(keyExtras)), RawURL: view(k.rawURL())}
	tail.TS, tail.HasTS = k.number(keyTS)
	tail.Size, tail.HasSize = k.number(keySize)
	return w.add(path, shared, tail)
}

func (w *PartWriter) openHost(domain, host string, domainID uint64) error {
	if domainID>>w.shift != w.want {
		return fmt.Errorf("domain_id %s", urlnorm.FormatID(domainID))
	}
	if w.hosts > 0 {
		if c := cmp.Or(strings.Compare(domain, view(w.domain)), strings.Compare(host, view(w.host))); c <= 0 {
			return errOrder
		}
	}
	if len(domain)+len(host) > MaxKey {
		return fmt.Errorf("%w: domain and host of %d bytes, allowed are %d", ErrRowTooLarge, len(domain)+len(host), MaxKey)
	}
	w.hosts++
	w.hostRows = 0
	w.domain, w.host, w.domainID = append(w.domain[:0], domain...), append(w.host[:0], host...), domainID
	w.tail = nil
	w.url = w.url[:0]
	return nil
}

// follows checks that a row of the open host is after the one before.
func (w *PartWriter) follows(path []byte, shared int, tail *Tail) error {
	last := w.cols[ColPathQuery].text.last
	switch {
	case shared > min(len(path), len(last)):
		return fmt.Errorf("%d bytes shared of %d and %d", shared, len(last), len(path))
	case shared == len(path) && shared == len(last):
		b := &w.before
		if cmp.Or(strings.Compare(tail.Scheme, view(w.scheme)), cmp.Compare(tail.Port, b.Port),
			compareOptional(tail.TS, tail.HasTS, b.TS, b.HasTS), compareOptional(tail.Size, tail.HasSize, b.Size, b.HasSize),
			strings.Compare(tail.Extras, view(w.extras))) <= 0 {
			return errOrder
		}
	case shared < len(last) && (shared == len(path) || path[shared] <= last[shared]):
		return errOrder
	}
	return nil
}

// compareOptional orders numbers, what is absent first.
func compareOptional(a int64, hasA bool, b int64, hasB bool) int {
	if hasA != hasB {
		if hasA {
			return 1
		}
		return -1
	}
	return cmp.Compare(a, b)
}

func (w *PartWriter) add(path []byte, shared int, tail *Tail) error {
	if w.hosts == 0 {
		return errHost
	}
	if n := len(w.domain) + len(w.host) + len(path) + len(tail.Extras) + len(tail.RawURL); n > MaxKey {
		return fmt.Errorf("%w: %d bytes, allowed are %d", ErrRowTooLarge, n, MaxKey)
	}
	first := w.hostRows == 0
	if first {
		shared = unknown
	} else if err := w.follows(path, shared, tail); err != nil {
		return err
	}
	w.hostRows++
	cols, valid := &w.cols, true
	if first {
		valid = cols[ColDomain].text.add(w.domain, unknown)
		valid = cols[ColHost].text.add(w.host, unknown) && valid
	} else {
		cols[ColDomain].text.add(w.domain, len(w.domain))
		cols[ColHost].text.add(w.host, len(w.host))
	}
	if tail != w.tail {
		if first || tail.Port != w.before.Port || tail.Scheme != view(w.scheme) {
			w.scheme = append(w.scheme[:0], tail.Scheme...)
			w.url = append(append(append(w.url[:0], tail.Scheme...), "://"...), w.host...)
			if tail.Port >= 0 {
				w.url = strconv.AppendInt(append(w.url, ':'), int64(tail.Port), 10)
			}
			w.urlHead = len(w.url)
		}
		w.tail, w.before = tail, *tail
		w.extras = append(w.extras[:0], tail.Extras...)
	}
	valid = cols[ColScheme].text.add(w.scheme, unknown) && valid
	valid = cols[ColPathQuery].text.add(path, shared) && valid
	w.url = append(w.url[:w.urlHead], path...)
	cols[ColURLID].int64(urlnorm.URLID(w.url))
	cols[ColDomainID].int64(w.domainID)

	if c := &cols[ColPort]; c.define(w.rows, tail.Port >= 0) {
		c.values = binary.LittleEndian.AppendUint32(c.values, uint32(tail.Port))
	}
	if c := &cols[ColTS]; c.define(w.rows, tail.HasTS) {
		c.int64(uint64(tail.TS))
	}
	if c := &cols[ColSize]; c.define(w.rows, tail.HasSize) {
		c.int64(uint64(tail.Size))
	}
	if c := &cols[ColRawURL]; c.define(w.rows, len(tail.RawURL) > 0) {
		valid = c.text.add([]byte(tail.RawURL), unknown) && valid
	}
	if c := &cols[ColExtras]; c.define(w.rows, len(tail.Extras) > 0) {
		valid = c.text.add([]byte(tail.Extras), unknown) && valid
	}
	if !valid {
		return errUTF8
	}
	w.rows++
	if w.rows >= w.lim.PageRows || cols[ColPathQuery].text.plain >= w.lim.PageBytes ||
		max(cols[ColRawURL].text.plain, cols[ColExtras].text.plain) >= w.lim.PageColumnBytes {
		return w.endPage()
	}
	return nil
}

func (c *columnWriter) int64(v uint64) {
	c.values = binary.LittleEndian.AppendUint64(c.values, v)
}

// define records whether a row of an optional column has a value, and returns that.
func (c *columnWriter) define(row int, has bool) bool {
	if row&7 == 0 {
		c.defined = append(c.defined, 0)
	}
	if !has {
		c.nulls++
		return false
	}
	c.defined[row>>3] |= 1 << (row & 7)
	return true
}

// endPage encodes the open page of every column and adds it to the row group, or to the next.
func (w *PartWriter) endPage() error {
	if w.rows == 0 {
		return nil
	}
	raw := int64(w.rows * (4 + 4 + len(w.opt.Batch))) // of the constant columns
	for i := range w.cols {
		c := &w.cols[i]
		raw += int64(c.plain() + levelBytes(Column(i), w.rows, c.nulls))
	}
	// The page opens a new row group or part rather than make this one too long.
	if w.group.rows > 0 && w.group.raw+raw > w.lim.RowGroupBytes {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if full := w.part.raw+w.group.raw+raw > w.lim.PartBytes; w.part.rows+w.group.rows > 0 && (full || len(w.part.groups) == maxRowGroups) {
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
	}
	enc := pageEncoders.Get().(*zstd.Encoder)
	defer pageEncoders.Put(enc)
	for i := range Column(NumColumns) {
		if i == ColDatasetID || i == ColBatch {
			w.constantPage(enc, i)
		} else {
			w.encodePage(enc, i)
		}
	}
	w.group.rows += int64(w.rows)
	w.group.raw += raw
	w.rows = 0
	return nil
}

// levelBytes is the size of the definition levels that appendLevelRuns writes.
func levelBytes(col Column, rows, nulls int) int {
	if !columnDefs[col].optional {
		return 0
	}
	if nulls == 0 || nulls == rows {
		return len(binary.AppendUvarint(nil, uint64(rows)<<1)) + 1
	}
	groups := (rows + 7) / 8
	return len(binary.AppendUvarint(nil, uint64(groups)<<1|1)) + groups
}

// appendLevelRuns appends definition levels as one run, repeated where all rows are alike, else bit-packed.
func appendLevelRuns(dst []byte, rows, nulls int, defined []byte) []byte {
	if nulls == 0 || nulls == rows {
		dst = binary.AppendUvarint(dst, uint64(rows)<<1)
		if nulls == 0 {
			return append(dst, 1)
		}
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(defined))<<1|1)
	return append(dst, defined...)
}

// constantPage adds a page of a column in which all rows are alike, which depends on their number alone.
func (w *PartWriter) constantPage(enc *zstd.Encoder, col Column) {
	c := &w.cols[col]
	page, ok := w.constant[col][w.rows]
	if ok {
		c.pages = append(c.pages, page.writtenPage)
		w.spool(c, page.encoded)
		return
	}
	for range w.rows {
		if col == ColDatasetID {
			c.values = binary.LittleEndian.AppendUint32(c.values, w.opt.Dataset)
		} else {
			c.text.add([]byte(w.opt.Batch), unknown)
		}
	}
	header, body := w.encodePage(enc, col)
	if w.constant[col] == nil {
		w.constant[col] = map[int]constantPage{}
	}
	w.constant[col][w.rows] = constantPage{c.pages[len(c.pages)-1], slices.Concat(header, body)}
}

// encodePage encodes the open page of a column into its chunk. What it returns is valid until the next page.
func (w *PartWriter) encodePage(enc *zstd.Encoder, col Column) (header, body []byte) {
	c, def := &w.cols[col], &columnDefs[col]
	page := writtenPage{rows: w.rows, nulls: c.nulls}

	body = w.encoded[:0]
	if def.optional {
		body = appendLevelRuns(body, w.rows, c.nulls, c.defined)
	}
	levels := len(body)
	h := pageHeader{nulls: c.nulls, levels: levels}
	h.zstd = def.codec == format.Zstd && c.nulls < w.rows // some readers refuse to decompress nothing
	if def.kind == format.ByteArray {
		if c.nulls < w.rows {
			low, high := c.text.bounds()
			page.min, page.max = bytes.Clone(lowerBound(low)), bytes.Clone(upperBound(high))
		}
		w.lengths = c.text.appendLengths(w.lengths[:0])
		h.uncompressed = levels + len(w.lengths) + len(c.text.bytes)
		if h.zstd {
			body = appendTextFrame(enc, body, w.lengths, c.text.bytes)
		} else {
			body = append(body, w.lengths...)
		}
	} else {
		page.min, page.max = numberBounds(def.kind, c.values)
		h.uncompressed = levels + len(c.values)
		if h.zstd {
			body = enc.EncodeAll(c.values, body)
		} else {
			body = append(body, c.values...)
		}
	}
	w.encoded = body
	h.compressed = len(body)
	h.crc = crc32.ChecksumIEEE(body)
	header = appendPageHeader(w.header[:0], h, w.rows, def.encoding())
	w.header = header
	page.bytes = len(header) + len(body)
	page.rawBytes = len(header) + h.uncompressed
	page.sum = codec.UpdateCRC32C(codec.CRC32C(header), body)
	c.pages = append(c.pages, page)
	w.spool(c, header)
	w.spool(c, body)
	c.text.reset()
	c.values, c.defined, c.nulls = c.values[:0], c.defined[:0], 0
	return header, body
}

// spool appends b to the column's part of the row group.
func (w *PartWriter) spool(c *columnWriter, b []byte) {
	for len(b) > 0 {
		last := len(c.chunk) - 1
		if last < 0 || len(c.chunk[last]) == chunkBlock {
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

// appendPageHeader encodes a PageHeader of a data page v2 of rows rows in Thrift's compact protocol.
func appendPageHeader(dst []byte, h pageHeader, rows, encoding int) []byte {
	num := func(v int) { dst = binary.AppendVarint(append(dst, 1<<4|thriftI32), int64(v)) }
	num(3) // DATA_PAGE_V2
	num(h.uncompressed)
	num(h.compressed)
	num(int(int32(h.crc)))
	dst = append(dst, 4<<4|thriftStruct) // data_page_header_v2
	num(rows)                            // values
	num(h.nulls)
	num(rows)
	num(encoding)
	num(h.levels)
	num(0) // no repetition levels
	if h.zstd {
		dst = append(dst, 1<<4|thriftTrue)
	} else {
		dst = append(dst, 1<<4|thriftFalse)
	}
	return append(dst, 0, 0)
}

// numberBounds returns the smallest and the largest of PLAIN numbers; nil where there are none. They do not keep values.
func numberBounds(kind format.Type, values []byte) (low, high []byte) {
	if len(values) == 0 {
		return nil, nil
	}
	width, number := 4, func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) }
	if kind == format.Int64 {
		width, number = 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }
	}
	least, most := number(values), number(values)
	low, high = values[:width], values[:width]
	for ; len(values) > 0; values = values[width:] {
		v := number(values)
		if v < least {
			least, low = v, values[:width]
		}
		if v > most {
			most, high = v, values[:width]
		}
	}
	return bytes.Clone(low), bytes.Clone(high)
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
	if len(v) <= BoundBytes {
		return v
	}
	n := BoundBytes
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

// endGroup adds the open row group to the part.
func (w *PartWriter) endGroup() error {
	if w.group.rows == 0 {
		return nil
	}
	f := &w.part
	g := len(f.groups)
	if g == 0 {
		f.spool = newSpool()
		if err := w.write([]byte(parquetMagic)); err != nil {
			return err
		}
	}
	pages := w.cols[0].pages
	firstBlock := len(f.blocks)
	var row int64
	for from := 0; from < len(pages); from += PageIndexPages {
		b := newPageIndexBlock(g, row, min(PageIndexPages, len(pages)-from))
		for i := range b.Pages() {
			b.starts[i+1] = b.starts[i] + int64(pages[from+i].rows)
		}
		row += b.Rows()
		f.blocks = append(f.blocks, *b)
	}
	group := format.RowGroup{
		NumRows:    w.group.rows,
		FileOffset: f.spool.size,
		Ordinal:    int16(g),
	}
	for _, c := range sortOrder {
		group.SortingColumns = append(group.SortingColumns, format.SortingColumn{ColumnIdx: int32(c), NullsFirst: true})
	}
	var colIdx [NumColumns]format.ColumnIndex
	var offIdx [NumColumns]format.OffsetIndex
	for i := range w.cols {
		c := &w.cols[i]
		meta := w.describeChunk(Column(i), &colIdx[i], &offIdx[i])
		group.Columns = append(group.Columns, format.ColumnChunk{MetaData: meta})
		group.TotalByteSize += meta.TotalUncompressedSize
		group.TotalCompressedSize += meta.TotalCompressedSize
		off := f.spool.size
		for p, page := range c.pages {
			run := &f.blocks[firstBlock+p/PageIndexPages].cols[i]
			run.offs[p%PageIndexPages] = off
			off += int64(page.bytes)
			run.offs[p%PageIndexPages+1] = off
			run.sums[p%PageIndexPages] = page.sum
		}
		if err := w.write(c.chunk...); err != nil {
			return err
		}
		c.chunk, c.pages = c.chunk[:0], c.pages[:0]
	}
	f.groups = append(f.groups, group)
	f.colIdx = append(f.colIdx, colIdx)
	f.offIdx = append(f.offIdx, offIdx)
	f.rows += w.group.rows
	f.raw += w.group.raw
	w.group = partGroup{}
	return nil
}

// describeChunk is the metadata of one column of the open row group, which will start at the end of the file.
func (w *PartWriter) describeChunk(col Column, idx *format.ColumnIndex, off *format.OffsetIndex) format.ColumnMetaData {
	c, def := &w.cols[col], &columnDefs[col]
	meta := format.ColumnMetaData{
		Type:           def.kind,
		Encoding:       thrift.Slice[format.Encoding]{format.Encoding(def.encoding())},
		PathInSchema:   thrift.Slice[string]{def.name},
		Codec:          def.codec,
		NumValues:      w.group.rows,
		DataPageOffset: w.part.spool.size,
		EncodingStats: thrift.Slice[format.PageEncodingStats]{
			{PageType: format.DataPageV2, Encoding: format.Encoding(def.encoding()), Count: int32(len(c.pages))}},
	}
	if def.optional {
		meta.Encoding = append(meta.Encoding, format.RLE) // of the definition levels
	}
	var lo, hi []byte
	var row int64
	for _, p := range c.pages {
		off.PageLocations = append(off.PageLocations, format.PageLocation{
			Offset:             w.part.spool.size + meta.TotalCompressedSize,
			CompressedPageSize: int32(p.bytes),
			FirstRowIndex:      row,
		})
		row += int64(p.rows)
		meta.TotalCompressedSize += int64(p.bytes)
		meta.TotalUncompressedSize += int64(p.rawBytes)
		meta.Statistics.NullCount += int64(p.nulls)

		empty := p.nulls == p.rows
		idx.NullPages = append(idx.NullPages, empty)
		idx.NullCounts = append(idx.NullCounts, int64(p.nulls))
		idx.MinValues = append(idx.MinValues, p.min)
		idx.MaxValues = append(idx.MaxValues, p.max)
		if empty {
			continue
		}
		if lo == nil || compareBounds(def.kind, p.min, lo) < 0 {
			lo = p.min
		}
		if hi == nil || compareBounds(def.kind, p.max, hi) > 0 {
			hi = p.max
		}
	}
	meta.Statistics.MinValue, meta.Statistics.MaxValue = lo, hi
	idx.BoundaryOrder = boundaryOrder(def.kind, idx)
	return meta
}

// boundaryOrder is whether the bounds of a column's pages ascend or descend.
func boundaryOrder(kind format.Type, idx *format.ColumnIndex) format.BoundaryOrder {
	up, down, last := true, true, -1
	for i, empty := range idx.NullPages {
		if empty {
			continue
		}
		if last >= 0 {
			lo := compareBounds(kind, idx.MinValues[last], idx.MinValues[i])
			hi := compareBounds(kind, idx.MaxValues[last], idx.MaxValues[i])
			up = up && lo <= 0 && hi <= 0
			down = down && lo >= 0 && hi >= 0
		}
		last = i
	}
	switch {
	case up:
		return format.Ascending
	case down:
		return format.Descending
	}
	return format.Unordered
}

// write adds blocks, which it takes over, to the part.
func (w *PartWriter) write(blocks ...[]byte) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	free, err := w.part.spool.write(blocks...)
	w.recycle(free)
	return err
}

// recycle keeps blocks for chunks to come.
func (w *PartWriter) recycle(blocks [][]byte) {
	for _, b := range blocks {
		if cap(b) == chunkBlock {
			w.chunkPool = append(w.chunkPool, b)
		}
	}
}

// dropPart gives up the open part, if there is one.
func (w *PartWriter) dropPart() {
	if w.part.spool != nil {
		w.recycle(w.part.spool.close())
	}
	w.part = partFile{}
}

// endPart ends the open row group, finishes the part's file, checks and uploads it.
func (w *PartWriter) endPart() error {
	if err := w.endGroup(); err != nil {
		return err
	}
	f := &w.part
	if f.spool == nil {
		return nil
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := marshalThrift(f.colIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.ColumnIndexOffset, chunk.ColumnIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	for g := range f.groups {
		for c := range f.groups[g].Columns {
			b := marshalThrift(f.offIdx[g][c])
			chunk := &f.groups[g].Columns[c]
			chunk.OffsetIndexOffset, chunk.OffsetIndexLength = f.spool.size, int32(len(b))
			if err := w.write(b); err != nil {
				return err
			}
		}
	}
	meta := format.FileMetaData{
		Version:   2,
		Schema:    schemaElements(),
		NumRows:   f.rows,
		RowGroups: f.groups,
		CreatedBy: CreatedBy,
	}
	for range NumColumns {
		meta.ColumnOrders = append(meta.ColumnOrders, format.ColumnOrder{Value: &format.TypeDefinedOrder{}})
	}
	footer := marshalThrift(meta)
	footer = codec.AppendU32(footer, uint32(len(footer)))
	if err := w.write(append(footer, parquetMagic...)); err != nil {
		return err
	}
	if err := f.spool.check(f.blocks); err != nil {
		return err
	}
	if err := w.upload(); err != nil {
		return err
	}
	w.dropPart()
	return nil
}

// upload copies the part to its key.
func (w *PartWriter) upload() error {
	f := &w.part
	digest := FormatDigest(f.spool.xxh3.Sum128())
	key := PartKey(w.opt.Dataset, w.opt.Prefix, w.opt.Batch, digest, len(w.parts))
	out, err := w.store.Create(w.ctx, key)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := f.spool.copyTo(out); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	if _, err := out.Finish(); err != nil {
		return fmt.Errorf("upload %s: %w", key, err)
	}
	w.parts = append(w.parts, WrittenPart{
		Part: Part{
			Object:       Object{Key: key, Bytes: f.spool.size, XXH64: fmt.Sprintf("%016x", f.spool.xxh64.Sum64())},
			DomainPrefix: w.opt.Prefix,
			Rows:         f.rows,
			RowGroups:    len(f.groups),
		},
		Blocks: f.blocks,
	})
	return nil
}

// Finish writes what is left and returns the parts, none if there were no rows. The writer is of no use after it.
func (w *PartWriter) Finish() ([]WrittenPart, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.err = errors.New("write part: the writer has ended")
	err := w.endPage()
	if err == nil {
		err = w.endPart()
	}
	if err != nil {
		return nil, w.fail(err)
	}
	return w.parts, nil
}

// Abort gives up. Parts that are complete stay in the store: nothing refers to them, and garbage
// collection removes them. After Finish it does nothing.
func (w *PartWriter) Abort() {
	w.dropPart()
	if w.err == nil {
		w.err = errors.New("write part: the writer was aborted")
	}
}
