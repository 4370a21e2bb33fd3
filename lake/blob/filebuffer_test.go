package blob

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// writeIn writes data in steps of at most piece bytes and flushes.
func writeIn(w *fileBuffer, data []byte, piece int) error {
	for ; len(data) > 0; data = data[min(piece, len(data)):] {
		if n, err := w.Write(data[:min(piece, len(data))]); err != nil {
			return err
		} else if n != min(piece, len(data)) {
			return io.ErrShortWrite
		}
	}
	return w.Flush()
}

func TestFileBufferWritesItsInput(t *testing.T) {
	const mib = 1 << 20
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{
		0, 1, localWriteBuffer - 1, localWriteBuffer, localWriteBuffer + 1, mib - 1, mib, mib + 1,
		2 * mib, 2*mib + directAlign, 3*mib + 5, 6*mib - 1,
	} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		for _, piece := range []int{1 << 10, 4096, 100_001, mib, 5 * mib} {
			name := filepath.Join(t.TempDir(), "f")
			f, err := os.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := writeIn(newFileBuffer(f), data, piece); err != nil {
				t.Fatalf("%d bytes by %d: %v", size, piece, err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, data) {
				t.Fatalf("%d bytes by %d: the file differs, %d bytes", size, piece, len(got))
			}
		}
	}
}

// A file system may accept O_DIRECT and reject the write, as Linux does at an offset that is not
// aligned.
func TestFileBufferGoesOnIfDirectWritesAreRejected(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 5*directBuffer/16)
	if err := writeIn(newFileBuffer(f), data, 10_000); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, append([]byte{'x'}, data...)) {
		t.Errorf("the file differs, %d bytes", len(got))
	}
}

func TestFileBufferIsDroppedAtAnySize(t *testing.T) {
	for _, size := range []int{0, 1, directBuffer, 2*directBuffer + 1, 5 * directBuffer} {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		w := newFileBuffer(f)
		if _, err := w.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		w.drop()
		w.drop()
		if w.full != nil || w.buf != nil {
			t.Errorf("%d bytes: a buffer is left after drop", size)
		}
		f.Close()
	}
}
