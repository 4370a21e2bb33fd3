package blob

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// randomFile returns a local store with an object "o" of size random bytes.
func randomFile(t *testing.T, size int) (*Local, []byte) {
	t.Helper()
	l, err := NewLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size)}).Read(data)
	if _, err := l.Put(t.Context(), "o", data, Condition{}); err != nil {
		t.Fatal(err)
	}
	return l, data
}

func TestAlignedSlice(t *testing.T) {
	for _, n := range []int64{0, 1, directRead - 1, directRead, directRead + 5} {
		for _, off := range []int64{0, 77, directAlign} {
			p := NewAlignedSlice(off, n)
			if int64(len(p)) != n || n < directRead && int64(cap(p)) > 2*n+8 || n >= directRead && (address(p)-off)%directAlign != 0 {
				t.Errorf("%d bytes for offset %x: %d of %d at %x", n, off, len(p), cap(p), address(p))
			}
		}
	}
	buf := make([]byte, 3*directAlign+AlignSlack+7)
	for _, from := range []int{0, 1, 7} {
		for _, off := range []int64{0, 1, directAlign - 1, directAlign, 5*directAlign + 100} {
			p := AlignedSlice(buf[from:], off, 3*directAlign)
			if len(p) != 3*directAlign || cap(p) != len(p) || (address(p)-off)%directAlign != 0 {
				t.Errorf("%d bytes at %x for offset %x", len(p), address(p), off)
			}
		}
	}
}

// Reads return the bytes of the object, whatever the range, the sizes of the reads and the
// alignment of memory, past the page cache or through it.
func TestStreamsPastThePageCache(t *testing.T) {
	const size = 5*directRead + 1234
	l, data := randomFile(t, size)
	r := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, size+AlignSlack)
	direct := 0
	for i := range 300 {
		off := r.Int64N(size)
		n := r.Int64N(size - off + 1)
		switch i % 4 {
		case 0:
			n = size - off
		case 1:
			off -= off % directAlign
			n = min(n&^(directAlign-1), size-off)
		}
		rc, err := l.Open(t.Context(), "o", off, n)
		if err != nil {
			t.Fatal(err)
		}
		s := rc.(*fileStream)
		clear(buf)
		p := AlignedSlice(buf, off, n)
		if i%5 == 0 { // memory that is not aligned
			p = buf[r.IntN(directAlign):][:n]
		}
		for read := int64(0); read < n; {
			piece := n - read
			if i%3 == 0 {
				piece = min(piece, 1+r.Int64N(2*directRead))
			}
			m, err := s.Read(p[read:][:piece])
			if err != nil || m == 0 {
				t.Fatalf("%d bytes from %d: %d at %d: %v", n, off, m, read, err)
			}
			if s.direct {
				direct++
			}
			read += int64(m)
		}
		if !bytes.Equal(p, data[off:off+n]) {
			t.Fatalf("%d bytes from %d differ", n, off)
		}
		if m, err := s.Read(buf); m != 0 || err != io.EOF {
			t.Fatalf("%d bytes from %d: %d more, %v", n, off, m, err)
		}
		s.Close()
	}
	f, err := os.Open(filepath.Join(l.dir, "o"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if setDirect(f, true) && direct == 0 {
		t.Error("nothing was read past the page cache")
	}
}

// A file that ends early is an error after the bytes that it still has.
func TestDirectStreamOfAFileThatShrinks(t *testing.T) {
	for _, left := range []int64{0, 1, directAlign, directRead, directRead + 77} {
		l, data := randomFile(t, 2*directRead)
		for _, off := range []int64{0, 100} {
			if err := os.WriteFile(filepath.Join(l.dir, "o"), data, 0o666); err != nil {
				t.Fatal(err)
			}
			n := int64(len(data)) - off
			s, err := l.Open(t.Context(), "o", off, n)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(l.dir, "o"), left); err != nil {
				t.Fatal(err)
			}
			p := AlignedSlice(make([]byte, n+AlignSlack), off, n)
			m, err := io.ReadFull(s, p)
			if want := max(0, left-off); int64(m) != want || !bytes.Equal(p[:m], data[off:off+want]) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d of %d left, from %d: read %d, want %d; error %v", left, len(data), off, m, want, err)
			}
			s.Close()
		}
	}
}

// A read into memory that is not aligned goes through the page cache, even if the file was set to
// direct reads before.
func TestStreamLeavesDirectReads(t *testing.T) {
	l, data := randomFile(t, 2*directRead)
	rc, err := l.Open(t.Context(), "o", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer rc.Close()
	s := rc.(*fileStream)
	s.direct = setDirect(s.f, true)
	got := AlignedSlice(make([]byte, len(data)+AlignSlack+1), 1, int64(len(data)))
	if _, err := io.ReadFull(s, got); err != nil {
		t.Fatal(err)
	}
	if s.direct || !bytes.Equal(got, data) {
		t.Errorf("direct is %t, equal %t", s.direct, bytes.Equal(got, data))
	}
}
