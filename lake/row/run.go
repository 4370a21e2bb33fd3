package row

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// A run holds sorted, distinct rows in staging, which a merge task spilled because its rows did not
// fit into memory. It is a frame file without fences (package seekable) whose frames hold ascending
// keys (see row.Row.AppendKey):
//
//	uvarint bytes of the lengths | n × {uvarint shared, uvarint length} | n × length bytes
//
// Shared is the length of the longest common prefix with the previous key in the frame. So one byte
// of each key shows whether it is in order.

// runFrame is the size in decompressed bytes at which a frame of a run ends. A merge holds one
// decoded frame of every run.
const runFrame = 64 << 10

// Run describes a finished run.
type Run struct {
	lake.FrameObject
	Rows int64
}

// runWriter writes a run from keys that come in order.
type runWriter struct {
	key   string
	blob  blob.Writer
	w     *seekable.Writer
	open  packedKeys // of the open frame
	frame []byte     // scratch space

	last []byte // the previous key in the run
	rows int64
}

// packedKeys are sorted keys without the prefixes that they share with the keys before them.
type packedKeys struct {
	lengths []byte // uvarint shared, uvarint length
	text    []byte // length bytes
}

func (p *packedKeys) add(key []byte, shared int) {
	p.lengths = binary.AppendUvarint(p.lengths, uint64(shared))
	p.lengths = binary.AppendUvarint(p.lengths, uint64(len(key)-shared))
	p.text = append(p.text, key[shared:]...)
}

func newRunWriter(ctx context.Context, store blob.Store, key string) (*runWriter, error) {
	b, err := store.Create(ctx, key)
	if err != nil {
		return nil, err
	}
	w := &runWriter{key: key, blob: b, w: seekable.NewWriter(b, 0)}
	w.w.DisableCompression() // packed keys are small, and compressing them takes as long as the rest of writing and reading a run
	return w, nil
}

// append adds a key; shared is the length of its longest common prefix with the previous key. A key
// that is below the previous one is an error; an equal key is left out.
func (w *runWriter) append(key []byte, shared int) error {
	if w.rows > 0 {
		if shared == len(key) && shared == len(w.last) {
			return nil
		}
		if shared == len(key) || shared < len(w.last) && w.last[shared] > key[shared] {
			return fmt.Errorf("write run %s: row %d is below the row before it", w.key, w.rows)
		}
		if len(w.open.lengths)+len(w.open.text) >= runFrame {
			if err := w.flush(); err != nil {
				return err
			}
		}
	} else {
		shared = 0
	}
	w.last = append(w.last[:shared], key[shared:]...)
	if len(w.open.lengths) == 0 {
		shared = 0
	}
	w.open.add(key, shared)
	w.rows++
	return nil
}

// flush writes the open frame, if it has keys.
func (w *runWriter) flush() error {
	if len(w.open.lengths) == 0 {
		return nil
	}
	w.frame = codec.AppendUvarint(w.frame[:0], uint64(len(w.open.lengths)))
	w.frame = append(append(w.frame, w.open.lengths...), w.open.text...)
	if _, _, err := w.w.Frame(nil, w.frame); err != nil {
		return fmt.Errorf("write run %s: %w", w.key, err)
	}
	w.open.lengths, w.open.text = w.open.lengths[:0], w.open.text[:0]
	return nil
}

// finish publishes the run.
func (w *runWriter) finish() (Run, error) {
	if err := w.flush(); err != nil {
		return Run{}, err
	}
	ff, err := w.w.Finish()
	if err != nil {
		return Run{}, fmt.Errorf("write run %s: %w", w.key, err)
	}
	if _, err := w.blob.Finish(); err != nil {
		return Run{}, err
	}
	return Run{FrameObject: lake.NewFrameObject(w.key, ff), Rows: w.rows}, nil
}

// abort discards the run unless it is finished.
func (w *runWriter) abort() { w.blob.Abort() }

// WriteRun writes the rows, sorted and one of each record, to a run under key and empties the
// buffer. After an error the buffer still has its rows.
func (b *Buffer) WriteRun(ctx context.Context, store blob.Store, key string) (Run, error) {
	w, err := newRunWriter(ctx, store, key)
	if err != nil {
		return Run{}, err
	}
	defer w.abort()
	if err := b.Rows(ctx, 0, Partitions-1, &runSink{run: w}); err != nil {
		return Run{}, err
	}
	run, err := w.finish()
	if err != nil {
		return Run{}, err
	}
	b.empty()
	return run, nil
}

// runSink writes rows to a run.
type runSink struct {
	run  *runWriter
	host []byte // the key up to the path
	key  []byte
}

func (s *runSink) Rows(hosts []SortedHost, rows []SortedRow) (records int, err error) {
	for _, h := range hosts {
		s.host = append(append(append(append(s.host[:0], h.Domain...), 0), h.Host...), 0)
		for _, r := range rows[:h.Rows] {
			s.key = append(append(append(s.key[:0], s.host...), r.Path...), 0)
			s.key = r.Suffix.appendKey(s.key)
			shared := codec.CommonPrefix(s.run.last, s.key)
			if shared >= len(s.key)-len(r.Suffix.RawURL) {
				continue // an equal record, as no record is a prefix of another
			}
			if err := s.run.append(s.key, shared); err != nil {
				return records, err
			}
			records++
		}
		rows = rows[h.Rows:]
	}
	return records, nil
}

// openRun reads and checks a run's footer.
func openRun(ctx context.Context, store blob.Store, run Run) (*seekable.Frames, error) {
	ff, err := run.FrameFile()
	if err != nil {
		return nil, err
	}
	read := func(ctx context.Context, off, n int64) ([]byte, error) { return store.ReadRange(ctx, run.Key, off, n) }
	return seekable.OpenAt(ctx, read, ff, run.Key, 0)
}

// runSection iterates over the keys of a run. While the frames of one read are used, the next read
// is in flight.
type runSection struct {
	store  blob.Store
	key    string // of the run
	frames *seekable.Frames
	left   int64 // number of rows that have not been returned

	nextRead  int   // the first frame of the next read
	readBytes int64 // most bytes, as stored, of a read, unless a frame is larger
	slots     chan struct{}
	fetched   chan fetch // the read in flight, nil if there is none

	raw     []byte // frames lo up to hi, exclusive, as stored
	lo, hi  int
	lengths []byte // of the open frame: what has not been used
	text    []byte // the same
	first   bool   // the next key is the first of the open frame
	last    []byte // the last key that was returned
}

// fetch is the outcome of one read.
type fetch struct {
	raw    []byte
	lo, hi int
	err    error
}

// newRunSection starts to read a run. The capacity of slots is the most reads in flight of all
// sections that share it.
func newRunSection(
	ctx context.Context, store blob.Store, run Run, frames *seekable.Frames, readBytes int64, slots chan struct{},
) *runSection {
	s := &runSection{store: store, key: run.Key, frames: frames, left: run.Rows, readBytes: readBytes, slots: slots}
	s.startRead(ctx)
	return s
}

// startRead starts the next read, if there is one.
func (s *runSection) startRead(ctx context.Context) {
	s.fetched = nil
	if s.nextRead == s.frames.Len() {
		return
	}
	lo, hi := s.nextRead, s.nextRead+1
	for hi < s.frames.Len() {
		if _, n := s.frames.Range(lo, hi+1); n > s.readBytes {
			break
		}
		hi++
	}
	s.nextRead = hi
	// Buffered, so that the goroutine ends even if nobody receives.
	done := make(chan fetch, 1)
	s.fetched = done
	go func() {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			done <- fetch{err: context.Cause(ctx)}
			return
		}
		off, n := s.frames.Range(lo, hi)
		raw, err := s.store.ReadRange(ctx, s.key, off, n)
		if err != nil {
			err = fmt.Errorf("read run: %w", err)
		}
		done <- fetch{raw, lo, hi, err}
	}()
}

// next returns the next key and the length of the prefix that it has in common with the previous
// one.
func (s *runSection) next(ctx context.Context) (key []byte, common int, err error) {
	for len(s.lengths) == 0 {
		if len(s.text) > 0 {
			return nil, 0, s.bad("the end of the frame", fmt.Sprintf("%d bytes more", len(s.text)))
		}
		more, err := s.nextFrame(ctx)
		if err != nil {
			return nil, 0, err
		}
		if !more {
			return nil, 0, nil
		}
	}
	shared, n := binary.Uvarint(s.lengths)
	if n <= 0 {
		return nil, 0, s.bad("a varint", "none")
	}
	length, m := binary.Uvarint(s.lengths[n:])
	if m <= 0 {
		return nil, 0, s.bad("a varint", "none")
	}
	s.lengths = s.lengths[n+m:]
	switch {
	case length == 0 || length > uint64(len(s.text)):
		return nil, 0, s.bad(fmt.Sprintf("1 to %d bytes", len(s.text)), length)
	case s.first && shared != 0:
		return nil, 0, s.bad("a whole key first", fmt.Sprintf("%d bytes shared", shared))
	case shared > uint64(len(s.last)) || shared+length > MaxKey:
		return nil, 0, s.bad(fmt.Sprintf("at most %d bytes shared, %d in total", len(s.last), MaxKey),
			fmt.Sprintf("%d and %d", shared, length))
	case s.left == 0:
		return nil, 0, s.bad("the end", "another row")
	}
	suffix := s.text[:length]
	s.text = s.text[length:]
	common = int(shared)
	if s.first {
		common = codec.CommonPrefix(s.last, suffix)
		s.first = false
	}
	// The byte after the common prefix must be above the one in the previous key.
	if rest := suffix[common-int(shared):]; len(rest) == 0 || common < len(s.last) && s.last[common] >= rest[0] {
		return nil, 0, s.bad("ascending keys", "another order")
	}
	s.last = append(s.last[:shared], suffix...)
	s.left--
	return s.last, common, nil
}

// nextFrame opens the next frame and reports whether there is one.
func (s *runSection) nextFrame(ctx context.Context) (bool, error) {
	if s.lo == s.hi {
		if s.fetched == nil {
			if s.left != 0 {
				return false, codec.Corrupt(s.key, "rows", -1, fmt.Sprintf("%d more rows", s.left), "the end")
			}
			return false, nil
		}
		f := <-s.fetched
		if f.err != nil {
			return false, f.err
		}
		s.raw, s.lo, s.hi = f.raw, f.lo, f.hi
		s.startRead(ctx)
	}
	_, n := s.frames.Range(s.lo, s.lo+1)
	frame, err := s.frames.Decode(s.lo, s.raw[:n])
	if err != nil {
		return false, err
	}
	s.raw = s.raw[n:]
	if s.lo++; s.lo == s.hi {
		s.raw = nil // an empty slice would keep the read in memory
	}
	size, at := binary.Uvarint(frame)
	if at <= 0 || size == 0 || size > uint64(len(frame)-at) {
		return false, s.bad(fmt.Sprintf("1 to %d bytes of lengths", len(frame)), size)
	}
	s.lengths, s.text, s.first = frame[at:at+int(size)], frame[at+int(size):], true
	return true, nil
}

func (s *runSection) bad(want, got any) error {
	return codec.Corrupt(s.key, fmt.Sprintf("frame %d", s.lo-1), -1, want, got)
}
