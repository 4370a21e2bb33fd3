package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// readFolders returns a folder on a disk and, if the system has /dev/shm, one in memory.
func readFolders(t *testing.T) []string {
	dirs := []string{t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "urlake-test-*"); err == nil { //nolint:usetesting // in memory
		t.Cleanup(func() { os.RemoveAll(dir) })
		dirs = append(dirs, dir)
	}
	return dirs
}

// Sizes and offsets are around those of pages and of direct reads.
func TestStreamsOfEverySizeAndOffset(t *testing.T) {
	var sizes []int
	for _, size := range []int{0, 512, directAlign, directRead, directRead + directAlign, 2 * directRead} {
		for _, d := range []int{-513, -512, -1, 0, 1, 511, 512, 513} {
			if n := size + d; n > 0 {
				sizes = append(sizes, n)
			}
		}
	}
	for _, dir := range readFolders(t) {
		l, err := NewLocal(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range sizes {
			data := make([]byte, size)
			rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)}).Read(data)
			if _, err := l.Put(t.Context(), "o", data, Condition{}); err != nil {
				t.Fatal(err)
			}
			for _, off := range []int{0, 1, 511, 512, 513, directAlign - 1, directAlign, directAlign + 1, size - directRead - 1, size - directRead, size - directRead + 1, size - 1, size} {
				for _, less := range []int{0, 1, 511, 512, directAlign, directAlign + 1} {
					n := size - off - less
					if off < 0 || n < 0 {
						continue
					}
					rc, err := l.Open(t.Context(), "o", int64(off), int64(n))
					if err != nil {
						t.Fatal(err)
					}
					buf := bytes.Repeat([]byte{0xa5}, n+2*AlignSlack)
					p := AlignedSlice(buf, int64(off), int64(n))
					if m, err := io.ReadFull(rc, p); err != nil || !bytes.Equal(p, data[off:off+n]) {
						t.Fatalf("%s: %d from %d of %d: %d, %v", dir, n, off, size, m, err)
					}
					from := int(address(p) - address(buf))
					if around := slices.Concat(buf[:from], buf[from+n:]); bytes.Count(around, []byte{0xa5}) != len(around) {
						t.Fatalf("%s: %d from %d of %d: the buffer was written around the slice at %d", dir, n, off, size, from)
					}
					if m, err := rc.Read(buf); m != 0 || err != io.EOF {
						t.Fatal(m, err)
					}
					rc.Close()
				}
			}
		}
	}
}

// A file that another program truncates and writes again while it is read ends early with an error,
// or not at all.
func TestDirectStreamsOfAFileThatChanges(t *testing.T) {
	for _, dir := range readFolders(t) {
		l, err := NewLocal(dir)
		if err != nil {
			t.Fatal(err)
		}
		const size = 4*directRead + 77
		ones := bytes.Repeat([]byte{1}, size)
		if _, err := l.Put(t.Context(), "o", ones, Condition{}); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				os.Truncate(filepath.Join(dir, "o"), rand.Int64N(size))
				f, err := os.OpenFile(filepath.Join(dir, "o"), os.O_WRONLY, 0)
				if err == nil {
					f.Write(ones)
					f.Close()
				}
			}
		})
		for range 400 {
			off := rand.Int64N(1 + rand.Int64N(directRead))
			rc, err := l.Open(t.Context(), "o", off, -1)
			if err != nil {
				if !errors.Is(err, ErrRange) {
					t.Error(err)
				}
				continue
			}
			n := rc.(*fileStream).end - off
			p := AlignedSlice(make([]byte, n+AlignSlack), off, n)
			m, err := io.ReadFull(rc, p)
			rc.Close()
			if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF && n > 0 {
				t.Errorf("%d from %d: %d, %v", n, off, m, err)
			}
		}
		close(stop)
		wg.Wait()
	}
}

// Errors of direct reads name the operation and the object too.
func TestDirectStreamErrorsNameTheObject(t *testing.T) {
	l, data := randomFile(t, 2*directRead)
	for _, end := range []string{"truncated", "closed", "cancelled"} {
		if err := os.WriteFile(filepath.Join(l.dir, "o"), data, 0o666); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		rc, err := l.Open(ctx, "o", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		p := AlignedSlice(make([]byte, len(data)+AlignSlack), 0, int64(len(data)))
		switch end {
		case "truncated":
			os.Truncate(filepath.Join(l.dir, "o"), 0)
		case "closed":
			rc.Close()
		case "cancelled":
			cancel()
		}
		n, err := rc.Read(p)
		if n != 0 || err == nil || end != "cancelled" && (!strings.Contains(err.Error(), "read ") || !strings.Contains(err.Error(), "/o")) {
			t.Errorf("%s: %d, %v", end, n, err)
		}
		rc.Close()
		cancel()
	}
}

// Concurrent streams do not mix their memory, also during garbage collection.
func TestDirectStreamsTogether(t *testing.T) {
	l, data := randomFile(t, 8*directRead+99)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 60 {
				off := rand.Int64N(int64(len(data)))
				n := int64(len(data)) - off
				rc, err := l.Open(t.Context(), "o", off, n)
				if err != nil {
					t.Error(err)
					return
				}
				p := AlignedSlice(make([]byte, n+AlignSlack), off, n)
				if _, err := io.ReadFull(rc, p); err != nil || !bytes.Equal(p, data[off:]) {
					t.Errorf("from %d: %v", off, err)
				}
				rc.Close()
				if n%7 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
}

// A stream that is read in several steps is read through the page cache, even into an aligned
// buffer.
func TestReadsInStepsUseThePageCache(t *testing.T) {
	l, data := randomFile(t, 3*directRead+100)
	rc, err := l.Open(t.Context(), "o", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	p := AlignedSlice(make([]byte, directRead+AlignSlack), 0, directRead)
	for read := 0; read < len(data); {
		n, err := rc.Read(p)
		if err != nil || !bytes.Equal(p[:n], data[read:read+n]) {
			t.Fatalf("%d from %d: %v", n, read, err)
		}
		read += n
		if rc.(*fileStream).direct {
			t.Fatalf("%d bytes from %d past the page cache", n, read-n)
		}
	}
}
