package shard

// Outcomes of fetches are in two files: the records one after the other, and for each an element of
// fixed width, by which a time is found by binary search. docs/formats/frontier.md describes them.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync"

	"github.com/urlake/urlake/lake/codec"
)

// visit is the outcome of a fetch.
type visit struct {
	// Time is when the frontier got the outcome, or what was said of a visit that was imported, in
	// milliseconds since 1970. The times of the index never decrease: that of an imported visit is
	// at least that of the one before.
	Time int64
	// Queue and URL are those of the entry.
	Queue, URL string
	// Status is the HTTP status, 0 if there was none; then Error says why.
	Status uint16
	Error  string
	// Content says where the client has stored what it got, in its own words.
	Content string
	// Redirect is the URL to which the server redirected, or empty.
	Redirect string
	Depth    uint32
}

func (v *visit) append(b []byte) []byte {
	b = codec.AppendUvarint(b, uint64(v.Time))
	b = codec.AppendUvarint(b, uint64(v.Status))
	b = codec.AppendUvarint(b, uint64(v.Depth))
	for _, s := range [...]string{v.Queue, v.URL, v.Error, v.Content, v.Redirect} {
		b = codec.AppendString(b, s)
	}
	return b
}

// AppendOutcome appends what a visit has besides its queue, URL and depth.
func (v *visit) AppendOutcome(b []byte) []byte {
	b = codec.AppendUvarint(b, uint64(v.Time))
	b = codec.AppendUvarint(b, uint64(v.Status))
	for _, s := range [...]string{v.Error, v.Content, v.Redirect} {
		b = codec.AppendString(b, s)
	}
	return b
}

// parseOutcome returns what AppendOutcome has written.
func parseOutcome(d *codec.Decoder) (visit, error) {
	v := visit{Time: int64(d.Uint(1 << 62)), Status: uint16(d.Uint(1<<16 - 1))}
	for _, s := range [...]*string{&v.Error, &v.Content, &v.Redirect} {
		*s = d.String()
	}
	return v, d.Err()
}

func parseVisit(b []byte, file string) (visit, error) {
	d := codec.NewDecoder(b, file, "visit")
	v := visit{Time: int64(d.Uint(1 << 62)), Status: uint16(d.Uint(1<<16 - 1)), Depth: uint32(d.Uint(1<<32 - 1))}
	for _, s := range [...]*string{&v.Queue, &v.URL, &v.Error, &v.Content, &v.Redirect} {
		*s = d.String()
	}
	return v, d.Close()
}

// log has the visits of a shard. Who calls Add, Last and Count holds a lock of its own, and need
// not for what reads and writes files, which can wait for the disk.
type log struct {
	texts, index *os.File
	// writing is held while pending is written; then comes mu, for what follows.
	writing sync.Mutex
	mu      sync.Mutex
	// textSize and count are those of the files once pending is written.
	textSize     int64
	count        int64
	last         int64 // the time of the last visit
	pendingTexts []byte
	pendingIndex []byte
	// wroteTexts and wroteIndex are what was written last. What comes after the next write goes to
	// their memory. Writing guards them.
	wroteTexts, wroteIndex []byte
	failed                 error // of writing pending
}

// errPosition means that there are fewer visits than those after which a reader wants to go on.
var errPosition = errors.New("there are fewer visits than the reader has had")

const (
	// name and indexName are those of the files in the folder of a shard.
	name      = "visits"
	indexName = "visits.index"
	magic     = "UFVS"
	// version is that of both files.
	version = 1
	// An element of the index: time, offset, length, checksum of the record, checksum of the
	// element.
	indexElement = 8 + 8 + 4 + 4 + 4
	headerSize   = len(magic) + 4
	// writeLeast is how many bytes of visits FlushMuch writes at least.
	writeLeast = 64 << 10
)

// openVisitLog opens the files in a folder as they were at a checkpoint, with so many visits. What
// was written afterwards is cut off: it comes again from the journal.
func openVisitLog(dir string, count int64) (l *log, err error) {
	l = &log{count: count}
	if l.texts, err = openCut(filepath.Join(dir, name)); err != nil {
		return nil, err
	}
	if l.index, err = openCut(filepath.Join(dir, indexName)); err != nil {
		return nil, errors.Join(err, l.texts.Close())
	}
	err = func() error {
		if err := l.index.Truncate(int64(headerSize) + count*indexElement); err != nil {
			return err
		}
		l.textSize = int64(headerSize)
		if count > 0 {
			e, err := l.element(count - 1)
			if err != nil {
				return err
			}
			l.last, l.textSize = e.time, e.offset+int64(e.length)
		}
		if st, err := l.texts.Stat(); err != nil || st.Size() < l.textSize {
			return errors.Join(err, codec.Corrupt(l.texts.Name(), "file", 0, fmt.Sprintf("%d bytes", l.textSize), "fewer"))
		}
		return l.texts.Truncate(l.textSize)
	}()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func openCut(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	head := codec.AppendMagic(nil, magic, version)
	got := make([]byte, len(head))
	switch n, err := f.ReadAt(got, 0); {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, errors.Join(err, f.Close())
	case n == 0:
		if _, err := f.WriteAt(head, 0); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	default:
		d := codec.NewDecoder(got, name, "header")
		if d.Magic(magic, version); d.Err() != nil {
			return nil, errors.Join(d.Err(), f.Close())
		}
	}
	return f, nil
}

type indexed struct {
	time, offset int64
	length, sum  uint32
}

func (l *log) element(i int64) (e indexed, err error) {
	b := make([]byte, indexElement)
	at := int64(headerSize) + i*indexElement
	if _, err := l.index.ReadAt(b, at); err != nil {
		return e, fmt.Errorf("%s: byte %d: %w", l.index.Name(), at, err)
	}
	b, err = codec.CheckCRC32C(b, l.index.Name(), "element")
	if err != nil {
		return e, err
	}
	d := codec.NewDecoder(b, l.index.Name(), "element")
	e = indexed{int64(d.U64()), int64(d.U64()), d.U32(), d.U32()}
	return e, d.Err()
}

// Add adds a visit. It is in the files after Flush.
func (l *log) Add(visit *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begin := len(l.pendingTexts)
	l.pendingTexts = visit.append(l.pendingTexts)
	record := l.pendingTexts[begin:]
	l.last = max(l.last, visit.Time)
	begin = len(l.pendingIndex)
	e := codec.AppendU64(l.pendingIndex, uint64(l.last))
	e = codec.AppendU64(e, uint64(l.textSize))
	e = codec.AppendU32(e, uint32(len(record)))
	e = codec.AppendU32(e, codec.CRC32C(record))
	l.pendingIndex = codec.AppendU32(e, codec.CRC32C(e[begin:]))
	l.textSize += int64(len(record))
	l.count++
}

// FlushMuch writes what was added if that is much and nobody else does.
func (l *log) FlushMuch() error {
	l.mu.Lock()
	n := len(l.pendingTexts)
	l.mu.Unlock()
	if n < writeLeast || !l.writing.TryLock() {
		return nil
	}
	defer l.writing.Unlock()
	return l.write()
}

// Flush writes what was added.
func (l *log) Flush() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.write()
}

func (l *log) write() error {
	l.mu.Lock()
	texts, index := l.pendingTexts, l.pendingIndex
	size, count, err := l.textSize, l.count, l.failed
	l.pendingTexts, l.pendingIndex = l.wroteTexts[:0], l.wroteIndex[:0]
	l.wroteTexts, l.wroteIndex = texts, index
	l.mu.Unlock()
	if len(index) == 0 || err != nil {
		return err
	}
	_, err = l.texts.WriteAt(texts, size-int64(len(texts)))
	if err == nil {
		_, err = l.index.WriteAt(index, int64(headerSize)+count*indexElement-int64(len(index)))
	}
	if err != nil {
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
	}
	return err
}

// Read calls yield for each of the first count visits from the first whose time in the index is at
// or after since on, or from number from on if that is later, until it returns false. It returns
// the number of the next.
func (l *log) Read(since, from, count int64, yield func(n int64, visit visit) bool) (next int64, err error) {
	if from > count {
		return from, errPosition
	}
	if err := l.Flush(); err != nil {
		return from, err
	}
	var failed error
	first := int64(sort.Search(int(count), func(i int) bool {
		e, err := l.element(int64(i))
		failed = errors.Join(failed, err)
		return e.time >= since
	}))
	if failed != nil {
		return from, failed
	}
	for i := max(first, from); i < count; i++ {
		e, err := l.element(i)
		if err != nil {
			return i, err
		}
		record := make([]byte, e.length)
		if _, err := l.texts.ReadAt(record, e.offset); err != nil {
			return i, fmt.Errorf("%s: byte %d: %w", l.texts.Name(), e.offset, err)
		}
		if got := codec.CRC32C(record); got != e.sum {
			return i, codec.Corrupt(l.texts.Name(), "visit", e.offset, fmt.Sprintf("checksum %08x", e.sum), fmt.Sprintf("%08x", got))
		}
		visit, err := parseVisit(record, l.texts.Name())
		if err != nil {
			return i, err
		}
		if !yield(i, visit) {
			return i, nil
		}
	}
	return count, nil
}

// Count is how many visits were added, and Last the time of the last one.
func (l *log) Count() int64 { return l.count }
func (l *log) Last() int64  { return l.last }

// Close closes the files.
func (l *log) Close() error { return errors.Join(l.texts.Close(), l.index.Close()) }
