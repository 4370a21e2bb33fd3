// Package journal is an append-only log of records in numbered files, its segments. What Commit has
// returned for is found again by Open, whatever died in between.
//
// A segment begins with a magic, a version and its number. A record is its length and a CRC-32C, in
// four little-endian bytes each, and its bytes. The checksum covers the segment's number, the
// length and the bytes, so a record of another file, or of an earlier life of the same blocks, is
// none. docs/formats/frontier.md describes the files.
package journal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/urlake/urlake/lake/codec"
)

const (
	magic      = "UFJR"
	version    = 2 // 1 had other records
	headerSize = len(magic) + 4 + 8
	frameSize  = 8
	// MaxRecord bounds a record, so that a damaged length asks for no memory, and that looking for
	// records behind damage is quick. Lines of requests to the frontier are shorter.
	MaxRecord = 1 << 20
	suffix    = ".journal"
)

// Options say how a journal is written.
type Options struct {
	// Sync makes Commit wait until the records are on the disk. Without it they are the operating
	// system's, which loses up to half a minute of them if the machine dies, and nothing if the
	// process does.
	Sync bool
	// First is the first segment whose records are read. Earlier ones are deleted.
	First uint64
}

// Torn is the end of the last segment that Open has cut off: what a process had begun to write, and
// committed to nobody, when it died. The end may have been committed only if the disk has since
// changed the very last record or, without Sync, if the machine died before the disk had it. Its
// bytes are kept in File.torn.
type Torn struct {
	File   string
	Offset int64
	Bytes  int64
	Reason string
}

func (t *Torn) String() string {
	return fmt.Sprintf("%s: cut %d bytes from byte %d on: %s", t.File, t.Bytes, t.Offset, t.Reason)
}

// Journal appends records. It may be used by several goroutines.
type Journal struct {
	dir  string
	sync bool

	mu     sync.Mutex
	done   sync.Cond // a commit has ended
	file   *os.File
	number uint64
	sums   *checksums // of the segment
	// prepared is the next segment, nil if there is none yet.
	prepared *os.File
	// ended are segments before this one that are not whole on the disk, in order.
	ended []piece
	// preparing is held while the next segment is made.
	preparing sync.Mutex
	// size is how long the segment is once everything in buf is in it.
	size int64
	buf  []byte
	// appended counts records, committed those on the disk.
	appended, committed uint64
	writing             bool
	err                 error // of a commit; the journal takes nothing any more
}

// piece is what a segment still lacks.
type piece struct {
	file *os.File
	buf  []byte
}

// Open calls read for each record of the segments from o.First on, in order, and begins a new
// segment. A record is valid until read returns. The end of the last segment that has records is
// cut if it is no whole record, and no whole record follows; damage anywhere else is a
// *codec.CorruptError. When Open returns, all records are on the disk: a process that died may have
// left some of them in the operating system's cache.
func Open(dir string, o Options, read func(segment uint64, record []byte) error) (*Journal, *Torn, error) {
	if err := MakeDir(dir); err != nil {
		return nil, nil, err
	}
	numbers, err := segments(dir)
	if err != nil {
		return nil, nil, err
	}
	for len(numbers) > 0 && numbers[0] < o.First {
		if err := os.Remove(segmentFile(dir, numbers[0])); err != nil {
			return nil, nil, err
		}
		numbers = numbers[1:]
	}
	if len(numbers) > 0 && o.First > 0 && numbers[0] != o.First {
		return nil, nil, codec.Corrupt(segmentFile(dir, o.First), "segment", 0, "a file", "none")
	}
	last, err := lastWithRecords(dir, numbers)
	if err != nil {
		return nil, nil, err
	}
	var torn *Torn
	for i, n := range numbers {
		if i > 0 && n != numbers[i-1]+1 {
			return nil, nil, codec.Corrupt(segmentFile(dir, numbers[i-1]+1), "segment", 0, "a file", "none")
		}
		cut, err := readSegment(segmentFile(dir, n), n, i >= last, read)
		if err != nil {
			return nil, nil, err
		}
		if cut != nil && (torn == nil || torn.Bytes == 0) {
			torn = cut
		}
	}
	j := &Journal{dir: dir, sync: o.Sync, number: max(o.First, 1) - 1}
	j.done.L = &j.mu
	if len(numbers) > 0 {
		j.number = numbers[len(numbers)-1]
	}
	if _, err := j.Rotate(); err != nil {
		return nil, nil, err
	}
	return j, torn, nil
}

// CheckFormat returns a *codec.FormatError if a segment has a format that this program does not
// know. It changes nothing, as Open may have done when it meets such a segment.
func CheckFormat(dir string) error {
	numbers, err := segments(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, n := range numbers {
		name := segmentFile(dir, n)
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		head := make([]byte, headerSize)
		_, err = io.ReadFull(f, head)
		if err = errors.Join(err, f.Close()); err == nil { // Open looks at one that is shorter
			err = checkHeader(head, name, n)
		}
		if codec.IsFormat(err) {
			return err
		}
	}
	return nil
}

func checkHeader(head []byte, file string, number uint64) error {
	d := codec.NewDecoder(head, file, "header")
	d.Magic(magic, version)
	if n := d.U64(); d.Err() == nil && n != number {
		d.Fail(number, n)
	}
	return d.Err()
}

// lastWithRecords returns the position of the last segment that may have records. A segment is made
// before it is needed, so those after that one say nothing about its end.
func lastWithRecords(dir string, numbers []uint64) (int, error) {
	for i := len(numbers) - 1; i > 0; i-- {
		st, err := os.Stat(segmentFile(dir, numbers[i]))
		if err != nil || st.Size() > int64(headerSize) {
			return i, err
		}
	}
	return 0, nil
}

func segmentFile(dir string, n uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x", n)+suffix)
}

// segments returns the numbers of the segments in order.
func segments(dir string) (numbers []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(name, 16, 64)
		if err != nil || len(name) != 16 {
			return nil, fmt.Errorf("%s: its name is not that of a segment", filepath.Join(dir, e.Name()))
		}
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, cmp.Compare[uint64])
	return numbers, nil
}

// readSegment reads a segment, and cuts its end if it is the last.
func readSegment(file string, number uint64, last bool, read func(uint64, []byte) error) (*Torn, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	at, reason := 0, ""
	sums := newChecksums(number)
	if len(data) < headerSize {
		reason = "a header of " + strconv.Itoa(len(data)) + " bytes"
	} else {
		if err := checkHeader(data[:headerSize], file, number); err != nil {
			return nil, err
		}
		at = headerSize
	}
	for reason == "" && at < len(data) {
		record, why := frame(data[at:], sums)
		if why != "" {
			reason = why
			break
		}
		if err := read(number, record); err != nil {
			return nil, err
		}
		at += frameSize + len(record)
	}
	switch {
	case reason == "" && last:
		return nil, SyncFile(file)
	case reason == "":
		return nil, nil
	case !last:
		return nil, codec.Corrupt(file, "record", int64(at), "a whole record", reason)
	}
	if next := recordAfter(data, at, sums); next > 0 {
		err := codec.Corrupt(file, "record", int64(at), fmt.Sprintf("a whole record, as one follows at byte %d", next), reason)
		return nil, fmt.Errorf("%w; restore the frontier from a snapshot, or, to go on without this record and all behind it, run truncate -s %d %s",
			err, at, file)
	}
	torn := &Torn{File: file, Offset: int64(at), Bytes: int64(len(data) - at), Reason: reason}
	if err := writeSynced(file+TornSuffix, data[at:]); err != nil {
		return nil, err
	}
	// The segment will not be the last any more, so its end has to stay as it is now.
	if at == 0 { // not even a header
		return torn, writeSynced(file, header(number))
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return torn, errors.Join(f.Truncate(int64(at)), f.Sync(), f.Close())
}

// recordAfter returns where the first whole record behind a damaged one is, 0 if there is none. The
// length of the damaged one may be wrong, so each byte may begin a record. None is empty.
func recordAfter(data []byte, damaged int, sums *checksums) int {
	for at := max(damaged+1, headerSize); at+frameSize < len(data); at++ {
		n, record := int(binary.LittleEndian.Uint32(data[at:])), data[at+frameSize:]
		if n > 0 && n <= min(len(record), MaxRecord) && sums.of(record[:n]) == binary.LittleEndian.Uint32(data[at+4:]) {
			return at
		}
	}
	return 0
}

// writeSynced writes a file that is on the disk then.
func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncFile makes the writes to a file durable.
func SyncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncData(f), f.Close())
}

// syncData is replaced by a test.
var syncData = (*os.File).Sync

func header(number uint64) []byte {
	return codec.AppendU64(codec.AppendMagic(nil, magic, version), number)
}

// frame returns the record at the beginning of b, or why there is none.
func frame(b []byte, sums *checksums) (record []byte, why string) {
	if len(b) < frameSize {
		return nil, strconv.Itoa(len(b)) + " bytes of a record's head"
	}
	n := binary.LittleEndian.Uint32(b)
	if n > MaxRecord {
		return nil, fmt.Sprintf("a record of %d bytes", n)
	}
	if uint64(len(b)-frameSize) < uint64(n) {
		return nil, fmt.Sprintf("%d bytes of a record of %d", len(b)-frameSize, n)
	}
	record = b[frameSize : frameSize+int(n)]
	if got := sums.of(record); got != binary.LittleEndian.Uint32(b[4:]) {
		return nil, "a record with a wrong checksum"
	}
	return record, ""
}

// checksums are those of a segment's records: the number, and room for a length.
type checksums [12]byte

func newChecksums(number uint64) *checksums {
	c := new(checksums)
	binary.LittleEndian.PutUint64(c[:], number)
	return c
}

func (c *checksums) of(record []byte) uint32 {
	binary.LittleEndian.PutUint32(c[8:], uint32(len(record)))
	return codec.UpdateCRC32C(codec.CRC32C(c[:]), record)
}

// TornSuffix ends the names of files that have what was cut off.
const TornSuffix = ".torn"

// Append adds a record. It is in memory until the next Commit.
func (j *Journal) Append(record []byte) error {
	if len(record) > MaxRecord {
		return fmt.Errorf("a record of %d bytes, at most %d", len(record), MaxRecord)
	}
	if len(record) == 0 {
		return errors.New("an empty record")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	j.buf = binary.LittleEndian.AppendUint32(j.buf, uint32(len(record)))
	j.buf = binary.LittleEndian.AppendUint32(j.buf, j.sums.of(record))
	j.buf = append(j.buf, record...)
	j.size += int64(frameSize + len(record))
	j.appended++
	return nil
}

// Commit returns when all records that were appended before are written, and with Options.Sync on
// the disk. Calls at the same time share a write. After an error, of a full disk say, nothing more
// is taken: what the journal holds is known only to who opens it again.
func (j *Journal) Commit() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.commit()
}

func (j *Journal) commit() error {
	upTo := j.appended
	for j.err == nil && j.committed < upTo {
		if j.writing {
			j.done.Wait()
			continue
		}
		j.write(j.sync)
	}
	return j.err
}

// write writes what was appended. No other write is going on, and the lock is free meanwhile.
func (j *Journal) write(sync bool) {
	j.writing = true
	ended, last, all := j.ended, piece{j.file, j.buf}, j.appended
	j.ended, j.buf = nil, nil
	j.mu.Unlock()
	var err error
	// A segment is whole before the next one has a record.
	for _, p := range ended {
		if err == nil {
			err = errors.Join(p.write(true), p.file.Close())
		}
	}
	if err == nil {
		err = last.write(sync)
	}
	j.mu.Lock()
	j.writing = false
	if err != nil {
		j.err = err
	} else {
		j.committed = all
		if j.buf == nil {
			j.buf = last.buf[:0]
		}
	}
	j.done.Broadcast()
}

func (p *piece) write(sync bool) error {
	_, err := p.file.Write(p.buf)
	if err == nil && sync {
		err = p.file.Sync()
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.file.Name(), err)
	}
	return err
}

// Sync returns when all records that were appended before are on the disk, whatever Options.Sync
// is. It may not be called while Rotate is. Commits do not wait for it.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.commit(); err != nil || j.sync {
		return err
	}
	file := j.file
	j.mu.Unlock()
	err := file.Sync()
	j.mu.Lock()
	if err != nil && j.err == nil {
		j.err = err
	}
	return j.err
}

// Prepare makes the file of the next segment, so that Rotate is quick.
func (j *Journal) Prepare() error {
	j.preparing.Lock()
	defer j.preparing.Unlock()
	j.mu.Lock()
	number, prepared, err := j.number+1, j.prepared, j.err
	j.mu.Unlock()
	if prepared != nil || err != nil {
		return err
	}
	f, err := newSegment(j.dir, number)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.prepared = f
	return nil
}

// newSegment makes a segment without records, on the disk.
func newSegment(dir string, number uint64) (*os.File, error) {
	f, err := os.OpenFile(segmentFile(dir, number), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(header(number))
	if err = errors.Join(err, f.Sync(), SyncDir(dir)); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name())) // so that it can be tried again
	}
	return f, nil
}

// Rotate begins another segment and returns its number. It waits for no disk if Prepare was called.
// What was appended before is written with the next Commit.
func (j *Journal) Rotate() (number uint64, err error) {
	if err := j.Prepare(); err != nil {
		return 0, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, j.err
	}
	if j.file != nil {
		j.ended = append(j.ended, piece{j.file, j.buf})
		j.buf = nil
	}
	j.file, j.prepared, j.size = j.prepared, nil, int64(headerSize)
	j.number++
	j.sums = newChecksums(j.number)
	return j.number, nil
}

// Size returns how many bytes the current segment has.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Cut commits what was appended before, and returns the name of the current segment and how many
// bytes of it that is.
func (j *Journal) Cut() (segment string, size int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	segment, size = filepath.Base(j.file.Name()), j.size
	return segment, size, j.commit()
}

// Drop deletes the segments before first.
func (j *Journal) Drop(first uint64) error {
	numbers, err := segments(j.dir)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		if n >= first {
			break
		}
		if err := os.Remove(segmentFile(j.dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close commits and closes the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.commit()
	for j.writing {
		j.done.Wait()
	}
	if j.err == nil {
		j.err = os.ErrClosed
	}
	for _, p := range j.ended { // of which everything is written, unless there was an error
		err = errors.Join(err, p.file.Close())
	}
	if j.prepared != nil {
		err = errors.Join(err, j.prepared.Close())
	}
	return errors.Join(err, j.file.Close())
}

// MakeDir makes a folder whose name is durable. Its parent has to be.
func MakeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(dir))
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
