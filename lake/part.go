package lake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	parquetthrift "github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/urlake/urlake/internal/thrift"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/lake/zstdtext"
)

// The limits of a part. What is written depends on them and on the rows alone; changing one changes
// the bytes, and with them the names, of all parts written after.
const (
	// PageRows and PageBytes end a page: a reader decodes whole pages, so they bound what one
	// row costs. 256 KiB of path_query decompress in some 150 µs. Pages of a quarter take 4 % more bytes for paths, and four times as many have to be written.
	// 8,192 rows keep the other columns' pages, which shrink to little, from being all header.
	PageRows  = 8192
	PageBytes = 256 << 10
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
	// Domains is told the domains of the parts as they are written, where it is not nil.
	Domains DomainSink
}

// WrittenPart is a part that is in the store, or is about to be put there (DomainSink).
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
// Memory: one row group compressed, at most RowGroupBytes and usually a fifth, and one page; some of it is kept for the next writer.
type PartWriter struct {
	ctx   context.Context
	store blob.Store
	opt   PartOptions
	lim   PartLimits
	shift uint // domain_id >> shift == want, for a partition
	want  uint64
	err   error
	parts []WrittenPart

	// The open host, whose domain and name are the last of their columns.
	any      bool // there is one
	domainID uint64
	hostRows int64 // rows of it so far

	// The tail of the row before, as it was given in this call, if the row is of this page, and its value.
	tail           *Tail
	port           int32
	ts, size       int64
	hasTS, hasSize bool
	bare           bool // neither, nor extras or a raw URL
	scheme, extras []byte
	tailText       int // bytes of scheme, extras and raw URL
	rawPlain       int // of raw URL and extras as PLAIN
	extrasPlain    int

	// Url ends with the path of the row before, unless that is Away, and the path is last; before it is what else the URL of the row has where its
	// url_id is not there yet.
	url              []byte
	urlHead, urlPath int    // where in url the URL of the row before starts, and where its path does; before it is urlIDRoom
	headed           bool   // url has scheme and host of the next row
	last             []byte // as it was given in this call
	away             bool
	batch            pathRows
	pairs            namePairs

	rows           int // of the open page
	rawURLs, notes int // size of its raw URLs and extras as PLAIN
	*pageBuffers

	cols [NumColumns]chunkWriter

	group partGroup
	slabs []*[pageSlab]byte // which have pages that are in memory
	slab  []byte            // what is left of the last
	part  partFile

	enc *zstdtext.Encoder
}

// pageBuffers are memory that one writer leaves to the next.
type pageBuffers struct {
	// The open page.
	path    textPage
	ids     []byte // url_id as PLAIN, but the last row's, which is added later: a core that reads what it has just written in other pieces waits
	numbers [NumColumns]numberRuns
	texts   [NumColumns]textRuns
	domains DomainRuns // where somebody wants to know

	// Names are the last domain and the one before, in turn, where followHost wrote them, and hosts in the same way. The last one's turn is nameTurn.
	names    [2][2][64]byte
	nameTurn [2]uint8

	chunkPool [][]byte

	// Scratch space of encodePage.
	lengths, encoded, header []byte
	values                   []byte
	counts                   []int32
}

// pageBufferPool has what nobody uses. What is written does not depend on it.
var pageBufferPool = sync.Pool{New: func() any { return new(pageBuffers) }}

// reset starts the first page of a writer. What bounds are copied from goes: metadata tell an empty string that is nil from another.
func (b *pageBuffers) reset() {
	b.ids = b.ids[:0]
	b.path.reset()
	b.path.textBounds = textBounds{}
	b.domains.begin()
	for i := range NumColumns {
		b.numbers[i].reset()
		b.texts[i].reset()
		b.texts[i].last, b.texts[i].textBounds = nil, textBounds{}
	}
}

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

// pageEncoders are scratch memory: what they write depends on the page alone.
var pageEncoders = sync.Pool{New: func() any { return new(zstdtext.Encoder) }}

// NewPartWriter starts a writer. Options that cannot be are reported by the first call.
func NewPartWriter(ctx context.Context, store blob.Store, opt PartOptions) *PartWriter {
	w := &PartWriter{ctx: ctx, store: store, opt: opt, lim: opt.Limits}
	w.lim.PageRows = cmp.Or(w.lim.PageRows, PageRows)
	w.lim.PageBytes = cmp.Or(w.lim.PageBytes, PageBytes)
	w.lim.PageColumnBytes = cmp.Or(w.lim.PageColumnBytes, PageColumnBytes)
	w.lim.RowGroupBytes = cmp.Or(w.lim.RowGroupBytes, RowGroupBytes)
	w.lim.PartBytes = cmp.Or(w.lim.PartBytes, PartBytes)
	w.tail = &noTail
	w.pageBuffers = pageBufferPool.Get().(*pageBuffers)
	w.pageBuffers.reset()
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

// Rows adds rows. All domains belong to the writer's partition. Text that is not UTF-8, which would make engines refuse the file, is refused.
func (w *PartWriter) Rows(hosts []SortedHost, rows []SortedRow) (records int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.tail != &usualTails[httpsTail] && w.tail != &usualTails[httpTail] {
		w.tail = &noTail // another may be at the address of one of the call before
	}
	askEnds(rows)
	for i := range hosts {
		h := &hosts[i]
		if uint(h.Rows-1) >= uint(len(rows)) {
			return records, w.fail(errHost)
		}
		if i > 0 || !w.isOpen(h) {
			if err := w.openHost(h); err != nil {
				return records, w.fail(err)
			}
		}
		for of := rows[:h.Rows]; len(of) > 0; {
			looked, added, err := w.addUsual(of)
			if looked == 0 && err == nil {
				looked = 1
				added, err = w.add(of[0].Path, of[0].Tail)
			}
			if err != nil {
				return records, w.fail(err)
			}
			records += added
			of = of[looked:]
		}
		rows = rows[h.Rows:]
	}
	if len(rows) > 0 {
		return records, w.fail(errHost)
	}
	w.settle()
	return records, nil
}

// isOpen reports whether a host is the open one.
func (w *PartWriter) isOpen(h *SortedHost) bool {
	return w.any && h.Host == view(w.texts[ColHost].last) && h.Domain == view(w.texts[ColDomain].last) && h.DomainID == w.domainID
}

// fail gives up. What it returns names no row's text: URLs can be secrets.
func (w *PartWriter) fail(err error) error {
	err = fmt.Errorf("write parts of batch %s of dataset %d, domain_prefix %s: %w", w.opt.Batch, w.opt.Dataset, w.opt.Prefix, err)
	w.err = err
	w.dropPart()
	return err
}

var (
	errHost = errors.New("other rows than the hosts have")
	errUTF8 = errors.New("text is not UTF-8")
)

// openHost starts a host that has rows. Where a page is open, they begin in it.
func (w *PartWriter) openHost(h *SortedHost) error {
	if w.followHost(h) {
		return nil
	}
	if h.DomainID>>w.shift != w.want {
		return fmt.Errorf("domain_id %s", urlnorm.FormatID(h.DomainID))
	}
	domains, hosts := &w.texts[ColDomain], &w.texts[ColHost]
	domain, host := rawBytes(h.Domain), rawBytes(h.Host)
	d, n := codec.CommonPrefix(domains.last, domain), codec.CommonPrefix(hosts.last, host)
	newDomain, newHost := d < max(len(domain), len(domains.last)), n < max(len(host), len(hosts.last))
	up := n < len(host) && (n == len(hosts.last) || host[n] > hosts.last[n])
	switch {
	case !w.any:
		w.any = true
	case newDomain:
		if d == len(domain) || d < len(domains.last) && domain[d] < domains.last[d] {
			return errOrder
		}
	case !up || h.DomainID != w.domainID:
		return errOrder
	}
	w.domainID, w.hostRows, w.headed = h.DomainID, 0, false
	if w.rows == 0 {
		domains.last, hosts.last = append(domains.last[:d], domain[d:]...), append(hosts.last[:n], host[n:]...)
		return nil
	}
	if newDomain {
		domains.follow(w.rows, d, domain)
		w.startDomain(domain)
	}
	if newHost {
		if !up {
			hosts.descend(hosts.last, host)
		}
		hosts.follow(w.rows, n, host)
	}
	return nil
}

// startDomain says that the rows of the page from the next on have the open domain.
func (w *PartWriter) startDomain(domain []byte) {
	w.numbers[ColDomainID].set(w.rows, int64(w.domainID))
	if w.opt.Domains != nil {
		w.domains.start(w.rows, domain)
	}
}

// noTail is the address of no row's tail.
var noTail Tail

// add adds a row of the open host, unless it is the same record as the one before.
func (w *PartWriter) add(path []byte, tail *Tail) (records int, err error) {
	w.settle()
	w.addID()
	last := w.url[w.urlPath:]
	shared := codec.CommonPrefix(last, path)
	switch {
	case w.hostRows == 0:
		if w.rows > 0 && shared < len(last) && (shared == len(path) || path[shared] < last[shared]) {
			w.path.descend(last, path)
		}
	case shared == len(last):
		if shared < len(path) {
			break
		}
		if tail == w.tail {
			return 0, nil
		}
		if c := w.compareTail(tail); c < 0 {
			return 0, errOrder
		} else if c == 0 {
			return 0, nil
		}
	case shared == len(path) || path[shared] < last[shared]:
		return 0, errOrder
	}
	if tail != w.tail {
		w.setTail(tail)
	}
	if n := len(w.texts[ColDomain].last) + len(w.texts[ColHost].last) + w.tailText + len(path); n > MaxKey {
		return 0, fmt.Errorf("%w: %d bytes, allowed are %d", ErrRowTooLarge, n, MaxKey)
	}
	w.setHead()
	w.hostRows++
	if w.rows > 0 {
		w.path.begin(len(path), shared)
		w.path.high = w.path.high || !isASCII(path[shared:])
		w.url, w.path.bytes = appendTwice(w.url[:w.urlPath+shared], w.path.bytes, path[shared:])
	} else {
		w.url = append(w.url[:w.urlPath+shared], path[shared:]...)
		w.path.open(view(path))
		w.path.add(path, 0)
	}
	w.rawURLs += w.rawPlain
	w.notes += w.extrasPlain
	w.rows++
	if w.rows >= w.lim.PageRows || w.path.plain >= w.lim.PageBytes || max(w.rawURLs, w.notes) >= w.lim.PageColumnBytes {
		return 1, w.endPage()
	}
	return 1, nil
}

// settle copies the path of the row before, where it is elsewhere.
func (w *PartWriter) settle() {
	if w.away {
		w.url = append(w.url[:w.urlPath], w.last...)
		w.last, w.away = nil, false
	}
}

// addID adds the url_id of the row before, if it is not there.
func (w *PartWriter) addID() {
	if len(w.ids) == 8*w.rows {
		return
	}
	if cap(w.url)-len(w.url) < urlIDRoom {
		w.url = slices.Grow(w.url, urlIDRoom)
	}
	w.ids = binary.LittleEndian.AppendUint64(w.ids, urlID(w.url, w.urlHead))
}

// compareTail orders a tail and that of the row before, which has the same path, but for raw URLs.
func (w *PartWriter) compareTail(tail *Tail) int {
	return cmp.Or(strings.Compare(tail.Scheme, view(w.scheme)), cmp.Compare(tail.Port, w.port),
		compareOptional(tail.TS, tail.HasTS, w.ts, w.hasTS), compareOptional(tail.Size, tail.HasSize, w.size, w.hasSize),
		strings.Compare(tail.Extras, view(w.extras)))
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

// setTail notes what the rows from the next one on have besides their paths.
func (w *PartWriter) setTail(tail *Tail) {
	row := w.rows
	newHead := tail.Port != w.port || tail.Scheme != view(w.scheme)
	if newHead {
		w.scheme, w.port = append(w.scheme[:0], tail.Scheme...), tail.Port
		w.headed = false
	}
	if row == 0 {
		w.texts[ColDomain].set(0, view(w.texts[ColDomain].last))
		w.texts[ColHost].set(0, view(w.texts[ColHost].last))
		w.startDomain(w.texts[ColDomain].last)
	}
	if newHead || row == 0 {
		w.texts[ColScheme].set(row, view(w.scheme))
		w.numbers[ColPort].setOptional(row, int64(tail.Port), tail.Port >= 0)
	}
	w.tail = tail
	w.tailText = len(tail.Scheme) + len(tail.Extras) + len(tail.RawURL)
	bare := !tail.HasTS && !tail.HasSize && tail.Extras == "" && tail.RawURL == ""
	if bare && w.bare && row > 0 {
		return
	}
	w.bare = bare
	w.numbers[ColTS].setOptional(row, tail.TS, tail.HasTS)
	w.numbers[ColSize].setOptional(row, tail.Size, tail.HasSize)
	w.rawPlain = w.texts[ColRawURL].setOptional(row, tail.RawURL)
	w.extrasPlain = w.texts[ColExtras].setOptional(row, tail.Extras)
	w.extras = append(w.extras[:0], tail.Extras...)
	w.ts, w.hasTS, w.size, w.hasSize = tail.TS, tail.HasTS, tail.Size, tail.HasSize
}

// setHead puts scheme, host and port before the path in w.url, where they are not there. The path stays where it is if there is room.
func (w *PartWriter) setHead() {
	if w.headed {
		return
	}
	w.headed = true
	host := w.texts[ColHost].last
	const sep, colonPort = "://", 1 + 10
	if need := urlIDRoom + len(w.scheme) + len(sep) + len(host) + colonPort; need > w.urlPath {
		path := w.url[w.urlPath:]
		w.urlPath = 2 * need
		w.url = append(make([]byte, w.urlPath), path...)
	}
	at := w.urlPath
	if w.port >= 0 {
		var digits [colonPort]byte
		number := strconv.AppendInt(append(digits[:0], ':'), int64(w.port), 10)
		at -= len(number)
		copy(w.url[at:], number)
	}
	at -= len(host)
	copy(w.url[at:], host)
	at -= len(sep)
	copy(w.url[at:], sep)
	at -= len(w.scheme)
	copy(w.url[at:], w.scheme)
	w.urlHead = at
}

// endPage encodes the open page of every column and adds it to the row group, or to the next.
func (w *PartWriter) endPage() error {
	if w.rows == 0 {
		return nil
	}
	if !w.path.valid() {
		return errUTF8
	}
	w.addID()
	raw := w.rows*(4+4+len(w.opt.Batch)) + w.path.plain + len(w.ids)
	w.texts[ColBatch].set(0, w.opt.Batch)
	for i := range Column(NumColumns) {
		def := &columnDefs[i]
		nulls := 0
		switch {
		case i == ColPathQuery || i == ColURLID || i == ColBatch || i == ColDatasetID:
			continue
		case def.kind == format.ByteArray:
			if !w.texts[i].valid() {
				return errUTF8
			}
			var plain int
			plain, nulls = w.texts[i].measure(w.rows)
			raw += plain
		default:
			nulls = w.numbers[i].nulls(w.rows)
			raw += (w.rows - nulls) * numberWidth(def.kind)
		}
		raw += levelBytes(i, w.rows, nulls)
	}
	// The page opens a new row group or part rather than make this one too long.
	if w.group.rows > 0 && w.group.raw+int64(raw) > w.lim.RowGroupBytes {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if full := w.part.raw+w.group.raw+int64(raw) > w.lim.PartBytes; w.part.rows+w.group.rows > 0 && (full || len(w.part.groups) == maxRowGroups) {
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
		w.domains.end(w.rows)
		w.domains.measure(&w.numbers[ColTS], &w.numbers[ColSize], w.rows)
		if err := w.opt.Domains.Domains(&w.domains); err != nil {
			return err
		}
		w.domains.begin()
	}
	w.enc = pageEncoders.Get().(*zstdtext.Encoder)
	for i := range Column(NumColumns) {
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

// encodePage encodes the open page of a column into its chunk.
func (w *PartWriter) encodePage(col Column) {
	c, def := &w.cols[col], &columnDefs[col]
	page := writtenPage{rows: w.rows}
	h := pageHeader{zstd: def.codec == format.Zstd}
	body := w.encoded[:0]
	room := func(content int) {
		if content >= wholePage {
			body = w.pageRoom(content)
		}
	}
	switch {
	case col == ColPathQuery:
		var prefixes int
		w.lengths, prefixes = w.path.appendLengths(w.lengths[:0])
		h.uncompressed = len(w.lengths) + len(w.path.bytes)
		room(h.uncompressed)
		body = w.enc.AppendSections(body, w.path.bytes, w.lengths[:prefixes], w.lengths[prefixes:])
		page.setBounds(w.path.bounds(w.url[w.urlPath:]))
	case col == ColURLID:
		room(len(w.ids))
		body = append(body, w.ids...)
		h.uncompressed = len(body)
		page.min, page.max = idBounds(w.ids)
	case col == ColDatasetID:
		page.min = appendNumber(nil, int64(w.opt.Dataset), 4)
		page.max = page.min
		h.uncompressed = 4 * w.rows
		body = w.repeated(body, page.min, w.rows)
	case def.kind == format.ByteArray:
		t := &w.texts[col]
		page.nulls = t.nulls(w.rows)
		if def.optional {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) { return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null })
		}
		h.levels = len(body)
		h.uncompressed = h.levels
		if h.zstd = page.nulls < w.rows; h.zstd { // some readers refuse to decompress nothing
			w.lengths = t.appendLengths(w.lengths[:0], w.rows)
			h.uncompressed += len(w.lengths) + len(t.bytes)
			body = w.enc.Append(body, w.lengths, t.bytes)
			page.setBounds(t.bounds(t.last))
		} else {
			body = appendLengths(appendLengths(body, nil), nil)
			h.uncompressed = len(body)
		}
	default:
		t := &w.numbers[col]
		page.nulls = t.nulls(w.rows)
		if def.optional {
			body = w.appendLevels(body, page.nulls, len(t.runs), func(i int) (int, bool) { return t.end(i, w.rows) - int(t.runs[i].row), t.runs[i].null })
		}
		h.levels = len(body)
		h.uncompressed = h.levels
		if h.zstd = page.nulls < w.rows; h.zstd {
			n, width := w.rows-page.nulls, numberWidth(def.kind)
			low, high := t.bounds()
			page.min, page.max = appendNumber(nil, low, width), appendNumber(nil, high, width)
			h.uncompressed += n * width
			switch {
			case low == high:
				body = w.repeated(body, page.min, n)
			case col == ColDomainID: // rows of a domain stand together
				w.values, w.counts = t.appendRuns(w.values[:0], w.counts[:0], w.rows, width)
				body = w.enc.AppendRuns(body, w.values, width, w.counts)
			default:
				w.values = t.appendPlain(w.values[:0], w.rows, width)
				body = w.enc.Append(body, nil, w.values)
			}
		}
	}
	h.nulls = page.nulls
	h.compressed = len(body)
	h.crc = crc32.ChecksumIEEE(body)
	header := appendPageHeader(w.header[:0], h, w.rows, def.encoding())
	w.header = header
	page.bytes = len(header) + len(body)
	page.rawBytes = len(header) + h.uncompressed
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
func (w *PartWriter) pageRoom(content int) []byte {
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
func (w *PartWriter) freeSlabs() {
	for _, slab := range w.slabs {
		pageSlabs.Put(slab)
	}
	clear(w.slabs)
	w.slabs, w.slab = w.slabs[:0], nil
}

// repeated appends n times value as it is compressed.
func (w *PartWriter) repeated(body, value []byte, n int) []byte {
	if n*len(value) <= codec.MaxRawBlock {
		return appendRepeated(body, value, n)
	}
	w.values = w.values[:0]
	for range n {
		w.values = append(w.values, value...)
	}
	return w.enc.Append(body, nil, w.values)
}

// appendLevels appends definition levels: one repeated run where all rows are alike. Run returns the rows of a run, and whether they have no value.
func (w *PartWriter) appendLevels(dst []byte, nulls, runs int, run func(i int) (rows int, null bool)) []byte {
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
func (w *PartWriter) spool(c *chunkWriter, b []byte) {
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

// appendPageHeader encodes a PageHeader of a data page v2 of rows rows in Thrift's compact protocol.
func appendPageHeader(dst []byte, h pageHeader, rows, encoding int) []byte {
	num := func(v int) { dst = binary.AppendVarint(append(dst, 1<<4|thrift.I32), int64(v)) }
	num(3) // DATA_PAGE_V2
	num(h.uncompressed)
	num(h.compressed)
	num(int(int32(h.crc)))
	dst = append(dst, 4<<4|thrift.Struct) // data_page_header_v2
	num(rows)                             // values
	num(h.nulls)
	num(rows)
	num(encoding)
	num(h.levels)
	num(0) // no repetition levels
	if h.zstd {
		dst = append(dst, 1<<4|thrift.True)
	} else {
		dst = append(dst, 1<<4|thrift.False)
	}
	return append(dst, 0, 0)
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
	if f.spool.file != nil {
		w.freeSlabs()
	}
	return nil
}

// describeChunk is the metadata of one column of the open row group, which will start at the end of the file.
func (w *PartWriter) describeChunk(col Column, idx *format.ColumnIndex, off *format.OffsetIndex) format.ColumnMetaData {
	c, def := &w.cols[col], &columnDefs[col]
	meta := format.ColumnMetaData{
		Type:           def.kind,
		Encoding:       parquetthrift.Slice[format.Encoding]{format.Encoding(def.encoding())},
		PathInSchema:   parquetthrift.Slice[string]{def.name},
		Codec:          def.codec,
		NumValues:      w.group.rows,
		DataPageOffset: w.part.spool.size,
		EncodingStats: parquetthrift.Slice[format.PageEncodingStats]{
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
	w.freeSlabs()
}

// endPart ends the open part and stores it.
func (w *PartWriter) endPart() error {
	if err := w.closePart(); err != nil {
		return err
	}
	return w.storePart()
}

// closePart ends the open row group and the part's file, with which its key is known.
func (w *PartWriter) closePart() error {
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
	w.parts = append(w.parts, WrittenPart{
		Part: Part{
			Object: Object{
				Key:   PartKey(w.opt.Dataset, w.opt.Prefix, w.opt.Batch, FormatDigest(f.spool.xxh3.Sum128()), len(w.parts)),
				Bytes: f.spool.size,
				XXH64: fmt.Sprintf("%016x", f.spool.xxh64.Sum64()),
			},
			DomainPrefix: w.opt.Prefix,
			Rows:         f.rows,
			RowGroups:    len(f.groups),
		},
		Blocks: f.blocks,
	})
	if w.opt.Domains == nil {
		return nil
	}
	return w.opt.Domains.EndPart(&w.parts[len(w.parts)-1])
}

// storePart checks the file of the part that was closed last, if it is not stored yet, and copies it to its key.
func (w *PartWriter) storePart() error {
	f := &w.part
	if f.spool == nil {
		return nil
	}
	if err := f.spool.check(f.blocks); err != nil {
		return err
	}
	key := w.parts[len(w.parts)-1].Part.Key
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
	w.dropPart()
	return nil
}

// errEnded is the error of what follows the end of a writer.
var errEnded = errors.New("write part: the writer has ended")

// End ends the rows: all that is left to Finish is to store the last part. Options.Domains is told no more after it, so that
// Finish may be called by another goroutine while this one goes on with another writer.
func (w *PartWriter) End() error {
	if w.err != nil {
		return w.err
	}
	err := w.endPage()
	if err == nil {
		err = w.closePart()
	}
	if err != nil {
		return w.fail(err)
	}
	w.err = errEnded
	return nil
}

// Finish ends the rows where End has not, stores what is left and returns the parts, none if there were no rows. The writer is of no use after it.
func (w *PartWriter) Finish() ([]WrittenPart, error) {
	if w.err != errEnded {
		if err := w.End(); err != nil {
			return nil, err
		}
	}
	if w.pageBuffers == nil {
		return nil, w.err // for the second time
	}
	if err := w.storePart(); err != nil {
		return nil, w.fail(err)
	}
	w.release()
	return w.parts, nil
}

// release leaves the writer's memory to others.
func (w *PartWriter) release() {
	if w.pageBuffers != nil {
		w.chunkPool = nil // together they are as large as a part
		pageBufferPool.Put(w.pageBuffers)
		w.pageBuffers = nil
	}
}

// Abort gives up. Parts that are complete stay in the store: nothing refers to them, and garbage
// collection removes them. After Finish it does nothing.
func (w *PartWriter) Abort() {
	w.dropPart()
	w.release()
	if w.err == nil {
		w.err = errors.New("write part: the writer was aborted")
	}
}
