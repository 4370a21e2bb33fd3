package blob

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

const (
	// localWriteBuffer is the size of the first buffer of a file.
	localWriteBuffer = 64 << 10
	// directBuffer is the size of direct writes: large enough to wait for the disk rarely, and
	// small beside the memory of a program that writes such objects.
	directBuffer = 1 << 20
)

// fileBuffer is a buffered writer of a file. A file below directBuffer bytes is one write. A larger
// one is written past the page cache (O_DIRECT) if the system supports that, one buffer while the
// next is filled. Large objects are fsynced before they count and not read for a while, so a copy
// in the cache would cost more than the write and evict what a server on the same machine reads.
type fileBuffer struct {
	f    *os.File
	buf  []byte
	used int

	// Set once the file exceeds directBuffer: full buffers go to a goroutine and come back written.
	full    chan []byte
	written chan writtenBuffer
	direct  bool // belongs to the goroutine until that ends
}

// writtenBuffer is a buffer that can be filled again, with the error of its write.
type writtenBuffer struct {
	buf []byte
	err error
}

// directBuffers holds aligned buffers of directBuffer bytes.
var directBuffers = sync.Pool{New: func() any {
	return (*[directBuffer]byte)(AlignedSlice(make([]byte, directBuffer+AlignSlack), 0, directBuffer))
}}

func getDirectBuffer() []byte { return directBuffers.Get().(*[directBuffer]byte)[:] }

func newFileBuffer(f *os.File) *fileBuffer {
	return &fileBuffer{f: f, buf: make([]byte, localWriteBuffer)}
}

// Write buffers all of p. An error may be that of an earlier Write.
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

// next replaces a full buffer: a small one by a large one, a large one by one that is written.
func (w *fileBuffer) next() error {
	if len(w.buf) < directBuffer {
		large := getDirectBuffer()
		copy(large, w.buf)
		w.buf = large
		return nil
	}
	if w.full == nil {
		w.direct = setDirect(w.f, true)
		w.full, w.written = make(chan []byte, 1), make(chan writtenBuffer, 2)
		w.written <- writtenBuffer{buf: getDirectBuffer()}
		go w.writeAll()
	}
	w.full <- w.buf
	b := <-w.written
	w.buf, w.used = b.buf, 0
	return b.err
}

// writeAll writes full buffers until full is closed.
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

// write writes a whole buffer. Some file systems reject direct writes only here.
func (w *fileBuffer) write(b []byte) error {
	n, err := w.f.Write(b)
	if w.direct && errors.Is(err, syscall.EINVAL) {
		w.direct = false
		setDirect(w.f, false)
		_, err = w.f.Write(b[n:])
	}
	return err
}

// Flush writes what is buffered and releases the buffers. No call but drop may follow.
func (w *fileBuffer) Flush() error {
	rest := w.buf[:w.used]
	err := w.wait()
	if err == nil && len(rest) > 0 {
		if w.direct { // the size of the rest is not aligned
			w.direct = false
			setDirect(w.f, false)
		}
		_, err = w.f.Write(rest)
	}
	w.drop()
	return err
}

// wait ends the goroutine, if there is one, releases its buffers and returns the error of its
// writes.
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

// drop discards what is buffered and releases the buffers. It may be called again.
func (w *fileBuffer) drop() {
	_ = w.wait() // what is dropped need not be written
	if len(w.buf) == directBuffer {
		directBuffers.Put((*[directBuffer]byte)(w.buf))
	}
	w.buf, w.used = nil, 0
}
