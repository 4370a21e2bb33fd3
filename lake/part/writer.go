package part

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/lake/zstdtext"
)

// Options say what a Writer writes.
type Options struct {
	// Dataset, Batch and Prefix are in the keys of the parts. Dataset and Batch are also in every
	// row, unless Batch names a union (lake.UnionName): then each row has the batch of its suffix.
	Dataset uint32
	Batch   string
	// Prefix is lake.AnyPrefix or the first one or two hex digits of the domain ids of all rows.
	Prefix string
	// TempDir is the folder for the temporary file of the open part; "" is the system's. No file is
	// left there, however the process ends.
	TempDir string
	Limits  Limits
	// Domains, if not nil, receives the domains of the parts while they are written.
	Domains DomainSink
}

// Writer writes the parts of one partition of one batch. Its caller passes all rows in order to
// Rows and then calls Finish, or End and Finish. Whatever happened before, Abort releases
// everything.
//
// A part with one row group is kept in memory until it is stored. One with several is in a
// temporary file, which is read back and verified with BuildPageIndex before it is stored. A
// part is stored even if its key exists: the bytes are the same.
//
// A Writer needs the memory of one compressed row group, which is at most RowGroupBytes and usually
// a fifth, and of one page. It leaves some of it to the next Writer. A Writer is not safe for
// concurrent use.
type Writer struct {
	ctx   context.Context
	store blob.Store
	opt   Options
	lim   Limits
	// union tells that rows have batches of their own.
	union bool
	// A domain_id belongs to the partition if domain_id >> shift == want.
	shift uint
	want  uint64
	err   error // sticks
	parts []Written

	// The open host. Its domain and name are the last values of their columns.
	hasHost  bool
	domainID uint64
	hostRows int64 // its rows so far

	// The suffix of the previous row. The pointer is that of the caller, or &noSuffix if the row is
	// of an earlier page or call; the other fields are copies.
	suffix         *row.Suffix
	scheme, extras []byte
	batch          []byte // "" unless the parts are of a union
	port           int32
	ts, size       int64
	hasTS, hasSize bool
	bare           bool // has no timestamp, size, extras, raw URL or batch
	suffixText     int  // bytes of scheme, extras and raw URL
	rawURLPlain    int  // size of the raw URL as PLAIN
	extrasPlain    int  // size of the extras as PLAIN

	// url ends with the path of the previous row, which starts at pathAt. If hasOrigin, the bytes
	// before it, from originAt on, are scheme, host and port of the row. While lastElsewhere, the
	// path of the previous row is lastPath, in the memory of the caller, and the one in url is
	// older.
	url              []byte
	originAt, pathAt int
	hasOrigin        bool
	lastPath         []byte
	lastElsewhere    bool

	pathRows pathRows // argument of addPaths

	// The open page.
	rows                     int
	rawURLBytes, extrasBytes int // as PLAIN
	domainStart              int // row of the page at which the last domain starts
	*pageBuffers

	// The last row of the page before the open one.
	lastRow struct {
		domain string
		key    PageKey
	}

	// The open row group.
	cols     [NumColumns]chunkWriter
	pageKeys []PageKey // of its pages
	group    rowGroup
	slabs    []*[pageSlab]byte // slabs with pages that are in memory
	slab     []byte            // the free rest of the last slab

	// The open part.
	file partFile

	enc *zstdtext.Encoder // during endPage
}

// pageBuffers is memory that one Writer leaves to the next.
type pageBuffers struct {
	// The values of the open page. ids has the url_id of all rows as PLAIN but that of the last
	// row, which is added when the next row or the end of the page comes: reading a URL right after
	// it was written in other pieces would stall the processor.
	path    textPage
	ids     []byte
	numbers [NumColumns]numberRuns
	texts   [NumColumns]textRuns
	domains DomainRuns // only with Options.Domains

	chunkPool [][]byte // empty blocks for chunks

	// Scratch space of encodePage.
	lengths, encoded, header []byte
	values                   []byte
	counts                   []int32
}

// pageBufferPool holds idle buffers. What is written does not depend on their content.
var pageBufferPool = sync.Pool{New: func() any { return new(pageBuffers) }}

// reset begins the first page of a Writer. Last values and bounds become nil and not just empty,
// because the metadata of an empty string differs between the two.
func (b *pageBuffers) reset() {
	b.ids = b.ids[:0]
	b.path.reset()
	b.path.textBounds = textBounds{}
	b.domains.reset()
	for i := range NumColumns {
		b.numbers[i].reset()
		b.texts[i].reset()
		b.texts[i].last, b.texts[i].textBounds = nil, textBounds{}
	}
}

// NewWriter starts a Writer. The first call of another method reports invalid options.
func NewWriter(ctx context.Context, store blob.Store, opt Options) *Writer {
	w := &Writer{ctx: ctx, store: store, opt: opt, lim: opt.Limits}
	w.lim.PageRows = cmp.Or(w.lim.PageRows, PageRows)
	w.lim.PageBytes = cmp.Or(w.lim.PageBytes, PageBytes)
	w.lim.PageColumnBytes = cmp.Or(w.lim.PageColumnBytes, PageColumnBytes)
	w.lim.RowGroupBytes = cmp.Or(w.lim.RowGroupBytes, RowGroupBytes)
	w.lim.PartBytes = cmp.Or(w.lim.PartBytes, PartBytes)
	w.suffix = &noSuffix
	w.pageBuffers = pageBufferPool.Get().(*pageBuffers)
	w.pageBuffers.reset()
	w.err = w.checkOptions()
	return w
}

// checkOptions checks the options and sets the range of domain ids.
func (w *Writer) checkOptions() error {
	if w.opt.Dataset == 0 {
		return errors.New("write part: no dataset id")
	}
	w.union = lake.IsUnionName(w.opt.Batch)
	if err := lake.CheckBatchName(w.opt.Batch); err != nil && !w.union {
		return fmt.Errorf("write part: %w", err)
	}
	if w.opt.Prefix == lake.AnyPrefix {
		w.shift = 64
		return nil
	}
	n := len(w.opt.Prefix)
	v, err := strconv.ParseUint(w.opt.Prefix, 16, 8)
	if err != nil || n > 2 || strings.ToLower(w.opt.Prefix) != w.opt.Prefix {
		return fmt.Errorf("write part: domain prefix %q: want %q or one or two lower-case hex digits",
			w.opt.Prefix, lake.AnyPrefix)
	}
	w.shift, w.want = uint(64-4*n), v
	return nil
}

// MaxPlainBytes bounds the size before compression of a part with rows rows, whose keys have
// keyBytes bytes in total. If that is at most RowGroupBytes, the rows are one row group and need no
// temporary file.
func MaxPlainBytes(batch string, rows, keyBytes int64) int64 {
	// A key has all text, a byte behind each of five strings, and at least a byte for each of three
	// numbers. Besides the text, a row has seven lengths of 4 bytes, two numbers of 4 and four of
	// 8, and the batch's name. Definition levels of the five optional columns take at most two
	// bytes each, if a page is one row.
	const key, row, levels = 5 + 3, 7*4 + 2*4 + 4*8, 5 * 2
	return keyBytes + rows*(row-key+levels+int64(len(batch)))
}

var (
	errRowCount = errors.New("the hosts have another number of rows than there are")
	errUTF8     = errors.New("text is not UTF-8")
	errBatch    = errors.New("rows of a union have a batch each, and others have none")
)

// noSuffix is the address of the suffix of no row.
var noSuffix row.Suffix

// isUsual reports whether s is the address of a usual suffix. Rows of all calls share these.
func isUsual(s *row.Suffix) bool {
	return s == &row.UsualSuffixes[row.HTTPSSuffix] || s == &row.UsualSuffixes[row.HTTPSuffix]
}

// Rows adds rows. It is the method of row.Sink, which says how they are ordered. It fails if a
// domain is not in the Writer's partition or a text is not UTF-8, which engines would reject the
// file for. Text is checked when its page ends. After an error the Writer can only be aborted.
func (w *Writer) Rows(hosts []row.SortedHost, rows []row.SortedRow) (records int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if !isUsual(w.suffix) {
		w.suffix = &noSuffix // another suffix may have its address in this call
	}
	for i := range hosts {
		h := &hosts[i]
		if uint(h.Rows-1) >= uint(len(rows)) { // none, or more than there are
			return records, w.fail(errRowCount)
		}
		if i > 0 || !w.isOpen(h) {
			if err := w.openHost(h); err != nil {
				return records, w.fail(err)
			}
		}
		for left := rows[:h.Rows]; len(left) > 0; {
			done, added, err := w.addUsualRows(left)
			if done == 0 && err == nil {
				done = 1
				added, err = w.addRow(left[0].Path, left[0].Suffix)
			}
			if err != nil {
				return records, w.fail(err)
			}
			records += added
			left = left[done:]
		}
		rows = rows[h.Rows:]
	}
	if len(rows) > 0 {
		return records, w.fail(errRowCount)
	}
	w.copyLastPath()
	return records, nil
}

// fail ends the Writer with an error. The error never contains text of a row, because URLs can hold
// secrets.
func (w *Writer) fail(err error) error {
	err = fmt.Errorf("write parts of batch %s of dataset %d, domain_prefix %s: %w",
		w.opt.Batch, w.opt.Dataset, w.opt.Prefix, err)
	w.err = err
	w.dropPart()
	return err
}

// isOpen reports whether h is the open host.
func (w *Writer) isOpen(h *row.SortedHost) bool {
	return w.hasHost && h.DomainID == w.domainID &&
		h.Host == row.View(w.texts[ColHost].last) && h.Domain == row.View(w.texts[ColDomain].last)
}

// openHost opens a host that has rows. If a page is open, its rows begin there.
func (w *Writer) openHost(h *row.SortedHost) error {
	if h.DomainID>>w.shift != w.want {
		return fmt.Errorf("domain_id %s is of another partition", urlnorm.FormatID(h.DomainID))
	}
	domains, hosts := &w.texts[ColDomain], &w.texts[ColHost]
	domain, host := rawBytes(h.Domain), rawBytes(h.Host)
	d, n := codec.CommonPrefix(domains.last, domain), codec.CommonPrefix(hosts.last, host)
	newDomain, newHost := d < max(len(domain), len(domains.last)), n < max(len(host), len(hosts.last))
	hostAscends := n < len(host) && (n == len(hosts.last) || host[n] > hosts.last[n])
	switch {
	case !w.hasHost:
		w.hasHost = true
	case newDomain:
		if d == len(domain) || d < len(domains.last) && domain[d] < domains.last[d] {
			return row.ErrOrder
		}
	case !hostAscends || h.DomainID != w.domainID:
		return row.ErrOrder
	}
	w.domainID, w.hostRows, w.hasOrigin = h.DomainID, 0, false
	if w.rows == 0 { // setSuffix of the page's first row sets the values
		domains.last, hosts.last = append(domains.last[:d], domain[d:]...), append(hosts.last[:n], host[n:]...)
		return nil
	}
	if newDomain {
		domains.follow(w.rows, d, domain)
		w.startDomain(domain)
	}
	if newHost {
		if !hostAscends {
			hosts.descend(hosts.last, host)
		}
		hosts.follow(w.rows, n, host)
	}
	return nil
}

// startDomain sets the domain of the page's rows from the next one on.
func (w *Writer) startDomain(domain []byte) {
	w.numbers[ColDomainID].set(w.rows, int64(w.domainID))
	if w.opt.Domains != nil {
		w.endDomain()
		w.domains.append(nil, domain, 0)
	}
}

// endDomain counts the rows of the page's last domain.
func (w *Writer) endDomain() {
	if w.domains.Len() > 0 {
		w.domains.extend(int64(w.rows - w.domainStart))
	}
	w.domainStart = w.rows
}

// addRow adds a row of the open host, unless it is the same record as the previous one.
func (w *Writer) addRow(path []byte, suffix *row.Suffix) (records int, err error) {
	w.copyLastPath()
	w.addLastID()
	last := w.url[w.pathAt:]
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
		if suffix == w.suffix {
			return 0, nil
		}
		if c := w.compareSuffix(suffix); c < 0 {
			return 0, row.ErrOrder
		} else if c == 0 {
			return 0, nil
		}
	case shared == len(path) || path[shared] < last[shared]:
		return 0, row.ErrOrder
	}
	if suffix != w.suffix {
		if (suffix.Batch != "") != w.union {
			return 0, errBatch
		}
		w.setSuffix(suffix)
	}
	n := len(w.texts[ColDomain].last) + len(w.texts[ColHost].last) + w.suffixText + len(path)
	if n > row.MaxKey {
		return 0, fmt.Errorf("%w: %d bytes, allowed are %d", row.ErrRowTooLarge, n, row.MaxKey)
	}
	w.setOrigin()
	w.hostRows++
	w.url = append(w.url[:w.pathAt+shared], path[shared:]...)
	if w.rows > 0 {
		w.path.add(path, shared)
	} else {
		w.path.open(row.View(path))
		w.path.add(path, 0)
	}
	w.rawURLBytes += w.rawURLPlain
	w.extrasBytes += w.extrasPlain
	w.rows++
	if w.rows >= w.lim.PageRows || w.path.plain >= w.lim.PageBytes ||
		max(w.rawURLBytes, w.extrasBytes) >= w.lim.PageColumnBytes {
		return 1, w.endPage()
	}
	return 1, nil
}

// copyLastPath copies the path of the previous row into url, if it is not there.
func (w *Writer) copyLastPath() {
	if w.lastElsewhere {
		w.url = append(w.url[:w.pathAt], w.lastPath...)
		w.lastPath, w.lastElsewhere = nil, false
	}
}

// addLastID adds the url_id of the previous row, if it is missing. The row's URL is in url.
func (w *Writer) addLastID() {
	if len(w.ids) < 8*w.rows {
		w.ids = binary.LittleEndian.AppendUint64(w.ids, urlnorm.URLID(w.url[w.originAt:]))
	}
}

// compareSuffix compares a suffix with that of the previous row. Raw URLs do not count, because
// they do not tell records apart.
func (w *Writer) compareSuffix(s *row.Suffix) int {
	return cmp.Or(strings.Compare(s.Scheme, row.View(w.scheme)), cmp.Compare(s.Port, w.port),
		compareOptional(s.TS, s.HasTS, w.ts, w.hasTS), compareOptional(s.Size, s.HasSize, w.size, w.hasSize),
		strings.Compare(s.Extras, row.View(w.extras)), strings.Compare(s.Batch, row.View(w.batch)))
}

// compareOptional compares two numbers. No number is less than any.
func compareOptional(a int64, hasA bool, b int64, hasB bool) int {
	if hasA != hasB {
		if hasA {
			return 1
		}
		return -1
	}
	return cmp.Compare(a, b)
}

// setSuffix sets the suffix of the page's rows from the next one on. For the first row of a page it
// also sets domain and host, so that a page has a value of every column from row 0 on.
func (w *Writer) setSuffix(s *row.Suffix) {
	first := w.rows == 0
	newOrigin := s.Port != w.port || s.Scheme != row.View(w.scheme)
	if newOrigin {
		w.scheme, w.port = append(w.scheme[:0], s.Scheme...), s.Port
		w.hasOrigin = false
	}
	if first {
		w.texts[ColDomain].set(0, row.View(w.texts[ColDomain].last))
		w.texts[ColHost].set(0, row.View(w.texts[ColHost].last))
		w.startDomain(w.texts[ColDomain].last)
	}
	if newOrigin || first {
		w.texts[ColScheme].set(w.rows, row.View(w.scheme))
		w.numbers[ColPort].setOptional(w.rows, int64(s.Port), s.Port >= 0)
	}
	w.suffix = s
	w.suffixText = len(s.Scheme) + len(s.Extras) + len(s.RawURL)
	bare := !s.HasTS && !s.HasSize && s.Extras == "" && s.RawURL == "" && !w.union
	if bare && w.bare && !first {
		return
	}
	w.bare = bare
	w.numbers[ColTS].setOptional(w.rows, s.TS, s.HasTS)
	w.numbers[ColSize].setOptional(w.rows, s.Size, s.HasSize)
	w.rawURLPlain = w.texts[ColRawURL].setOptional(w.rows, s.RawURL)
	w.extrasPlain = w.texts[ColExtras].setOptional(w.rows, s.Extras)
	w.extras = append(w.extras[:0], s.Extras...)
	if w.union {
		w.texts[ColBatch].set(w.rows, s.Batch)
		w.batch = append(w.batch[:0], s.Batch...)
	}
	w.ts, w.hasTS, w.size, w.hasSize = s.TS, s.HasTS, s.Size, s.HasSize
}

// setOrigin puts scheme, host and port in front of the path in url, if they are not there. The path
// moves only if there is too little space before it.
func (w *Writer) setOrigin() {
	if w.hasOrigin {
		return
	}
	w.hasOrigin = true
	host := w.texts[ColHost].last
	const sep, colonPort = "://", 1 + 10 // digits of an int32
	if need := len(w.scheme) + len(sep) + len(host) + colonPort; need > w.pathAt {
		path := w.url[w.pathAt:]
		w.pathAt = 2 * need
		w.url = append(make([]byte, w.pathAt), path...)
	}
	at := w.pathAt
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
	w.originAt = at
}

// errEnded is the error of calls after End.
var errEnded = errors.New("write part: the writer has ended")

// End ends the rows. Only storing the last part is left to Finish, which another goroutine may do.
// Options.Domains is not called after End.
func (w *Writer) End() error {
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

// Finish ends the rows if End was not called, stores the last part and returns all parts. Without
// rows there are none. The Writer cannot be used afterwards.
func (w *Writer) Finish() ([]Written, error) {
	if !errors.Is(w.err, errEnded) {
		if err := w.End(); err != nil {
			return nil, err
		}
	}
	if w.pageBuffers == nil {
		return nil, w.err // finished before
	}
	if err := w.storePart(); err != nil {
		return nil, w.fail(err)
	}
	w.release()
	return w.parts, nil
}

// Abort ends the Writer and drops the open part. Complete parts stay in the store, where nothing
// refers to them. After Finish, Abort does nothing.
func (w *Writer) Abort() {
	w.dropPart()
	w.release()
	if w.err == nil {
		w.err = errors.New("write part: the writer was aborted")
	}
}

// release leaves the Writer's buffers to the next one.
func (w *Writer) release() {
	if w.pageBuffers != nil {
		w.chunkPool = nil // these blocks together are as large as a row group
		pageBufferPool.Put(w.pageBuffers)
		w.pageBuffers = nil
	}
}
