package partwriter

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/urlake/urlake/lake/partreader"
	"github.com/urlake/urlake/lake/seekable"
)

// A frame of a repeated value is put together by hand: any decoder has to read it.
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
		return // the programs of other readers need not be here
	}
	path := filepath.Join(t.TempDir(), "pages.zst")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program, "-dc", path).Output(); err != nil || !bytes.Equal(out, want) {
		t.Errorf("%s -dc reads something else: %v", program, err)
	}
}

func TestLevelsOfRunsAreRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 1))
	for range 5000 {
		w := levelWriter{have: 8}
		var want []bool
		for range rng.IntN(8) {
			n, defined := 1+rng.IntN(1<<rng.IntN(9)), rng.IntN(2) == 0
			w.add(n, defined)
			want = append(want, slices.Repeat([]bool{defined}, n)...)
		}
		w.flush()
		nulls := len(want) - partreader.CountTrue(want)
		got, err := partreader.AppendLevels(nil, w.dst, len(want), nulls)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%x: %v, want %v: %v", w.dst, got, want, err)
		}
		if groups := (len(want)+7)/8 + 3; len(w.dst) > groups {
			t.Fatalf("%d bytes for %d levels", len(w.dst), len(want))
		}
	}
}
