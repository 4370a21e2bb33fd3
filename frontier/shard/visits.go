package shard

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

// Visit is the outcome of a fetch.
type Visit struct {
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

func (v *Visit) append(b []byte) []byte {
	b = codec.AppendUvarint(b, uint64(v.Time))
	b = codec.AppendUvarint(b, uint64(v.Status))
	b = codec.AppendUvarint(b, uint64(v.Depth))
	for _, s := range [...]string{v.Queue, v.URL, v.Error, v.Content, v.Redirect} {
		b = codec.AppendString(b, s)
	}
	return b
}

// appendOutcome appends what a visit has besides its queue, URL and depth.
func (v *Visit) appendOutcome(b []byte) []byte {
	b = codec.AppendUvarint(b, uint64(v.Time))
	b = codec.AppendUvarint(b, uint64(v.Status))
	for _, s := range [...]string{v.Error, v.Content, v.Redirect} {
		b = codec.AppendString(b, s)
	}
	return b
}

func parseOutcome(d *codec.Decoder) (Visit, error) {
	v := Visit{Time: int64(d.Uint(1 << 62)), Status: uint16(d.Uint(1<<16 - 1))}
	for _, s := range [...]*string{&v.Error, &v.Content, &v.Redirect} {
		*s = d.String()
	}
	return v, d.Err()
}

func parseVisit(b []byte, file string) (Visit, error) {
	d := codec.NewDecoder(b, file, "visit")
	v := Visit{Time: int64(d.Uint(1 << 62)), Status: uint16(d.Uint(1<<16 - 1)), Depth: uint32(d.Uint(1<<32 - 1))}
	for _, s := range [...]*string{&v.Queue, &v.URL, &v.Error, &v.Content, &v.Redirect} {
		*s = d.String()
	}
	return v, d.Close()
}

// visits are the visits of a shard in two files: the records one after the other, and for each an
// element of fixed width, by which a time is found by binary search.
//
// Visits are added with the shard's lock held, and written and read without it: a write can wait
// for the disk.
type visits struct {
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

// ErrPosition means that there are fewer visits than those after which a reader wants to go on.
var ErrPosition = errors.New("there are fewer visits than the reader has had")

const (
	visitsName  = "visits"
	indexName   = "visits.index"
	visitsMagic = "UFVS"
	// visitsVersion is that of both files.
	visitsVersion = 1
	// An element of the index: time, offset, length, checksum of the record, checksum of the
	// element.
	indexElement = 8 + 8 + 4 + 4 + 4
	visitsHeader = len(visitsMagic) + 4
	// visitsPending is how many bytes of visits are written at least at once.
	visitsPending = 64 << 10
)

// openVisits opens the files as they were at a checkpoint, with so many visits. What was written
// afterwards is cut off: it comes again from the journal.
func openVisits(dir string, count int64) (v *visits, err error) {
	v = &visits{count: count}
	if v.texts, err = openCut(filepath.Join(dir, visitsName)); err != nil {
		return nil, err
	}
	if v.index, err = openCut(filepath.Join(dir, indexName)); err != nil {
		return nil, errors.Join(err, v.texts.Close())
	}
	err = func() error {
		if err := v.index.Truncate(int64(visitsHeader) + count*indexElement); err != nil {
			return err
		}
		v.textSize = int64(visitsHeader)
		if count > 0 {
			e, err := v.element(count - 1)
			if err != nil {
				return err
			}
			v.last, v.textSize = e.time, e.offset+int64(e.length)
		}
		if st, err := v.texts.Stat(); err != nil || st.Size() < v.textSize {
			return errors.Join(err, codec.Corrupt(v.texts.Name(), "file", 0, fmt.Sprintf("%d bytes", v.textSize), "fewer"))
		}
		return v.texts.Truncate(v.textSize)
	}()
	if err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

func openCut(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	head := codec.AppendMagic(nil, visitsMagic, visitsVersion)
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
		if d.Magic(visitsMagic, visitsVersion); d.Err() != nil {
			return nil, errors.Join(d.Err(), f.Close())
		}
	}
	return f, nil
}

type indexed struct {
	time, offset int64
	length, sum  uint32
}

func (v *visits) element(i int64) (e indexed, err error) {
	b := make([]byte, indexElement)
	at := int64(visitsHeader) + i*indexElement
	if _, err := v.index.ReadAt(b, at); err != nil {
		return e, fmt.Errorf("%s: byte %d: %w", v.index.Name(), at, err)
	}
	b, err = codec.CheckCRC32C(b, v.index.Name(), "element")
	if err != nil {
		return e, err
	}
	d := codec.NewDecoder(b, v.index.Name(), "element")
	e = indexed{int64(d.U64()), int64(d.U64()), d.U32(), d.U32()}
	return e, d.Err()
}

// add adds a visit. It is in the files after flush.
func (v *visits) add(visit *Visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	begin := len(v.pendingTexts)
	v.pendingTexts = visit.append(v.pendingTexts)
	record := v.pendingTexts[begin:]
	v.last = max(v.last, visit.Time)
	begin = len(v.pendingIndex)
	e := codec.AppendU64(v.pendingIndex, uint64(v.last))
	e = codec.AppendU64(e, uint64(v.textSize))
	e = codec.AppendU32(e, uint32(len(record)))
	e = codec.AppendU32(e, codec.CRC32C(record))
	v.pendingIndex = codec.AppendU32(e, codec.CRC32C(e[begin:]))
	v.textSize += int64(len(record))
	v.count++
}

// flushMuch writes what is pending if that is much and nobody else does.
func (v *visits) flushMuch() error {
	v.mu.Lock()
	n := len(v.pendingTexts)
	v.mu.Unlock()
	if n < visitsPending || !v.writing.TryLock() {
		return nil
	}
	defer v.writing.Unlock()
	return v.write()
}

// flush writes what is pending.
func (v *visits) flush() error {
	v.writing.Lock()
	defer v.writing.Unlock()
	return v.write()
}

func (v *visits) write() error {
	v.mu.Lock()
	texts, index := v.pendingTexts, v.pendingIndex
	size, count, err := v.textSize, v.count, v.failed
	v.pendingTexts, v.pendingIndex = v.wroteTexts[:0], v.wroteIndex[:0]
	v.wroteTexts, v.wroteIndex = texts, index
	v.mu.Unlock()
	if len(index) == 0 || err != nil {
		return err
	}
	_, err = v.texts.WriteAt(texts, size-int64(len(texts)))
	if err == nil {
		_, err = v.index.WriteAt(index, int64(visitsHeader)+count*indexElement-int64(len(index)))
	}
	if err != nil {
		v.mu.Lock()
		v.failed = err
		v.mu.Unlock()
	}
	return err
}

// read calls yield for each of the first count visits from the first whose time in the index is at
// or after since on, or from number from on if that is later, until it returns false. It returns
// the number of the next.
func (v *visits) read(since, from, count int64, yield func(n int64, visit Visit) bool) (next int64, err error) {
	if from > count {
		return from, ErrPosition
	}
	if err := v.flush(); err != nil {
		return from, err
	}
	var failed error
	first := int64(sort.Search(int(count), func(i int) bool {
		e, err := v.element(int64(i))
		failed = errors.Join(failed, err)
		return e.time >= since
	}))
	if failed != nil {
		return from, failed
	}
	for i := max(first, from); i < count; i++ {
		e, err := v.element(i)
		if err != nil {
			return i, err
		}
		record := make([]byte, e.length)
		if _, err := v.texts.ReadAt(record, e.offset); err != nil {
			return i, fmt.Errorf("%s: byte %d: %w", v.texts.Name(), e.offset, err)
		}
		if got := codec.CRC32C(record); got != e.sum {
			return i, codec.Corrupt(v.texts.Name(), "visit", e.offset, fmt.Sprintf("checksum %08x", e.sum), fmt.Sprintf("%08x", got))
		}
		visit, err := parseVisit(record, v.texts.Name())
		if err != nil {
			return i, err
		}
		if !yield(i, visit) {
			return i, nil
		}
	}
	return count, nil
}

func (v *visits) close() error { return errors.Join(v.texts.Close(), v.index.Close()) }
