package partwriter

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/part"
	"github.com/urlake/urlake/lake/row"
	"github.com/urlake/urlake/lake/urlnorm"
	"github.com/urlake/urlake/lake/zstdtext"
)

// PartOptions say what a PartWriter writes.
type Options struct {
	// Dataset, Batch and Prefix name the partition: they stand in the parts' keys, and dataset and
	// batch in every row.
	Dataset uint32
	Batch   string
	// Prefix is AnyPrefix or the first one or two hex digits of the domain ids of all rows.
	Prefix string
	// TempDir holds one part at a time while it is written; empty is the system's. Nothing is left there,
	// whatever happens.
	TempDir string
	Limits  part.Limits
	// Domains is told the domains of the parts as they are written, where it is not nil.
	Domains part.DomainSink
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
type Writer struct {
	ctx   context.Context
	store blob.Store
	opt   Options
	lim   part.Limits
	shift uint // domain_id >> shift == want, for a partition
	want  uint64
	err   error
	parts []part.Written

	// The open host, whose domain and name are the last of their columns.
	any      bool // there is one
	domainID uint64
	hostRows int64 // rows of it so far

	// The tail of the row before, as it was given in this call, if the row is of this page, and its value.
	tail           *row.Suffix
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

	cols [part.NumColumns]chunkWriter

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
	numbers [part.NumColumns]numberRuns
	texts   [part.NumColumns]textRuns
	domains part.DomainRuns // where somebody wants to know

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
	b.domains.Begin()
	for i := range part.NumColumns {
		b.numbers[i].reset()
		b.texts[i].reset()
		b.texts[i].last, b.texts[i].textBounds = nil, textBounds{}
	}
}

// chunkBlock is the size of the pieces that a row group is kept in: no reallocation, little waste in thirteen columns.
const chunkBlock = 64 << 10

// pageEncoders are scratch memory: what they write depends on the page alone.
var pageEncoders = sync.Pool{New: func() any { return new(zstdtext.Encoder) }}

// NewPartWriter starts a writer. Options that cannot be are reported by the first call.
func New(ctx context.Context, store blob.Store, opt Options) *Writer {
	w := &Writer{ctx: ctx, store: store, opt: opt, lim: opt.Limits}
	w.lim.PageRows = cmp.Or(w.lim.PageRows, part.PageRows)
	w.lim.PageBytes = cmp.Or(w.lim.PageBytes, part.PageBytes)
	w.lim.PageColumnBytes = cmp.Or(w.lim.PageColumnBytes, part.PageColumnBytes)
	w.lim.RowGroupBytes = cmp.Or(w.lim.RowGroupBytes, part.RowGroupBytes)
	w.lim.PartBytes = cmp.Or(w.lim.PartBytes, part.PartBytes)
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

func (w *Writer) start() error {
	if w.opt.Dataset == 0 {
		return errors.New("write part: no dataset id")
	}
	if err := lake.CheckBatchName(w.opt.Batch); err != nil {
		return fmt.Errorf("write part: %w", err)
	}
	if w.opt.Prefix == lake.AnyPrefix {
		w.shift = 64
		return nil
	}
	n := len(w.opt.Prefix)
	v, err := strconv.ParseUint(w.opt.Prefix, 16, 8)
	if err != nil || n > 2 || strings.ToLower(w.opt.Prefix) != w.opt.Prefix {
		return fmt.Errorf("write part: domain prefix %q: want %q or one or two lower-case hex digits", w.opt.Prefix, lake.AnyPrefix)
	}
	w.shift, w.want = uint(64-4*n), v
	return nil
}

// Rows adds rows. All domains belong to the writer's partition. Text that is not UTF-8, which would make engines refuse the file, is refused.
func (w *Writer) Rows(hosts []row.SortedHost, rows []row.SortedRow) (records int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.tail != &row.UsualSuffixes[row.HTTPSSuffix] && w.tail != &row.UsualSuffixes[row.HTTPSuffix] {
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
				added, err = w.add(of[0].Path, of[0].Suffix)
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
func (w *Writer) isOpen(h *row.SortedHost) bool {
	return w.any && h.Host == row.View(w.texts[part.ColHost].last) && h.Domain == row.View(w.texts[part.ColDomain].last) && h.DomainID == w.domainID
}

// fail gives up. What it returns names no row's text: URLs can be secrets.
func (w *Writer) fail(err error) error {
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
func (w *Writer) openHost(h *row.SortedHost) error {
	if w.followHost(h) {
		return nil
	}
	if h.DomainID>>w.shift != w.want {
		return fmt.Errorf("domain_id %s", urlnorm.FormatID(h.DomainID))
	}
	domains, hosts := &w.texts[part.ColDomain], &w.texts[part.ColHost]
	domain, host := rawBytes(h.Domain), rawBytes(h.Host)
	d, n := codec.CommonPrefix(domains.last, domain), codec.CommonPrefix(hosts.last, host)
	newDomain, newHost := d < max(len(domain), len(domains.last)), n < max(len(host), len(hosts.last))
	up := n < len(host) && (n == len(hosts.last) || host[n] > hosts.last[n])
	switch {
	case !w.any:
		w.any = true
	case newDomain:
		if d == len(domain) || d < len(domains.last) && domain[d] < domains.last[d] {
			return row.ErrOrder
		}
	case !up || h.DomainID != w.domainID:
		return row.ErrOrder
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
func (w *Writer) startDomain(domain []byte) {
	w.numbers[part.ColDomainID].set(w.rows, int64(w.domainID))
	if w.opt.Domains != nil {
		w.domains.Start(w.rows, domain)
	}
}

// noTail is the address of no row's tail.
var noTail row.Suffix

// add adds a row of the open host, unless it is the same record as the one before.
func (w *Writer) add(path []byte, tail *row.Suffix) (records int, err error) {
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
			return 0, row.ErrOrder
		} else if c == 0 {
			return 0, nil
		}
	case shared == len(path) || path[shared] < last[shared]:
		return 0, row.ErrOrder
	}
	if tail != w.tail {
		w.setTail(tail)
	}
	if n := len(w.texts[part.ColDomain].last) + len(w.texts[part.ColHost].last) + w.tailText + len(path); n > row.MaxKey {
		return 0, fmt.Errorf("%w: %d bytes, allowed are %d", row.ErrRowTooLarge, n, row.MaxKey)
	}
	w.setHead()
	w.hostRows++
	if w.rows > 0 {
		w.path.begin(len(path), shared)
		w.path.high = w.path.high || !isASCII(path[shared:])
		w.url, w.path.bytes = appendTwice(w.url[:w.urlPath+shared], w.path.bytes, path[shared:])
	} else {
		w.url = append(w.url[:w.urlPath+shared], path[shared:]...)
		w.path.open(row.View(path))
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
func (w *Writer) settle() {
	if w.away {
		w.url = append(w.url[:w.urlPath], w.last...)
		w.last, w.away = nil, false
	}
}

// addID adds the url_id of the row before, if it is not there.
func (w *Writer) addID() {
	if len(w.ids) == 8*w.rows {
		return
	}
	if cap(w.url)-len(w.url) < urlIDRoom {
		w.url = slices.Grow(w.url, urlIDRoom)
	}
	w.ids = binary.LittleEndian.AppendUint64(w.ids, urlID(w.url, w.urlHead))
}

// compareTail orders a tail and that of the row before, which has the same path, but for raw URLs.
func (w *Writer) compareTail(tail *row.Suffix) int {
	return cmp.Or(strings.Compare(tail.Scheme, row.View(w.scheme)), cmp.Compare(tail.Port, w.port),
		compareOptional(tail.TS, tail.HasTS, w.ts, w.hasTS), compareOptional(tail.Size, tail.HasSize, w.size, w.hasSize),
		strings.Compare(tail.Extras, row.View(w.extras)))
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
func (w *Writer) setTail(tail *row.Suffix) {
	thisRow := w.rows
	newHead := tail.Port != w.port || tail.Scheme != row.View(w.scheme)
	if newHead {
		w.scheme, w.port = append(w.scheme[:0], tail.Scheme...), tail.Port
		w.headed = false
	}
	if thisRow == 0 {
		w.texts[part.ColDomain].set(0, row.View(w.texts[part.ColDomain].last))
		w.texts[part.ColHost].set(0, row.View(w.texts[part.ColHost].last))
		w.startDomain(w.texts[part.ColDomain].last)
	}
	if newHead || thisRow == 0 {
		w.texts[part.ColScheme].set(thisRow, row.View(w.scheme))
		w.numbers[part.ColPort].setOptional(thisRow, int64(tail.Port), tail.Port >= 0)
	}
	w.tail = tail
	w.tailText = len(tail.Scheme) + len(tail.Extras) + len(tail.RawURL)
	bare := !tail.HasTS && !tail.HasSize && tail.Extras == "" && tail.RawURL == ""
	if bare && w.bare && thisRow > 0 {
		return
	}
	w.bare = bare
	w.numbers[part.ColTS].setOptional(thisRow, tail.TS, tail.HasTS)
	w.numbers[part.ColSize].setOptional(thisRow, tail.Size, tail.HasSize)
	w.rawPlain = w.texts[part.ColRawURL].setOptional(thisRow, tail.RawURL)
	w.extrasPlain = w.texts[part.ColExtras].setOptional(thisRow, tail.Extras)
	w.extras = append(w.extras[:0], tail.Extras...)
	w.ts, w.hasTS, w.size, w.hasSize = tail.TS, tail.HasTS, tail.Size, tail.HasSize
}

// setHead puts scheme, host and port before the path in w.url, where they are not there. The path stays where it is if there is room.
func (w *Writer) setHead() {
	if w.headed {
		return
	}
	w.headed = true
	host := w.texts[part.ColHost].last
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

// errEnded is the error of what follows the end of a writer.
var errEnded = errors.New("write part: the writer has ended")

// End ends the rows: all that is left to Finish is to store the last part. Options.Domains is told no more after it, so that
// Finish may be called by another goroutine while this one goes on with another writer.
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

// Finish ends the rows where End has not, stores what is left and returns the parts, none if there were no rows. The writer is of no use after it.
func (w *Writer) Finish() ([]part.Written, error) {
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
func (w *Writer) release() {
	if w.pageBuffers != nil {
		w.chunkPool = nil // together they are as large as a part
		pageBufferPool.Put(w.pageBuffers)
		w.pageBuffers = nil
	}
}

// Abort gives up. Parts that are complete stay in the store: nothing refers to them, and garbage
// collection removes them. After Finish it does nothing.
func (w *Writer) Abort() {
	w.dropPart()
	w.release()
	if w.err == nil {
		w.err = errors.New("write part: the writer was aborted")
	}
}
