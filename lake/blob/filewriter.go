package blob

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

const (
	// localWriteBuffer gathers small writes to a file.
	localWriteBuffer = 64 << 10
	// directBuffer is the size of the writes that go past the page cache: enough that a disk is not waited for often, and
	// little beside what whoever writes so much has in memory.
	directBuffer = 1 << 20
	// directAlign is what the memory and the places of such reads and writes are multiples of; no disk asks for more than a page.
	directAlign = 4 << 10
)

// fileBuffer writes a file from its beginning to its end. What is small is one write. What is larger goes past the page cache where the system can do
// that (O_DIRECT), while the next buffer is filled: it is flushed to the disk before it counts, and nobody may read it for a long time, so that
// a copy in memory would cost more than the write and push out what a server on the same machine reads.
type fileBuffer struct {
	f    *os.File
	buf  []byte
	used int

	// Once there is more than one small buffer: full ones go to a goroutine and come back written.
	full    chan []byte
	written chan writtenBuffer
	direct  bool // the goroutine's until it has ended
}

// writtenBuffer is a buffer to be filled again, or why it could not be written.
type writtenBuffer struct {
	buf []byte
	err error
}

// directBuffers are buffers of directBuffer bytes, aligned.
var directBuffers = sync.Pool{New: func() any {
	return (*[directBuffer]byte)(Place(make([]byte, directBuffer+PlaceRoom), 0, directBuffer))
}}

func takeDirectBuffer() []byte { return directBuffers.Get().(*[directBuffer]byte)[:] }

func newFileBuffer(f *os.File) *fileBuffer {
	return &fileBuffer{f: f, buf: make([]byte, localWriteBuffer)}
}

// Write takes all of p. An error may be of an earlier write.
func (w *fileBuffer) Write(p []byte) (int, error) {
	total := len(p)
	for {
		n := copy(w.buf[w.used:], p)
		w.used += n
		if p = p[n:]; len(p) == 0 {
			return total, nil
		}
		if err := w.next(); err != nil {
			return total - len(p), err
		}
	}
}

// next makes room in a buffer that is full.
func (w *fileBuffer) next() error {
	if len(w.buf) < directBuffer {
		large := takeDirectBuffer()
		copy(large, w.buf)
		w.buf = large
		return nil
	}
	if w.full == nil {
		w.direct = setDirect(w.f, true)
		w.full, w.written = make(chan []byte, 1), make(chan writtenBuffer, 2)
		w.written <- writtenBuffer{buf: takeDirectBuffer()}
		go w.writeAll()
	}
	w.full <- w.buf
	b := <-w.written
	w.buf, w.used = b.buf, 0
	return b.err
}

// writeAll writes full buffers until there are no more.
func (w *fileBuffer) writeAll() {
	defer close(w.written)
	var err error
	for b := range w.full {
		if err == nil {
			err = w.write(b)
		}
		w.written <- writtenBuffer{b, err}
	}
}

// write writes a whole buffer. A file system that knows no direct writes may say so only now.
func (w *fileBuffer) write(b []byte) error {
	n, err := w.f.Write(b)
	if w.direct && errors.Is(err, syscall.EINVAL) {
		w.direct = false
		setDirect(w.f, false)
		_, err = w.f.Write(b[n:])
	}
	return err
}

// Flush writes what is left. The buffer is of no use after it, or after drop.
func (w *fileBuffer) Flush() error {
	rest := w.buf[:w.used]
	err := w.wait()
	if err == nil && len(rest) > 0 {
		if w.direct { // the rest is no multiple of anything
			w.direct = false
			setDirect(w.f, false)
		}
		_, err = w.f.Write(rest)
	}
	w.drop()
	return err
}

// wait waits for the goroutine, if there is one, and gives its buffer back.
func (w *fileBuffer) wait() (err error) {
	if w.full == nil {
		return nil
	}
	close(w.full)
	for b := range w.written {
		directBuffers.Put((*[directBuffer]byte)(b.buf))
		err = b.err
	}
	w.full = nil
	return err
}

// drop gives up what is not written.
func (w *fileBuffer) drop() {
	w.wait()
	if len(w.buf) == directBuffer {
		directBuffers.Put((*[directBuffer]byte)(w.buf))
	}
	w.buf, w.used = nil, 0
}
