package seekable_test

import (
	"github.com/urlake/urlake/internal/testenv"

	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	zstdseekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/cespare/xxhash/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/seekable"
)

// frameFile writes frames with fences (nil for none) and returns the file and its description.
func frameFile(tb testing.TB, width int, fences, frames [][]byte) ([]byte, seekable.File) {
	tb.Helper()
	var buf bytes.Buffer
	w := seekable.NewWriter(&buf, width)
	raw := int64(0)
	for i, data := range frames {
		var fence []byte
		if width > 0 {
			fence = fences[i]
		}
		n, off, err := w.Frame(fence, data)
		if err != nil {
			tb.Fatal(err)
		}
		if n != i || off != raw {
			tb.Fatalf("frame %d at raw offset %d, want %d at %d", n, off, i, raw)
		}
		raw += int64(len(data))
		if w.RawBytes() != raw {
			tb.Fatalf("RawBytes %d, want %d", w.RawBytes(), raw)
		}
	}
	ff, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes(), ff
}

// ranges reads from memory and counts the reads if reads is not nil.
func ranges(data []byte, reads *int) seekable.RangeReader {
	return func(_ context.Context, off, n int64) ([]byte, error) {
		if reads != nil {
			*reads++
		}
		if off < 0 || n < 0 || off+n > int64(len(data)) {
			return nil, io.ErrUnexpectedEOF
		}
		return data[off : off+n], nil
	}
}

// sample makes frames of different sizes and kinds, compressible, random and of one byte, with
// fences.
func sample(seed uint64, frames int) (fences, data [][]byte) {
	rng := rand.New(rand.NewPCG(seed, 1))
	key := uint32(0)
	for i := range frames {
		key += 1 + rng.Uint32N(100)
		fences = append(fences, binary.BigEndian.AppendUint32(nil, key))
		b := make([]byte, 1+rng.IntN(3000))
		switch i % 3 {
		case 0:
			for j := range b {
				b[j] = byte(rng.Uint32())
			}
		case 1:
			for j := range b {
				b[j] = "https://example.org/"[j%20]
			}
		default:
			b = b[:1]
		}
		data = append(data, b)
	}
	return fences, data
}

func TestFramesRoundTrip(t *testing.T) {
	ctx := context.Background()
	for _, width := range []int{0, 4} {
		for _, n := range []int{0, 1, 2, 57} {
			t.Run(fmt.Sprintf("width %d, %d frames", width, n), func(t *testing.T) {
				fences, want := sample(uint64(n), n)
				file, ff := frameFile(t, width, fences, want)
				if ff.Bytes != int64(len(file)) || ff.XXH64 != xxhash.Sum64(file) || ff.Frames != n {
					t.Fatalf("description %+v of a file of %d bytes", ff, len(file))
				}
				reads := 0
				f, err := seekable.OpenAt(ctx, ranges(file, &reads), ff, "f", width)
				if err != nil {
					t.Fatal(err)
				}
				if reads != 1 {
					t.Errorf("opened in %d reads, want 1", reads)
				}
				if f.Len() != n || f.RawBytes() != ff.RawBytes {
					t.Fatalf("%d frames of %d bytes, want %d of %d", f.Len(), f.RawBytes(), n, ff.RawBytes)
				}
				if n == 0 {
					if _, err := f.Read(ctx, ranges(file, nil), 0, 0); err == nil {
						t.Error("reading no frames is no error")
					}
					return
				}
				reads = 0
				got, err := f.Read(ctx, ranges(file, &reads), 0, n)
				if err != nil {
					t.Fatal(err)
				}
				if reads != 1 {
					t.Errorf("%d reads, want 1", reads)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("frames differ: %s", diff)
				}
				var off int64
				for i, data := range want {
					one, err := f.Read(ctx, ranges(file, nil), i, i+1)
					if err != nil || !bytes.Equal(one[0], data) {
						t.Errorf("frame %d alone differs (%v)", i, err)
					}
					if f.RawSize(i) != int64(len(data)) {
						t.Errorf("frame %d: raw size %d, want %d", i, f.RawSize(i), len(data))
					}
					if width > 0 && !bytes.Equal(f.Fence(i), fences[i]) {
						t.Errorf("fence %d is %x, want %x", i, f.Fence(i), fences[i])
					}
					for _, d := range []int{0, len(data) / 2, len(data) - 1} {
						if fr, in := f.FrameAt(off + int64(d)); fr != i || in != d {
							t.Errorf("offset %d is in frame %d at %d, want %d at %d", off+int64(d), fr, in, i, d)
						}
					}
					off += int64(len(data))
				}
				for _, outside := range []int64{-1, off, off + 1} {
					if fr, _ := f.FrameAt(outside); fr != -1 {
						t.Errorf("offset %d is in frame %d, want none", outside, fr)
					}
				}
				for _, r := range [][2]int{{-1, 1}, {0, n + 1}, {1, 1}, {n, n}} {
					if _, err := f.Read(ctx, ranges(file, nil), r[0], r[1]); err == nil {
						t.Errorf("frames %v of %d: no error", r, n)
					}
				}
			})
		}
	}
}

// Find returns every frame that can have a key of the range and no other.
func TestFindAgreesWithBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		n := rng.IntN(12)
		// Distinct two-byte keys, cut into frames at random.
		var fences, frames [][]byte
		var frameOf []int
		var keys []uint16
		k := rng.IntN(4)
		for i := range n {
			for j := range 1 + rng.IntN(4) {
				if j == 0 {
					fences = append(fences, binary.BigEndian.AppendUint16(nil, uint16(k)))
				}
				keys = append(keys, uint16(k))
				frameOf = append(frameOf, i)
				k += 1 + rng.IntN(3)
			}
			frames = append(frames, []byte{byte(i)})
		}
		file, ff := frameFile(t, 2, fences, frames)
		f, err := seekable.Open(file[ff.Bytes-ff.FooterBytes:], ff.Bytes, "f", 2)
		if err != nil {
			t.Fatal(err)
		}
		for a := range k + 2 {
			for b := a; b < k+2; b++ {
				lo, hi := f.Find(binary.BigEndian.AppendUint16(nil, uint16(a)), binary.BigEndian.AppendUint16(nil, uint16(b)))
				if lo < 0 || hi < lo || hi > n {
					t.Fatalf("Find(%d, %d) = [%d, %d) of %d", a, b, lo, hi, n)
				}
				for i, key := range keys {
					if int(key) >= a && int(key) <= b && (frameOf[i] < lo || frameOf[i] >= hi) {
						t.Fatalf("Find(%d, %d) = [%d, %d) leaves out key %d of frame %d", a, b, lo, hi, key, frameOf[i])
					}
				}
				// A frame has no key of the range if its fence is above b, or the next frame's
				// fence is at or below a.
				for i := lo; i < hi; i++ {
					if int(binary.BigEndian.Uint16(fences[i])) > b {
						t.Fatalf("Find(%d, %d) = [%d, %d): frame %d starts at %x", a, b, lo, hi, i, fences[i])
					}
					if i+1 < n && int(binary.BigEndian.Uint16(fences[i+1])) <= a {
						t.Fatalf("Find(%d, %d) = [%d, %d): frame %d ends before %x", a, b, lo, hi, i, fences[i+1])
					}
				}
			}
		}
	}
}

func TestWriterRejectsFramesThatCannotBeRead(t *testing.T) {
	type call struct{ fence, data []byte }
	for name, calls := range map[string][]call{
		"fence of another width": {{fence: []byte("abc"), data: []byte("x")}},
		"descending fences":      {{fence: []byte("b."), data: []byte("x")}, {fence: []byte("a."), data: []byte("x")}},
		"equal fences":           {{fence: []byte("b."), data: []byte("x")}, {fence: []byte("b."), data: []byte("x")}},
		"empty frame":            {{fence: []byte("b."), data: nil}},
		"frame above the limit":  {{fence: []byte("b."), data: make([]byte, seekable.MaxFrame+1)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := seekable.NewWriter(io.Discard, 2)
			var err error
			for _, c := range calls {
				_, _, err = w.Frame(c.fence, c.data)
			}
			if err == nil {
				t.Fatal("no error")
			}
			if _, err := w.Finish(); err == nil {
				t.Error("Finish after a rejected frame: no error")
			}
		})
	}
	t.Run("after Finish", func(t *testing.T) {
		w := seekable.NewWriter(io.Discard, 0)
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Frame(nil, []byte("x")); err == nil {
			t.Error("Frame: no error")
		}
		if _, err := w.Finish(); err == nil {
			t.Error("Finish: no error")
		}
	})
	t.Run("failed write", func(t *testing.T) {
		disk := errors.New("disk full")
		w := seekable.NewWriter(failingWriter{err: disk}, 0)
		if _, _, err := w.Frame(nil, []byte("x")); !errors.Is(err, disk) {
			t.Errorf("got %v", err)
		}
		if _, err := w.Finish(); !errors.Is(err, disk) {
			t.Errorf("Finish: got %v", err)
		}
	})
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestFrameOfTheLargestSize(t *testing.T) {
	ctx := context.Background()
	data := bytes.Repeat([]byte("0123456789abcdef"), seekable.MaxFrame/16)
	file, ff := frameFile(t, 0, nil, [][]byte{data})
	f, err := seekable.OpenAt(ctx, ranges(file, nil), ff, "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Read(ctx, ranges(file, nil), 0, 1)
	if err != nil || !bytes.Equal(got[0], data) {
		t.Fatalf("differs (%v)", err)
	}
}

// readAll opens a file with a footer of footerBytes and reads every frame.
func readAll(file []byte, footerBytes int64, width int) ([][]byte, *seekable.Frames, error) {
	if int64(len(file)) < footerBytes {
		footerBytes = int64(len(file))
	}
	f, err := seekable.Open(file[int64(len(file))-footerBytes:], int64(len(file)), "f", width)
	if err != nil {
		return nil, nil, err
	}
	if f.Len() == 0 {
		return nil, f, nil
	}
	frames, err := f.Read(context.Background(), ranges(file, nil), 0, f.Len())
	return frames, f, err
}

func isCorrupt(err error) bool {
	var c *codec.CorruptError
	return errors.As(err, &c) && errors.Is(err, codec.ErrCorrupt)
}

func TestTruncatedFrameFileIsCorrupt(t *testing.T) {
	for _, width := range []int{0, 4} {
		fences, frames := sample(3, 5)
		file, ff := frameFile(t, width, fences, frames)
		for n := range file {
			// The size of the footer is not read from the file, so it is right even if the file is
			// not.
			if _, _, err := readAll(file[:n], ff.FooterBytes, width); !isCorrupt(err) {
				t.Fatalf("width %d, cut to %d of %d bytes: %v", width, n, len(file), err)
			}
			_, err := seekable.OpenAt(context.Background(), ranges(file[:n], nil), ff, "f", width)
			if err == nil {
				t.Fatalf("width %d, cut to %d of %d bytes: opened", width, n, len(file))
			}
		}
	}
}

// A flipped bit is an error, even without the hash of the footer, or it changes no data.
func TestFlippedBitInFrameFileIsNoticed(t *testing.T) {
	for _, width := range []int{0, 4} {
		fences, frames := sample(4, 4)
		for i := range frames {
			frames[i] = frames[i][:min(len(frames[i]), 60)]
		}
		file, ff := frameFile(t, width, fences, frames)
		for i := range file {
			for bit := range 8 {
				bad := bytes.Clone(file)
				bad[i] ^= 1 << bit
				got, f, err := readAll(bad, ff.FooterBytes, width)
				if err != nil {
					if !isCorrupt(err) {
						t.Fatalf("byte %d bit %d: %v is not a corruption", i, bit, err)
					}
					continue
				}
				if !cmp.Equal(frames, got) {
					t.Fatalf("byte %d bit %d: other data without an error", i, bit)
				}
				for k := range fences {
					if width > 0 && !bytes.Equal(f.Fence(k), fences[k]) {
						t.Fatalf("byte %d bit %d: other fences without an error", i, bit)
					}
				}
			}
		}
		for i := len(file) - int(ff.FooterBytes); i < len(file); i++ {
			bad := bytes.Clone(file)
			bad[i] ^= 0x10
			if _, err := seekable.OpenAt(context.Background(), ranges(bad, nil), ff, "f", width); !isCorrupt(err) {
				t.Fatalf("byte %d of the footer: %v", i, err)
			}
		}
	}
}

func TestDecodeRejectsOtherFrames(t *testing.T) {
	file, ff := frameFile(t, 0, nil, [][]byte{[]byte("first first first"), []byte("other other other")})
	f, err := seekable.Open(file[ff.Bytes-ff.FooterBytes:], ff.Bytes, "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	off, n := f.Range(1, 2)
	second := file[off : off+n]
	if _, err := f.Decode(1, second); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Decode(0, second); !isCorrupt(err) {
		t.Errorf("frame 1 read as frame 0: %v", err)
	}
	if _, err := f.Decode(1, second[:n-1]); !isCorrupt(err) {
		t.Errorf("short frame: %v", err)
	}
}

func TestOpenFramesOfAnotherWidth(t *testing.T) {
	fences, frames := sample(5, 3)
	for _, c := range []struct{ written, read int }{{4, 0}, {0, 4}, {4, 2}, {4, 8}} {
		file, ff := frameFile(t, c.written, fences, frames)
		if _, err := seekable.OpenAt(context.Background(), ranges(file, nil), ff, "f", c.read); !isCorrupt(err) {
			t.Errorf("width %d read as %d: %v", c.written, c.read, err)
		}
	}
}

func TestReadErrorIsNotCorruption(t *testing.T) {
	file, ff := frameFile(t, 0, nil, [][]byte{[]byte("data")})
	gone := errors.New("network is down")
	down := func(context.Context, int64, int64) ([]byte, error) { return nil, gone }
	if _, err := seekable.OpenAt(context.Background(), down, ff, "f", 0); !errors.Is(err, gone) || isCorrupt(err) {
		t.Errorf("open: %v", err)
	}
	f, err := seekable.OpenAt(context.Background(), ranges(file, nil), ff, "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(context.Background(), down, 0, 1); !errors.Is(err, gone) || isCorrupt(err) {
		t.Errorf("read: %v", err)
	}
}

func TestFrameFileDependsOnlyOnTheCalls(t *testing.T) {
	fences, frames := sample(6, 40)
	first, _ := frameFile(t, 4, fences, frames)
	for range 5 {
		again, _ := frameFile(t, 4, fences, frames)
		if !bytes.Equal(first, again) {
			t.Fatal("the same calls wrote different bytes")
		}
	}
}

// Another implementation of the seekable format reads frame files with and without fences.
func TestOtherSeekableReaderReadsFrameFiles(t *testing.T) {
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for _, width := range []int{0, 4} {
		fences, frames := sample(8, 23)
		file, ff := frameFile(t, width, fences, frames)
		want := slices.Concat(frames...)
		r, err := zstdseekable.NewReader(bytes.NewReader(file), dec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("width %d: sequential read differs (%v)", width, err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			off := rng.Int64N(ff.RawBytes)
			b := make([]byte, 1+rng.Int64N(ff.RawBytes-off))
			if _, err := r.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if !bytes.Equal(b, want[off:off+int64(len(b))]) {
				t.Fatalf("width %d: %d bytes at %d differ", width, len(b), off)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A zstd decoder passes over the footer.
func TestPlainZstdReadsFrameFiles(t *testing.T) {
	fences, frames := sample(9, 23)
	want := slices.Concat(frames...)
	for _, width := range []int{0, 4} {
		file, _ := frameFile(t, width, fences, frames)
		dec, err := zstd.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(dec)
		dec.Close()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("width %d: differs (%v)", width, err)
		}
		program, ok := testenv.Installed(t, "zstd")
		if !ok {
			continue
		}
		path := filepath.Join(t.TempDir(), "frames.zst")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, "-dc", path).Output()
		if err != nil || !bytes.Equal(out, want) {
			t.Fatalf("width %d: %s -dc differs (%v)", width, program, err)
		}
	}
}

// seekTable reads the seek table of a file and counts what was read of it.
func seekTable(file []byte) (frames []seekable.SeekFrame, start int64, err error) {
	t, err := seekable.OpenSeekTable(func(off int64) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(file[off:])), nil
	}, int64(len(file)), "f")
	if err != nil {
		return nil, 0, err
	}
	defer t.Close()
	for t.Next() {
		frames = append(frames, t.Frame)
	}
	return frames, t.Start, t.Err()
}

func TestSeekTableIsThatOfTheFrames(t *testing.T) {
	fences, data := sample(4, 300)
	for _, width := range []int{0, 4} {
		file, ff := frameFile(t, width, fences, data)
		frames, start, err := seekTable(file)
		if err != nil || len(frames) != len(data) {
			t.Fatalf("width %d: %d frames, %v, want %d", width, len(frames), err, len(data))
		}
		var stored int64
		for i, f := range frames {
			if f.Raw != int64(len(data[i])) || f.Checksum != uint32(xxhash.Sum64(data[i])) {
				t.Fatalf("width %d: frame %d is %+v", width, i, f)
			}
			stored += f.Stored
		}
		if stored != ff.Bytes-ff.FooterBytes || width == 0 && start != stored {
			t.Errorf("width %d: frames end at %d, the table begins at %d, want %d", width, stored, start, ff.Bytes-ff.FooterBytes)
		}
		// The same without checksums.
		var plain []byte
		for _, f := range frames {
			plain = codec.AppendU32(codec.AppendU32(plain, uint32(f.Stored)), uint32(f.Raw))
		}
		table := codec.AppendU32(codec.AppendU32(nil, 0x184D2A5E), uint32(len(plain)+9))
		table = codec.AppendU32(append(table, plain...), uint32(len(frames)))
		table = codec.AppendU32(append(table, 0), 0x8F92EAB1)
		again, _, err := seekTable(append(file[:start:start], table...))
		if err != nil || len(again) != len(frames) || again[7].Stored != frames[7].Stored || again[7].Checksum != 0 {
			t.Errorf("width %d: without checksums: %d frames, %v", width, len(again), err)
		}
	}
}

func TestDamagedSeekTableIsCorrupt(t *testing.T) {
	_, data := sample(4, 9)
	file, ff := frameFile(t, 0, nil, data)
	for n := range len(file) {
		if _, _, err := seekTable(file[:n]); !isCorrupt(err) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := int64(0); i < 8+4+1+4; i++ { // header and footer
		at := ff.Bytes - ff.FooterBytes + i
		if i >= 8 {
			at = ff.Bytes - 9 + i - 8
		}
		bad := bytes.Clone(file)
		bad[at] ^= 0x04
		if _, _, err := seekTable(bad); !isCorrupt(err) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
	// Failures of the store are not corruption.
	fault := errors.New("gone")
	for _, good := range []int{0, 1} {
		opened := 0
		_, err := seekable.OpenSeekTable(func(off int64) (io.ReadCloser, error) {
			if opened++; opened > good {
				return nil, fault
			}
			return io.NopCloser(bytes.NewReader(file[off:])), nil
		}, int64(len(file)), "f")
		if !errors.Is(err, fault) || isCorrupt(err) {
			t.Errorf("opened %d times: %v", good, err)
		}
	}
}

func FuzzOpenFrames(f *testing.F) {
	fences, frames := sample(10, 4)
	for i := range frames {
		frames[i] = frames[i][:min(len(frames[i]), 40)]
	}
	for _, width := range []int{0, 4} {
		file, ff := frameFile(f, width, fences, frames)
		f.Add(file, uint16(ff.FooterBytes), width == 4)
	}
	f.Fuzz(func(t *testing.T, file []byte, footer uint16, fenced bool) {
		width := 0
		if fenced {
			width = 4
		}
		_, _, err := readAll(file, int64(footer), width)
		if err != nil && !isCorrupt(err) {
			t.Fatalf("%v is not a corruption", err)
		}
	})
}

// A file does not depend on concurrency, and errors are not lost.
func TestConcurrencyMakesTheSameFile(t *testing.T) {
	for _, width := range []int{0, 4} {
		fences, data := sample(6, 50)
		if width == 0 {
			fences = nil
		}
		want, wantFile := frameFile(t, width, fences, data)
		for _, n := range []int{1, 2, 7, 100} {
			var buf bytes.Buffer
			w := seekable.NewWriter(&buf, width)
			w.SetConcurrency(n)
			raw, scratch := int64(0), []byte(nil)
			for i, d := range data {
				var fence []byte
				if width > 0 {
					fence = fences[i]
				}
				scratch = append(scratch[:0], d...) // Frame does not keep it
				if frame, off, err := w.Frame(fence, scratch); frame != i || off != raw || err != nil {
					t.Fatalf("frame %d at %d, %v, want %d at %d", frame, off, err, i, raw)
				}
				raw += int64(len(d))
			}
			file, err := w.Finish()
			if err != nil || file != wantFile || !bytes.Equal(buf.Bytes(), want) {
				t.Errorf("width %d, concurrency %d: %+v, %v, want %+v", width, n, file, err, wantFile)
			}

			limited := &limitedWriter{left: len(want) / 2}
			w = seekable.NewWriter(limited, width)
			w.SetConcurrency(n)
			for i, d := range data {
				var fence []byte
				if width > 0 {
					fence = fences[i]
				}
				if _, _, err = w.Frame(fence, d); err != nil {
					break
				}
			}
			if _, ferr := w.Finish(); !errors.Is(ferr, errFull) || err != nil && !errors.Is(err, errFull) {
				t.Errorf("width %d, concurrency %d, a writer that fails: %v, %v", width, n, err, ferr)
			}
		}
	}
}

var errFull = errors.New("full")

type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestSettingsComeBeforeFrames(t *testing.T) {
	for name, set := range map[string]func(w *seekable.Writer){
		"DisableCompression": func(w *seekable.Writer) { w.DisableCompression() },
		"SkipHash":           func(w *seekable.Writer) { w.SkipHash() },
		"SetConcurrency":     func(w *seekable.Writer) { w.SetConcurrency(2) },
	} {
		w := seekable.NewWriter(io.Discard, 0)
		if _, _, err := w.Frame(nil, []byte("x")); err != nil {
			t.Fatal(err)
		}
		set(w)
		if _, _, err := w.Frame(nil, []byte("x")); err == nil {
			t.Errorf("Frame after a late %s: no error", name)
		}
		if err := w.StoredFrame([]byte("x")); err == nil {
			t.Errorf("StoredFrame after a late %s: no error", name)
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("Finish after a late %s: no error", name)
		}
	}
}

// Stored frames are zstd frames of any size, alone or beside compressed ones.
func TestStoredFramesReadLikeOthers(t *testing.T) {
	var want [][]byte
	rng := rand.New(rand.NewPCG(11, 1))
	for _, n := range []int{1, 100, 64 << 10, 128 << 10, 128<<10 + 1, 256 << 10, 1 << 20, 5} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.IntN(3))
		}
		want = append(want, data)
	}
	for name, write := range map[string]func(w *seekable.Writer, i int) error{
		"uncompressed": func(w *seekable.Writer, i int) error {
			if i == 0 {
				w.DisableCompression()
			}
			_, _, err := w.Frame(nil, want[i])
			return err
		},
		"uncompressed, concurrent": func(w *seekable.Writer, i int) error {
			if i == 0 {
				w.SetConcurrency(2)
				w.DisableCompression()
			}
			_, _, err := w.Frame(nil, want[i])
			return err
		},
		"mixed": func(w *seekable.Writer, i int) error {
			if i == 0 {
				_, _, err := w.Frame(nil, want[i])
				return err
			}
			return w.StoredFrame(want[i][:len(want[i])/3], nil, want[i][len(want[i])/3:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			var file bytes.Buffer
			w := seekable.NewWriter(&file, 0)
			for i := range want {
				if err := write(w, i); err != nil {
					t.Fatal(err)
				}
			}
			ff, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if ff.Bytes < ff.RawBytes {
				t.Errorf("a file of %d bytes has %d stored", ff.Bytes, ff.RawBytes)
			}
			f, err := seekable.OpenAt(context.Background(), ranges(file.Bytes(), nil), ff, "f", 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Read(context.Background(), ranges(file.Bytes(), nil), 0, f.Len())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("frames differ: %s", diff)
			}
			dec, err := zstd.NewReader(bytes.NewReader(file.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(dec)
			dec.Close()
			if err != nil || !bytes.Equal(plain, slices.Concat(want...)) {
				t.Errorf("another zstd decoder reads different data: %v", err)
			}
			if program, ok := testenv.Installed(t, "zstd"); ok {
				path := filepath.Join(t.TempDir(), "frames.zst")
				if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(program, "-dc", path).Output(); err != nil || !bytes.Equal(out, plain) {
					t.Errorf("%s -dc differs (%v)", program, err)
				}
			}
		})
	}
}

// Every zstd decoder reads sectioned frames, whatever the sizes and the contents of the sections.
func TestSectionedFramesReadLikeOthers(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 1))
	skewed := func(n, symbols int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(float64(symbols) * rng.Float64() * rng.Float64() * rng.Float64())
		}
		return b
	}
	var want [][]byte
	var sections [][]int
	for _, n := range []int{0, 1, 255, 256, 257, 1023, 1024, 1025, 16<<10 - 1, 16 << 10, 128<<10 - 1, 128 << 10, 128<<10 + 1, 300_000} {
		for _, symbols := range []int{1, 2, 40, 256} {
			want = append(want, slices.Concat(skewed(n, symbols), skewed(12, 256), skewed(5000, symbols)))
			sections = append(sections, []int{n, 12, 5000})
			want = append(want, slices.Concat([]byte{7}, skewed(n, symbols)))
			sections = append(sections, []int{1, n})
		}
	}
	files := make([]bytes.Buffer, 2)
	for n := range files {
		w := seekable.NewWriter(&files[n], 0)
		w.SetConcurrency(2 * n)
		for i, data := range want {
			if _, _, err := w.SectionedFrame(nil, data, sections[i]...); err != nil {
				t.Fatal(err)
			}
		}
		ff, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		file := files[n].Bytes()
		if ff.Bytes > ff.RawBytes*4/5 {
			t.Errorf("file of %d bytes for %d", ff.Bytes, ff.RawBytes)
		}
		f, err := seekable.OpenAt(context.Background(), ranges(file, nil), ff, "f", 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := f.Read(context.Background(), ranges(file, nil), 0, f.Len())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(want, got, bytes.Equal) {
			t.Error("frames differ")
		}
		if program, ok := testenv.Installed(t, "zstd"); ok {
			path := filepath.Join(t.TempDir(), "sections.zst")
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(program, "-dc", path).Output(); err != nil || !bytes.Equal(out, slices.Concat(want...)) {
				t.Errorf("%s -dc differs (%v)", program, err)
			}
		}
	}
	if !bytes.Equal(files[0].Bytes(), files[1].Bytes()) {
		t.Error("concurrency makes a different file")
	}
	w := seekable.NewWriter(io.Discard, 0)
	if _, _, err := w.SectionedFrame(nil, make([]byte, 10), 4, 5); err == nil {
		t.Error("sections of 9 bytes for 10: no error")
	}
}

// DecodeInto decodes into the memory that it is given if that is enough.
func TestDecodeIntoMemory(t *testing.T) {
	var file bytes.Buffer
	w := seekable.NewWriter(&file, 0)
	want := [][]byte{bytes.Repeat([]byte("a"), 1000), []byte("b"), bytes.Repeat([]byte("c"), 5000)}
	for _, data := range want {
		if _, _, err := w.Frame(nil, data); err != nil {
			t.Fatal(err)
		}
	}
	ff, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	f, err := seekable.OpenAt(context.Background(), ranges(file.Bytes(), nil), ff, "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for i := range want {
		off, n := f.Range(i, i+1)
		got, err := f.DecodeInto(i, file.Bytes()[off:off+n], buf)
		if err != nil || !bytes.Equal(got, want[i]) {
			t.Fatalf("frame %d: %v", i, err)
		}
		if (&got[0] == &buf[0]) != (len(got) <= len(buf)) {
			t.Errorf("frame %d of %d bytes is in other memory", i, len(got))
		}
	}
}

// SkipHash does not change the file.
func TestFileWithoutAHash(t *testing.T) {
	write := func(skip bool) ([]byte, seekable.File) {
		var buf bytes.Buffer
		w := seekable.NewWriter(&buf, 0)
		if skip {
			w.SkipHash()
		}
		for i := range 5 {
			if err := w.StoredFrame([]byte("a frame, "), bytes.Repeat([]byte{byte(i)}, 1000*i)); err != nil {
				t.Fatal(err)
			}
		}
		ff, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return buf.Bytes(), ff
	}
	want, ff := write(false)
	got, without := write(true)
	if !bytes.Equal(got, want) {
		t.Error("the bytes differ")
	}
	if ff.XXH64 == 0 || without.XXH64 != 0 {
		t.Errorf("hashes %x and %x", ff.XXH64, without.XXH64)
	}
	if without.XXH64 = ff.XXH64; without != ff {
		t.Errorf("%+v, want %+v", without, ff)
	}
}
