package part

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/urlake/urlake/internal/testenv"

	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/seekable"
)

// The frame of a repeated value is encoded without an encoder; every decoder has to read it.
func TestRepeatedValuesAreOneZstdFrame(t *testing.T) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	var all, want []byte
	for _, value := range [][]byte{{1, 2, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, make([]byte, 8)} {
		for n := 1; n*len(value) <= seekable.MaxRawBlock; n += 1 + n/60 {
			frame := appendRepeated([]byte("before"), value, n)[len("before"):]
			got, err := dec.DecodeAll(frame, nil)
			if err != nil || !bytes.Equal(got, bytes.Repeat(value, n)) {
				t.Fatalf("%d times %x: %d bytes, %v", n, value, len(got), err)
			}
			const headers = 9 + 3
			if len(frame) > headers+len(got) {
				t.Fatalf("%d times %x: a block of %d bytes", n, value, len(frame)-headers)
			}
			all, want = append(all, frame...), append(want, got...)
		}
	}
	program, err := exec.LookPath("zstd")
	if err != nil {
		testenv.Missing(t, "the program zstd")
	}
	path := filepath.Join(t.TempDir(), "pages.zst")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "-dc", path).Output(); err != nil || !bytes.Equal(out, want) {
		t.Errorf("%s -dc reads something else: %v", program, err)
	}
}
