package prefixtree

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/internal/mapped"
)

// columnBuffer is the size of an array's buffer in bytes.
const columnBuffer = 256 << 10

// column is an array that is being written. Elements are appended, and may be set again later.
type column struct {
	f       *os.File
	layout  *layout
	width   int
	count   uint64
	base    uint64 // elements before buf, which are in the file
	buf     []byte
	scratch [8]byte
}

// newColumn creates the file of an array in dir.
func newColumn(dir, name string, l *layout, width int) (*column, error) {
	f, err := create(dir, name)
	if err != nil {
		return nil, err
	}
	return &column{f: f, layout: l, width: width, buf: make([]byte, 0, columnBuffer)}, nil
}

// create creates a file in dir, and the folders of its name.
func create(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
}

// writeFile creates a file in dir with that content.
func writeFile(dir, name string, data []byte) error {
	f, err := create(dir, name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return closeFile(f, err)
}

func (c *column) put(p []byte, v uint64) {
	if c.width == 4 {
		binary.LittleEndian.PutUint32(p, uint32(v))
	} else {
		binary.LittleEndian.PutUint64(p, v)
	}
}

func (c *column) append(v uint64) error {
	if len(c.buf) == cap(c.buf) {
		if err := c.flush(); err != nil {
			return err
		}
	}
	at := len(c.buf)
	c.buf = c.buf[:at+c.width]
	c.put(c.buf[at:], v)
	c.count++
	return nil
}

// set replaces an element. Few elements are set after they were flushed: those of the nodes that
// are open then.
func (c *column) set(i, v uint64) error {
	if i >= c.base {
		c.put(c.buf[int(i-c.base)*c.width:], v)
		return nil
	}
	c.put(c.scratch[:], v)
	_, err := c.f.WriteAt(c.scratch[:c.width], c.offset(i))
	return err
}

func (c *column) offset(i uint64) int64 {
	return c.layout.headerBytes() + int64(i)*int64(c.width)
}

func (c *column) flush() error {
	_, err := c.f.WriteAt(c.buf, c.offset(c.base))
	c.base, c.buf = c.count, c.buf[:0]
	return err
}

// close writes the rest and the header, and closes the file.
func (c *column) close() error {
	err := c.flush()
	if err == nil && c.layout.header {
		_, err = c.f.WriteAt(c.layout.appendHeader(nil, c.count, c.width), 0)
	}
	return closeFile(c.f, err)
}

// closeFile closes a file and returns err, or else the error of closing it.
func closeFile(f *os.File, err error) error {
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// syncFile makes a file durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return closeFile(f, f.Sync())
}

// concurrentSyncs is how many files are made durable at once. File systems do so for several in
// hardly more time than for one.
const concurrentSyncs = 32

// syncAll makes a folder durable, with all files and folders in it.
func syncAll(ctx context.Context, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrentSyncs)
	var folders []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			folders = append(folders, path)
			return ctx.Err()
		}
		g.Go(func() error { return syncFile(path) })
		return ctx.Err()
	})
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	for _, path := range folders {
		if err := syncFolder(path); err != nil {
			return err
		}
	}
	return nil
}

func syncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be flushed there
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return closeFile(f, f.Sync())
}

// stream is a file that is written from its beginning to its end.
type stream struct {
	f *os.File
	*bufio.Writer
}

func newStream(dir, name string) (*stream, error) {
	f, err := create(dir, name)
	if err != nil {
		return nil, err
	}
	return &stream{f, bufio.NewWriterSize(f, columnBuffer)}, nil
}

func (s *stream) close() error { return closeFile(s.f, s.Flush()) }

// sums are the sums of a file, and its SHA-256 if that is wanted.
type sums struct {
	mapped.Sums
	sha256 string
}

// sumFile reads a file of dir.
func sumFile(dir, name string, withSHA256 bool) (sums, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		return sums{}, err
	}
	defer f.Close()
	h, sha := mapped.NewHash(), sha256.New()
	w := io.Writer(h)
	if withSHA256 {
		w = io.MultiWriter(h, sha)
	}
	if _, err := io.CopyBuffer(w, struct{ io.Reader }{f}, make([]byte, mapped.BlockSize)); err != nil {
		return sums{}, err
	}
	s := sums{Sums: h.Sums()}
	if withSHA256 {
		s.sha256 = hex.EncodeToString(sha.Sum(nil))
	}
	return s, nil
}
