package unpack

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
	"github.com/urlake/urlake/lake/raw"
)

// compressed returns data compressed with gzip or zstd.
func compressed(tb testing.TB, how string, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&buf)
	if how == "zstd" {
		z, err := zstd.NewWriter(&buf)
		if err != nil {
			tb.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// decodeAll decompresses zstd frames that are in memory.
func decodeAll(tb testing.TB, data []byte, opts ...zstd.DOption) ([]byte, error) {
	tb.Helper()
	d, err := zstd.NewReader(nil, append(opts, zstd.WithDecoderConcurrency(1))...)
	if err != nil {
		tb.Fatal(err)
	}
	defer d.Close()
	return d.DecodeAll(data, nil)
}

// dictionaryOf returns the dictionary in the first frame of data, plain or compressed, and nil for
// none or a damaged one: https://iipc.github.io/warc-specifications/specifications/warc-zstd/
func dictionaryOf(tb testing.TB, data []byte) []byte {
	frame, ok := bytes.CutPrefix(data, []byte("\x5d\x2a\x4d\x18"))
	if !ok || len(frame) < 4 {
		return nil
	}
	size := int(binary.LittleEndian.Uint32(frame))
	if size > maxDictionary || size > len(frame)-4 {
		return nil
	}
	b := frame[4 : 4+size]
	if CompressionOf(b) == "zstd" {
		plain, err := decodeAll(tb, b, zstd.WithDecoderMaxWindow(lowWindow), zstd.WithDecoderMaxMemory(maxDictionary))
		if err != nil {
			return nil
		}
		b = plain
	}
	if _, err := zstd.InspectDictionary(b); err != nil {
		return nil
	}
	return b
}

// FuzzDecompress compares the decompressed bytes with those of other decoders, if there are any. It
// checks that an object without its last byte is an error.
func FuzzDecompress(f *testing.F) {
	text := []byte("http://a/\nhttp://b/\n")
	for _, how := range []string{"gzip", "zstd"} {
		one := compressed(f, how, text)
		f.Add(one)
		f.Add(append(bytes.Clone(one), one...))
	}
	f.Add(append(compressed(f, "gzip", text), make([]byte, 20)...))
	// Small objects of every compression are among the test objects of package reader.
	paths, err := filepath.Glob("../reader/testdata/*.*")
	if err != nil || len(paths) == 0 {
		f.Fatal("no test objects", err)
	}
	seeds := 0
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		if CompressionOf(data) != raw.NoCompression {
			f.Add(data)
			seeds++
		}
	}
	if seeds < 4 {
		f.Fatalf("only %d compressed test objects", seeds)
	}
	const most = 4 << 20 // a few bytes may decompress to gigabytes
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(r io.Reader) ([]byte, error) {
			s := New(r)
			if _, err := s.Decompress(""); err != nil {
				return nil, err
			}
			return io.ReadAll(io.LimitReader(s, most))
		}
		how := CompressionOf(data)
		if how == raw.NoCompression {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if s := New(bytes.NewReader(data)); s != nil {
			if _, err := s.Decompress(""); err == nil {
				_, _ = io.CopyN(io.Discard, s, most)
			}
		}
		runtime.ReadMemStats(&after)
		// The window or dictionary of each frame or stream, the largest of which is allocated once.
		if got := after.TotalAlloc - before.TotalAlloc; got > 3*maxZstdWindow+8192*uint64(len(data)) {
			t.Fatalf("%d bytes of %s made their reader allocate %d MiB", len(data), how, got>>20)
		}
		got, err := read(bytes.NewReader(data))
		again, err2 := read(iotest.OneByteReader(bytes.NewReader(data)))
		if !bytes.Equal(got, again) || (err == nil) != (err2 == nil) {
			t.Fatalf("%d bytes and %v, in pieces %d and %v", len(got), err, len(again), err2)
		}
		if len(got) == most {
			return
		}
		var want []byte
		var wantErr error
		switch how {
		case "gzip":
			// The other decoder reads members whose header has reserved flags, which RFC 1952
			// forbids in 2.3.1.2.
			for rest := data; ; rest = rest[1:] {
				i := bytes.Index(rest, []byte("\x1f\x8b\x08"))
				if i < 0 {
					break
				}
				if rest = rest[i:]; len(rest) > 3 && rest[3]&0xe0 != 0 {
					return
				}
			}
			var z *gzip.Reader
			whole := bytes.TrimRight(data, "\x00") // padding, or the end of the last member
			for pad := 0; pad <= 8 && len(whole)+pad <= len(data); pad++ {
				if z, wantErr = gzip.NewReader(bytes.NewReader(data[:len(whole)+pad])); wantErr == nil {
					want, wantErr = io.ReadAll(z)
				}
				if wantErr == nil {
					break
				}
			}
		case "zstd":
			opts := []zstd.DOption{zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(maxZstdWindow)}
			if dictionary := dictionaryOf(t, data); dictionary != nil {
				opts = append(opts, zstd.WithDecoderDicts(dictionary))
			}
			want, wantErr = decodeAll(t, data, opts...)
		default:
			want, wantErr = got, err
		}
		if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes and %v, want %d and %v", how, len(got), err, len(want), wantErr)
		}
		if err == nil && how != "zstd" && data[len(data)-1] != 0 {
			if short, err := read(bytes.NewReader(data[:len(data)-1])); err == nil {
				t.Fatalf("%s without its last byte: %d bytes and no error", how, len(short))
			}
		}
	})
}
